use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::consistency::Shares;
use netbricks_core::packet::Link;
use netbricks_core::{DetachedContext, Function, Input, Node, Operator, Registry, Settings, Worker, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{kinds, run_configured};
use proptest::prelude::*;
use toml::de::DeTable;

use super::{LpmSettings, NEXT_HOP, Route, lpm, lpm_counted, node, routes};

/// Writes a packet's annotation in place of its Ethernet destination.
fn stamp(input: Input, worker: &Worker) -> impl Function {
    let next_hop = worker.annotation::<u32>(NEXT_HOP);
    input
        .parse::<Link>()
        .transform(move |packet| {
            let found = packet.annotation(next_hop);
            let [a, b, c, d] = found.unwrap_or(0).to_be_bytes();
            let mut link = packet.header_mut();
            let ethernet = link.ethernet_mut();
            ethernet.set_destination([0, u8::from(found.is_some()), a, b, c, d].into());
        })
        .done()
}

fn counting(count: bool, routes: impl IntoIterator<Item = Route>) -> LpmSettings {
    let mut settings = LpmSettings::of(routes);
    settings.count = count;
    settings
}

fn stamps(settings: LpmSettings, frames: &[Vec<u8>]) -> Vec<Option<u32>> {
    let report = if settings.count {
        run_configured(
            |input, config, worker| lpm_counted(input, config, worker).then(|i| stamp(i, worker)),
            settings,
            frames.to_vec(),
        )
    } else {
        run_configured(
            |input, config, worker| lpm(input, config, worker).then(|i| stamp(i, worker)),
            settings,
            frames.to_vec(),
        )
    };
    assert_eq!(report.out.len(), frames.len());
    let stamped = |(frame, before): (&Vec<u8>, &Vec<u8>)| {
        assert_eq!(frame[6..], before[6..], "nothing else changed");
        let number = u32::from_be_bytes(frame[2..6].try_into().unwrap());
        (frame[1] != 0).then_some(number)
    };
    report.out.iter().zip(frames).map(stamped).collect()
}

fn frame_to(address: IpAddr, tagged: bool) -> Vec<u8> {
    match (address, tagged) {
        (IpAddr::V4(address), false) => ethernet().ipv4("10.0.0.1", address).udp(1, 2).build(),
        (IpAddr::V4(address), true) => ethernet().vlan(5).ipv4("10.0.0.1", address).udp(1, 2).build(),
        (IpAddr::V6(address), false) => ethernet().ipv6("2001:db8::1", address).tcp(1, 2).build(),
        (IpAddr::V6(address), true) => ethernet().vlan(5).ipv6("2001:db8::1", address).tcp(1, 2).build(),
    }
    .unwrap()
}

fn longest(routes: &[Route], address: IpAddr) -> Option<u32> {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (4, u128::from(address.to_bits()) << 96),
        IpAddr::V6(address) => (6, address.to_bits()),
    };
    let holds = |route: &&Route| {
        let ((version, prefix), (other, address)) = (bits(route.prefix), bits(address));
        version == other && (prefix ^ address).leading_zeros() >= u32::from(route.len)
    };
    routes.iter().filter(holds).max_by_key(|route| route.len).map(|route| route.next_hop)
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0u32..4, 0u32..3, prop::sample::select(vec![0u32, 1, 0x80, 0xff]))
            .prop_map(|(a, b, c)| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | a << 16 | b << 8 | c))),
        (0u128..4, 0u128..3)
            .prop_map(|(a, b)| IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | a << 80 | b))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn the_longest_prefix_decides(
        prefixes in prop::collection::btree_map((address(), prop::sample::select(vec![0u8, 8, 14, 16, 22, 24, 25, 31, 32, 128])), any::<u32>(), 1..12),
        packets in prop::collection::vec((address(), any::<bool>()), 0..80),
    ) {
        let routes: std::collections::BTreeMap<_, _> = prefixes.into_iter().map(|((address, len), next_hop)| {
            let (prefix, len) = match address {
                IpAddr::V4(a) => (IpAddr::V4(netbricks_core::tables::Address::truncated(a, len.min(32))), len.min(32)),
                IpAddr::V6(a) => (IpAddr::V6(netbricks_core::tables::Address::truncated(a, len)), len),
            };
            ((prefix, len), Route { prefix, len, next_hop })
        }).collect();
        let routes: Vec<Route> = routes.into_values().collect();
        let frames: Vec<_> = packets.iter().map(|(address, tagged)| frame_to(*address, *tagged)).collect();
        let expected: Vec<_> = packets.iter().map(|(address, _)| longest(&routes, *address)).collect();
        for count in [false, true] {
            let settings = counting(count, routes.clone());
            prop_assert_eq!(stamps(settings, &frames), expected.clone());
        }
    }

    #[test]
    fn any_text_is_routes_or_an_error_with_its_place(text in "(([0-9a-f:./ #]{0,9}|[0-9]{1,3}(\\.[0-9]{1,3}){3}/[0-9]{1,2} [0-9]{1,3}|é|\t){0,4}\n?){0,4}") {
        for (line, error) in routes(&text).err().into_iter().flatten() {
            let wrong = text.lines().nth(line - 1).unwrap();
            prop_assert!((1..=wrong.chars().count() + 1).contains(&error.column), "{error:?} in {wrong:?}");
        }
    }
}

#[test]
fn every_kind_passes_unchanged() {
    let frames: Vec<_> =
        kinds::every().into_iter().filter(|(name, _)| *name != "runt").map(|(_, frame)| frame).collect();
    let settings = LpmSettings::of([route("::/0 1"), route("0.0.0.0/0 2")]);
    assert_eq!(run_configured(lpm, settings, frames.clone()).out, frames);
}

/// Sends frames through these nodes of one graph, one node after the other.
fn through(nodes: &mut [Box<dyn Node>], pool: &Pool, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut cx = DetachedContext::new(pool.clone());
    let mut batch = Batch::new();
    for frame in frames {
        batch.push(pool.packet(frame).unwrap()).unwrap();
    }
    nodes.iter_mut().for_each(|node| node.process(0, &mut batch, &mut cx));
    batch.iter().map(|packet| packet.data().to_vec()).collect()
}

#[test]
fn the_next_node_reads_the_annotation_and_the_next_packet_in_the_buffer_does_not() {
    let pool = Pool::builder().frames(64).build().unwrap();
    let worker = Worker::new(0, 1, pool.clone());
    // Each with its own state: nodes of one worker value would share their routes.
    let node = |settings: LpmSettings| {
        let worker = worker.sharing(&Shares::default());
        compose(&worker, |input| lpm(input, &settings, &worker)).unwrap()
    };
    let stamping = || compose(&worker, |input| stamp(input, &worker)).unwrap();
    let frames = [
        frame_to("10.1.2.3".parse().unwrap(), false),
        ethernet().arp_request("10.0.0.1", "10.0.0.2").build().unwrap(),
    ];
    let stamps = |nodes: &mut [Box<dyn Node>]| -> Vec<(u8, u8)> {
        through(nodes, &pool, &frames).iter().map(|frame| (frame[1], frame[5])).collect()
    };
    let routed = || node(LpmSettings::of([route("10.0.0.0/8 7")]));
    assert_eq!(stamps(&mut [routed(), stamping()]), [(1, 7), (0, 0)]);
    // The same buffers again: the annotation is gone.
    assert_eq!(stamps(&mut [stamping()]), [(0, 0), (0, 0)]);
    // An `lpm` that finds no route removes the annotation of another.
    let elsewhere = node(LpmSettings::of([route("192.0.2.0/24 9")]));
    assert_eq!(stamps(&mut [routed(), elsewhere, stamping()]), [(0, 0), (0, 0)]);
}

fn route(text: &str) -> Route {
    text.parse().unwrap()
}

#[test]
fn a_wrong_route_is_an_error_that_says_where_and_what_would_do() {
    let all = |text: &str| -> Vec<_> {
        routes(text).unwrap_err().into_iter().map(|(line, e)| (line, e.column, e.problem)).collect()
    };
    let wrong = |text: &str| all(text).remove(0);
    for (text, line, column, part) in [
        ("10.0.0.0/8 1\n10.0.0.0 2", 2, 1, "expected a prefix as `192.0.2.0/24`"),
        ("10.0.0.0/33 1", 1, 1, "give a length of 0 to 32"),
        ("  2001:db8::/129 1", 1, 3, "give a length of 0 to 128"),
        ("\n# nothing\n10.0.0.1/8 1", 3, 1, "write `10.0.0.0/8`"),
        ("10.0.0.0/8", 1, 11, "expected a next hop (a number) behind `10.0.0.0/8`"),
        ("10.0.0.0/8 east", 1, 12, "expected a next hop (a number, 0 to 4294967295), found `east`"),
        ("10.0.0.0/8 1 2", 1, 14, "expected nothing behind the next hop, found `2`"),
        ("10.0.0.0/8 1\n\n 10.0.0.0/8 2", 3, 2, "10.0.0.0/8 stands in line 1 already"),
        ("10.0.0.300/8 1", 1, 1, "found `10.0.0.300/8`"),
        ("10.0.0.0/+8 1", 1, 1, "found `10.0.0.0/+8`"),
        ("10.0.0.0/8 +1", 1, 12, "found `+1`"),
    ] {
        let (at_line, at_column, problem) = wrong(text);
        assert_eq!((at_line, at_column), (line, column), "{text:?}: {problem}");
        assert!(problem.contains(part), "{text:?}: {problem}");
    }
    let read = routes("10.0.0.0/8\t1 # ours\n\n::/0 4294967295\n").unwrap();
    assert_eq!(read, [(1, route("10.0.0.0/8 1")), (3, route("::/0 4294967295"))]);
    // Every fault, in order; a wrong route does not count as the first use of a prefix.
    let places: Vec<_> = all("10.0.0.0/8\n10.0.0.0/8 1\nx\n10.0.0.0/8 2\n10.0.0.0/8 3\n")
        .into_iter()
        .map(|(line, column, _)| (line, column))
        .collect();
    assert_eq!(places, [(1, 11), (3, 1), (4, 1), (5, 1)]);
}

/// Rows of the report: the name and the number of each.
fn reported(node: &mut dyn Node) -> Vec<(String, u64)> {
    let section = node.report().remove(0);
    assert_eq!((section.title.as_str(), section.columns.join(" ")), ("next hops", "next hop packets".into()));
    section.rows.into_iter().map(|row| (row[0].clone(), row[1].parse().unwrap())).collect()
}

#[test]
fn the_report_says_where_packets_went() {
    let routes = ["10.0.0.0/8 7", "10.1.0.0/16 300", "10.2.0.0/16 7", "2001:db8::/32 9", "192.0.2.0/24 1"];
    let addresses =
        ["10.1.2.3", "10.2.2.3", "10.3.2.3", "2001:db8::5", "2001:db9::5", "172.16.0.1", "10.3.2.4"];
    let frames = addresses.map(|address| frame_to(address.parse().unwrap(), address.ends_with('4')));
    let report = |count: bool, workers: usize| {
        let settings = counting(count, routes.map(route));
        // Packets are dealt to the workers in turn, and their reports are merged.
        let mut sections = (0..workers).map(|index| {
            let pool = Pool::builder().frames(64).build().unwrap();
            let worker = Worker::new(index, 1, pool.clone());
            let mut nodes = [node(&settings, &worker).unwrap()];
            let own: Vec<_> = frames.iter().skip(index).step_by(workers).cloned().collect();
            through(&mut nodes, &pool, &own);
            nodes[0].report().remove(0)
        });
        let mut all = sections.next().unwrap();
        sections.for_each(|section| all.absorb(&section));
        let mut rows: Vec<_> = all.rows.into_iter().map(|row| row.join(" ")).collect();
        rows.sort();
        rows
    };
    for workers in [1, 2] {
        // A next hop without packets has no row.
        assert_eq!(report(true, workers), ["300 1", "7 3", "9 1", "no route 2"], "{workers}");
        assert_eq!(report(false, workers), ["no route 2"], "{workers}");
    }
}

/// Packets without a route go on in a successor's counter; the counts in its report start at 0.
/// 0.
#[test]
fn a_successor_reports_its_own_packets() {
    let frames = ["10.1.2.3", "172.16.0.1", "172.16.0.2"].map(|to| frame_to(to.parse().unwrap(), false));
    for (count, expected) in [(true, &[("7", 1), ("no route", 2)][..]), (false, &[("no route", 2)])] {
        let settings = counting(count, [route("10.0.0.0/8 7")]);
        let pool = Pool::builder().frames(64).build().unwrap();
        let made = || node(&settings, &Worker::new(0, 1, pool.clone())).unwrap();
        let (mut before, mut after) = ([made()], [made()]);
        through(&mut before, &pool, &frames);
        for (name, image) in before[0].export() {
            after[0].import(&name, &image, 1).unwrap();
        }
        through(&mut after, &pool, &frames);
        assert_eq!(after[0].call("no-route.occupancy", "").unwrap().split(' ').next(), Some("4"));
        let expected: Vec<_> =
            expected.iter().map(|(name, packets)| ((*name).to_owned(), *packets)).collect();
        assert_eq!(reported(after[0].as_mut()), expected);
    }
}

/// Each of more than 256 next hops has its own count.
#[test]
fn many_next_hops_are_counted_apart() {
    let hops = 0..700u32;
    let routes = hops.clone().map(|hop| route(&format!("10.{}.{}.0/24 {}", hop >> 8, hop & 0xff, hop * 3)));
    let settings = counting(true, routes);
    let pool = Pool::builder().frames(64).build().unwrap();
    let mut nodes = [node(&settings, &Worker::new(0, 1, pool.clone())).unwrap()];
    for hop in hops.clone() {
        let frame = frame_to(format!("10.{}.{}.9", hop >> 8, hop & 0xff).parse().unwrap(), false);
        through(&mut nodes, &pool, &vec![frame; 1 + hop as usize % 3]);
    }
    let expected = hops.map(|hop| ((hop * 3).to_string(), u64::from(1 + hop % 3)));
    assert_eq!(reported(nodes[0].as_mut()), expected.chain([("no route".into(), 0)]).collect::<Vec<_>>());
}

/// The same holds for `maglev`, whose backends are such a list, too.
#[test]
fn a_wrong_item_of_a_list_is_pointed_at() {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    for (function, text, item) in [
        ("lpm", "routes = [\"192.0.2.0/24 7\", \"198.51.100.0/33 8\"]", "\"198.51.100.0/33 8\""),
        ("lpm", "routes = [\n  \"192.0.2.0/24 7\",\n  'x',\n]", "'x'"),
        ("lpm", "routes = [\"192.0.2.0/24 7\", 8]", "8"),
        ("lpm", "routes = [\"::/0 7\", \"0.0.0.0/0 7\", \"::/0 8\", \"::/0 9\"]", "\"::/0 8\""),
        ("maglev", "backends = [\"a 02:00:00:00:00:01\", \"b 02:00:00\"]", "\"b 02:00:00\""),
        ("maglev", "backends = ['a 02:00:00:00:00:01', 'a 02:00:00:00:00:02']", "'a 02:00:00:00:00:02'"),
        ("maglev", "addresses = ['192.0.2.1', 'ff02::1']\nbackends = ['a 02:00:00:00:00:01']", "'ff02::1'"),
        // If the value is no list, the error points at all of it.
        ("maglev", "backends = 'a 02:00:00:00:00:01'", "'a 02:00:00:00:00:01'"),
    ] {
        let error = registry
            .get(function)
            .unwrap()
            .configure(DeTable::parse(text).unwrap(), Path::new(""))
            .err()
            .unwrap();
        assert_eq!(&text[error.span.clone().unwrap()], item, "{error}");
    }
}

#[test]
fn a_table_lies_where_the_chain_file_does() {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    let name = format!("netbricks-routes-{}", std::process::id());
    let directory = std::env::temp_dir();
    std::fs::write(directory.join(&name), "192.0.2.0/24 7\n").unwrap();
    let text = format!("table = '{name}'");
    let configure =
        |directory: &Path| registry.get("lpm").unwrap().configure(DeTable::parse(&text).unwrap(), directory);
    let (beside, elsewhere) = (configure(&directory), configure(&directory.join("elsewhere")));
    std::fs::remove_file(directory.join(&name)).unwrap();
    beside.unwrap();
    let said = elsewhere.err().unwrap().to_string();
    assert!(said.contains(&format!("elsewhere/{name}")), "{said}");
}

#[test]
fn configuration_is_checked_before_anything_runs() {
    let check = |text: &str| {
        toml::from_str::<LpmSettings>(text).unwrap().check().map_err(|refused| refused.to_string())
    };
    assert!(check("").unwrap_err().contains("must hold at least one route"));
    let empty = std::env::temp_dir().join(format!("netbricks-no-routes-{}", std::process::id()));
    std::fs::write(&empty, "# none\n").unwrap();
    let said = check(&format!("table = {empty:?}")).unwrap_err();
    std::fs::remove_file(&empty).unwrap();
    assert!(said.contains("`table` names") && said.contains("which holds no route"), "{said}");
    assert!(
        check("routes = [\"10.0.0.0/8 1\"]\nannotation = \"\"")
            .unwrap_err()
            .contains("`annotation` must be a name")
    );
    let twice =
        LpmSettings::of([route("10.0.0.0/8 1"), route("10.0.0.0/8 2")]).check().unwrap_err().to_string();
    assert!(twice.contains("`routes` gives 10.0.0.0/8 a second time"), "{twice}");
    assert!(
        check("table = \"no/such/file\"").unwrap_err().contains("names no/such/file, which cannot be read")
    );
    let wrong = toml::from_str::<LpmSettings>("routes = [\n  \"10.0.0.0/8 1\",\n  \"10.0.0.0/99 1\",\n]")
        .unwrap_err();
    let wrong = wrong.to_string();
    assert!(wrong.contains("`10.0.0.0/99`") && wrong.contains("0 to 32"), "{wrong}");

    let path = std::env::temp_dir().join(format!("netbricks-lpm-{}", std::process::id()));
    let from_file = |text: &str| {
        std::fs::write(&path, text).unwrap();
        check(&format!("routes = [\"10.0.0.0/8 1\"]\ntable = {path:?}"))
    };
    assert_eq!(from_file("192.0.2.0/24 5\n"), Ok(()));
    let wrong = from_file("# routes\n192.0.2.0/24 5\n 192.0.2.9/24 5\n").unwrap_err();
    assert!(wrong.contains(":3:2: `192.0.2.9/24` has bits set behind its first 24"), "{wrong}");
    let twice = from_file("192.0.2.0/24 5\n10.0.0.0/8 2").unwrap_err();
    assert!(twice.contains(":2: 10.0.0.0/8 is a route of the chain file already"), "{twice}");
    let many = from_file(&"x\n".repeat(23)).unwrap_err();
    assert!(many.contains("23 wrong routes\n") && many.ends_with("\n… and 3 more"), "{many}");
    assert_eq!(many.lines().count(), 22, "{many}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn the_table_can_be_asked() {
    let worker = Worker::new(0, 1, Pool::builder().frames(64).build().unwrap());
    let settings = LpmSettings::of([route("192.0.2.0/24 5"), route("2001:db8::/32 6")]);
    let mut node = compose(&worker, |input| lpm(input, &settings, &worker)).unwrap();
    assert_eq!(node.call("lookup", " 192.0.2.9 "), Ok("5".into()));
    assert_eq!(node.call("lookup", "2001:db8::9"), Ok("6".into()));
    assert_eq!(node.call("lookup", "2001:db9::9"), Ok("no route".into()));
    assert!(
        node.call("lookup", "home").unwrap_err().to_string().contains("expected an IP address, found `home`")
    );
    let names: Vec<_> = node.export().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["routes", "no-route"]);
    // Settings that were changed after a node was made of them are other settings.
    let mut changed = settings.clone();
    changed.routes = vec![route("192.0.2.0/24 8")];
    let worker = worker.sharing(&Shares::default());
    let mut other = compose(&worker, |input| lpm(input, &changed, &worker)).unwrap();
    assert_eq!(other.call("lookup", "192.0.2.9"), Ok("8".into()));
}
