use super::*;

/// Runs tenants that always have work for `turns` turns; `cost` says how many cycles each takes.
struct Run {
    scheduler: Scheduler,
    now: u64,
}

impl Run {
    fn of(policies: Vec<TenantPolicy>) -> Self {
        Self { scheduler: Scheduler::new(policies), now: 1 }
    }
    fn wake(&mut self, tenant: usize) {
        self.scheduler.ready(tenant as u16 + 1, tenant);
    }
    /// One turn of the tenant whose slice it is; answers which it was.
    fn turn(&mut self, cost: impl Fn(usize) -> u64, again: bool) -> Option<usize> {
        let number = self.scheduler.current().or_else(|| self.scheduler.current())?;
        let node = self.scheduler.pop(number, |_| true)?;
        self.now += cost(number);
        self.scheduler.charge(number as u16 + 1, self.now, 32);
        if again {
            self.scheduler.ready(number as u16 + 1, node);
        }
        Some(number)
    }
    fn cycles(&self) -> Vec<u64> {
        self.scheduler.status().into_iter().map(|tenant| tenant.cycles).collect()
    }
    fn idle(&mut self, cycles: u64) {
        self.now += cycles;
        self.scheduler.restart(self.now);
    }
}

/// Overruns of so many cycles each for which a tenant is demoted.
fn demoting(used: u64) -> u64 {
    (DEMOTING_US * CYCLES_PER_US).div_ceil(used).max(STRIKES.into())
}

fn policy(name: &str, weight: u32) -> TenantPolicy {
    TenantPolicy { weight, ..TenantPolicy::new(name) }
}

#[test]
fn weights_hold_within_a_hundredth_although_costs_differ_sixtyfold_and_change() {
    let weights = [1, 2, 3, 10, 1];
    let mut run = Run::of(weights.iter().enumerate().map(|(i, w)| policy(&i.to_string(), *w)).collect());
    (0..weights.len()).for_each(|tenant| run.wake(tenant));
    for turn in 0..1_000_000u64 {
        let cost = |tenant: usize| {
            // From 300 to 18,000 cycles; which tenant is the dear one changes.
            let dear = (tenant as u64 + turn / 100_000) % 5;
            300 + dear * 4_425
        };
        assert!(run.turn(cost, true).is_some());
    }
    let cycles = run.cycles();
    let (all, weight): (u64, u32) = (cycles.iter().sum(), weights.iter().sum());
    for (used, of) in cycles.iter().zip(weights) {
        let share = *used as f64 / all as f64 * f64::from(weight) / f64::from(of);
        assert!((0.99..1.01).contains(&share), "{share} of what weight {of} is due: {cycles:?}");
    }
}

#[test]
fn idle_time_is_saved_up_to_the_credit_only() {
    let mut run = Run::of(vec![policy("busy", 1), policy("sleeper", 1)]);
    run.wake(0);
    for _ in 0..100_000 {
        run.turn(|_| 1_000, true);
    }
    run.wake(1);
    let before = run.now;
    while run.turn(|_| 1_000, true) == Some(1) {}
    let ahead = run.now - before;
    let (credit, slice) = (CREDIT_US * CYCLES_PER_US, run.scheduler.slice());
    assert!(ahead <= credit + 3 * slice, "{ahead} cycles ahead, {credit} allowed");
    assert!(ahead >= credit / 2, "the credit is used: {ahead}");
}

#[test]
fn a_ceiling_holds_within_a_fiftieth_also_where_others_are_idle() {
    let capped = TenantPolicy { ceiling: Some(250), ..policy("capped", 1) };
    let mut run = Run::of(vec![capped.clone(), policy("other", 1)]);
    run.wake(0);
    let begin = run.now;
    for _ in 0..200_000 {
        if run.turn(|_| 3_000, true).is_none() {
            let wait = run.scheduler.next_release().expect("it is throttled") * CYCLES_PER_US / 1_000 + 2;
            run.idle(wait);
        }
    }
    let share = run.cycles()[0] as f64 / (run.now - begin) as f64;
    assert!((0.245..0.255).contains(&share), "{share}");
    // With another that takes all it gets.
    let mut run = Run::of(vec![capped, policy("other", 1)]);
    (0..2).for_each(|tenant| run.wake(tenant));
    for _ in 0..400_000 {
        run.turn(|_| 3_000, true);
    }
    let share = run.cycles()[0] as f64 / run.now as f64;
    assert!((0.245..0.255).contains(&share), "{share}");
    assert!(run.scheduler.status()[0].throttled > 0);
}

#[test]
fn a_strict_class_waits_for_one_slice_at_most() {
    let first = TenantPolicy { priority: 0, ..policy("first", 1) };
    let mut run = Run::of(vec![first, policy("a", 5), policy("b", 5)]);
    run.wake(1);
    run.wake(2);
    let mut longest = 0;
    for round in 0..2_000u64 {
        for _ in 0..round % 7 {
            run.turn(|_| 1_500, true);
        }
        let woke = run.now;
        run.wake(0);
        while run.turn(|_| 1_500, false) != Some(0) {
            run.wake_all_but_first();
        }
        longest = longest.max(run.now - woke);
        run.wake_all_but_first();
    }
    assert!(longest <= run.scheduler.slice() + 2 * 1_500, "{longest}");
}

impl Run {
    /// Lets the two tenants of the second class have work again.
    fn wake_all_but_first(&mut self) {
        for tenant in 1..3 {
            if !self.scheduler.contains(tenant as u16 + 1, tenant) {
                self.wake(tenant);
            }
        }
    }
}

#[test]
fn slices_that_overrun_repeatedly_demote_and_time_restores() {
    let hog = TenantPolicy { priority: 2, ..policy("hog", 1) };
    let mut run = Run::of(vec![hog, policy("good", 1)]);
    (0..2).for_each(|tenant| run.wake(tenant));
    let cost = |tenant: usize| if tenant == 0 { 5 * SLICE_US * CYCLES_PER_US } else { 1_000 };
    let overruns = demoting(cost(0));
    let mut events = Vec::new();
    for _ in 0..overruns {
        events.extend(run.scheduler.take_events());
        assert_eq!(run.turn(cost, true), Some(0), "its class comes first");
    }
    run.turn(cost, true);
    let status = run.scheduler.status();
    assert!(status[0].demoted && status[0].overruns == overruns, "{status:?}");
    events.extend(run.scheduler.take_events());
    assert!(events.contains(&TenantEvent::Demoted { tenant: "hog".into() }), "{events:?}");
    assert!(matches!(events[0], TenantEvent::Overran { ns: 125_000, .. }), "{events:?}");
    assert_eq!(run.turn(cost, true), Some(1), "the other's class comes first now");
    run.idle(DEMOTED_US * CYCLES_PER_US);
    (0..200).for_each(|_| _ = run.turn(|_| 1_000, true));
    assert!(run.scheduler.take_events().contains(&TenantEvent::Restored { tenant: "hog".into() }));
}

/// Slices that the machine interrupts now and then are no fault of the tenant's.
#[test]
fn overruns_that_come_rarely_or_take_a_small_part_of_its_time_demote_no_tenant() {
    let slice = SLICE_US * CYCLES_PER_US;
    let second = 1_000_000 * CYCLES_PER_US;
    // 2,000 cheap slices a second, of which four are interrupted for 150 us; a quarter of its time and more.
    let mut run = Run::of(vec![policy("small", 1)]);
    for number in 0..100_000u64 {
        run.wake(0);
        run.turn(|_| if number % 500 == 0 { 6 * slice } else { 1_000 }, false);
        run.scheduler.end_slice();
        run.idle(second / 2_000);
    }
    let status = &run.scheduler.status()[0];
    assert!(status.overruns == 200 && !status.demoted, "{status:?}");
    // Always at work, and 5 % of its time are interruptions of 3 ms.
    let mut run = Run::of(vec![policy("busy", 1)]);
    run.wake(0);
    for number in 1..200_000u64 {
        run.turn(|_| if number % 2_400 == 0 { 120 * slice } else { slice }, true);
    }
    let status = &run.scheduler.status()[0];
    assert!(status.overruns > 50 && !status.demoted, "{status:?}");
    // One of eight slices is long: that is no noise, also where it rests between them.
    let mut run = Run::of(vec![policy("hog", 1)]);
    for number in 0..800u64 {
        run.wake(0);
        run.turn(|_| if number % 8 == 0 { 40 * slice } else { slice / 2 }, false);
        run.scheduler.end_slice();
        run.idle(second / 400);
    }
    assert!(run.scheduler.status()[0].demoted, "{:?}", run.scheduler.status());
}

#[test]
fn preemptions_demote_as_overruns_do() {
    let mut run = Run::of(vec![policy("hog", 1)]);
    run.wake(0);
    let overruns = demoting(SLICE_US * CYCLES_PER_US);
    let mut events = Vec::new();
    for _ in 0..overruns {
        events.extend(run.scheduler.take_events());
        run.turn(|_| SLICE_US * CYCLES_PER_US, true);
        run.scheduler.preempted(1);
    }
    run.turn(|_| 1_000, true);
    let status = run.scheduler.status();
    assert!(status[0].demoted && status[0].overruns == overruns, "{status:?}");
    events.extend(run.scheduler.take_events());
    assert_eq!(events[0], TenantEvent::Preempted { tenant: "hog".into() });
    assert_eq!(events.last(), Some(&TenantEvent::Demoted { tenant: "hog".into() }));
}

thread_local! {
    static THREAD: std::cell::Cell<ThreadTime> = const { std::cell::Cell::new(ThreadTime { wall: 0, on_core: 0 }) };
}

/// Lets so many cycles pass for the test's thread, of which it has a part; answers the cycles.
fn passes(cycles: u64, on_core: u64) -> u64 {
    let ns = |cycles: u64| cycles * 1_000 / CYCLES_PER_US;
    let before = THREAD.get();
    THREAD.set(ThreadTime { wall: before.wall + ns(cycles), on_core: before.on_core + ns(on_core) });
    cycles
}

#[test]
fn time_that_the_thread_did_not_have_is_given_back() {
    let mut run = Run::of(vec![policy("a", 1), policy("b", 1)]);
    run.scheduler.follow_thread(|| THREAD.get());
    run.wake(0);
    run.turn(|_| passes(10_000, 10_000), true);
    run.scheduler.restart_correction(run.now);
    (0..20).for_each(|_| _ = run.turn(|_| passes(100_000, 25_000), true));
    run.scheduler.correct();
    let used = run.cycles()[0];
    assert!((500_000..520_000).contains(&used), "{used}");
}

#[test]
fn a_turn_that_the_system_interrupted_is_no_overrun_and_makes_no_packet_dear() {
    let mut run = Run::of(vec![policy("a", 1), policy("b", 1)]);
    run.scheduler.follow_thread(|| THREAD.get());
    run.scheduler.restart_correction(run.now);
    run.wake(0);
    let slice = run.scheduler.slice();
    for turn in 1..=100 {
        // A twentieth of the time is its own.
        run.turn(|_| passes(20 * slice, slice), true);
        assert!(run.cycles()[0] <= turn * (slice + slice / 50), "{turn}: {:?}", run.cycles());
    }
    let status = &run.scheduler.status()[0];
    assert!(status.overruns == 0 && !status.demoted && status.longest_slice < 2 * slice, "{status:?}");
    assert!(run.scheduler.most(1, usize::MAX) >= 30, "{}", run.scheduler.most(1, usize::MAX));
    // What it takes itself counts.
    let overruns = demoting(18 * slice);
    (0..=overruns).for_each(|_| _ = run.turn(|_| passes(20 * slice, 19 * slice), true));
    let status = &run.scheduler.status()[0];
    assert!(status.overruns == overruns && status.demoted, "{status:?}");
    assert_eq!(run.scheduler.most(1, usize::MAX), 1);
}

#[test]
fn events_of_a_tenant_that_overruns_in_each_turn_are_due() {
    let mut run = Run::of(vec![policy("hog", 1)]);
    run.scheduler.follow_thread(|| THREAD.get());
    run.scheduler.restart_correction(run.now);
    run.wake(0);
    let slice = run.scheduler.slice();
    let mut told = 0;
    for _ in 0..100 {
        run.turn(|_| passes(20 * slice, 20 * slice), true);
        let due = run.scheduler.is_correction_due();
        if due {
            run.scheduler.correct();
            told += run.scheduler.take_events().len();
        }
        assert!(!run.scheduler.is_correction_due(), "nothing is left to tell");
    }
    // 99 slices ended, and one of its overruns demoted it.
    assert_eq!((run.scheduler.status()[0].overruns, told), (99, 100));
    // Packets drive the clock: events are due all the same, and no time is.
    run.scheduler.by_packets = true;
    run.scheduler.tell(TenantEvent::Restored { tenant: "hog".into() });
    run.idle(100 * slice);
    let corrected = run.scheduler.corrected;
    assert!(run.scheduler.is_correction_due());
    run.scheduler.correct();
    assert_eq!((run.scheduler.corrected, run.scheduler.take_events().len()), (corrected, 1));
}

#[test]
fn a_ceiling_that_is_added_late_counts_from_then_on() {
    let mut run = Run::of(vec![policy("a", 1)]);
    run.wake(0);
    for _ in 0..100_000 {
        run.turn(|_| 40_000, true);
    }
    let mut after = Scheduler::new(vec![TenantPolicy { ceiling: Some(500), ..policy("a", 1) }]);
    after.ready(1, 0);
    after.follow(&run.scheduler);
    run.scheduler = after;
    let slice = run.scheduler.slice();
    assert!(run.turn(|_| slice, true).is_some(), "it owes nothing");
    assert_eq!(run.turn(|_| slice, true), None, "now it does");
    let wait = run.scheduler.next_release().expect("its ceiling holds it back");
    assert!(wait <= 2 * SLICE_US * 1_000, "{wait} ns");
    // Also the largest debt has an end.
    let tenant = &mut run.scheduler.tenants[0];
    (tenant.tokens, tenant.policy.ceiling) = (i64::MIN, Some(1));
    assert!(tenant.refill(run.now, slice).is_some());
}

#[test]
fn tenants_that_may_not_run_take_no_credit_from_others() {
    let mut run = Run::of(vec![policy("ahead", 1), policy("behind", 1)]);
    run.wake(0);
    run.turn(|_| 1_000_000, true);
    run.wake(1);
    let passes = |run: &Run| [0, 1].map(|number| run.scheduler.tenants[number].pass);
    let before = passes(&run);
    for _ in 0..10 {
        // Both lead to something full.
        let mut held_up = Vec::new();
        for _ in 0..2 {
            while let Some(number) = run.scheduler.current() {
                assert_eq!(run.scheduler.pop(number, |_| false), None);
                run.scheduler.set_aside();
                held_up.push(number);
            }
        }
        run.scheduler.take_back();
        held_up.sort_unstable();
        assert_eq!((held_up, passes(&run)), (vec![0, 1], before));
    }
    assert_eq!(run.scheduler.status().iter().map(|tenant| tenant.slices).sum::<u64>(), 1);
    assert_eq!(run.turn(|_| 1_000, true), Some(1));
}

#[test]
fn a_slice_that_is_taken_away_counts_as_one_that_ends() {
    let mut run = Run::of(vec![policy("hog", 1)]);
    run.wake(0);
    let slice = run.scheduler.slice();
    for overruns in 1..=demoting(5 * slice) {
        run.turn(|_| 5 * slice, true);
        run.scheduler.set_aside();
        run.scheduler.take_back();
        assert_eq!(run.scheduler.status()[0].overruns, overruns);
    }
    assert!(run.scheduler.status()[0].demoted);
    assert_eq!(run.turn(|_| 1_000, true), Some(0));
}

#[test]
fn a_demoted_tenant_comes_behind_the_last_class_too() {
    let last = |name: &str| TenantPolicy { priority: TenantPolicy::LAST, ..policy(name, 1) };
    let mut run = Run::of(vec![last("hog"), last("good")]);
    run.wake(0);
    let slice = run.scheduler.slice();
    (0..demoting(5 * slice)).for_each(|_| _ = run.turn(|_| 5 * slice, true));
    run.scheduler.end_slice();
    assert!(run.scheduler.status()[0].demoted);
    run.wake(1);
    for _ in 0..1_000 {
        assert_eq!(run.turn(|_| slice, true), Some(1), "it has work, so the hog waits");
    }
}

#[test]
fn timers_and_calls_are_charged_and_timers_count_as_overruns() {
    let mut run = Run::of(vec![policy("hog", 1), policy("good", 1)]);
    (0..2).for_each(|tenant| run.wake(tenant));
    run.idle(0);
    let slice = run.scheduler.slice();
    for _ in 0..2 * STRIKES {
        run.now += 1_000_000;
        run.scheduler.charge_call(1, run.now - 5 * slice, run.now);
    }
    let status = run.scheduler.status();
    assert!(status[0].overruns == 0 && !status[0].demoted, "the operator may have called: {status:?}");
    assert_eq!((status[0].cycles, status[0].longest_slice), (10 * u64::from(STRIKES) * slice, 0));
    assert!(run.scheduler.take_events().is_empty());
    let overruns = demoting(5 * slice);
    for _ in 0..overruns {
        run.now += 5 * slice;
        run.scheduler.charge_event(1, run.now, 0);
    }
    let status = run.scheduler.status();
    let used = (2 * u64::from(STRIKES) + overruns) * 5 * slice;
    assert!(status[0].overruns == overruns && status[0].demoted, "{status:?}");
    assert_eq!((status[0].cycles, status[0].longest_slice, status[0].slices), (used, 5 * slice, 0));
    for _ in 0..100 {
        assert_eq!(run.turn(|_| slice, true), Some(1), "the hog comes last now");
    }
    // A replay has no calls in its clock.
    run.scheduler.by_packets = true;
    run.scheduler.charge_call(1, run.now, run.now + slice);
    assert_eq!(run.cycles()[0], used);
}

#[test]
fn tenants_keep_their_pass_where_a_graph_takes_over() {
    let mut run = Run::of(vec![policy("a", 1), policy("b", 1)]);
    run.wake(0);
    (0..100).for_each(|_| _ = run.turn(|_| 1_000, true));
    let mut after = Scheduler::new(vec![policy("new", 1), policy("a", 1)]);
    after.follow(&run.scheduler);
    assert_eq!(after.status()[1].cycles, run.cycles()[0]);
    assert_eq!(after.tenants[1].pass, run.scheduler.tenants[0].pass);
    assert_eq!(
        after.most(2, usize::MAX),
        run.scheduler.most(1, usize::MAX),
        "its packets are as dear as before"
    );
}

#[test]
fn a_tenant_whose_ceiling_goes_or_that_is_restored_has_saved_up_nothing() {
    // One tenant was held back for long; then a graph takes over in which it has no ceiling.
    let capped = TenantPolicy { ceiling: Some(10), ..policy("capped", 1) };
    let mut run = Run::of(vec![capped, policy("other", 1)]);
    (0..2).for_each(|tenant| run.wake(tenant));
    for _ in 0..50_000 {
        run.turn(|_| 3_000, true);
    }
    let mut after = Scheduler::new(vec![policy("capped", 1), policy("other", 1), policy("new", 1)]);
    // Before it follows the old one, its nodes are ready already.
    (0..3).for_each(|tenant| after.ready(tenant + 1, usize::from(tenant)));
    after.follow(&run.scheduler);
    run.scheduler = after;
    let before = run.cycles();
    for _ in 0..3_000 {
        run.turn(|_| 3_000, true);
    }
    let used: Vec<u64> = run.cycles().iter().zip(before).map(|(now, before)| now - before).collect();
    let all: u64 = used.iter().sum();
    for cycles in &used {
        let share = *cycles as f64 / all as f64;
        assert!((0.27..0.4).contains(&share), "{used:?}");
    }

    // The same for one that comes back from the last class.
    let hog = TenantPolicy { priority: 4, ..policy("hog", 1) };
    let mut run = Run::of(vec![hog, policy("good", 1)]);
    (0..2).for_each(|tenant| run.wake(tenant));
    let cost = |tenant: usize| if tenant == 0 { 5 * SLICE_US * CYCLES_PER_US } else { 50_000 };
    while !run.scheduler.status()[0].demoted {
        run.turn(cost, true);
    }
    while run.scheduler.status()[0].demoted {
        run.turn(|_| 50_000, true);
    }
    let before = run.cycles();
    (0..1_000).for_each(|_| _ = run.turn(|_| 3_000, true));
    let used: Vec<u64> = run.cycles().iter().zip(before).map(|(now, before)| now - before).collect();
    assert!(used[0] < 2 * used[1] && used[1] < 2 * used[0], "{used:?}");
}
