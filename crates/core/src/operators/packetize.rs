//! The operator in the packets' way: the streams that they carry are rewritten, and go on in packets of their own
//! (NetBricks, section 3.1, window and packetize).

use std::marker::PhantomData;

use netbricks_buffer::Batch;
use netbricks_packet::stack::{Header, Holds, Stack};
use netbricks_packet::{FlowKey, Ip, IpMut, Tcp, checksum};

use super::{passes_on, upstream};
use crate::context::Context;
use crate::operator::{At, Operator};
use crate::reason::{Drop, Edge, Verdict};
use crate::registry::{BuildError, Worker};
use crate::state::{Declared, State};
use crate::stream::{Emit, PacketizeConfig, Packetizer, Passage, Rewriter};

/// Connections that one run of the timeout's event forgets.
const EXPIRED_A_RUN: usize = 1_024;
/// How often connections are looked for that were silent too long (ns).
const PERIOD: u64 = 1_000_000_000;

/// Rewrites streams.
pub struct Packetize<A, R: Rewriter, I>(A, State<Packetizer<R>>, PhantomData<fn() -> I>);

impl<A: Operator, R: Rewriter, I> Packetize<A, R, I> {
    pub(crate) fn new(input: A, packetizer: State<Packetizer<R>>) -> Self {
        Self(input, packetizer, PhantomData)
    }
}

impl Worker {
    /// Declares streams that are rewritten, with the worker's seed, and the event that forgets silent connections. Where
    /// they can't be, the node's building fails with that error.
    pub fn packetizer<R: Rewriter + Clone>(
        &self,
        name: &str,
        config: PacketizeConfig,
        rewriter: R,
    ) -> State<Packetizer<R>> {
        let config = PacketizeConfig { seed: self.seed(), ..config };
        let packetizer = Packetizer::new(config, rewriter.clone()).or_else(|error| {
            self.fail(BuildError::new(format_args!("streams `{name}`: {error}")));
            Packetizer::new(PacketizeConfig::SMALLEST, rewriter)
        });
        let packetizer = match packetizer {
            Ok(packetizer) => self.declare(name, packetizer),
            // The failure stands already, and nothing can run without memory for a page.
            Err(error) => panic!("no memory for one connection: {error}"),
        };
        let expiring = packetizer.clone();
        self.invoke_every(&format!("{name}.timeout"), PERIOD, move |event| {
            expiring.borrow_mut().expire(event.now(), EXPIRED_A_RUN);
        });
        packetizer
    }
}

/// What is rewritten cannot go on elsewhere: there the numbers of what was said before are not known. Nothing is exported.
impl<R: Rewriter> Declared for Packetizer<R> {
    fn export(&self) -> Vec<u8> {
        Vec::new()
    }
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        match bytes.len() {
            0 => Ok(()),
            found => Err(format!(
                "streams that are rewritten are not handed over: 0 bytes expected, found {found}"
            )),
        }
    }
    fn occupancy(&self) -> (u64, u64) {
        let (connections, most) = self.occupancy();
        (connections as u64, most as u64)
    }
}

impl<A, R, I> Operator for Packetize<A, R, I>
where
    A: Operator,
    A::Out: Holds<Ip, I> + Stack<Top = Tcp>,
    R: Rewriter,
    I: 'static,
{
    type Out = A::Out;
    passes_on!();

    #[inline(always)]
    fn apply<const USUAL: bool>(&mut self, mut at: At<'_, '_>, stack: A::In) -> Result<Self::Out, Verdict> {
        let stack = upstream!(self, at, stack);
        let At { slot, bytes, cx, .. } = at;
        // In the order of the others, which leave this function here.
        let unchanged = Err(Verdict::edge(Edge::OUT));
        let frame = bytes.data();
        let (ip, ip_end, facts) = Holds::<Ip, I>::locate(&stack);
        let flow = FlowKey::at(frame, ip, ip_end, stack.payload_end(), facts);
        if Ip::view(&frame[ip..ip_end], facts).is_fragment() {
            // Without its first fragment the segment comes nowhere, with numbers that the other side does not know. Its
            // sender sends it again.
            return if self.1.borrow().rewrites(flow) {
                Err(Verdict::drop(Drop::Fragment))
            } else {
                unchanged
            };
        }
        let (tcp, _) = stack.top();
        let (end, limit) = (stack.end(), stack.limit(frame.len()));
        let header = Tcp::view(&frame[tcp..end], ());
        let mut count = 0;
        let now = cx.now();
        let passage = self.1.borrow_mut().push(flow, header, &frame[end..limit], now, |emit| {
            let len = end + emit.len;
            let Some(mut packet) = cx.pool().allocate(len) else {
                return cx.lost_on_creation(Drop::PoolExhausted, len as u64);
            };
            let to = packet.data_mut();
            to[..end].copy_from_slice(&frame[..end]);
            emit.write(&mut to[end..]);
            stack.resized(len as isize - limit as isize).restate(to);
            if let IpMut::V4(mut header) = Ip::view_mut(&mut to[ip..ip_end], facts) {
                // Each packet has its own, should it be fragmented (RFC 6864).
                let identification = header.as_ref().identification().wrapping_add(count);
                header.set_identification(identification);
            }
            count = count.wrapping_add(1);
            write_header(emit, flow, &mut to[tcp..], end - tcp);
            if let Err(packet) = cx.create_for(slot, Edge::OUT, packet) {
                cx.lost_on_creation(Drop::RateLimited, packet.len() as u64);
            }
        });
        match passage {
            Passage::Unchanged => unchanged,
            Passage::Replaced => Err(Verdict::drop(Drop::Rewritten)),
            Passage::NoRoom => Err(Verdict::drop(Drop::TableFull)),
        }
    }
}

/// The numbers of a segment whose header has `len` bytes, and its checksum.
fn write_header(emit: &Emit<'_>, flow: FlowKey, segment: &mut [u8], len: usize) {
    let mut header = Tcp::view_mut(&mut segment[..len], ());
    header.set_sequence_number(emit.number);
    header.set_acknowledgment_number(emit.acknowledgment);
    header.set_flags(emit.flags);
    header.set_window(emit.window);
    // Urgent data stays among the other, and where its end is now nobody says.
    header.set_urgent_pointer(0);
    header.change_options(without_sack);
    header.set_checksum(0);
    let checksum = checksum::transport(flow.source(), flow.destination(), 6, segment);
    Tcp::view_mut(&mut segment[..len], ()).set_checksum(checksum);
}

/// Makes no-operations of options that promise or are selective acknowledgments.
fn without_sack(options: &mut [u8]) {
    const NO_OPERATION: u8 = 1;
    let mut at = 0;
    while let Some([kind, rest @ ..]) = options.get(at..) {
        let len = match (kind, rest.first()) {
            (0, _) => return,
            (&NO_OPERATION, _) => 1,
            (_, Some(len)) if *len >= 2 => usize::from(*len),
            _ => return,
        };
        if let (4 | 5, Some(option)) = (*kind, options.get_mut(at..at + len)) {
            option.fill(NO_OPERATION);
        }
        at += len;
    }
}
