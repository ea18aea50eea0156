//! Declared state: a function asks for its tables and counters by name when it is built.
//!
//! Its user functions get handles. Export, rebuilding after a panic, metrics and tests all find state by that name.

mod counter;
mod flow_table;
mod succession;

use std::any::Any;
use std::cell::{Ref, RefCell, RefMut};
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;

use netbricks_packet::HashKey;
use netbricks_tables::{Counters, Encode, FlowTable, FlowTableConfig};

pub use self::counter::Counter;
use self::counter::CounterState;
use self::flow_table::take_moved;
pub use self::succession::{StateSuccession, StateTerms, Succession, Way};
use crate::consistency::SharedStateRef;
use crate::context::Context;
use crate::events::{Events, Schedule};
use crate::handlers::{Call, StepwiseCall};
use crate::node::{CallError, Handler, ImportError, NodeState, Poll, Section, StateImage};
use crate::shuffle::{PacketPart, Part, PartStep, ShuffleKey};
use crate::steps::{Steps, at_once, to_the_end};
use crate::worker::{BuildError, Worker};

/// A handle to declared state, owned by one worker (`NoExternalAccess`, the paper's section 3.1).
pub struct State<T: ?Sized>(Rc<RefCell<T>>);

impl<T: ?Sized> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> State<T> {
    /// Borrows the state while the guard lives.
    ///
    /// While an operator lends the state out, this panics (contained): use the entry that `lookup` passes.
    #[inline(always)]
    pub fn borrow_mut(&self) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }
    /// The state, for reading; as [`borrow_mut`](Self::borrow_mut).
    #[inline(always)]
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }
    /// State without a name, which nothing finds.
    pub(crate) fn of(state: T) -> Self {
        Self(Rc::new(RefCell::new(state)))
    }
    /// Borrows the state, unless it is borrowed already.
    pub(crate) fn try_borrow_mut(&self) -> Option<RefMut<'_, T>> {
        self.0.try_borrow_mut().ok()
    }
    /// Runs `f` over the state.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }
}

/// State that can be found by name, with the operations that export, import and metrics need.
pub trait Declared: Any {
    /// Exports the state as bytes with a version and a checksum.
    fn export(&self) -> Vec<u8>;
    /// Imports bytes of [`export`](Declared::export), at time `now` (ns); nothing changes when it fails.
    ///
    /// # Errors
    /// The part that does not fit.
    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String>;
    /// Occupancy for metrics: entries and capacity.
    fn occupancy(&self) -> (u64, u64);
    /// Ends entries that are over at time `now` (ns).
    fn expire_all(&mut self, _now: u64) {}
    /// As [`expire_all`](Self::expire_all), with a bounded amount of work. The rest only counts as over.
    fn advance(&mut self, _now: u64) {}
    /// Its counters for metrics, where its entries may end or find no place.
    fn flow_counters(&self) -> Option<Counters> {
        None
    }
    /// Whether it moves when flows that a shuffle with key `by` sorts go to another worker.
    ///
    /// State that does not say is [`Bound`](Mobility::Bound): better no flow moves than one that leaves half of its
    /// state behind.
    fn mobility(&self, _by: ShuffleKey) -> Mobility {
        Mobility::Bound
    }
    /// Takes out the state of moving flows, as bytes that [`import`](Declared::import) adds on another
    /// worker.
    ///
    /// It is called only for state that [`Moves`](Mobility::Moves). The flows are nowhere else then: an
    /// import of these bytes keeps those for which it has room.
    ///
    /// It takes one piece a call, so that packets of other flows go on in between. The first call has `place`
    /// 0. The answer is the place where the next piece begins, or `None` after the last. There are no bytes
    /// where nothing in the piece moves.
    fn take_part(&mut self, _part: &Part, _place: usize) -> (Vec<u8>, Option<usize>) {
        (Vec::new(), None)
    }
    /// The terms by which the state in its place decides how this one goes on, without work by entry.
    fn terms(&self) -> StateTerms {
        StateTerms::of::<Self>(self.occupancy().0)
    }
    /// How running state with these terms goes on in this one, which is new.
    ///
    /// A plan asks this, and so does a graph that takes over: what it answers is done.
    fn succession(&self, before: &StateTerms) -> Succession {
        match before.is_of::<Self>() {
            true => Succession::copied("it has no other way"),
            false => Succession::unlike(),
        }
    }
    /// Goes on with the content of `old`, the state of this name of the node that this one replaces.
    ///
    /// It must not take longer for more entries: content that has to be copied moves by
    /// [`export`](Declared::export). Answers `false`, and changes nothing, where the two do not fit.
    fn take_over(&mut self, _old: &mut dyn Declared) -> bool {
        false
    }
    /// Moves a bounded part of what it has [taken over](Self::take_over) from the other; returns whether more is to come.
    ///
    /// A worker calls it between two rounds of packets. Until it is done no handler is called, and no report made.
    fn move_on(&mut self) -> bool {
        false
    }
    /// Whether the configuration says how it begins, and handlers change it: parameters, rules, static routes.
    ///
    /// A [rollback of their changes](crate::GraphBuilder::undo_writes) begins it again. Tables of flows and counters
    /// go on then.
    fn is_written(&self) -> bool {
        false
    }
    /// The part of [written](Self::is_written) state that came from elsewhere than an operator, such as a routing daemon.
    ///
    /// State that begins again in its place [learns](Self::learn) it. A journal of handlers' writes does not have it.
    fn learned(&self) -> Option<Vec<u8>> {
        None
    }
    /// Begins with what the state in whose place it comes had [learned](Self::learned), where that fits.
    ///
    /// # Errors
    /// Bytes of another format; nothing has changed then.
    fn learn(&mut self, _learned: &[u8]) -> Result<(), String> {
        Ok(())
    }
    /// A reference to state that workers share, for the graph that replaces this one on the same worker.
    fn shared_state(&self) -> Option<SharedStateRef> {
        None
    }
    /// Replaces its initial content by another's [`shared`](Declared::shared_state), at time `now` (ns).
    ///
    /// Other workers may have it from the same graph, or still write it from the one before. `None` where it cannot be
    /// shared as it is, and only its bytes can move. An error where it was tried, and all workers keep their initial
    /// content.
    ///
    /// Locked state keeps its place in the order of locking. That place must lie `between` those of the state declared
    /// before it and after it.
    fn adopt(
        &mut self,
        _shared: &SharedStateRef,
        _between: Range<u64>,
        _now: u64,
    ) -> Option<Result<(), String>> {
        None
    }
    /// Joins the shared state that a graph of the same blueprint has taken over meanwhile.
    ///
    /// Called on the control side's copy of a node before each handler call.
    ///
    /// # Errors
    /// The reason why it cannot join. It then stays with the state that it has.
    fn follow(&mut self) -> Result<(), String> {
        Ok(())
    }
    /// Takes note that shared state has the content of this node's settings, which handlers have written.
    ///
    /// A graph that replaces this one compares its settings with these, and after a panic the state begins so.
    fn agree(&self) {}
    /// Its place in the order of locking; 0 where it is not locked.
    fn rank(&self) -> u64 {
        0
    }
}

/// The behaviour of declared state when flows move to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mobility {
    /// An entry by flow moves with the flow.
    Moves,
    /// The state belongs to no flow, or all workers have it already: totals, configuration.
    Stays,
    /// The state is by flow, but cannot move: a shuffle with it behind refuses to move flows.
    Bound,
}

impl Mobility {
    const fn of(follows: bool) -> Self {
        if follows { Self::Moves } else { Self::Bound }
    }
}

/// State that postpones work to the end of its worker's batch, event or call.
pub(crate) trait Settle {
    /// Says that a batch, event or call begins, which will end.
    fn begin(&self);
    /// Says that it has ended.
    fn settle(&self);
}

/// A type that may be the key of a table, and its stored form.
pub trait TableKey: Copy + 'static {
    /// The key as the table stores it.
    type Stored: netbricks_tables::Key + Encode;
    /// Whether nearly all packets that are looked up by it have ports and are no fragments.
    ///
    /// Lookups over IPv4 then handle other packets in slower loops. The answers do not depend on it.
    const PORTS: bool = false;
    /// Converts to the form in which the table keeps it.
    fn store(self) -> Self::Stored;
    /// Converts back.
    fn restore(stored: Self::Stored) -> Self;
    /// The hash by which a [shuffle](crate::shuffle) with this key chooses the worker of this entry's
    /// packets.
    ///
    /// `None` where that does not follow from the entry, so that it cannot move with them.
    fn spread(self, _by: ShuffleKey, _hash: &HashKey) -> Option<u64> {
        None
    }
    /// Whether [`spread`](Self::spread) has an answer for every entry under this key of a shuffle.
    ///
    /// Otherwise flows with such a table behind their shuffle do not move. An entry under an address is
    /// assumed to belong to the packets with that address where the shuffle reads it. An entry under a number
    /// is assumed to belong to those with that port, VLAN or owner. For another meaning, write a separate key
    /// type that follows no key.
    fn follows(_by: ShuffleKey) -> bool {
        false
    }
}

impl TableKey for u64 {
    type Stored = [u64; 1];
    #[inline(always)]
    fn store(self) -> [u64; 1] {
        [self]
    }
    fn restore([value]: [u64; 1]) -> Self {
        value
    }
    fn spread(self, by: ShuffleKey, hash: &HashKey) -> Option<u64> {
        by.spread_number(self, hash)
    }
    fn follows(by: ShuffleKey) -> bool {
        by.is_number()
    }
}
impl TableKey for u32 {
    type Stored = [u64; 1];
    #[inline(always)]
    fn store(self) -> [u64; 1] {
        [u64::from(self)]
    }
    fn restore([value]: [u64; 1]) -> Self {
        value as u32
    }
    fn spread(self, by: ShuffleKey, hash: &HashKey) -> Option<u64> {
        by.spread_number(u64::from(self), hash)
    }
    fn follows(by: ShuffleKey) -> bool {
        by.is_number()
    }
}

/// The address for which a prefix is looked up.
impl TableKey for IpAddr {
    type Stored = Self;
    #[inline(always)]
    fn store(self) -> Self {
        self
    }
    fn restore(stored: Self) -> Self {
        stored
    }
    fn spread(self, by: ShuffleKey, hash: &HashKey) -> Option<u64> {
        by.spread_address(self, hash)
    }
    fn follows(by: ShuffleKey) -> bool {
        by.is_address()
    }
}

/// The type of a declared flow table with key `K`, as authors see it.
pub type Flows<K, V> = State<FlowTable<<K as TableKey>::Stored, V>>;

type Report = Box<dyn Fn() -> Steps<Section>>;
type Explain = Box<dyn Fn(&[u8], &mut dyn std::fmt::Write) -> std::fmt::Result>;
type Take = Box<dyn Fn(&Part, usize) -> (Vec<u8>, Option<usize>)>;
type GoesBy = fn(ShuffleKey) -> bool;

/// The state that one function declared while it was built.
#[derive(Default)]
pub struct Declarations {
    pub(crate) states: Vec<(String, Rc<RefCell<dyn Declared>>)>,
    pub(crate) handlers: Vec<(Handler, Call)>,
    /// Those that are answered in steps, by name.
    pub(crate) stepwise: Vec<(String, StepwiseCall)>,
    /// Whether they belong to the control side's copy of the node.
    pub(crate) is_control: bool,
    /// Keys of moving entries, by the state's name, where an author's type says more than the stored one.
    ///
    /// They say under which shuffle keys entries follow their flows, and how to take them out.
    parts: Vec<(String, GoesBy, Take)>,
    reports: Vec<Report>,
    explains: Vec<Explain>,
    settles: Vec<Rc<dyn Settle>>,
    packet_part: Option<PacketPart>,
    pub(crate) events: Events,
    ends: Vec<Box<dyn FnMut()>>,
    failure: Option<BuildError>,
}

impl Worker {
    /// Declares a flow table, with the handlers `NAME.occupancy`, `NAME.evicted`, `NAME.expired` and
    /// `NAME.refused`.
    ///
    /// Where it cannot be made (no memory, capacity 0), the node's building fails with that error. The handle
    /// then leads to a table of one entry, which never sees a packet. So does that of the
    /// [control side](Worker::control). A seed of 0 is replaced by the worker's.
    pub fn flow_table<K: TableKey, V: Encode + Copy + 'static>(
        &self,
        name: &str,
        config: FlowTableConfig,
    ) -> Flows<K, V> {
        let mut config = config.seeded(self.seed());
        if self.is_control() {
            config.capacity = config.capacity.min(1);
        }
        let table = FlowTable::new(config).or_else(|error| {
            self.fail(BuildError::new(format_args!("table `{name}`: {error}")));
            FlowTable::new(FlowTableConfig { capacity: 1, ..config })
        });
        match table {
            Ok(table) => {
                let table = self.declare(name, table);
                self.divides::<K, V>(&table);
                table
            }
            // Not even one entry: the failure is noted already, and nothing can run without memory for 64
            // bytes.
            Err(error) => panic!("no memory for a table of one entry: {error}"),
        }
    }

    /// Declares state of another kind. Where the name is taken (a function fused with itself) a number is
    /// appended.
    pub fn declare<T: Declared>(&self, name: &str, state: T) -> State<T> {
        let state = Rc::new(RefCell::new(state));
        let mut declarations = self.declarations.borrow_mut();
        let unique = declarations.unique(name);
        declarations.states.push((unique, state.clone()));
        State(state)
    }

    /// Notes that the table declared last can be divided by flow.
    fn divides<K: TableKey, V: Encode + Copy + 'static>(&self, table: &Flows<K, V>) {
        let table = table.clone();
        let mut declarations = self.declarations.borrow_mut();
        let Some(name) = declarations.states.last().map(|(name, _)| name.clone()) else { return };
        let take: Take = Box::new(move |part, place| {
            take_moved(&mut table.borrow_mut(), place, |key| part.holds(K::restore(*key)))
        });
        declarations.parts.push((name, K::follows, take));
    }

    /// A handle to a table that is made from configuration and changes only with it.
    ///
    /// It has no name, and is not exported or handed over, so that the old configuration does not undo a
    /// change.
    pub fn configured<T>(&self, table: T) -> State<T> {
        State::of(table)
    }

    /// Declares a counter.
    pub fn counter(&self, name: &str) -> Counter {
        let counter = Counter::default();
        self.declare(name, CounterState(counter.clone()));
        counter
    }

    /// Declares a table for the end-of-run report.
    pub fn report(&self, section: impl Fn() -> Section + 'static) {
        self.report_in_steps(move || at_once(section()));
    }

    /// As [`report`](Self::report), for a table that takes long to make: a worker has packets between the steps.
    pub fn report_in_steps(&self, section: impl Fn() -> Steps<Section> + 'static) {
        self.declarations.borrow_mut().reports.push(Box::new(section));
    }

    /// Declares the sentence that a trace shows of a packet at this function.
    ///
    /// `explain` gets the frame as it comes to the node, and writes one sentence without a full stop, or nothing.
    /// It is called only for packets that are traced, before the function has them. So it costs nothing else.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link};
    /// use netbricks_core::{Function, Input, Operator, Worker};
    ///
    /// fn expired(input: Input, worker: &Worker) -> impl Function {
    ///     worker.explain(|frame, why| match Ip::in_frame(frame) {
    ///         Some((header, _)) if header.ttl() == 0 => write!(why, "no hop is left"),
    ///         _ => Ok(()),
    ///     });
    ///     input.parse::<Link>().parse::<Ip>().done()
    /// }
    /// # netbricks_testkit::run_with(expired, [netbricks_testkit::build::ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2)]);
    /// ```
    pub fn explain(&self, explain: impl Fn(&[u8], &mut dyn std::fmt::Write) -> std::fmt::Result + 'static) {
        self.declarations.borrow_mut().explains.push(Box::new(explain));
    }

    /// Declares by which number of a packet the function's state is divided.
    ///
    /// For state that is divided neither by flow nor by one address, such as a NAT's: its two directions have
    /// no address in common. With several workers, a chain file gets a shuffle by that number before the
    /// function. State that moves with such parts answers [`Mobility::Moves`] for [`ShuffleKey::Own`], and
    /// asks [`Part::holds`] about the number as `u64`.
    pub fn parted_by(&self, part: PacketPart) {
        self.declarations.borrow_mut().packet_part = Some(part);
    }

    /// Runs `end` when the graph is taken down, before its last report: for state that was waiting for more packets.
    pub fn at_the_end(&self, end: impl FnMut() + 'static) {
        self.declarations.borrow_mut().ends.push(Box::new(end));
    }

    /// Makes the building of the present node fail.
    pub fn fail(&self, error: BuildError) {
        self.declarations.borrow_mut().failure.get_or_insert(error);
    }

    /// Runs `build` with no declarations, and answers what it made with the state that it declared.
    ///
    /// For a [`Node`](crate::Node) written by hand. The node shows the declarations by
    /// [`with_state`](crate::Node::with_state), and holds their [guard](Declarations::settling) in each call.
    ///
    /// # Errors
    /// An error of the declared state, such as a table that does not fit into memory.
    pub fn declaring<T>(&self, build: impl FnOnce() -> T) -> Result<(T, Declarations), BuildError> {
        let is_control = self.is_control();
        *self.declarations.borrow_mut() = Declarations { is_control, ..Declarations::default() };
        let built = build();
        let mut declarations = std::mem::take(&mut *self.declarations.borrow_mut());
        match declarations.failure.take() {
            Some(failure) => Err(failure),
            None => Ok((built, declarations)),
        }
    }
}

/// The guard of [`Declarations::settling`].
pub struct Settling<'d>(&'d [Rc<dyn Settle>]);

impl<'d> Settling<'d> {
    #[inline(always)]
    fn begin(states: &'d [Rc<dyn Settle>]) -> Self {
        states.iter().for_each(|state| state.begin());
        Self(states)
    }
}

impl Drop for Settling<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.iter().for_each(|state| state.settle());
    }
}

impl Declarations {
    /// Makes `state` settle whenever a batch, event or call of its worker ends.
    pub(crate) fn settles(&mut self, state: Rc<dyn Settle>) {
        self.settles.push(state);
    }
    /// A guard whose drop settles declared state: when the batch, event or call has ended, also by a panic.
    #[inline(always)]
    #[must_use]
    pub fn settling(&self) -> Settling<'_> {
        Settling::begin(&self.settles)
    }
    /// Runs the event that is due.
    pub(crate) fn poll(&mut self, cx: &mut Context) -> Poll {
        let Self { events, settles, .. } = self;
        let _settling = Settling::begin(settles);
        events.poll(cx)
    }
    /// The name, or `flows.2` and so on where it is taken.
    ///
    /// A function that is fused with itself declares its names again.
    pub(crate) fn unique(&self, name: &str) -> String {
        let known = |name: &str| self.states.iter().any(|(known, _)| known == name) || self.events.has(name);
        let mut unique = name.to_owned();
        let mut number = 2;
        while known(&unique) {
            unique = format!("{name}.{number}");
            number += 1;
        }
        unique
    }
    /// The entries that all of the declared state has room for; counters are no tables, and have none.
    pub fn capacity(&self) -> u64 {
        let rooms = self.states.iter().map(|(_, state)| state.borrow().occupancy().1);
        rooms.filter(|room| *room != u64::MAX).fold(0, u64::saturating_add)
    }
    /// Tables with counters: name, whether workers share it, occupancy, counters.
    pub(crate) fn tables(&self) -> Vec<(String, bool, (u64, u64), Counters)> {
        let of = |(name, state): &(String, Rc<RefCell<dyn Declared>>)| {
            let state = state.borrow();
            let counters = state.flow_counters()?;
            Some((name.clone(), state.shared_state().is_some(), state.occupancy(), counters))
        };
        self.states.iter().filter_map(of).collect()
    }
    /// Leaves out the state that handlers write, so that a node that goes on with the rest begins that again.
    pub(crate) fn leave_written(&mut self) {
        self.states.retain(|(_, state)| !state.borrow().is_written());
    }
    /// The things that each state which handlers write has [learned](Declared::learned), by name.
    pub(crate) fn learned(&self) -> Vec<(String, Vec<u8>)> {
        let of = |(name, state): &(String, Rc<RefCell<dyn Declared>>)| {
            let mut state = state.borrow_mut();
            // Where it cannot join what the workers have, the rest of its life is as before.
            let _apart = state.follow();
            let learned = if state.is_written() { state.learned() } else { None };
            Some((name.clone(), learned?))
        };
        self.states.iter().filter_map(of).collect()
    }
    /// Lets the state of this name begin with what the one before had learned.
    pub(crate) fn learn(&self, name: &str, learned: &[u8]) -> Result<(), String> {
        let state = self.states.iter().find(|(known, _)| known == name);
        state.map_or(Ok(()), |(_, state)| state.borrow_mut().learn(learned))
    }
    /// Moves a part of what one of the states has taken over; returns whether more is to come.
    pub(crate) fn move_on(&self) -> bool {
        self.states.iter().any(|(_, state)| state.borrow_mut().move_on())
    }
    /// Takes note that the state has the content of these settings.
    pub(crate) fn agree(&self) {
        self.states.iter().for_each(|(_, state)| state.borrow().agree());
    }
    pub(crate) fn has_ends(&self) -> bool {
        !self.ends.is_empty()
    }
    fn of_mobility(&self, by: ShuffleKey, wanted: Mobility) -> Vec<String> {
        let mobility = |name: &str, state: &RefCell<dyn Declared>| match self
            .parts
            .iter()
            .find(|(known, ..)| known == name)
        {
            Some((_, follows, _)) => Mobility::of(follows(by)),
            None => state.borrow().mobility(by),
        };
        let found = self.states.iter().filter(|(name, state)| mobility(name, state) == wanted);
        found.map(|(name, _)| name.clone()).collect()
    }
}

/// Sentences of functions that are fused, with `; ` between them.
struct Sentences<'w> {
    why: &'w mut dyn std::fmt::Write,
    /// Whether there is text of any function, and of this one.
    any: bool,
    begun: bool,
}

impl std::fmt::Write for Sentences<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if text.is_empty() {
            return Ok(());
        }
        if self.any && !self.begun {
            self.why.write_str("; ")?;
        }
        (self.any, self.begun) = (true, true);
        self.why.write_str(text)
    }
}

/// The state of a function: all its declarations.
#[deny(clippy::missing_trait_methods)]
impl NodeState for Declarations {
    fn handlers(&self) -> Vec<Handler> {
        self.all_handlers()
    }
    fn call(&mut self, name: &str, argument: &str) -> Result<String, CallError> {
        self.call_handler(name, argument)
    }
    fn prepare(&mut self, _name: &str, _argument: &str) -> Result<Option<String>, CallError> {
        Ok(None)
    }
    fn call_steps(&mut self, name: &str, argument: &str) -> Option<Result<Steps<String>, CallError>> {
        self.call_in_steps(name, argument)
    }
    fn expire(&mut self, now: u64) {
        self.states.iter().for_each(|(_, state)| state.borrow_mut().expire_all(now));
    }
    fn export(&self) -> Vec<StateImage> {
        let states = self.states.iter().map(|(name, state)| (name.clone(), state.borrow().export()));
        states.chain(self.events.export()).collect()
    }
    fn import(&mut self, name: &str, bytes: &[u8], now: u64) -> Result<(), ImportError> {
        let state = self.states.iter().find(|(known, _)| known == name);
        let imported = match state {
            Some((_, state)) => Some(state.borrow_mut().import(bytes, now)),
            None => self.events.import(name, bytes, now),
        };
        let Some(imported) = imported else { return Err(ImportError::Unknown { name: name.into() }) };
        imported.map_err(|problem| ImportError::Refused { name: name.into(), problem })
    }
    fn declarations(&mut self) -> Option<&mut Declarations> {
        Some(self)
    }
    fn take_over(&mut self, old: &mut dyn NodeState, now: u64) -> Vec<StateSuccession> {
        old.declarations().map(|old| self.take_states_over(old, now)).unwrap_or_default()
    }
    fn shared_state(&self) -> Vec<(String, SharedStateRef)> {
        let states = self.states.iter();
        states.filter_map(|(name, state)| Some((name.clone(), state.borrow().shared_state()?))).collect()
    }
    fn adopt(&mut self, name: &str, shared: &SharedStateRef, now: u64) -> Option<Result<(), ImportError>> {
        let at = self.states.iter().position(|(known, _)| known == name)?;
        let rank = |(_, state): &(String, Rc<RefCell<dyn Declared>>)| state.borrow().rank();
        let first = self.states[..at].iter().map(rank).max().unwrap_or(0) + 1;
        let end = self.states[at + 1..].iter().map(rank).filter(|rank| *rank > 0).min().unwrap_or(u64::MAX);
        let inherited = self.states[at].1.borrow_mut().adopt(shared, first..end, now)?;
        if inherited.is_ok() {
            shared.mark_adopted();
        }
        Some(inherited.map_err(|problem| ImportError::Refused { name: name.into(), problem }))
    }
    fn take_part(&mut self, part: &Part, step: &mut PartStep) -> Option<StateImage> {
        let by = part.key();
        let Some((name, state)) = self.states.get(step.state) else {
            step.end();
            return None;
        };
        let own = self.parts.iter().find(|(known, ..)| known == name);
        let moves =
            own.map_or_else(|| state.borrow().mobility(by) == Mobility::Moves, |(_, follows, _)| follows(by));
        let (bytes, next) = match own {
            _ if !moves => (Vec::new(), None),
            Some((.., take)) => take(part, step.place),
            None => state.borrow_mut().take_part(part, step.place),
        };
        step.go_on(next, self.states.len());
        (!bytes.is_empty()).then(|| (name.clone(), bytes))
    }
    fn bound(&self, by: ShuffleKey) -> Vec<String> {
        self.of_mobility(by, Mobility::Bound)
    }
    fn follows(&self, by: ShuffleKey) -> Vec<String> {
        self.of_mobility(by, Mobility::Moves)
    }
    fn packet_part(&self) -> Option<PacketPart> {
        self.packet_part.clone()
    }
    fn schedule(&self) -> Option<Schedule> {
        self.events.schedule()
    }
    fn end(&mut self) {
        self.ends.iter_mut().for_each(|end| end());
    }
    fn explain(&self, frame: &[u8], why: &mut dyn std::fmt::Write) -> std::fmt::Result {
        let mut sentences = Sentences { why, any: false, begun: false };
        for explain in &self.explains {
            sentences.begun = false;
            explain(frame, &mut sentences)?;
        }
        Ok(())
    }
    fn report(&self) -> Vec<Section> {
        self.reports.iter().map(|report| to_the_end(report())).collect()
    }
    fn report_steps(&mut self, now: u64) -> Vec<Steps<Section>> {
        self.states.iter().for_each(|(_, state)| state.borrow_mut().advance(now));
        self.reports.iter().map(|report| report()).collect()
    }
}

#[cfg(test)]
mod tests;
