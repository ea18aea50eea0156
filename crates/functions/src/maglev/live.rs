//! Tests of backends that the control side changes while packets flow.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{
    Blueprint, CallError, ControlCopy, DetachedContext, HandlerKind, HandlerSide, Node, Worker, compose,
};
use netbricks_testkit::build::ethernet;

use super::{MaglevConfig, maglev};

fn pool() -> Pool {
    Pool::builder().frames(512).build().unwrap()
}

/// Backends with these numbers, of equal weight.
fn balancer(numbers: &[u8]) -> Blueprint {
    let backend = |number: &u8| format!("web-{number} 02:00:00:00:01:0{number}").parse().unwrap();
    let config = MaglevConfig {
        backends: numbers.iter().map(backend).collect(),
        slots: 251,
        ..MaglevConfig::default()
    };
    Blueprint::new(move |worker| compose(worker, |input| maglev(input, &config, worker)))
}

fn control(blueprint: &Blueprint) -> ControlCopy {
    blueprint.control(pool(), 1).unwrap()
}

struct OnWorker(Box<dyn Node>, Pool);

impl OnWorker {
    fn new(blueprint: &Blueprint, index: usize) -> Self {
        let pool = pool();
        Self(blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap(), pool)
    }

    /// The backends of packets of these flows, and the number of packets that were dropped.
    fn send(&mut self, flows: impl IntoIterator<Item = u16>) -> (Vec<u8>, u64) {
        let (mut cx, mut batch) = (DetachedContext::new(self.1.clone()), Batch::new());
        for flow in flows {
            let frame = ethernet().ipv4("10.0.0.1", "192.0.2.1").tcp(1_000 + flow, 80).build().unwrap();
            batch.push(self.1.packet(&frame).unwrap()).unwrap();
        }
        self.0.process(0, &mut batch, &mut cx);
        let dropped = cx.take_drops().total().packets;
        (batch.iter().map(|packet| packet.data()[5]).collect(), dropped)
    }

    fn backends(&mut self, flows: impl IntoIterator<Item = u16>) -> BTreeSet<u8> {
        self.send(flows).0.into_iter().collect()
    }
}

#[test]
fn two_workers_see_what_the_control_side_changes() {
    let blueprint = balancer(&[1, 2]);
    let mut control = control(&blueprint);
    let mut workers = [0, 1].map(|index| OnWorker::new(&blueprint, index));
    let mut all = |flows: std::ops::Range<u16>, expected: &[u8]| {
        for worker in &mut workers {
            assert_eq!(worker.backends(flows.clone()), expected.iter().copied().collect());
        }
    };
    all(0..100, &[1, 2]);
    assert_eq!(control.call_as(HandlerKind::Write, "weight", "web-1 0"), Ok("done".into()));
    all(100..200, &[2]);
    all(0..100, &[1, 2]);
    control.call("add", "web-3 02:00:00:00:01:03 4").unwrap();
    control.call("weight", "web-1 2").unwrap();
    let listed = control.call_as(HandlerKind::Read, "backends", "").unwrap();
    let shares: Vec<Vec<&str>> = listed.lines().map(|line| line.split(' ').collect()).collect();
    let slots = shares.iter().map(|row| row[4].parse::<u32>().unwrap());
    assert_eq!(slots.clone().sum::<u32>(), 251);
    assert_eq!(slots.collect::<Vec<_>>(), [72, 36, 143], "by the weights 2, 1 and 4, to within one");
    assert_eq!(shares[0][..4], ["web-1", "02:00:00:00:01:01", "2", "takes"]);
    all(200..300, &[1, 2, 3]);
    control.call("drain", " web-3 ").unwrap();
    control.call("remove", "web-1").unwrap();
    all(0..200, &[2]);
    all(300..400, &[2]);
    assert_eq!(control.call("backends.occupancy", ""), Ok("2 16384".into()));
}

#[test]
fn calls_that_do_not_fit_are_refused() {
    let blueprint = balancer(&[1, 2, 3]);
    let mut control = control(&blueprint);
    let mut worker = OnWorker::new(&blueprint, 0);
    let of = |name: &str| {
        let handler = control.handlers().iter().find(|handler| handler.name == name).unwrap();
        (handler.kind, handler.side, handler.argument.clone().unwrap_or_default())
    };
    use HandlerKind::{Read, Write};
    for (name, kind, side, argument) in [
        ("add", Write, HandlerSide::Control, "NAME MAC [WEIGHT]"),
        ("drain", Write, HandlerSide::Control, "NAME"),
        ("remove", Write, HandlerSide::Control, "NAME"),
        ("weight", Write, HandlerSide::Control, "NAME WEIGHT"),
        ("backends", Read, HandlerSide::Control, ""),
        ("connections", Read, HandlerSide::Worker, ""),
        ("memory", Read, HandlerSide::Worker, ""),
        ("forget", Write, HandlerSide::Worker, ""),
        ("connections.occupancy", Read, HandlerSide::Worker, ""),
    ] {
        assert_eq!(of(name), (kind, side, argument.to_owned()), "{name}");
    }
    let before = control.call("backends", "").unwrap();
    for name in ["add", "drain", "remove", "weight", "forget"] {
        let error = control.call_as(Read, name, "web-1").unwrap_err();
        assert_eq!(error, CallError::Kind { name: name.into(), kind: Write });
        assert_eq!(worker.0.call_as(Read, name, "web-1"), Err(error));
    }
    for (name, argument, part) in [
        ("drain", "wbe-1", "there is no backend `wbe-1`; did you mean `web-1`?"),
        ("remove", "mail", "there is no backend `mail`; there are: web-1, web-2, web-3"),
        ("weight", "web-11 3", "did you mean `web-1`?"),
        ("weight", "web-1 1000001", "a weight of 0 to 1000000, found `web-1 1000001`"),
        ("weight", "web-1 -1", "a weight of 0 to 1000000"),
        ("weight", "web-1", "expected a backend's name and a weight"),
        ("drain", "", "expected a backend's name, found ``"),
        ("drain", "web-1 web-2", "expected a backend's name, found `web-1 web-2`"),
        ("add", "web-9", "expected a backend as `web-1 02:00:00:00:00:01 3`"),
        ("add", "web-9 02:00:00:00:00:01 1000001", "must be 0 to 1000000"),
        ("backends", "web-1", "takes no argument, found `web-1`"),
    ] {
        let error = control.call(name, argument).unwrap_err().to_string();
        assert!(error.contains(part), "{name} {argument}: {error}");
    }
    assert_eq!(control.call("backends", ""), Ok(before));
    assert_eq!(control.call("forget", ""), Err(CallError::OnWorker { name: "forget".into() }));
    worker.send(0..10);
    assert_eq!(worker.0.call("forget", ""), Ok("done".into()));
}

fn take_over(new: &mut OnWorker, old: &mut OnWorker) {
    for (name, shared) in old.0.shared_state() {
        assert_eq!(new.0.adopt(&name, &shared, 1), Some(Ok(())));
    }
    for (name, image) in old.0.export() {
        // State that was taken over whole is not exported too.
        if !image.is_empty() {
            new.0.import(&name, &image, 1).unwrap();
        }
    }
}

#[test]
fn an_unchanged_file_keeps_live_changes_and_a_changed_one_holds() {
    let before = balancer(&[1, 2]);
    let mut old = OnWorker::new(&before, 0);
    let mut ruling = control(&before);
    ruling.call("drain", "web-1").unwrap();
    ruling.call("add", "web-3 02:00:00:00:01:03").unwrap();
    let live = ruling.call("backends", "").unwrap();
    assert_eq!(old.backends(0..100), BTreeSet::from([2, 3]));
    let same = balancer(&[1, 2]);
    let mut early = control(&same);
    let mut new = OnWorker::new(&same, 0);
    take_over(&mut new, &mut old);
    assert_eq!(early.call("backends", "").as_ref(), Ok(&live));
    assert_eq!(control(&same).call("backends", "").as_ref(), Ok(&live));
    assert_eq!(new.backends(0..200), BTreeSet::from([2, 3]));
    // Another file: its list holds, and flows of backends that it has stay with them.
    let other = balancer(&[1, 2, 4]);
    let mut early = control(&other);
    let mut last = OnWorker::new(&other, 0);
    take_over(&mut last, &mut new);
    let names = |copy: &mut ControlCopy| -> Vec<String> {
        let listed = copy.call("backends", "").unwrap();
        listed.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&mut early), ["web-1", "web-2", "web-4"]);
    assert_eq!(names(&mut control(&other)), ["web-1", "web-2", "web-4"]);
    assert!(!early.call("backends", "").unwrap().contains("draining"));
    assert_eq!(last.backends(1_000..1_200), BTreeSet::from([1, 2, 4]));
    early.call("remove", "web-4").unwrap();
    assert_eq!(last.backends(2_000..2_200), BTreeSet::from([1, 2]));
}

/// Workers on threads of their own: what comes in goes out, or is dropped for a reason.
#[test]
fn packets_flow_while_backends_change() {
    let blueprint = balancer(&[1, 2]);
    let mut control = control(&blueprint);
    let done = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..2)
        .map(|index| {
            let (blueprint, done) = (blueprint.clone(), done.clone());
            thread::spawn(move || {
                let mut worker = OnWorker::new(&blueprint, index);
                let mut rounds = 0u16;
                while !done.load(Ordering::Acquire) {
                    let (out, dropped) = worker.send((0..32).map(|flow| flow + rounds % 1_000));
                    assert_eq!(out.len() as u64 + dropped, 32);
                    assert!(out.iter().all(|backend| (1..=3).contains(backend)), "{out:?}");
                    rounds += 1;
                }
                assert_eq!(worker.1.available(), worker.1.capacity());
                rounds
            })
        })
        .collect();
    for round in 0..400 {
        control.call("add", "web-3 02:00:00:00:01:03").unwrap();
        control.call("weight", &format!("web-1 {}", round % 4)).unwrap();
        control.call("drain", "web-2").unwrap();
        control.call("remove", "web-3").unwrap();
        control.call("weight", "web-2 1").unwrap();
    }
    done.store(true, Ordering::Release);
    for worker in workers {
        assert!(worker.join().unwrap() > 0);
    }
}
