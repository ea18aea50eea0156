//! `ICMPRewriter`: ICMP errors about packets that rewriters have changed.

use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;
use netbricks_core::packet::checksum::{update16, update32};

use super::configure::{Make, annotations};
use super::flow_id::FlowId;
use super::rewriter::{Annotations, Rewriter, Want, is_rewriter};
use super::translate::{Headers, TCP_CHECKED, half, protocol, set_half, set_word, word, zero_sum};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::language::text;
use crate::packet::Annotated as _;
use crate::router::{At, Setup};
use crate::value::{Raw, integer};

const MAKE: Make = icmp_rewriter;
pub(super) const CLASSES: &[Class] = &[Class::new("ICMPRewriter", MAKE).ports("1/1-").processing("h/h")];

/// Types of ICMP messages that quote the packet that they are about.
const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];
/// The type of an echo request.
const ECHO: u8 = 8;

/// `ICMPRewriter(MAPS [, DST_ANNO, REPLY_ANNO])`: changes ICMP errors about rewritten packets.
///
/// Errors about packets that one of the rewriters `MAPS` changed come to the packet's sender and quote what it sent.
///
/// A map `NAME:PORT` has errors leave by the flow's output, counted from `PORT`. Packets that are no such errors end.
struct IcmpRewriter {
    /// Rewriters, and where their outputs begin here.
    maps: Vec<(usize, Option<usize>)>,
    annotations: Annotations,
}

fn icmp_rewriter(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let (at, errors) = (setup.at, setup.errors);
    let names: Option<Raw> = arguments.required("MAPS");
    let annotations = annotations(arguments, true);
    arguments.complete()?;
    let before = errors.count();
    let mut maps = Vec::new();
    for word in text::split_words(&names?.0) {
        let (name, port) = match word.split_once(':') {
            Some((name, port)) => (name, Some(integer(port).and_then(|port| usize::try_from(port).ok()))),
            None => (word.as_str(), None),
        };
        let found = at.router.find(name, at.id).filter(|id| is_rewriter(at.router.class(*id)));
        let (Some(id), None | Some(Some(_))) = (found, port) else {
            errors.error(&format!("{word} not an IP rewriter"));
            continue;
        };
        let (port, outputs) = (port.flatten(), at.outputs());
        if port.is_some_and(|port| port.saturating_add(at.router.at(id).outputs()) > outputs) {
            let what = if outputs == 1 { "output" } else { "outputs" };
            errors.error(&format!("{word} port offset requires more than {outputs} {what}"));
            continue;
        }
        maps.push((id, port));
    }
    if maps.is_empty() {
        errors.error("no IP rewriters supplied");
    }
    (errors.count() == before).then(|| Rc::new(IcmpRewriter { maps, annotations }) as Rc<dyn Element>)
}

/// The packet that an ICMP error quotes: its protocol and place, and the flow of what answers it.
struct Quoted {
    protocol: u8,
    /// Length of its IP header (bytes).
    length: usize,
    /// The flow of packets that answer it.
    answers: FlowId,
    /// Whether its ports or identifier are there.
    ports: bool,
}

/// Bytes of an ICMP header.
const ICMP: usize = 8;

impl Quoted {
    /// Reads what an ICMP message quotes, if it is an error.
    fn of(message: &[u8]) -> Option<Self> {
        if message.len() < ICMP + 20 || !ERRORS.contains(&message[0]) {
            return None;
        }
        let ip = &message[ICMP..];
        let length = usize::from(ip[0] & 0xF) * 4;
        if ip[0] >> 4 != 4 || length < 20 {
            return None;
        }
        let behind = ip.get(length..).unwrap_or(&[]);
        let first = half(ip, 6) & 0x1FFF == 0;
        let mut answers = FlowId { source: word(ip, 16), destination: word(ip, 12), ..FlowId::default() };
        let protocol = ip[9];
        let mut ports = false;
        match protocol {
            protocol::TCP | protocol::UDP | protocol::DCCP if first && behind.len() >= 8 => {
                (answers.source_port, answers.destination_port) = (half(behind, 2), half(behind, 0));
                ports = true;
            }
            protocol::ICMP if first && behind.len() >= 6 && behind[0] == ECHO => {
                answers.source_port = half(behind, 4);
                ports = true;
            }
            _ => (),
        }
        Some(Self { protocol, length, answers, ports })
    }

    /// Changes the quoted packet to one whose answers have the flow `to`, and the ICMP checksum with it.
    fn rewrite(&self, message: &mut [u8], to: FlowId) {
        let mut outer = half(message, 2);
        let ip = &mut message[ICMP..];
        let (source, destination) = (word(ip, 12), word(ip, 16));
        let addresses = |sum: u16| update32(update32(sum, source, to.destination), destination, to.source);
        set_word(ip, 12, to.destination);
        set_word(ip, 16, to.source);
        outer = addresses(outer);
        let sum = half(ip, 10);
        set_half(ip, 10, addresses(sum));
        outer = update16(outer, sum, addresses(sum));
        if self.ports
            && let Some(behind) = ip.get_mut(self.length..)
        {
            outer = if self.protocol == protocol::ICMP {
                Self::rewrite_echo(behind, to, outer)
            } else {
                self.rewrite_ports(behind, to, outer, addresses)
            };
        }
        set_half(message, 2, outer);
    }

    fn rewrite_ports(
        &self,
        behind: &mut [u8],
        to: FlowId,
        outer: u16,
        addresses: impl Fn(u16) -> u16,
    ) -> u16 {
        let old = word(behind, 0);
        let new = u32::from(to.destination_port) << 16 | u32::from(to.source_port);
        set_word(behind, 0, new);
        let mut outer = update32(outer, old, new);
        let place = match self.protocol {
            protocol::TCP if behind.len() >= TCP_CHECKED => 16,
            protocol::UDP if half(behind, 6) != 0 => 6,
            _ => return outer,
        };
        let sum = half(behind, place);
        let mut inner = update32(addresses(sum), old, new);
        if inner == 0 && self.protocol == protocol::UDP {
            inner = 0xFFFF;
        }
        set_half(behind, place, inner);
        outer = update16(outer, sum, inner);
        outer
    }

    fn rewrite_echo(behind: &mut [u8], to: FlowId, outer: u16) -> u16 {
        let (identifier, sum) = (half(behind, 4), half(behind, 2));
        set_half(behind, 4, to.destination_port);
        set_half(behind, 2, update16(sum, identifier, to.destination_port));
        zero_sum(behind, 2);
        update16(update16(outer, identifier, to.destination_port), sum, half(behind, 2))
    }
}

impl IcmpRewriter {
    /// Rewrites an error about a packet of a known flow; the output for it. `None`: it is none.
    fn rewrite(&self, at: At<'_>, packet: &mut Packet, headers: Headers) -> Option<usize> {
        let quoted = Quoted::of(packet.data().get(headers.transport..)?)?;
        let (rewriter, entry, port) = self.maps.iter().find_map(|(id, port)| {
            let rewriter = at.router.element_as::<Rewriter>(*id)?;
            let entry = rewriter.entry(at.router.at(*id), quoted.protocol, quoted.answers, Want::Reply)?;
            Some((rewriter, entry, *port))
        })?;
        let reply = entry & 1 != 0;
        let (to, output, annotation) = {
            let flows = rewriter.flows.borrow();
            let flow = flows.flow(entry);
            (flow.rewritten(reply), flow.outputs[usize::from(reply)], flow.reply_annotation)
        };
        let data = packet.data_mut();
        let ip = &mut data[headers.network..];
        let destination = word(ip, 16);
        let concerns = destination == quoted.answers.destination;
        if concerns {
            let sum = half(ip, 10);
            set_word(ip, 16, to.destination);
            set_half(ip, 10, update32(sum, destination, to.destination));
        }
        quoted.rewrite(&mut data[headers.transport..], to);
        if concerns && self.annotations.destination {
            packet.set_dst_ip(to.destination.into());
        }
        if let (true, Some(place)) = (reply, self.annotations.reply) {
            packet.set_anno_u8(place, annotation);
        }
        Some(port.map_or(0, |port| port + usize::from(output)))
    }
}

impl Element for IcmpRewriter {
    fn push(&self, at: At<'_>, _: usize, mut packet: Packet) {
        let headers = Headers::of(&packet)
            .filter(|headers| packet.data().get(headers.network + 9) == Some(&protocol::ICMP));
        let Some(headers) = headers else {
            at.drop_packet(packet, DropReason::Unmatched);
            return;
        };
        match self.rewrite(at, &mut packet, headers) {
            Some(output) => at.push_or_drop(output, packet, DropReason::Unconnected),
            None => at.drop_packet(packet, DropReason::Unmatched),
        }
    }
}
