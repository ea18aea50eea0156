//! `ARPPrint`: tells what ARP packets say.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::buffer::Packet;

use super::{data, ether_at, made, u16_at};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Ether, write_time};

pub(super) const CLASSES: &[Class] = &[Class::new("ARPPrint", configure).creates_nothing()];

/// `ARPPrint([LABEL, TIMESTAMP, ETHER, ACTIVE, OUTFILE])`: says or writes a line about each ARP packet.
struct ArpPrint {
    label: String,
    timestamp: bool,
    ether: bool,
    active: Cell<bool>,
    file_name: String,
    file: RefCell<Option<File>>,
}

fn configure(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let label: String = arguments.positional("LABEL").unwrap_or_default();
    let timestamp = arguments.keyword("TIMESTAMP").unwrap_or(true);
    let ether = arguments.keyword("ETHER").unwrap_or(false);
    let active = arguments.keyword("ACTIVE").unwrap_or(true);
    let file_name: String = arguments.keyword("OUTFILE").unwrap_or_default();
    arguments.complete()?;
    made(ArpPrint { label, timestamp, ether, active: Cell::new(active), file_name, file: RefCell::default() })
}

fn ip_at(bytes: &[u8], place: usize) -> Ipv4Addr {
    let address = bytes.get(place..).and_then(|bytes| bytes.first_chunk::<4>()).copied();
    address.unwrap_or_default().into()
}

/// An ARP packet in tcpdump's words.
fn describe(arp: &[u8]) -> String {
    if arp.len() < 8 {
        return format!("truncated-arp ({})", arp.len());
    }
    let field = |place| u16_at(arp, place).unwrap_or(0);
    let (hardware, protocol, operation) = (field(0), field(2), field(6));
    let (hardware_length, protocol_length) = (arp[4], arp[5]);
    if !matches!(protocol, 0x0800 | 0x1000) || protocol_length != 4 || hardware_length == 0 {
        return format!(
            "arp-#{operation} for proto #{protocol} ({protocol_length}) hardware #{hardware} ({hardware_length})"
        );
    }
    if arp.len() < 28 {
        return format!("truncated-arp ({})", arp.len());
    }
    let ether = |place| ether_at(arp, place).unwrap_or_default();
    let (sender, sender_ip, target, target_ip) = (ether(8), ip_at(arp, 14), ether(18), ip_at(arp, 24));
    let mut text = if protocol == 0x1000 { "trailer-".to_owned() } else { String::new() };
    text += &match operation {
        1 if target != Ether::default() => format!("arp who-has {target_ip} ({target}) tell {sender_ip}"),
        1 => format!("arp who-has {target_ip} tell {sender_ip}"),
        2 => format!("arp reply {sender_ip} is-at {sender}"),
        3 => format!("rarp who-is {target} tell {sender}"),
        4 => format!("rarp reply {target} at {target_ip}"),
        8 => format!("invarp who-is {target} tell {sender}"),
        9 => format!("invarp reply {target} at {target_ip}"),
        other => format!("arp-#{other}"),
    };
    if hardware != 1 {
        text += &format!("hardware #{hardware}");
    }
    text
}

impl ArpPrint {
    /// The line about a packet. `None` where the place of its network header is not known.
    fn line(&self, packet: &Packet) -> Option<String> {
        let network = packet.network()?;
        let mut line = String::new();
        if !self.label.is_empty() {
            line += &format!("{}: ", self.label);
        }
        if self.timestamp {
            line += &format!("{}: ", write_time(packet.timestamp()));
        }
        if self.ether {
            let mac = usize::try_from(packet.mac_place().unwrap_or(0)).ok();
            let header =
                mac.and_then(|place| packet.data().get(place..)).and_then(|bytes| bytes.first_chunk::<14>());
            let before = packet.data().len() - network.len();
            if let Some(header) = header.filter(|_| mac.is_some_and(|place| place + 14 <= before)) {
                let (destination, source) = (ether_at(header, 0)?, ether_at(header, 6)?);
                line += &format!("{source} > {destination}: ");
            }
        }
        Some(line + &describe(network))
    }
}

impl Element for ArpPrint {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        if self.file_name.is_empty() {
            return true;
        }
        if !at.capabilities().files {
            errors.error("ARPPrint: this instance may not open files (capability files)");
            return false;
        }
        match File::create(&self.file_name) {
            Ok(file) => {
                *self.file.borrow_mut() = Some(file);
                true
            }
            Err(error) => {
                errors.error(&format!("{}: {}", self.file_name, crate::command::system_message(&error)));
                false
            }
        }
    }
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        if self.active.get()
            && let Some(line) = self.line(&packet)
        {
            // Chatter is no call under a borrow: what takes it may reach this element again.
            let to_file = self.file.borrow_mut().as_mut().map(|file| writeln!(file, "{line}"));
            if to_file.is_none() {
                at.chatter(&line);
            }
        }
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        data(handlers, "active", "boolean", |this: &Self| &this.active, |active| active.to_string());
    }
    fn cleanup(&self, _: At<'_>) {
        *self.file.borrow_mut() = None;
    }
}
