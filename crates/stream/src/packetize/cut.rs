//! Connections that are cut: nothing of them goes on any more.

use netbricks_core::packet::tcp::{TcpRef, flags};

use super::emit::bare;
use super::{Emit, Packetizer, Passage};
use crate::connection::Stage;
use crate::rewriter::Cut;
use crate::{End, Rewriter, Side};

impl<R: Rewriter> Packetizer<R> {
    /// The packet in hand cut its connection, whose direction `side` had sent `sent` bytes before it.
    pub(super) fn sever(
        &mut self,
        number: u32,
        side: Side,
        cut: Cut,
        sent: u64,
        header: TcpRef<'_>,
        mut send: impl FnMut(&Emit<'_>) -> bool,
    ) -> Passage {
        let [own, other] = [side, side.other()].map(|side| side as usize);
        let maps = &mut self.maps[number as usize];
        if cut == Cut::Reset {
            let acknowledgment = maps[other].translate(&self.edits, header.acknowledgment_number(), false);
            send(&bare(maps[own].number(sent), acknowledgment, flags::RST | flags::ACK, false));
        }
        self.close(number, cut);
        self.refuse(cut, header, send)
    }

    /// Nothing of a connection goes on any more.
    pub(super) fn close(&mut self, number: u32, cut: Cut) {
        let now = self.streams.last_heard(number);
        self.clear(number, End::Reset, now);
        self.maps[number as usize].iter_mut().for_each(|map| map.cut = Some(cut));
        // Where no end was told to stop, it is known for as long as any.
        self.streams.reset(number, if cut == Cut::Reset { Stage::Over } else { Stage::Open });
    }

    /// A packet of a connection that was cut.
    pub(super) fn refuse(
        &mut self,
        cut: Cut,
        header: TcpRef<'_>,
        mut send: impl FnMut(&Emit<'_>) -> bool,
    ) -> Passage {
        self.counters.refused += 1;
        if cut == Cut::Reset && header.flags() & (flags::ACK | flags::RST) == flags::ACK {
            // What its sender expects next, by its own word (RFC 9293, section 3.10.7.1).
            send(&bare(header.acknowledgment_number(), 0, flags::RST, true));
        }
        Passage::Refused
    }
}
