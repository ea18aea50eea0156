//! Numbers that are computed from a frame, and comparisons of them.

use super::error::Fault;
use super::generator::{Condition, Decided, Generator};
use super::program::{Field, Is, Load, Operand, Operation, Operator, SLOTS, Width};
use super::protocol::{Protocol, Selects, Versions};

/// A step of a computation on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Number(u32),
    WireLength,
    /// Takes an index and gives the bytes at the place plus the index.
    Fetch(Load),
    Operate(Operator),
    Negate,
}

/// A condition that a frame must fulfil before anything is read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    Protocol(Protocol),
    FirstFragment,
    /// IPv6 with ICMPv6 as the next header, without the fragment header for which `icmp6` looks.
    Icmp6,
}

/// A computation of a number. It is a list, not a tree, so that no text makes it deep.
#[derive(Clone, Debug)]
pub(super) struct Value {
    steps: Vec<Step>,
    guards: Vec<Guard>,
    /// Whether it is a number that was computed from others.
    folded: bool,
}

impl Value {
    pub(super) fn number(number: u32) -> Self {
        Self::of(vec![Step::Number(number)])
    }

    pub(super) fn wire_length() -> Self {
        Self::of(vec![Step::WireLength])
    }

    fn of(steps: Vec<Step>) -> Self {
        Self { steps, guards: Vec::new(), folded: false }
    }

    fn folded(number: u32) -> Self {
        Self { folded: true, ..Self::number(number) }
    }

    pub(super) fn negated(mut self) -> Self {
        match self.constant() {
            Some(number) => Self::folded(number.wrapping_neg()),
            None => {
                self.steps.push(Step::Negate);
                self
            }
        }
    }

    fn constant(&self) -> Option<u32> {
        match self.steps.as_slice() {
            [Step::Number(number)] => Some(*number),
            _ => None,
        }
    }

    /// Both numbers under an operator.
    ///
    /// As in tcpdump, the conditions for reading the number on the right are lost: `1 + ip[8]` reads from every
    /// frame, `ip[8] + 1` from IPv4 only.
    pub(super) fn operate(mut self, operator: Operator, right: Self) -> Result<Self, Fault> {
        match (operator, right.constant()) {
            (Operator::Divide | Operator::Remainder, Some(0)) => {
                return Err(Fault::new("a divisor other than 0", "write another number"));
            }
            (Operator::ShiftLeft | Operator::ShiftRight, Some(32..))
                if !right.folded || self.constant().is_none() =>
            {
                return Err(Fault::new("a shift by at most 31 bits", "write a number up to 31"));
            }
            _ => {}
        }
        if let (Some(left), Some(right)) = (self.constant(), right.constant())
            && let Some(number) = operator.apply(left, right)
        {
            return Ok(Self::folded(number));
        }
        self.steps.extend(right.steps);
        self.steps.push(Step::Operate(operator));
        Ok(self)
    }

    fn guard(&mut self, guards: impl IntoIterator<Item = Guard>) {
        for guard in guards {
            // A condition that held need not be tested again.
            if !self.guards.contains(&guard) {
                self.guards.push(guard);
            }
        }
    }
}

/// The condition of a comparison of two numbers, which can be negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relation {
    pub(super) is: Is,
    pub(super) negated: bool,
}

impl Generator {
    /// `protocol[index:width]`.
    pub(super) fn fetch(&self, protocol: Protocol, index: Value, width: Width) -> Result<Value, Fault> {
        let mut value = Value::of(index.steps);
        let load = match protocol {
            Protocol::Link => {
                value.guard(index.guards);
                self.layers.in_link(0, width)
            }
            Protocol::Icmp6 => {
                value.guard(index.guards);
                value.guard([Guard::Icmp6]);
                self.layers.behind_ipv6(0, width)
            }
            _ if protocol.is_over_link() => {
                value.guard(index.guards);
                value.guard([Guard::Protocol(protocol)]);
                self.layers.in_network(0, width)
            }
            _ if protocol.is_over_ipv4() => {
                value.guard([Guard::Protocol(Protocol::Ip)]);
                value.guard(index.guards);
                value.guard([Guard::Protocol(protocol), Guard::FirstFragment]);
                self.layers.behind_ipv4(0, width)
            }
            _ => {
                return Err(Fault::new(
                    "a protocol whose bytes can be read",
                    "write for example `ether[14]`, `ip[9]` or `tcp[13]`",
                ));
            }
        };
        value.steps.push(Step::Fetch(load));
        Ok(value)
    }

    /// `left relation right`.
    pub(super) fn relate(&mut self, left: Value, relation: Relation, right: Value) -> Decided {
        let mut both = Value { guards: left.guards, ..Value::of(Vec::new()) };
        both.guard(right.guards);
        let mut guarded = None;
        for guard in both.guards {
            guarded = Some(match guarded {
                None => self.guarded(guard)?,
                Some(before) => self.and(before, |to| to.guarded(guard))?,
            });
        }
        let compare = |to: &mut Self| {
            let condition = to.comparison(&left.steps, relation.is, &right.steps)?;
            Ok(if relation.negated { condition.negated() } else { condition })
        };
        match guarded {
            None => compare(self),
            Some(guarded) => self.and(guarded, compare),
        }
    }

    fn guarded(&mut self, guard: Guard) -> Decided {
        match guard {
            Guard::Protocol(protocol) => self.selects(protocol.selects()),
            Guard::FirstFragment => Ok(self.is_first_fragment()),
            Guard::Icmp6 => {
                let ip = self.selects(Protocol::Ip6.selects())?;
                let (Selects::IpProtocol(number, Versions::Six), next) =
                    (Protocol::Icmp6.selects(), self.layers.in_network(6, Width::One))
                else {
                    return Ok(ip);
                };
                self.and(ip, |to| Ok(to.equal(next, number)))
            }
        }
    }

    fn comparison(&mut self, left: &[Step], is: Is, right: &[Step]) -> Decided {
        // `ip[0] & 0xf != 5` and the like need one operation.
        if let &[Step::Number(value)] = right
            && let Some((load, mask)) = simple(left)
        {
            return Ok(self.test(load, mask, is, value));
        }
        let mut stack = Stack { next: self.reserved_slots, places: Vec::new() };
        for &step in left.iter().chain(right) {
            stack.step(self, step)?;
        }
        match stack.places.as_slice() {
            &[left, right] => Ok(self.compare(left, is, right)),
            _ => Err(Fault::new("two numbers", "write a number on both sides")),
        }
    }

    /// The condition that any bit of `mask` is set.
    pub(super) fn any_bit(&mut self, load: Load, mask: u32) -> Condition {
        self.test(load, mask, Is::Equal, 0).negated()
    }

    /// `len` against a number.
    pub(super) fn wire_length(&mut self, is: Is, value: u32) -> Condition {
        let field = Field::WireLength;
        self.decide(|exits| Operation::Test { field, mask: u32::MAX, is, value, exits })
    }
}

/// The field and mask of steps that only read at a constant index and mask.
fn simple(steps: &[Step]) -> Option<(Load, u32)> {
    match *steps {
        [Step::Number(index), Step::Fetch(load)] => Some((at_index(load, index)?, u32::MAX)),
        [Step::Number(index), Step::Fetch(load), Step::Number(mask), Step::Operate(Operator::And)] => {
            Some((at_index(load, index)?, mask))
        }
        _ => None,
    }
}

/// The load with a constant index added, as tcpdump's optimiser adds it.
///
/// The sum wraps where the place of the bytes is constant, so that `ip[-1]` is the byte before the packet.
fn at_index(load: Load, index: u32) -> Option<Load> {
    let is_constant = load.slot.is_none() && load.header.is_none();
    let offset = if is_constant {
        load.offset.wrapping_add(index)
    } else {
        load.offset.checked_add(index).filter(|_| index <= 0xffff)?
    };
    Some(Load { offset, ..load })
}

/// The places of the numbers of a computation.
struct Stack {
    next: u8,
    places: Vec<Operand>,
}

impl Stack {
    fn step(&mut self, to: &mut Generator, step: Step) -> Result<(), Fault> {
        match step {
            Step::Number(number) => self.places.push(Operand::Number(number)),
            Step::WireLength => {
                let into = self.slot()?;
                to.emit(Operation::Read { field: Field::WireLength, index: Operand::Number(0), into });
            }
            Step::Fetch(mut load) => {
                let mut index = self.pop();
                if let Operand::Number(number) = index
                    && let Some(sum) = at_index(load, number)
                {
                    (load, index) = (sum, Operand::Number(0));
                }
                let into = self.slot()?;
                to.emit(Operation::Read { field: Field::Bytes(load), index, into });
            }
            Step::Operate(operator) => {
                let right = self.pop();
                let left = self.pop();
                let into = self.slot()?;
                to.emit(Operation::Calculate { operator, left, right, into });
            }
            Step::Negate => {
                let right = self.pop();
                let into = self.slot()?;
                let left = Operand::Number(0);
                to.emit(Operation::Calculate { operator: Operator::Subtract, left, right, into });
            }
        }
        Ok(())
    }

    fn pop(&mut self) -> Operand {
        let place = self.places.pop().unwrap_or(Operand::Number(0));
        if let Operand::Slot(_) = place {
            self.next -= 1;
        }
        place
    }

    /// The next free slot, which becomes the place of the number on top.
    fn slot(&mut self) -> Result<u8, Fault> {
        let slot = self.next;
        if usize::from(slot) >= SLOTS {
            return Err(Fault::new(
                format!("at most {SLOTS} numbers at once"),
                "compute less within parentheses on the right",
            ));
        }
        self.next += 1;
        self.places.push(Operand::Slot(slot));
        Ok(slot)
    }
}
