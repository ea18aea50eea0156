//! Batches that an element gathers from the packets that it lets pass, or divides.

use std::cell::{Cell, RefCell};

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::{At, Router};

/// Packets that an element whose outputs meet has let pass, and that have not left yet.
#[derive(Default)]
pub(super) struct Gathered {
    /// The element's number and 1, or 0.
    by: Cell<usize>,
    packets: RefCell<Batch>,
}

#[cold]
fn note(refused: &mut Vec<(usize, u8)>, slot: usize, verdict: u8) {
    refused.push((slot, verdict));
}

impl Router {
    /// Takes the packets of a batch, which [`Batch::pop`] then yields from the first on.
    ///
    /// A drain would take 2 KiB of the stack while packets are passed on, of each call of elements that call each other.
    #[inline(never)]
    pub(crate) fn take_turned(&self, batch: &mut Batch) -> Batch {
        let mut turned = self.spare_batch();
        while let Some(packet) = batch.pop() {
            // It is empty at first, and holds as many.
            let _ = turned.push(packet);
        }
        turned
    }
}

impl At<'_> {
    /// Gives each packet of a batch to `push`, which passes it on alone.
    ///
    /// Apart from who calls it, for whom a whole batch takes less of the stack.
    #[inline(never)]
    pub(crate) fn each_alone(self, batch: &mut Batch, push: impl FnMut(Packet)) {
        batch.drain().for_each(push);
    }

    /// Acts on the packets of a batch, and passes those on for which `act` yields 0.
    ///
    /// The others come to `refuse`, with what `act` said of them. Where all pass, none is moved. What `act` does must not
    /// depend on what `refuse` does.
    #[inline]
    pub fn sift(self, batch: &mut Batch, act: impl FnMut(&mut Packet) -> u8, refuse: impl FnMut(Packet, u8)) {
        self.sift_in_order(batch, act, refuse, |_| self.outputs_meet());
    }

    /// The same, where `meets` says of what `act` said whether such packets can meet those that pass.
    ///
    /// These come to `refuse` behind those that pass and came earlier; others do before all that pass.
    #[inline]
    pub(crate) fn sift_in_order(
        self,
        batch: &mut Batch,
        mut act: impl FnMut(&mut Packet) -> u8,
        mut refuse: impl FnMut(Packet, u8),
        meets: impl Fn(u8) -> bool,
    ) {
        // Slots and verdicts of packets that do not pass, which few do.
        let mut refused: Vec<(usize, u8)> = Vec::new();
        batch.each_packet(|slot, packet| {
            let verdict = act(packet);
            if verdict != 0 {
                note(&mut refused, slot, verdict);
            }
        });
        if refused.is_empty() {
            self.push_batch(0, batch);
        } else {
            self.divide(batch, &refused, &mut refuse, &meets);
        }
    }

    #[cold]
    #[inline(never)]
    fn divide(
        self,
        batch: &mut Batch,
        refused: &[(usize, u8)],
        refuse: &mut dyn FnMut(Packet, u8),
        meets: &dyn Fn(u8) -> bool,
    ) {
        let mut passing = self.router.spare_batch();
        let mut refused = refused.iter().copied().peekable();
        let mut waiting = self.router.take_turned(batch);
        for slot in 0..waiting.len() {
            let Some(packet) = waiting.pop() else { break };
            if let Some((_, verdict)) = refused.next_if(|(refused, _)| *refused == slot) {
                if meets(verdict) {
                    self.push_batch(0, &mut passing);
                }
                refuse(packet, verdict);
            } else if let Err(packet) = passing.push(packet) {
                // It holds as many as the batch did: this one would be one more.
                self.drop_packet(packet, DropReason::QueueFull);
            }
        }
        self.push_batch(0, &mut passing);
        self.router.keep_spare(waiting);
        self.router.keep_spare(passing);
    }

    /// Gives each packet of a batch to `action`, and passes those that it yields on by output 0, together.
    ///
    /// Packets that `action` passes on itself leave earlier. Where the element's outputs meet, so do those that it yielded
    /// before.
    pub fn gather(self, batch: &mut Batch, mut action: impl FnMut(Packet) -> Option<Packet>) {
        if self.outputs_meet() {
            self.gather_in_order(batch, &mut action);
            return;
        }
        let mut passing = self.router.spare_batch();
        self.each_alone(batch, |packet| {
            if let Some(packet) = action(packet)
                && let Err(packet) = passing.push(packet)
            {
                // A batch holds as many as another: this one came from within.
                self.push_batch(0, &mut passing);
                self.push(0, packet);
            }
        });
        self.push_batch(0, &mut passing);
        self.router.keep_spare(passing);
    }

    fn gather_in_order(self, batch: &mut Batch, action: &mut dyn FnMut(Packet) -> Option<Packet>) {
        let gathered = &self.router.gathered;
        // Whoever gathers has passed all on before others get packets.
        let before = gathered.by.replace(self.id + 1);
        let mut waiting = self.router.take_turned(batch);
        while let Some(packet) = waiting.pop() {
            if let Some(packet) = action(packet) {
                let pushed = gathered.packets.borrow_mut().push(packet);
                if let Err(packet) = pushed {
                    self.push(0, packet);
                }
            }
        }
        self.router.keep_spare(waiting);
        self.pass_gathered();
        gathered.by.set(before);
    }

    /// Whether the element gathers packets, which are to leave before others that it passes on.
    #[inline]
    pub(super) fn gathers(self) -> bool {
        self.router.gathered.by.get() == self.id + 1
    }

    /// Passes on what the element has gathered.
    #[cold]
    pub(super) fn pass_gathered(self) {
        let mut passing = self.router.spare_batch();
        std::mem::swap(&mut passing, &mut *self.router.gathered.packets.borrow_mut());
        self.push_batch(0, &mut passing);
        self.router.keep_spare(passing);
    }
}
