//! Lengths and bytes of packets: `Truncate`, `Pad`, `Resize`, `Align`, `CheckLength`, `Clipboard`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    Class::new("Truncate", truncate).live(),
    Class::new("Pad", pad).live(),
    Class::new("Resize", resize).creates_nothing().live(),
    Class::new("Align", align),
    Class::new("CheckLength", check_length).ports("1/1-2").processing("a/ah"),
    Class::new("Clipboard", clipboard).ports("2/2").flow("#/#").creates_nothing().live(),
];

/// `Truncate(LENGTH [, EXTRA_LENGTH])`: cuts packets to at most `LENGTH` bytes.
///
/// The extra length annotation counts the bytes that are cut, unless `EXTRA_LENGTH` is false.
struct Truncate {
    length: Cell<u32>,
    annotates: Cell<bool>,
}

fn truncate(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let length: Option<u32> = arguments.required("LENGTH");
    let annotates = arguments.keyword("EXTRA_LENGTH").unwrap_or(true);
    arguments.complete()?;
    Some(Rc::new(Truncate { length: Cell::new(length?), annotates: Cell::new(annotates) }))
}

impl Truncate {
    fn cut(&self, packet: &mut Packet) {
        let length = self.length.get() as usize;
        let Some(beyond) = packet.len().checked_sub(length).filter(|beyond| *beyond > 0) else { return };
        if self.annotates.get() {
            let extra = packet.anno_u32(place::EXTRA_LENGTH).wrapping_add(beyond as u32);
            packet.set_anno_u32(place::EXTRA_LENGTH, extra);
        }
        packet.truncate(length);
    }
}

impl Element for Truncate {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        self.cut(&mut packet);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| self.cut(packet));
        at.push_batch(0, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.number("nbytes", |this: &Self| &this.length);
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.length.set(fresh.length.get());
        self.annotates.set(fresh.annotates.get());
        true
    }
}

/// `Pad([LENGTH, ZERO])`: lengthens packets to `LENGTH` bytes, or by their extra length annotation without a length.
struct Pad {
    length: Cell<u32>,
}

fn pad(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let length = arguments.positional("LENGTH").unwrap_or(0);
    // New bytes are always zero here.
    let _: Option<bool> = arguments.keyword("ZERO");
    arguments.complete()?;
    Some(Rc::new(Pad { length: Cell::new(length) }))
}

impl Element for Pad {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let missing = match self.length.get() as usize {
            0 => packet.anno_u32(place::EXTRA_LENGTH) as usize,
            length => length.saturating_sub(packet.len()),
        };
        if missing > 0 && !packet.put_bytes(missing) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        packet.set_anno_u32(place::EXTRA_LENGTH, 0);
        Some(packet)
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).is_some_and(|fresh| {
            self.length.set(fresh.length.get());
            true
        })
    }
}

/// `Resize([HEAD, TAIL])`: adds bytes before and behind packets, or takes them away where a number is negative.
///
/// Bytes that were taken off the front come back; others are zero.
struct Resize {
    head: Cell<i32>,
    tail: Cell<i32>,
}

fn resize(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let head = arguments.positional("HEAD").unwrap_or(0);
    let tail = arguments.positional("TAIL").unwrap_or(0);
    arguments.complete()?;
    Some(Rc::new(Resize { head: Cell::new(head), tail: Cell::new(tail) }))
}

impl Element for Resize {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let (head, tail) = (self.head.get(), self.tail.get());
        let (front, back) = (head.unsigned_abs() as usize, tail.unsigned_abs() as usize);
        let mut good = true;
        if head > 0 {
            good = packet.unpull_bytes(at.pool(), front);
        } else {
            packet.pull_bytes(front);
        }
        if tail > 0 {
            good = good && packet.put_bytes(back);
        } else {
            packet.truncate(packet.len().saturating_sub(back));
        }
        if good {
            return Some(packet);
        }
        at.drop_packet(packet, DropReason::PoolExhausted);
        None
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.number("head", |this: &Self| &this.head);
        handlers.number("tail", |this: &Self| &this.tail);
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.head.set(fresh.head.get());
        self.tail.set(fresh.tail.get());
        true
    }
}

/// `Align(MODULUS, OFFSET)`: passes packets as they are.
///
/// Click needs it for machines that read only aligned words; here, headers are read byte by byte where needed.
struct Align;

fn align(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let modulus: Option<u32> = arguments.required("MODULUS");
    let offset: Option<i32> = arguments.required("OFFSET");
    arguments.complete()?;
    let (modulus, offset) = (modulus?, offset?);
    if !matches!(modulus, 2 | 4 | 8) {
        setup.errors.error("MODULUS must be 2, 4, or 8");
        return None;
    }
    if i64::from(offset) >= i64::from(modulus) {
        setup.errors.error("OFFSET must be smaller than MODULUS");
        return None;
    }
    Some(Rc::new(Align))
}

impl Element for Align {
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        at.push_batch(0, batch);
    }
}

/// `CheckLength(LENGTH)`: passes packets of at most `LENGTH` bytes; others leave by its second output, if there is one.
struct CheckLength {
    most: Cell<u32>,
}

fn check_length(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let most: Option<u32> = arguments.required("LENGTH");
    arguments.complete()?;
    Some(Rc::new(CheckLength { most: Cell::new(most?) }))
}

impl Element for CheckLength {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        if packet.len() <= self.most.get() as usize {
            return Some(packet);
        }
        at.push_or_drop(1, packet, DropReason::TooBig);
        None
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.number("length", |this: &Self| &this.most);
    }
}

/// `Clipboard(OFFSET/LENGTH, ...)`: copies bytes of each packet on its first port into packets on its second.
///
/// Packets that are too short for a range are neither copied from nor changed.
struct Clipboard {
    ranges: RefCell<Rc<[(usize, usize)]>>,
    bytes: RefCell<Vec<u8>>,
}

/// The most bytes of a range's end: packets are no longer.
const MOST: u32 = 1 << 20;

fn clipboard(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let mut ranges = Vec::new();
    for (number, text) in arguments.rest().iter().enumerate() {
        let parts = text.split_once('/').filter(|(offset, length)| !offset.is_empty() && !length.is_empty());
        let Some((offset, length)) = parts else {
            setup.errors.error(&format!("range {number}: expected '/' between offset and length"));
            return None;
        };
        let mut good = true;
        let mut read = |name: &str, text: &str| match u32::parse(text, setup.at) {
            Ok(value) => value,
            Err(crate::arguments::Problem::Said(message)) => {
                setup.errors.error(&format!("{name}: {message}"));
                good = false;
                0
            }
            Err(crate::arguments::Problem::Syntax) => {
                setup.errors.error(&format!("{name}: parse error"));
                good = false;
                0
            }
        };
        let (offset, length) = (read("OFFSET", offset), read("LENGTH", length));
        if !good || offset.saturating_add(length) > MOST {
            setup.errors.error(&format!("range {number}: invalid offset or length"));
            return None;
        }
        ranges.push((offset as usize, length as usize));
    }
    let size = ranges.iter().map(|(_, length)| length).sum();
    if size > MOST as usize {
        setup.errors.error(&format!("ranges have more than {MOST} bytes"));
        return None;
    }
    if !setup.has_room("LENGTH", size) {
        return None;
    }
    Some(Rc::new(Clipboard { ranges: RefCell::new(ranges.into()), bytes: RefCell::new(vec![0; size]) }))
}

impl Clipboard {
    fn carry(&self, port: usize, packet: &mut Packet) {
        let ranges = Rc::clone(&self.ranges.borrow());
        if ranges.iter().any(|(offset, length)| offset + length > packet.len()) {
            return;
        }
        let mut bytes = self.bytes.borrow_mut();
        let mut rest = &mut bytes[..];
        for (offset, length) in ranges.iter().copied() {
            let Some((part, behind)) = std::mem::take(&mut rest).split_at_mut_checked(length) else { return };
            if port == 0 {
                part.copy_from_slice(&packet.data()[offset..offset + length]);
            } else {
                packet.data_mut()[offset..offset + length].copy_from_slice(part);
            }
            rest = behind;
        }
    }
}

impl Element for Clipboard {
    fn memory(&self) -> usize {
        self.bytes.borrow().len()
    }
    fn push(&self, at: At<'_>, input: usize, mut packet: Packet) {
        self.carry(input, &mut packet);
        at.push(input, packet);
    }
    fn pull(&self, at: At<'_>, output: usize) -> Option<Packet> {
        let mut packet = at.pull(output)?;
        self.carry(output, &mut packet);
        Some(packet)
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.ranges.swap(&fresh.ranges);
        // As in Click, bytes on the clipboard stay.
        let size = fresh.bytes.borrow().len();
        self.bytes.borrow_mut().resize(size, 0);
        true
    }
}
