use proptest::prelude::*;

use super::*;
use crate::steer::frames::{made, mutated, mutations, rules};
use crate::steer::{Filter, IpFacts, MOST_RULES, Rule};

/// The most instructions that the kernel accepts (`BPF_MAXINSNS`).
const MOST: usize = 4096;

/// The view that the kernel gives a program of a group, after `skb_vlan_untag` and `eth_type_trans`.
pub(in super::super) struct Arrival<'f> {
    pub(in super::super) tag: Option<u32>,
    protocol: u32,
    data: &'f [u8],
}

impl<'f> Arrival<'f> {
    /// A frame as it arrives.
    ///
    /// Its first tag is removed if the kernel removes tags of that kind.
    pub(in super::super) fn of(frame: &'f [u8], untags: bool) -> Option<Self> {
        let half = |at: usize| Some(u32::from(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?)));
        // Lengths become a number that no protocol has.
        let protocol = |number: u32| if number < 0x600 { 4 } else { number };
        let first = half(12)?;
        if untags && matches!(first, 0x8100 | 0x88a8) {
            let (tag, next) = (half(14)?, half(16)?);
            return Some(Self { tag: Some(tag), protocol: protocol(next), data: &frame[18..] });
        }
        Some(Self { tag: None, protocol: protocol(first), data: &frame[14..] })
    }
}

/// Runs a program as the kernel defines it (Documentation/networking/filter.rst).
///
/// Panics where the kernel's checker would refuse.
pub(in super::super) fn run(program: &[Instruction], arrival: &Arrival<'_>) -> u32 {
    let (mut a, mut x, mut at) = (0_u32, 0_u32, 0);
    let mut memory = [None; 16];
    loop {
        let Instruction { code, if_true, if_false, value } = program[at];
        at += 1;
        let operand = if code & BY_X != 0 { x } else { value };
        match code & 7 {
            LOAD => {
                let offset = match code & 0xe0 {
                    VALUE => {
                        a = value;
                        continue;
                    }
                    MEMORY => {
                        a = memory[value as usize].expect("a word that was stored on every way here");
                        continue;
                    }
                    LENGTH => {
                        a = arrival.data.len() as u32;
                        continue;
                    }
                    ABSOLUTE if value == AD_PROTOCOL => {
                        a = arrival.protocol;
                        continue;
                    }
                    ABSOLUTE if value == AD_VLAN_TAG_PRESENT => {
                        a = u32::from(arrival.tag.is_some());
                        continue;
                    }
                    ABSOLUTE if value == AD_VLAN_TAG => {
                        a = arrival.tag.unwrap_or(0);
                        continue;
                    }
                    INDIRECT => (x + value) as usize,
                    mode => panic!("no such load: {mode:#x}"),
                };
                let width = match code & 0x18 {
                    WORD => 4,
                    HALF => 2,
                    BYTE => 1,
                    width => panic!("no such width: {width:#x}"),
                };
                // A load beyond the packet ends a program with 0: our program never does that.
                let bytes = arrival.data.get(offset..offset + width).expect("within the packet");
                a = bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
            }
            LOAD_X => {
                assert_eq!(code, LOAD_X | MEMORY);
                x = memory[value as usize].expect("a word that was stored on every way here");
            }
            STORE => memory[value as usize] = Some(a),
            COMPUTE => {
                a = match code & 0xf0 {
                    ADD => a.wrapping_add(operand),
                    MULTIPLY => a.wrapping_mul(operand),
                    AND => a & operand,
                    XOR => a ^ operand,
                    SHIFT_LEFT => a.checked_shl(operand).unwrap(),
                    SHIFT_RIGHT => a.checked_shr(operand).unwrap(),
                    operation => panic!("no such operation: {operation:#x}"),
                }
            }
            JUMP if code & 0xf0 == ALWAYS => at += value as usize,
            JUMP => {
                let holds = match code & 0xf0 {
                    EQUAL => a == operand,
                    AT_LEAST => a >= operand,
                    ANY_BIT => a & operand != 0,
                    test => panic!("no such test: {test:#x}"),
                };
                at += usize::from(if holds { if_true } else { if_false });
            }
            RETURN => return if code & 0x18 == ACCUMULATOR { a } else { value },
            MOVE if code & 0xf8 == TO_A => a = x,
            MOVE => x = a,
            class => unreachable!("three bits: {class}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn the_program_says_what_the_rules_say(
        list in rules(256), made in made(), changes in mutations(), untags in any::<bool>(),
    ) {
        let frame = mutated(made.bytes(), &changes);
        let Some(arrival) = Arrival::of(&frame, untags) else { return Ok(()) };
        let program = program(&list);
        let found = run(&program, &arrival);
        match list.queue_of(&frame) {
            Some(queue) => prop_assert_eq!(found, u32::from(queue)),
            // Packets that match no rule are divided as if there were no rules.
            None => prop_assert_eq!(found, run(&super::program(&Rules::default()), &arrival)),
        }
    }

    #[test]
    fn both_directions_of_a_flow_have_one_hash(made in made(), changes in mutations(), untags in any::<bool>()) {
        let program = program(&Rules::default());
        let (there, back) = (made.bytes(), made.reversed().bytes());
        let (there, back) = (Arrival::of(&there, untags), Arrival::of(&back, untags));
        if let (Some(there), Some(back)) = (there, back) {
            prop_assert_eq!(run(&program, &there), run(&program, &back));
        }
        // The program ends for every frame.
        let frame = mutated(made.bytes(), &changes);
        if let Some(arrival) = Arrival::of(&frame, untags) {
            run(&program, &arrival);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// A router's error comes to the queue of the flow that it quotes, in either direction.
    ///
    /// Any router may send it. A rule that matches ICMP has precedence.
    #[test]
    fn errors_go_where_the_flow_is_that_they_quote(
        made in made(), kind in prop_oneof![0_u8..16, any::<u8>()], len in 28_usize..80, untags in any::<bool>(), outer in 0_usize..3,
    ) {
        let Some(packet) = made.packet.as_ref() else { return Ok(()) };
        // An error about an error does not exist.
        if made.tags.len() > 2 || matches!(made.facts().ip, Some(IpFacts { protocol: Some(1 | 58), .. })) {
            return Ok(());
        }
        let (error, is_error) = if packet.source.is_ipv4() {
            (protocol::ICMP, matches!(kind, 3 | 4 | 5 | 11 | 12))
        } else {
            (protocol::ICMPV6, kind < 128)
        };
        let frame = made.bytes();
        let head = 14 + 4 * made.tags.len();
        // An error quotes at least eight bytes behind an IPv4 header; in IPv6 it quotes as much as there is
        // room for.
        let quoted = if packet.source.is_ipv4() { 4 * usize::from(frame[head] & 15) + 4 + len - 28 } else { frame.len() };
        let quoted = &frame[head..frame.len().min(head + quoted)];
        let error = made.error(error, kind, outer, quoted).bytes();
        let none = program(&Rules::default());
        let queue = |program: &[Instruction], frame: &[u8]| {
            Arrival::of(frame, untags).map(|arrival| run(program, &arrival))
        };
        let (flow, found) = (queue(&none, &frame), queue(&none, &error));
        prop_assert_eq!(flow, queue(&none, &made.reversed().bytes()));
        if is_error {
            prop_assert_eq!(flow, found);
        }
        let icmp = Filter::ANY.protocol(if packet.source.is_ipv4() { 1 } else { 58 });
        let steered = program(&Rules::new([Rule { filter: icmp, queue: 7 }]).unwrap());
        prop_assert_eq!(queue(&steered, &error), Some(7));
        // The program ends wherever the packet is cut.
        for end in 14..error.len() {
            queue(&none, &error[..end]);
        }
    }
}

/// The longest rules: the kernel refuses no list that an operator may write.
#[test]
fn as_many_rules_as_there_may_be_fit_into_a_program() {
    let address = "2001:db8::/127".parse::<Prefix>().unwrap();
    let long =
        Filter::ANY.in_vlan(1).ethertype(0x86dd).version(Version::V6).protocol(17).from(address).to(address);
    let rule = |port| Rule { filter: long.from_port(port).to_port(1), queue: 1 };
    let rules = Rules::new((0..MOST_RULES as u16).map(rule)).unwrap();
    let length = program(&rules).len();
    assert!(length <= MOST, "{length} instructions");
}

#[test]
fn flows_are_spread_evenly() {
    let program = program(&Rules::default());
    for queues in [2, 3, 4, 8] {
        let mut counts = vec![0_u32; queues as usize];
        for flow in 0..8_000_u16 {
            // Neighbouring addresses, as a network has them.
            let mut packet = [0; 42];
            packet[12..14].copy_from_slice(&[8, 0]);
            packet[14] = 0x45;
            packet[23] = 17;
            packet[26..30].copy_from_slice(&[10, 0, (flow >> 8) as u8, flow as u8]);
            packet[30..34].copy_from_slice(&[10, 0, 0, 1]);
            packet[34..38].copy_from_slice(&[4, 0, 0, 53]);
            counts[(run(&program, &Arrival::of(&packet, true).unwrap()) % queues) as usize] += 1;
        }
        let fair = 8_000 / queues;
        assert!(counts.iter().all(|count| count.abs_diff(fair) < fair / 5), "{counts:?}");
    }
}
