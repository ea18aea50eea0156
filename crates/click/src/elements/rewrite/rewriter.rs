//! The rewriters: `IPRewriter`, `TCPRewriter`, `UDPRewriter`, `IPAddrRewriter`, `IPAddrPairRewriter`,
//! `ICMPPingRewriter`.

use std::cell::RefCell;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::configure;
use super::flow_id::{Difference, FlowId};
use super::flows::{Flows, Kind, Maker, NO_ENTRY, NewFlow, SharedFlows};
use super::pattern::{Decision, Search};
use super::spec::Spec;
use super::translate::{self, Headers, half, protocol, word};
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::packet::Annotated as _;
use crate::router::At;

/// The fields that a rewriter rewrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rewrites {
    /// TCP's and UDP's addresses and ports, each in a map of its own.
    IpPorts,
    /// TCP's addresses, ports and sequence numbers.
    Tcp,
    /// Addresses and ports of TCP, UDP and DCCP in one map.
    Udp,
    /// The source address of any packet, and the destination of its answers.
    Source,
    /// Both addresses of any packet.
    Addresses,
    /// Addresses and identifiers of ICMP echo requests, and of replies to them.
    Ping,
}

/// Annotations that a rewriter sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Annotations {
    /// Whether the destination annotation follows the destination.
    pub(super) destination: bool,
    /// Where replies get what the flow's first packet had.
    pub(super) reply: Option<usize>,
}

const fn rewriter(name: &'static str, make: configure::Make) -> Class {
    Class::new(name, make).ports("1-/1-").processing("h/h")
}

pub(super) const CLASSES: &[Class] = &[
    rewriter("IPRewriter", configure::ip),
    rewriter("TCPRewriter", configure::tcp),
    rewriter("UDPRewriter", configure::udp),
    rewriter("IPAddrRewriter", configure::source),
    rewriter("IPAddrPairRewriter", configure::addresses),
    rewriter("ICMPPingRewriter", configure::ping),
];

/// Whether a class of elements is a rewriter.
pub(super) fn is_rewriter(class: &str) -> bool {
    CLASSES.iter().any(|rewriter| rewriter.name == class)
}

/// Fewer packets are looked up one by one.
const WORTH_A_BATCH: usize = 4;
/// The timer that ends expired flows.
const REAP: usize = 0;

/// `IPRewriter(SPEC, ... [, TCP_TIMEOUT, TCP_DONE_TIMEOUT, TCP_NODATA_TIMEOUT, TCP_GUARANTEE, UDP_TIMEOUT,
/// UDP_STREAMING_TIMEOUT, UDP_GUARANTEE, REAP_INTERVAL, MAPPING_CAPACITY, DST_ANNO, REPLY_ANNO])` and its kin: gives
/// the packets of flows other addresses and ports, and takes their answers back.
///
/// The specification of an input says what new flows get that come there: `drop`, `pass [OUTPUT]`, `keep FORWARD
/// REPLY`, `pattern SADDR SPORT DADDR DPORT FORWARD REPLY`, `pattern NAME FORWARD REPLY` or the name of a mapper.
pub(super) struct Rewriter {
    pub(super) rewrites: Rewrites,
    pub(super) flows: SharedFlows,
    /// Its number in the set of flows.
    pub(super) owner: u16,
    pub(super) specs: RefCell<Vec<Spec>>,
    pub(super) annotations: Annotations,
    /// Time between looks for expired flows (ns), 0 for none.
    pub(super) reap: u64,
    /// Batches for packets that leave by other outputs than the first does.
    pub(super) spare: RefCell<Vec<Batch>>,
    pub(super) scratch: RefCell<Scratch>,
}

/// Memory for what is found of the packets of a batch.
#[derive(Default)]
pub(super) struct Scratch {
    keys: Vec<[u64; 2]>,
    entries: Vec<u32>,
    verdicts: Vec<Verdict>,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Output(u16),
    Drop(DropReason),
}

/// The way of a lookup from outside where no flow is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Nothing.
    Known,
    /// Nothing; and the packet answers.
    Reply,
    /// The flow is made as if its packet came by this input.
    Input(usize),
}

/// The steady time (ms).
pub(super) fn now(at: At<'_>) -> u64 {
    at.steady() / 1_000_000
}

impl Rewriter {
    fn map(&self, of_udp: bool) -> u32 {
        u32::from(self.owner) << 1 | u32::from(of_udp)
    }
    /// The map of TCP, or the only one.
    pub(super) fn first_map(&self) -> u32 {
        self.map(false)
    }
    /// The map of UDP, where it is another.
    pub(super) fn second_map(&self) -> u32 {
        self.map(true)
    }

    /// The flow and the map that a packet belongs to, and whether it may begin a flow. `None`: to none.
    #[inline]
    fn identify(&self, bytes: &[u8], headers: Headers) -> Option<(FlowId, u32, bool)> {
        let ip = bytes.get(headers.network..)?;
        let (source, destination) = (word(ip, 12), word(ip, 16));
        let addresses = FlowId { source, destination, ..FlowId::default() };
        match self.rewrites {
            Rewrites::Source => {
                return Some((FlowId { source, ..FlowId::default() }, self.map(false), true));
            }
            Rewrites::Addresses => return Some((addresses, self.map(false), true)),
            _ => (),
        }
        let behind = bytes.get(headers.transport..)?;
        let protocol = ip[9];
        if half(ip, 6) & 0x1FFF != 0 || behind.len() < 6 {
            return None;
        }
        let fits = match self.rewrites {
            Rewrites::Tcp => protocol == protocol::TCP,
            Rewrites::Udp => matches!(protocol, protocol::TCP | protocol::UDP | protocol::DCCP),
            Rewrites::Ping => protocol == protocol::ICMP,
            _ => matches!(protocol, protocol::TCP | protocol::UDP),
        };
        if !fits {
            return None;
        }
        if self.rewrites == Rewrites::Ping {
            let request = match behind[0] {
                8 => true,
                0 => false,
                _ => return None,
            };
            return Some((ping_id(addresses, half(behind, 4), request), self.map(false), request));
        }
        if behind.len() < 8 {
            return None;
        }
        let id = FlowId { source_port: half(behind, 0), destination_port: half(behind, 2), ..addresses };
        let of_udp = self.rewrites == Rewrites::IpPorts && protocol == protocol::UDP;
        Some((id, self.map(of_udp), true))
    }

    /// The entry of a flow; where one address alone names it, that of what answers it too.
    #[inline]
    fn find(&self, flows: &Flows, id: FlowId, map: u32, destination: u32) -> Option<u32> {
        flows.find(id.key(map)).or_else(|| {
            if self.rewrites != Rewrites::Source {
                return None;
            }
            flows.find(FlowId { destination, ..FlowId::default() }.key(map))
        })
    }

    /// The fate of a packet that belongs to no flow, and may begin none.
    fn without_flow(&self, input: usize, reason: DropReason) -> Verdict {
        match self.specs.borrow().get(input) {
            Some(Spec::Pass(output)) => Verdict::Output(*output),
            _ => Verdict::Drop(reason),
        }
    }

    /// Fields of a new flow by the specification of an input.
    fn decide(&self, at: At<'_>, flows: &mut Flows, input: usize, id: FlowId, map: u32) -> Decision {
        let search = Search { at, flows, map, follows: self.rewrites == Rewrites::Ping };
        let decision = match self.specs.borrow().get(input) {
            Some(Spec::Pass(output)) => return Decision::Pass(*output),
            Some(Spec::Keep(outputs)) => Decision::Add { rewritten: id, outputs: *outputs },
            Some(Spec::Pattern(pattern, outputs)) => match pattern.rewrite(id, search) {
                Some(rewritten) => Decision::Add { rewritten, outputs: *outputs },
                None => Decision::Drop,
            },
            Some(Spec::Mapper(mapper)) => super::mapper::decide(at, *mapper, id, search),
            Some(Spec::Drop) | None => return Decision::Drop,
        };
        if decision == Decision::Drop {
            flows.count_failure(self.owner, u16::try_from(input).unwrap_or(u16::MAX));
        }
        decision
    }

    /// Makes a flow. `Err`: what becomes of its packet instead.
    fn make(
        &self,
        at: At<'_>,
        flows: &mut Flows,
        input: usize,
        id: FlowId,
        map: u32,
        protocol: u8,
    ) -> Result<u32, Verdict> {
        let denied = matches!(self.specs.borrow().get(input), Some(Spec::Drop) | None);
        let refused = Verdict::Drop(if denied { DropReason::Denied } else { DropReason::TableFull });
        let (mut rewritten, outputs) = match self.decide(at, flows, input, id, map) {
            Decision::Pass(output) => return Err(Verdict::Output(output)),
            Decision::Drop => return Err(refused),
            Decision::Add { rewritten, outputs } => (rewritten, outputs),
        };
        let output = |port: i32| {
            let port = u16::try_from(port).ok()?;
            (usize::from(port) < at.outputs()).then_some(port)
        };
        let [Some(forward), Some(reply)] = outputs.map(output) else { return Err(refused) };
        let mut transport = None;
        let portless = rewritten.source_port == 0 && rewritten.destination_port == 0;
        let possible = match self.rewrites {
            Rewrites::Source => portless && rewritten.destination == 0,
            Rewrites::Addresses => portless,
            Rewrites::Ping => {
                rewritten.destination_port = beside(rewritten.source_port);
                transport = Some(Difference::default().word(id.source_port, rewritten.source_port));
                true
            }
            _ => true,
        };
        if !possible {
            return Err(refused);
        }
        let kind = match self.rewrites {
            Rewrites::Tcp => Kind::Tcp,
            Rewrites::IpPorts if map == self.first_map() => Kind::Tcp,
            Rewrites::IpPorts | Rewrites::Udp => Kind::Udp,
            _ => Kind::Plain,
        };
        let maker = Maker { owner: self.owner, input: u16::try_from(input).unwrap_or(u16::MAX), map };
        let new = NewFlow { forward: id, rewritten, outputs: [forward, reply], transport, protocol, kind };
        flows.add(maker, &new, now(at)).ok_or(refused)
    }

    /// Rewrites a packet by a flow that is known, or by a new one.
    #[inline]
    fn rewrite(
        &self,
        at: At<'_>,
        flows: &mut Flows,
        now: u64,
        input: usize,
        packet: &mut Packet,
        entry: Option<u32>,
    ) -> Verdict {
        let Some(headers) = Headers::of(packet) else {
            return Verdict::Drop(DropReason::Unmatched);
        };
        let entry = match entry {
            Some(entry) => entry,
            None => match self.look_and_make(at, flows, input, packet, headers) {
                Ok(entry) => entry,
                Err(verdict) => return verdict,
            },
        };
        translate::apply(packet, headers, flows, entry, self.rewrites, self.annotations);
        flows.touch(entry, now);
        Verdict::Output(flows.flow(entry).outputs[(entry & 1) as usize])
    }

    #[inline(never)]
    fn look_and_make(
        &self,
        at: At<'_>,
        flows: &mut Flows,
        input: usize,
        packet: &Packet,
        headers: Headers,
    ) -> Result<u32, Verdict> {
        let ip = &packet.data()[headers.network..];
        let Some((id, map, begins)) = self.identify(packet.data(), headers) else {
            let fragment = half(ip, 6) & 0x1FFF != 0;
            let reason = if fragment { DropReason::Fragment } else { DropReason::Unmatched };
            return Err(self.without_flow(input, reason));
        };
        if let Some(entry) = self.find(flows, id, map, word(ip, 16)) {
            return Ok(entry);
        }
        if !begins {
            return Err(self.without_flow(input, DropReason::Unmatched));
        }
        let protocol = match self.rewrites {
            Rewrites::Source | Rewrites::Addresses => 0,
            _ => ip[9],
        };
        let entry = self.make(at, flows, input, id, map, protocol)?;
        if let Some(place) = self.annotations.reply {
            flows.flow_mut(entry).reply_annotation = packet.anno_u8(place);
        }
        Ok(entry)
    }

    /// The entry of a flow whose packet is somewhere else.
    pub(super) fn entry(&self, at: At<'_>, protocol: u8, id: FlowId, want: Want) -> Option<u32> {
        let mut flows = self.flows.borrow_mut();
        let addresses = FlowId { source: id.source, destination: id.destination, ..FlowId::default() };
        let (id, map) = match self.rewrites {
            Rewrites::IpPorts => match protocol {
                protocol::TCP => (id, self.map(false)),
                protocol::UDP => (id, self.map(true)),
                _ => return None,
            },
            Rewrites::Tcp | Rewrites::Udp => (id, self.map(false)),
            Rewrites::Source => (FlowId { destination: 0, ..addresses }, self.map(false)),
            Rewrites::Addresses => (addresses, self.map(false)),
            Rewrites::Ping if protocol != protocol::ICMP => return None,
            Rewrites::Ping => (ping_id(addresses, id.source_port, want != Want::Reply), self.map(false)),
        };
        if let Some(entry) = self.find(&flows, id, map, addresses.destination) {
            let of = flows.flow(entry).protocol;
            return (of == 0 || protocol == 0 || of == protocol).then_some(entry);
        }
        let Want::Input(input) = want else { return None };
        let protocol = match self.rewrites {
            Rewrites::Source | Rewrites::Addresses => 0,
            _ => protocol,
        };
        self.make(at, &mut flows, input, id, map, protocol).ok()
    }

    fn deliver(at: At<'_>, packet: Packet, verdict: Verdict) {
        match verdict {
            Verdict::Output(output) => at.push(usize::from(output), packet),
            Verdict::Drop(reason) => at.drop_packet(packet, reason),
        }
    }

    fn deliver_batch(at: At<'_>, batch: &mut Batch, verdict: Verdict) {
        match verdict {
            Verdict::Output(output) => at.push_batch(usize::from(output), batch),
            Verdict::Drop(reason) => at.drop_batch(batch, reason),
        }
    }

    /// Passes packets on, each by its verdict, those that follow each other together: the outputs meet again.
    ///
    /// Packets between them that end part none of these runs.
    fn deliver_in_order(at: At<'_>, batch: &mut Batch, verdicts: &[Verdict]) {
        let (mut waiting, mut run) = (at.router.take_turned(batch), at.router.spare_batch());
        let mut of = None;
        for verdict in verdicts {
            let Some(packet) = waiting.pop() else { break };
            let output = match *verdict {
                Verdict::Output(output) => output,
                Verdict::Drop(reason) => {
                    at.drop_packet(packet, reason);
                    continue;
                }
            };
            if let Some(before) = of.replace(output).filter(|before| *before != output) {
                at.push_batch(usize::from(before), &mut run);
            }
            // It holds no more than the batch did, so that there is room.
            let _ = run.push(packet);
        }
        if let Some(last) = of {
            at.push_batch(usize::from(last), &mut run);
        }
        at.router.keep_spare(waiting);
        at.router.keep_spare(run);
    }

    /// Passes packets on, each by its verdict; those of one verdict together, in their order.
    fn deliver_all(&self, at: At<'_>, batch: &mut Batch, verdicts: &mut [Verdict]) {
        if at.outputs_meet() {
            Self::deliver_in_order(at, batch, verdicts);
            return;
        }
        let mut count = batch.len();
        while let Some(first) = verdicts.first().copied().filter(|_| count > 0) {
            if verdicts[..count].iter().all(|verdict| *verdict == first) {
                Self::deliver_batch(at, batch, first);
                return;
            }
            let kept = batch.compact(|slot, _| u16::from(verdicts.get(slot) != Some(&first)));
            let mut others = 0;
            for slot in 0..count {
                if verdicts[slot] != first {
                    verdicts[others] = verdicts[slot];
                    others += 1;
                }
            }
            count = others;
            let mut rest = self.spare.borrow_mut().pop().unwrap_or_default();
            batch.split_into(kept, &mut rest);
            Self::deliver_batch(at, batch, first);
            std::mem::swap(batch, &mut rest);
            self.spare.borrow_mut().push(rest);
        }
    }
}

/// The port that stands beside an echo's identifier, as Click's tables show it: a request's destination port.
pub(super) fn beside(identifier: u16) -> u16 {
    identifier.swap_bytes().wrapping_add(1).swap_bytes()
}

/// An echo's flow: its identifier is one port, and another number the other. So requests and replies differ.
fn ping_id(addresses: FlowId, identifier: u16, request: bool) -> FlowId {
    let next = beside(identifier);
    let (source_port, destination_port) = if request { (identifier, next) } else { (next, identifier) };
    FlowId { source_port, destination_port, ..addresses }
}

impl Element for Rewriter {
    fn memory(&self) -> usize {
        // The first of those that share a set counts it.
        if self.owner == 0 { self.flows.borrow().memory() } else { 0 }
    }

    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let before = errors.count();
        for (number, spec) in self.specs.borrow().iter().enumerate() {
            if let Spec::Mapper(mapper) = spec {
                super::mapper::check_outputs(at, *mapper, &format!("input spec {number}: "), errors);
            }
        }
        if self.reap > 0 {
            at.timer_after(REAP, self.reap);
        }
        errors.count() == before
    }

    fn push(&self, at: At<'_>, input: usize, mut packet: Packet) {
        let verdict = {
            let mut flows = self.flows.borrow_mut();
            self.rewrite(at, &mut flows, now(at), input, &mut packet, None)
        };
        Self::deliver(at, packet, verdict);
    }

    fn push_batch(&self, at: At<'_>, input: usize, batch: &mut Batch) {
        let count = batch.len();
        if count < WORTH_A_BATCH {
            at.each_alone(batch, |packet| self.push(at, input, packet));
            return;
        }
        let Scratch { mut keys, mut entries, mut verdicts } = self.scratch.take();
        {
            let mut flows = self.flows.borrow_mut();
            batch.warm();
            keys.clear();
            keys.extend(batch.iter().map(|packet| {
                let found = Headers::of(packet).and_then(|headers| self.identify(packet.data(), headers));
                found.map_or(FlowId::default().key(u32::MAX), |(id, map, _)| id.key(map))
            }));
            entries.resize(count, NO_ENTRY);
            flows.find_all(&keys, &mut entries);
            for entry in entries.iter().filter(|entry| **entry != NO_ENTRY) {
                flows.prefetch(*entry);
            }
            let (now, ended) = (now(at), flows.ended());
            verdicts.clear();
            batch.each_packet(|slot, packet| {
                let known = entries.get(slot).copied().unwrap_or(NO_ENTRY);
                // What was found before a flow ended may be another by now.
                let entry = (known != NO_ENTRY && flows.ended() == ended).then_some(known);
                verdicts.push(self.rewrite(at, &mut flows, now, input, packet, entry));
            });
        }
        self.deliver_all(at, batch, &mut verdicts);
        self.scratch.replace(Scratch { keys, entries, verdicts });
    }

    fn run_timer(&self, at: At<'_>, _: usize) {
        self.flows.borrow_mut().shrink(now(at), false);
        at.timer_after(REAP, self.reap);
    }

    fn handlers(&self, handlers: &mut Handlers) {
        super::handlers::declare(self.rewrites, self.specs.borrow().len(), handlers);
    }

    fn cleanup(&self, at: At<'_>) {
        self.flows.borrow_mut().shrink(now(at), true);
    }
}
