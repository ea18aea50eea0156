//! `EtherPauseSource`: frames that ask the other end of a link to wait (IEEE 802.3, annex 31B).

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::buffer::Packet;

use super::made;
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Ether, SECOND, Span};

pub(super) const CLASSES: &[Class] = &[Class::new("EtherPauseSource", configure).ports("0/1").flow("x/y")];

/// The group address of pause frames.
const GROUP: Ether = Ether([0x01, 0x80, 0xC2, 0, 0, 0x01]);
/// The EtherType of MAC control frames, and the operation "pause".
const PAUSE: [u8; 4] = [0x88, 0x08, 0, 1];
/// Bytes of a frame without its check sequence.
const LENGTH: usize = 60;

/// `EtherPauseSource(SRC, PAUSETIME [, DST, LIMIT, INTERVAL, ACTIVE])`: pause frames of `PAUSETIME` times 512 bits.
///
/// It pushes one each `INTERVAL` (1 s), or yields one for each pull.
struct EtherPauseSource {
    source: Cell<Ether>,
    destination: Cell<Ether>,
    time: Cell<u16>,
    /// No limit if negative.
    limit: Cell<i32>,
    interval: u64,
    active: Cell<bool>,
    count: Cell<u32>,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let source: Option<Ether> = arguments.required("SRC");
    let time: Option<u16> = arguments.required("PAUSETIME");
    let destination: Ether = arguments.keyword("DST").unwrap_or(GROUP);
    let limit: i32 = arguments.keyword("LIMIT").unwrap_or(-1);
    let interval: Span = arguments.keyword("INTERVAL").unwrap_or(Span(SECOND));
    let active = arguments.keyword("ACTIVE").unwrap_or(true);
    arguments.complete()?;
    if interval.0 < SECOND / 1_000 {
        setup.errors.error("INTERVAL must be at least 1ms");
        return None;
    }
    made(EtherPauseSource {
        source: Cell::new(source?),
        destination: Cell::new(destination),
        time: Cell::new(time?),
        limit: Cell::new(limit),
        interval: interval.0,
        active: Cell::new(active),
        count: Cell::default(),
    })
}

impl EtherPauseSource {
    fn is_on(&self) -> bool {
        self.active.get() && u32::try_from(self.limit.get()).map_or(true, |limit| self.count.get() < limit)
    }
    fn make(&self, at: At<'_>) -> Option<Packet> {
        let mut frame = [0; LENGTH];
        frame[..6].copy_from_slice(&self.destination.get().0);
        frame[6..12].copy_from_slice(&self.source.get().0);
        frame[12..16].copy_from_slice(&PAUSE);
        frame[16..18].copy_from_slice(&self.time.get().to_be_bytes());
        let mut packet = at.packet(&frame)?;
        packet.set_mac_header(0, 14);
        packet.set_timestamp(at.now());
        self.count.set(self.count.get().wrapping_add(1));
        Some(packet)
    }
    fn restart(&self, at: At<'_>) {
        if at.output_is_push(0) && self.is_on() && at.router.timers.expiry((at.id, 0)).is_none() {
            at.timer_after(0, self.interval);
        }
    }
}

impl Element for EtherPauseSource {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        self.restart(at);
        true
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        if !self.is_on() {
            return;
        }
        if let Some(packet) = self.make(at) {
            at.push(0, packet);
        }
        self.restart(at);
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        if self.is_on() { self.make(at) } else { None }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("count", |this: &Self, _| this.count.get());
        let address = |value: &str| Ether::read(value.trim()).ok_or("expected Ethernet address");
        handlers.read("src", |this: &Self, _| this.source.get());
        handlers.write("src", move |this: &Self, _, value| {
            this.source.set(address(value)?);
            Ok(String::new())
        });
        handlers.read("dst", |this: &Self, _| this.destination.get());
        handlers.write("dst", move |this: &Self, _, value| {
            this.destination.set(address(value)?);
            Ok(String::new())
        });
        handlers.read("pausetime", |this: &Self, _| this.time.get());
        handlers.write("pausetime", |this: &Self, _, value| {
            this.time.set(value.trim().parse().map_err(|_| "expected pause time (0-65535)")?);
            Ok(String::new())
        });
        handlers.read("limit", |this: &Self, _| this.limit.get());
        handlers.write("limit", |this: &Self, at, value| {
            this.limit.set(i32::parse(value.trim(), at).map_err(|_| "expected limit (integer)")?);
            this.restart(at);
            Ok(String::new())
        });
        handlers.button("reset_counts", |this: &Self, at| {
            this.count.set(0);
            this.restart(at);
        });
        handlers.read("active", |this: &Self, _| this.active.get()).checkbox = true;
        handlers.write("active", |this: &Self, at, value| {
            this.active.set(crate::value::boolean(value.trim()).ok_or("expected true or false")?);
            this.restart(at);
            Ok(String::new())
        });
    }
}
