//! Design, section 7: one function under three consistencies, and the promises of each to several workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::consistency::{
    Access, BoundedInconsistency, CannotWrite, Consistency, Contents, Lookable, MapEntry, NoExternalAccess,
    Shares, Strict, StrictState,
};
use netbricks_core::packet::{Ip, Link, Udp};
use netbricks_core::tables::{
    Changing, CounterArray, Entry, FlowTable, FlowTableConfig, Full, Key, MapChange, MapOutcome, RecentItem,
    RingLog, RouteChange, Routes, Table,
};
use netbricks_core::view::{IpRewrite, Metadata};
use netbricks_core::{
    Blueprint, BuildError, DetachedContext, Function, GroupConfig, Groups, Handler, Input, Node, Operator,
    Shuffle, ShuffleConfig, StoredFlow, TableKey, Verdict, Worker, compose,
};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::linear::{Operation, linearizable, record};
use netbricks_testkit::run_with;
use proptest::prelude::*;

use crate::harness::{Feed, Rig, Sink, pool, run_out, worker};

pub(crate) type Flows = FlowTable<StoredFlow, u64>;

pub(crate) fn frame(source: u16) -> Vec<u8> {
    ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(source, 53).payload(b"\0").build().unwrap()
}

/// Writes into the payload how many packets of the flow were seen, this one included.
///
/// The function is the same for each consistency of its table.
pub(crate) fn numbering<C>(
    input: Input,
    worker: &Worker,
    consistency: C,
    full: Full,
) -> impl Function + use<C>
where
    C: Consistency,
    C::Handle<Flows>: Lookable<Table = Flows>,
    for<'e> <C::Handle<Flows> as Lookable>::Entry<'e>: MapEntry<Value = u64>,
{
    let config = FlowTableConfig { full, ..FlowTableConfig::new(16) };
    let flows = worker.state::<Flows, C>("flows", consistency, config);
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .lookup(
            &flows,
            |p| p.flow_key(),
            |p, entry| {
                let seen = entry.value().map_or(1, |seen| seen + 1);
                let put = entry.put(seen);
                assert!(p.header().ttl() != 13, "thirteen");
                if put == Ok(true) { seen } else { 0 }
            },
        )
        .parse::<Udp>()
        .transform(|p| {
            let seen = *p.get::<u64>();
            p.payload_mut()[0] = seen as u8;
        })
        .done()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Private state is the oracle, at batches of 1, 32 and 256.
    #[test]
    fn a_lookup_answers_alike_under_every_consistency(
        flows in prop::collection::vec(0u16..40, 1..300),
        full in prop_oneof![Just(Full::Refuse), Just(Full::EvictOldest)],
    ) {
        let frames: Vec<_> = flows.iter().map(|flow| frame(*flow)).collect();
        let own = run_with(move |i, w| numbering(i, w, NoExternalAccess, full), frames.clone());
        let strict = run_with(move |i, w| numbering(i, w, Strict, full), frames.clone());
        prop_assert_eq!((&own.out, &own.drops), (&strict.out, &strict.drops));
        // Readers may miss none, a few, or all unpublished updates, but never their own writes.
        for updates in [0, 3, 1_000] {
            let bounded = BoundedInconsistency { updates };
            let bounded = run_with(move |i, w| numbering(i, w, bounded, full), frames.clone());
            prop_assert_eq!((&own.out, &own.drops), (&bounded.out, &bounded.drops));
        }
    }
}

/// Runs frames through a node, as its worker would.
pub(crate) fn through(node: &mut dyn Node, pool: &Pool, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
    for frame in frames {
        batch.push(pool.packet(frame).unwrap()).unwrap();
    }
    node.process(0, &mut batch, &mut cx);
    batch.iter().map(|packet| packet.data().to_vec()).collect()
}

#[test]
fn workers_of_one_blueprint_share_strict_state_and_those_of_another_do_not() {
    let pool = pool();
    let make = || Blueprint::new(|w| compose(w, |i| numbering(i, w, Strict, Full::Refuse)));
    let (one, other) = (make(), make());
    let node = |blueprint: &Blueprint, index| blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap();
    let (mut first, mut second, mut stranger) = (node(&one, 0), node(&one, 1), node(&other, 0));
    let seen = |node: &mut Box<dyn Node>| *through(node.as_mut(), &pool, &[frame(7)])[0].get(42).unwrap();
    assert_eq!([seen(&mut first), seen(&mut second), seen(&mut first)], [1, 2, 3]);
    assert_eq!(seen(&mut stranger), 1);
    assert_eq!(second.call("flows.occupancy", "").unwrap(), "1 16");
}

#[test]
fn private_state_of_one_blueprint_is_each_workers_own() {
    let pool = pool();
    let blueprint = Blueprint::new(|w| compose(w, |i| numbering(i, w, NoExternalAccess, Full::Refuse)));
    for index in 0..2 {
        let mut node = blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap();
        assert_eq!(through(node.as_mut(), &pool, &[frame(7)])[0][42], 1);
    }
}

/// Checks that each packet of two threads is counted exactly once.
#[test]
fn strict_counts_add_up_over_threads() {
    const PACKETS: usize = 20_000;
    let blueprint = Blueprint::new(|w| compose(w, |i| numbering(i, w, Strict, Full::Refuse)));
    let threads: Vec<_> = (0..3)
        .map(|index| {
            let blueprint = blueprint.clone();
            thread::spawn(move || {
                let pool = pool();
                let mut node = blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap();
                let frames: Vec<_> = (0..20).map(|flow| frame(flow % 10)).collect();
                for _ in 0..PACKETS / frames.len() {
                    through(node.as_mut(), &pool, &frames);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let images = blueprint.build(&worker(&pool())).unwrap().export();
    let mut flows = Flows::new(FlowTableConfig::new(16)).unwrap();
    flows.decode(&images[0].1, 0).unwrap();
    let counts: Vec<u64> = flows.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [3 * PACKETS as u64 / 10; 10]);
}

#[test]
fn a_panic_under_the_lock_resets_the_state_for_all_workers() {
    let pool = pool();
    let blueprint = Blueprint::new(|w| compose(w, |i| numbering(i, w, Strict, Full::Refuse)));
    let node = |index| blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap();
    let (mut first, mut second) = (node(0), node(1));
    assert_eq!(through(first.as_mut(), &pool, &[frame(7)])[0][42], 1);
    let thirteen = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(13).udp(1, 2).build().unwrap();
    let run = std::panic::AssertUnwindSafe(|| through(first.as_mut(), &pool, &[frame(7), thirteen]));
    std::panic::catch_unwind(run).unwrap_err();
    // The other worker goes on, without state that may be half-changed.
    assert_eq!(through(second.as_mut(), &pool, &[frame(7)])[0][42], 1);
    assert_eq!(through(node(0).as_mut(), &pool, &[frame(7)])[0][42], 2);
}

/// An operation of a thread on the accounts below.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Read(u64),
    Put(u64, u64),
    /// A change of two keys at once.
    Move(u64, u64),
    Sum,
}

const ACCOUNTS: u64 = 3;

fn model(accounts: &mut [u64; ACCOUNTS as usize], deed: &Deed) -> u64 {
    match *deed {
        Deed::Read(at) => accounts[at as usize],
        Deed::Put(at, value) => std::mem::replace(&mut accounts[at as usize], value),
        Deed::Move(from, to) => {
            let all = std::mem::take(&mut accounts[from as usize]);
            accounts[to as usize] += all;
            all
        }
        Deed::Sum => accounts.iter().sum(),
    }
}

type Accounts = StrictState<FlowTable<u64, u64>>;

fn put(key: u64, value: u64) -> MapChange<u64, u64> {
    MapChange::Put { key, value, timeout: None, now: 0 }
}

/// The same operation through the state's interface, updates as changes and transactions.
///
/// Other threads get the processor between the steps of a transaction, so that a missing lock shows.
fn real(flows: &Accounts, deed: &Deed) -> u64 {
    let get = |table: &FlowTable<u64, u64>, at| table.get(&at).copied().unwrap_or(0);
    match *deed {
        Deed::Read(at) => flows.read(|table| get(table, at)),
        Deed::Put(key, value) => match flows.update(put(key, value)) {
            Ok(MapOutcome::Put(before)) => before.unwrap_or(0),
            other => panic!("{other:?}"),
        },
        Deed::Move(from, to) if from == to => flows.read(|table| get(table, from)),
        Deed::Move(from, to) => flows.transact(|table| {
            let all = get(table, from);
            let moved = get(table, to) + all;
            for (key, value) in [(from, 0), (to, moved)] {
                table.apply(&put(key, value));
                thread::yield_now();
            }
            all
        }),
        Deed::Sum => flows.read(|table| (0..ACCOUNTS).map(|at| get(table, at)).sum()),
    }
}

/// As `real`, except that a moved amount is in neither account for a while.
fn in_steps(flows: &Accounts, deed: &Deed) -> u64 {
    let read = |at| real(flows, &Deed::Read(at));
    match *deed {
        Deed::Move(from, to) if from != to => {
            let all = read(from);
            for (key, value) in [(from, 0), (to, read(to) + all)] {
                flows.update(put(key, value)).unwrap();
                thread::yield_now();
            }
            all
        }
        _ => real(flows, deed),
    }
}

/// The operations of three threads at the same time, with their results.
fn history(round: u64, act: fn(&Accounts, &Deed) -> u64) -> Vec<Operation<Deed, u64>> {
    let (shares, clock) = (Shares::default(), Arc::new(AtomicU64::new(0)));
    let arrived = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..3u64)
        .map(|number| {
            let (shares, clock, arrived) = (shares.clone(), clock.clone(), arrived.clone());
            thread::spawn(move || {
                let worker = Worker::new(number as usize, 1, pool()).sharing(&shares);
                let accounts = worker.state("accounts", Strict, FlowTableConfig::new(8));
                (0..6u64)
                    .map(|step| {
                        // All threads begin each step at once, so that their operations overlap.
                        arrived.fetch_add(1, Ordering::AcqRel);
                        while arrived.load(Ordering::Acquire) < 3 * (step + 1) {
                            thread::yield_now();
                        }
                        let dice = (round * 37 + number * 11 + step * 5).wrapping_mul(0x9e37_79b9) >> 7;
                        let (one, other) = (dice % ACCOUNTS, dice / 7 % ACCOUNTS);
                        let deed = match dice / 64 % 4 {
                            0 => Deed::Read(one),
                            1 => Deed::Put(one, round * 100 + number * 10 + step),
                            2 => Deed::Move(one, other),
                            _ => Deed::Sum,
                        };
                        record(&clock, deed, |deed| act(&accounts, deed))
                    })
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
}

fn is_linearizable(history: &[Operation<Deed, u64>]) -> bool {
    linearizable([0; 3], history, |accounts: &mut [u64; 3], deed: &Deed| match *deed {
        Deed::Move(from, to) if from == to => accounts[from as usize],
        _ => model(accounts, deed),
    })
}

/// Checks that recorded histories of three threads have an order in which one thread alone would get the same
/// answers.
#[test]
fn strict_state_is_linearizable() {
    for round in 0..300 {
        let history = history(round, real);
        assert!(is_linearizable(&history), "{history:?}");
    }
}

/// Checks that the threads do overlap, so that the test above would notice a missing transaction.
#[test]
fn a_move_in_steps_is_seen_to_be_no_transaction() {
    assert!((0..100_000).any(|round| !is_linearizable(&history(round, in_steps))));
}

/// Counts packets where all workers can see it, and reports the count that it reads.
fn tally<C: Consistency>(input: Input, worker: &Worker, consistency: C) -> impl Function + use<C> {
    let seen = worker.state::<CounterArray, C>("seen", consistency, 2);
    let (asked, told, both) = (seen.clone(), seen.clone(), seen.clone());
    worker.handler(Handler::read("read", "What is counted."), move |_| {
        Ok(format!("{:?}", asked.read(|seen| seen.all().to_vec())))
    });
    worker.handler(Handler::write("add", "Counts one."), move |_| {
        told.update((0, 1)).map(|value| format!("{value:?}")).map_err(|error| error.to_string())
    });
    worker.handler(Handler::write("inside", "Writes from inside a read."), move |_| {
        both.read(|_| both.update((0, 1)))
            .map(|value| format!("{value:?}"))
            .map_err(|error| error.to_string())
    });
    input
        .inspect(move |packet| {
            let both = [(0, 1), (1, packet.frame_len() as u64)];
            assert_eq!(seen.update_all(both, |_| ()), Ok(()));
        })
        .done()
}

#[test]
fn a_batch_that_ended_is_published_and_one_that_runs_keeps_the_writer() {
    let pool = pool();
    let make = |w: &Worker| compose(w, |i| tally(i, w, BoundedInconsistency { updates: 1_000 }));
    let blueprint = Blueprint::new(make);
    let node = |index| blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap();
    let (mut first, mut second) = (node(0), node(1));
    through(first.as_mut(), &pool, &[frame(1), frame(2)]);
    assert_eq!(second.call("read", "").unwrap(), "[2, 86]");
    // No worker writes now, so that the other may.
    assert_eq!(second.call("add", "").unwrap(), "Some(3)");
    assert_eq!(first.call("read", "").unwrap(), "[3, 86]");
    assert!(first.call("inside", "").unwrap_err().to_string().contains("make it after the read"));
}

/// A function that sorts packets, with a count of them that one worker at a time may write: thirteen panics.
fn counted(input: Input, worker: &Worker) -> impl Operator<In = netbricks_core::packet::stack::Root> + use<> {
    let seen = worker.state::<CounterArray, _>("seen", BoundedInconsistency { updates: 1_000 }, 1);
    let told = seen.clone();
    worker.handler(Handler::write("add", "Counts one."), move |_| {
        told.update((0, 1)).map(|value| format!("{value:?}")).map_err(|error| error.to_string())
    });
    input.parse::<Link>().or(Verdict::PASS).parse::<Ip>().or(Verdict::PASS).inspect(move |packet| {
        assert!(seen.update((0, 1)).is_ok(), "another worker has kept the writer");
        assert!(packet.header().ttl() != 13, "thirteen");
    })
}

/// Checks that an idle worker that has written does not keep others from writing.
///
/// This also holds for nodes made of functions that sort, and after a panic.
#[test]
fn every_kind_of_node_gives_the_writer_up_when_its_batch_or_call_ends() {
    type Build = fn(&Worker) -> Result<Box<dyn Node>, BuildError>;
    let kinds: [(&str, Build); 3] = [
        ("function", |w| compose(w, |input| counted(input, w).done())),
        ("group", |w| {
            let groups = Groups::new(GroupConfig { groups: 2, queue: 0 })?;
            groups.node_by(w, |input| counted(input, w), |_| 0)
        }),
        ("shuffle", |w| {
            Shuffle::new(ShuffleConfig::default()).node_by(w, |input| counted(input, w), |_| 0u32)
        }),
    ];
    let pool = pool();
    let thirteen = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(13).udp(1, 2).build().unwrap();
    for (kind, build) in kinds {
        let shares = Shares::default();
        let node = || build(&Worker::new(0, 1, pool.clone()).sharing(&shares)).unwrap();
        let (mut first, mut second) = (node(), node());
        through(first.as_mut(), &pool, &[frame(1), frame(2)]);
        assert_eq!(second.call("add", "").unwrap(), "Some(3)", "{kind}");
        assert_eq!(first.call("add", "").unwrap(), "Some(4)", "{kind}");
        through(second.as_mut(), &pool, &[frame(3)]);
        let panics =
            std::panic::AssertUnwindSafe(|| through(first.as_mut(), &pool, std::slice::from_ref(&thirteen)));
        std::panic::catch_unwind(panics).unwrap_err();
        assert_eq!(second.call("add", "").unwrap(), "Some(7)", "{kind}");
    }
}

#[test]
fn a_writer_keeps_others_from_writing_and_not_from_reading() {
    let shares = Shares::default();
    let side = |index| {
        Worker::new(index, 1, pool()).sharing(&shares).state::<CounterArray, _>(
            "seen",
            BoundedInconsistency { updates: 1 },
            1,
        )
    };
    let (writer, reader) = (side(0), side(1));
    let read = |state: &netbricks_core::consistency::Bounded<CounterArray>| state.read(|seen| seen.get(0));
    let mut made = 0;
    let changes = std::iter::from_fn(|| {
        assert_eq!(reader.update((0, 1)), Err(CannotWrite::Elsewhere), "after {made} changes");
        assert!(read(&reader) <= Some(made));
        made += 1;
        (made <= 3).then_some((0, 1))
    });
    writer.update_all(changes, |_| ()).unwrap();
    // Outside a batch nothing is postponed: it has published, and is no longer the writer.
    assert_eq!((read(&reader), reader.published(), read(&writer)), (Some(3), 3, Some(3)));
    assert_eq!(reader.update((0, 1)), Ok(Some(4)));
    assert_eq!(writer.update((0, 1)), Ok(Some(5)));
}

/// One function, three consistencies, one worker: one result.
#[test]
fn the_word_is_all_that_changes() {
    fn outcome<C: Consistency + Copy + Send + Sync + 'static>(consistency: C) -> Vec<String> {
        let pool = pool();
        let blueprint = Blueprint::new(move |w| compose(w, |i| tally(i, w, consistency)));
        let mut node = blueprint.build(&worker(&pool)).unwrap();
        through(node.as_mut(), &pool, &[frame(1), frame(2), frame(3)]);
        let mut said = vec![node.call("add", "").unwrap(), node.call("read", "").unwrap()];
        // One exports, another imports.
        let images = node.export();
        let mut next =
            Blueprint::new(move |w| compose(w, |i| tally(i, w, consistency))).build(&worker(&pool)).unwrap();
        next.import(&images[0].0, &images[0].1, 0).unwrap();
        said.push(next.call("read", "").unwrap());
        said.push(next.call("seen.occupancy", "").unwrap());
        let error = next.import("seen", b"nothing of the kind", 0).unwrap_err();
        said.push(error.to_string());
        said.push(next.call("read", "").unwrap());
        said
    }
    let own = outcome(NoExternalAccess);
    assert_eq!(own[..4], ["Some(4)", "[4, 129]", "[4, 129]", "2 2"]);
    assert!(own[4].contains("checksum is wrong") && own[5] == own[1], "{own:?}");
    assert_eq!(outcome(Strict), own);
    assert_eq!(outcome(BoundedInconsistency { updates: 7 }), own);
}

/// Checks that every container, under each consistency, imports another's export, and answers the same.
#[test]
fn every_container_under_every_consistency() {
    fn all<T: Contents>(config: T::Config, changes: &[T::Change], look: impl Fn(&T) -> String) {
        fn one<T: Contents, C: Consistency>(
            consistency: C,
            config: &T::Config,
            changes: &[T::Change],
            look: &impl Fn(&T) -> String,
        ) -> (String, Vec<u8>) {
            let state = worker(&pool()).state::<T, C>("state", consistency, config.clone());
            state.update_all(changes.iter().cloned(), |_| ()).unwrap();
            state.read(|state| (look(state), state.export()))
        }
        let own = one::<T, _>(NoExternalAccess, &config, changes, &look);
        assert_eq!(one::<T, _>(Strict, &config, changes, &look), own);
        assert_eq!(one::<T, _>(BoundedInconsistency { updates: 2 }, &config, changes, &look), own);
        let mut other = T::make(&config).unwrap();
        other.import(&own.1, 9).unwrap();
        assert_eq!(look(&other), own.0);
        assert!(!own.0.is_empty());
    }
    let put = |key: u64, value, timeout| MapChange::Put { key, value, timeout, now: 5 };
    let map =
        [put(1, 10u64, None), put(2, 20, Some(10)), put(1, 11, None), MapChange::Remove { key: 3, now: 6 }];
    all::<FlowTable<u64, u64>>(FlowTableConfig::new(4), &map, |map| {
        format!("{:?} {:?} {:?}", map.get(&1), map.get(&2), map.get(&3))
    });
    all::<CounterArray>(3, &[(0, 5), (2, 7), (9, 9)], |tallies| format!("{:?}", tallies.all()));
    let recent = [(1, 7), (2, 8), (3, 9)].map(|(now, item)| RecentItem { now, lifetime: None, item });
    all::<RingLog<u32>>((2, Some(100)), &recent, |recent| {
        format!("{:?}", recent.iter(3).collect::<Vec<_>>())
    });
    let size = netbricks_core::tables::LpmConfig { prefixes: 4, groups: 4 };
    let insert =
        |prefix: &str, len, value| RouteChange::Insert { prefix: prefix.parse().unwrap(), len, value };
    let routes = [insert("10.0.0.0", 8, 1u32), insert("10.1.0.0", 16, 2), insert("2001:db8::", 32, 3)];
    all::<Routes<u32>>((Some(size), Some(size)), &routes, |routes| {
        let of = |address: &str| routes.longest(address.parse().unwrap()).copied();
        format!("{:?} {:?} {:?} {:?}", of("10.1.2.3"), of("10.9.9.9"), of("2001:db8::1"), of("11.0.0.0"))
    });
}

#[test]
fn state_that_cannot_be_fails_the_building_and_says_what_would_do() {
    fn refused<C: Consistency>(consistency: impl Fn() -> C) -> Vec<String> {
        let worker = worker(&pool());
        let build = |declare: &dyn Fn()| {
            let function = |input: Input| {
                declare();
                input.done()
            };
            compose(&worker, function).map(|_| ()).unwrap_err().to_string()
        };
        vec![
            build(&|| drop(worker.state::<CounterArray, C>("seen", consistency(), 0))),
            build(&|| drop(worker.state::<RingLog<u8>, C>("last", consistency(), (0, None)))),
            build(&|| {
                drop(worker.state::<FlowTable<u64, u64>, C>("map", consistency(), FlowTableConfig::new(0)))
            }),
            // More than any machine has.
            build(&|| drop(worker.state::<CounterArray, C>("seen", consistency(), 1 << 50))),
            build(&|| drop(worker.state::<RingLog<u8>, C>("last", consistency(), (1 << 50, None)))),
        ]
    }
    let own = refused(|| NoExternalAccess);
    assert_eq!(own[0], "state `seen`: there are 0 counters: give it 1 or more");
    assert!(own[2].contains("state `map`: a flow table's capacity is 0 flows"), "{own:?}");
    for (error, of) in
        own[3..].iter().zip(["an array of 1125899906842624 counters", "a ring of 1125899906842624 items"])
    {
        assert!(error.contains(&format!("{of} needs")) && error.contains("lower the capacity"), "{error}");
    }
    assert_eq!(refused(|| Strict), own);
    assert_eq!(refused(|| BoundedInconsistency { updates: 0 }), own);
}

#[test]
fn asking_strict_state_from_inside_is_a_panic_and_not_a_wait() {
    let state = worker(&pool()).state::<CounterArray, _>("seen", Strict, 1);
    let inside = std::panic::AssertUnwindSafe(|| state.transact(|_| state.read(|seen| seen.get(0))));
    std::panic::catch_unwind(inside).unwrap_err();
    assert_eq!((state.update((0, 1)), state.remade()), (Ok(Some(1)), 1));
}

/// Checks that one order of nested calls is refused: two workers with opposite orders would wait for ever.
#[test]
fn strict_states_are_asked_for_in_the_order_of_their_declaration() {
    let worker = worker(&pool());
    let [first, second] = ["first", "second"].map(|name| worker.state::<CounterArray, _>(name, Strict, 1));
    assert_eq!(first.transact(|_| second.transact(|_| 7)), 7);
    for _ in 0..2 {
        let inside = second.transact(|_| first.update_all([], |_| ()));
        assert_eq!(inside, Err(CannotWrite::OutOfOrder));
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            second.transact(|_| first.transact(|_| ()));
        }));
        let said = panics.expect_err("it is refused").downcast::<String>().expect("a text");
        assert!(said.contains("order of their declaration"), "{said}");
        // No state is held any more.
        assert_eq!((first.transact(|_| 1), second.transact(|_| 2)), (1, 2));
        assert_eq!(first.update_all([], |_| ()), Ok(()));
    }
}

#[test]
fn a_ring_answers_how_many_items_gave_way_and_how_many_were_too_old() {
    let blueprint = Blueprint::new(|w| {
        compose(w, |input| {
            let last = w.state::<RingLog<u64>, _>("last", Strict, (3, Some(100)));
            input
                .map(move |p| last.transact(|ring| ring.push([0, 1, 2, 3, 500][p.payload()[0] as usize], 7)))
                .forget()
                .done()
        })
    });
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..5).map(|number| vec![number; 60]))));
    let (node, sink) = (rig.function("node", &blueprint), rig.add("sink", Box::new(Sink::default())));
    rig.chain(&[source, node, sink]);
    let (mut graph, _) = rig.build();
    run_out(&mut graph);
    // The fourth found three; the fifth ended two at once.
    let asked = |handler| graph.call("node", handler, "").unwrap();
    assert_eq!(
        ["last.occupancy", "last.evicted", "last.expired", "last.refused"].map(asked),
        ["2 3", "1", "2", "0"]
    );
}

/// Otherwise a reader of the source could choose flows that collide. A seed that an author chose stays.
#[test]
fn tables_without_a_chosen_seed_have_their_workers_seed() {
    let config = FlowTableConfig::new(64);
    // Flows lie in the order of their hashes.
    fn fill<K: Key>(table: &mut FlowTable<K, u64>, key: impl Fn(u64) -> K) -> Vec<u64> {
        for number in 0..20 {
            if let Entry::Vacant(place) = table.lookup(key(number), 0) {
                place.insert(number);
            }
        }
        table.iter().map(|(_, number)| *number).collect()
    }
    let order = |seed: u64, chosen: u64| {
        let worker = Worker::new(0, seed, pool());
        let config = FlowTableConfig { seed: chosen, ..config };
        let own = worker.flow_table::<u64, u64>("own", config);
        let map = worker.state::<FlowTable<u64, u64>, _>("map", Strict, config);
        let numbers = own.with(|own| fill(own, |number| number.store()));
        assert_eq!(numbers.len(), 20);
        assert_eq!(map.transact(|map| fill(map, |number| number)).len(), 20);
        let of_map = map.read(|map| map.iter().map(|(_, number)| *number).collect::<Vec<_>>());
        (numbers, of_map)
    };
    assert_eq!(order(1, 0), order(1, 0));
    let (first, other) = (order(1, 0), order(2, 0));
    assert!(first.0 != other.0 && first.1 != other.1);
    assert_eq!(order(1, 9), order(2, 9));
}
