//! Sorters, which give each packet of a batch a number: its bucket or its group.

use netbricks_buffer::{Batch, Bytes, Visit};
use netbricks_packet::stack::{Root, shape};

use super::key::{Buckets, PacketPart};
use crate::compose::{Finishing, depart};
use crate::context::Context;
use crate::node::{CallError, NodeState};
use crate::operator::{Input, Operator, Start};
use crate::packet_cursor::PacketCursor;
use crate::reason::{Edge, Verdict};
use crate::state::Declarations;
use crate::view::View;
use crate::worker::{BuildError, Worker};

/// Gives each packet of a batch a number.
pub(crate) trait Sorter {
    /// Writes a number for each slot. Packets that the function drops or sends elsewhere have left the batch
    /// by then.
    fn sort(&mut self, batch: &mut Batch, cx: &mut Context, numbers: &mut Vec<u16>);
    /// Edges that packets may take besides those of every function.
    fn edges(&self, _visit: &mut dyn FnMut(Edge)) {}
    /// The declared state.
    fn declarations(&self) -> Option<&Declarations> {
        None
    }
    /// The declared state, for changes.
    fn declarations_mut(&mut self) -> Option<&mut Declarations> {
        None
    }
}

impl dyn Sorter {
    /// The answer of `ask` about its declared state, if it can declare any.
    pub(crate) fn declared<T: Default>(&self, ask: impl FnOnce(&Declarations) -> T) -> T {
        self.declarations().map(ask).unwrap_or_default()
    }
    /// Calls a handler; `own` are the handlers of the sorter's node.
    pub(crate) fn call(&mut self, name: &str, argument: &str, own: &str) -> Result<String, CallError> {
        match self.declarations_mut() {
            Some(declared) => declared.call(name, argument),
            None => Err(CallError::Unknown { name: name.into(), known: own.into() }),
        }
    }
}

/// The part of `NodeState` that nodes with a `sorter` share: the sorter's state is the node's.
///
/// Each node has its own handlers, so it lists and calls them itself. Clippy refuses an
/// implementation that lacks a method, since the default would hide that part of the sorter's state.
macro_rules! sorters_state {
    () => {
        fn prepare(&mut self, _: &str, _: &str) -> Result<Option<String>, $crate::CallError> {
            Ok(None)
        }
        fn export(&self) -> Vec<$crate::node::StateImage> {
            self.sorter.declared(|declared| declared.export())
        }
        fn import(&mut self, name: &str, bytes: &[u8], now: u64) -> Result<(), $crate::node::ImportError> {
            match self.sorter.declarations_mut() {
                Some(declared) => declared.import(name, bytes, now),
                None => Err($crate::node::ImportError::Unknown { name: name.into() }),
            }
        }
        fn declarations(&mut self) -> Option<&mut $crate::state::Declarations> {
            self.sorter.declarations_mut()
        }
        fn take_over(
            &mut self,
            old: &mut dyn $crate::node::NodeState,
            now: u64,
        ) -> Vec<$crate::state::StateSuccession> {
            self.sorter.declarations_mut().map_or_else(Vec::new, |declared| declared.take_over(old, now))
        }
        fn shared_state(&self) -> Vec<(String, $crate::consistency::SharedStateRef)> {
            self.sorter.declared(|declared| declared.shared_state())
        }
        fn adopt(
            &mut self,
            name: &str,
            shared: &$crate::consistency::SharedStateRef,
            now: u64,
        ) -> Option<Result<(), $crate::node::ImportError>> {
            self.sorter.declarations_mut()?.adopt(name, shared, now)
        }
        fn take_part(
            &mut self,
            part: &$crate::shuffle::Part,
            step: &mut $crate::shuffle::PartStep,
        ) -> Option<$crate::node::StateImage> {
            match self.sorter.declarations_mut() {
                Some(declared) => declared.take_part(part, step),
                None => {
                    step.end();
                    None
                }
            }
        }
        fn bound(&self, by: $crate::shuffle::ShuffleKey) -> Vec<String> {
            self.sorter.declared(|declared| declared.bound(by))
        }
        fn follows(&self, by: $crate::shuffle::ShuffleKey) -> Vec<String> {
            self.sorter.declared(|declared| declared.follows(by))
        }
        fn packet_part(&self) -> Option<$crate::shuffle::PacketPart> {
            None
        }
        fn call_steps(
            &mut self,
            name: &str,
            argument: &str,
        ) -> Option<Result<$crate::Steps<String>, $crate::node::CallError>> {
            self.sorter.declarations_mut()?.call_steps(name, argument)
        }
        fn report_steps(&mut self, now: u64) -> Vec<$crate::Steps<$crate::node::Section>> {
            self.sorter.declarations_mut().map(|declared| declared.report_steps(now)).unwrap_or_default()
        }
        fn schedule(&self) -> Option<$crate::events::Schedule> {
            self.sorter.declared(|declared| declared.schedule())
        }
        fn end(&mut self) {
            if let Some(declared) = self.sorter.declarations_mut() {
                declared.end();
            }
        }
        fn expire(&mut self, now: u64) {
            if let Some(declared) = self.sorter.declarations_mut() {
                declared.expire(now);
            }
        }
        fn explain(&self, frame: &[u8], why: &mut dyn std::fmt::Write) -> std::fmt::Result {
            self.sorter.declared(|declared| Some(declared.explain(frame, why))).unwrap_or(Ok(()))
        }
        fn report(&self) -> Vec<$crate::node::Section> {
            self.sorter.declared(|declared| declared.report())
        }
    };
}
pub(crate) use sorters_state;

/// A sorter by the packet's bytes alone.
pub(crate) struct Predefined(pub(crate) Buckets);

impl Sorter for Predefined {
    fn sort(&mut self, batch: &mut Batch, _: &mut Context, numbers: &mut Vec<u16>) {
        batch.warm();
        numbers.clear();
        numbers.extend(batch.iter().map(|packet| self.0.of(packet)));
    }
}

/// A sorter by the part of a function's state that a packet needs.
pub(super) struct Parted {
    pub(super) buckets: Buckets,
    pub(super) part: PacketPart,
}

impl Sorter for Parted {
    fn sort(&mut self, batch: &mut Batch, _: &mut Context, numbers: &mut Vec<u16>) {
        batch.warm();
        numbers.clear();
        numbers.extend(batch.iter().map(|packet| self.buckets.of_key(self.part.of(packet))));
    }
}

/// A sorter by a user function, behind a chain of operators.
pub(crate) struct Classified<F, P> {
    chain: F,
    place: P,
    declarations: Declarations,
}

impl<F, P> Classified<F, P>
where
    F: Operator<In = Root>,
    P: FnMut(&View<'_, F::Out>) -> u16 + 'static,
{
    pub(crate) fn new(
        worker: &Worker,
        function: impl FnOnce(Input) -> F,
        place: P,
    ) -> Result<Self, BuildError> {
        let (chain, declarations) = worker.declaring(|| function(Start::new()))?;
        if declarations.events.schedule().is_some() {
            return Err(BuildError::new(
                "what sorts packets cannot have events: put them into a function of their own",
            ));
        }
        Ok(Self { chain, place, declarations })
    }
}

impl<F, P> Sorter for Classified<F, P>
where
    F: Operator<In = Root>,
    P: FnMut(&View<'_, F::Out>) -> u16 + 'static,
{
    fn sort(&mut self, batch: &mut Batch, cx: &mut Context, numbers: &mut Vec<u16>) {
        batch.warm();
        numbers.clear();
        let Self { chain, place, declarations } = self;
        let _settling = declarations.settling();
        let finishing = Finishing(chain);
        let chain = &mut *finishing.0;
        cx.mixed = false;
        cx.cut = batch.is_cut();
        chain.prepare(batch, cx, &|_| Some(Root));
        let kept = batch.compact_with(Sorting { chain, place, numbers, cx: &mut *cx });
        if kept != batch.len() {
            depart(batch, cx, kept);
        }
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.chain.edges(visit);
    }
    fn declarations(&self) -> Option<&Declarations> {
        Some(&self.declarations)
    }
    fn declarations_mut(&mut self) -> Option<&mut Declarations> {
        Some(&mut self.declarations)
    }
}

struct Sorting<'a, F, P> {
    chain: &'a mut F,
    place: &'a mut P,
    numbers: &'a mut Vec<u16>,
    cx: &'a mut Context,
}

impl<F, P> Visit for Sorting<'_, F, P>
where
    F: Operator<In = Root>,
    P: FnMut(&View<'_, F::Out>) -> u16 + 'static,
{
    #[inline(always)]
    fn visit(&mut self, slot: usize, bytes: &mut Bytes<'_>) -> u16 {
        let number = match self
            .chain
            .apply::<{ shape::ANY }>(PacketCursor::new(slot, &mut *bytes, &mut *self.cx, &mut false), Root)
        {
            Ok(stack) => (self.place)(&View::new(bytes, &stack, &mut *self.cx, slot)),
            Err(Verdict::PASS) => 0,
            Err(verdict) => return verdict.bits(),
        };
        self.numbers.push(number);
        0
    }
}
