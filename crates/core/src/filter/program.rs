//! The compiled form of a filter: operations with forward jumps over a frame, and their evaluation.
//!
//! The semantics are those of the classic BPF machine (McCanne and Jacobson, "The BSD Packet Filter", 1993).
//! Numbers are unsigned, have 32 bits and wrap; fields are in network byte order. A load outside the frame
//! and a division by zero reject the frame, wherever they stand in the expression.

/// Numbers that a program can hold at once. BPF has as many.
pub(super) const SLOTS: usize = 16;

/// The exit that accepts the frame.
pub(super) const ACCEPT: u16 = u16::MAX;
/// The exit that rejects the frame.
pub(super) const REJECT: u16 = u16::MAX - 1;

/// Headers that `protochain` follows at most.
///
/// An authentication header's length counts from the start of the chain, as tcpdump computes it, so that a
/// chain can lead back to itself.
const MOST_HEADERS: u32 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    One,
    Two,
    Four,
}

/// Some bytes of the frame: at `offset`, plus a slot's number, plus the length of an IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// The slot with the number of bytes before the layer, where headers of variable length precede it.
    pub(super) slot: Option<u8>,
    /// Where an IPv4 header starts, relative to the slot, if its length is to be added.
    pub(super) header: Option<u32>,
    pub(super) offset: u32,
    pub(super) width: Width,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Bytes(Load),
    /// The bytes that the frame had on the wire.
    WireLength,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Is {
    Equal,
    Greater,
    GreaterOrEqual,
}

impl Is {
    pub(super) fn holds(self, left: u32, right: u32) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

impl Operator {
    /// The result, or `None` for a division by zero.
    pub(super) fn apply(self, left: u32, right: u32) -> Option<u32> {
        Some(match self {
            Self::Add => left.wrapping_add(right),
            Self::Subtract => left.wrapping_sub(right),
            Self::Multiply => left.wrapping_mul(right),
            Self::Divide => left.checked_div(right)?,
            Self::Remainder => left.checked_rem(right)?,
            Self::And => left & right,
            Self::Or => left | right,
            Self::Xor => left ^ right,
            Self::ShiftLeft => left.checked_shl(right).unwrap_or(0),
            Self::ShiftRight => left.checked_shr(right).unwrap_or(0),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Slot(u8),
    Number(u32),
}

/// The operations that follow, by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exits {
    pub(super) yes: u16,
    pub(super) no: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Compares a field, of which only the bits of `mask` count.
    Test {
        field: Field,
        mask: u32,
        is: Is,
        value: u32,
        exits: Exits,
    },
    /// Compares two numbers.
    Compare {
        left: Operand,
        is: Is,
        right: Operand,
        exits: Exits,
    },
    /// Goes to the exit `yes`.
    Jump {
        exits: Exits,
    },
    /// Reads a field; the number `index` is added to the place of bytes.
    Read {
        field: Field,
        index: Operand,
        into: u8,
    },
    Calculate {
        operator: Operator,
        left: Operand,
        right: Operand,
        into: u8,
    },
    /// Finds what a Geneve header at `at` carries, and fills three slots from `into`.
    ///
    /// They get the places of the inner EtherType, of the inner Ethernet header and of the inner payload.
    Geneve {
        at: Load,
        into: u8,
        exits: Exits,
    },
    /// Whether the chain of headers of an IP header at `at` has the protocol `value`.
    Chain {
        at: Load,
        version: Version,
        value: u32,
        exits: Exits,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// A frame with the numbers of an evaluation.
struct Machine<'a> {
    frame: &'a [u8],
    wire_length: u32,
    slots: [u32; SLOTS],
}

/// Whether the operations accept a frame. They run at most once each, because all jumps lead forward.
pub(super) fn accepts(operations: &[Operation], frame: &[u8], wire_length: usize) -> bool {
    let wire_length = u32::try_from(wire_length).unwrap_or(u32::MAX);
    let mut machine = Machine { frame, wire_length, slots: [0; SLOTS] };
    machine.run(operations).unwrap_or(false)
}

impl Machine<'_> {
    /// The decision, or `None` where a load leaves the frame.
    fn run(&mut self, operations: &[Operation]) -> Option<bool> {
        let mut at = 0_u16;
        loop {
            let next = match operations.get(usize::from(at)) {
                Some(operation) => self.step(operation)?,
                None => return Some(at == ACCEPT),
            };
            debug_assert!(next.is_none_or(|next| next > at), "a jump back");
            at = next.unwrap_or(at + 1);
        }
    }

    /// Does one operation, and gives the exit that it takes, if it has any.
    #[inline]
    fn step(&mut self, operation: &Operation) -> Option<Option<u16>> {
        let (holds, exits) = match *operation {
            Operation::Test { field, mask, is, value, exits } => {
                (is.holds(self.read(field, 0)? & mask, value), exits)
            }
            Operation::Compare { left, is, right, exits } => {
                (is.holds(self.number(left), self.number(right)), exits)
            }
            Operation::Jump { exits } => (true, exits),
            Operation::Read { field, index, into } => {
                let value = self.read(field, self.number(index))?;
                self.put(into, value);
                return Some(None);
            }
            Operation::Calculate { operator, left, right, into } => {
                let value = operator.apply(self.number(left), self.number(right))?;
                self.put(into, value);
                return Some(None);
            }
            Operation::Geneve { at, into, exits } => {
                self.geneve(at, into)?;
                (true, exits)
            }
            Operation::Chain { at, version, value, exits } => (self.chain(at, version, value)?, exits),
        };
        Some(Some(if holds { exits.yes } else { exits.no }))
    }

    fn number(&self, operand: Operand) -> u32 {
        match operand {
            Operand::Number(number) => number,
            Operand::Slot(slot) => self.slots.get(usize::from(slot)).copied().unwrap_or(0),
        }
    }

    fn put(&mut self, slot: u8, value: u32) {
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            *place = value;
        }
    }

    #[inline]
    fn read(&self, field: Field, index: u32) -> Option<u32> {
        match field {
            Field::WireLength => Some(self.wire_length),
            Field::Bytes(load) => self.bytes(self.base(load, index)?, load.offset, load.width),
        }
    }

    /// The variable part of a place, which wraps at 32 bits as BPF's index register does.
    #[inline]
    fn base(&self, load: Load, index: u32) -> Option<u32> {
        let start = load.slot.map_or(0, |slot| self.number(Operand::Slot(slot)));
        let header = match load.header {
            Some(header) => (self.bytes(start, header, Width::One)? & 0xf) * 4,
            None => 0,
        };
        Some(index.wrapping_add(start).wrapping_add(header))
    }

    /// A big-endian number at `base + offset`, a sum that does not wrap.
    #[inline]
    fn bytes(&self, base: u32, offset: u32, width: Width) -> Option<u32> {
        let rest = self.frame.get(usize::try_from(u64::from(base) + u64::from(offset)).ok()?..)?;
        Some(match width {
            Width::One => u32::from(*rest.first()?),
            Width::Two => u32::from(u16::from_be_bytes(*rest.first_chunk()?)),
            Width::Four => u32::from_be_bytes(*rest.first_chunk()?),
        })
    }

    /// Reads RFC 8926, section 3.4: options in units of 4 bytes in the first byte, the protocol at byte 2.
    fn geneve(&mut self, at: Load, into: u8) -> Option<()> {
        let start = self.base(at, 0)?.wrapping_add(at.offset);
        let options = self.bytes(start, 0, Width::One)? & 0x3f;
        let inner = start.wrapping_add(8 + 4 * options);
        let protocol = self.bytes(start, 2, Width::Two)?;
        // 0x6558 is Ethernet; another protocol follows the header without a link-layer header.
        let (kind, payload) = if protocol == 0x6558 {
            (inner.wrapping_add(12), inner.wrapping_add(14))
        } else {
            (start.wrapping_add(2), inner)
        };
        self.put(into, kind);
        self.put(into + 1, inner);
        self.put(into + 2, payload);
        Some(())
    }

    fn chain(&self, at: Load, version: Version, wanted: u32) -> Option<bool> {
        let (first, length) = match version {
            Version::V4 => (9, (self.bytes(0, at.offset, Width::One)? & 0xf) * 4),
            Version::V6 => (6, 40),
        };
        let mut protocol = self.bytes(first, at.offset, Width::One)?;
        let mut place = length;
        for _ in 0..MOST_HEADERS {
            let units = match (version, protocol) {
                _ if protocol == wanted => return Some(true),
                // RFC 8200: hop-by-hop options, destination options, routing and fragment headers.
                (Version::V6, 0 | 60 | 43 | 44) => {
                    let units = self.bytes(place + 1, at.offset, Width::One)?;
                    (place + (units + 1) * 8, units)
                }
                // RFC 4302: the authentication header counts words of 4 bytes, less 2.
                (_, 51) => {
                    let units = self.bytes(place.wrapping_add(1), at.offset, Width::One)?;
                    ((units + 2) * 4, units)
                }
                _ => return Some(false),
            };
            protocol = self.bytes(place, at.offset, Width::One)?;
            place = units.0;
        }
        Some(false)
    }
}
