//! Elements that move Ethernet addresses between packets and annotations.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::{aside, ether_at, ether_data, made};
use crate::annotation::Place;
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Ether, Word, integer};

pub(super) const CLASSES: &[Class] = &[
    Class::new("StoreEtherAddress", store).ports("1/1-2").processing("a/ah").creates_nothing(),
    Class::new("GetEtherAddress", get).live().ports("1/1-2").processing("a/a").creates_nothing(),
    Class::new("SetEtherAddress", set).live().creates_nothing(),
];

/// The offset that an argument means: a number, `src` or `dst`.
fn offset_of(word: Option<Word>, setup: &Setup<'_>) -> Option<usize> {
    let Word(word) = word?;
    let offset = match word.to_ascii_lowercase().as_str() {
        "src" => Some(6),
        "dst" => Some(0),
        other => integer(other).and_then(|offset| u32::try_from(offset).ok()).map(|offset| offset as usize),
    };
    if offset.is_none_or(|offset| offset > u32::MAX as usize - 6) {
        setup.errors.error("type mismatch: bad OFFSET");
        return None;
    }
    offset
}

/// `StoreEtherAddress(ADDR, OFFSET)` or `StoreEtherAddress(OFFSET, ANNO a)`: writes an address into packets.
struct StoreEtherAddress {
    address: Cell<Ether>,
    annotation: Option<usize>,
    offset: usize,
}

fn store(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let from_annotation: Option<Place<6>> = arguments.keyword("ANNO");
    let address: Option<Ether> =
        if from_annotation.is_some() { arguments.keyword("ADDR") } else { arguments.positional("ADDR") };
    let offset: Option<Word> = arguments.required("OFFSET");
    arguments.complete()?;
    if address.is_some() == from_annotation.is_some() {
        setup.errors.error("must specify exactly one of ADDR/ANNO");
        return None;
    }
    let offset = offset_of(offset, setup)?;
    let annotation = from_annotation.map(|annotation| annotation.0);
    made(StoreEtherAddress { address: Cell::new(address.unwrap_or_default()), annotation, offset })
}

impl Element for StoreEtherAddress {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let address = match self.annotation {
            Some(place) => ether_at(packet.anno(), place).unwrap_or_default(),
            None => self.address.get(),
        };
        let place = packet.data_mut().get_mut(self.offset..).and_then(|bytes| bytes.first_chunk_mut());
        match place {
            Some(place) => {
                *place = address.0;
                Some(packet)
            }
            None => aside(at, packet, DropReason::Truncated),
        }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        ether_data(handlers, "addr", |this: &Self| &this.address);
    }
}

/// `GetEtherAddress(ANNO, OFFSET)`: copies an address from packets into an annotation.
struct GetEtherAddress {
    annotation: Cell<usize>,
    offset: Cell<usize>,
}

fn get(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let annotation: Option<Place<6>> = arguments.required("ANNO");
    let offset: Option<Word> = arguments.required("OFFSET");
    arguments.complete()?;
    let offset = offset_of(offset, setup)?;
    made(GetEtherAddress { annotation: Cell::new(annotation?.0), offset: Cell::new(offset) })
}

/// Writes an address among the annotations.
fn annotate(packet: &mut Packet, place: usize, address: Ether) {
    if let Some(place) = packet.anno_mut().get_mut(place..).and_then(|bytes| bytes.first_chunk_mut()) {
        *place = address.0;
    }
}

impl Element for GetEtherAddress {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        match ether_at(packet.data(), self.offset.get()) {
            Some(address) => {
                annotate(&mut packet, self.annotation.get(), address);
                Some(packet)
            }
            None if at.outputs() > 1 && at.output_is_push(1) => aside(at, packet, DropReason::Truncated),
            None => {
                at.drop_packet(packet, DropReason::Truncated);
                None
            }
        }
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.annotation.set(fresh.annotation.get());
        self.offset.set(fresh.offset.get());
        true
    }
}

/// `SetEtherAddress(ADDR, ANNO)`: sets an annotation to an address.
struct SetEtherAddress {
    address: Cell<Ether>,
    annotation: Cell<usize>,
}

fn set(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let address: Option<Ether> = arguments.required("ADDR");
    let annotation: Option<Place<6>> = arguments.required("ANNO");
    arguments.complete()?;
    made(SetEtherAddress { address: Cell::new(address?), annotation: Cell::new(annotation?.0) })
}

impl Element for SetEtherAddress {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        annotate(&mut packet, self.annotation.get(), self.address.get());
        Some(packet)
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.address.set(fresh.address.get());
        self.annotation.set(fresh.annotation.get());
        true
    }
    fn handlers(&self, handlers: &mut Handlers) {
        ether_data(handlers, "addr", |this: &Self| &this.address);
    }
}
