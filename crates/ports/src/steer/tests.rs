use netbricks_packet::ip::Version;
use netbricks_packet::{FlowKey, protocol};
use proptest::prelude::*;

use super::frames::{filter, made, mutated, mutations, rules};
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn facts_of_a_frame_match_how_it_was_made(made in made()) {
        prop_assert_eq!(Facts::of(&made.bytes()), made.facts());
    }

    /// Compared with the packet crate's parser, a different one: the two agree on a packet behind VLAN tags
    /// only.
    #[test]
    fn the_packet_crate_sees_the_same(made in made(), changes in mutations()) {
        let frame = mutated(made.bytes(), &changes);
        let facts = Facts::of(&frame);
        let Some(key) = FlowKey::from_frame(&frame) else { return Ok(()) };
        let known = matches!(facts.ethertype, 0x0800 | 0x86dd);
        // Filters ignore MPLS and PPPoE, and packets behind more tags.
        if !known {
            prop_assert_eq!(facts.ip, None);
            return Ok(());
        }
        let ip = facts.ip.expect("the packet crate found a header");
        prop_assert_eq!((ip.source, ip.destination), (key.source(), key.destination()));
        // The packet crate's parser reads more extension headers than filters do.
        if ip.protocol == Some(key.protocol()) && let Some(ports) = ip.ports {
            let theirs = (key.source_port(), key.destination_port());
            // That parser accepts no ports beyond the end that the header states.
            prop_assert!(ports == theirs || theirs == (0, 0), "{:?} {:?}", ports, theirs);
            prop_assert!(!key.is_fragment());
        }
        if !changes.iter().any(|(_, value, cut)| *cut || *value > 0) && ip.protocol.is_some_and(protocol::has_ports) {
            let is_first_fragment = ip.ports.is_none() && !key.is_fragment();
            let ports = ip.ports.unwrap_or_default();
            prop_assert!(is_first_fragment || ports == (key.source_port(), key.destination_port()));
        }
    }

    #[test]
    fn a_filter_that_covers_another_matches_all_that_the_other_does(a in filter(), b in filter(), made in made()) {
        let facts = Facts::of(&made.bytes());
        prop_assert!(!a.covers(&b) || !b.matches(&facts) || a.matches(&facts), "{:?} {:?}", a, b);
        prop_assert!(a.covers(&a) && Filter::ANY.covers(&a) && Filter::ANY.matches(&facts));
    }

    #[test]
    fn a_mirrored_filter_matches_the_other_direction(filter in filter(), made in made()) {
        let (there, back) = (Facts::of(&made.bytes()), Facts::of(&made.reversed().bytes()));
        prop_assert_eq!(filter.matches(&there), filter.mirrored().matches(&back));
    }

    #[test]
    fn rules_that_are_called_symmetric_bring_both_directions_to_one_queue(
        list in rules(3), mirror in any::<bool>(), made in made(),
    ) {
        // Few lists are symmetric by chance.
        let both = list.iter().flat_map(|rule| [*rule, Rule { filter: rule.filter.mirrored(), ..*rule }]);
        let mut kept = Vec::new();
        for rule in both.filter(|_| mirror) {
            kept.push(rule);
            if Rules::new(kept.iter().copied()).is_err() {
                kept.pop();
            }
        }
        let list = if mirror { Rules::new(kept).unwrap() } else { list };
        if list.is_symmetric() {
            prop_assert_eq!(list.queue_of(&made.bytes()), list.queue_of(&made.reversed().bytes()), "{:?}", list);
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides(list in rules(4), made in made(), changes in mutations()) {
        let frame = mutated(made.bytes(), &changes);
        let facts = Facts::of(&frame);
        let mut expected = None;
        for rule in list.iter() {
            if expected.is_none() && rule.filter.matches(&facts) {
                expected = Some(rule.queue);
            }
        }
        prop_assert_eq!(list.queue_of(&frame), expected);
    }
}

fn rule(filter: Filter, queue: u16) -> Rule {
    Rule { filter, queue }
}

#[test]
fn which_lists_are_symmetric() {
    let tcp = Filter::ANY.protocol(protocol::TCP);
    let (to, from) = (tcp.to_port(80), tcp.from_port(80));
    let net = Filter::ANY.from("10.0.0.0/8".parse().unwrap());
    let symmetric = |rules: Vec<Rule>| Rules::new(rules).unwrap().is_symmetric();
    assert!(symmetric(vec![rule(tcp, 1), rule(Filter::ANY.version(Version::V6), 0)]));
    assert!(symmetric(vec![rule(to, 1), rule(from, 1), rule(Filter::ANY, 0)]));
    assert!(symmetric(vec![rule(net, 1), rule(net.mirrored(), 1)]));
    assert!(!symmetric(vec![rule(to, 1)]));
    assert!(!symmetric(vec![rule(to, 1), rule(from, 0)]));
    assert!(!symmetric(vec![rule(to, 1), rule(net, 0), rule(from, 1)]), "what comes between may part them");
    assert!(!symmetric(vec![rule(Filter::ANY.in_vlan(10), 1)]), "a flow may come back by another VLAN");
}

/// The error about some rules, and the part of the text to which it points.
fn refused(text: &str) -> (String, String) {
    #[derive(Debug, serde::Deserialize)]
    struct Port {
        #[expect(dead_code, reason = "it is not read")]
        steer: Rules,
    }
    let error = toml::from_str::<Port>(text).unwrap_err();
    (error.message().to_owned(), text[error.span().unwrap()].to_owned())
}

#[test]
fn wrong_rules_are_refused_at_their_place() {
    for (list, at, part) in [
        ("[{ vlan = 4095, queue = 0 }]", "4095", "a VLAN's id, 0 (a tag with a priority only) to 4094"),
        ("[{ vlan = 'ten', queue = 0 }]", "'ten'", "found \"ten\""),
        ("[{ protocol = 'upd', queue = 0 }]", "'upd'", "an IP protocol such as \"udp\" or 17, found \"upd\""),
        ("[{ protocol = 256, queue = 0 }]", "256", "found 256"),
        ("[{ ethertype = 'arpp', queue = 0 }]", "'arpp'", "0x88cc or \"arp\""),
        ("[{ ip = 4, queue = 0 }]", "4", "\"v4\" or \"v6\""),
        ("[{ source = '10.0.0.1/8', queue = 0 }]", "'10.0.0.1/8'", "write 10.0.0.0/8"),
        ("[{ source = '10.0.0.0/33', queue = 0 }]", "'10.0.0.0/33'", "an address or a prefix"),
        ("[{ destination = ['10.0.0.0/8'], queue = 0 }]", "['10.0.0.0/8']", "found a list"),
        ("[{ protocol = 'tcp', source_port = 65536, queue = 0 }]", "65536", "a port, 0 to 65535"),
        ("[{ queue = 256 }]", "256", "a receive queue's number, 0 to 255"),
        ("[{ queue = -1 }]", "-1", "found -1"),
        ("[{ protocol = 'udp' }]", "{ protocol = 'udp' }", "a rule needs its `queue`"),
        ("[{ sorce = '10.0.0.1', queue = 0 }]", "sorce", "unknown field `sorce`"),
        ("[{ source_port = 53, queue = 0 }]", "{ source_port = 53, queue = 0 }", "needs a `protocol`"),
        ("[{ protocol = 'icmp', destination_port = 1, queue = 0 }]", "", "needs a `protocol` that has ports"),
        ("[{ ip = 'v4', source = '::1', queue = 0 }]", "", "`ip` and `source` are of different IP versions"),
        ("[{ ethertype = 'ipv6', source = '1.1.1.1', queue = 0 }]", "", "`source` and `ethertype`"),
        ("[{ ethertype = 'arp', protocol = 'udp', queue = 0 }]", "", "`protocol` is a field of IP"),
        ("[{ ethertype = 0x8100, queue = 0 }]", "", "give its id as `vlan`"),
        ("[{ ethertype = 46, queue = 0 }]", "", "an EtherType is 0x600 to 0xffff"),
        (
            "[{ ip = 'v4', queue = 0 }, { source = '10.0.0.0/8', queue = 1 }]",
            "{ source = '10.0.0.0/8', queue = 1 }",
            "all that it matches goes to queue 0 by rule 1 already; put it before that one",
        ),
        ("[{ queue = 1 }, { ip = 'v4', queue = 1 }]", "{ ip = 'v4', queue = 1 }", "take it out"),
        ("[3]", "3", "a rule such as"),
        ("3", "3", "a list of rules"),
    ] {
        let (message, place) = refused(&format!("steer = {list}"));
        assert!(message.contains(part), "{list}: {message}");
        assert!(at.is_empty() || place == at, "{list}: {place}");
    }
    let one = |port| format!("{{ queue = 0, protocol = 'udp', source_port = {port} }},");
    let many: String = (0..=MOST_RULES).map(one).collect();
    assert!(refused(&format!("steer = [{many}]")).0.contains("at most 64 rules"));
}

#[test]
fn rules_read_as_they_are_written() {
    #[derive(serde::Deserialize)]
    struct Port {
        steer: Rules,
    }
    let text = "[[steer]]\nethertype = 'lldp'\nqueue = 2\n[[steer]]\nvlan = 7\nip = 'v6'\nprotocol = 17\n\
                source = '2001:db8::/32'\ndestination = '::1'\nsource_port = 1\ndestination_port = 4789\nqueue = 1\n\
                [[steer]]\nqueue = 0\n";
    let read: Vec<Rule> = toml::from_str::<Port>(text).unwrap().steer.iter().copied().collect();
    let all = Filter::ANY
        .in_vlan(7)
        .version(Version::V6)
        .protocol(17)
        .from("2001:db8::/32".parse().unwrap())
        .to("::1".parse().unwrap())
        .from_port(1)
        .to_port(4789);
    let expected =
        [rule(Filter::ANY.ethertype(0x88cc), 2), rule(all.checked().unwrap(), 1), rule(Filter::ANY, 0)];
    assert_eq!(read, expected);
}

/// New rules come first, and old ones that are not among them hold where there is room.
#[test]
fn rules_of_two_graphs_hold_at_once_where_there_is_room() {
    let rule = |id, queue| Rule { filter: Filter::ANY.in_vlan(id), queue };
    let old = Rules::derived(vec![rule(1, 0), rule(2, 1)]);
    let new = Rules::derived(vec![rule(3, 1), rule(1, 2)]);
    let both = [rule(3, 1), rule(1, 2), rule(2, 1)];
    assert!(new.before(&old, 3).iter().eq(&both));
    assert_eq!(new.before(&old, 2), new);
}
