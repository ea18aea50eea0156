//! Connections that are cut: none of their segments are forwarded any more.

use netbricks_core::packet::tcp::{TcpRef, flags};

use super::emit::bare;
use super::{Emit, Packetizer, Passage};
use crate::connection::Stage;
use crate::rewriter::Cut;
use crate::{End, Rewriter, Side};

impl<R: Rewriter> Packetizer<R> {
    /// Cuts a connection because of the packet in hand. Its direction `side` had sent `sent` bytes before.
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

    /// Stops forwarding a connection.
    pub(super) fn close(&mut self, number: u32, cut: Cut) {
        let now = self.streams.last_heard(number);
        self.clear(number, End::Reset, now);
        self.maps[number as usize].iter_mut().for_each(|map| map.cut = Some(cut));
        // Where no end was told to stop, the connection is known as long as any other.
        self.streams.reset(number, if cut == Cut::Reset { Stage::Over } else { Stage::Open });
    }

    /// Refuses a packet of a connection that was cut.
    pub(super) fn refuse(
        &mut self,
        cut: Cut,
        header: TcpRef<'_>,
        mut send: impl FnMut(&Emit<'_>) -> bool,
    ) -> Passage {
        self.counters.refused += 1;
        if cut == Cut::Reset && header.flags() & (flags::ACK | flags::RST) == flags::ACK {
            // The number that its sender expects next, by its own acknowledgment (RFC 9293, section
            // 3.10.7.1).
            send(&bare(header.acknowledgment_number(), 0, flags::RST, true));
        }
        Passage::Refused
    }
}
