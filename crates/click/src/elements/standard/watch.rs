//! `Block`, which goes by a rate that others measured, and `QuitWatcher`.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::storages;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::SECOND;

pub(super) const CLASSES: &[Class] = &[
    Class::new("Block", block).ports("1/2").processing("h/h"),
    Class::new("QuitWatcher", quit_watcher).ports("0/0"),
];

/// The annotation of the rate to a packet's destination, which `IPRateMonitor` writes (FWD_RATE).
const RATE: usize = 20;
/// The time between two looks of a `QuitWatcher` (ns).
const LOOK: u64 = SECOND;

/// `Block(THRESH)`: packets whose rate annotation is above `THRESH` leave by output 1; none do with 0.
struct Block {
    most: Cell<u32>,
}

fn block(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let most: Option<u32> = arguments.required("THRESH");
    arguments.complete()?;
    Some(Rc::new(Block { most: Cell::new(most?) }))
}

impl Element for Block {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        let most = self.most.get();
        let is_over = most != 0 && packet.anno_u32(RATE) > most;
        at.push_or_drop(usize::from(is_over), packet, DropReason::RateLimited);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.number("thresh", |this: &Self| &this.most);
    }
}

/// `QuitWatcher(ELEMENT, ...)`: stops the driver when the task of one of these elements waits for no turn any more.
struct QuitWatcher {
    watched: Vec<usize>,
}

fn quit_watcher(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let mut watched = Vec::new();
    for argument in arguments.rest() {
        match storages::named(&argument, setup.at) {
            Ok(elements) => watched.extend(elements),
            Err(name) => {
                setup.errors.error(&format!("no element named '{name}'"));
                return None;
            }
        }
    }
    arguments.complete()?;
    Some(Rc::new(QuitWatcher { watched }))
}

impl Element for QuitWatcher {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let has_task = |element: &usize| at.router.has_handler(*element, "scheduled");
        if let Some(element) = self.watched.iter().find(|element| !has_task(element)) {
            errors.error(&format!("'{}' is not scheduled", at.router.name(*element)));
            return false;
        }
        at.timer_after(0, LOOK);
        true
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        if self.watched.iter().any(|element| !at.router.tasks.is_scheduled((*element, 0))) {
            at.router.please_stop();
        }
        at.timer_after(0, LOOK);
    }
}
