//! How declared state goes on in the node that replaces its own, decided before anything moves.
//!
//! A plan asks with the [terms](StateTerms) of running state alone. A graph that takes over asks the same
//! question, so that both say the same.

use std::any::{Any, TypeId};
use std::sync::Arc;

use crate::graph::contain;
use crate::state::{Declarations, Declared};

/// The terms of running state, by which the state in its place decides how it goes on there.
///
/// They hold no entry, so that they cost a worker the same for any number of entries.
#[derive(Clone)]
pub struct StateTerms {
    of: TypeId,
    entries: u64,
    entry_bytes: u64,
    is_written: bool,
    terms: Option<Arc<dyn Any + Send + Sync>>,
    shared: Option<Arc<dyn Any + Send + Sync>>,
}

impl StateTerms {
    /// The terms of state of type `T` with so many entries.
    pub fn of<T: ?Sized + 'static>(entries: u64) -> Self {
        let of = TypeId::of::<T>();
        Self { of, entries, entry_bytes: 0, is_written: false, terms: None, shared: None }
    }
    /// The same terms, where each entry takes so many bytes in a copy.
    #[must_use]
    pub fn sized(self, entry_bytes: usize) -> Self {
        Self { entry_bytes: entry_bytes as u64, ..self }
    }
    /// The same terms, with those that only state of this type understands.
    #[must_use]
    pub fn with(self, terms: impl Any + Send + Sync) -> Self {
        Self { terms: Some(Arc::new(terms)), ..self }
    }
    /// The same terms, of state that all workers share by this.
    pub(crate) fn shared_by(self, shared: impl Any + Send + Sync) -> Self {
        Self { shared: Some(Arc::new(shared)), ..self }
    }
    /// The same terms, of state of one worker.
    pub(crate) fn apart(&self) -> Self {
        Self { shared: None, ..self.clone() }
    }
    /// The terms [by which](Self::shared_by) workers share the state.
    pub(crate) fn shared<T: Any>(&self) -> Option<&T> {
        self.shared.as_ref()?.downcast_ref()
    }
    /// Whether they are of state of type `T`.
    pub fn is_of<T: ?Sized + 'static>(&self) -> bool {
        self.of == TypeId::of::<T>()
    }
    /// The terms that were added [`with`](Self::with) this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.terms.as_ref()?.downcast_ref()
    }
    /// The entries of the state.
    pub fn entries(&self) -> u64 {
        self.entries
    }
    /// The bytes of a copy of the entries, as far as it is known.
    pub fn bytes(&self) -> Option<u64> {
        (self.entry_bytes > 0).then(|| self.entries.saturating_mul(self.entry_bytes))
    }
    /// Whether workers share the state, so that each of them has the same entries.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }
}

impl std::fmt::Debug for StateTerms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateTerms").field("entries", &self.entries).finish_non_exhaustive()
    }
}

/// The way in which state goes on; later ones cost more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// It is handed on as it is.
    Whole,
    /// It is handed on, and its entries move in bounded steps with packets between them.
    InSteps,
    /// Its entries are copied while packets wait.
    Copied,
    /// It begins again.
    Anew,
}

/// The decision how state goes on in the node that replaces its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Succession {
    /// The way.
    pub way: Way,
    /// Why it is not handed on as it is; empty where it is.
    pub reason: String,
}

impl Succession {
    /// It is handed on as it is.
    pub const fn whole() -> Self {
        Self { way: Way::Whole, reason: String::new() }
    }
    /// Its entries move in bounded steps, for this reason.
    pub fn in_steps(reason: impl Into<String>) -> Self {
        Self { way: Way::InSteps, reason: reason.into() }
    }
    /// Its entries are copied while packets wait, for this reason.
    pub fn copied(reason: impl Into<String>) -> Self {
        Self { way: Way::Copied, reason: reason.into() }
    }
    /// It begins again, for this reason.
    pub fn anew(reason: impl Into<String>) -> Self {
        Self { way: Way::Anew, reason: reason.into() }
    }
    /// It begins again, since another configuration counts more than what handlers changed since.
    pub fn configured() -> Self {
        Self::anew("the file names another content than it began with")
    }
    /// It begins again, since the state under its name has another type there.
    pub fn unlike() -> Self {
        Self::anew("the state of this name has another layout there")
    }
    /// It begins again, since there is room for less.
    pub fn no_room(room: u64, terms: &StateTerms) -> Self {
        Self::anew(format!("there is room for {room} of {} entries", terms.entries))
    }
    /// The same, where entries are copied though they could be handed on or move in steps.
    #[must_use]
    pub(crate) fn or_copied(self, reason: &str) -> Self {
        match self.way {
            Way::Whole => Self::copied(reason),
            Way::InSteps => Self::copied(self.reason),
            Way::Copied | Way::Anew => self,
        }
    }
    /// [Copied](Self::copied) where there is room for all entries.
    pub fn copied_into(room: u64, terms: &StateTerms, reason: &str) -> Self {
        if terms.entries > room { Self::no_room(room, terms) } else { Self::copied(reason) }
    }
}

/// Why written state begins again where handlers' changes are undone.
const UNDONE: &str = "it begins as the file says, and the writes of handlers that stay are made again";

/// State of a node that is replaced, and how it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSuccession {
    /// The name of the state.
    pub name: String,
    /// How it goes on.
    pub succession: Succession,
}

impl Declarations {
    /// The terms of all declared state, by name.
    pub(crate) fn terms(&self) -> Vec<(String, StateTerms)> {
        let of = |(name, state): &(String, std::rc::Rc<std::cell::RefCell<dyn Declared>>)| {
            // A state under two names may be borrowed.
            let state = state.try_borrow().ok()?;
            let is_written = state.is_written();
            Some((name.clone(), StateTerms { is_written, ..state.terms() }))
        };
        self.states.iter().filter_map(of).collect()
    }

    /// How running state with these terms goes on here; `undoes` where handlers' changes do not.
    pub(crate) fn successions(&self, before: &[(String, StateTerms)], undoes: bool) -> Vec<StateSuccession> {
        let of = |(name, terms): &(String, StateTerms)| {
            let state = self.states.iter().find(|(known, _)| known == name);
            let succession = match state {
                None => Succession::anew("there is no state of this name any more"),
                Some(_) if undoes && terms.is_written => Succession::anew(UNDONE),
                Some((_, state)) => decided(|| state.borrow().succession(terms)),
            };
            StateSuccession { name: name.clone(), succession }
        };
        before.iter().map(of).collect()
    }

    /// Goes on with the state of `old` as far as that needs no copy, and decides about the rest.
    ///
    /// State that goes on or begins again leaves `old` before that, so that it is not exported, also after a panic.
    pub(crate) fn take_states_over(&self, old: &mut Self, now: u64) -> Vec<StateSuccession> {
        let mut taken = Vec::new();
        for (name, state) in &self.states {
            let Some(at) = old.states.iter().position(|(known, _)| known == name) else { continue };
            let (_, before) = old.states.remove(at);
            // A state under two names is borrowed already. The graph adopts that of all workers.
            let succession = before.try_borrow_mut().ok().filter(|before| before.shared_state().is_none());
            let succession = succession.map(|mut before| decide(&*state.borrow(), &mut *before, now));
            let is_done = match &succession {
                None => false,
                Some(Succession { way: Way::Anew, .. }) => true,
                // Where it is to be copied, it may turn out that it need not be.
                Some(_) => state.borrow_mut().take_over(&mut *before.borrow_mut()),
            };
            match succession.filter(|_| is_done) {
                None => old.states.insert(at, (name.clone(), before)),
                // Nothing is lost of a table without entries.
                Some(Succession { way: Way::Anew, .. }) if matches!(before.borrow().occupancy(), (0, room) if room > 0) =>
                    {}
                Some(succession) => taken.push(StateSuccession { name: name.clone(), succession }),
            }
        }
        taken
    }

    /// The names of the states.
    pub(crate) fn names(&self) -> Vec<String> {
        self.states.iter().map(|(name, _)| name.clone()).collect()
    }
}

/// How state goes on in `state`; where it lacks room, expired entries end first.
fn decide(state: &dyn Declared, before: &mut dyn Declared, now: u64) -> Succession {
    let succession = decided(|| state.succession(&before.terms()));
    let lacks_room = succession.way == Way::Anew && before.occupancy().0 > state.occupancy().1;
    if !lacks_room {
        return succession;
    }
    before.expire_all(now);
    decided(|| state.succession(&before.terms()))
}

/// A decision that an author's code makes.
fn decided(decision: impl FnOnce() -> Succession) -> Succession {
    contain(decision)
        .unwrap_or_else(|caught| Succession::anew(format!("deciding that panicked: {}", caught.message)))
}
