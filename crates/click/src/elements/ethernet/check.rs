//! `CheckARPHeader`: refuses bad ARP packets.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::{ETHERTYPE_IP, ETHERTYPE_IP6, u16_at};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] =
    &[Class::new("CheckARPHeader", check_arp_header).ports("1/1-2").processing("a/ah")];

/// Bytes of an ARP packet before its addresses.
const LENGTH: usize = 8;
/// Hardware type of Ethernet.
const ETHERNET: u16 = 1;
/// Reasons for which packets are refused.
const FAULTS: [&str; 4] =
    ["tiny packet", "too small for addresses", "bad hardware type/length", "bad protocol type/length"];

/// `CheckARPHeader([OFFSET, VERBOSE, DETAILS])`: refuses bad ARP packets, and marks the header of good ones.
struct CheckArpHeader {
    offset: usize,
    verbose: bool,
    details: bool,
    faults: [Cell<u64>; 4],
}

fn check_arp_header(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let offset: u32 = arguments.positional("OFFSET").unwrap_or(0);
    let verbose = arguments.keyword("VERBOSE").unwrap_or(false);
    let details = arguments.keyword("DETAILS").unwrap_or(false);
    arguments.complete()?;
    let faults = [const { Cell::new(0) }; 4];
    Some(Rc::new(CheckArpHeader { offset: offset as usize, verbose, details, faults }))
}

/// The length of an ARP packet, or the number of its fault.
fn check(arp: &[u8]) -> Result<usize, usize> {
    let (Some(hardware), Some(protocol), [_, _, _, _, of_hardware, of_protocol, _, _, ..]) =
        (u16_at(arp, 0), u16_at(arp, 2), arp)
    else {
        return Err(0);
    };
    let length = LENGTH + 2 * usize::from(*of_hardware) + 2 * usize::from(*of_protocol);
    if arp.len() < length {
        return Err(1);
    }
    match (hardware, of_hardware, protocol, of_protocol) {
        (ETHERNET, length, _, _) if *length != 6 => Err(2),
        (_, _, ETHERTYPE_IP, length) if *length != 4 => Err(3),
        (_, _, ETHERTYPE_IP6, length) if *length != 16 => Err(3),
        _ => Ok(length),
    }
}

impl CheckArpHeader {
    fn drops(&self) -> u64 {
        self.faults.iter().map(Cell::get).sum()
    }
}

impl Element for CheckArpHeader {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let fault = match check(packet.data().get(self.offset..).unwrap_or_default()) {
            Ok(length) => {
                packet.set_network(self.offset, length);
                return Some(packet);
            }
            Err(fault) => fault,
        };
        if self.verbose || self.drops() == 0 {
            at.chatter(&format!("ARP header check failed: {}", FAULTS[fault]));
        }
        self.faults[fault].set(self.faults[fault].get() + 1);
        at.push_or_drop(1, packet, DropReason::Malformed);
        None
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops());
        if self.details {
            handlers.read("drop_details", |this: &Self, _| -> String {
                let counted = this.faults.iter().zip(FAULTS);
                counted.map(|(count, fault)| format!("{}\t{fault}\n", count.get())).collect()
            });
        }
    }
}
