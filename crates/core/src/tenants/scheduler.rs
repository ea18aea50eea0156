//! Which tenant has the next turns: start-time fair queueing on measured cycles, in strict classes.
//!
//! Each tenant has a pass: its cycles over its weight. The next slice is of the first class that has work, and there
//! of the lowest pass. A tenant that wakes has saved up [`CREDIT_US`] of its time at most. A ceiling is a token
//! bucket: a tenant that has used its tokens up waits until there are some again.
//!
//! The costs of a turn are the cycles from the end of the turn before to its own end, so that every cycle of a round
//! is someone's. Time that the system took the worker's core away is given back, in proportion. A turn that seems
//! to be too long is compared with the time that the thread had at once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::policy::TenantPolicy;

/// The length of a slice (µs).
const SLICE_US: u64 = 25;
/// The time that a tenant may save up while it has nothing to do (µs).
const CREDIT_US: u64 = 100;
/// A slice of so many times its length is an overrun.
const OVERRUN: u64 = 4;
/// A tenant is demoted for so many overruns and preemptions within [`WINDOW_US`] that take [`DEMOTING_US`] in all.
///
/// They must also take a [part](DEMOTING_PART) of its time since the first of them. What the machine does to a
/// tenant's slices grows with the tenant's use, so that little of it is in those of one that needs little.
const STRIKES: u32 = 8;
const WINDOW_US: u64 = 10_000_000;
const DEMOTING_US: u64 = 10_000;
const DEMOTING_PART: u64 = 4;
/// The time that a demoted tenant comes last (µs).
const DEMOTED_US: u64 = 10_000_000;
/// Cycles of a microsecond until they are measured.
const CYCLES_PER_US: u64 = 2_000;
/// Units of pass for a cycle at weight 1.
const SCALE: u64 = 16;
/// Bits of a fraction of a unit of pass.
const FRACTION: u32 = 32;
/// 2³² over each number of packets of a turn, rounded up: a multiplication takes a tenth of a division's time.
const INVERSE: [u64; 257] = {
    let mut inverse = [0; 257];
    let mut packets = 1;
    while packets < inverse.len() {
        inverse[packets] = (1_u64 << 32).div_ceil(packets as u64);
        packets += 1;
    }
    inverse
};

/// The cycles of each packet, rounded to the next cycle up or down; `None` for no packets.
#[inline]
fn cost_of_each(cycles: u64, packets: u64) -> Option<u64> {
    match INVERSE.get(packets as usize) {
        Some(inverse) if packets > 0 && cycles <= u64::from(u32::MAX) => Some((cycles * inverse) >> 32),
        _ => cycles.checked_div(packets),
    }
}
/// The cost of a turn, and of a packet in it, where packets drive the clock.
///
/// Measured costs would make each replay another.
const TURN_COST: u64 = 256;
const PACKET_COST: u64 = 128;
/// Events that are kept until they are asked for.
const EVENTS: usize = 16;
/// The class of demoted tenants, behind all that a tenant can ask for.
const DEMOTED: u8 = TenantPolicy::LAST + 1;
const CLASSES: usize = DEMOTED as usize + 1;
/// A time of the thread that is too short to compare with its time on a core (ns).
const SHORT_NS: u64 = 20_000;

/// The time of a worker's thread since some beginning, and the part of it on a core (ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// The time that has passed.
    pub wall: u64,
    /// The time that the thread ran.
    pub on_core: u64,
}

/// Reads the time of the calling thread.
pub type ThreadClock = fn() -> ThreadTime;

/// Something that the operator should know about a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantEvent {
    /// One of its slices took several times as long as slices are.
    Overran {
        /// The tenant.
        tenant: String,
        /// The time that it took (ns).
        ns: u64,
    },
    /// A module of its was preempted in a slice.
    Preempted {
        /// The tenant.
        tenant: String,
    },
    /// It did one or the other repeatedly: it comes behind all classes for a while.
    Demoted {
        /// The tenant.
        tenant: String,
    },
    /// It is in its own class again.
    Restored {
        /// The tenant.
        tenant: String,
    },
}

impl TenantEvent {
    /// The tenant.
    pub fn tenant(&self) -> &str {
        match self {
            Self::Overran { tenant, .. }
            | Self::Preempted { tenant }
            | Self::Demoted { tenant }
            | Self::Restored { tenant } => tenant,
        }
    }
}

/// A tenant's use of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantStatus {
    /// Its share.
    pub policy: TenantPolicy,
    /// Cycles that it used.
    pub cycles: u64,
    /// Cycles of a microsecond on this worker.
    pub cycles_per_us: u64,
    /// Slices that it had.
    pub slices: u64,
    /// Slices that took several times as long as slices are, or in which a module was preempted.
    pub overruns: u64,
    /// The longest of its slices, in cycles.
    pub longest_slice: u64,
    /// Times that it waited because of its ceiling.
    pub throttled: u64,
    /// Whether it comes behind all classes because of its overruns.
    pub demoted: bool,
}

#[derive(Debug)]
struct Tenant {
    policy: TenantPolicy,
    /// Its nodes that want a turn.
    ready: VecDeque<usize>,
    /// It is in a heap, or has the slice.
    queued: bool,
    /// The number of its last entry in a heap; earlier ones mean nothing.
    entry: u64,
    pass: u64,
    /// The fractions of a unit that a cycle adds to the pass: so no charge divides by the weight.
    step: u64,
    /// The class whose passes this one is compared with.
    clock: u8,
    /// The fraction of its pass.
    rest: u64,
    /// Cycles that its ceiling still allows, and when they were last counted.
    tokens: i64,
    filled: u64,
    /// Cycles since the last correction.
    recent: u64,
    /// The cost of a packet, over the last turns (cycles).
    packet_cost: u64,
    /// A module of its was preempted in the present slice.
    preempted: bool,
    /// Overruns and preemptions since a time, the cycles that they took, and those that it had used before.
    strikes: u32,
    struck: u64,
    overran: u64,
    used_before: u64,
    demoted_until: Option<u64>,
    cycles: u64,
    slices: u64,
    overruns: u64,
    longest_slice: u64,
    throttled: u64,
}

impl Tenant {
    fn new(policy: TenantPolicy) -> Self {
        Self {
            step: (SCALE << FRACTION) / u64::from(policy.weight.max(1)),
            clock: policy.priority.min(TenantPolicy::LAST),
            policy,
            ready: VecDeque::new(),
            queued: false,
            entry: 0,
            pass: 0,
            rest: 0,
            tokens: 0,
            filled: 0,
            recent: 0,
            packet_cost: 0,
            preempted: false,
            strikes: 0,
            struck: 0,
            overran: 0,
            used_before: 0,
            demoted_until: None,
            cycles: 0,
            slices: 0,
            overruns: 0,
            longest_slice: 0,
            throttled: 0,
        }
    }

    fn class(&self) -> u8 {
        if self.demoted_until.is_some() { DEMOTED } else { self.policy.priority.min(TenantPolicy::LAST) }
    }

    fn charge(&mut self, cycles: u64) {
        let cost = u128::from(cycles) * u128::from(self.step) + u128::from(self.rest);
        self.pass = self.pass.saturating_add(u64::try_from(cost >> FRACTION).unwrap_or(u64::MAX));
        self.rest = cost as u64 & ((1 << FRACTION) - 1);
        self.cycles = self.cycles.saturating_add(cycles);
        self.recent = self.recent.saturating_add(cycles);
        // Without a ceiling no tokens come back: a ceiling that is added later would begin with a debt.
        if self.policy.ceiling.is_some() {
            self.tokens = self.tokens.saturating_sub_unsigned(cycles);
        }
    }

    /// Counts an overrun of so many cycles that were charged; answers whether there are too many of them.
    fn strike(&mut self, now: u64, used: u64, per_us: u64) -> bool {
        if self.strikes == 0 || now.saturating_sub(self.struck) > WINDOW_US * per_us {
            (self.strikes, self.struck, self.overran) = (0, now, 0);
            self.used_before = self.cycles.saturating_sub(used);
        }
        self.strikes += 1;
        self.overran = self.overran.saturating_add(used);
        let own = self.cycles.saturating_sub(self.used_before);
        self.strikes >= STRIKES
            && self.overran >= DEMOTING_US * per_us
            && self.overran.saturating_mul(DEMOTING_PART) >= own
    }

    /// The pass of so many cycles.
    fn pass_of(&self, cycles: u64) -> u64 {
        u64::try_from((u128::from(cycles) * u128::from(self.step)) >> FRACTION).unwrap_or(u64::MAX)
    }

    fn give_back(&mut self, cycles: u64) {
        self.pass = self.pass.saturating_sub(self.pass_of(cycles));
        self.cycles = self.cycles.saturating_sub(cycles);
        if self.policy.ceiling.is_some() {
            self.tokens = self.tokens.saturating_add_unsigned(cycles);
        }
    }

    /// Adds the tokens since the last time; answers when it may run, where that is later than now.
    fn refill(&mut self, now: u64, most: u64) -> Option<u64> {
        let ceiling = u64::from(self.policy.ceiling?);
        let new = now.saturating_sub(self.filled).saturating_mul(ceiling) / 1_000;
        if new > 0 {
            self.filled = now;
            self.tokens = self.tokens.saturating_add_unsigned(new).min(most.cast_signed());
        }
        let missing = || self.tokens.unsigned_abs().saturating_mul(1_000).div_ceil(ceiling);
        (self.tokens < 0).then(|| now.saturating_add(missing()))
    }
}

/// A time in cycles and in nanoseconds, and the nanoseconds of it that the thread did not run.
struct Lost {
    cycles: u64,
    wall: u64,
    lost: u64,
}

/// The part of these cycles that `of` is of `whole`.
fn part(cycles: u64, of: u64, whole: u64) -> u64 {
    let part = u128::from(cycles) * u128::from(of) / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// Gives tenants their slices.
#[derive(Debug)]
pub(crate) struct Scheduler {
    tenants: Vec<Tenant>,
    /// Tenants with work: class, pass, number and entry.
    waiting: BinaryHeap<Reverse<(u8, u64, usize, u64)>>,
    /// Tenants whose ceiling holds them back: until when, and number.
    throttled: BinaryHeap<Reverse<(u64, usize)>>,
    /// Tenants that come last because of their overruns: until when, and number.
    demoted: BinaryHeap<Reverse<(u64, usize)>>,
    /// The pass at which the last slice of each class began.
    began: [u64; CLASSES],
    running: Option<usize>,
    /// Class and pass with which the present slice began, until a turn is charged to it.
    beginning: Option<(u8, u64)>,
    /// Cycles of the present slice.
    used: u64,
    /// Turns of the operator's nodes before the next slice.
    pub(crate) operator_turns: usize,
    /// The counter at the end of the last turn, and at the last correction.
    now: u64,
    corrected: u64,
    /// The clock of the worker's thread, and its time at the last correction.
    thread: Option<ThreadClock>,
    thread_then: ThreadTime,
    cycles_per_us: u64,
    /// Turns are charged by packets, since packets drive the clock.
    pub(crate) by_packets: bool,
    events: Vec<TenantEvent>,
    /// Tenants whose nodes all lead to something full, during one choice.
    aside: Vec<usize>,
}

impl Scheduler {
    /// A scheduler of these tenants; the owner of tenant `n` is `n + 1`.
    pub(crate) fn new(policies: Vec<TenantPolicy>) -> Self {
        Self {
            tenants: policies.into_iter().map(Tenant::new).collect(),
            waiting: BinaryHeap::new(),
            throttled: BinaryHeap::new(),
            demoted: BinaryHeap::new(),
            began: [0; CLASSES],
            running: None,
            beginning: None,
            used: 0,
            operator_turns: 1,
            now: 0,
            corrected: 0,
            thread: None,
            thread_then: ThreadTime::default(),
            cycles_per_us: CYCLES_PER_US,
            by_packets: false,
            events: Vec::new(),
            aside: Vec::new(),
        }
    }

    /// Goes on with the passes and counts of the tenants that the graph before had, by name.
    pub(crate) fn follow(&mut self, before: &Self) {
        (self.now, self.corrected, self.began) = (before.now, before.corrected, before.began);
        (self.thread, self.thread_then) = (before.thread, before.thread_then);
        (self.cycles_per_us, self.by_packets) = (before.cycles_per_us, before.by_packets);
        self.events.clone_from(&before.events);
        let names: std::collections::BTreeMap<&str, &Tenant> =
            before.tenants.iter().map(|tenant| (tenant.policy.name.as_str(), tenant)).collect();
        for (number, tenant) in self.tenants.iter_mut().enumerate() {
            let Some(old) = names.get(tenant.policy.name.as_str()) else {
                tenant.filled = self.now;
                continue;
            };
            tenant.pass = old.pass;
            (tenant.tokens, tenant.filled) = match old.policy.ceiling {
                Some(_) => (old.tokens, old.filled),
                // The ceiling counts from now on.
                None => (0, self.now),
            };
            // Else the first turn would take too many dear packets at once, and each change would be an overrun.
            (tenant.clock, tenant.packet_cost) = (old.clock, old.packet_cost);
            (tenant.strikes, tenant.struck, tenant.overran) = (old.strikes, old.struck, old.overran);
            (tenant.used_before, tenant.demoted_until) = (old.used_before, old.demoted_until);
            self.demoted.extend(old.demoted_until.map(|until| Reverse((until, number))));
            (tenant.cycles, tenant.slices, tenant.overruns) = (old.cycles, old.slices, old.overruns);
            (tenant.longest_slice, tenant.throttled) = (old.longest_slice, old.throttled);
        }
        // Those with work stand in the heap by the passes from before.
        (self.waiting, self.throttled) = (BinaryHeap::new(), BinaryHeap::new());
        for number in 0..self.tenants.len() {
            if self.tenants[number].queued {
                self.enqueue(number);
            }
        }
    }

    fn slice(&self) -> u64 {
        SLICE_US * self.cycles_per_us
    }

    /// Starts the clock again behind something that no tenant is charged for: a pause, or a change.
    pub(crate) fn restart(&mut self, now: u64) {
        self.now = now.max(self.now);
    }

    /// A node of a tenant wants a turn.
    pub(crate) fn ready(&mut self, owner: u16, node: usize) {
        let number = usize::from(owner) - 1;
        let Some(tenant) = self.tenants.get_mut(number) else { return };
        tenant.ready.push_back(node);
        if !tenant.queued {
            self.enqueue(number);
        }
    }

    /// Puts a tenant that has work among those that wait for a slice, or for tokens.
    fn enqueue(&mut self, number: usize) {
        let (now, burst, by_packets) = (self.now, self.slice(), self.by_packets);
        let credit = CREDIT_US * self.cycles_per_us;
        let Some(tenant) = self.tenants.get_mut(number) else { return };
        tenant.queued = true;
        let class = tenant.class();
        let began = self.began[usize::from(class)];
        if tenant.clock != class {
            // The passes of another class mean nothing here.
            (tenant.clock, tenant.pass) = (class, began);
        }
        tenant.pass = tenant.pass.max(began.saturating_sub(tenant.pass_of(credit)));
        match tenant.refill(now, burst).filter(|_| !by_packets) {
            Some(until) => {
                tenant.throttled += 1;
                self.throttled.push(Reverse((until, number)));
            }
            None => {
                tenant.entry += 1;
                self.waiting.push(Reverse((tenant.class(), tenant.pass, number, tenant.entry)));
            }
        }
    }

    /// The tenant whose slice it is; a new slice begins where the last one is over.
    ///
    /// `None` where no tenant may run now.
    pub(crate) fn current(&mut self) -> Option<usize> {
        if let Some(number) = self.running {
            if self.used < self.slice()
                && self.tenants.get(number).is_some_and(|tenant| !tenant.ready.is_empty())
            {
                return Some(number);
            }
            self.end_slice();
            return None;
        }
        while let Some(Reverse((_, number))) =
            self.throttled.peek().copied().filter(|Reverse((at, _))| *at <= self.now)
        {
            self.throttled.pop();
            self.enqueue(number);
        }
        while let Some(Reverse((_, number))) =
            self.demoted.peek().copied().filter(|Reverse((at, _))| *at <= self.now)
        {
            self.demoted.pop();
            self.restore(number);
        }
        while let Some(Reverse((class, pass, number, entry))) = self.waiting.pop() {
            let tenant = self.tenants.get_mut(number)?;
            if tenant.entry != entry {
                continue;
            }
            if tenant.pass > pass {
                // It was charged for an event meanwhile.
                self.enqueue(number);
                continue;
            }
            if tenant.ready.is_empty() {
                tenant.queued = false;
                continue;
            }
            // Its nodes may not be allowed to run: the class has begun with the first turn.
            self.beginning = Some((class, pass));
            (self.running, self.used) = (Some(number), 0);
            return Some(number);
        }
        None
    }

    /// Puts a tenant that was demoted into its own class again.
    fn restore(&mut self, number: usize) {
        let Some(tenant) = self.tenants.get_mut(number) else { return };
        (tenant.demoted_until, tenant.strikes) = (None, 0);
        let tenant = tenant.policy.name.clone();
        self.tell(TenantEvent::Restored { tenant });
        self.stand_again(number);
    }

    /// Puts a tenant that waits for a slice to its place in its present class.
    fn stand_again(&mut self, number: usize) {
        let waits = self.tenants.get(number).is_some_and(|tenant| tenant.queued);
        let is_elsewhere = self.running == Some(number)
            || self.aside.contains(&number)
            || self.throttled.iter().any(|Reverse((_, other))| *other == number);
        if waits && !is_elsewhere {
            self.enqueue(number);
        }
    }

    /// The next node of a tenant for which `may` holds.
    pub(crate) fn pop(&mut self, number: usize, may: impl Fn(usize) -> bool) -> Option<usize> {
        let ready = &mut self.tenants.get_mut(number)?.ready;
        if ready.front().is_some_and(|node| may(*node)) {
            return ready.pop_front();
        }
        let place = ready.iter().skip(1).position(|node| may(*node))?;
        ready.remove(place + 1)
    }

    /// Ends the present slice; the operator's nodes come next.
    pub(crate) fn end_slice(&mut self) {
        let Some(number) = self.running.take() else { return };
        self.count_slice(number);
        let Some(tenant) = self.tenants.get_mut(number) else { return };
        if tenant.ready.is_empty() {
            tenant.queued = false;
        } else {
            self.enqueue(number);
        }
    }

    /// Counts the slice that ended, unless it had no turn.
    fn count_slice(&mut self, number: usize) {
        if self.beginning.take().is_some() {
            return;
        }
        let Some(tenant) = self.tenants.get_mut(number) else { return };
        let preempted = std::mem::take(&mut tenant.preempted);
        self.used_too_long(number, self.used, preempted);
    }

    /// Counts an overrun where a tenant used so many cycles at once, or was preempted, and demotes it for many.
    fn used_too_long(&mut self, number: usize, used: u64, preempted: bool) {
        let (slice, now, per_us) = (self.slice(), self.now, self.cycles_per_us);
        let Some(tenant) = self.tenants.get_mut(number) else { return };
        tenant.longest_slice = tenant.longest_slice.max(used);
        if self.by_packets || !preempted && used <= OVERRUN * slice {
            return;
        }
        tenant.overruns += 1;
        let demotes = tenant.strike(now, used, per_us);
        let name = || tenant.policy.name.clone();
        let event = match preempted {
            true => TenantEvent::Preempted { tenant: name() },
            false => TenantEvent::Overran { tenant: name(), ns: used.saturating_mul(1_000) / per_us.max(1) },
        };
        let mut demoted = None;
        if demotes && tenant.demoted_until.is_none() {
            let until = now.saturating_add(DEMOTED_US * per_us);
            tenant.demoted_until = Some(until);
            self.demoted.push(Reverse((until, number)));
            demoted = Some(TenantEvent::Demoted { tenant: name() });
        }
        self.tell(event);
        demoted.into_iter().for_each(|event| self.tell(event));
    }

    fn tell(&mut self, event: TenantEvent) {
        if self.events.len() < EVENTS {
            self.events.push(event);
        }
    }

    /// Takes the slice away from a tenant whose nodes may not run now.
    ///
    /// It waits for no slice until [all are taken back](Self::take_back).
    pub(crate) fn set_aside(&mut self) {
        let Some(number) = self.running.take() else { return };
        self.count_slice(number);
        self.aside.push(number);
    }
    pub(crate) fn take_back(&mut self) {
        while let Some(number) = self.aside.pop() {
            self.enqueue(number);
        }
    }

    /// Notes that a module of this owner was preempted: its slice counts as one that took too long.
    pub(crate) fn preempted(&mut self, owner: u16) {
        let tenant = usize::from(owner).checked_sub(1).and_then(|number| self.tenants.get_mut(number));
        if let Some(tenant) = tenant {
            tenant.preempted = true;
        }
    }

    /// Charges a turn that ended at `now` to the owner of its node.
    pub(crate) fn charge(&mut self, owner: u16, now: u64, packets: u64) {
        let Some((number, cycles)) = self.charged(owner, now, packets) else { return };
        if self.running != Some(number) {
            return;
        }
        if let Some((class, pass)) = self.beginning.take() {
            let began = &mut self.began[usize::from(class)];
            *began = (*began).max(pass);
            if let Some(tenant) = self.tenants.get_mut(number) {
                tenant.slices += 1;
            }
        }
        self.used += cycles;
    }

    /// Charges something beside the slices that ended at `now`, such as a timer.
    ///
    /// A long one is an overrun.
    pub(crate) fn charge_event(&mut self, owner: u16, now: u64, packets: u64) {
        let Some((number, cycles)) = self.charged(owner, now, packets) else { return };
        let Some(tenant) = self.tenants.get_mut(number) else { return };
        let (preempted, class) = (std::mem::take(&mut tenant.preempted), tenant.class());
        self.used_too_long(number, cycles, preempted);
        if self.tenants.get(number).is_some_and(|tenant| tenant.class() != class) {
            self.stand_again(number);
        }
    }

    /// Charges a call of a handler, which the clock left out, from `began` to `now`.
    ///
    /// It is no overrun, however long it took: a tenant may not have asked for it.
    pub(crate) fn charge_call(&mut self, owner: u16, began: u64, now: u64) {
        self.restart(began);
        // A call comes at no certain time, and each replay is to be like the others.
        if self.by_packets {
            return self.restart(now);
        }
        self.charged(owner, now, 0);
    }

    /// Charges what ended at `now`; answers the tenant, and the cycles that it is charged for.
    fn charged(&mut self, owner: u16, now: u64, packets: u64) -> Option<(usize, u64)> {
        let mut cycles = now.saturating_sub(self.now);
        self.now = now.max(self.now);
        let number = usize::from(owner).checked_sub(1)?;
        if self.by_packets {
            cycles = TURN_COST + PACKET_COST * packets;
        } else if cycles > (OVERRUN - 1) * self.slice() {
            cycles -= self.stolen(cycles);
        }
        let tenant = self.tenants.get_mut(number)?;
        tenant.charge(cycles);
        if let Some(cost) = cost_of_each(cycles, packets) {
            // A dear packet counts at once, so that the next turn is short; cheap ones count slowly.
            tenant.packet_cost = cost.max((tenant.packet_cost * 7 + cost) / 8);
        }
        Some((number, cycles))
    }

    /// The part of a long turn, of so many cycles, that the thread did not have.
    ///
    /// All that the system took since the last correction is taken to be of this turn.
    #[cold]
    fn stolen(&mut self, measured: u64) -> u64 {
        let Some(Lost { cycles, wall, lost }) = self.look() else { return 0 };
        self.tenants.iter_mut().for_each(|tenant| tenant.recent = 0);
        part(cycles, lost, wall).min(measured)
    }

    /// The packets of a turn of this owner: a burst, or as many as a slice is long enough for.
    #[inline]
    pub(crate) fn most(&self, owner: u16, burst: usize) -> usize {
        let tenant = usize::from(owner).checked_sub(1).and_then(|number| self.tenants.get(number));
        let Some(tenant) = tenant.filter(|_| !self.by_packets) else { return burst };
        let slice = self.slice();
        if tenant.packet_cost.saturating_mul(burst as u64) <= slice {
            return burst;
        }
        slice
            .checked_div(tenant.packet_cost)
            .map_or(burst, |packets| (packets as usize).clamp(1, burst.max(1)))
    }

    /// Whether a tenant has work that it may do now.
    pub(crate) fn has_work(&self) -> bool {
        self.running
            .is_some_and(|number| self.tenants.get(number).is_some_and(|tenant| !tenant.ready.is_empty()))
            || !self.waiting.is_empty()
            || self.throttled.peek().is_some_and(|Reverse((until, _))| *until <= self.now)
    }

    /// How long it is until a tenant that its ceiling holds back may run (ns).
    pub(crate) fn next_release(&self) -> Option<u64> {
        let Reverse((until, _)) = self.throttled.peek()?;
        Some(until.saturating_sub(self.now).saturating_mul(1_000) / self.cycles_per_us.max(1))
    }

    /// Compares with this clock of the worker's thread from now on.
    pub(crate) fn follow_thread(&mut self, clock: ThreadClock) {
        if self.thread.replace(clock).is_none() {
            self.thread_then = clock();
        }
    }

    /// Begins the time of the next correction now.
    pub(crate) fn restart_correction(&mut self, now: u64) {
        self.restart(now);
        self.corrected = self.now;
        self.thread_then = self.thread.map(|clock| clock()).unwrap_or_default();
        self.tenants.iter_mut().for_each(|tenant| tenant.recent = 0);
    }

    /// Whether events wait, or the last correction is so long ago that another is due.
    ///
    /// Each long turn corrects, so that where all are long, no correction ever becomes due.
    pub(crate) fn is_correction_due(&self) -> bool {
        !self.events.is_empty() || self.is_time_due()
    }

    fn is_time_due(&self) -> bool {
        !self.by_packets && self.now.saturating_sub(self.corrected) >= 10 * self.slice()
    }

    /// Gives back the part of the time since the last correction that the worker's thread did not have.
    ///
    /// Does nothing so soon after the last one that little can be told.
    pub(crate) fn correct(&mut self) {
        if !self.is_time_due() {
            return;
        }
        let Some(Lost { wall, lost, .. }) = self.look() else { return };
        for tenant in self.tenants.iter_mut().filter(|tenant| tenant.recent > 0) {
            let recent = std::mem::take(&mut tenant.recent);
            if lost.saturating_mul(50) > wall {
                tenant.give_back(part(recent, lost, wall));
            }
        }
    }

    /// The time since the last correction, and the part of it that the thread did not have.
    ///
    /// The next correction counts from now.
    fn look(&mut self) -> Option<Lost> {
        let clock = self.thread?;
        let cycles = self.now.saturating_sub(self.corrected);
        let (before, now) = (self.thread_then, clock());
        (self.corrected, self.thread_then) = (self.now, now);
        let wall = now.wall.saturating_sub(before.wall);
        if wall < SHORT_NS {
            return None;
        }
        let measured = cycles.saturating_mul(1_000) / wall;
        if (100..100_000).contains(&measured) {
            self.cycles_per_us = (self.cycles_per_us * 7 + measured) / 8;
        }
        Some(Lost { cycles, wall, lost: wall.saturating_sub(now.on_core.saturating_sub(before.on_core)) })
    }

    /// The events since the last call, oldest first, 16 at most.
    pub(crate) fn take_events(&mut self) -> Vec<TenantEvent> {
        std::mem::take(&mut self.events)
    }

    /// Forgets which nodes are ready, since the graph is taken down.
    pub(crate) fn clear(&mut self) {
        self.tenants.iter_mut().for_each(|tenant| tenant.ready.clear());
    }

    pub(crate) fn contains(&self, owner: u16, node: usize) -> bool {
        let tenant = usize::from(owner).checked_sub(1).and_then(|number| self.tenants.get(number));
        tenant.is_some_and(|tenant| tenant.ready.contains(&node))
    }

    /// Each tenant's use of this worker, in the order of the policies.
    pub(crate) fn status(&self) -> Vec<TenantStatus> {
        let of = |tenant: &Tenant| TenantStatus {
            policy: tenant.policy.clone(),
            cycles: tenant.cycles,
            cycles_per_us: self.cycles_per_us,
            slices: tenant.slices,
            overruns: tenant.overruns,
            longest_slice: tenant.longest_slice,
            throttled: tenant.throttled,
            demoted: tenant.demoted_until.is_some(),
        };
        self.tenants.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests;
