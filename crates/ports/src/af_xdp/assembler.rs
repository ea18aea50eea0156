//! A small assembler for BPF: typed instructions and labels, enough for the steering program.
//!
//! The kernel's verifier checks every program that is built here.

use crate::sys::bpf::{Instruction, Map};

/// A register: R0 holds results, R1 to R5 arguments, and R10 is the frame pointer.
///
/// A call overwrites R1 to R5; R6 to R9 survive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Register {
    R0 = 0,
    R1,
    R2,
    R3,
    R6 = 6,
    R7,
    R8,
    R9,
    R10,
}

/// Bytes that a load or store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Width {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
}

/// 64-bit arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Arithmetic {
    Add = 0x00,
    Multiply = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Modulo = 0x90,
    Xor = 0xa0,
    Move = 0xb0,
}

/// The conditions of jumps: unsigned 64-bit comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum When {
    Equal = 0x10,
    NotEqual = 0x50,
    Greater = 0x20,
}

/// Functions of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Helper {
    MapLookup = 1,
    RedirectMap = 51,
}

/// A place to jump to; bound once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

const LD_IMM64: u8 = 0x18;
const LDX_MEM: u8 = 0x61;
const ST_MEM: u8 = 0x62;
const STX_MEM: u8 = 0x63;
const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
const FROM_REGISTER: u8 = 0x08;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Byte swap to big endian.
const TO_BIG_ENDIAN: u8 = 0xdc;
/// The immediate of a 64-bit load is a map's descriptor.
const PSEUDO_MAP: u8 = 1;

/// A program under construction.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    instructions: Vec<Instruction>,
    /// The place where each label is bound.
    labels: Vec<Option<usize>>,
    /// Jumps by their place, each with its target.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn push(&mut self, code: u8, destination: u8, source: u8, offset: i16, immediate: i32) {
        self.instructions.push(Instruction { code, registers: source << 4 | destination, offset, immediate });
    }

    /// A label to be bound later.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }
    /// Binds a label to the next instruction.
    pub(super) fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    /// `to = *(from + offset)`, zero-extended.
    pub(super) fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.push(LDX_MEM | width as u8, to as u8, from as u8, offset, 0);
    }
    /// Loads a 16-bit field in network order.
    pub(super) fn load_network_half(&mut self, to: Register, from: Register, offset: i16) {
        self.load(Width::Half, to, from, offset);
        self.push(TO_BIG_ENDIAN, to as u8, 0, 0, 16);
    }
    /// `*(to + offset) = from`
    pub(super) fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.push(STX_MEM | width as u8, to as u8, from as u8, offset, 0);
    }
    /// `*(to + offset) = value`
    pub(super) fn store_value(&mut self, width: Width, to: Register, offset: i16, value: i32) {
        self.push(ST_MEM | width as u8, to as u8, 0, offset, value);
    }
    /// `to = to · value`
    pub(super) fn compute(&mut self, operation: Arithmetic, to: Register, value: i32) {
        self.push(ALU64 | operation as u8, to as u8, 0, 0, value);
    }
    /// `to = to · from`
    pub(super) fn compute_with(&mut self, operation: Arithmetic, to: Register, from: Register) {
        self.push(ALU64 | FROM_REGISTER | operation as u8, to as u8, from as u8, 0, 0);
    }
    /// `to = map`
    pub(super) fn load_map<const KEY: usize>(&mut self, to: Register, map: &Map<KEY>) {
        self.push(LD_IMM64, to as u8, PSEUDO_MAP, 0, map.descriptor());
        self.push(0, 0, 0, 0, 0);
    }
    /// Jumps when the comparison of the register with the value holds.
    pub(super) fn jump_if(&mut self, when: When, register: Register, value: i32, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(JMP | when as u8, register as u8, 0, 0, value);
    }
    /// Jumps when the comparison of two registers holds.
    pub(super) fn jump_if_register(&mut self, when: When, register: Register, other: Register, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(JMP | FROM_REGISTER | when as u8, register as u8, other as u8, 0, 0);
    }
    /// Jumps.
    pub(super) fn jump(&mut self, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(JMP, 0, 0, 0, 0);
    }
    /// Calls the kernel.
    pub(super) fn call(&mut self, helper: Helper) {
        self.push(CALL, 0, 0, 0, helper as i32);
    }
    /// Ends the program with the value of R0.
    pub(super) fn exit(&mut self) {
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// The finished program.
    ///
    /// # Panics
    /// When a label that is a jump's target was never bound or is out of reach: a mistake in the program's
    /// source, which any use of it shows.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        for (place, label) in self.jumps {
            let target = self.labels[label.0].expect("every label of the one program is bound before this");
            let distance = target as isize - place as isize - 1;
            self.instructions[place].offset =
                i16::try_from(distance).expect("the one program has far fewer than 32,767 instructions");
        }
        self.instructions
    }
}
