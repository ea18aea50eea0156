//! `DRRSched`: deficit round robin (Shreedhar and Varghese, SIGCOMM 1995, section 3.2).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::notifier::{Notice, Notifier, Search, Signal};
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] =
    &[Class::new("DRRSched", configure).ports("-/1").processing("l/l").creates_nothing()];

/// `DRRSched([QUANTUM])`: yields packets of its inputs so that each gets as many bytes.
///
/// An input gets `QUANTUM` bytes (500) a round, and keeps what it does not use while it has packets. It holds the first
/// packet of each input.
struct DrrSched {
    quantum: u32,
    inputs: RefCell<Vec<Input>>,
    /// The input whose turn it is.
    next: Cell<usize>,
    signals: RefCell<Vec<Signal>>,
    notifier: Rc<Notifier>,
}

#[derive(Default)]
struct Input {
    /// Bytes that it may send.
    deficit: u64,
    first: Option<Packet>,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let quantum: u32 = arguments.positional("QUANTUM").unwrap_or(500);
    arguments.complete()?;
    if quantum == 0 {
        setup.errors.error("QUANTUM must be at least 1");
        return None;
    }
    Some(Rc::new(DrrSched {
        quantum,
        inputs: RefCell::new((0..setup.inputs()).map(|_| Input::default()).collect()),
        next: Cell::default(),
        signals: RefCell::default(),
        notifier: Notifier::new("empty", Search::ContinueWake),
    }))
}

impl DrrSched {
    /// Has the first packet of each input at hand. Whether there is any, and whether more may come.
    fn fill(&self, at: At<'_>) -> (bool, bool) {
        let (mut any, mut more) = (false, false);
        for input in 0..at.inputs() {
            let is_active = self.signals.borrow().get(input).is_none_or(Signal::is_active);
            more |= is_active;
            if is_active && self.inputs.borrow()[input].first.is_none() {
                let packet = at.pull(input);
                self.inputs.borrow_mut()[input].first = packet;
            }
            let mut inputs = self.inputs.borrow_mut();
            if inputs[input].first.is_none() {
                inputs[input].deficit = 0;
            }
            any |= inputs[input].first.is_some();
        }
        (any, more)
    }

    /// Gives the inputs that have packets as many rounds as the first of them needs beyond the next one.
    fn skip_rounds(&self) {
        let quantum = u64::from(self.quantum);
        let mut inputs = self.inputs.borrow_mut();
        let needs = |input: &Input| {
            let length = input.first.as_ref()?.len() as u64;
            Some(length.saturating_sub(input.deficit).div_ceil(quantum))
        };
        let rounds = inputs.iter().filter_map(needs).min().unwrap_or(0).saturating_sub(1);
        for input in inputs.iter_mut().filter(|input| input.first.is_some()) {
            input.deficit += rounds * quantum;
        }
    }
}

impl Element for DrrSched {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        let signals = (0..at.inputs()).map(|input| at.upstream_empty_wakes(input, &self.notifier)).collect();
        self.signals.replace(signals);
        true
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        let (any, more) = self.fill(at);
        self.notifier.set_active(any || more, at.router);
        if !any {
            return None;
        }
        let count = at.inputs();
        // One input goes on with its turn, then each gets a turn; if none may send, rounds are skipped.
        for turn in 0..=2 * count {
            if turn == count {
                self.skip_rounds();
            }
            let place = self.next.get();
            let mut inputs = self.inputs.borrow_mut();
            let input = &mut inputs[place];
            if let Some(packet) = input.first.take_if(|packet| packet.len() as u64 <= input.deficit) {
                input.deficit -= packet.len() as u64;
                return Some(packet);
            }
            let next = if place + 1 >= count { 0 } else { place + 1 };
            self.next.set(next);
            if inputs[next].first.is_some() {
                inputs[next].deficit += u64::from(self.quantum);
            }
        }
        None
    }
    fn notifier(&self, notice: Notice, _: usize) -> Option<Rc<Notifier>> {
        (notice == Notice::Empty).then(|| Rc::clone(&self.notifier))
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("quantum", |this: &Self, _| this.quantum);
    }
    fn take_state(&self, at: At<'_>, before: &dyn Element) {
        let Some(before) = as_type::<Self>(before) else { return };
        let mut mine = self.inputs.borrow_mut();
        for (place, input) in before.inputs.borrow_mut().drain(..).enumerate() {
            match (mine.get_mut(place), input.first) {
                (Some(mine), first) => *mine = Input { deficit: input.deficit, first },
                (None, Some(packet)) => at.drop_packet(packet, DropReason::Drained),
                (None, None) => (),
            }
        }
    }
    fn cleanup(&self, at: At<'_>) {
        let held: Vec<Packet> =
            self.inputs.borrow_mut().iter_mut().filter_map(|input| input.first.take()).collect();
        held.into_iter().for_each(|packet| at.drop_packet(packet, DropReason::Drained));
    }
}
