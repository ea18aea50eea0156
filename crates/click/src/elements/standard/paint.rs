//! Paint: a byte of annotations that marks packets. `Paint`, `PaintSwitch`, `PaintTee`, `CheckPaint`.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use crate::annotation::Place;
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::elements::ip::fuse::Step;
use crate::handler::Handlers;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    Class::new("Paint", paint).live(),
    Class::new("PaintSwitch", paint_switch).ports("1/-").processing("h/h"),
    Class::new("PaintTee", paint_tee).ports("1/2").processing("a/ah"),
    Class::new("CheckPaint", check_paint).ports("1/1-2").processing("a/ah"),
];

/// A colour and the annotation that holds it.
struct Colour {
    colour: Cell<u8>,
    place: Cell<usize>,
}

impl Colour {
    fn read(arguments: &mut Arguments<'_>) -> Option<Self> {
        let colour = arguments.required("COLOR");
        let place = read_place(arguments);
        arguments.complete()?;
        Some(Self { colour: Cell::new(colour?), place: Cell::new(place) })
    }
    fn is_on(&self, packet: &Packet) -> bool {
        packet.anno_u8(self.place.get()) == self.colour.get()
    }
}

fn read_place(arguments: &mut Arguments<'_>) -> usize {
    arguments.positional::<Place<1>>("ANNO").map_or(place::PAINT, |place| place.0)
}

/// `Paint(COLOR [, ANNO])`: paints packets: writes the colour into a byte of their annotations.
pub(in crate::elements) struct Paint(Colour);

fn paint(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    Some(Rc::new(Paint(Colour::read(arguments)?)))
}

impl Paint {
    fn paint(&self, packet: &mut Packet) {
        packet.set_anno_u8(self.0.place.get(), self.0.colour.get());
    }
}

impl Step for Paint {
    #[inline(always)]
    fn act(&self, _: At<'_>, packet: &mut Packet) -> u8 {
        self.paint(packet);
        0
    }
}

impl Element for Paint {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        self.paint(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| self.paint(packet));
        at.push_batch(0, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.number("color", |this: &Self| &this.0.colour);
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.0.colour.set(fresh.0.colour.get());
        self.0.place.set(fresh.0.place.get());
        true
    }
}

/// `PaintSwitch([ANNO])`: sends packets to the output of their colour, and those of colour 255 to all.
struct PaintSwitch {
    place: usize,
}

fn paint_switch(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let place = read_place(arguments);
    arguments.complete()?;
    Some(Rc::new(PaintSwitch { place }))
}

impl Element for PaintSwitch {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        match packet.anno_u8(self.place) {
            u8::MAX => push_to_all(at, packet),
            colour => at.push_or_drop(colour.into(), packet, DropReason::Denied),
        }
    }
}

/// Pushes a packet to the last output, and copies of it to the others before.
pub(super) fn push_to_all(at: At<'_>, packet: Packet) {
    let Some(last) = at.outputs().checked_sub(1) else {
        at.discard(packet);
        return;
    };
    for output in 0..last {
        if let Some(copy) = at.copy(&packet) {
            at.push(output, copy);
        }
    }
    at.push(last, packet);
}

/// `PaintTee(COLOR [, ANNO])`: passes packets, and copies of those of a colour to its second output.
pub(in crate::elements) struct PaintTee(Colour);

fn paint_tee(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    Some(Rc::new(PaintTee(Colour::read(arguments)?)))
}

impl Step for PaintTee {
    /// A copy leaves before its packet and behind the packets before, which one pass over a batch cannot do.
    fn fits(&self, batch: &Batch) -> bool {
        !batch.iter().any(|packet| self.0.is_on(packet))
    }
    #[inline(always)]
    fn act(&self, _: At<'_>, _: &mut Packet) -> u8 {
        0
    }
}

impl Element for PaintTee {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        if self.0.is_on(&packet)
            && let Some(copy) = at.copy(&packet)
        {
            at.push(1, copy);
        }
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, input: usize, batch: &mut Batch) {
        if self.fits(batch) {
            at.push_batch(0, batch);
            return;
        }
        at.each_alone(batch, |packet| self.push(at, input, packet));
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.number("color", |this: &Self| &this.0.colour);
    }
}

/// `CheckPaint(COLOR [, ANNO])`: passes packets of a colour; others leave by its second output, if there is one.
struct CheckPaint(Colour);

fn check_paint(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    Some(Rc::new(CheckPaint(Colour::read(arguments)?)))
}

impl Element for CheckPaint {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        if self.0.is_on(&packet) {
            return Some(packet);
        }
        at.push_or_drop(1, packet, DropReason::Denied);
        None
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.number("color", |this: &Self| &this.0.colour);
    }
}
