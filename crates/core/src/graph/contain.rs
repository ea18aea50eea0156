//! What is known of a panic: whose it was, what it said, where it stood; and how one ends.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// A panic that was contained.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Panic {
    /// The node that panicked.
    pub node: String,
    /// What it said.
    pub message: String,
    /// File, line and column, where the hook of [`observe_panics`] saw it.
    pub place: Option<String>,
    /// Packets that were lost with it.
    pub packets: u64,
    /// When (ns).
    pub time: u64,
    /// Whether the node was made anew.
    pub rebuilt: bool,
}

/// What a panic left behind that [`contain`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// What it said.
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

/// Installs, once a process, a panic hook that keeps a contained panic's place instead of printing it. Panics outside
/// a graph are printed as before.
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

/// Marks this thread as one whose panics are contained, for as long as the guard lives; it knows what was before.
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

/// What a panic said and where it stood. Dropping the payload may panic in its turn: that one is contained as well, and
/// its own payload leaked, since there is no end to such a row.
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
