//! Tasks and timers of one configuration: stride scheduling and a heap of expiry times, in Click's order.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// A task: the element's number, and which of its tasks.
pub type TaskId = (usize, usize);
/// A timer: the element's number, and which of its timers.
pub type TimerId = (usize, usize);

/// Tickets of a task, unless a configuration says otherwise.
pub const DEFAULT_TICKETS: u32 = 1024;
/// The most tickets that a task can have.
pub const MAX_TICKETS: u32 = 1 << 15;
const STRIDE1: u64 = 1 << 16;

struct Waiting {
    task: TaskId,
    pass: u64,
}

/// Tasks that wait for their turn, in the order of their passes.
#[derive(Default)]
pub struct Tasks {
    waiting: RefCell<VecDeque<Waiting>>,
    /// The task whose turn it is, and its pass.
    running: Cell<Option<(TaskId, u64)>>,
    /// Whether the running task asked for another turn.
    again: Cell<bool>,
    tickets: RefCell<HashMap<TaskId, u32>>,
    /// Tickets of all tasks of an element, where a configuration gives them.
    of_elements: RefCell<HashMap<usize, u32>>,
    /// Threads that a configuration prefers for an element's tasks.
    homes: RefCell<HashMap<usize, i32>>,
}

impl Tasks {
    fn stride(&self, task: TaskId) -> u64 {
        STRIDE1 / u64::from(self.tickets(task).max(1))
    }

    /// Tickets of a task: a task with twice the tickets has twice the turns.
    pub fn tickets(&self, task: TaskId) -> u32 {
        let own = self.tickets.borrow().get(&task).copied();
        own.or_else(|| self.of_elements.borrow().get(&task.0).copied()).unwrap_or(DEFAULT_TICKETS)
    }

    /// Sets the tickets of all tasks of an element; without any, they never run.
    pub fn set_tickets_of(&self, element: usize, tickets: u32) {
        self.of_elements.borrow_mut().insert(element, tickets.min(MAX_TICKETS));
    }

    /// The thread that a configuration prefers for an element's tasks. Here, all run on one thread.
    pub fn home_of(&self, element: usize) -> i32 {
        self.homes.borrow().get(&element).copied().unwrap_or(0)
    }

    /// Notes the thread that a configuration prefers for an element's tasks.
    pub fn set_home_of(&self, element: usize, thread: i32) {
        self.homes.borrow_mut().insert(element, thread);
    }

    /// Sets a task's tickets, between 1 and [`MAX_TICKETS`].
    pub fn set_tickets(&self, task: TaskId, tickets: u32) {
        let tickets = tickets.clamp(1, MAX_TICKETS);
        self.tickets.borrow_mut().insert(task, tickets);
    }

    /// Whether a task waits for its turn, or has asked for another.
    pub fn is_scheduled(&self, task: TaskId) -> bool {
        if self.running.get().is_some_and(|(running, _)| running == task) {
            return self.again.get();
        }
        self.waiting.borrow().iter().any(|waiting| waiting.task == task)
    }

    /// Asks for a turn.
    pub fn schedule(&self, task: TaskId) {
        if let Some((running, _)) = self.running.get()
            && running == task
        {
            self.again.set(true);
            return;
        }
        if self.is_scheduled(task) || self.tickets(task) == 0 {
            return;
        }
        let base = match self.running.get() {
            Some((_, pass)) => pass,
            None => self.waiting.borrow().front().map_or(0, |first| first.pass),
        };
        self.insert(task, base + self.stride(task));
    }

    /// How many tasks wait for a turn.
    pub(crate) fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    fn insert(&self, task: TaskId, pass: u64) {
        let mut waiting = self.waiting.borrow_mut();
        let place = waiting.iter().rposition(|other| other.pass <= pass).map_or(0, |place| place + 1);
        waiting.insert(place, Waiting { task, pass });
    }

    /// Asks for no turn.
    pub fn unschedule(&self, task: TaskId) {
        if self.running.get().is_some_and(|(running, _)| running == task) {
            self.again.set(false);
            return;
        }
        self.waiting.borrow_mut().retain(|waiting| waiting.task != task);
    }

    /// Begins the turn of the first task.
    pub fn begin(&self) -> Option<TaskId> {
        let first = self.waiting.borrow_mut().pop_front()?;
        self.running.set(Some((first.task, first.pass)));
        self.again.set(false);
        Some(first.task)
    }

    /// Ends the turn that [`begin`](Self::begin) began. `false` when to go on with the same task is of no use now.
    pub fn end(&self, worked: bool) -> bool {
        let Some((task, pass)) = self.running.take() else { return true };
        if !self.again.get() {
            return true;
        }
        let mut pass = pass + self.stride(task);
        let next = self.waiting.borrow().front().map(|first| first.pass);
        if !worked {
            match next {
                // Alone, and without work: its turn comes again after timers and descriptors were looked at.
                None => {
                    self.insert(task, pass);
                    return false;
                }
                Some(next) => pass = pass.max(next),
            }
        }
        self.insert(task, pass);
        true
    }

    /// Whether no task waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }
}

/// Timers that are set, in the order of their expiry.
#[derive(Default)]
pub struct Timers {
    order: RefCell<BTreeSet<(u64, u64, TimerId)>>,
    set: RefCell<HashMap<TimerId, (u64, u64)>>,
    sequence: Cell<u64>,
}

impl Timers {
    /// Has a timer expire at a time (ns, steady clock) instead of any earlier wish.
    pub fn schedule(&self, timer: TimerId, time: u64) {
        self.unschedule(timer);
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        self.set.borrow_mut().insert(timer, (time, sequence));
        self.order.borrow_mut().insert((time, sequence, timer));
    }

    /// Has a timer not expire.
    pub fn unschedule(&self, timer: TimerId) {
        if let Some((time, sequence)) = self.set.borrow_mut().remove(&timer) {
            self.order.borrow_mut().remove(&(time, sequence, timer));
        }
    }

    /// When a timer expires, if it is set (ns).
    pub fn expiry(&self, timer: TimerId) -> Option<u64> {
        self.set.borrow().get(&timer).map(|(time, _)| *time)
    }

    /// When the first timer expires (ns).
    pub fn first(&self) -> Option<u64> {
        self.order.borrow().first().map(|(time, _, _)| *time)
    }

    /// Takes the first timer that has expired by `now`, and its time of expiry.
    pub fn expired(&self, now: u64) -> Option<(TimerId, u64)> {
        let first = *self.order.borrow().first()?;
        if first.0 > now {
            return None;
        }
        self.order.borrow_mut().remove(&first);
        self.set.borrow_mut().remove(&first.2);
        Some((first.2, first.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_take_turns_by_their_tickets() {
        let tasks = Tasks::default();
        tasks.set_tickets((1, 0), DEFAULT_TICKETS * 2);
        tasks.schedule((0, 0));
        tasks.schedule((1, 0));
        let mut turns = [0; 2];
        for _ in 0..300 {
            let task = tasks.begin().expect("two tasks wait");
            turns[task.0] += 1;
            tasks.schedule(task);
            assert!(tasks.end(true));
        }
        // The first turn is that of the task that was first.
        assert_eq!(turns, [101, 199]);
    }

    #[test]
    fn a_task_alone_and_without_work_ends_the_round() {
        let tasks = Tasks::default();
        tasks.schedule((0, 0));
        let task = tasks.begin().expect("one waits");
        tasks.schedule(task);
        assert!(!tasks.end(false));
        assert!(tasks.is_scheduled((0, 0)));
        tasks.unschedule((0, 0));
        assert!(tasks.is_empty());
    }

    #[test]
    fn timers_expire_in_order_and_once() {
        let timers = Timers::default();
        timers.schedule((0, 0), 30);
        timers.schedule((1, 0), 20);
        timers.schedule((2, 0), 20);
        timers.schedule((0, 0), 10);
        assert_eq!(timers.first(), Some(10));
        assert_eq!(timers.expired(25), Some(((0, 0), 10)));
        assert_eq!(timers.expired(25), Some(((1, 0), 20)));
        timers.unschedule((2, 0));
        assert_eq!(timers.expired(25), None);
    }
}
