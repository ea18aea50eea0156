//! Checksums behind packets and marks on them: `SetCRC32`, `CheckCRC32`, `SetPacketType`, `SetAnnoByte`.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use crate::annotation::Place;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::{Annotated, Kind};
use crate::router::{At, Setup};
use crate::value::Word;

pub(super) const CLASSES: &[Class] = &[
    Class::new("SetCRC32", set_crc32),
    Class::new("CheckCRC32", check_crc32),
    Class::new("SetPacketType", set_packet_type),
    Class::new("SetAnnoByte", set_anno_byte),
];

/// The polynomial of Ethernet's CRC.
const POLYNOMIAL: u32 = 0x04C1_1DB7;
/// Bytes of a CRC.
const CRC: usize = 4;

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut number = 0;
    while number < 256 {
        let mut rest = (number as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            rest = rest << 1 ^ if rest >> 31 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[number] = rest;
        number += 1;
    }
    table
}

static TABLE: [u32; 256] = table();

/// The CRC of bytes, highest bits first, without a last inversion (CRC-32/MPEG-2), in the order in which Click stores it.
fn crc(bytes: &[u8]) -> [u8; CRC] {
    let sum = bytes.iter().fold(u32::MAX, |sum, byte| {
        let [high, ..] = sum.to_be_bytes();
        sum << 8 ^ TABLE[usize::from(high ^ byte)]
    });
    sum.to_le_bytes()
}

/// `SetCRC32`: puts a CRC behind each packet.
struct SetCrc32;

fn set_crc32(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(SetCrc32))
}

impl Element for SetCrc32 {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let sum = crc(packet.data());
        if !packet.put_bytes(CRC) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        if let Some(place) = packet.data_mut().last_chunk_mut::<CRC>() {
            *place = sum;
        }
        Some(packet)
    }
}

/// `CheckCRC32`: takes the CRC off each packet, and refuses those where it is wrong.
struct CheckCrc32;

fn check_crc32(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(CheckCrc32))
}

impl Element for CheckCrc32 {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if let Some((bytes, sum)) = packet.data().split_last_chunk::<CRC>()
            && crc(bytes) == *sum
        {
            let length = bytes.len();
            packet.truncate(length);
            return Some(packet);
        }
        at.complain(|| format!("CRC32 failed, len {}", packet.len()));
        at.drop_packet(packet, DropReason::BadChecksum);
        None
    }
}

/// `SetPacketType(HOST|BROADCAST|MULTICAST|OTHERHOST|OUTGOING)`: sets whom the link layer addressed.
struct SetPacketType {
    kind: Kind,
}

fn set_packet_type(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let name: Option<Word> = arguments.required("TYPE");
    arguments.complete()?;
    let Word(name) = name?;
    let kind = match &name.to_ascii_uppercase()[..] {
        "HOST" | "LOOPBACK" => Kind::Host,
        "BROADCAST" => Kind::Broadcast,
        "MULTICAST" => Kind::Multicast,
        "OTHERHOST" => Kind::OtherHost,
        "OUTGOING" => Kind::Outgoing,
        _ => {
            arguments.error(&format!("unrecognized packet type '{name}'"));
            return None;
        }
    };
    Some(Rc::new(SetPacketType { kind }))
}

impl Element for SetPacketType {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        packet.set_kind(self.kind);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| packet.set_kind(self.kind));
        at.push_batch(0, batch);
    }
}

/// `SetAnnoByte(ANNO, VALUE)`: sets a byte of annotations. `Paint(VALUE, ANNO)` is its new name.
struct SetAnnoByte {
    place: usize,
    value: Cell<u8>,
}

fn set_anno_byte(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    setup.errors.warning("SetAnnoByte(ANNO, VALUE) is obsolete, use Paint(VALUE, ANNO) instead");
    let place: Option<Place<1>> = arguments.required("ANNO");
    let value: Option<u8> = arguments.required("VALUE");
    arguments.complete()?;
    Some(Rc::new(SetAnnoByte { place: place?.0, value: Cell::new(value?) }))
}

impl Element for SetAnnoByte {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        packet.set_anno_u8(self.place, self.value.get());
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| packet.set_anno_u8(self.place, self.value.get()));
        at.push_batch(0, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("anno", |this: &Self, _| this.place);
        handlers.read("value", |this: &Self, _| this.value.get());
        handlers.write("value", |this: &Self, _, value| {
            this.value.set(value.trim().parse().map_err(|_| "expected integer")?);
            Ok(String::new())
        });
    }
}
