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
    /// The file, line and column, where the hook of [`observe_panics`] saw them.
    pub place: Option<String>,
    /// Packets that were lost with it.
    pub packets: u64,
    /// The time (ns).
    pub time: u64,
    /// Whether the node was rebuilt.
    pub rebuilt: bool,
    /// The end of its quarantine (ns, the graph's clock), where it went there; [`u64::MAX`] where it stays.
    pub quarantine: Option<u64>,
}

/// A call of the graph, or of the plan for it, into an author's code.
///
/// A panic in such a call costs what the variant's summary says, and never the worker, another node or the
/// counters.
///
/// One panic cannot be contained: Rust ends the process where a destructor panics while another panic
/// unwinds. That concerns a value on the stack of the call that panicked. A node, its state and its settings
/// are dropped separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorCall {
    /// A blueprint makes a node: the graph is not built, or the node that panicked goes on.
    Build,
    /// [`Node::shape`](crate::Node::shape), where a node is added: the graph is not built.
    Describe,
    /// [`Node::process`](crate::Node::process): its batch is lost, and the node is rebuilt.
    Process,
    /// [`Node::poll`](crate::Node::poll), events included: its batch is lost, and the node is rebuilt.
    Poll,
    /// [`Node::with_state`](crate::Node::with_state): as the call of the state for which the graph makes it.
    State,
    /// [`Node::as_queue`](crate::Node::as_queue): as the call of the queue for which the graph makes it.
    Queue,
    /// [`NodeQueue::held`](crate::NodeQueue::held): the batch that enters is lost, and the node is rebuilt.
    Held,
    /// [`NodeState::schedule`](crate::NodeState::schedule): the node gets no events.
    Schedule,
    /// [`NodeQueue::drain`](crate::NodeQueue::drain): its batch is lost, and the node is rebuilt.
    Drain,
    /// [`NodeQueue::flush`](crate::NodeQueue::flush): as `Drain`.
    Flush,
    /// [`NodeState::end`](crate::NodeState::end): the node is rebuilt, and counts as told.
    End,
    /// [`Node::descriptors`](crate::Node::descriptors) and [`Node::has_descriptor`](crate::Node::has_descriptor): an idle
    /// worker does not sleep on them.
    Descriptors,
    /// [`NodeState::call`](crate::NodeState::call): the call gives an error, and the node is rebuilt.
    Call,
    /// [`NodeState::export`](crate::NodeState::export): the node's state is not exported.
    Export,
    /// [`NodeState::import`](crate::NodeState::import): the import gives an error, and the node is rebuilt.
    Import,
    /// [`NodeState::shared_state`](crate::NodeState::shared_state): the node's shared state is not handed on.
    SharedState,
    /// [`NodeState::adopt`](crate::NodeState::adopt): the call gives an error, and the node is rebuilt.
    Adopt,
    /// [`NodeState::take_part`](crate::NodeState::take_part): the node is rebuilt, and flows move without its
    /// state.
    TakePart,
    /// [`NodeState::bound`](crate::NodeState::bound) and [`NodeState::follows`](crate::NodeState::follows): no flow moves.
    Bound,
    /// [`NodeQueue::departed`](crate::NodeQueue::departed): all packets count as departed, and the node is
    /// rebuilt.
    Departed,
    /// [`Node::as_handoff`](crate::Node::as_handoff): the node is rebuilt.
    Handoff,
    /// [`NodeQueue::survivors`](crate::NodeQueue::survivors): the new node begins with nothing.
    Survivors,
    /// [`NodeQueue::restore`](crate::NodeQueue::restore): another new node begins with nothing.
    Restore,
    /// [`NodeQueue::restore_failed`](crate::NodeQueue::restore_failed): nothing is lost.
    RestoreFailed,
    /// [`NodeState::explain`](crate::NodeState::explain): a trace has no sentence of the node.
    Explain,
    /// [`NodeState::report`](crate::NodeState::report): the node's part of the report is missing.
    Report,
    /// [`Node::guards`](crate::Node::guards) and [`NodeState::packet_part`](crate::NodeState::packet_part), by a
    /// [blueprint](crate::Blueprint::ask): the plan is refused.
    Plan,
    /// [`NodeState::handlers`](crate::NodeState::handlers): the control side's copy is not made.
    Handlers,
    /// [`NodeState::call_steps`](crate::NodeState::call_steps): as `Call`.
    CallSteps,
    /// A [step](crate::Steps) of such a call: as `Call`.
    CallStep,
    /// [`NodeState::declarations`](crate::NodeState::declarations): the node's tables are not reported.
    Declarations,
    /// [`NodeState::take_over`](crate::NodeState::take_over): the node is rebuilt, and begins with nothing.
    TakeOver,
    /// [`NodeState::expire`](crate::NodeState::expire): as `Report`.
    Expire,
    /// [`NodeState::report_steps`](crate::NodeState::report_steps): as `Report`.
    ReportSteps,
    /// A [step](crate::Steps) of such a report: as `Report`.
    ReportStep,
    /// [`NodeQueue::offer`](crate::NodeQueue::offer): the packet is lost, and the node is rebuilt. The node that sends
    /// the packet goes on.
    Offer,
    /// [`NodeQueue::keep_for_successor`](crate::NodeQueue::keep_for_successor): the node is rebuilt, and drained.
    KeepForSuccessor,
    /// [`NodeQueue::predecessor`](crate::NodeQueue::predecessor): the new node is rebuilt, and the old one is drained.
    Predecessor,
    /// [`NodeQueue::succeed`](crate::NodeQueue::succeed): the new node is rebuilt, and packets that it took are lost.
    Succeed,
    /// [`Handoff::id`](crate::shuffle::Handoff::id): the graph is taken to have no such shuffle.
    HandoffId,
    /// [`Handoff::key`](crate::shuffle::Handoff::key): no flow moves behind the shuffle.
    HandoffKey,
    /// [`Handoff::bound`](crate::shuffle::Handoff::bound): the shuffle does not learn which state cannot move.
    HandoffBound,
    /// [`Handoff::close`](crate::shuffle::Handoff::close): the shuffle is given up when the graph is taken down.
    HandoffClose,
    /// [`Handoff::migration_request`](crate::shuffle::Handoff::migration_request): the request is lost, and the move does
    /// not end.
    HandoffRequest,
    /// [`Handoff::is_to_give`](crate::shuffle::Handoff::is_to_give) and
    /// [`Handoff::is_to_take`](crate::shuffle::Handoff::is_to_take): the other shuffles do not wait for this one.
    HandoffWaits,
    /// [`Handoff::given`](crate::shuffle::Handoff::given): the state is lost, and the move does not end.
    HandoffGiven,
    /// [`Handoff::took`](crate::shuffle::Handoff::took): the move does not end.
    HandoffTook,
    /// The node is dropped, with its state and settings: nothing is lost.
    DropNode,
    /// The panic's payload is dropped: nothing is lost.
    DropPayload,
}

impl AuthorCall {
    /// All calls.
    pub const ALL: [Self; 49] = [
        Self::Build,
        Self::Describe,
        Self::Process,
        Self::Poll,
        Self::State,
        Self::Queue,
        Self::Held,
        Self::Schedule,
        Self::Drain,
        Self::Flush,
        Self::End,
        Self::Descriptors,
        Self::Call,
        Self::Export,
        Self::Import,
        Self::SharedState,
        Self::Adopt,
        Self::TakePart,
        Self::Bound,
        Self::Departed,
        Self::Handoff,
        Self::Survivors,
        Self::Restore,
        Self::RestoreFailed,
        Self::Explain,
        Self::Report,
        Self::Plan,
        Self::Handlers,
        Self::CallSteps,
        Self::CallStep,
        Self::Declarations,
        Self::TakeOver,
        Self::Expire,
        Self::ReportSteps,
        Self::ReportStep,
        Self::Offer,
        Self::KeepForSuccessor,
        Self::Predecessor,
        Self::Succeed,
        Self::HandoffId,
        Self::HandoffKey,
        Self::HandoffBound,
        Self::HandoffClose,
        Self::HandoffRequest,
        Self::HandoffWaits,
        Self::HandoffGiven,
        Self::HandoffTook,
        Self::DropNode,
        Self::DropPayload,
    ];
}

/// Message and place of a panic that [`contain`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// The panic's message.
    pub message: String,
    /// The file, line and column, where the hook of [`observe_panics`] saw them.
    pub place: Option<String>,
}

/// Runs an author's code and contains a panic in it, and also a panic in dropping that panic's payload.
///
/// # Errors
/// [`Caught`], where it panics. State that the code borrowed may then be half-changed.
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

/// Marks this thread's panics as contained while the guard lives. Its drop restores the mark before it.
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
    // First of all: a panic from here on leaves its own place.
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

/// The place of the last panic.
fn take_place() -> Option<String> {
    PLACE.with(|place| place.borrow_mut().take())
}
