//! The present parameters of the meters, which all workers share and handlers change.

use netbricks_core::consistency::{Access, Bounded, Contents};
use netbricks_core::sealed::{open, seal};
use netbricks_core::tables::Changing;
use netbricks_core::units::Bytes;
use netbricks_core::{Declared, Handler, Worker, nearest};

use super::meter::{Algorithm, Meter};
use crate::tokens::{LARGEST, TokenRate};

/// The meter's parameters as declared state. `first` are those of the configuration.
pub(super) struct Parameters {
    meter: Meter,
    first: First,
}

/// The meter of the configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct First(pub(super) Meter);

impl Changing for Parameters {
    type Change = Meter;
    type Outcome = ();
    fn apply(&mut self, meter: &Meter) {
        self.meter = *meter;
    }
}

impl Contents for Parameters {
    type Config = First;
    /// Other parameters in the file count more than changes by handlers.
    const IS_CONFIGURED: bool = true;
    fn make(first: &First) -> Result<Self, String> {
        Ok(Self { meter: first.0, first: *first })
    }
    fn least() -> Self {
        let rate = TokenRate::bits(1);
        let algorithm = Algorithm::default();
        let meter = Meter { algorithm, cir: rate, cbs: 1, other_rate: rate, other_size: 0 };
        Self { meter, first: First(meter) }
    }
}

const FORMAT: &str = "policer-parameters-1";
const SEED: u64 = 0x706f_6c69_6365_7201;

/// The format is lines: the configuration's parameters, the present ones as changes, and a checksum.
impl Declared for Parameters {
    fn export(&self) -> Vec<u8> {
        let changes = NAMES.iter().filter_map(|name| Some(format!("{name} {}\n", value(&self.meter, name)?)));
        seal(format!("{FORMAT} {}\n{}", self.first.0, changes.collect::<String>()), SEED)
    }
    /// Takes over changes made by handlers, unless the configuration has named other parameters since.
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        let (first, lines) = open(bytes, SEED, FORMAT, "parameters")?;
        if first != self.first.0.to_string() {
            return Ok(());
        }
        let mut meter = self.meter;
        for line in lines.lines() {
            meter = changed(&meter, line)?;
        }
        self.meter = check(meter)?;
        Ok(())
    }
    fn is_written(&self) -> bool {
        true
    }
    fn occupancy(&self) -> (u64, u64) {
        (1, 1)
    }
}

const NAMES: [&str; 6] = ["cir", "cbs", "ebs", "pir", "pbs", "eir"];

/// The value of a parameter as its change is written; `None` where this algorithm has no such parameter.
fn value(meter: &Meter, name: &str) -> Option<String> {
    use Algorithm::{Excess, SingleRate, TwoRate};
    match (name, meter.algorithm) {
        ("cir", _) => Some(meter.cir.to_string()),
        ("cbs", _) => Some(meter.cbs.to_string()),
        ("ebs", SingleRate | Excess) | ("pbs", TwoRate) => Some(meter.other_size.to_string()),
        ("pir", TwoRate) | ("eir", Excess) => Some(meter.other_rate.to_string()),
        _ => None,
    }
}

/// The meter with a change, such as `cir 10 Mbit/s`, which is not checked yet.
fn changed(meter: &Meter, change: &str) -> Result<Meter, String> {
    let expected = || {
        let names: Vec<&str> = NAMES.into_iter().filter(|name| value(meter, name).is_some()).collect();
        format!("one of {} and its value, as in `cir 10 Mbit/s`", names.join(", "))
    };
    let change = change.trim();
    let Some((name, text)) = change.split_once(char::is_whitespace) else {
        return Err(format!("expected {}, found `{change}`", expected()));
    };
    if value(meter, name).is_none() {
        let near = nearest(name, NAMES.into_iter().filter(|name| value(meter, name).is_some()));
        let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        return Err(format!("expected {}, found `{name}`{hint}", expected()));
    }
    let mut next = *meter;
    if name.ends_with('r') {
        let rate: TokenRate = text.trim().parse()?;
        if rate.counted() != meter.cir.counted() {
            let counted = meter.cir.counted().name();
            return Err(format!("the meters count {counted}, found `{}`: give a rate of those", text.trim()));
        }
        let place = if name == "cir" { &mut next.cir } else { &mut next.other_rate };
        *place = rate;
    } else {
        let size: Bytes =
            text.trim().parse().map_err(|error: netbricks_core::units::UnitError| error.to_string())?;
        let place = if name == "cbs" { &mut next.cbs } else { &mut next.other_size };
        *place = size.bytes();
    }
    if next.algorithm == Algorithm::SingleRate {
        next.other_rate = next.cir;
    }
    Ok(next)
}

/// The meter, if its parameters go together.
pub(super) fn check(meter: Meter) -> Result<Meter, String> {
    let Meter { algorithm, cir, cbs, other_rate, other_size } = meter;
    if cir.counted() != other_rate.counted() {
        return Err(format!(
            "CIR is {cir} and the other rate {other_rate}: give both in bits or both in packets"
        ));
    }
    if algorithm == Algorithm::TwoRate && other_rate.per_second() < cir.per_second() {
        return Err(format!("PIR is {other_rate}, less than CIR, {cir}: the peak rate is the higher one"));
    }
    if cbs > LARGEST || other_size > LARGEST {
        return Err(format!("a burst size is at most {LARGEST}, found {}", cbs.max(other_size)));
    }
    match algorithm {
        Algorithm::TwoRate if cbs == 0 || other_size == 0 => {
            Err("CBS and PBS must be greater than 0: else no packet conforms".into())
        }
        _ if cbs == 0 && other_size == 0 => Err("CBS and EBS are 0: else than 0 must be one of them".into()),
        _ => Ok(meter),
    }
}

/// Declares the handlers that show and change the parameters.
pub(super) fn declare(parameters: &Bounded<Parameters>, worker: &Worker) {
    let shown = Handler::read("parameters", "The rates and burst sizes of the meters.");
    worker.handler_of(parameters, shown, |parameters, _| Ok(parameters.read(|now| now.meter.to_string())));
    let set = "Changes a rate or a burst size, from each worker's next packet on; tokens beyond a new size are lost.";
    worker.handler_of(
        parameters,
        Handler::write("set", set).argument("PARAMETER VALUE"),
        |parameters, argument| {
            let meter = check(changed(&parameters.read(|now| now.meter), argument)?)?;
            parameters.update(meter).map_err(|cannot| cannot.to_string())?;
            Ok("done".into())
        },
    );
}

/// The parameters as one worker's packets see them: a copy that is renewed after each change.
#[derive(Clone)]
pub(super) struct Current {
    parameters: Bounded<Parameters>,
    published: u64,
    meter: Meter,
    refill: u64,
}

impl Current {
    pub(super) fn of(parameters: Bounded<Parameters>) -> Self {
        let published = parameters.published();
        let meter = parameters.read(|now| now.meter);
        Self { parameters, published, meter, refill: meter.refill() }
    }

    /// The meter, renewed if need be.
    #[inline(always)]
    pub(super) fn meter(&mut self) -> &Meter {
        let published = self.parameters.published();
        if published != self.published {
            std::hint::cold_path();
            // The number was read first: the parameters that are read after it are at least as new.
            self.published = published;
            self.meter = self.parameters.read(|now| now.meter);
            self.refill = self.meter.refill();
        }
        &self.meter
    }

    /// The time (ns) after which empty buckets are full.
    #[inline(always)]
    pub(super) fn refill(&self) -> u64 {
        self.refill
    }
}
