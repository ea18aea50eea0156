//! Filters against brute force: random small graphs, and every packet of a small world.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netbricks_packet::ethernet::ethertype;
use netbricks_packet::protocol;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::merge::{Ranked, merged, work};
use super::queues::{Fate, PathPort, PortRules, QueueRule, RuleLimits, derive};
use super::walk::{Path, WalkNode, Way, walk};
use super::{Certainty, Facts, Filter, Guard, Guards, IpFacts, Prefix};

const ADDRESSES: [[u8; 4]; 4] = [[10, 0, 0, 1], [10, 0, 0, 200], [10, 1, 0, 1], [192, 0, 2, 9]];
const PREFIXES: [([u8; 4], u8); 8] = [
    ([10, 0, 0, 0], 8),
    ([10, 0, 0, 0], 16),
    ([10, 1, 0, 0], 16),
    ([10, 0, 0, 0], 25),
    ([10, 0, 0, 128], 25),
    ([10, 0, 0, 1], 32),
    ([192, 0, 2, 0], 24),
    ([0, 0, 0, 0], 0),
];

/// Every packet of a small world: with and without VLAN, not IP, and IPv4 between four addresses.
fn packets() -> Vec<Facts> {
    let mut all = Vec::new();
    for vlan in [None, Some(1), Some(2)] {
        all.push(Facts { vlan, ethertype: ethertype::ARP, ip: None });
        all.push(Facts { vlan, ethertype: ethertype::IPV4, ip: None });
        for (source, destination) in
            ADDRESSES.iter().flat_map(|a| ADDRESSES.map(|b| (IpAddr::from(*a), b.into())))
        {
            for (protocol, ports) in
                [(protocol::ICMP, None), (protocol::TCP, Some((1, 2))), (protocol::TCP, Some((2, 1)))]
            {
                let ip = IpFacts { source, destination, protocol: Some(protocol), ports };
                all.push(Facts { vlan, ethertype: ethertype::IPV4, ip: Some(ip) });
            }
        }
    }
    all
}

fn prefix() -> impl Strategy<Value = Prefix> {
    select(PREFIXES.to_vec()).prop_map(|(address, len)| Prefix::new(address.into(), len).unwrap())
}

fn filter() -> impl Strategy<Value = Filter> {
    let field = prop_oneof![
        3 => prefix().prop_map(|prefix| Filter::ANY.to(prefix)),
        3 => prefix().prop_map(|prefix| Filter::ANY.from(prefix)),
        2 => (1u16..3).prop_map(|id| Filter::ANY.in_vlan(id)),
        1 => (1u16..3).prop_map(|port| Filter::ANY.protocol(protocol::TCP).to_port(port)),
        1 => (1u16..3).prop_map(|port| Filter::ANY.protocol(protocol::TCP).from_port(port)),
        1 => Just(Filter::ANY.protocol(protocol::ICMP)),
        1 => Just(Filter::ANY.ethertype(ethertype::ARP)),
    ];
    field.prop_map(|filter| filter.checked().unwrap())
}

/// A node: a list of filters, each with its edge, of which the first that matches decides.
///
/// Where it changes headers, nothing is known of it. Where it is vague, it says of each way that any packet may take it.
#[derive(Clone, Debug)]
struct Made {
    list: Vec<(Filter, usize)>,
    rest: usize,
    /// By edge: the number of nodes to go on, 0 for dropped.
    skips: Vec<usize>,
    opaque: bool,
    vague: bool,
    state: Option<usize>,
    packets: u64,
}

fn made() -> impl Strategy<Value = Made> {
    let list = vec((filter(), 0usize..3), 0..4);
    let state = prop_oneof![2 => Just(None), 1 => (0usize..3).prop_map(Some)];
    let kind = (prop::bool::weighted(0.2), prop::bool::weighted(0.1));
    (list, 0usize..3, vec(0usize..4, 3), kind, state, 0u64..1000).prop_map(
        |(list, rest, skips, (opaque, vague), state, packets)| Made {
            list,
            rest,
            skips,
            opaque,
            vague,
            state,
            packets,
        },
    )
}

impl Made {
    fn edge(&self, facts: &Facts) -> usize {
        self.list.iter().find(|(filter, _)| filter.matches(facts)).map_or(self.rest, |(_, edge)| *edge)
    }
    fn guards(&self, edge: usize) -> Guards {
        if self.opaque {
            return Guards::Unknown;
        }
        if self.vague {
            return Guards::Any;
        }
        let listed = self.list.iter().enumerate().filter(|(_, (_, to))| *to == edge);
        let mut guards: Vec<Guard> =
            listed.map(|(rank, (filter, _))| Guard::certain(rank as u16, *filter)).collect();
        if self.rest == edge {
            guards.push(Guard::certain(u16::MAX, Filter::ANY));
        }
        Guards::Only(guards)
    }
}

/// The graph: node 0 receives, and each node leads to later ones only.
fn graph(made: &[Made]) -> Vec<WalkNode> {
    let mut nodes = vec![WalkNode {
        name: "receive".into(),
        ways: vec![Way { guards: Guards::Any, to: Some(1) }],
        ..WalkNode::default()
    }];
    for (number, node) in made.iter().enumerate() {
        let to = |edge: usize| target(made, number, edge);
        nodes.push(WalkNode {
            name: format!("n{number}"),
            ends: node.state.is_some(),
            states: node.state.into_iter().collect(),
            ways: (0..3).map(|edge| Way { guards: node.guards(edge), to: to(edge) }).collect(),
            packets: node.packets,
        });
    }
    // The last place sends.
    nodes.push(WalkNode { name: "send".into(), ..WalkNode::default() });
    nodes
}

fn target(made: &[Made], number: usize, edge: usize) -> Option<usize> {
    let skip = made[number].skips[edge];
    (skip > 0).then(|| (number + 1 + skip).min(made.len() + 1))
}

/// The path that a packet really takes, as the branches behind which it went.
fn taken(made: &[Made], nodes: &[WalkNode], facts: &Facts) -> Vec<Option<usize>> {
    let (mut here, mut branches) = (1, Vec::new());
    while here <= made.len() {
        let node = &made[here - 1];
        if node.state.is_some() || node.opaque {
            break;
        }
        let ways = nodes[here].ways.iter().filter(|way| !way.guards.is_never());
        let mut targets: Vec<_> = ways.map(|way| way.to).collect();
        targets.sort_unstable();
        targets.dedup();
        if node.vague && targets.len() > 1 {
            break;
        }
        let next = target(made, here - 1, node.edge(facts));
        if targets.len() > 1 {
            branches.push(next);
        }
        let Some(next) = next else { break };
        here = next;
    }
    branches
}

fn queue_of(rules: &[QueueRule], facts: &Facts) -> Option<u16> {
    rules.iter().find(|rule| rule.filter.matches(facts)).map(|rule| rule.queue)
}

fn any_rule(_: &Filter) -> bool {
    true
}

fn port(paths: Vec<Path>, queues: usize, most: usize) -> PathPort {
    let limits = Some(RuleLimits { most, accepts: any_rule });
    PathPort { paths, workers: (0..queues).collect(), limits }
}

fn mirrored(facts: &Facts) -> Facts {
    let ip = facts.ip.map(|ip| IpFacts {
        source: ip.destination,
        destination: ip.source,
        ports: ip.ports.map(|(from, to)| (to, from)),
        ..ip
    });
    Facts { ip, ..*facts }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// `and` is the intersection, and `covers` and `mirrored` say what they mean.
    #[test]
    fn a_conjunction_matches_what_both_match(one in filter(), other in filter(), third in filter()) {
        let pair = one.and(&other);
        let three = pair.and_then(|pair| pair.and(&third));
        for facts in packets() {
            let both = one.matches(&facts) && other.matches(&facts);
            prop_assert_eq!(pair.is_some_and(|pair| pair.matches(&facts)), both);
            let all = both && third.matches(&facts);
            prop_assert_eq!(three.is_some_and(|three| three.matches(&facts)), all);
            if one.covers(&other) {
                prop_assert!(!other.matches(&facts) || one.matches(&facts));
            }
            prop_assert_eq!(one.mirrored().matches(&mirrored(&facts)), one.matches(&facts));
        }
    }

    /// A filter's text is read as the same filter.
    #[test]
    fn a_filter_is_read_as_it_is_written(one in filter(), other in filter()) {
        for filter in [Some(one), one.and(&other)].into_iter().flatten() {
            // A port may stand without the protocol that it needs.
            let Ok(filter) = filter.checked() else { continue };
            prop_assert_eq!(filter.to_string().parse(), Ok(filter));
        }
    }

    /// No packet misses a guard of its path, and the guards with the lowest ranks name its path.
    #[test]
    fn guards_hold_for_every_packet_of_a_path(made in vec(made(), 1..6)) {
        let nodes = graph(&made);
        let paths = walk(&nodes, 0);
        for facts in packets() {
            let branches = taken(&made, &nodes, &facts);
            let path = paths.iter().find(|path| path.branches == branches);
            prop_assert!(path.is_some_and(|path| path.guards.iter().any(|guard| guard.filter.matches(&facts))),
                "{facts:?} takes {branches:?}, of {paths:#?}");
            let best = paths
                .iter()
                .flat_map(|path| path.guards.iter().map(move |guard| (guard, path)))
                .filter(|(guard, _)| guard.filter.matches(&facts))
                .min_by(|one, other| one.0.ranks.cmp(&other.0.ranks));
            prop_assert_eq!(best.map(|(_, path)| &path.branches), Some(&branches));
        }
    }

    /// A packet that a rule sends to a queue is on its path, or on one without rules.
    ///
    /// There is room for all rules. Merging and the order of the rules change nothing.
    #[test]
    fn rules_send_packets_to_the_queue_of_their_path(made in vec(made(), 1..6), queues in 1usize..4) {
        let nodes = graph(&made);
        let ports = [port(walk(&nodes, 0), queues, usize::MAX)];
        let PortRules { rules, fates } = &derive(&ports, &|_, _| None)[0];
        for facts in packets() {
            let branches = taken(&made, &nodes, &facts);
            let path = ports[0].paths.iter().position(|path| path.branches == branches).unwrap();
            match (fates[path], queue_of(rules, &facts)) {
                (Fate::Queue(queue), found) => prop_assert_eq!(found, Some(queue), "{:?}", facts),
                // Its own rules would have come before these.
                (_, Some(_)) => {
                    let ruled = ports[0].paths.iter().zip(fates).any(|(path, fate)| {
                        matches!(fate, Fate::Queue(_))
                            && path.guards.iter().any(|guard| guard.filter.matches(&facts))
                    });
                    prop_assert!(ruled);
                }
                (_, None) => {}
            }
        }
    }

    /// Rules are as many as the port takes, and the heaviest path has them if any of equal cost has.
    #[test]
    fn rules_fit_and_go_to_the_heaviest_paths(made in vec(made(), 1..6), most in 0usize..6) {
        let paths = walk(&graph(&made), 0);
        let ports = [port(paths, 2, most)];
        let derived = &derive(&ports, &|_, _| None)[0];
        prop_assert!(derived.rules.len() <= most, "{:?}", derived.rules);
        let cost = |path: &Path| path.guards.iter().filter(|guard| guard.certainty == Certainty::Certain).count();
        // Of paths without state, a heavier one of one rule is never left out for a lighter one of as many.
        for (heavy, fate) in ports[0].paths.iter().zip(&derived.fates) {
            if !matches!(fate, Fate::NoRoom(_)) || cost(heavy) != 1 || !heavy.states.is_empty() {
                continue;
            }
            for (light, fate) in ports[0].paths.iter().zip(&derived.fates) {
                if cost(light) == 1 && light.states.is_empty() {
                    prop_assert!(!matches!(fate, Fate::Queue(_)) || light.packets >= heavy.packets);
                }
            }
        }
    }

    /// Both directions of a flow come to one worker where they meet in state, on one port and on two.
    #[test]
    fn rules_do_not_part_the_directions_of_a_flow(
        left in vec(made(), 1..5), right in vec(made(), 1..5), queues in 1usize..4, steered in any::<bool>(),
    ) {
        let (one, two) = (graph(&left), graph(&right));
        let mut ports = [port(walk(&one, 0), queues, usize::MAX), port(walk(&two, 0), queues, usize::MAX)];
        if !steered {
            ports[1].limits = None;
        }
        let derived = derive(&ports, &|_, _| None);
        let state = |port: usize, facts: &Facts| {
            let (made, nodes) = if port == 0 { (&left, &one) } else { (&right, &two) };
            let branches = taken(made, nodes, facts);
            let path = ports[port].paths.iter().position(|path| path.branches == branches).unwrap();
            (ports[port].paths[path].states.clone(), derived[port].fates[path])
        };
        for facts in packets().into_iter().filter(|facts| facts.ip.is_some()) {
            let back = mirrored(&facts);
            for (here, there) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let ((ours, fate), (theirs, _)) = (state(here, &facts), state(there, &back));
                let Fate::Queue(queue) = fate else { continue };
                if ours.is_disjoint(&theirs) || queues == 1 {
                    continue;
                }
                // Otherwise the port's hash would choose.
                prop_assert_eq!(queue_of(&derived[there].rules, &back), Some(queue), "{:?}", facts);
            }
        }
    }

    /// A path that has had a queue keeps its worker.
    #[test]
    fn paths_stay_with_their_worker(made in vec(made(), 1..6), shift in 1u64..1000) {
        let mut nodes = graph(&made);
        let before = [port(walk(&nodes, 0), 3, usize::MAX)];
        let first = derive(&before, &|_, _| None);
        for (number, node) in nodes.iter_mut().enumerate() {
            node.packets = node.packets.wrapping_mul(shift).wrapping_add(number as u64);
        }
        let after = [port(walk(&nodes, 0), 3, usize::MAX)];
        let had: BTreeMap<_, _> = before[0].paths.iter().map(|path| path.branches.clone()).zip(&first[0].fates).collect();
        let again = derive(&after, &|_, path| match had.get(&after[0].paths[path].branches) {
            Some(Fate::Queue(queue)) => Some(usize::from(*queue)),
            _ => None,
        });
        for (path, fate) in after[0].paths.iter().zip(&again[0].fates) {
            prop_assert_eq!(Some(&fate), had.get(&path.branches), "{:?}", path);
        }
    }
}

/// One port sends 10.0.0.0/8 to state, and the other port, which has no rules, leads to the same state.
///
/// Its packets may be answers, and come to any worker.
#[test]
fn a_path_whose_answers_come_by_a_port_without_rules_has_none() {
    let to = Filter::ANY.to("10.0.0.0/8".parse().unwrap()).checked().unwrap();
    let only = |rank, filter| Guards::Only(vec![Guard::certain(rank, filter)]);
    let ways = [(0, to, 2), (1, Filter::ANY.in_vlan(2), 3), (2, Filter::ANY, 4)];
    let ways = ways.map(|(rank, filter, to)| Way { guards: only(rank, filter), to: Some(to) });
    let nodes = [
        WalkNode { ways: ways.to_vec(), ..WalkNode::default() },
        WalkNode { ways: vec![Way { guards: Guards::Any, to: Some(2) }], ..WalkNode::default() },
        WalkNode { ends: true, states: vec![0], ..WalkNode::default() },
        WalkNode::default(),
        WalkNode::default(),
    ];
    let fate = |queues, limits| {
        let other = PathPort { limits, ..port(walk(&nodes, 1), queues, 8) };
        derive(&[port(walk(&nodes, 0), queues, 8), other], &|_, _| None)[0].fates.clone()
    };
    assert_eq!(fate(2, None), [Fate::Parted, Fate::Queue(1), Fate::Rest]);
    assert_eq!(fate(1, None), [Fate::Queue(0), Fate::Queue(0), Fate::Rest], "one worker has both directions");
    let limits = Some(RuleLimits { most: 8, accepts: any_rule });
    let steered = fate(2, limits);
    assert_eq!(
        steered,
        [Fate::Queue(0), Fate::Queue(1), Fate::Rest],
        "the other port sends all to that worker"
    );
}

/// A filter by a source, a destination or both, out of four addresses.
fn pair() -> impl Strategy<Value = Filter> {
    let prefix = || {
        prop::option::weighted(0.7, (0u8..4, 30u8..=32))
            .prop_map(|prefix| prefix.map(|(host, len)| Prefix::around([10, 0, 0, host].into(), len)))
    };
    (prefix(), prefix()).prop_map(|(source, destination)| {
        let filter = Filter { source, destination, ..Filter::ANY };
        filter.checked().unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// For every packet, the first rule that matches has the queue that it had before rules were merged.
    #[test]
    fn merged_rules_have_the_same_effect(rules in vec((pair(), 0u16..2), 0..24)) {
        let ranked = |(place, (filter, queue)): (usize, &(Filter, u16))| (vec![place as u16], *filter, *queue);
        let merged = merged(rules.iter().enumerate().map(ranked).collect::<Vec<Ranked>>());
        prop_assert!(merged.len() <= rules.len());
        let hosts = || (0..4).map(|host| [10, 0, 0, host]).chain([[192, 0, 2, 1]]);
        for (source, destination) in hosts().flat_map(|one| hosts().map(move |other| (one, other))) {
            let ip = IpFacts { source: source.into(), destination: destination.into(), protocol: Some(17), ports: None };
            let facts = Facts { vlan: None, ethertype: ethertype::IPV4, ip: Some(ip) };
            let before = rules.iter().find(|(filter, _)| filter.matches(&facts)).map(|(_, queue)| *queue);
            prop_assert_eq!(queue_of(&merged, &facts), before, "{:?}, {:#?}", facts, merged);
        }
    }
}

/// The second rule is half of a whole with the first, and then no more with the third.
#[test]
fn a_rule_is_joined_once() {
    let rule = |place: u16, from: &str, to: &str| {
        let filter = Filter::ANY.from(from.parse().unwrap()).to(to.parse().unwrap());
        (vec![place], filter.checked().unwrap(), 0)
    };
    let pairs =
        [("10.0.0.1/32", "10.1.0.0/32"), ("10.0.0.0/32", "10.1.0.0/32"), ("10.0.0.0/32", "10.1.0.1/32")];
    let rules = merged((0..).zip(pairs).map(|(place, (from, to))| rule(place, from, to)).collect());
    let is_covered = |(from, to): &(&str, &str)| {
        let (_, filter, _) = rule(0, from, to);
        rules.iter().any(|rule| rule.filter.covers(&filter))
    };
    assert!(pairs.iter().all(is_covered), "{rules:?}");
    assert_eq!(rules.len(), 2);
}

/// Each tenant has networks that cannot be joined, of three lengths, at two ports, and state by flow.
///
/// Returns the comparisons and lookups, and the rules of a port.
fn work_of(tenants: usize, networks: usize) -> (u64, usize) {
    let only = |guards| Guards::Only(guards);
    let network = |number: usize| {
        let address = (10 << 24 | (number as u32) << 8).to_be_bytes();
        Prefix::around(address.into(), 28 + (number % 3) as u8)
    };
    let tenant = |tenant: usize| {
        let own = move || (0..networks).map(move |number| network(tenant + number * tenants));
        let to = own().map(|prefix| Guard::certain(1, Filter::ANY.to(prefix).checked().unwrap()));
        let from = own().map(|prefix| Guard::certain(2, Filter::ANY.from(prefix).checked().unwrap()));
        Way { guards: only(to.chain(from).collect()), to: Some(2 + tenant) }
    };
    let mut ways: Vec<Way> = (0..tenants).map(tenant).collect();
    ways.push(Way { guards: only(vec![Guard::certain(9, Filter::ANY)]), to: Some(2 + tenants) });
    let mut nodes = vec![WalkNode { ways, ..WalkNode::default() }; 2];
    nodes.extend((0..tenants).map(|state| WalkNode {
        ends: true,
        states: vec![state],
        ..WalkNode::default()
    }));
    nodes.push(WalkNode::default());
    let ports = [0, 1].map(|node| port(walk(&nodes, node), 2, usize::MAX));
    let before = work::counted();
    let derived = derive(&ports, &|_, _| None);
    (work::counted() - before, derived[0].rules.len())
}

/// Rules are compared with those that can matter to them, not with all others.
#[test]
fn the_work_grows_with_the_rules_and_not_with_their_square() {
    for (tenants, networks) in [(1, 4_096), (64, 64), (250, 16)] {
        let (work, rules) = work_of(tenants, networks);
        assert_eq!(rules, 2 * tenants * networks);
        assert!(work < 200 * rules as u64, "{work} for {rules} rules of {tenants} tenants");
    }
}

#[test]
fn halves_of_a_prefix_become_one_rule() {
    let to = |text: &str| Filter::ANY.to(text.parse().unwrap()).checked().unwrap();
    let quarters = ["10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26", "10.0.0.192/26"];
    let branch = |number| Way {
        guards: Guards::Only(quarters.map(to).into_iter().map(|filter| Guard::certain(0, filter)).collect()),
        to: Some(number),
    };
    let rest = Way { guards: Guards::Only(vec![Guard::certain(9, Filter::ANY)]), to: Some(2) };
    let nodes = [
        WalkNode { ways: vec![branch(1), rest], ..WalkNode::default() },
        WalkNode::default(),
        WalkNode::default(),
    ];
    let derived = derive(&[port(walk(&nodes, 0), 2, 8)], &|_, _| None);
    assert_eq!(derived[0].rules, [QueueRule { filter: to("10.0.0.0/24"), queue: 0 }]);
    assert_eq!(derived[0].fates, [Fate::Queue(0), Fate::Rest]);
}

/// Node 1 lets packets pass to node 2, with a state; its answers go to node 3, with another one.
#[test]
fn answers_of_a_node_on_the_way_meet_states_too() {
    let never = Guards::Only(Vec::new());
    let way = |guards: &Guards, to| Way { guards: guards.clone(), to: Some(to) };
    let state = |number| WalkNode { ends: true, states: vec![number], ..WalkNode::default() };
    let nodes = [
        WalkNode { ways: vec![way(&Guards::Any, 1)], ..WalkNode::default() },
        WalkNode { ways: vec![way(&Guards::Any, 2), way(&never, 3)], ..WalkNode::default() },
        state(0),
        state(1),
    ];
    let paths = walk(&nodes, 0);
    assert_eq!(paths.len(), 1, "{paths:?}");
    assert_eq!(paths[0].states, [0, 1].into());
    assert!(paths[0].branches.is_empty(), "there is one way for packets that come: {paths:?}");
}

/// Two nodes that each have a thousand guards and more: the walk compares no million of pairs.
#[test]
fn a_path_ends_before_a_node_with_too_many_guards() {
    let many = |count: u32| {
        let network = |number: u32| Prefix::around((number << 8).to_be_bytes().into(), 24);
        let to = |number| Filter::ANY.to(network(number)).checked().unwrap();
        Guards::Only((0..count).map(|number| Guard::certain(0, to(number))).collect())
    };
    let paths = |count| {
        let node = |to: usize, guards: &Guards| WalkNode {
            ways: vec![
                Way { guards: guards.clone(), to: Some(to) },
                Way { guards: Guards::Only(vec![Guard::certain(1, Filter::ANY)]), to: Some(4) },
            ],
            ..WalkNode::default()
        };
        let ends = || WalkNode::default();
        walk(&[node(1, &many(1_025)), node(2, &many(count)), ends(), ends(), ends()], 0)
    };
    let branches = |count| paths(count).iter().map(|path| path.branches.clone()).collect::<Vec<_>>();
    assert_eq!(branches(1_022), [vec![Some(1), Some(2)], vec![Some(1), Some(4)], vec![Some(4)]]);
    assert_eq!(branches(1_024), [vec![Some(1)], vec![Some(4)]]);
}

#[test]
fn a_wrong_filter_is_refused_with_the_part_that_is_wrong() {
    let refused = |text: &str| text.parse::<Filter>().unwrap_err().to_string();
    assert!(refused("udp, to harbour 53").ends_with("found \"to harbour 53\""));
    assert!(refused("tcp, udp").starts_with("\"udp\" is about a field that has a condition already"));
    assert!(refused("to port 53").starts_with("`destination_port` needs a `protocol`"));
    assert!(refused("to 10.0.0.1/8").contains("write 10.0.0.0/8"));
    assert!(refused("ipv4, to 2001:db8::/32").contains("different IP versions"));
    assert!(refused("vlan 70000").contains("found \"vlan 70000\""));
    assert!(refused("").ends_with("found \"\""));
    assert_eq!("all packets".parse(), Ok(Filter::ANY));
    let tagged = Filter::ANY.in_vlan(7).ethertype(0x88cc).checked();
    assert_eq!("ethertype 0x88cc, vlan 7".parse::<Filter>().ok(), tagged.ok());
}

#[test]
fn every_name_is_read_as_it_is_written() {
    let same = |filter: Filter| assert_eq!(filter.to_string().parse(), Ok(filter));
    (0..=u8::MAX).for_each(|number| same(Filter::ANY.protocol(number)));
    let named = (0x600..=u16::MAX).filter(|number| ethertype::name(*number).is_some());
    named
        .filter(|number| !ethertype::is_vlan(*number))
        .for_each(|number| same(Filter::ANY.ethertype(number)));
}
