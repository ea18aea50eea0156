//! The program under construction: conditions whose exits are not yet known.

use super::error::Fault;
use super::layers::Layers;
use super::program::{ACCEPT, Exits, Field, Is, Load, Operand, Operation, REJECT, SLOTS};

/// Operations that a program has at most.
const MOST_OPERATIONS: usize = 16_384;

/// An exit of an operation that leads nowhere yet.
#[derive(Clone, Copy, Debug)]
struct Exit {
    operation: usize,
    yes: bool,
}

/// Operations that decide, with the exits that they take if the condition holds and if it does not.
///
/// The operations of a condition follow each other, so that the next operation comes after all of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Condition {
    yes: Vec<Exit>,
    no: Vec<Exit>,
}

impl Condition {
    /// The opposite condition.
    pub(super) fn negated(self) -> Self {
        Self { yes: self.no, no: self.yes }
    }

    /// Drops the exit `no` of an operation that never takes it.
    pub(super) fn forget_no(&mut self) {
        self.no.clear();
    }
}

pub(super) type Decided = Result<Condition, Fault>;

/// Emits operations for a stack of layers.
#[derive(Debug, Default)]
pub(super) struct Generator {
    operations: Vec<Operation>,
    pub(super) layers: Layers,
    /// Slots that hold the places of layers for the rest of the program.
    pub(super) reserved_slots: u8,
}

impl Generator {
    /// Adds an operation without exits.
    pub(super) fn emit(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    /// Adds an operation that decides; it gets both exits.
    pub(super) fn decide(&mut self, operation: impl FnOnce(Exits) -> Operation) -> Condition {
        let index = self.operations.len();
        self.operations.push(operation(Exits { yes: REJECT, no: REJECT }));
        Condition {
            yes: vec![Exit { operation: index, yes: true }],
            no: vec![Exit { operation: index, yes: false }],
        }
    }

    /// Adds a condition that always holds.
    pub(super) fn always(&mut self) -> Condition {
        let condition = self.decide(|exits| Operation::Jump { exits });
        Condition { no: Vec::new(), ..condition }
    }

    /// Compares the bits of `mask` of some bytes with a number.
    ///
    /// A comparison of no bits loads nothing, as in tcpdump's optimised programs.
    pub(super) fn test(&mut self, load: Load, mask: u32, is: Is, value: u32) -> Condition {
        if mask == 0 && load.slot.is_none() {
            let always = self.always();
            return if is.holds(0, value) { always } else { always.negated() };
        }
        let field = Field::Bytes(load);
        self.decide(|exits| Operation::Test { field, mask, is, value, exits })
    }

    pub(super) fn equal(&mut self, load: Load, value: u32) -> Condition {
        self.test(load, u32::MAX, Is::Equal, value)
    }

    pub(super) fn compare(&mut self, left: Operand, is: Is, right: Operand) -> Condition {
        self.decide(|exits| Operation::Compare { left, is, right, exits })
    }

    /// Makes the next operation the one that follows if the condition holds.
    pub(super) fn begin_and(&mut self, first: &mut Condition) {
        self.lead_here(std::mem::take(&mut first.yes));
    }

    /// Makes the next operation the one that follows if the condition does not hold.
    pub(super) fn begin_or(&mut self, first: &mut Condition) {
        self.lead_here(std::mem::take(&mut first.no));
    }

    /// Both conditions, of which the second was made after [`begin_and`](Self::begin_and).
    pub(super) fn end_and(mut first: Condition, second: Condition) -> Condition {
        first.no.extend(second.no);
        Condition { yes: second.yes, no: first.no }
    }

    /// One of two conditions, of which the second was made after [`begin_or`](Self::begin_or).
    pub(super) fn end_or(mut first: Condition, second: Condition) -> Condition {
        first.yes.extend(second.yes);
        Condition { yes: first.yes, no: second.no }
    }

    /// Both conditions; the second is made, and evaluated, only after the first.
    pub(super) fn and(&mut self, mut first: Condition, second: impl FnOnce(&mut Self) -> Decided) -> Decided {
        self.begin_and(&mut first);
        Ok(Self::end_and(first, second(self)?))
    }

    /// One of two conditions; the second is made, and evaluated, only after the first.
    pub(super) fn or(&mut self, mut first: Condition, second: impl FnOnce(&mut Self) -> Decided) -> Decided {
        self.begin_or(&mut first);
        Ok(Self::end_or(first, second(self)?))
    }

    /// The first condition that holds of several.
    pub(super) fn any<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut make: impl FnMut(&mut Self, T) -> Decided,
    ) -> Decided {
        let mut all = None;
        for item in items {
            all = Some(match all {
                None => make(self, item)?,
                Some(before) => self.or(before, |generator| make(generator, item))?,
            });
        }
        Ok(all.unwrap_or_default())
    }

    fn lead_here(&mut self, exits: Vec<Exit>) {
        let here = u16::try_from(self.operations.len()).unwrap_or(REJECT);
        self.lead(exits, here);
    }

    fn lead(&mut self, leading: Vec<Exit>, target: u16) {
        for exit in leading {
            let Some(operation) = self.operations.get_mut(exit.operation) else { continue };
            let (Operation::Test { exits, .. }
            | Operation::Compare { exits, .. }
            | Operation::Jump { exits }
            | Operation::Geneve { exits, .. }
            | Operation::Chain { exits, .. }) = operation
            else {
                continue;
            };
            *(if exit.yes { &mut exits.yes } else { &mut exits.no }) = target;
        }
    }

    /// Takes slots for the rest of the program, and gives the first.
    pub(super) fn reserve_slots(&mut self, count: u8) -> Result<u8, Fault> {
        let first = self.reserved_slots;
        if usize::from(first + count) > SLOTS {
            return Err(Fault::new("at most five `geneve`", "remove the inner `geneve`"));
        }
        self.reserved_slots = first + count;
        Ok(first)
    }

    /// Fails once the program is too long.
    pub(super) fn check_length(&self) -> Result<(), Fault> {
        if self.operations.len() <= MOST_OPERATIONS {
            return Ok(());
        }
        Err(Fault::new(
            format!("a filter of at most {MOST_OPERATIONS} operations"),
            "use `portrange` or `net` in the place of single ports and hosts",
        ))
    }

    /// The finished program: frames for which the condition holds are accepted.
    pub(super) fn finish(mut self, condition: Condition) -> Box<[Operation]> {
        self.lead(condition.yes, ACCEPT);
        self.lead(condition.no, REJECT);
        self.operations.into_boxed_slice()
    }
}
