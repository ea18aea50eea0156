//! The program of [`program`](super::program) as eBPF, the language that TAP devices run.
//!
//! It is a socket filter over a whole frame, translated instruction by instruction.

use super::program::{
    ABSOLUTE, ACCUMULATOR, AD_PROTOCOL, AD_VLAN_TAG, AD_VLAN_TAG_PRESENT, ALWAYS, BY_X, COMPUTE, INDIRECT,
    JUMP, LENGTH, LOAD, LOAD_X, MEMORY, MOVE, RETURN, STORE, TO_A, VALUE,
};
use crate::sys::bpf::Instruction;
use crate::sys::packet::Instruction as Classic;

/// Bytes of an Ethernet header. The classic program begins behind it, this one at it.
const ETHERNET: i32 = 14;

// Registers: A, X, the packet's context, the stack.
const A: u8 = 0;
const CONTEXT: u8 = 6;
const X: u8 = 7;
const STACK: u8 = 10;

const LOAD_WORD: u8 = 0x61;
const STORE_WORD: u8 = 0x63;
const COMPUTE_32: u8 = 0x04;
const COMPUTE_64: u8 = 0x07;
const SET: u8 = 0xb0;
const SUBTRACT: u8 = 0x10;
const OF_REGISTER: u8 = 0x08;
const GO: u8 = 0x05;
const JUMP_32: u8 = 0x06;
const EXIT: u8 = 0x95;
const LOAD_PACKET: u8 = 0x00;
const LOAD_HALF_ABSOLUTE: u8 = 0x28;

// Fields of `struct __sk_buff` (linux/bpf.h).
const LEN: i16 = 0;
const VLAN_PRESENT: i16 = 20;
const VLAN_TCI: i16 = 24;

/// Translates a classic program.
pub(crate) fn extended(classic: &[Classic]) -> Vec<Instruction> {
    let mut e = Extended::default();
    e.push(COMPUTE_64 | SET | OF_REGISTER, CONTEXT, 1, 0);
    e.push(COMPUTE_32 | SET, A, 0, 0);
    e.push(COMPUTE_32 | SET, X, 0, 0);
    for (place, instruction) in classic.iter().enumerate() {
        e.starts.push(e.instructions.len());
        e.translate(place, instruction);
    }
    e.finish()
}

#[derive(Default)]
struct Extended {
    instructions: Vec<Instruction>,
    /// The place where each classic instruction begins.
    starts: Vec<usize>,
    /// The jumps, each with the classic instruction to which it goes.
    jumps: Vec<(usize, usize)>,
}

impl Extended {
    fn push(&mut self, code: u8, to: u8, from: u8, immediate: i32) {
        self.instructions.push(Instruction { code, registers: from << 4 | to, offset: 0, immediate });
    }
    fn at_offset(&mut self, code: u8, to: u8, from: u8, offset: i16) {
        self.instructions.push(Instruction { code, registers: from << 4 | to, offset, immediate: 0 });
    }
    fn jump(&mut self, code: u8, register: u8, from: u8, immediate: i32, to: usize) {
        self.jumps.push((self.instructions.len(), to));
        self.push(code, register, from, immediate);
    }

    fn translate(&mut self, place: usize, instruction: &Classic) {
        let Classic { code, if_true, if_false, value } = *instruction;
        // The sixteen words of memory are the first words of the stack.
        let word = || -64 + 4 * value as i16;
        match code & 7 {
            LOAD => match code & 0xe0 {
                VALUE => self.push(COMPUTE_32 | SET, A, 0, value as i32),
                MEMORY => self.at_offset(LOAD_WORD, A, STACK, word()),
                LENGTH => {
                    self.at_offset(LOAD_WORD, A, CONTEXT, LEN);
                    self.push(COMPUTE_32 | SUBTRACT, A, 0, ETHERNET);
                }
                // The frame itself gives the EtherType: the device may have been told another one.
                ABSOLUTE if value == AD_PROTOCOL => self.push(LOAD_HALF_ABSOLUTE, 0, 0, ETHERNET - 2),
                ABSOLUTE if value == AD_VLAN_TAG_PRESENT => {
                    self.at_offset(LOAD_WORD, A, CONTEXT, VLAN_PRESENT);
                }
                ABSOLUTE if value == AD_VLAN_TAG => self.at_offset(LOAD_WORD, A, CONTEXT, VLAN_TCI),
                _ => {
                    let width = (code & 0x18) as u8;
                    self.push(LOAD_PACKET | width | INDIRECT as u8, 0, X, value as i32 + ETHERNET);
                }
            },
            LOAD_X => self.at_offset(LOAD_WORD, X, STACK, word()),
            STORE => self.at_offset(STORE_WORD, STACK, A, word()),
            COMPUTE => {
                let operation = (code & 0xf0) as u8;
                match code & BY_X {
                    0 => self.push(COMPUTE_32 | operation, A, 0, value as i32),
                    _ => self.push(COMPUTE_32 | operation | OF_REGISTER, A, X, 0),
                }
            }
            JUMP => {
                let to = |distance: u32| place + 1 + distance as usize;
                let test = (code & 0xf0) as u8;
                if code & 0xf0 == ALWAYS {
                    self.jump(GO, 0, 0, 0, to(value));
                    return;
                }
                match code & BY_X {
                    0 => self.jump(JUMP_32 | test, A, 0, value as i32, to(if_true.into())),
                    _ => self.jump(JUMP_32 | test | OF_REGISTER, A, X, 0, to(if_true.into())),
                }
                if if_false > 0 {
                    self.jump(GO, 0, 0, 0, to(if_false.into()));
                }
            }
            RETURN => {
                if code & 0x18 != ACCUMULATOR {
                    self.push(COMPUTE_32 | SET, A, 0, value as i32);
                }
                self.push(EXIT, 0, 0, 0);
            }
            MOVE if code & 0xf8 == TO_A => self.push(COMPUTE_32 | SET | OF_REGISTER, A, X, 0),
            _ => self.push(COMPUTE_32 | SET | OF_REGISTER, X, A, 0),
        }
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (place, to) in &self.jumps {
            let distance = self.starts[*to] as isize - *place as isize - 1;
            self.instructions[*place].offset = i16::try_from(distance)
                .expect("a program of 4,096 instructions becomes one of less than 32,767");
        }
        self.instructions
    }
}

#[cfg(test)]
mod tests;
