//! Handlers of functions: those that an author declares, and those of all declared state.

use std::rc::Rc;

use netbricks_tables::Counters;

use crate::consistency::{Access, Contents};
use crate::node::{CallError, Handler, HandlerSide};
use crate::state::{Declarations, Declared};
use crate::steps::{Steps, to_the_end};
use crate::worker::Worker;

/// The code of a handler.
pub(crate) type Call = Box<dyn Fn(&str) -> Result<String, String>>;
/// The code of a handler that is answered in steps.
pub(crate) type StepwiseCall = Rc<dyn Fn(&str) -> Result<Steps<String>, String>>;

impl Worker {
    /// Declares a handler of this worker, which the control side may call between batches.
    ///
    /// `call` gets the argument, and answers or says the error. Where the handler is about one declared state,
    /// use [`handler_of`](Self::handler_of).
    ///
    /// ```
    /// use netbricks_core::{Function, Handler, HandlerKind, Input, Operator, Worker, compose};
    ///
    /// fn count(input: Input, worker: &Worker) -> impl Function {
    ///     let seen = worker.counter("seen");
    ///     let told = seen.clone();
    ///     worker.handler(Handler::read("seen", "Packets so far."), move |_| Ok(told.get().to_string()));
    ///     input.inspect(move |_| seen.add(1)).done()
    /// }
    ///
    /// # let pool = netbricks_core::buffer::Pool::builder().frames(16).build()?;
    /// # let worker = Worker::new(0, 1, pool);
    /// let mut node = compose(&worker, |input| count(input, &worker))?;
    /// assert_eq!(node.call("seen", ""), Ok("0".into()));
    /// assert!(node.call_as(HandlerKind::Write, "seen", "").is_err());
    /// assert!(node.call("seen", "now").is_err(), "it takes no argument");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn handler(&self, handler: Handler, call: impl Fn(&str) -> Result<String, String> + 'static) {
        self.declarations.borrow_mut().handlers.push((handler, Box::new(call)));
    }

    /// Declares a handler that reads more than a worker should look at between two batches.
    ///
    /// `begin` gets the argument, and answers the [steps](Steps), between which the worker has packets. See
    /// [`in_steps`](crate::State::in_steps).
    pub fn handler_in_steps(
        &self,
        handler: Handler,
        begin: impl Fn(&str) -> Result<Steps<String>, String> + 'static,
    ) {
        let begin: StepwiseCall = Rc::new(begin);
        self.declarations.borrow_mut().stepwise.push((handler.name.clone(), begin.clone()));
        self.handler(handler, move |argument| begin(argument).map(to_the_end));
    }

    /// Declares a handler about one declared state, which decides the handler's [side](HandlerSide).
    ///
    /// Where all workers share the state, the control side calls the handler on a
    /// [copy](crate::Blueprint::control) of the node, and disturbs no worker. `call` gets the state and the
    /// argument. It uses nothing else that belongs to a worker.
    ///
    /// ```
    /// use netbricks_core::consistency::{Access, BoundedInconsistency};
    /// use netbricks_core::tables::CounterArray;
    /// use netbricks_core::{Blueprint, Function, Handler, Input, Operator, Worker, compose};
    ///
    /// fn count(input: Input, worker: &Worker) -> impl Function {
    ///     let seen = worker.state::<CounterArray, _>("seen", BoundedInconsistency { updates: 0 }, 4);
    ///     let add = Handler::write("add", "Adds to the first counter.").argument("NUMBER");
    ///     worker.handler_of(&seen, add, |seen, argument| {
    ///         let by: u64 = argument.parse().map_err(|_| format!("expected a number, found `{argument}`"))?;
    ///         seen.update((0, by)).map_err(|cannot| cannot.to_string())?;
    ///         Ok("done".into())
    ///     });
    ///     worker.handler_of(&seen, Handler::read("first", "The first counter."), |seen, _| {
    ///         Ok(seen.read(|seen| seen.get(0).unwrap_or(0)).to_string())
    ///     });
    ///     input.done()
    /// }
    ///
    /// # let pool = netbricks_core::buffer::Pool::builder().frames(16).build()?;
    /// let blueprint = Blueprint::new(|worker| compose(worker, |input| count(input, worker)));
    /// let mut control = blueprint.control(pool.clone(), 1)?;
    /// let mut node = blueprint.build(&Worker::new(0, 1, pool))?;
    /// control.call("add", "7")?;
    /// assert_eq!(node.call("first", ""), Ok("7".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn handler_of<T: Contents, S: Access<T>>(
        &self,
        state: &S,
        handler: Handler,
        call: impl Fn(&S, &str) -> Result<String, String> + 'static,
    ) {
        let state = state.clone();
        self.handler(handler.on(S::SIDE), move |argument| call(&state, argument));
    }
}

/// A counter of a flow table beside its occupancy.
///
/// It has the handler's name behind the table's, its meaning (the table's name stands in the middle), and its accessor.
type Count = (&'static str, [&'static str; 2], fn(&Counters) -> u64);

const COUNTS: [Count; 3] = [
    ("evicted", ["Entries of", "that gave their place to another before they were over"], |of| of.evicted),
    ("expired", ["Entries of", "that ended by their timeout"], |of| of.expired),
    ("refused", ["What is new to", "and found no place, and flows moved here that found none"], |of| {
        of.refused
    }),
];

/// The side of a state's own handlers.
fn side_of(state: &dyn Declared) -> HandlerSide {
    if state.shared_state().is_some() { HandlerSide::Control } else { HandlerSide::Worker }
}

impl Declarations {
    /// All handlers: the author's, then those of the state and of the events.
    pub(crate) fn all_handlers(&self) -> Vec<Handler> {
        let sizes = self.states.iter().flat_map(|(name, state)| {
            let state = state.borrow();
            let side = side_of(&*state);
            let summary = format!("Entries and capacity of `{name}`.");
            let occupancy = Handler::read(format!("{name}.occupancy"), summary).on(side);
            let counts = state.flow_counters().map(|_| COUNTS).into_iter().flatten();
            let counts = counts.map(move |(count, [what, which], _)| {
                Handler::read(format!("{name}.{count}"), format!("{what} `{name}` {which}.")).on(side)
            });
            std::iter::once(occupancy).chain(counts)
        });
        let events = self.events.handlers().map(|(name, summary, _)| Handler::read(name, summary));
        self.handlers.iter().map(|(handler, _)| handler.clone()).chain(sizes).chain(events).collect()
    }

    /// Calls a handler.
    pub(crate) fn call_handler(&self, name: &str, argument: &str) -> Result<String, CallError> {
        if self.is_control {
            self.follow(name)?;
        }
        let _settling = self.settling();
        if let Some((handler, call)) = self.handlers.iter().find(|(handler, _)| handler.name == name) {
            handler.admits(argument)?;
            return call(argument).map_err(|problem| CallError::Argument { name: name.into(), problem });
        }
        let event = || self.events.handlers().find(|(handler, ..)| handler == name);
        if let Some(answer) = self.metric(name).or_else(|| event().map(|(_, _, count)| count.to_string())) {
            return Handler::read(name, "").admits(argument).map(|()| answer);
        }
        let known =
            self.all_handlers().into_iter().map(|handler| handler.name).collect::<Vec<_>>().join(", ");
        Err(CallError::Unknown { name: name.into(), known })
    }

    /// Begins a call of a handler that is answered in steps, if there is one of this name.
    pub(crate) fn call_in_steps(
        &self,
        name: &str,
        argument: &str,
    ) -> Option<Result<Steps<String>, CallError>> {
        let (_, begin) = self.stepwise.iter().find(|(known, _)| known == name)?;
        let (handler, _) = self.handlers.iter().find(|(handler, _)| handler.name == name)?;
        let begun = || {
            handler.admits(argument)?;
            begin(argument).map_err(|problem| CallError::Argument { name: name.into(), problem })
        };
        Some(begun())
    }

    /// The answer of a state's own handler, if one has this name.
    fn metric(&self, handler: &str) -> Option<String> {
        let (name, metric) = handler.rsplit_once('.')?;
        let state = self.states.iter().find(|(known, _)| known == name)?.1.borrow();
        if metric == "occupancy" {
            let (entries, capacity) = state.occupancy();
            return Some(format!("{entries} {capacity}"));
        }
        let (.., of) = COUNTS.iter().find(|(count, ..)| *count == metric)?;
        Some(of(&state.flow_counters()?).to_string())
    }

    /// Joins shared state that a graph has taken over since this copy was made.
    fn follow(&self, handler: &str) -> Result<(), CallError> {
        for (name, state) in &self.states {
            state.borrow_mut().follow().map_err(|problem| {
                let problem = format!("state `{name}`: {problem}");
                CallError::Unreachable { name: handler.into(), problem }
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use netbricks_buffer::Pool;
    use netbricks_tables::FlowTableConfig;

    use crate::worker::Worker;

    #[test]
    fn state_without_a_bound_has_no_room_that_counts() {
        let worker = Worker::new(0, 1, Pool::builder().frames(16).build().unwrap());
        let (room, declarations) = worker
            .declaring(|| {
                let (_, _) = (worker.counter("a"), worker.counter("b"));
                let table = worker.flow_table::<u64, u64>("table", FlowTableConfig::new(100));
                table.with(|table| table.capacity())
            })
            .unwrap();
        assert_eq!((room, declarations.capacity()), (100, 100));
    }
}
