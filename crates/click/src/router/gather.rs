//! Batches that an element gathers from the packets that it lets pass, or divides.

use std::cell::{Cell, RefCell};

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::At;

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

impl At<'_> {
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
        for (slot, packet) in batch.drain().enumerate() {
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
        for packet in batch.drain() {
            if let Some(packet) = action(packet)
                && let Err(packet) = passing.push(packet)
            {
                // A batch holds as many as another: this one came from within.
                self.push_batch(0, &mut passing);
                self.push(0, packet);
            }
        }
        self.push_batch(0, &mut passing);
        self.router.keep_spare(passing);
    }

    fn gather_in_order(self, batch: &mut Batch, action: &mut dyn FnMut(Packet) -> Option<Packet>) {
        let gathered = &self.router.gathered;
        // Whoever gathers has passed all on before others get packets.
        let before = gathered.by.replace(self.id + 1);
        for packet in batch.drain() {
            if let Some(packet) = action(packet) {
                let pushed = gathered.packets.borrow_mut().push(packet);
                if let Err(packet) = pushed {
                    self.push(0, packet);
                }
            }
        }
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
