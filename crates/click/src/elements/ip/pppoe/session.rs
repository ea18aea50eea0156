//! The header of PPPoE's session stage: `PPPoEEncap`, `PPPoEDecap` (RFC 2516, section 6).

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::super::header::{get16, put, set16};
use super::super::pass;
use super::discovery::PppoeDiscovery;
use super::{HEADERS, SESSION, VERSION};
use crate::annotation;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{ElementNumber, Ether};

pub(super) const CLASSES: &[Class] = &[
    Class::new("PPPoEEncap", pppoe_encap),
    Class::new("PPPoEDecap", pppoe_decap).ports("1/1-2").processing("a/ah"),
];

/// A session that is given, or those of a `PPPoEDiscovery` by the number in an annotation.
#[derive(Clone, Copy)]
enum Sessions {
    One { number: u16, ends: [Ether; 2] },
    Of { discovery: usize, annotation: usize },
}

fn read_annotation(arguments: &mut Arguments<'_>) -> usize {
    arguments.keyword("ANNO").map_or(place::VLAN_TCI, |place: annotation::Place<2>| place.0)
}

/// `PPPoEEncap(SRC, DST, SESSION)`, `PPPoEEncap(DISCOVERY element [, ANNO])`: puts Ethernet and PPPoE headers on.
///
/// Packets begin with PPP's protocol field. With `DISCOVERY`, the annotation has the session's number in network order,
/// as `SetVLANAnno` sets it, and packets of sessions that have ended are dropped.
struct PppoeEncap {
    sessions: Sessions,
}

fn pppoe_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let discovery: Option<ElementNumber> = arguments.keyword("DISCOVERY");
    let annotation = read_annotation(arguments);
    let sessions = match discovery {
        Some(ElementNumber(discovery)) => Some(Sessions::Of { discovery, annotation }),
        None => {
            let source: Option<Ether> = arguments.required("SRC");
            let destination: Option<Ether> = arguments.required("DST");
            let number: Option<u16> = arguments.required("SESSION");
            source
                .zip(destination)
                .zip(number)
                .map(|((source, destination), number)| Sessions::One { number, ends: [destination, source] })
        }
    };
    arguments.complete()?;
    Some(Rc::new(PppoeEncap { sessions: sessions? }))
}

impl Element for PppoeEncap {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let known = match self.sessions {
            Sessions::One { number, ends } => Some((number, ends)),
            Sessions::Of { discovery, annotation } => {
                let number = u16::from_be(packet.anno_u16(annotation));
                at.router
                    .element_as::<PppoeDiscovery>(discovery)
                    .and_then(|all| Some((number, [Ether(all.host(number)?), all.address()])))
            }
        };
        let Some((number, ends)) = known else {
            at.drop_packet(packet, DropReason::NoRoute);
            return None;
        };
        let Ok(length) = u16::try_from(packet.len()) else {
            at.drop_packet(packet, DropReason::TooBig);
            return None;
        };
        if !packet.push_bytes(at.pool(), HEADERS) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        let data = packet.data_mut();
        put(data, 0, &ends[0].0);
        put(data, 6, &ends[1].0);
        set16(data, 12, SESSION);
        put(data, 14, &[VERSION, 0]);
        set16(data, 16, number);
        set16(data, 18, length);
        packet.set_mac_place(Some(0));
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
}

/// `PPPoEDecap([SESSION, DISCOVERY, ANNO])`: takes Ethernet and PPPoE headers off.
///
/// Frames that are no PPPoE, of another session, or of one that `DISCOVERY` does not know, go to output 1. The
/// annotation gets the session's number in network order.
struct PppoeDecap {
    session: Option<u16>,
    discovery: Option<usize>,
    annotation: usize,
    drops: Cell<u64>,
}

fn pppoe_decap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let session: Option<u16> = arguments.positional("SESSION");
    let discovery: Option<ElementNumber> = arguments.keyword("DISCOVERY");
    let annotation = read_annotation(arguments);
    arguments.complete()?;
    let discovery = discovery.map(|number| number.0);
    Some(Rc::new(PppoeDecap { session, discovery, annotation, drops: Cell::default() }))
}

impl PppoeDecap {
    /// The session of a frame, and the length of what it carries.
    fn check(&self, at: At<'_>, data: &[u8]) -> Result<(u16, usize), DropReason> {
        if data.len() < HEADERS || get16(data, 12) != SESSION {
            return Err(DropReason::Unmatched);
        }
        let (session, length) = (get16(data, 16), usize::from(get16(data, 18)));
        if data[14] != VERSION || data[15] != 0 || length > data.len() - HEADERS {
            return Err(DropReason::Malformed);
        }
        if self.session.is_some_and(|wanted| wanted != session) {
            return Err(DropReason::Unmatched);
        }
        if let Some(discovery) = self.discovery {
            let known = data.get(6..12).and_then(|host| <[u8; 6]>::try_from(host).ok()).is_some_and(|host| {
                at.router
                    .element_as::<PppoeDiscovery>(discovery)
                    .is_some_and(|all| all.touch(session, host, at.steady()))
            });
            if !known {
                return Err(DropReason::Denied);
            }
        }
        Ok((session, length))
    }
}

impl Element for PppoeDecap {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        match self.check(at, packet.data()) {
            Ok((session, length)) => {
                packet.truncate(HEADERS + length);
                packet.pull_bytes(HEADERS);
                packet.set_anno_u16(self.annotation, session.to_be());
                Some(packet)
            }
            Err(reason) => {
                self.drops.set(self.drops.get() + 1);
                at.push_or_drop(1, packet, reason);
                None
            }
        }
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
    }
}
