//! Control tasks: work of a function beside the packet path, such as health checks or a routing daemon's routes.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Work of a function on the control side.
///
/// [`Registry::control_task`](crate::Registry::control_task) gives it to a function. `netbricks run` has a
/// thread for each function with a task. It begins with the function, and ends when a live change removes or
/// replaces the function. A task may open sockets and wait; it reaches packets only by the function's handlers.
/// Replays of captures, which repeat exactly, run no tasks.
pub trait ControlTask: Send {
    /// Does some work, and says when to be called next: after this time, or never again.
    ///
    /// It returns within a second, or looks at [`HandlerCaller::is_ending`] that often. A panic becomes an event; a second later
    /// the task is made again.
    fn run(&mut self, handlers: &mut dyn HandlerCaller, now: Instant) -> Option<Duration>;
}

/// Calls handlers of the function that a task belongs to, as an operator does.
///
/// Calls come one after the other. Each waits for its answer, at most some seconds. What a task writes is not
/// in the journal of the control API: after a restart the task writes it again.
pub trait HandlerCaller {
    /// Reads a handler: one answer, or one from each worker where each has its own.
    ///
    /// # Errors
    /// The handler refused the argument, or no answer came in time.
    fn read(&mut self, handler: &str, argument: &str) -> Result<Vec<String>, String>;
    /// Writes a handler, of all workers where each has its own.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn write(&mut self, handler: &str, argument: &str) -> Result<Vec<String>, String>;
    /// Tells the operator something, by an event.
    fn tell(&mut self, news: News, message: &str);
    /// Whether the task is to return as soon as it can.
    fn is_ending(&self) -> bool;
}

/// The weight of what a task tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// All is well.
    Info,
    /// Something may need an operator.
    Warning,
}

type Settings = Arc<dyn Any + Send + Sync>;
type Make = dyn Fn(&(dyn Any + Send + Sync)) -> Option<Box<dyn ControlTask>> + Send + Sync;

/// The maker of a function's tasks, from the function's settings.
#[derive(Clone)]
pub(crate) struct TaskMaker(Arc<Make>);

impl TaskMaker {
    /// A maker for settings of type `S`. There is no task for other settings.
    pub(crate) fn new<S: Any>(
        make: impl Fn(&S) -> Option<Box<dyn ControlTask>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |settings| settings.downcast_ref().and_then(&make)))
    }
}

/// The maker of a blueprint's tasks, with the settings of that blueprint.
#[derive(Clone, Default)]
pub(crate) struct TaskSource {
    pub(crate) settings: Option<Settings>,
    pub(crate) maker: Option<TaskMaker>,
}

impl TaskSource {
    pub(crate) fn make(&self) -> Option<Box<dyn ControlTask>> {
        let (TaskMaker(make), settings) = (self.maker.as_ref()?, self.settings.as_deref()?);
        make(settings)
    }
}

impl fmt::Debug for TaskMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskMaker")
    }
}
