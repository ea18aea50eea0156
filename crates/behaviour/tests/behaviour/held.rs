//! Routes that a batch reads by one read, which goes on until the batch has left the function.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use netbricks_core::buffer::Pool;
use netbricks_core::consistency::{
    Access, BoundedInconsistency, CannotWrite, NoExternalAccess, Shares, Strict,
};
use netbricks_core::packet::{Ip, Link};
use netbricks_core::tables::{CounterArray, LpmConfig, RouteChange, Routes};
use netbricks_core::view::Metadata;
use netbricks_core::{Blueprint, DropReason, Function, Input, Operator, Verdict, Worker, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{kinds, run_with};

use crate::consistency::through;
use crate::harness::pool;

const BOUNDED: BoundedInconsistency = BoundedInconsistency { updates: 0 };
const SIZE: LpmConfig = LpmConfig { prefixes: 64, groups: 64 };

fn add(prefix: &str, len: u8, value: u32) -> RouteChange<u32> {
    RouteChange::Insert { prefix: prefix.parse().unwrap(), len, value }
}

fn frame(to: &str) -> Vec<u8> {
    ethernet().ipv4("10.0.0.1", to).udp(1, 2).payload(&[0; 8]).build().unwrap()
}

/// Writes the value of a packet's destination behind its IP header.
fn routed(input: Input, worker: &Worker) -> impl Function + use<> {
    let routes = worker.state::<Routes<u32>, _>("routes", BOUNDED, (Some(SIZE), Some(SIZE)));
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .lookup(&routes.held(), |packet| packet.header().destination(), |_, found| found.copied())
        .transform(|packet| {
            let value = packet.get::<Option<u32>>().unwrap_or(0).to_be_bytes();
            packet.payload_mut().iter_mut().zip(value).for_each(|(byte, value)| *byte = value);
        })
        .done()
}

/// The same by a worker's own table.
fn routed_alone(input: Input, worker: &Worker, changes: &[RouteChange<u32>]) -> impl Function + use<> {
    let routes = worker.state::<Routes<u32>, _>("routes", NoExternalAccess, (Some(SIZE), Some(SIZE)));
    routes.update_all(changes.iter().copied(), |_| ()).unwrap();
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .lookup(&routes, |packet| packet.header().destination(), |_, found| found.copied())
        .transform(|packet| {
            let value = packet.get::<Option<u32>>().unwrap_or(0).to_be_bytes();
            packet.payload_mut().iter_mut().zip(value).for_each(|(byte, value)| *byte = value);
        })
        .done()
}

#[test]
fn every_kind_of_packet_finds_what_it_finds_in_an_own_table() {
    let changes = vec![
        add("0.0.0.0", 0, 1),
        add("10.0.0.0", 30, 2),
        add("::", 0, 3),
        add("2001:db8::", 32, 4),
        add("2001:db8::2", 128, 5),
    ];
    let frames: Vec<_> = kinds::every().into_iter().map(|(_, frame)| frame).collect();
    let own = changes.clone();
    let alone = run_with(move |input, worker| routed_alone(input, worker, &own), frames.clone());
    let held = run_with(
        move |input, worker| {
            let routes = worker.state::<Routes<u32>, _>("routes", BOUNDED, (Some(SIZE), Some(SIZE)));
            routes.update_all(changes.iter().copied(), |_| ()).unwrap();
            input
                .parse::<Link>()
                .or(Verdict::PASS)
                .parse::<Ip>()
                .or(Verdict::PASS)
                .lookup(&routes.held(), |packet| packet.header().destination(), |_, found| found.copied())
                .transform(|packet| {
                    let value = packet.get::<Option<u32>>().unwrap_or(0).to_be_bytes();
                    packet.payload_mut().iter_mut().zip(value).for_each(|(byte, value)| *byte = value);
                })
                .done()
        },
        frames,
    );
    assert_eq!(alone.out, held.out);
    assert!(held.panics.is_empty());
}

fn node(blueprint: &Blueprint, pool: &Pool, index: usize) -> Box<dyn netbricks_core::Node> {
    blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap()
}

/// Two routes that always change together are equal for both packets of every batch.
#[test]
fn a_batch_sees_one_table_while_it_changes() {
    let shares = Shares::default();
    let outside = Worker::new(9, 1, pool()).sharing(&shares);
    let routes = outside.state::<Routes<u32>, _>("routes", BOUNDED, (Some(SIZE), Some(SIZE)));
    // Workers that have seen enough.
    let seen = Arc::new(AtomicUsize::new(0));
    let both = |value| [add("10.1.0.0", 16, value), add("10.2.0.0", 16, value)];
    routes.update_all(both(1), |_| ()).unwrap();
    let workers: Vec<_> = (0..2)
        .map(|index| {
            let (shares, seen) = (shares.clone(), seen.clone());
            thread::spawn(move || {
                let pool = pool();
                let worker = Worker::new(index, 1, pool.clone()).sharing(&shares);
                let mut node = compose(&worker, |input| routed(input, &worker)).unwrap();
                let (mut last, mut versions) = (0, 0);
                while versions < 100 {
                    let out = through(node.as_mut(), &pool, &[frame("10.1.0.1"), frame("10.2.0.1")]);
                    let values: Vec<u32> =
                        out.iter().map(|out| u32::from_be_bytes(out[34..38].try_into().unwrap())).collect();
                    assert_eq!(values[0], values[1]);
                    assert!(values[0] > 0, "found");
                    assert!(values[0] >= last, "no batch goes back");
                    versions += u32::from(values[0] > last);
                    last = values[0];
                }
                seen.fetch_add(1, Ordering::Release);
            })
        })
        .collect();
    let mut value = 1;
    while seen.load(Ordering::Acquire) < 2 && workers.iter().any(|worker| !worker.is_finished()) {
        value += 1;
        routes.update_all(both(value), |_| ()).unwrap();
    }
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

/// A batch that holds a read may wait for strict state, so nothing in strict state waits for it.
#[test]
fn changes_that_might_wait_for_the_batch_are_refused() {
    fn fused(input: Input, worker: &Worker) -> impl Function + use<> {
        let routes = worker.state::<Routes<u32>, _>("routes", BOUNDED, (Some(SIZE), None));
        let other = worker.state::<Routes<u32>, _>("other", BOUNDED, (Some(SIZE), None));
        let plain = worker.state::<CounterArray, _>("plain", BOUNDED, 1);
        let strict = worker.state::<CounterArray, _>("strict", Strict, 2);
        let also = other.held();
        input
            .parse::<Link>()
            .parse::<Ip>()
            .lookup(&routes.held(), |packet| packet.header().destination(), |_, _| ())
            .lookup(&also, |packet| packet.header().destination(), |_, _| ())
            .inspect(move |_| {
                assert_eq!(routes.update(add("10.0.0.0", 8, 1)), Err(CannotWrite::Reading));
                assert_eq!(other.update(add("10.0.0.0", 8, 1)), Err(CannotWrite::Reading));
                assert_eq!(plain.update((0, 1)), Ok(Some(1)), "others do not wait in reads of this");
                strict.transact(|strict| strict.add(0, 1));
                assert_eq!(routes.read(|routes| routes.len()), 0);
            })
            .done()
    }
    let report = run_with(fused, [frame("10.0.0.1")]);
    assert!(report.panics.is_empty(), "{:?}", report.panics);

    let pool = pool();
    let worker = Worker::new(0, 1, pool.clone());
    let routes = worker.state::<Routes<u32>, _>("routes", BOUNDED, (Some(SIZE), None));
    let strict = worker.state::<CounterArray, _>("strict", Strict, 1);
    let inside = |routes: &netbricks_core::consistency::Bounded<Routes<u32>>| {
        strict.transact(|_| routes.update(add("10.0.0.0", 8, 1)).map(|_| ()))
    };
    assert_eq!(inside(&routes), Ok(()), "nothing holds a read of it");
    let _held = routes.held();
    assert_eq!(inside(&routes), Err(CannotWrite::OutOfOrder));
    assert!(routes.update(add("10.0.0.0", 8, 1)).is_ok());
}

/// The read ends with the batch, also by a panic in it: the writer does not wait for it.
#[test]
fn a_panic_ends_the_read_of_its_batch() {
    let pool = pool();
    let blueprint = Blueprint::new(|worker| {
        compose(worker, |input| {
            let routes = worker.state::<Routes<u32>, _>("routes", BOUNDED, (Some(SIZE), None));
            input
                .parse::<Link>()
                .parse::<Ip>()
                .lookup(
                    &routes.held(),
                    |packet| packet.header().destination(),
                    |_, found| found.copied().inspect(|value| assert_ne!(*value, 13, "unlucky")),
                )
                .filter(DropReason::NoRoute, |packet| packet.get::<Option<u32>>().is_some())
                .done()
        })
    });
    let mut broken = node(&blueprint, &pool, 0);
    let outside = {
        let routed = blueprint.clone();
        let (sender, receiver) = std::sync::mpsc::channel::<u32>();
        let (answer, answers) = std::sync::mpsc::channel();
        let pool = pool.clone();
        thread::spawn(move || {
            let mut node = node(&routed, &pool, 1);
            // The import replaces the table, for which it waits for all readers.
            for value in receiver {
                let mut routes: Routes<u32> = Routes::new(Some(SIZE), None).unwrap();
                routes.insert("10.0.0.0".parse().unwrap(), 8, value).unwrap();
                let mut image = Vec::new();
                routes.encode(&mut image);
                answer.send(node.import("routes", &image, 0)).unwrap();
            }
        });
        move |value| {
            sender.send(value).unwrap();
            answers.recv().unwrap().unwrap();
        }
    };
    outside(13);
    let frames = [frame("10.0.0.1")];
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        through(broken.as_mut(), &pool, &frames);
    }));
    assert!(caught.is_err());
    outside(7);
    outside(8);
    assert_eq!(through(broken.as_mut(), &pool, &frames).len(), 1);
}
