//! Counters by key, and routes that end: alike under each consistency, with counts of evictions, refusals and
//! more.

use std::fmt::Debug;
use std::thread;

use netbricks_core::buffer::Batch;
use netbricks_core::consistency::{
    Access, BoundedInconsistency, CannotWrite, Consistency, Contents, Lookable, NoExternalAccess, Shares,
    Strict, TallyEntry,
};
use netbricks_core::packet::{Ip, Link, Udp};
use netbricks_core::tables::{
    CounterChange, FlowTableConfig, Full, KeyedCounterArray, LpmConfig, RouteChange, RouteLifetime, Routes,
    RoutesFull,
};
use netbricks_core::view::{IpRewrite, Metadata};
use netbricks_core::{
    Blueprint, DetachedContext, Function, Handler, Input, Node, Operator, StoredFlow, Verdict, Worker,
    compose,
};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::run_with;
use proptest::prelude::*;

use crate::consistency::{frame, through};
use crate::harness::{pool, worker};

type Counts = KeyedCounterArray<StoredFlow>;

/// Writes into the payload how many packets of the flow were counted, this one included.
///
/// It writes 0 where there was no room.
fn counting<C>(input: Input, worker: &Worker, consistency: C, full: Full) -> impl Function + use<C>
where
    C: Consistency,
    C::Handle<Counts>: Lookable<Table = Counts>,
    for<'e> <C::Handle<Counts> as Lookable>::Entry<'e>: TallyEntry,
{
    let config = FlowTableConfig { full, ..FlowTableConfig::new(16) };
    let counts = worker.state::<Counts, C>("counts", consistency, config);
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .lookup(
            &counts,
            |p| p.flow_key(),
            |_, entry| {
                let before = entry.count();
                let after = entry.add(1).unwrap();
                assert_eq!(after.unwrap_or(0), after.map_or(0, |_| before.unwrap_or(0) + 1));
                after.unwrap_or(0)
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

    /// Private counters are the oracle, and a map is the oracle for them while there is room.
    #[test]
    fn packets_are_counted_alike_under_every_consistency(
        flows in prop::collection::vec(0u16..40, 1..300),
        full in prop_oneof![Just(Full::Refuse), Just(Full::EvictOldest)],
    ) {
        let frames: Vec<_> = flows.iter().map(|flow| frame(*flow)).collect();
        let own = run_with(move |i, w| counting(i, w, NoExternalAccess, full), frames.clone());
        let strict = run_with(move |i, w| counting(i, w, Strict, full), frames.clone());
        prop_assert_eq!((&own.out, &own.drops), (&strict.out, &strict.drops));
        for updates in [0, 3, 1_000] {
            let bounded = BoundedInconsistency { updates };
            let bounded = run_with(move |i, w| counting(i, w, bounded, full), frames.clone());
            prop_assert_eq!((&own.out, &own.drops), (&bounded.out, &bounded.drops));
        }
        let mut distinct: Vec<u16> = Vec::new();
        for (at, flow) in flows.iter().enumerate() {
            if !distinct.contains(flow) {
                distinct.push(*flow);
            }
            if distinct.len() > 16 {
                break;
            }
            let counted = flows[..=at].iter().filter(|other| *other == flow).count();
            prop_assert_eq!(usize::from(own.out[at][42]), counted);
        }
    }
}

/// Checks that each packet of two threads is counted exactly once.
#[test]
fn strict_additions_add_up_over_threads() {
    const ROUNDS: u64 = 500;
    let blueprint = Blueprint::new(|w| compose(w, |i| counting(i, w, Strict, Full::Refuse)));
    let threads: Vec<_> = (0..3)
        .map(|index| {
            let blueprint = blueprint.clone();
            thread::spawn(move || {
                let pool = pool();
                let mut node = blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap();
                let frames: Vec<_> = (0..20).map(|flow| frame(flow % 10)).collect();
                for _ in 0..ROUNDS {
                    through(node.as_mut(), &pool, &frames);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let images = blueprint.build(&worker(&pool())).unwrap().export();
    let mut counts = Counts::new(FlowTableConfig::new(16)).unwrap();
    counts.table_mut().decode(&images[0].1, 0).unwrap();
    let counted: Vec<u64> = counts.table().iter().map(|(_, count)| *count).collect();
    assert_eq!(counted, [3 * 2 * ROUNDS; 10]);
}

/// Checks that an addition adds to the present value, not to the value that the adding worker has seen.
#[test]
fn bounded_additions_add_up_though_readers_see_less() {
    let shares = Shares::default();
    let side = |index| {
        Worker::new(index, 1, pool()).sharing(&shares).state::<KeyedCounterArray<u64>, _>(
            "counts",
            BoundedInconsistency { updates: 1_000 },
            FlowTableConfig::new(4),
        )
    };
    let add = || CounterChange::Add { key: 7, by: 1, timeout: None, now: 0 };
    let (first, second) = (side(0), side(1));
    let mut left = 2;
    let changes = std::iter::from_fn(|| {
        assert_eq!(second.read(|counts| counts.get(&7)), None);
        assert_eq!(second.update(add()), Err(CannotWrite::Elsewhere));
        left -= 1;
        (left >= 0).then(add)
    });
    first.update_all(changes, drop).unwrap();
    // It has published, and is no longer the writer.
    second.update(add()).unwrap();
    assert_eq!(second.read(|counts| counts.get(&7)), Some(3));
}

/// Results of changes, the state then, its image, its occupancy and its counters: equal under all three
/// consistencies.
fn all<T>(config: &T::Config, changes: &[T::Change], look: impl Fn(&T) -> String) -> (Vec<String>, Vec<u8>)
where
    T: Contents<Outcome: Debug>,
{
    fn one<T: Contents<Outcome: Debug>, C: Consistency>(
        consistency: C,
        config: &T::Config,
        changes: &[T::Change],
        look: &impl Fn(&T) -> String,
    ) -> (Vec<String>, Vec<u8>) {
        let state = worker(&pool()).state::<T, C>("state", consistency, config.clone());
        let mut said = Vec::new();
        state.update_all(changes.iter().cloned(), |outcome| said.push(format!("{outcome:?}"))).unwrap();
        let image = state.read(|state| {
            said.extend([look(state), format!("{:?} {:?}", state.occupancy(), state.flow_counters())]);
            state.export()
        });
        (said, image)
    }
    let own = one::<T, _>(NoExternalAccess, config, changes, &look);
    assert_eq!(one::<T, _>(Strict, config, changes, &look), own);
    for updates in [0, 2, 1_000] {
        assert_eq!(one::<T, _>(BoundedInconsistency { updates }, config, changes, &look), own);
    }
    own
}

#[test]
fn keyed_counters_change_alike_under_every_consistency() {
    let config = FlowTableConfig { idle_timeout: Some(100), ..FlowTableConfig::new(2) };
    let add = |key: u64, by, timeout, now| CounterChange::Add { key, by, timeout, now };
    let changes = [
        add(1, 5, None, 0),
        add(2, 7, Some(1_000), 10),
        add(1, u64::MAX, None, 50),
        add(3, 1, None, 60),
        CounterChange::Expire { now: 150 },
        add(3, 1, None, 160),
        CounterChange::Remove { key: 3, now: 170 },
        CounterChange::Remove { key: 3, now: 170 },
    ];
    let look = |counts: &KeyedCounterArray<u64>| format!("{:?}", [1, 2, 3].map(|key| counts.get(&key)));
    let (said, image) = all::<KeyedCounterArray<u64>>(&config, &changes, look);
    let largest = format!("Added({})", u64::MAX);
    let expected = ["Added(5)", "Added(7)", &largest, "Full", "Expired(1)", "Added(1)", "Removed(Some(1))"];
    assert_eq!(said[..7], expected);
    assert_eq!(said[7..9], ["Removed(None)", "[None, Some(7), None]"]);
    assert!(
        said[9]
            .starts_with("(1, 2) Some(Counters { hits: 1, inserted: 3, evicted: 0, expired: 1, refused: 1")
    );
    // Its timeout moves with it: it was 160 ns old of 1,000.
    let mut other = KeyedCounterArray::<u64>::make(&config).unwrap();
    netbricks_core::Declared::import(&mut other, &image, 5_000).unwrap();
    assert_eq!((other.expire(5_839, 64), other.get(&2)), (0, Some(7)));
    assert_eq!((other.expire(5_840, 64), other.get(&2)), (1, None));
}

fn insert(prefix: &str, len: u8, value: u64, end: Option<u64>, now: u64) -> RouteChange<u64> {
    let lifetime = RouteLifetime { now, end, full: RoutesFull::EvictFirstToEnd };
    RouteChange::InsertWithLifetime { prefix: prefix.parse().unwrap(), len, value, lifetime }
}

#[test]
fn routes_end_alike_under_every_consistency() {
    let size = Some(LpmConfig { prefixes: 2, groups: 4 });
    let changes = [
        insert("10.0.0.0", 8, 1, None, 0),
        insert("10.1.0.0", 16, 2, Some(500), 0),
        // It takes the place of the route that ends.
        insert("10.2.0.0", 16, 3, Some(400), 10),
        insert("2001:db8::", 32, 4, Some(300), 20),
        RouteChange::Expire { now: 299 },
        // A refresh.
        insert("2001:db8::", 32, 5, Some(600), 299),
        RouteChange::Expire { now: 400 },
        insert("10.3.0.0", 16, 6, None, 400),
        // No route is left that ends.
        insert("10.4.0.0", 16, 7, Some(900), 400),
    ];
    let look = |routes: &Routes<u64>| {
        let of = |address: &str| routes.longest(address.parse().unwrap()).copied();
        format!("{:?}", ["10.1.0.1", "10.2.0.1", "10.3.0.1", "2001:db8::1"].map(of))
    };
    let (said, image) = all::<Routes<u64>>(&(size, size), &changes, look);
    assert_eq!(said[4..8], ["Expired(0)", "Inserted(Some(4))", "Expired(1)", "Inserted(None)"]);
    assert_eq!(said[8], "Refused(PrefixesFull { capacity: 2 })");
    assert_eq!(said[9], "[Some(1), Some(1), Some(6), Some(5)]");
    assert!(
        said[10]
            .starts_with("(3, 4) Some(Counters { hits: 0, inserted: 5, evicted: 1, expired: 1, refused: 1")
    );
    // Under another clock it has 301 ns left of its life, which was last looked at when it was refreshed.
    let mut other = Routes::<u64>::make(&(size, size)).unwrap();
    netbricks_core::Declared::import(&mut other, &image, 5_000).unwrap();
    assert_eq!((other.expire(5_199, 64), other.len()), (0, 3));
    assert_eq!((other.expire(5_200, 64), other.len()), (1, 2));
}

/// A node with both, which a handler tells the time.
fn both<C: Consistency + Copy>(input: Input, worker: &Worker, consistency: C) -> impl Function + use<C>
where
{
    let config = FlowTableConfig { idle_timeout: Some(100), ..FlowTableConfig::new(2) };
    let counts = worker.state::<KeyedCounterArray<u64>, C>("counts", consistency, config);
    let size = Some(LpmConfig { prefixes: 2, groups: 4 });
    let routes = worker.state::<Routes<u64>, C>("routes", consistency, (size, size));
    let (asked, told) = ((counts.clone(), routes.clone()), (counts.clone(), routes.clone()));
    worker.handler(Handler::write("add", "Adds to three counters and routes."), move |_| {
        let add = |key| CounterChange::Add { key, by: 10 + key, timeout: None, now: 0 };
        counts.update_all([1, 2, 3].map(add), drop).map_err(|error| error.to_string())?;
        let prefixes = ["10.1.0.0", "10.2.0.0", "10.3.0.0"];
        let insert = |(number, prefix)| insert(prefix, 16, number, Some(100 + number), 0);
        routes.update_all((0..).zip(prefixes).map(insert), drop).map_err(|error| error.to_string())?;
        Ok(String::new())
    });
    worker.handler(Handler::write("expire", "Ends what is due.").argument("NANOSECONDS"), move |now| {
        let now = now.parse().map_err(|_| "expected a time")?;
        told.0.update(CounterChange::Expire { now }).map_err(|error| error.to_string())?;
        told.1.update(RouteChange::Expire { now }).map_err(|error| error.to_string())?;
        Ok(String::new())
    });
    worker.handler(Handler::read("read", "What there is."), move |_| {
        let counts = asked.0.read(|counts| [1, 2, 3].map(|key| counts.get(&key)));
        let routes =
            asked.1.read(|routes| routes.iter().map(|(prefix, ..)| prefix.to_string()).collect::<Vec<_>>());
        Ok(format!("{counts:?} {routes:?}"))
    });
    input.done()
}

/// As an operator sees them: by the state's own handlers, and exported, truncated, changed and imported.
#[test]
fn operators_see_what_ended_and_what_is_no_export_changes_nothing() {
    fn play<C: Consistency + Copy + Send + Sync + 'static>(consistency: C) -> Vec<String> {
        let node = || -> Box<dyn Node> {
            let blueprint = Blueprint::new(move |w| compose(w, |i| both(i, w, consistency)));
            blueprint.build(&worker(&pool())).unwrap()
        };
        let (mut node, mut other) = (node(), node());
        let mut said = Vec::new();
        let mut ask = |node: &mut Box<dyn Node>, handler: &str, argument: &str| {
            said.push(node.call(handler, argument).unwrap());
            said.last().unwrap().clone()
        };
        let handlers = ["occupancy", "evicted", "expired", "refused"];
        for (handler, argument) in [("add", ""), ("expire", "99"), ("expire", "101"), ("read", "")] {
            ask(&mut node, handler, argument);
            for (name, count) in ["counts", "routes"].map(|name| handlers.map(|count| (name, count))).concat()
            {
                ask(&mut node, &format!("{name}.{count}"), "");
            }
        }
        ask(&mut node, "add", "");
        ask(&mut other, "add", "");
        ask(&mut other, "expire", "101");
        let before = ask(&mut other, "read", "");
        for (name, image) in node.export() {
            for at in 0..image.len() {
                let mut changed = image.clone();
                changed[at] ^= 4;
                assert!(other.import(&name, &changed, 200).is_err(), "byte {at} of {name}");
                assert!(other.import(&name, &image[..at], 200).is_err(), "{at} bytes of {name}");
            }
            assert_eq!(ask(&mut other, "read", ""), before);
        }
        for (name, image) in node.export() {
            other.import(&name, &image, 200).unwrap();
        }
        ask(&mut other, "read", "");
        ask(&mut other, "expire", "301");
        ask(&mut other, "read", "");
        said
    }
    let own = play(NoExternalAccess);
    // Of three counters two got room; of three routes the first gave its place to the third.
    assert_eq!(own[1..9], ["2 2", "0", "0", "1", "2 4", "1", "0", "0"]);
    assert_eq!(own[19..27], ["0 2", "0", "2", "1", "1 4", "1", "1", "0"]);
    assert_eq!(own[27], "[None, None, None] [\"10.3.0.0\"]");
    assert_eq!(play(Strict), own);
    assert_eq!(play(BoundedInconsistency { updates: 3 }), own);
}

/// The values that decide for a packet to 10.1.0.9 at these times, and how many routes had ended then.
fn decided<C>(consistency: C, routes: u8, times: &[u64]) -> Vec<(u8, String)>
where
    C: Consistency,
    C::Handle<Routes<u64>>: for<'e> Lookable<Table = Routes<u64>, Entry<'e> = Option<&'e u64>>,
{
    let pool = pool();
    let worker = worker(&pool);
    let function = |input: Input| {
        let size = Some(LpmConfig { prefixes: 100, groups: 100 });
        let known = worker.state::<Routes<u64>, C>("routes", consistency, (size, None));
        let ending = (0..routes).map(|at| insert(&format!("10.1.{at}.0"), 24, 2, Some(1_000), 0));
        known.update_all(ending.chain([insert("10.0.0.0", 8, 1, None, 0)]), drop).unwrap();
        input
            .parse::<Link>()
            .parse::<Ip>()
            .lookup(&known, |p| p.header().destination(), |_, value| value.copied().unwrap_or(0))
            .parse::<Udp>()
            .transform(|p| p.payload_mut()[0] = *p.get::<u64>() as u8)
            .done()
    };
    let mut node = compose(&worker, function).unwrap();
    let mut cx = DetachedContext::new(pool.clone());
    let frame = ethernet().ipv4("192.0.2.1", "10.1.0.9").udp(1, 2).payload(b"\0").build().unwrap();
    let mut decide = |now: &u64| {
        cx.advance(*now);
        let mut batch = Batch::new();
        batch.push(pool.packet(&frame).unwrap()).unwrap();
        node.process(0, &mut batch, &mut cx);
        (batch.get(0).unwrap().data()[42], node.call("routes.expired", "").unwrap())
    };
    times.iter().map(&mut decide).collect()
}

#[test]
fn lookups_take_out_routes_whose_time_is_over_a_few_a_batch() {
    let said = |number: u8, ended: &str| (number, ended.to_owned());
    // The wheel moves timers nearer now and then, and each call has a limit: all are gone after a few calls.
    for found in [decided(NoExternalAccess, 1, &[0, 999, 1_000]), decided(Strict, 1, &[0, 999, 1_000])] {
        assert_eq!(found, [said(2, "0"), said(2, "0"), said(1, "1")]);
    }
    let all = decided(NoExternalAccess, 20, &[0, 2_000, 2_000, 2_000, 2_000]);
    let ended: Vec<u8> = all.iter().map(|(_, ended)| ended.parse().unwrap()).collect();
    assert!(ended.windows(2).all(|two| two[1] - two[0] <= 8), "at most eight a batch: {ended:?}");
    assert_eq!(all.last(), Some(&said(1, "20")));
}
