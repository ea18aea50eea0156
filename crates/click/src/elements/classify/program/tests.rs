//! Programs and tables against conditions that are asked one by one.

use proptest::prelude::*;

use super::expression::{Compare, Expression, Test};
use super::matcher::{DROP, Matcher};
use super::optimize::{Exactness, Work};
use super::rules::{Rule, Rules, Subject, program};
use super::table::RuleTable;
use super::view::{HeadersView, NETWORK, TRANSPORT, View};
use super::{Jump, Program, view};

fn word() -> impl Strategy<Value = Expression> {
    let places = prop_oneof![
        Just(NETWORK),
        Just(NETWORK + 4),
        Just(NETWORK + 8),
        Just(NETWORK + 16),
        Just(TRANSPORT),
        Just(TRANSPORT + 4),
        Just(TRANSPORT + 12),
    ];
    let masks = prop_oneof![
        Just(0xFF00_0000_u32),
        Just(0x00FF_0000),
        Just(0x0000_FFFF),
        Just(0xFFFF_0000),
        Just(0xFFFF_FFFF),
        Just(0x0100_0000),
        Just(0x0002_0000),
        Just(0x0000_0001),
        Just(0x0000_0100),
        Just(0x0300_0003),
        Just(0),
    ];
    // Bytes are few, so that tests meet each other and packets.
    let value = prop::collection::vec(0_u8..4, 4);
    (places, masks, value, any::<bool>(), any::<bool>()).prop_map(|(place, mask, value, negated, short)| {
        let value = u32::from_be_bytes([value[0], value[1], value[2], value[3]]);
        let short = if mask == 0 { !negated } else { short };
        Expression::Word { test: Test::new(place, mask, value), negated, short }
    })
}

fn compare() -> impl Strategy<Value = Expression> {
    let fields = prop_oneof![
        Just((TRANSPORT, 16, 0xFFFF_u32)),
        Just((TRANSPORT, 0, 0xFFFF)),
        Just((NETWORK + 8, 24, 0xFF)),
        Just((NETWORK + 16, 8, 0x0F)),
        Just((TRANSPORT + 12, 8, 0x33)),
    ];
    (fields, 0_u32..0x400, any::<bool>(), any::<bool>()).prop_map(
        |((place, shift, mask), bound, above, short)| {
            let bound = (bound & mask) % mask;
            Expression::Compare(Compare { place, shift, mask, bound: bound & mask, above, short })
        },
    )
}

fn expression() -> impl Strategy<Value = Expression> {
    prop_oneof![3 => word(), 1 => compare()].prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Expression::All),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Expression::Any),
            prop::collection::vec(inner.clone(), 1..6).prop_map(Expression::choice),
            inner.clone().prop_map(Expression::not),
            inner.prop_map(Expression::not_of_long),
        ]
    })
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let target = prop_oneof![4 => (0_u32..3).prop_map(Jump::Output), 1 => Just(Jump::Drop)];
    prop::collection::vec((expression().prop_map(Some), target), 0..9)
}

fn packets() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(0_u8..4, 0..44), 24)
}

/// The answer that conditions have one by one.
fn plain(rules: &[Rule], packet: &HeadersView<'_>) -> u32 {
    let holds = |test: &Test| {
        let word = u32::from_be_bytes(packet.part(test.place).to_ne_bytes());
        (test.need() <= packet.length()).then_some(word & test.mask == test.value)
    };
    let first = rules.iter().find(|(condition, _)| condition.as_ref().is_some_and(|one| one.holds(&holds)));
    match first {
        Some((_, Jump::Output(output))) => *output,
        _ => DROP,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn programs_and_tables_answer_as_conditions_do(rules in rules(), packets in packets(), few in 0_u64..3_000) {
        let optimized = Matcher::new(&program(&rules, Subject::Headers, Exactness::Exact, &mut Work::of_one()));
        let as_bytes = Matcher::new(&program(&rules, Subject::Bytes, Exactness::Exact, &mut Work::of_one()));
        let part = |subject| Matcher::new(&program(&rules, subject, Exactness::Exact, &mut Work::of(few)));
        let (partly, partly_as_bytes) = (part(Subject::Headers), part(Subject::Bytes));
        let table = RuleTable::new(&rules, view::NETWORK + 20, 7);
        for bytes in &packets {
            let packet = HeadersView::of_bytes(bytes, 20);
            let answer = plain(&rules, &packet);
            prop_assert_eq!(optimized.output(&packet), answer, "{:?}", bytes);
            prop_assert_eq!(as_bytes.output(&packet), answer, "{:?}", bytes);
            prop_assert_eq!(partly.output(&packet), answer, "{:?}, {} steps of work", bytes, few);
            prop_assert_eq!(partly_as_bytes.output(&packet), answer, "{:?}, {} steps of work", bytes, few);
            if let Some(table) = &table && packet.network_length() >= 20 {
                prop_assert_eq!(table.output(&packet).unwrap_or(answer), answer, "{:?}", bytes);
            }
        }
    }

    #[test]
    fn shown_programs_answer_alike_for_long_packets(rules in rules(), packets in packets()) {
        let shown = Matcher::new(&program(&rules, Subject::Headers, Exactness::AsShown, &mut Work::of_one()));
        for bytes in &packets {
            let mut bytes = bytes.clone();
            bytes.resize(44, 1);
            let packet = HeadersView::of_bytes(&bytes, 20);
            prop_assert_eq!(shown.output(&packet), plain(&rules, &packet), "{:?}", bytes);
        }
    }
}

#[test]
fn rules_without_conditions_end_all_packets() {
    let rule = Program::of_rule(None, Jump::Output(0));
    assert_eq!(rule.everything, Jump::Drop);
    assert_eq!(rule.text(), "all->[2147483647]\nsafe length 0\nalignment offset 0\n");
}

#[test]
fn many_values_of_a_field_are_searched() {
    let one = |port: u32| Expression::word(TRANSPORT, 0xFFFF, port * 7);
    let rules = [(Some(Expression::Any((1..20).map(one).collect())), Jump::Output(0))];
    let matcher = Matcher::new(&program(&rules, Subject::Headers, Exactness::Exact, &mut Work::of_one()));
    assert_eq!(matcher.len(), 1);
    for port in 0..200_u32 {
        let mut bytes = [0; 24];
        bytes[20..24].copy_from_slice(&port.to_be_bytes());
        let found = port % 7 == 0 && (7..140).contains(&port);
        assert_eq!(matcher.output(&HeadersView::of_bytes(&bytes, 20)), if found { 0 } else { DROP });
    }
}

/// `allow src host A and dst port P`, for other addresses and ports each.
fn pairs(number: u32, place: u16) -> Vec<Rule> {
    let mut rules: Vec<Rule> = (1..=number)
        .map(|at| {
            let host = Expression::word(place, u32::MAX, at.wrapping_mul(0x9E37_79B1));
            let port = Expression::word(place + 12, 0xFFFF, at.wrapping_mul(40_503) & 0xFFFF);
            (Some(Expression::All(vec![host, port])), Jump::Output(at % 3))
        })
        .collect();
    rules.push((Some(Expression::constant(true)), Jump::Drop));
    rules
}

#[test]
fn optimising_stops_when_its_work_is_done() {
    let all = |number: u32| {
        let mut work = Work::of(u64::MAX);
        program(&pairs(number, NETWORK + 12), Subject::Headers, Exactness::Exact, &mut work);
        work.done()
    };
    let (small, large) = (all(64), all(512));
    assert!(small <= 1_000_000, "rules of common size are optimised wholly: {small} steps");
    assert!(large > 1_000_000, "these rules are to need more than there is: {large} steps");
    for subject in [Subject::Headers, Subject::Bytes] {
        let mut work = Work::of_one();
        program(&pairs(2_000, NETWORK + 12), subject, Exactness::AsShown, &mut work);
        assert!(work.is_spent(), "{subject:?}");
        assert!(work.done() <= 1_000_000, "{subject:?}: {} steps", work.done());
    }
}

#[test]
fn rules_that_a_table_answers_are_not_optimised() {
    for (subject, place) in [(Subject::Headers, NETWORK + 12), (Subject::Bytes, 0)] {
        let mut work = Work::of_one();
        let rules = Rules::with_work(pairs(1_000, place), subject, 7, &mut work);
        assert!(rules.has_table(), "{subject:?}");
        assert_eq!(work.done(), 0, "{subject:?}");
    }
    // The answers are those of the conditions, also where a rule for all packets stands in front of others.
    let rules = pairs(1_000, NETWORK + 12);
    let mut open = rules.clone();
    open.insert(600, (Some(Expression::constant(true)), Jump::Output(2)));
    for rules in [rules, open] {
        answers_are_those_of_conditions(&rules);
    }
}

fn answers_are_those_of_conditions(rules: &[Rule]) {
    let table = Rules::with_work(rules.to_vec(), Subject::Headers, 7, &mut Work::of_one());
    assert!(table.has_table());
    for at in [1_u32, 2, 3, 500, 999, 1_000, 1_001] {
        for port in [at, at + 1] {
            let mut bytes = [0; 28];
            bytes[12..16].copy_from_slice(&at.wrapping_mul(0x9E37_79B1).to_be_bytes());
            bytes[24..28].copy_from_slice(&(port.wrapping_mul(40_503) & 0xFFFF).to_be_bytes());
            for length in [28, 27, 25, 24, 20, 12] {
                let packet = HeadersView::of_bytes(&bytes[..length], 20);
                let answer = table.output_of(&packet, |view| view.network_length() >= 20);
                assert_eq!(answer, plain(rules, &packet), "{at} {port} {length}");
            }
        }
    }
}

#[test]
fn joined_programs_are_those_that_were_added() {
    let word = |value| Expression::word(NETWORK, 0xFF, value);
    let choices: [Rule; 5] = [
        (Some(word(1)), Jump::Output(0)),
        (None, Jump::Output(1)),
        (Some(Expression::constant(true)), Jump::Output(2)),
        (Some(Expression::Any(vec![word(2), word(3).not()])), Jump::Drop),
        (Some(Expression::All(Vec::new())), Jump::Output(1)),
    ];
    for number in 0..625_usize {
        let picked = [number % 5, number / 5 % 5, number / 25 % 5, number / 125];
        let programs: Vec<Program> =
            picked.iter().map(|at| Program::of_rule(choices[*at].0.as_ref(), choices[*at].1)).collect();
        let mut added = programs[0].clone();
        programs[1..].iter().for_each(|next| added.add(next));
        added.set_failure(Jump::Drop);
        let (joined, added) = (Matcher::new(&Program::joined(&programs)), Matcher::new(&added));
        for value in 0..5 {
            let bytes = [0, 0, 0, value];
            let packet = HeadersView::of_bytes(&bytes, 4);
            assert_eq!(joined.output(&packet), added.output(&packet), "{picked:?} {value}");
        }
    }
}
