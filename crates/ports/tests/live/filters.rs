//! Filters of the graph on real devices: rules that change while the queues are in use.

use netbricks_buffer::{Batch, Pool};
use netbricks_core::DetachedContext;
use netbricks_packet::build::ethernet;
use netbricks_ports::steer::{Filter, Rule, Rules};
use netbricks_ports::{Port, ReceiveQueue};

use super::fixture::{Lab, eventually, open};
use super::steering::{lab, receive, send, untold};

const QUEUES: usize = 3;

/// Rules of this many tenants, each with a VLAN and two networks; `shift` moves their queues.
fn rules(tenants: u16, shift: u16) -> Rules {
    let mut rules = Vec::new();
    let mut add = |filter: Filter, tenant: u16| {
        rules.push(Rule { filter: filter.checked().unwrap(), queue: (tenant + shift) % QUEUES as u16 });
    };
    for tenant in 0..tenants {
        add(Filter::ANY.in_vlan(tenant + 1), tenant);
    }
    let networks = |tenant: u16| {
        let (high, low) = (tenant >> 8, tenant & 0xff);
        [format!("10.{high}.{low}.0/24"), format!("2001:db8:{tenant:x}::/48")]
            .map(|text| text.parse().unwrap())
    };
    for tenant in 0..tenants {
        networks(tenant).into_iter().for_each(|network| add(Filter::ANY.to(network), tenant));
    }
    for tenant in 0..tenants {
        networks(tenant).into_iter().for_each(|network| add(Filter::ANY.from(network), tenant));
    }
    // A wider network behind the others: what is left of it.
    add(Filter::ANY.to("10.0.0.0/8".parse().unwrap()), 1);
    add(Filter::ANY.ethertype(0x0806), 2);
    Rules::derived(rules)
}

/// Packets of some of these tenants, of one tenant to another, and of none.
fn frames(tenants: u16) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for tenant in [0, 1, 2, tenants / 2, tenants - 1] {
        let (high, low) = (tenant >> 8, tenant & 0xff);
        let (v4, v6) = (format!("10.{high}.{low}.7"), format!("2001:db8:{tenant:x}::7"));
        let next = format!("10.0.{}.9", (tenant + 1) % tenants.min(250));
        let (v4, v6, next) = (v4.as_str(), v6.as_str(), next.as_str());
        frames.push(ethernet().ipv4("192.0.2.1", v4).udp(1, 2).payload(b"to").build());
        frames.push(ethernet().ipv4(v4, "192.0.2.1").tcp(2, 1).payload(b"from").build());
        frames.push(ethernet().ipv4(v4, next).udp(1, 2).payload(b"between").build());
        frames.push(ethernet().ipv6("2001:db8:ffff::1", v6).udp(1, 2).payload(b"to").build());
        frames.push(ethernet().ipv6(v6, "2001:db8:ffff::1").tcp(1, 2).payload(b"from").build());
        let tagged = ethernet().vlan(tenant + 1).ipv4(next, v4);
        frames.push(tagged.udp(1, 2).payload(b"vlan").build());
        frames.push(ethernet().qinq(tenant + 1, 6).ipv4(next, v4).udp(1, 2).payload(b"two tags").build());
        frames.push(ethernet().vlan(4000).ipv4("192.0.2.1", v4).udp(1, 2).payload(b"no tenant's").build());
    }
    frames.push(ethernet().ipv4("192.0.2.1", "10.250.0.1").udp(1, 2).payload(b"wide").build());
    frames.push(ethernet().arp_request("10.0.0.1", "10.0.0.2").build());
    frames.into_iter().map(Result::unwrap).collect()
}

/// Opens the port of a driver for filters, on `b0` (or the TAP `l0`), with its queues taken.
fn opened(lab: &Lab, driver: &'static str, pool: &Pool) -> (Box<dyn Port>, Vec<Box<dyn ReceiveQueue>>) {
    let (role, device) = if driver == "tap" { ("left", "l0") } else { ("box", "b0") };
    let port = lab.inside(role, {
        let pool = pool.clone();
        move || {
            let text = format!("driver = \"{driver}\"\ndevice = \"{device}\"\nsteer = \"graph\"");
            open("port", &text, &pool, QUEUES).unwrap()
        }
    });
    let mut port = port.join().unwrap();
    let queues = (0..QUEUES).map(|queue| port.take_receive(queue).unwrap()).collect();
    (port, queues)
}

fn check(lab: &Lab, queues: &mut [Box<dyn ReceiveQueue>], rules: &Rules, (tenants, pool): (u16, &Pool)) {
    let (told, untold) = (frames(tenants), untold());
    let all: Vec<Vec<u8>> = told.iter().cloned().chain(untold.iter().flatten().cloned()).collect();
    let wanted = all.len();
    send(lab, all);
    let found = receive(queues, pool, wanted);
    for frame in &told {
        if let Some(queue) = rules.queue_of(frame) {
            assert_eq!(found.get(frame), Some(&usize::from(queue)), "{frame:02x?}");
        }
    }
    let ruled = |frame: &Vec<u8>| rules.queue_of(frame).is_some();
    let flows = untold.iter().filter(|flow| !flow.iter().any(ruled));
    let mut counts = [0; QUEUES];
    for [there, back] in flows {
        assert_eq!(found.get(there), found.get(back), "both directions of a flow come to one queue");
        counts[found[there]] += 1;
    }
    assert!(counts.iter().all(|flows| *flows == 0) || counts.iter().all(|flows| *flows > 2), "{counts:?}");
}

fn follows_filters(driver: &'static str, tenants: u16) {
    let Some(lab) = lab() else { return };
    if driver == "tap" {
        lab.run("left", "ip link delete l0");
    }
    let pool = Pool::builder().frames(8192).for_device(true).build().unwrap();
    let (mut port, mut queues) = opened(&lab, driver, &pool);
    assert!(port.capabilities().symmetric_rss);
    assert!(port.filtered_by().is_some());
    // Before there are rules, and where there will be none.
    check(&lab, &mut queues, &Rules::default(), (tenants, &pool));
    for shift in [0, 1, 2] {
        // The queues are in use from the second round on.
        let rules = rules(tenants, shift);
        port.steer(&rules).unwrap();
        check(&lab, &mut queues, &rules, (tenants, &pool));
    }
    let none = Rules::default();
    port.steer(&none).unwrap();
    check(&lab, &mut queues, &none, (tenants, &pool));
}

#[test]
fn classic_bpf_follows_filters_that_change() {
    follows_filters("af_packet", 12);
}

#[test]
fn a_tap_follows_filters_that_change() {
    follows_filters("tap", 12);
}

/// Each queue of a device that takes no rules has a socket for each receive queue.
#[test]
fn xdp_maps_choose_the_same_at_each_queue_of_a_device() {
    let Some(lab) = lab() else { return };
    lab.run("box", "ip link delete b0");
    let peer = lab.name("left");
    lab.run(
        "box",
        &format!(
            "ip link add b0 numrxqueues 4 numtxqueues 4 type veth peer name l0 numrxqueues 4 numtxqueues 4 netns {peer}"
        ),
    );
    lab.run("box", "ip link set b0 up");
    lab.run("left", "ip link set l0 up");
    let pool = Pool::builder().frames(8192).for_device(true).build().unwrap();
    let (mut port, mut queues) = opened(&lab, "af_xdp", &pool);
    let by = port.filtered_by().unwrap().by;
    assert!(by.contains("takes no rules of `ethtool -N`"), "{by}");
    let rules = rules(12, 0);
    port.steer(&rules).unwrap();
    check(&lab, &mut queues, &rules, (12, &pool));
}

#[test]
fn xdp_maps_follow_filters_of_hundreds_of_tenants() {
    follows_filters("af_xdp", 500);
}

/// A queue that no worker empties loses its own packets alone.
#[test]
fn a_full_queue_leaves_frames_for_the_others_of_its_device_queue() {
    let Some(lab) = lab() else { return };
    let pool = Pool::builder().frames(4096).for_device(true).build().unwrap();
    let (mut port, mut queues) = opened(&lab, "af_xdp", &pool);
    port.steer(&rules(3, 0)).unwrap();
    let packet = |tenant: u8, number: u32| {
        let (to, number) = (format!("10.0.{tenant}.7"), number.to_be_bytes());
        ethernet().ipv4("192.0.2.1", to.as_str()).udp(1, 2).payload(&number).build().unwrap()
    };
    for round in 0..20 {
        send(&lab, (0..200).map(|number| packet(0, 200 * round + number)).collect());
    }
    let wanted: Vec<Vec<u8>> = (0..40).map(|number| packet(1, number)).collect();
    send(&lab, wanted.clone());
    let found = receive(&mut queues[1..2], &pool, wanted.len());
    assert!(wanted.iter().all(|frame| found.contains_key(frame)));
    // The full queue has what its ring holds, and the port counts the others.
    let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
    let mut kept = 0;
    eventually("the rest of the full queue", || {
        queues[0].receive(&mut batch, &mut cx);
        let came = batch.len();
        kept += came;
        batch.clear();
        came == 0 && kept > 0
    });
    let missed: u64 =
        port.counters().iter().map(|queue| queue.missed.load(std::sync::atomic::Ordering::Relaxed)).sum();
    assert!(kept < 4000 && kept as u64 + missed == 4000, "{kept} came and {missed} were missed");
    drop((queues, batch));
    drop(port);
    assert_eq!(pool.available(), pool.capacity(), "every frame comes back when the sockets are closed");
}
