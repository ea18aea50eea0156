//! Elements that count and sample: `Counter`, `AverageCounter`, `Meter`, `BandwidthMeter`, `RandomSample`, `RandomSeed`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element, as_type};
use crate::handler::{Answer, Handlers};
use crate::handler_call::HandlerCall;
use crate::language::errors::Errors;
use crate::language::text::next_word;
use crate::router::{At, Setup};
use crate::value::{Bandwidth, Fixed, Raw, integer, write_fixed, write_number};

use super::tokens::RateAverage;

pub(super) const CLASSES: &[Class] = &[
    Class::new("Counter", counter),
    Class::new("AverageCounter", average_counter),
    Class::new("BandwidthMeter", bandwidth_meter).ports("1/2-").processing("h/h"),
    Class::new("Meter", meter).ports("1/2-").processing("h/h"),
    Class::new("RandomSample", random_sample).ports("1/1-2").processing("a/ah").live(),
    Class::new("RandomSeed", random_seed).ports("0/0").phase(-1).live(),
];

/// A handler that is called once when a count is reached.
#[derive(Default)]
struct Trigger {
    count: Cell<u64>,
    /// The call as the configuration has it.
    text: String,
    call: RefCell<Option<HandlerCall>>,
    called: Cell<bool>,
}

fn split_call(text: &str) -> Option<(i128, &str)> {
    let (first, rest) = next_word(text);
    Some((integer(&first).filter(|count| *count >= 0)?, rest))
}

impl Trigger {
    fn read(arguments: &mut Arguments<'_>, keyword: &str) -> Option<Option<Self>> {
        let Some(Raw(text)) = arguments.keyword(keyword) else { return Some(None) };
        let Some((count, rest)) = split_call(&text) else {
            arguments.error(&format!("{keyword} type mismatch"));
            return None;
        };
        let count = u64::try_from(count).unwrap_or_else(|_| {
            // Click tells this as an error, and goes on.
            arguments.errors().message(&format!("{keyword} overflow, max {}", u64::MAX));
            u64::MAX
        });
        Some(Some(Self { count: Cell::new(count), text: rest.to_owned(), ..Self::default() }))
    }
    fn set(&self, at: At<'_>, text: &str) -> Result<(), String> {
        let call = HandlerCall::parse(text, at)?;
        call.check(at.router, true)?;
        self.call.replace(Some(call));
        Ok(())
    }
    fn waits(&self) -> bool {
        !self.called.get() && self.call.borrow().is_some()
    }
    #[cold]
    fn fire(&self, at: At<'_>) {
        self.called.set(true);
        let call = self.call.borrow().clone();
        if let Some(call) = call {
            // As in Click, its errors are not told.
            let _ = call.write(at.router);
        }
    }
    fn change(&self, at: At<'_>, value: &str, name: &str) -> Answer {
        let error = || format!("'{name}' first word should be unsigned (count)");
        let (count, rest) = split_call(value).ok_or_else(error)?;
        self.count.set(u64::try_from(count).map_err(|_| error())?);
        self.set(at, rest)?;
        self.called.set(false);
        Ok(String::new())
    }
}

/// `Counter([COUNT_CALL, BYTE_COUNT_CALL])`: counts packets and bytes, and their rates.
///
/// `COUNT_CALL N HANDLER [VALUE]` writes a handler when the count reaches N, before the packet goes on.
struct Counter {
    count: Cell<u64>,
    bytes: Cell<u64>,
    rate: RateAverage,
    byte_rate: RateAverage,
    trigger: Trigger,
    byte_trigger: Trigger,
}

fn counter(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let trigger = Trigger::read(arguments, "COUNT_CALL")?;
    let byte_trigger = Trigger::read(arguments, "BYTE_COUNT_CALL")?;
    arguments.complete()?;
    Some(Rc::new(Counter {
        count: Cell::default(),
        bytes: Cell::default(),
        rate: RateAverage::new(setup.at, 4, 10),
        byte_rate: RateAverage::new(setup.at, 4, 4),
        trigger: trigger.unwrap_or_else(Trigger::none),
        byte_trigger: byte_trigger.unwrap_or_else(Trigger::none),
    }))
}

impl Trigger {
    fn none() -> Self {
        Self { count: Cell::new(u64::MAX), ..Self::default() }
    }
    /// Whether a configuration gave a call, right or not.
    fn is_given(&self) -> bool {
        self.count.get() != u64::MAX || !self.text.is_empty()
    }
}

impl Counter {
    fn count(&self, at: At<'_>, packets: u64, bytes: u64) {
        self.count.set(self.count.get().wrapping_add(packets));
        self.bytes.set(self.bytes.get().wrapping_add(bytes));
        self.rate.update(at, packets);
        self.byte_rate.update(at, bytes);
    }
}

impl Element for Counter {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        for trigger in [&self.trigger, &self.byte_trigger] {
            if trigger.is_given()
                && let Err(message) = trigger.set(at, &trigger.text)
            {
                errors.error(&message);
                return false;
            }
        }
        true
    }
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        self.count(at, 1, packet.len() as u64);
        if self.count.get() == self.trigger.count.get() && !self.trigger.called.get() {
            self.trigger.fire(at);
        }
        if self.bytes.get() >= self.byte_trigger.count.get() && !self.byte_trigger.called.get() {
            self.byte_trigger.fire(at);
        }
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, input: usize, batch: &mut Batch) {
        // A call acts between two packets, so that packets are counted one by one while one waits.
        if self.trigger.waits() || self.byte_trigger.waits() {
            at.each_alone(batch, |packet| self.push(at, input, packet));
            return;
        }
        self.count(at, batch.len() as u64, batch.bytes());
        at.push_batch(0, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.read("byte_count", |this: &Self, _| this.bytes.get());
        handlers.read("rate", |this: &Self, at| write_fixed(this.rate.scaled_rate(at), this.rate.bits()));
        handlers.read("bit_rate", |this: &Self, at| {
            write_fixed(this.byte_rate.scaled_rate(at), this.byte_rate.bits() - 3)
        });
        handlers.read("byte_rate", |this: &Self, at| {
            write_fixed(this.byte_rate.scaled_rate(at), this.byte_rate.bits())
        });
        for name in ["reset", "reset_counts"] {
            handlers
                .button(name, |this: &Self, _| {
                    this.count.set(0);
                    this.bytes.set(0);
                    this.trigger.called.set(false);
                    this.byte_trigger.called.set(false);
                })
                .uncommon = name == "reset_counts";
        }
        handlers.read("count_call", |this: &Self, _| {
            let call = this.trigger.call.borrow();
            call.as_ref().map_or(String::new(), |_| this.trigger.count.get().to_string())
        });
        handlers.write("count_call", |this: &Self, at, value| this.trigger.change(at, value, "count_call"));
        handlers.write("byte_count_call", |this: &Self, at, value| {
            this.byte_trigger.change(at, value, "byte_count_call")
        });
    }
}

/// `AverageCounter([IGNORE])`: counts packets and bytes, and their average rates without the first `IGNORE` seconds.
struct AverageCounter {
    ignore: u32,
    count: Cell<u32>,
    bytes: Cell<u32>,
    first: Cell<u32>,
    last: Cell<u32>,
}

fn average_counter(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let ignore = arguments.positional("IGNORE").unwrap_or(0_u32).wrapping_mul(RateAverage::frequency());
    arguments.complete()?;
    Some(Rc::new(AverageCounter {
        ignore,
        count: Cell::default(),
        bytes: Cell::default(),
        first: Cell::default(),
        last: Cell::default(),
    }))
}

impl AverageCounter {
    fn count(&self, at: At<'_>, packets: u32, bytes: u32) {
        let now = (at.now() / 1_000_000) as u32;
        if self.first.get() == 0 {
            self.first.set(now);
        }
        if now.wrapping_sub(self.first.get()) >= self.ignore {
            self.count.set(self.count.get().wrapping_add(packets));
            self.bytes.set(self.bytes.get().wrapping_add(bytes));
        }
        self.last.set(now);
    }
    fn rate(&self, count: u32) -> String {
        let span = self.last.get().wrapping_sub(self.first.get()).wrapping_sub(self.ignore).max(1);
        write_number(f64::from(count) * f64::from(RateAverage::frequency()) / f64::from(span))
    }
}

impl Element for AverageCounter {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        self.count(at, 1, packet.len() as u32);
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        self.count(at, batch.len() as u32, batch.bytes() as u32);
        at.push_batch(0, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.read("byte_count", |this: &Self, _| this.bytes.get());
        handlers.read("rate", |this: &Self, _| this.rate(this.count.get()));
        handlers.read("byte_rate", |this: &Self, _| this.rate(this.bytes.get()));
        handlers.button("reset", |this: &Self, _| {
            for cell in [&this.count, &this.bytes, &this.first, &this.last] {
                cell.set(0);
            }
        });
    }
}

/// `BandwidthMeter(RATE1, ..., RATEn)`: sends packets to an output by the recent rate of bytes.
///
/// Output i while the rate is below `RATE(i+1)`, and the last output beyond all. `Meter` measures packets a second.
struct Meter {
    rate: RateAverage,
    /// Rates a tick, scaled as the average is.
    limits: Vec<u64>,
    bytes: bool,
}

fn bandwidth_meter(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    metered(arguments, setup, true)
}
fn meter(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    metered(arguments, setup, false)
}
fn metered(arguments: &mut Arguments<'_>, setup: &Setup<'_>, bytes: bool) -> Option<Rc<dyn Element>> {
    let texts = arguments.rest();
    let fail = |message: &str| {
        setup.errors.error(message);
        None
    };
    if texts.is_empty() {
        return fail("too few arguments to BandwidthMeter(bandwidth, ...)");
    }
    let rate = RateAverage::new(setup.at, 4, 10);
    let mut rates: Vec<u32> = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let Ok(Bandwidth(value)) = Bandwidth::parse(text, setup.at) else {
            return fail(&format!("argument {} syntax error", number + 1));
        };
        if rates.last().is_some_and(|last| value <= *last) {
            return fail(&format!("rate {} must be > rate {number}", number + 1));
        }
        if value != 0 && !text.contains(|letter: char| letter.is_ascii_alphabetic() && letter != 'e') {
            let message = format!("no units for bandwidth argument {}, assuming Bps", number + 1);
            setup.errors.warning(&message);
        }
        rates.push(value);
    }
    let most = u32::MAX >> rate.bits();
    if let Some(place) = rates.iter().position(|value| *value > most) {
        return fail(&format!("rate {} too large (max {most})", place + 1));
    }
    if rates.len() + 1 != setup.outputs() {
        let wanted = setup.outputs() - 1;
        return fail(&format!("need {wanted} arguments, one less than the number of output ports"));
    }
    let frequency = u64::from(RateAverage::frequency());
    let limits = rates.iter().map(|value| (u64::from(*value) << rate.bits()) / frequency).collect();
    Some(Rc::new(Meter { rate, limits, bytes }))
}

impl Element for Meter {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        self.rate.update(at, if self.bytes { packet.len() as u64 } else { 1 });
        let now = self.rate.scaled();
        let output = self.limits.iter().position(|limit| now < *limit).unwrap_or(self.limits.len());
        at.push(output, packet);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("rate", |this: &Self, at| write_fixed(this.rate.scaled_rate(at), this.rate.bits()));
        handlers.read("meters", |this: &Self, _| {
            let frequency = u64::from(RateAverage::frequency());
            let one = |limit: &u64| write_fixed(limit * frequency, this.rate.bits());
            this.limits.iter().map(one).collect::<String>()
        });
    }
}

/// `RandomSample([P, SAMPLE, DROP, ACTIVE])`: passes each packet with probability P, and drops others.
///
/// Dropped packets leave by its second output, if there is one.
struct RandomSample {
    /// Probability to pass, in 1 / 2^28.
    probability: Cell<u32>,
    active: Cell<bool>,
    drops: Cell<u32>,
}

/// Bits of a probability behind the binary point.
const BITS: u32 = 28;
const ONE: u32 = 1 << BITS;

fn random_sample(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let plain: Option<Fixed<BITS>> = arguments.positional("P");
    let sample: Option<Fixed<BITS>> = arguments.keyword("SAMPLE");
    let dropped: Option<Fixed<BITS>> = arguments.keyword("DROP");
    let active = arguments.keyword("ACTIVE").unwrap_or(true);
    arguments.complete()?;
    if sample.is_some() && dropped.is_some() {
        setup.errors.error("give at most one of SAMPLE and DROP");
        return None;
    }
    let probability = match (dropped, sample.or(plain)) {
        (Some(dropped), _) => ONE.wrapping_sub(dropped.0),
        (None, Some(passed)) => passed.0,
        (None, None) => u32::MAX,
    };
    if probability > ONE {
        setup.errors.error("sampling probability must be between 0 and 1");
        return None;
    }
    Some(Rc::new(RandomSample {
        probability: Cell::new(probability),
        active: Cell::new(active),
        drops: Cell::default(),
    }))
}

impl Element for RandomSample {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        if !self.active.get() || at.router.random() & (ONE - 1) < self.probability.get() {
            return Some(packet);
        }
        at.push_or_drop(1, packet, DropReason::Denied);
        self.drops.set(self.drops.get().wrapping_add(1));
        None
    }
    fn handlers(&self, handlers: &mut Handlers) {
        let parse = |value: &str, at: At<'_>| match Fixed::<BITS>::parse(value.trim(), at) {
            Ok(Fixed(value)) if value <= ONE => Ok(value),
            _ => Err("Must be given a number between 0.0 and 1.0".to_owned()),
        };
        let write = |value: u32| write_fixed(value.into(), BITS);
        handlers.read("sampling_prob", move |this: &Self, _| write(this.probability.get()));
        handlers.write("sampling_prob", move |this: &Self, at, value| {
            this.probability.set(parse(value, at)?);
            Ok(String::new())
        });
        handlers.flag("active", |this: &Self| &this.active);
        handlers.read("drops", |this: &Self, _| this.drops.get());
        handlers.read("drop_prob", move |this: &Self, _| write(ONE.saturating_sub(this.probability.get())));
        handlers.write("drop_prob", move |this: &Self, at, value| {
            this.probability.set(ONE - parse(value, at)?);
            Ok(String::new())
        });
        handlers.read("config", move |this: &Self, _| {
            format!("SAMPLE {}, ACTIVE {}", write(this.probability.get()), this.active.get())
        });
        handlers.change_config();
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.probability.set(fresh.probability.get());
        self.active.set(fresh.active.get());
        true
    }
}

/// `RandomSeed([SEED])`: begins the sequence of random numbers that belongs to a seed; without one, any.
struct RandomSeed;

fn random_seed(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let seed: Option<u32> = arguments.positional("SEED");
    arguments.complete()?;
    let router = setup.at.router;
    router.seed(seed.map_or_else(|| router.secret(), u64::from));
    Some(Rc::new(RandomSeed))
}

impl Element for RandomSeed {
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.argument("seed", Some(0), "SEED").calm = true;
        handlers.change_argument("seed", Some(0), "SEED");
    }
    fn reconfigure(&self, _: At<'_>, _: &dyn Element) -> bool {
        true
    }
}
