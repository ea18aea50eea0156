//! Tests of places in the order of rules, and of the room for conditions.

use super::*;
use crate::change::prepare;
use crate::state::load;

fn rules(capacity: usize) -> Rules {
    let setup = Setup {
        capacity,
        workers: 1,
        ports: PortNames::default(),
        outputs: 1,
        seed: 3,
        shared: Default::default(),
    };
    Rules::new(setup)
}

fn put(rules: &mut Rules, place: usize, number: usize) {
    let rule = parse_rule(&format!("tcp-dport {number} drop")).unwrap();
    let layout = rules.layout.with(&rule.matches).map_or_else(|| rules.layout.clone(), Arc::new);
    rules.layout = layout.clone();
    assert!(rules.classifier.widen(layout.layout()));
    let prepared = prepare(&rules.setup, rules, &rule, None, &layout).unwrap();
    rules.insert(place, &prepared).unwrap();
}

fn texts(rules: &Rules) -> Vec<String> {
    rules.iter().map(|rule| rule.text.to_string()).collect()
}

#[test]
fn rules_come_between_any_two_and_renumber_few() {
    let mut rules = rules(16_384);
    let mut expected: Vec<String> = Vec::new();
    let mut renumbered = 0;
    let orders = |rules: &Rules| -> HashMap<u32, u64> {
        rules.order.iter().map(|slot| (*slot, rules.order_of(*slot))).collect()
    };
    for number in 0..1_500usize {
        // At the beginning, at the end, and again and again at one place in the middle.
        let place = match number % 3 {
            0 => 0,
            1 => expected.len(),
            _ => expected.len() / 2,
        };
        let before = orders(&rules);
        put(&mut rules, place, number);
        expected.insert(place, format!("tcp-dport {number} drop"));
        let after = orders(&rules);
        renumbered += before.iter().filter(|(slot, order)| after[*slot] != **order).count();
    }
    assert_eq!(texts(&rules), expected);
    let orders: Vec<u64> = rules.order.iter().map(|slot| rules.order_of(*slot)).collect();
    assert!(orders.is_sorted_by(|one, next| one < next));
    // Some for each insertion in the middle, and not all of them each twentieth time.
    assert!(renumbered < 15_000, "{renumbered}");
    for (place, order) in orders.iter().enumerate() {
        assert_eq!(rules.place(rules.order[place]), Some(place), "{order}");
    }
}

#[test]
fn a_rule_before_all_others_renumbers_none() {
    let mut rules = rules(4_096);
    put(&mut rules, 0, 1);
    let first = rules.order[0];
    let order = rules.order_of(first);
    for number in 2..2_000 {
        put(&mut rules, 0, number);
    }
    assert_eq!(rules.order_of(first), order);
    assert_eq!(rules.place(first), Some(1_998));
}

#[test]
fn what_goes_makes_room_for_what_comes() {
    let mut rules = rules(3);
    load(&mut rules, "define @web {80}\nadd tcp-dport @web drop\nadd udp-dport 2 drop\nadd udp-dport 3 drop")
        .unwrap();
    load(&mut rules, "replace 2 udp-dport 7 drop").unwrap();
    load(&mut rules, "delete 3\nadd udp-dport 4 drop").unwrap();
    let full = load(&mut rules, "add udp-dport 5 drop").map(drop).unwrap_err();
    assert_eq!(
        full,
        "there is room for 3 conditions, 3 are taken, and the change needs 4 at once: delete rules before others \
         come, or raise `capacity`"
    );
    assert!(load(&mut rules, "add udp-dport 5 drop\ndelete 1").is_err(), "there is no room for four at once");
    assert!(load(&mut rules, "extend @web {443}").is_err());
    load(&mut rules, "delete 3\nextend @web {443}").unwrap();
    load(&mut rules, "define @web {22, 25}").unwrap();
    load(&mut rules, "shrink @web {22}\nadd udp-dport 9 drop\nmove 3 before 1").unwrap();
    assert_eq!(texts(&rules), ["udp-dport 9 drop", "tcp-dport @web drop", "udp-dport 7 drop"]);
    assert_eq!(rules.classifier.len(), 3);
    load(&mut rules, "flush\nadd udp-dport {1, 2, 3} drop").unwrap();
}
