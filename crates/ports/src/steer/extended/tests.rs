use proptest::prelude::*;

use super::super::frames::{made, mutated, mutations, rules};
use super::super::program::program;
use super::super::program::tests::{Arrival, run as classic};
use super::super::{Filter, MOST_RULES, Rule, Rules};
use super::*;

/// Runs the instructions that translations consist of, over a frame as a TAP device has it.
fn run(program: &[Instruction], tag: Option<u32>, frame: &[u8]) -> u32 {
    let (mut registers, mut stack, mut at) = ([0_u32; 11], [None; 16], 0);
    loop {
        let Instruction { code, registers: pair, offset, immediate } = program[at];
        let (to, from) = (usize::from(pair & 15), usize::from(pair >> 4));
        at += 1;
        let operand = if code & OF_REGISTER != 0 { registers[from] } else { immediate as u32 };
        let word = ((offset + 64) / 4) as usize;
        match (code & 7, code) {
            (0, _) => {
                let at = if code & 0xe0 == 0x20 { 0 } else { registers[from] } as usize + immediate as usize;
                let width = [4, 2, 1][usize::from(code >> 3 & 3)];
                let bytes = frame.get(at..at + width).expect("within the frame");
                registers[0] = bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                // The kernel's loads destroy the values of these registers.
                registers[1..6].fill(0xdead_beef);
            }
            (1, LOAD_WORD) if from == usize::from(STACK) => {
                registers[to] = stack[word].expect("a word that was stored on every way here");
            }
            (1, LOAD_WORD) => {
                registers[to] = match offset {
                    LEN => frame.len() as u32,
                    VLAN_PRESENT => u32::from(tag.is_some()),
                    VLAN_TCI => tag.unwrap_or(0),
                    other => panic!("no such field: {other}"),
                };
            }
            (3, STORE_WORD) => stack[word] = Some(registers[from]),
            (4 | 7, _) => {
                let value = registers[to];
                registers[to] = match code & 0xf0 {
                    0x00 => value.wrapping_add(operand),
                    SUBTRACT => value.wrapping_sub(operand),
                    0x20 => value.wrapping_mul(operand),
                    0x50 => value & operand,
                    0x60 => value.checked_shl(operand).unwrap(),
                    0x70 => value.checked_shr(operand).unwrap(),
                    0xa0 => value ^ operand,
                    SET => operand,
                    other => panic!("no such operation: {other:#x}"),
                };
            }
            (5, EXIT) => return registers[0],
            (5, GO) => at += offset as usize,
            (6, _) => {
                let value = registers[to];
                let holds = match code & 0xf0 {
                    0x10 => value == operand,
                    0x30 => value >= operand,
                    0x40 => value & operand != 0,
                    other => panic!("no such test: {other:#x}"),
                };
                at += if holds { offset as usize } else { 0 };
            }
            other => panic!("no such instruction: {other:x?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// Answers as the classic program does, whether the first tag is beside the frame or in it.
    #[test]
    fn the_translation_says_what_the_program_says(
        list in rules(256), made in made(), changes in mutations(), untags in any::<bool>(),
    ) {
        let frame = mutated(made.bytes(), &changes);
        let Some(arrival) = Arrival::of(&frame, untags) else { return Ok(()) };
        let program = program(&list);
        let mut shown = frame.clone();
        if arrival.tag.is_some() {
            shown.drain(12..16);
        }
        let found = run(&extended(&program), arrival.tag, &shown);
        prop_assert_eq!(found, classic(&program, &arrival));
        if let Some(queue) = list.queue_of(&frame) {
            prop_assert_eq!(found, u32::from(queue));
        }
    }
}

/// Whether the kernel's verifier accepts the program of these rules.
///
/// It also finishes on lists that let it know much at each rule.
fn taken(rules: &Rules) -> bool {
    match crate::sys::bpf::Program::load_filter(&extended(&program(rules)), "nb_test") {
        // The verifier's own refusals are a different error, though of the same kind.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            eprintln!("skipped: needs CAP_BPF");
            true
        }
        loaded => loaded.is_ok(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_kernel_takes_any_list(list in rules(256)) {
        prop_assert!(taken(&list));
    }
}

#[test]
fn the_kernel_takes_the_longest_list() {
    let address = "2001:db8::/127".parse().unwrap();
    let long = Filter::ANY.in_vlan(1).protocol(17).from(address).to(address);
    let rule = |number: u16| {
        let filter = if number.is_multiple_of(2) { long } else { Filter::ANY.protocol(6).in_vlan(number) };
        Rule { filter: filter.from_port(number).to_port(1 + number), queue: number % 3 }
    };
    assert!(taken(&Rules::new((0..MOST_RULES as u16).map(rule)).unwrap()));
}

#[test]
fn nothing_stands_behind_a_rule_for_everything() {
    let everything = Rule { filter: Filter::ANY, queue: 1 };
    assert!(taken(&Rules::new([everything]).unwrap()));
}
