//! Elements of VLAN tags (IEEE 802.1Q): `VLANEncap`, `VLANDecap`, `EtherVLANEncap` and similar ones.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::{ETHERTYPE_VLAN, HEADER, aside, data, ether_data, ethernet_header, made, put_before, u16_at};
use crate::arguments::{Arguments, Parsed, Problem};
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{Ether, Word, integer};

pub(super) const CLASSES: &[Class] = &[
    Class::new("EtherVLANEncap", ether_vlan_encap).live().creates_nothing(),
    Class::new("EtherVlanEncap", ether_vlan_encap).live().creates_nothing(),
    Class::new("StripEtherVLANHeader", strip).live().ports("1/1-2").processing("a/ah").creates_nothing(),
    Class::new("StripEtherVlanHeader", strip).live().ports("1/1-2").processing("a/ah").creates_nothing(),
    Class::new("VLANEncap", vlan_encap).live().creates_nothing(),
    Class::new("VLANDecap", vlan_decap).creates_nothing(),
    Class::new("SetVLANAnno", set_anno).live().creates_nothing(),
    Class::new("SetVlanAnno", set_anno).live().creates_nothing(),
];

/// Length of an Ethernet header with a tag (bytes).
const TAGGED: usize = 18;
/// Length of a tag (bytes).
const TAG: usize = 4;
/// The bits of a VLAN's number in a tag.
const ID: u16 = 0x0FFF;

/// A number within bounds, with Click's messages.
fn bounded(text: &str, least: i32, most: i32) -> Parsed<i32> {
    let value = integer(text).ok_or_else(|| Problem::Said("invalid number".into()))?;
    match i32::try_from(value) {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => {
            Err(format!("out of range, bound {}", if value < i128::from(least) { least } else { most })
                .into())
        }
    }
}

/// The tag control information of outgoing packets.
#[derive(Clone, Copy)]
struct Tag {
    /// `None`: each packet's annotation says it.
    fixed: Option<u16>,
    /// The VLAN whose packets bear no tag.
    native: Option<u16>,
}

impl Tag {
    /// Reads VLAN_TCI, VLAN_PCP, VLAN_ID and NATIVE_VLAN.
    fn read(arguments: &mut Arguments<'_>) -> Option<Self> {
        let word: Option<Word> = arguments.positional("VLAN_TCI");
        let priority = arguments.positional_with("VLAN_PCP", |text, _| bounded(text, 0, 7));
        let id = arguments.keyword_with("VLAN_ID", |text, _| bounded(text, 0, 0xFFF));
        let native = arguments.keyword_with("NATIVE_VLAN", |text, _| bounded(text, -1, 0xFFF));
        let from_annotation = word.as_ref().is_some_and(|word| word.0 == "ANNO");
        let whole = match word {
            Some(Word(word)) if !from_annotation && !word.is_empty() => match bounded(&word, 0, 0xFFFF) {
                Ok(whole) => Some(whole),
                Err(Problem::Said(message)) => {
                    arguments.error_of("VLAN_TCI", &message);
                    return None;
                }
                Err(Problem::Syntax) => return None,
            },
            _ => None,
        };
        let information = whole.or(id).unwrap_or(0) | priority.unwrap_or(0) << 13;
        let fixed = (!from_annotation).then_some((information & 0xFFFF) as u16);
        Some(Self { fixed, native: u16::try_from(native.unwrap_or(0)).ok() })
    }

    /// The tag of a packet. `None`: it bears none.
    fn of(self, packet: &Packet) -> Option<u16> {
        let information = self.fixed.unwrap_or_else(|| annotation(packet));
        (Some(information & ID) != self.native).then_some(information)
    }

    /// The arguments that mean it.
    fn describe(self) -> String {
        let mut text = match self.fixed {
            None => "ANNO".to_owned(),
            Some(fixed) => format!("VLAN_ID {}, VLAN_PCP {}", fixed & ID, fixed >> 13),
        };
        match self.native {
            Some(0) => (),
            Some(native) => text.push_str(&format!(", NATIVE_VLAN {native}")),
            None => text.push_str(", NATIVE_VLAN -1"),
        }
        text
    }

    fn show(self) -> String {
        self.fixed.map_or_else(|| "ANNO".to_owned(), |fixed| fixed.to_string())
    }
}

/// The VLAN annotation, as a tag has it.
fn annotation(packet: &Packet) -> u16 {
    u16_at(packet.anno(), place::VLAN_TCI).unwrap_or(0)
}

fn annotate(packet: &mut Packet, information: u16) {
    packet.set_anno_u16(place::VLAN_TCI, u16::from_ne_bytes(information.to_be_bytes()));
}

/// Handlers of the arguments that make a tag.
fn tag_handlers(handlers: &mut Handlers, position: Option<usize>) {
    handlers.change_argument("vlan_tci", position, "VLAN_TCI");
    for (name, keyword) in [("vlan_id", "VLAN_ID"), ("vlan_pcp", "VLAN_PCP")] {
        handlers.argument(name, None, keyword);
        handlers.change_argument(name, None, keyword);
    }
}

fn native_handlers(handlers: &mut Handlers) {
    handlers.argument("native_vlan", None, "NATIVE_VLAN");
    handlers.change_argument("native_vlan", None, "NATIVE_VLAN");
}

/// `EtherVLANEncap(ETHERTYPE, SRC, DST, VLAN_TCI [, VLAN_PCP, VLAN_ID, NATIVE_VLAN])`: puts tagged Ethernet headers before
/// packets.
///
/// `ANNO` for VLAN_TCI takes the tag from each packet's VLAN annotation. Packets of NATIVE_VLAN get no tag.
struct EtherVlanEncap {
    ethertype: Cell<u16>,
    source: Cell<Ether>,
    destination: Cell<Ether>,
    tag: Cell<Tag>,
}

fn ether_vlan_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let ethertype: Option<u16> = arguments.required("ETHERTYPE");
    let source: Option<Ether> = arguments.required("SRC");
    let destination: Option<Ether> = arguments.required("DST");
    let tag = Tag::read(arguments);
    arguments.complete()?;
    made(EtherVlanEncap {
        ethertype: Cell::new(ethertype?),
        source: Cell::new(source?),
        destination: Cell::new(destination?),
        tag: Cell::new(tag?),
    })
}

impl Element for EtherVlanEncap {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        let plain = ethernet_header(self.destination.get(), self.source.get(), self.ethertype.get());
        let Some(information) = self.tag.get().of(&packet) else { return put_before(at, packet, &plain) };
        let mut tagged = [0; TAGGED];
        tagged[..12].copy_from_slice(&plain[..12]);
        tagged[12..14].copy_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
        tagged[14..16].copy_from_slice(&information.to_be_bytes());
        tagged[16..].copy_from_slice(&plain[12..]);
        put_before(at, packet, &tagged)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        at.gather(batch, |packet| self.action(at, packet));
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.ethertype.set(fresh.ethertype.get());
        self.source.set(fresh.source.get());
        self.destination.set(fresh.destination.get());
        self.tag.set(fresh.tag.get());
        true
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.change_config();
        handlers.read("config", |this: &Self, _| {
            let (source, destination) = (this.source.get(), this.destination.get());
            format!("{}, {source}, {destination}, {}", this.ethertype.get(), this.tag.get().describe())
        });
        ether_data(handlers, "src", |this: &Self| &this.source);
        ether_data(handlers, "dst", |this: &Self| &this.destination);
        data(handlers, "ethertype", "uint16_t", |this: &Self| &this.ethertype, |value| value.to_string());
        handlers.read("vlan_tci", |this: &Self, _| this.tag.get().show());
        tag_handlers(handlers, Some(3));
        native_handlers(handlers);
    }
}

/// `StripEtherVLANHeader([NATIVE_VLAN])`: takes Ethernet headers off, and notes their VLAN in the annotation.
///
/// Untagged packets belong to NATIVE_VLAN; where it is negative they leave by the second output or are dropped.
struct StripEtherVlanHeader {
    native: Cell<Option<u16>>,
}

fn strip(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let native: i32 = arguments.positional("NATIVE_VLAN").unwrap_or(0);
    arguments.complete()?;
    if native > i32::from(ID) {
        setup.errors.error("bad NATIVE_VLAN");
        return None;
    }
    made(StripEtherVlanHeader { native: Cell::new(u16::try_from(native).ok()) })
}

impl Element for StripEtherVlanHeader {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let (length, information) = match (u16_at(packet.data(), 12), u16_at(packet.data(), 14)) {
            (Some(ETHERTYPE_VLAN), Some(information)) => (TAGGED, Some(information)),
            (Some(ETHERTYPE_VLAN) | None, _) => return aside(at, packet, DropReason::Truncated),
            (Some(_), _) => (HEADER, self.native.get()),
        };
        let Some(information) = information else { return aside(at, packet, DropReason::Unmatched) };
        if packet.len() < length {
            return aside(at, packet, DropReason::Truncated);
        }
        packet.pull_bytes(length);
        annotate(&mut packet, information);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        at.gather(batch, |packet| self.action(at, packet));
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.native.set(fresh.native.get());
        true
    }
}

/// `VLANEncap(VLAN_TCI [, VLAN_PCP, VLAN_ID, NATIVE_VLAN, ETHERTYPE])`: puts a tag into Ethernet headers.
struct VlanEncap {
    tag: Cell<Tag>,
    ethertype: Cell<u16>,
}

fn vlan_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let tag = Tag::read(arguments);
    let ethertype = arguments.keyword("ETHERTYPE").unwrap_or(ETHERTYPE_VLAN);
    arguments.complete()?;
    made(VlanEncap { tag: Cell::new(tag?), ethertype: Cell::new(ethertype) })
}

impl Element for VlanEncap {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let Some(information) = self.tag.get().of(&packet) else {
            packet.set_mac_header(0, HEADER);
            return Some(packet);
        };
        if packet.len() < HEADER {
            at.drop_packet(packet, DropReason::Truncated);
            return None;
        }
        if !packet.push_bytes(at.pool(), TAG) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        let bytes = packet.data_mut();
        bytes.copy_within(TAG..TAG + 12, 0);
        bytes[12..14].copy_from_slice(&self.ethertype.get().to_be_bytes());
        bytes[14..16].copy_from_slice(&information.to_be_bytes());
        packet.set_mac_header(0, TAGGED);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        at.gather(batch, |packet| self.action(at, packet));
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.tag.set(fresh.tag.get());
        self.ethertype.set(fresh.ethertype.get());
        true
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.change_config();
        handlers.read("config", |this: &Self, _| {
            let tag = this.tag.get().describe();
            match this.ethertype.get() {
                ETHERTYPE_VLAN => tag,
                other => format!("{tag}, ETHERTYPE {other}"),
            }
        });
        handlers.read("vlan_tci", |this: &Self, _| this.tag.get().show());
        tag_handlers(handlers, Some(0));
        native_handlers(handlers);
        handlers.argument("ethertype", None, "ETHERTYPE");
        handlers.change_argument("ethertype", None, "ETHERTYPE");
    }
}

/// `VLANDecap([ANNO, ETHERTYPE])`: takes the tag out of Ethernet headers, and notes it in the VLAN annotation.
struct VlanDecap {
    annotates: bool,
    ethertype: u16,
}

fn vlan_decap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let annotates = arguments.positional("ANNO").unwrap_or(true);
    let ethertype = arguments.keyword("ETHERTYPE").unwrap_or(ETHERTYPE_VLAN);
    arguments.complete()?;
    made(VlanDecap { annotates, ethertype })
}

impl VlanDecap {
    fn strip(&self, packet: &mut Packet) {
        let mut information = 0;
        if u16_at(packet.data(), 12) == Some(self.ethertype)
            && let Some(tag) = u16_at(packet.data(), 14)
        {
            information = tag;
            packet.data_mut().copy_within(..12, TAG);
            // There are at least the 16 bytes that were read.
            let _ = packet.pull_front(TAG);
        }
        packet.set_mac_header(0, HEADER);
        if self.annotates {
            annotate(packet, information);
        }
    }
}

impl Element for VlanDecap {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        self.strip(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| self.strip(packet));
        at.push_batch(0, batch);
    }
}

/// `SetVLANAnno(VLAN_TCI [, VLAN_PCP, VLAN_ID])`: sets the VLAN annotation.
struct SetVlanAnno {
    information: Cell<u16>,
}

fn set_anno(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let whole = arguments.positional_with("VLAN_TCI", |text, _| bounded(text, 0, 0xFFFF));
    let priority = arguments.positional_with("VLAN_PCP", |text, _| bounded(text, 0, 7));
    let id = arguments.keyword_with("VLAN_ID", |text, _| bounded(text, 0, 0xFFF));
    arguments.complete()?;
    let information = whole.or(id).unwrap_or(0) | priority.unwrap_or(0) << 13;
    made(SetVlanAnno { information: Cell::new((information & 0xFFFF) as u16) })
}

impl Element for SetVlanAnno {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        annotate(&mut packet, self.information.get());
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        let information = self.information.get();
        batch.each_packet(|_, packet| annotate(packet, information));
        at.push_batch(0, batch);
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.information.set(fresh.information.get());
        true
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.change_config();
        handlers.read("config", |this: &Self, _| {
            let information = this.information.get();
            format!("VLAN_ID {}, VLAN_PCP {}", information & ID, information >> 13)
        });
        handlers.read("vlan_tci", |this: &Self, _| this.information.get());
        tag_handlers(handlers, None);
    }
}
