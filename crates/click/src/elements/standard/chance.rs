//! `RandomBitErrors`: bits that change by chance, as on a bad line.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::buffer::Packet;

use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::{Answer, Handlers};
use crate::router::{At, Setup};
use crate::value::Word;

pub(super) const CLASSES: &[Class] = &[Class::new("RandomBitErrors", random_bit_errors).creates_nothing()];

/// The effect of an error on a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Flip,
    Set,
    Clear,
}

const KINDS: [(&str, Kind); 3] = [("flip", Kind::Flip), ("set", Kind::Set), ("clear", Kind::Clear)];

fn kind(word: &str) -> Option<Kind> {
    KINDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind)
}

/// `RandomBitErrors(P [, KIND, ACTIVE])`: changes each bit of each packet with probability P.
///
/// `KIND` is `flip`, `set` (to 1) or `clear` (to 0).
struct RandomBitErrors {
    probability: Cell<f64>,
    kind: Cell<Kind>,
    active: Cell<bool>,
    errors: Cell<u64>,
}

const PROBABILITY: &str = "P must be a number from 0 to 1";
const KIND: &str = "KIND must be 'flip', 'set' or 'clear'";

fn random_bit_errors(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let probability: Option<f64> = arguments.required("P");
    let word: Option<Word> = arguments.positional("KIND");
    let active = arguments.positional("ACTIVE").unwrap_or(true);
    arguments.complete()?;
    let probability = probability?;
    if !(0.0..=1.0).contains(&probability) {
        setup.errors.error(PROBABILITY);
        return None;
    }
    let Some(kind) = word.map_or(Some(Kind::Flip), |word| kind(&word.0)) else {
        setup.errors.error(KIND);
        return None;
    };
    Some(Rc::new(RandomBitErrors {
        probability: Cell::new(probability),
        kind: Cell::new(kind),
        active: Cell::new(active),
        errors: Cell::default(),
    }))
}

impl RandomBitErrors {
    /// Bits that stay before the next one that changes: a geometric distribution.
    fn gap(&self, at: At<'_>) -> usize {
        let probability = self.probability.get();
        if probability >= 1.0 {
            return 0;
        }
        if probability <= 0.0 {
            return usize::MAX;
        }
        // From above 0 to 1.
        let chance = (f64::from(at.router.random()) + 1.0) / 4_294_967_296.0;
        (chance.ln() / (-probability).ln_1p()) as usize
    }
    fn change(&self, value: &str) -> Answer {
        let probability: f64 = value.trim().parse().map_err(|_| PROBABILITY)?;
        if !(0.0..=1.0).contains(&probability) {
            return Err(PROBABILITY.into());
        }
        self.probability.set(probability);
        Ok(String::new())
    }
}

impl Element for RandomBitErrors {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if !self.active.get() {
            return Some(packet);
        }
        let bits = packet.len() * 8;
        let mut place = self.gap(at);
        while place < bits {
            let (byte, bit) = (&mut packet.data_mut()[place / 8], 0x80 >> (place % 8));
            match self.kind.get() {
                Kind::Flip => *byte ^= bit,
                Kind::Set => *byte |= bit,
                Kind::Clear => *byte &= !bit,
            }
            self.errors.set(self.errors.get() + 1);
            place = place.saturating_add(1).saturating_add(self.gap(at));
        }
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("p_bit_error", |this: &Self, _| this.probability.get());
        handlers.write("p_bit_error", |this: &Self, _, value| this.change(value));
        handlers.read("error_kind", |this: &Self, _| {
            KINDS.iter().find(|(_, kind)| *kind == this.kind.get()).map_or("", |(name, _)| name)
        });
        handlers.write("error_kind", |this: &Self, _, value| {
            this.kind.set(kind(value.trim()).ok_or(KIND)?);
            Ok(String::new())
        });
        handlers.flag("active", |this: &Self| &this.active);
        handlers.read("errors", |this: &Self, _| this.errors.get());
    }
}
