//! The operator in the packets' path: it rewrites the streams in packets (NetBricks, section 3.1, window and
//! packetize).
//!
//! The rewritten streams leave in packets of their own.

use std::marker::PhantomData;
use std::net::IpAddr;

use netbricks_core::buffer::Offload;
use netbricks_core::operators::{Original, Substitute, Substitutes, is_cut_off};
use netbricks_core::packet::build::{BuildError as Unbuildable, Builder, ipv4, ipv6};
use netbricks_core::packet::stack::{Header, Holds, Stack};
use netbricks_core::packet::tcp::TcpRef;
use netbricks_core::packet::tcp_options::TcpOptions;
use netbricks_core::packet::{FlowKey, Ip, IpMut, PseudoHeader, Tcp, TcpOption, protocol};

use crate::{
    ANSWER, Emit, InlineWindow, InlineWindowConfig, InlineWindowParts, PacketizeConfig, Packetizer,
    PacketizerParts, Passage, Rewriter, WindowDecider,
};
use netbricks_core::reason::{DropReason, Edge, Verdict};
use netbricks_core::shuffle::{self, ShuffleKey};
use netbricks_core::state::{Declared, Mobility, State, StateTerms, Succession};
use netbricks_core::{BuildError, Worker};

/// The most connections that one run of the timeout's event forgets.
const EXPIRED_A_RUN: usize = 1_024;
/// The period at which connections are checked for silence (ns).
const PERIOD: u64 = 1_000_000_000;

/// The operator that rewrites streams.
pub struct Packetize<R: Rewriter, I>(State<Packetizer<R>>, PhantomData<fn() -> I>);

impl<R: Rewriter, I> Packetize<R, I> {
    pub(crate) fn new(packetizer: State<Packetizer<R>>) -> Self {
        Self(packetizer, PhantomData)
    }
}

/// Declares streams that are rewritten: see [`StreamWorker::packetizer`](crate::StreamWorker::packetizer).
pub(super) fn packetizer_of<R: Rewriter>(
    worker: &Worker,
    name: &str,
    config: PacketizeConfig,
    rewriter: R,
) -> State<Packetizer<R>> {
    let config = PacketizeConfig { seed: worker.seed(), ..config };
    // No packet comes to the control side's copy.
    let sized = if worker.is_control() { PacketizeConfig::SMALLEST } else { config };
    let workings = PacketizerParts::new(sized).or_else(|error| {
        worker.fail(BuildError::new(format_args!("streams `{name}`: {error}")));
        PacketizerParts::new(PacketizeConfig::SMALLEST)
    });
    let packetizer = match workings {
        Ok(workings) => worker.declare(name, Packetizer::over(workings, rewriter)),
        // The build has failed already, and nothing can run without memory for a page.
        Err(error) => panic!("no memory for one connection: {error}"),
    };
    let expiring = packetizer.clone();
    worker.invoke_every(&format!("{name}.timeout"), PERIOD, move |event| {
        expiring.borrow_mut().expire(event.now(), EXPIRED_A_RUN);
    });
    packetizer
}

/// Declares windows in the packets' path:
/// see [`StreamWorker::inline_window`](crate::StreamWorker::inline_window).
pub(super) fn inline_window_of<F: WindowDecider + 'static>(
    worker: &Worker,
    name: &str,
    config: InlineWindowConfig,
    f: F,
) -> State<Packetizer<InlineWindow<F>>> {
    let sized = if worker.is_control() { InlineWindowConfig::SMALLEST } else { config };
    let post = InlineWindowParts::new(sized).or_else(|error| {
        worker.fail(BuildError::new(format_args!("windows `{name}`: {error}")));
        InlineWindowParts::new(InlineWindowConfig::SMALLEST)
    });
    let inline_window = match post {
        Ok(post) => packetizer_of(worker, name, config.packets, InlineWindow::over(post, f)),
        // As above.
        Err(error) => panic!("no memory for a window of one byte: {error}"),
    };
    let finishing = inline_window.clone();
    worker.at_the_end(move || finishing.borrow_mut().finish());
    inline_window
}

/// Exports nothing, because a changed function does not know the numbers of earlier segments.
///
/// Where buckets migrate, their connections move completely, if the rewriter [can move](Rewriter::MOVES).
impl<R: Rewriter> Declared for Packetizer<R> {
    fn export(&self) -> Vec<u8> {
        Vec::new()
    }
    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        if bytes.is_empty() { Ok(()) } else { self.put(bytes, now) }
    }
    fn succession(&self, _: &StateTerms) -> Succession {
        Succession::anew("the numbers of segments that were changed are not known there")
    }
    fn mobility(&self, by: ShuffleKey) -> Mobility {
        // With any other key the two directions may be on different workers.
        if R::MOVES && by == ShuffleKey::SymmetricFlow { Mobility::Moves } else { Mobility::Bound }
    }
    fn take_part(&mut self, part: &shuffle::Part, _: usize) -> (Vec<u8>, Option<usize>) {
        (self.take_where(|flow| part.holds(flow)), None)
    }
    fn occupancy(&self) -> (u64, u64) {
        let (connections, most) = self.occupancy();
        (connections as u64, most as u64)
    }
}

impl<S, R, I> Substitute<S> for Packetize<R, I>
where
    S: Holds<Ip, I> + Stack<Top = Tcp>,
    R: Rewriter,
    I: 'static,
{
    fn substitute(&mut self, packet: Original<'_, S>) -> Verdict {
        let Original { frame, missing, stack, offload, captured, received_at: time, mut substitutes } =
            packet;
        // In the order of the other packets, which leave this function here.
        let unchanged = Verdict::OUT;
        let (ip, ip_end, facts) = Holds::<Ip, I>::locate(&stack);
        let flow = FlowKey::at(frame, ip, ip_end, stack.payload_end(), facts);
        let header = Ip::view(&frame[ip..ip_end], facts);
        let pseudo = header.pseudo_header();
        if !pseudo.is_known() {
            // No segment of this sender could get a checksum, because its final destination can't be read.
            return if self.0.borrow().takes(flow) {
                Verdict::drop(DropReason::BadChecksum)
            } else {
                unchanged
            };
        }
        if header.is_fragment() {
            // Without its first fragment the segment arrives nowhere, with numbers that the other side does
            // not know. Its sender sends it again.
            return if self.0.borrow().takes(flow) { Verdict::drop(DropReason::Fragment) } else { unchanged };
        }
        if missing > 0 && is_cut_off(header, ip, frame.len()) {
            // As with fragments: missing bytes can't be rewritten, and the numbers behind them would be
            // wrong.
            return if self.0.borrow().takes(flow) {
                Verdict::drop(DropReason::Truncated)
            } else {
                unchanged
            };
        }
        let (tcp, _) = stack.top();
        let (end, limit) = (stack.end(), stack.limit(frame.len()));
        if !is_intact(offload, captured, &pseudo, &frame[tcp..limit]) {
            // The port may trust its link, but an outgoing segment gets its own checksum, which would be
            // right over wrong bytes.
            return if self.0.borrow().takes(flow) {
                Verdict::drop(DropReason::BadChecksum)
            } else {
                unchanged
            };
        }
        let header = Tcp::view(&frame[tcp..end], ());
        let mut count = 0;
        let now = substitutes.now();
        let sender = &mut substitutes;
        let passage = self.0.borrow_mut().push(flow, header, &frame[end..limit], now, |emit| {
            if emit.back {
                return answer(emit, flow, header, &frame[..ip], time, sender);
            }
            let fixed = tcp + Tcp::SIZE;
            let end = fixed + emit.options.len();
            let len = end + emit.len;
            let Some(mut packet) = sender.pool().allocate(len) else {
                // The bytes of the segment wait for the next packet.
                if emit.len == 0 {
                    sender.lost(DropReason::PoolExhausted, len as u64);
                }
                return false;
            };
            packet.set_received_at(time);
            let to = packet.data_mut();
            to[..fixed].copy_from_slice(&frame[..fixed]);
            to[fixed..end].copy_from_slice(emit.options);
            emit.write(&mut to[end..]);
            stack.resized(len as isize - limit as isize).restate(to);
            if let IpMut::V4(mut header) = Ip::view_mut(&mut to[ip..ip_end], facts) {
                // Each packet has its own identification, in case it is fragmented (RFC 6864).
                let identification = header.as_ref().identification().wrapping_add(count);
                header.set_identification(identification);
            }
            count = count.wrapping_add(1);
            write_header(emit, &pseudo, &mut to[tcp..]);
            match sender.send_segment(Edge::OUT, packet) {
                Ok(()) => true,
                Err(_) if emit.len > 0 => false,
                Err(packet) => {
                    sender.lost(DropReason::RateLimited, packet.len() as u64);
                    false
                }
            }
        });
        match passage {
            Passage::Unchanged => unchanged,
            Passage::Replaced => Verdict::drop(DropReason::Replaced),
            Passage::NoRoom => Verdict::drop(DropReason::TableFull),
            Passage::Refused => Verdict::drop(DropReason::Denied),
        }
    }
}

/// Sends a segment back to the sender of a packet, in the name of the other end of `flow`.
///
/// The packet begins with `link` and came at `time` (ns). A segment without bytes that could not be sent is
/// lost. A segment with bytes may be sent later.
#[cold]
fn answer(
    emit: &Emit<'_>,
    flow: FlowKey,
    header: TcpRef<'_>,
    link: &[u8],
    time: u64,
    sender: &mut Substitutes<'_>,
) -> bool {
    // Behind labels, in a session or in a tunnel, the way back differs from the way here.
    if !is_plain(link) {
        return false;
    }
    let times = |options: TcpOptions<'_>| {
        options.flatten().find_map(|option| match option {
            TcpOption::Timestamps { value, echo_reply } => Some((value, echo_reply)),
            _ => None,
        })
    };
    // Its own time stamps, or else those of the packet, exchanged: its receiver heard these last, so they are
    // not too old.
    let times = times(TcpOptions::new(emit.options))
        .or_else(|| times(header.options()).map(|(value, echo_reply)| (echo_reply, value)));
    let [from, to] = [flow.destination(), flow.source()];
    let [from_port, to_port] = [flow.destination_port(), flow.source_port()];
    let mut bytes = [0; ANSWER];
    let bytes = &mut bytes[..emit.len.min(ANSWER)];
    emit.write(bytes);
    let length = link.len() + LONGEST_ANSWER + bytes.len();
    let Some(mut packet) = sender.pool().allocate(length) else {
        if bytes.is_empty() {
            sender.lost(DropReason::PoolExhausted, length as u64);
        }
        return false;
    };
    let Some((front, rest)) = packet.data_mut().split_at_mut_checked(link.len()) else { return false };
    front.copy_from_slice(link);
    front[..12].rotate_left(6);
    let written = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            write_answer(emit, times, ipv4(from, to).ttl(64).tcp(from_port, to_port), bytes, rest)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            write_answer(emit, times, ipv6(from, to).hop_limit(64).tcp(from_port, to_port), bytes, rest)
        }
        // A packet's addresses are of one version.
        _ => return false,
    };
    let Ok(written) = written else { return false };
    packet.truncate(link.len() + written);
    packet.set_received_at(time);
    let created = match bytes {
        [] => sender.answer(Edge::REPLY, packet),
        _ => sender.send_segment(Edge::REPLY, packet),
    };
    match created {
        Ok(()) => true,
        Err(packet) => {
            if bytes.is_empty() {
                sender.lost(DropReason::RateLimited, packet.len() as u64);
            }
            false
        }
    }
}

/// Bytes of IPv6, TCP, and time stamps with two bytes of padding.
const LONGEST_ANSWER: usize = 40 + 20 + 12;

fn write_answer(
    emit: &Emit<'_>,
    times: Option<(u32, u32)>,
    tcp: Builder<'_, Tcp>,
    bytes: &[u8],
    room: &mut [u8],
) -> Result<usize, Unbuildable> {
    let tcp = tcp.sequence(emit.number).ack(emit.acknowledgment).window(emit.window);
    // Ends that agreed on time stamps want them in every segment (RFC 7323, section 3.2).
    let tcp = match times {
        Some((value, echo)) => tcp.timestamps(value, echo),
        None => tcp,
    };
    tcp.flags(emit.flags).payload(bytes).write(room)
}

/// Whether these bytes are Ethernet with any number of tags, and nothing else.
fn is_plain(link: &[u8]) -> bool {
    let tags = link.len().checked_sub(14).filter(|tags| tags % 4 == 0);
    tags.is_some_and(|tags| {
        link[12..12 + tags]
            .chunks_exact(4)
            .all(|tag| matches!(tag[..2], [0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00]))
    })
}

/// Whether a segment arrived as it was sent.
///
/// It did where its checksum holds, where a device has verified it, or where a device was to write it. A
/// capture does not say that the checksum was left to a device. The field then holds the sum of the
/// pseudo-header (virtio 1.2, section 5.1.6.2). On the wire that value is as wrong as any other.
fn is_intact(offload: Offload, captured: bool, pseudo: &PseudoHeader, segment: &[u8]) -> bool {
    if offload.needs_checksum || offload.checksum_valid {
        return true;
    }
    let Some([high, low]) = segment.get(CHECKSUM..CHECKSUM + 2) else { return false };
    let stored = u16::from_be_bytes([*high, *low]);
    let pseudo = pseudo.sum(protocol::TCP, segment.len() as u32);
    pseudo.add_bytes(segment).fold() == u16::MAX || captured && pseudo.fold() == stored
}

/// The offset of the checksum in a TCP header (RFC 9293, section 3.1).
const CHECKSUM: usize = 16;

/// Writes the numbers of a segment, and its checksum.
fn write_header(emit: &Emit<'_>, pseudo: &PseudoHeader, segment: &mut [u8]) {
    let len = Tcp::SIZE + emit.options.len();
    let mut header = Tcp::view_mut(&mut segment[..len], ());
    header.set_sequence_number(emit.number);
    header.set_acknowledgment_number(emit.acknowledgment);
    header.set_options_len(emit.options.len());
    header.set_flags(emit.flags);
    header.set_window(emit.window);
    // The urgent byte was taken out.
    header.set_urgent_pointer(0);
    header.set_checksum(0);
    let checksum = pseudo.checksum(protocol::TCP, segment);
    Tcp::view_mut(&mut segment[..len], ()).set_checksum(checksum);
}
