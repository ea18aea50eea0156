//! Containment of panics: the node, message and place of a panic, and how it ends.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// A panic that was contained.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Panic {
    /// The node that panicked.
    pub node: String,
    /// The panic's message.
    pub message: String,
    /// File, line and column, where the hook of [`observe_panics`] saw it.
    pub place: Option<String>,
    /// Packets that were lost with it.
    pub packets: u64,
    /// When (ns).
    pub time: u64,
    /// Whether the node was rebuilt.
    pub rebuilt: bool,
}

/// Message and place of a panic that [`contain`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// The panic's message.
    pub message: String,
    /// File, line and column, where the hook of [`observe_panics`] saw it.
    pub place: Option<String>,
}

/// Runs what others wrote: a panic in it ends here, and so does one in dropping what it panicked with.
///
/// # Errors
/// [`Caught`], where it panics. What it borrowed may be half-done then.
pub fn contain<T>(run: impl FnOnce() -> T) -> Result<T, Caught> {
    let _containing = Containing::enter();
    catch_unwind(AssertUnwindSafe(run)).map_err(account)
}

thread_local! {
    static CONTAINING: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs a panic hook, once a process, that keeps a contained panic's place instead of printing it.
///
/// Panics outside a graph are printed as before.
pub fn observe_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let contained = CONTAINING.get();
            if contained {
                PLACE.with(|place| *place.borrow_mut() = info.location().map(ToString::to_string));
            }
            if !contained {
                before(info);
            }
        }));
    });
}

/// Marks this thread's panics as contained while the guard lives; it restores the mark before it.
pub(super) struct Containing(bool);

impl Containing {
    #[inline(always)]
    pub(super) fn enter() -> Self {
        Self(CONTAINING.replace(true))
    }
}

impl Drop for Containing {
    #[inline(always)]
    fn drop(&mut self) {
        CONTAINING.set(self.0);
    }
}

/// The message and place of a panic.
///
/// Dropping the payload may panic again. That panic is contained as well, and its own payload is leaked, since dropping
/// it could panic without end.
pub(super) fn account(payload: Box<dyn Any + Send>) -> Caught {
    // First of all: whatever panics from here on leaves its own place.
    let place = take_place();
    let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "a panic without a message".to_owned(),
    };
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
        take_place();
    }
    Caught { message, place }
}

/// Where the last panic was.
fn take_place() -> Option<String> {
    PLACE.with(|place| place.borrow_mut().take())
}
