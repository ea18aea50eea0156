//! From a rule's matches to the classifier's conditions.

use std::cell::Cell;
use std::sync::Arc;

use netbricks_core::PortNames;
use netbricks_core::tables::classifier::{Condition, Field, Test, ValueSet};

use crate::field::{FieldId, Kind, Layer};
use crate::key::{COMPARED, EXTENSIONS, KeyLayout, compared, compared_behind};
use crate::language::{Domain, SetKind};
use crate::rule::{Atom, Comparison, Match, Value};

/// The most entries of the classifier that one rule can become: a set with so many values.
pub const MOST_ENTRIES: usize = 1 << 16;
/// The most conditions of the opposite of a match.
const MOST_CONDITIONS: usize = 1 << 18;
/// The most values, those of sets within sets too, that are looked at for one rule.
const MOST_VALUES: usize = 1 << 20;
/// Alternatives of a set that are written out where another set is larger.
const FEW: usize = 4;

/// The names that a rule may use beside fields: sets and interfaces.
pub trait Names {
    /// The values of the set with this name.
    fn set(&self, name: &str) -> Option<&[Value]>;
    /// The number from 1 of the port with this name.
    fn port(&self, name: &str) -> Option<u16>;
    /// The fact that makes the port of departure unknown while rules match, where there is one.
    fn unknown_out(&self) -> Option<String> {
        None
    }
}

/// The fact for [`Names::unknown_out`] about a function among these ports.
pub fn unknown_out(ports: &PortNames) -> Option<String> {
    let several = ports.several_egress()?;
    Some(format!("its packets may leave by {}", several.join(" or ")))
}

/// A rule's matches as the classifier takes them.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Conjunctions, of which one holds.
    pub entries: Vec<Vec<Condition>>,
    /// The fields whose values they test.
    pub fields: Vec<FieldId>,
    /// Whether they test which TCP options there are.
    pub options: bool,
    /// Whether they test which extension headers there are.
    pub extensions: bool,
}

/// Why a rule cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// No set has this name.
    #[error("there is no set `@{0}`: define it first, as `define @{0} {{10.0.0.0/8}}`")]
    NoSet(String),
    /// Sets contain each other.
    #[error("the set `@{0}` contains itself")]
    Cycle(String),
    /// No port has this name.
    #[error("there is no port `{0}` here")]
    NoPort(String),
    /// The port of departure is not known while rules match.
    #[error(
        "`out` is not known here, as {0}: put the function into a chain for each port, behind what chooses one"
    )]
    UnknownOut(String),
    /// A value is not of the field's kind.
    #[error("`{field}` cannot have the value {value}")]
    Value {
        /// The field.
        field: String,
        /// The value, as it was understood.
        value: String,
    },
    /// More bytes than are compared.
    #[error("`{field}` is compared by its first {most} bytes at most, found {found}")]
    TooManyBytes {
        /// The field.
        field: String,
        /// Bytes that are compared.
        most: usize,
        /// Bytes of the value.
        found: usize,
    },
    /// The sets of the rule have too many combinations.
    #[error("the rule's sets have {0} combinations: {MOST_ENTRIES} are possible, split the rule")]
    TooMany(usize),
}

/// One match: conjunctions of which one holds, and the same as one condition where there is one.
struct Compiled {
    any: Vec<Vec<Condition>>,
    within: Option<Condition>,
}

/// Compiles matches that must all hold.
///
/// # Errors
/// As [`CompileError`] lists them.
pub fn compile(layout: &KeyLayout, matches: &[Match], names: &dyn Names) -> Result<Conditions, CompileError> {
    let mut compiler = Compiler {
        layout,
        names,
        fields: Vec::new(),
        options: false,
        extensions: false,
        layers: 0,
        looked: Cell::new(0),
    };
    let mut all: Vec<Compiled> = Vec::new();
    for given in matches {
        all.push(compiler.of_match(given)?);
    }
    let Compiler { fields, options, extensions, layers, .. } = compiler;
    let mut always = Vec::new();
    if layers & !Layer::Frame.bit() != 0 {
        let mask = u128::from(layers & !Layer::Frame.bit());
        always.push(masked(layout.layers(), mask, mask));
    }
    // The largest set becomes entries of its own; of the others the classifier asks whether they have the value.
    let largest = all.iter().map(|one| one.any.len()).max().unwrap_or(0);
    let mut expanded = false;
    let mut entries = vec![always];
    for one in all {
        let is_largest = !expanded && one.any.len() == largest;
        expanded |= is_largest;
        let any = match one.within {
            Some(within) if !is_largest && one.any.len() > FEW => vec![vec![within]],
            _ => one.any,
        };
        let count = entries.len().saturating_mul(any.len());
        if count > MOST_ENTRIES {
            return Err(CompileError::TooMany(count));
        }
        entries = product(&entries, &any);
    }
    Ok(Conditions { entries, fields, options, extensions })
}

fn product(left: &[Vec<Condition>], right: &[Vec<Condition>]) -> Vec<Vec<Condition>> {
    let both = |one: &Vec<Condition>, other: &Vec<Condition>| one.iter().chain(other).cloned().collect();
    left.iter().flat_map(|one| right.iter().map(move |other| both(one, other))).collect()
}

fn masked(field: Field, value: u128, mask: u128) -> Condition {
    Condition { field, test: Test::Masked { value, mask }, negated: false }
}

fn range(field: Field, low: u128, high: u128) -> Condition {
    Condition { field, test: Test::Range { low, high }, negated: false }
}

/// All `bits` low bits.
fn ones(bits: u16) -> u128 {
    if bits == 0 { 0 } else { u128::MAX >> (128 - u32::from(bits.min(128))) }
}

/// The conjunctions of which one holds where none of these does.
///
/// # Errors
/// When there are too many: each of several conditions that hold together doubles them or more.
fn negate(any: &[Vec<Condition>]) -> Result<Vec<Vec<Condition>>, CompileError> {
    let mut all: Vec<Vec<Condition>> = vec![Vec::new()];
    for (done, conjunction) in any.iter().enumerate() {
        let conditions = all.len().saturating_mul(conjunction.len()).saturating_mul(done + 1);
        if conditions > MOST_CONDITIONS {
            return Err(CompileError::TooMany(conditions));
        }
        let one_fails = conjunction
            .iter()
            .map(|condition| Condition { negated: !condition.negated, ..condition.clone() });
        all = match &one_fails.collect::<Vec<_>>()[..] {
            // Added in place: a copy for each would take the square of their number.
            [only] => {
                all.iter_mut().for_each(|one| one.push(only.clone()));
                all
            }
            several => product(&all, &several.iter().map(|one| vec![one.clone()]).collect::<Vec<_>>()),
        };
    }
    Ok(all)
}

struct Compiler<'c> {
    layout: &'c KeyLayout,
    names: &'c dyn Names,
    fields: Vec<FieldId>,
    options: bool,
    extensions: bool,
    layers: u32,
    /// Values that were looked at.
    looked: Cell<usize>,
}

impl Compiler<'_> {
    /// Counts a value that is looked at. Sets within sets multiply.
    fn look(&self) -> Result<(), CompileError> {
        self.looked.set(self.looked.get() + 1);
        if self.looked.get() > MOST_VALUES { Err(CompileError::TooMany(self.looked.get())) } else { Ok(()) }
    }

    fn of_match(&mut self, given: &Match) -> Result<Compiled, CompileError> {
        let info = given.field.info();
        if info.kind == Kind::Out
            && let Some(fact) = self.names.unknown_out()
        {
            return Err(CompileError::UnknownOut(fact));
        }
        self.layers |= info.layer.implied();
        let present = self.present(given.field);
        let (holds, requires_presence) = match &given.test {
            None => (Compiled { any: self.bare(given.field), within: None }, false),
            Some((comparison, value)) => {
                let positive = self.test(given.field, *comparison, value)?;
                if *comparison == Comparison::NotEqual {
                    (inverse(positive)?, true)
                } else {
                    (positive, false)
                }
            }
        };
        // An option that is not equal to a value is there.
        let holds = match present {
            Some(present) if requires_presence => {
                Compiled { any: product(&[vec![present]], &holds.any), within: None }
            }
            _ => holds,
        };
        if given.is_negated { inverse(holds) } else { Ok(holds) }
    }

    /// The condition that an option is there; none for other fields.
    fn present(&mut self, field: FieldId) -> Option<Condition> {
        let kind = match field.info().kind {
            Kind::NumberOption { kind, .. } | Kind::BytesOption { kind } => kind,
            _ => return None,
        };
        self.options = true;
        let (field, bit) = self.layout.kind(kind);
        Some(masked(field, bit, bit))
    }

    /// A field without a value.
    fn bare(&mut self, field: FieldId) -> Vec<Vec<Condition>> {
        let info = field.info();
        match info.kind {
            Kind::Code { .. } => match self.code(field) {
                Some((place, value, mask)) => vec![vec![masked(place, value, mask)]],
                None => vec![Vec::new()],
            },
            Kind::Bits { bits: 1, .. } => {
                self.fields.push(field);
                self.layout.field(field).map(|place| vec![masked(place, 1, 1)]).into_iter().collect()
            }
            Kind::ExtensionHeader(number) => vec![self.extension(number)],
            Kind::NumberOption { .. } | Kind::BytesOption { .. } => {
                vec![self.present(field).into_iter().collect()]
            }
            Kind::AnyOption => {
                self.options = true;
                let there = |place| Condition { negated: true, ..masked(place, 0, u128::MAX) };
                self.layout.kinds().map(|place| vec![there(place)]).into()
            }
            // The layer alone.
            _ => vec![Vec::new()],
        }
    }

    fn extension(&mut self, number: u8) -> Vec<Condition> {
        self.extensions = true;
        let place = EXTENSIONS.iter().position(|known| *known == number).unwrap_or(0);
        let bit = 1u128 << place;
        vec![masked(self.layout.extensions(), bit, bit)]
    }

    /// The field of which this one is a value, with the value and the mask.
    fn code(&mut self, field: FieldId) -> Option<(Field, u128, u128)> {
        let info = field.info();
        let Kind::Code { bits, value, .. } = info.kind else { return None };
        let whole = field.whole();
        self.fields.push(whole);
        Some((self.layout.field(whole)?, value.into(), ones(bits)))
    }

    fn test(
        &mut self,
        field: FieldId,
        comparison: Comparison,
        value: &Value,
    ) -> Result<Compiled, CompileError> {
        let info = field.info();
        match info.kind {
            Kind::Code { .. } | Kind::ExtensionHeader(_) | Kind::All => {
                let is = self.bare(field);
                let is_one = match value {
                    Value::Atom(Atom::Number(number)) => *number != 0,
                    other => return Err(wrong(field, &format!("{other:?}"))),
                };
                let any = if is_one { is } else { negate(&is)? };
                return Ok(Compiled { any, within: None });
            }
            Kind::AnyOption => return self.kinds(field, comparison, value),
            Kind::Payload | Kind::BytesOption { .. } => return self.bytes(field, value, 0),
            _ => {}
        }
        self.fields.push(field);
        let Some(place) = self.layout.field(field) else { return Err(wrong(field, "any")) };
        let bits = info.kind.bits();
        let (there, most) = match info.kind {
            Kind::NumberOption { .. } => (1u128 << bits, ones(bits)),
            _ => (0, ones(bits)),
        };
        // `<=` and so on, as a range.
        let bound = |value: &Value| match value {
            Value::Atom(atom) => self.number(field, atom),
            other => Err(wrong(field, &format!("{other:?}"))),
        };
        let between = |low: u128, high: u128| {
            let any =
                if low <= high { vec![vec![range(place, there | low, there | high)]] } else { Vec::new() };
            Ok(Compiled { any, within: None })
        };
        match comparison {
            Comparison::Less => match bound(value)?.checked_sub(1) {
                Some(high) => between(0, high),
                None => Ok(Compiled { any: Vec::new(), within: None }),
            },
            Comparison::AtMost => between(0, bound(value)?),
            Comparison::Greater => match bound(value)? {
                number if number >= most => Ok(Compiled { any: Vec::new(), within: None }),
                number => between(number + 1, most),
            },
            Comparison::AtLeast => between(bound(value)?, most),
            Comparison::Equal | Comparison::NotEqual => {
                let mut tests = Vec::new();
                self.tests(field, (there, bits), value, 0, &mut tests)?;
                let any = tests.iter().map(|test| vec![condition(place, test.clone())]).collect();
                let within =
                    as_set(&tests, ones(bits) | there).map(|set| condition(place, Test::Within(set)));
                Ok(Compiled { any, within })
            }
        }
    }

    /// The tests of which one holds where the field has this value.
    fn tests(
        &self,
        field: FieldId,
        (there, bits): (u128, u16),
        value: &Value,
        depth: usize,
        tests: &mut Vec<Test>,
    ) -> Result<(), CompileError> {
        let most = ones(bits);
        self.look()?;
        match value {
            // A set may have values that no packet has in this field.
            Value::Atom(atom) => {
                let number = self.number(field, atom)?;
                if number <= most {
                    tests.push(Test::Masked { value: there | number, mask: most | there });
                }
            }
            Value::Range(low, high) => {
                let (low, high) = (self.number(field, low)?, self.number(field, high)?);
                if low <= most {
                    tests.push(Test::Range { low: there | low, high: there | high.min(most) });
                }
            }
            Value::Prefix(atom, len) => {
                let bits = u32::from(bits);
                let mask = ones(bits as u16) & !ones((bits - u32::from(*len).min(bits)) as u16) | there;
                tests.push(Test::Masked { value: (there | self.number(field, atom)?) & mask, mask });
            }
            Value::Masked(atom, mask) => {
                let mask = self.number(field, mask)?;
                let value = self.number(field, atom)? & mask;
                if value <= most {
                    tests.push(Test::Masked { value: there | value, mask: mask & most | there });
                }
            }
            Value::Set(values) => {
                for value in values {
                    self.tests(field, (there, bits), value, depth, tests)?;
                }
            }
            Value::Named(name) => {
                for value in self.named(name, depth)? {
                    self.tests(field, (there, bits), value, depth + 1, tests)?;
                }
            }
        }
        Ok(())
    }

    /// The values of a named set, which may name others but not itself.
    fn named(&self, name: &str, depth: usize) -> Result<&[Value], CompileError> {
        if depth > 16 {
            return Err(CompileError::Cycle(name.to_owned()));
        }
        self.names.set(name).ok_or_else(|| CompileError::NoSet(name.to_owned()))
    }

    /// A test of the bytes that a payload begins with, or that an option has.
    fn bytes(&mut self, field: FieldId, value: &Value, depth: usize) -> Result<Compiled, CompileError> {
        let mut any: Vec<Vec<Condition>> = Vec::new();
        self.look()?;
        match value {
            Value::Atom(Atom::Bytes(bytes)) => {
                any.push(self.these_bytes(field, bytes, &vec![0xff; bytes.len()])?);
            }
            Value::Masked(Atom::Bytes(bytes), Atom::Bytes(mask)) => {
                any.push(self.these_bytes(field, bytes, mask)?);
            }
            Value::Set(values) => {
                for value in values {
                    any.extend(self.bytes(field, value, depth)?.any);
                }
            }
            Value::Named(name) => {
                for value in self.named(name, depth)?.to_vec() {
                    any.extend(self.bytes(field, &value, depth + 1)?.any);
                }
            }
            other => return Err(wrong(field, &format!("{other:?}"))),
        }
        Ok(Compiled { any, within: None })
    }

    /// A test of bytes under a mask of as many.
    fn these_bytes(
        &mut self,
        field: FieldId,
        bytes: &[u8],
        mask: &[u8],
    ) -> Result<Vec<Condition>, CompileError> {
        let found = bytes.len().max(mask.len());
        if found > COMPARED {
            return Err(CompileError::TooManyBytes {
                field: field.info().name.clone(),
                most: COMPARED,
                found,
            });
        }
        if bytes.len() != mask.len() {
            return Err(wrong(field, "of a mask that is not as long"));
        }
        self.fields.push(field);
        let Some(place) = self.layout.field(field) else { return Err(wrong(field, "any")) };
        let length = u128::MAX << 120;
        let (value, bits) = (compared(bytes), compared(mask) & !length);
        let mut conditions = match field.info().kind.is_option() {
            true => vec![masked(place, value, length | bits)],
            // At least as long, and beginning with them. Behind the last byte of a shorter one are zeros.
            false => {
                let is_long = bytes.iter().zip(mask).next_back().is_some_and(|(byte, mask)| byte & mask != 0);
                let long = (!is_long).then(|| range(place, value & length, u128::MAX));
                long.into_iter().chain((bits != 0).then(|| masked(place, value, bits))).collect()
            }
        };
        let behind = self.layout.behind(field).iter().zip(compared_behind(bytes)).zip(compared_behind(mask));
        conditions.extend(
            behind.filter(|(_, mask)| *mask != 0).map(|((place, value), mask)| masked(*place, value, mask)),
        );
        Ok(conditions)
    }

    /// A test of the kinds of TCP options that there are.
    fn kinds(
        &mut self,
        field: FieldId,
        comparison: Comparison,
        value: &Value,
    ) -> Result<Compiled, CompileError> {
        self.options = true;
        let mut tests = Vec::new();
        match comparison {
            Comparison::Equal | Comparison::NotEqual => self.tests(field, (0, 8), value, 0, &mut tests)?,
            _ => return Err(wrong(field, "a comparison")),
        }
        let holds = |kind: u8| {
            tests.iter().any(|test| match test {
                Test::Masked { value, mask } => u128::from(kind) & mask == *value,
                Test::Range { low, high } => (*low..=*high).contains(&kind.into()),
                Test::Within(_) => false,
            })
        };
        let there = |kind: u8| {
            let (place, bit) = self.layout.kind(kind);
            vec![masked(place, bit, bit)]
        };
        let any = (0..=u8::MAX).filter(|kind| holds(*kind)).map(there).collect();
        Ok(Compiled { any, within: None })
    }

    fn number(&self, field: FieldId, atom: &Atom) -> Result<u128, CompileError> {
        match atom {
            Atom::Interface(name) => {
                self.names.port(name).map(u128::from).ok_or_else(|| CompileError::NoPort(name.clone()))
            }
            // A set may have got values of another kind.
            other if !Domain::of(field).is_some_and(|domain| domain.takes(SetKind::of(other))) => {
                Err(wrong(field, &format!("{other:?}")))
            }
            other => as_number(other).ok_or_else(|| wrong(field, &format!("{other:?}"))),
        }
    }
}

/// The values of a field, as ranges: for `map`.
///
/// # Errors
/// As [`CompileError`] lists them, and for values that are no range.
pub(crate) fn intervals(
    field: FieldId,
    value: &Value,
    names: &dyn Names,
) -> Result<Vec<(u128, u128)>, CompileError> {
    let layout = KeyLayout::new();
    let compiler = Compiler {
        layout: &layout,
        names,
        fields: Vec::new(),
        options: false,
        extensions: false,
        layers: 0,
        looked: Cell::new(0),
    };
    let mut tests = Vec::new();
    let bits = field.info().kind.bits();
    compiler.tests(field, (0, bits), value, 0, &mut tests)?;
    let range = |test: &Test| match test {
        Test::Range { low, high } => Ok((*low, *high)),
        Test::Masked { value, mask } => {
            let free = ones(bits) & !mask;
            let is_prefix = free & free.wrapping_add(1) == 0;
            if is_prefix { Ok((*value, *value | free)) } else { Err(wrong(field, "with a mask")) }
        }
        Test::Within(_) => Err(wrong(field, "of this kind")),
    };
    tests.iter().map(range).collect()
}

/// The opposite of a match.
fn inverse(of: Compiled) -> Result<Compiled, CompileError> {
    // As one condition, a set of a thousand values stays short.
    let within = of.within.map(|within| Condition { negated: !within.negated, ..within });
    match within {
        Some(within) if of.any.len() > FEW => Ok(Compiled { any: vec![vec![within]], within: None }),
        _ => Ok(Compiled { any: negate(&of.any)?, within: None }),
    }
}

/// The number of an atom that has one without names.
pub(crate) fn as_number(atom: &Atom) -> Option<u128> {
    match atom {
        Atom::Number(number) => Some(*number),
        Atom::Ipv4(address) => Some(address.to_bits().into()),
        Atom::Ipv6(address) => Some(address.to_bits()),
        Atom::Mac(address) => {
            Some(address.octets().iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
        }
        Atom::Bytes(_) | Atom::Interface(_) => None,
    }
}

fn condition(field: Field, test: Test) -> Condition {
    Condition { field, test, negated: false }
}

fn wrong(field: FieldId, value: &str) -> CompileError {
    CompileError::Value { field: field.info().name.clone(), value: value.to_owned() }
}

/// The values of these tests as intervals, if each is one.
fn as_set(tests: &[Test], all: u128) -> Option<Arc<ValueSet>> {
    if tests.len() <= FEW {
        return None;
    }
    let interval = |test: &Test| match test {
        Test::Range { low, high } => Some((*low, *high)),
        Test::Masked { value, mask } => {
            let free = all & !mask;
            // Low bits alone are free.
            (free & free.wrapping_add(1) == 0).then_some((*value, value | free))
        }
        Test::Within(_) => None,
    };
    let intervals: Option<Vec<(u128, u128)>> = tests.iter().map(interval).collect();
    Some(Arc::new(ValueSet::new(intervals?)))
}
