//! Notifiers: a queue tells the tasks behind it whether it has packets, so that they sleep while it is empty.
//!
//! The mirror image tells tasks in front of a queue whether it has room.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use crate::router::{At, Router};
use crate::scheduler::TaskId;

/// Kinds of notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Whether there are packets to pull.
    Empty,
    /// Whether there is room to push.
    Full,
}

/// How a search for notifiers goes on behind an element that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// It ends here.
    Stop,
    /// It goes on, and the notifiers beyond wake tasks too.
    Continue,
    /// It goes on, and the notifiers beyond activate this one.
    ContinueWake,
}

/// A thing that hears of it when a signal rises.
#[derive(Clone)]
enum Listener {
    /// The task gets a turn.
    Task(TaskId),
    /// Another notifier is raised, without a word to those that listen to it.
    Notifier(Rc<Notifier>),
    /// [`Element::signal_rose`](crate::element::Element::signal_rose) is called.
    Element(usize),
}

impl PartialEq for Listener {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Task(one), Self::Task(other)) => one == other,
            (Self::Notifier(one), Self::Notifier(other)) => Rc::ptr_eq(one, other),
            (Self::Element(one), Self::Element(other)) => one == other,
            _ => false,
        }
    }
}

/// A signal that an element raises and lowers, and the tasks that wake when it rises.
pub struct Notifier {
    name: String,
    /// Its number among those of the same name, from when it was first seen.
    number: Cell<Option<u32>>,
    active: Cell<bool>,
    search: Search,
    never: bool,
    /// Tasks come first.
    listeners: RefCell<Rc<[Listener]>>,
}

/// How many notifiers of each name a configuration has.
#[derive(Default)]
struct Numbers(RefCell<HashMap<String, u32>>);

impl Notifier {
    /// A signal that is up.
    pub fn new(name: &str, search: Search) -> Rc<Self> {
        Rc::new(Self::unshared(name, search, true))
    }

    /// A signal that is never up.
    pub fn never() -> Rc<Self> {
        Rc::new(Self { never: true, ..Self::unshared("idle", Search::Stop, false) })
    }

    fn unshared(name: &str, search: Search, active: bool) -> Self {
        Self {
            name: name.to_owned(),
            number: Cell::new(None),
            active: Cell::new(active),
            search,
            never: false,
            listeners: RefCell::new(Rc::from([])),
        }
    }

    /// Gives it its number, unless it has one.
    fn register(&self, router: &Router) {
        if self.number.get().is_none() && !self.never {
            let numbers = router.shared("notifiers", Numbers::default);
            let mut numbers = numbers.0.borrow_mut();
            let next = numbers.entry(self.name.clone()).or_default();
            self.number.set(Some(*next));
            *next += 1;
        }
    }

    /// Whether it is up.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active.get()
    }

    /// How a search goes on behind it.
    pub fn search(&self) -> Search {
        self.search
    }

    /// Raises the signal, and wakes what listens.
    #[inline]
    pub fn wake(&self, router: &Router) {
        if !self.active.get() {
            self.rise(router);
        }
    }

    fn rise(&self, router: &Router) {
        if self.never {
            return;
        }
        self.active.set(true);
        let listeners = Rc::clone(&self.listeners.borrow());
        for listener in &*listeners {
            match listener {
                Listener::Task(task) => router.tasks.schedule(*task),
                Listener::Notifier(notifier) => notifier.set(true),
                Listener::Element(element) => router.element(*element).signal_rose(router.at(*element)),
            }
        }
    }

    /// Lowers the signal.
    #[inline]
    pub fn sleep(&self) {
        self.active.set(false);
    }

    /// Raises or lowers the signal, and wakes nothing.
    pub fn set(&self, active: bool) {
        self.active.set(active && !self.never);
    }

    /// Raises or lowers the signal, and wakes what listens if it rises.
    pub fn set_active(&self, active: bool, router: &Router) {
        if active { self.wake(router) } else { self.sleep() }
    }

    fn listen(&self, listener: &Listener) {
        let mut listeners = self.listeners.borrow_mut();
        if !listeners.contains(listener) {
            let mut all = listeners.to_vec();
            let place = match listener {
                Listener::Task(_) => all.iter().take_while(|one| matches!(one, Listener::Task(_))).count(),
                _ => all.len(),
            };
            all.insert(place, listener.clone());
            *listeners = all.into();
        }
    }

    /// Tasks that the signal wakes.
    pub fn listening_tasks(&self) -> Vec<TaskId> {
        let tasks = |listener: &Listener| match listener {
            Listener::Task(task) => Some(*task),
            _ => None,
        };
        self.listeners.borrow().iter().filter_map(tasks).collect()
    }
}

/// Signals that a task follows: those of all notifiers that its search found.
#[derive(Clone, Default)]
pub struct Signal {
    /// Packets may come from a source that tells nothing.
    busy: bool,
    notifiers: Vec<Rc<Notifier>>,
}

impl Signal {
    /// A signal that is always up.
    pub fn busy() -> Self {
        Self { busy: true, notifiers: Vec::new() }
    }

    /// A signal that is never up.
    pub fn idle() -> Self {
        Self::default()
    }

    /// Whether packets (or room) may be there.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.busy || self.notifiers.iter().any(|notifier| notifier.is_active())
    }

    /// Takes another signal's sources in.
    pub fn add(&mut self, other: &Self) {
        self.busy |= other.busy;
        for notifier in &other.notifiers {
            self.add_notifier(notifier);
        }
    }

    fn add_notifier(&mut self, notifier: &Rc<Notifier>) {
        if !notifier.never && !self.notifiers.iter().any(|known| Rc::ptr_eq(known, notifier)) {
            self.notifiers.push(Rc::clone(notifier));
        }
    }

    /// The signal in a form for people: `"empty.0/3:1*"`.
    ///
    /// It has the name and the number of a group of 32 notifiers, then two sets of bits. They are the notifiers that belong
    /// to the signal, and those that are up. A star stands behind them if any is up.
    pub fn describe(&self) -> String {
        if self.busy {
            return "busy*".into();
        }
        if self.notifiers.is_empty() {
            return "idle".into();
        }
        let mut groups: BTreeMap<(&str, u32), (u32, u32)> = BTreeMap::new();
        for notifier in &self.notifiers {
            let number = notifier.number.get().unwrap_or(0);
            let bits = groups.entry((&notifier.name, number / 32)).or_default();
            bits.0 |= 1 << (number % 32);
            bits.1 |= u32::from(notifier.is_active()) << (number % 32);
        }
        let one = |(&(name, group), &(all, up)): (&(&str, u32), &(u32, u32))| {
            format!("{name}.{group}/{all:x}:{up:x}{}", if up == 0 { "" } else { "*" })
        };
        groups.iter().map(one).collect::<Vec<_>>().join("+")
    }
}

/// The notifiers that one pass over the elements behind a port found.
#[derive(Default)]
struct Found {
    signal: Signal,
    notifiers: Vec<Rc<Notifier>>,
    /// A notifier that those behind it activate stopped the pass.
    again: bool,
}

/// Looks at all ports behind a port, nearest first. `through`: beyond notifiers that those behind them activate, too.
fn pass(at: At<'_>, notice: Notice, port: usize, through: bool) -> Found {
    let router = at.router;
    let mut found = Found::default();
    let mut seen = HashSet::new();
    let mut near = vec![(at.id, port)];
    while !near.is_empty() {
        let mut far = Vec::new();
        for (element, port) in near {
            let next = match notice {
                Notice::Empty => router.sources(element, port),
                Notice::Full => router.targets(element, port),
            };
            for (element, port) in next {
                if seen.insert((element, port)) && look(router, notice, element, port, through, &mut found) {
                    let beyond = router.connected_ports(element, port, notice == Notice::Empty);
                    far.extend(beyond.into_iter().map(|port| (element, port)));
                }
            }
        }
        near = far;
    }
    found
}

/// Looks at a port of an element. Whether the pass goes on behind it.
fn look(
    router: &Router,
    notice: Notice,
    element: usize,
    port: usize,
    through: bool,
    found: &mut Found,
) -> bool {
    if let Some(notifier) = router.element(element).notifier(notice, port) {
        notifier.register(router);
        found.signal.add_notifier(&notifier);
        let search = notifier.search();
        if !found.notifiers.iter().any(|known| Rc::ptr_eq(known, &notifier)) {
            found.notifiers.push(notifier);
        }
        return match search {
            Search::Stop => false,
            Search::Continue => true,
            Search::ContinueWake => {
                found.again |= !through;
                through
            }
        };
    }
    let source = router.connected_ports(element, port, notice == Notice::Empty).is_empty();
    if router.tells_nothing(element, port, notice) || source && router.may_create(element) {
        found.signal.busy = true;
        return false;
    }
    true
}

/// Finds the notifiers upstream of an input (or downstream of an output), and has something listen to them.
///
/// Nothing listens where the signal is always up.
fn search(at: At<'_>, notice: Notice, port: usize, listener: Option<&Listener>) -> Signal {
    let Found { signal, mut notifiers, again } = pass(at, notice, port, false);
    if signal.busy {
        return Signal::busy();
    }
    if again {
        notifiers.extend(pass(at, notice, port, true).notifiers);
    }
    if let Some(listener) = listener {
        notifiers.iter().for_each(|notifier| notifier.listen(listener));
    }
    signal
}

impl At<'_> {
    /// A notifier that has its number from now on.
    pub fn notifier(self, name: &str, search: Search) -> Rc<Notifier> {
        let notifier = Notifier::new(name, search);
        notifier.register(self.router);
        notifier
    }
    /// Whether packets may wait upstream of an input: `task` wakes when some come.
    pub fn upstream_empty(self, input: usize, task: Option<usize>) -> Signal {
        search(self, Notice::Empty, input, task.map(|task| Listener::Task((self.id, task))).as_ref())
    }
    /// As [`upstream_empty`](Self::upstream_empty), with a notifier that is raised instead of a task that wakes.
    pub fn upstream_empty_wakes(self, input: usize, notifier: &Rc<Notifier>) -> Signal {
        search(self, Notice::Empty, input, Some(&Listener::Notifier(Rc::clone(notifier))))
    }
    /// As [`upstream_empty`](Self::upstream_empty), with a call of
    /// [`Element::signal_rose`](crate::element::Element::signal_rose).
    pub fn upstream_empty_calls(self, input: usize) -> Signal {
        search(self, Notice::Empty, input, Some(&Listener::Element(self.id)))
    }
    /// Whether there may be room downstream of an output: `task` wakes when there is some.
    pub fn downstream_full(self, output: usize, task: Option<usize>) -> Signal {
        search(self, Notice::Full, output, task.map(|task| Listener::Task((self.id, task))).as_ref())
    }
}
