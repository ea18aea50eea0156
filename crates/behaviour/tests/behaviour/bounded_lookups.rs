//! Lookups in a table that one writer keeps for readers: the content that a batch sees, and who may write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use netbricks_core::consistency::{
    Access, BoundedInconsistency, CannotWrite, Consistency, Lookable, MapEntry, NoExternalAccess, Shares,
    Strict,
};
use netbricks_core::packet::{FlowKey, Ip, Link, Udp};
use netbricks_core::tables::{FlowTableConfig, Full, LpmConfig, MapChange, RouteChange, Routes};
use netbricks_core::view::{IpRewrite, Metadata};
use netbricks_core::{Blueprint, Function, Input, Operator, StoredFlow, TableKey, Worker, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::run_with;

use crate::consistency::{Flows, frame, numbering, through};
use crate::harness::pool;

fn key(source: u16) -> StoredFlow {
    FlowKey::from_frame(&frame(source)).unwrap().store()
}

fn put(source: u16, value: u64) -> MapChange<StoredFlow, u64> {
    MapChange::Put { key: key(source), value, timeout: None, now: 0 }
}

#[test]
fn workers_go_on_where_the_last_writer_ended() {
    let pool = pool();
    let bounded = BoundedInconsistency { updates: 1_000 };
    let blueprint = Blueprint::new(move |w| compose(w, |i| numbering(i, w, bounded, Full::Refuse)));
    let node = |index| blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap();
    let (mut first, mut second) = (node(0), node(1));
    let numbers = |node: &mut Box<dyn netbricks_core::Node>| -> Vec<u8> {
        through(node.as_mut(), &pool, &[frame(7), frame(8), frame(7)]).iter().map(|out| out[42]).collect()
    };
    assert_eq!(numbers(&mut first), [1, 1, 2]);
    assert_eq!(numbers(&mut second), [3, 2, 4]);
    assert_eq!(numbers(&mut first), [5, 3, 6]);
}

#[test]
fn while_another_writes_packets_read_and_what_they_put_is_refused() {
    let (pool, shares) = (pool(), Shares::default());
    let bounded = BoundedInconsistency { updates: 1 };
    let other = Worker::new(1, 1, pool.clone()).sharing(&shares);
    let writer = other.state::<Flows, _>("flows", bounded, FlowTableConfig::new(16));
    writer.update_all([put(7, 40), put(8, 50)], |_| ()).unwrap();
    let worker = Worker::new(0, 1, pool.clone()).sharing(&shares);
    let seen = compose(&worker, |input| {
        let flows = worker.state::<Flows, _>("flows", bounded, FlowTableConfig::new(16));
        input
            .parse::<Link>()
            .parse::<Ip>()
            .lookup(
                &flows,
                |p| p.flow_key(),
                |_, entry| {
                    let seen = entry.value().copied().unwrap_or(0);
                    assert_eq!(entry.put(9), Err(CannotWrite::Elsewhere));
                    seen
                },
            )
            .parse::<Udp>()
            .transform(|p| p.payload_mut()[0] = *p.get::<u64>() as u8)
            .done()
    });
    let mut seen = seen.unwrap();
    let mut ask = || -> Vec<u8> {
        through(seen.as_mut(), &pool, &[frame(7), frame(8), frame(9)]).iter().map(|out| out[42]).collect()
    };
    // In the middle of a change, which no reader sees before its end.
    let mut last = Some(put(7, 60));
    let changes = std::iter::from_fn(|| {
        let next = last.take();
        if next.is_none() {
            assert_eq!(ask(), [40, 50, 0]);
        }
        next
    });
    writer.update_all(changes, |_| ()).unwrap();
}

/// Checks that a batch sees the effect of one change on all its keys or on none.
#[test]
fn the_lookups_of_a_batch_are_one_read() {
    let shares = Shares::default();
    let bounded = BoundedInconsistency { updates: 0 };
    let config = FlowTableConfig::new(64);
    let over = Arc::new(AtomicBool::new(false));
    let keys: Vec<u16> = (0..32).collect();
    let writing = {
        let (shares, over, keys) = (shares.clone(), over.clone(), keys.clone());
        thread::spawn(move || {
            let writer =
                Worker::new(1, 1, pool()).sharing(&shares).state::<Flows, _>("flows", bounded, config);
            for round in 0.. {
                if over.load(Ordering::Relaxed) {
                    return round;
                }
                writer.update_all(keys.iter().map(|key| put(*key, round % 251)), |_| ()).unwrap();
            }
            0
        })
    };
    let pool = pool();
    let worker = Worker::new(0, 1, pool.clone()).sharing(&shares);
    let mut node = compose(&worker, |input| {
        let flows = worker.state::<Flows, _>("flows", bounded, config);
        input
            .parse::<Link>()
            .parse::<Ip>()
            .lookup(&flows, |p| p.flow_key(), |_, entry| entry.value().copied().unwrap_or(255))
            .parse::<Udp>()
            .transform(|p| {
                // Other threads get the processor between two packets.
                thread::yield_now();
                p.payload_mut()[0] = *p.get::<u64>() as u8;
            })
            .done()
    })
    .unwrap();
    let frames: Vec<_> = keys.iter().map(|key| frame(*key)).collect();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2_000 {
        let values: Vec<u8> = through(node.as_mut(), &pool, &frames).iter().map(|out| out[42]).collect();
        assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
        seen.insert(values[0]);
        if seen.len() > 20 {
            break;
        }
    }
    over.store(true, Ordering::Relaxed);
    assert!(writing.join().unwrap() > 0);
    assert!(seen.len() > 1, "nothing was written while batches were looked up");
}

fn routed<C>(input: Input, worker: &Worker, consistency: C) -> impl Function + use<C>
where
    C: Consistency,
    C::Handle<Routes<u64>>: for<'e> Lookable<Table = Routes<u64>, Entry<'e> = Option<&'e u64>>,
{
    let size = Some(LpmConfig { prefixes: 8, groups: 8 });
    let routes = worker.state::<Routes<u64>, C>("routes", consistency, (size, size));
    let insert =
        |prefix: &str, len, value| RouteChange::Insert { prefix: prefix.parse().unwrap(), len, value };
    let changes = [insert("10.0.0.0", 8, 1), insert("10.1.0.0", 16, 2), insert("2001:db8::", 32, 3)];
    routes.update_all(changes, drop).unwrap();
    input
        .parse::<Link>()
        .parse::<Ip>()
        .lookup(&routes, |p| p.header().destination(), |_, hop| hop.copied().unwrap_or(0))
        .parse::<Udp>()
        .transform(|p| p.payload_mut()[0] = *p.get::<u64>() as u8)
        .done()
}

#[test]
fn routes_are_found_alike_under_every_consistency() {
    let v4 = |to: &str| ethernet().ipv4("192.0.2.1", to).udp(1, 2).payload(b"\0").build().unwrap();
    let v6 = |to: &str| ethernet().ipv6("2001:db8:1::1", to).udp(1, 2).payload(b"\0").build().unwrap();
    let frames = [v4("10.1.2.3"), v4("10.2.2.3"), v4("11.0.0.1"), v6("2001:db8::9"), v6("2001:db9::9")];
    let numbers = |report: netbricks_testkit::Report| -> Vec<u8> {
        report.out.iter().map(|out| out[if out[14] >> 4 == 4 { 42 } else { 62 }]).collect()
    };
    let bounded = BoundedInconsistency { updates: 7 };
    let found = [
        numbers(run_with(|i, w| routed(i, w, NoExternalAccess), frames.clone())),
        numbers(run_with(|i, w| routed(i, w, Strict), frames.clone())),
        numbers(run_with(move |i, w| routed(i, w, bounded), frames.clone())),
    ];
    assert_eq!(found, [[2, 1, 0, 3, 0]; 3]);
}
