//! Random early detection: `RED` and `AdaptiveRED` drop packets before queues are full.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::notifier::Notice;
use crate::router::{At, Setup};
use crate::value::{Fixed, Raw, write_fixed};

use super::storages;
use super::tokens::Average;

pub(super) const CLASSES: &[Class] = &[
    Class::new("RED", red).ports("1/1-2").processing("a/ah").live(),
    Class::new("AdaptiveRED", adaptive_red).ports("1/1-2").processing("a/ah").live(),
];

/// A probability of 1.
const ONE: u32 = 1 << 16;
/// Bits of the average length of queues behind the binary point.
const BITS: u32 = 10;
/// Packets that one pull drops at most, so that others have their turns.
const MOST_A_PULL: usize = 1024;
/// Time between steps of `AdaptiveRED` (ns).
const INTERVAL: u64 = 500_000_000;

/// The settings of a configuration.
#[derive(Clone, Copy)]
struct Settings {
    low: u32,
    high: u32,
    /// Probability of a drop at the higher threshold.
    most: u32,
    gentle: bool,
}

/// Lines of the probability over the average length: steepness and where they begin.
#[derive(Clone, Copy)]
struct Lines {
    steep: [u32; 2],
    begin: [u32; 2],
}

impl Settings {
    /// Above this average length, all packets are dropped.
    fn end(&self) -> u32 {
        if self.gentle && self.most != ONE { self.high * 2 } else { self.high }
    }
    /// The line up to the higher threshold, and the one beyond.
    fn lines(&self) -> Lines {
        let (mut steep, mut begin) = (0, 1);
        if let Some(width) = self.high.checked_sub(self.low).filter(|width| *width > 0) {
            steep = self.most / width;
            begin = self.most.wrapping_mul(self.low) / width;
        }
        let beyond = (ONE - self.most).checked_div(self.high).unwrap_or(0);
        Lines { steep: [steep, beyond], begin: [begin, ONE.wrapping_sub(2 * self.most)] }
    }
}

/// `RED(MIN_THRESH, MAX_THRESH, MAX_P [, QUEUES, STABILITY, GENTLE])`: drops packets at random while queues grow.
///
/// It never drops while the average length of the nearest queues is at most `MIN_THRESH`. At `MAX_THRESH` it drops with
/// probability `MAX_P`, and at twice that it drops all. What it drops leaves by its second output, if there is one.
/// `AdaptiveRED(TARGET, MAX_P [, QUEUES, STABILITY])` changes its probability so that the average stays near `TARGET`.
struct Red {
    adaptive: bool,
    settings: Cell<Settings>,
    /// Queues that the configuration names.
    named: Option<Vec<usize>>,
    queues: RefCell<Vec<usize>>,
    average: Average,
    /// When the queues were last seen empty (50ths of a second).
    idle_since: Cell<u64>,
    /// Packets since the last drop, negative below the lower threshold.
    count: Cell<i64>,
    random: Cell<i64>,
    drops: Cell<u32>,
}

fn red(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let low: Option<u32> = arguments.required("MIN_THRESH");
    let high: Option<u32> = arguments.required("MAX_THRESH");
    let most: Option<Fixed<16>> = arguments.required("MAX_P");
    let queues: Option<Raw> = arguments.keyword("QUEUES");
    let stability = arguments.keyword("STABILITY").unwrap_or(4);
    let gentle = arguments.keyword("GENTLE").unwrap_or(true);
    arguments.complete()?;
    let settings = Settings { low: low?, high: high?, most: most?.0, gentle };
    finish(setup, settings, queues, stability, false)
}

fn adaptive_red(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let target: Option<u32> = arguments.required("TARGET");
    let most: Option<Fixed<16>> = arguments.required("MAX_P");
    let queues: Option<Raw> = arguments.keyword("QUEUES");
    let stability = arguments.keyword("STABILITY").unwrap_or(4);
    arguments.complete()?;
    let target = target?.max(10);
    let low = target / 2;
    let settings = Settings { low, high: target.saturating_add(low), most: most?.0, gentle: true };
    finish(setup, settings, queues, stability, true)
}

fn finish(
    setup: &Setup<'_>,
    settings: Settings,
    queues: Option<Raw>,
    stability: u32,
    adaptive: bool,
) -> Option<Rc<dyn Element>> {
    let fault = if settings.high > 0xFFFF {
        Some("MAX_THRESH must be <= 65535")
    } else if settings.low > settings.high {
        Some("MIN_THRESH must be <= MAX_THRESH")
    } else if settings.most > ONE {
        Some("MAX_P must be between 0 and 1")
    } else if stability > 16 {
        Some("STABILITY must be between 0 and 16")
    } else {
        None
    };
    if let Some(fault) = fault {
        setup.errors.error(fault);
        return None;
    }
    let named = storages::of_argument(queues.as_ref(), setup)?;
    Some(Rc::new(Red {
        adaptive,
        settings: Cell::new(settings),
        named,
        queues: RefCell::default(),
        average: Average::new(stability, BITS),
        idle_since: Cell::default(),
        count: Cell::new(-1),
        random: Cell::default(),
        drops: Cell::default(),
    }))
}

impl Red {
    /// Packets in the queues.
    fn length(&self, at: At<'_>) -> u64 {
        let one = |queue: &usize| at.router.element(*queue).storage().map_or(0, |(length, _)| length as u64);
        self.queues.borrow().iter().map(one).sum()
    }
    /// Average length of the queues after another look.
    fn look(&self, at: At<'_>) -> u64 {
        let length = self.length(at);
        if self.average.shift() == 0 {
            return length;
        }
        if length > 0 {
            self.average.update(length);
            self.idle_since.set(0);
        } else {
            let now = at.now() / 20_000_000;
            let since = self.idle_since.replace(now);
            let passed = if since == 0 { 1 } else { now.saturating_sub(since) };
            self.average.decay(u32::try_from(passed).unwrap_or(u32::MAX));
        }
        self.average.whole()
    }
    fn should_drop(&self, at: At<'_>) -> bool {
        let settings = self.settings.get();
        let average = self.look(at);
        if average <= u64::from(settings.low) || average > u64::from(settings.end()) {
            self.count.set(-1);
            return average > u64::from(settings.low);
        }
        let lines = settings.lines();
        let line = usize::from(average > u64::from(settings.high));
        let height = u64::from(lines.steep[line]).wrapping_mul(self.average.scaled()) >> BITS;
        let probability = height.wrapping_sub(u64::from(lines.begin[line])) as i32;
        let count = self.count.get() + 1;
        self.count.set(count);
        let dropped = count > 0 && probability > 0 && count > self.random.get() / i64::from(probability);
        if dropped {
            self.count.set(0);
        }
        if self.count.get() == 0 {
            self.random.set(i64::from(at.router.random() & 0xFFFF));
        }
        dropped
    }
    fn drop(&self, at: At<'_>, packet: Packet) {
        at.push_or_drop(1, packet, DropReason::QueueFull);
        self.drops.set(self.drops.get().wrapping_add(1));
    }
    fn queue_names(&self, at: At<'_>) -> Vec<String> {
        self.queues.borrow().iter().map(|queue| at.router.name(*queue).to_owned()).collect()
    }
    fn average_text(&self) -> String {
        write_fixed(self.average.scaled(), BITS)
    }
    fn configuration(&self, at: At<'_>) -> String {
        let settings = self.settings.get();
        let most = write_fixed(settings.most.into(), 16);
        let mut text = format!("{}, {}, {most}, QUEUES", settings.low, settings.high);
        for name in self.queue_names(at) {
            text.push(' ');
            text.push_str(&name);
        }
        text.push_str(&format!(", STABILITY {}", self.average.shift()));
        if !settings.gentle {
            text.push_str(", GENTLE false");
        }
        text
    }
}

impl Element for Red {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let towards = if at.output_is_push(0) { Notice::Full } else { Notice::Empty };
        let queues = self.named.clone().unwrap_or_else(|| storages::nearest(at, towards));
        if queues.is_empty() {
            errors.error("no nearby Queues");
            return false;
        }
        let mut good = true;
        for queue in &queues {
            if at.router.element(*queue).storage().is_none() {
                errors.error(&format!("'{}' is not a Storage element", at.router.name(*queue)));
                good = false;
            }
        }
        *self.queues.borrow_mut() = queues;
        if self.adaptive {
            at.timer_after(0, INTERVAL);
        }
        good
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        if self.should_drop(at) { self.drop(at, packet) } else { at.push(0, packet) }
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        for _ in 0..MOST_A_PULL {
            let packet = at.pull(0)?;
            if !self.should_drop(at) {
                return Some(packet);
            }
            self.drop(at, packet);
        }
        None
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        let average = if self.average.shift() == 0 { self.length(at) } else { self.average.whole() };
        let mut settings = self.settings.get();
        let quarter = u64::from((settings.high - settings.low) / 2);
        // A hundredth and nine tenths, of 65536.
        let (hundredth, nine_tenths) = (655, 58_982);
        if average < u64::from(settings.low) + quarter && settings.most > hundredth {
            settings.most = ((u64::from(settings.most) * nine_tenths) >> 16) as u32;
        } else if average > u64::from(settings.high) - quarter && settings.most < ONE / 2 {
            settings.most += hundredth.min(settings.most / 4);
        }
        self.settings.set(settings);
        at.timer_after(0, INTERVAL);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
        for (place, name) in ["min_thresh", "max_thresh", "max_p"].into_iter().enumerate() {
            let keyword = name.to_ascii_uppercase();
            handlers.argument(name, Some(place), &keyword);
            handlers.change_argument(name, Some(place), &keyword);
        }
        handlers.read("avg_queue_size", |this: &Self, _| this.average_text());
        handlers.read("stats", |this: &Self, at| {
            let (length, average) = (this.length(at), this.average_text());
            format!("{length} current queue\n{average} avg queue\n{} drops\n", this.drops.get())
        });
        handlers.read("queues", |this: &Self, at| {
            this.queue_names(at).iter().map(|name| format!("{name}\n")).collect::<String>()
        });
        handlers.read("config", |this: &Self, at| this.configuration(at));
        handlers.change_config();
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.settings.set(fresh.settings.get());
        self.average.set_shift(fresh.average.shift());
        true
    }
    fn take_state(&self, _: At<'_>, before: &dyn Element) {
        if let Some(before) = as_type::<Self>(before) {
            self.average.set_scaled(before.average.scaled());
        }
    }
}
