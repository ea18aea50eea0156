//! Batches whose packets go to different outputs.
//!
//! Packets of one output go together. Where outputs meet again, a batch goes on before the next packet of another of them.

use std::cell::RefCell;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::program::matcher::DROP;
use crate::router::At;

/// Passes the packets of batches on to outputs, those of one output together, and in order wherever they meet.
#[derive(Default)]
pub(crate) struct Sorter {
    scratch: RefCell<Scratch>,
}

/// Memory that is used again.
#[derive(Default)]
struct Scratch {
    outputs: Vec<u32>,
    batches: Vec<(u32, Batch)>,
    /// The place of each output's batch; the last is that of packets that end.
    places: Vec<u16>,
    /// The output of the last packet of each group of outputs that meet.
    open: Vec<u32>,
}

const NOWHERE: u16 = u16::MAX;

impl Sorter {
    /// Passes a batch on; `choose` gives the output of each packet, or [`DROP`].
    pub(crate) fn pass(
        &self,
        at: At<'_>,
        batch: &mut Batch,
        reason: DropReason,
        choose: impl FnOnce(&mut Batch, &mut Vec<u32>),
    ) {
        let Some(scratch) =
            &mut self.scratch.try_borrow_mut().ok().map(|mut scratch| std::mem::take(&mut *scratch))
        else {
            return;
        };
        choose(batch, &mut scratch.outputs);
        let first = scratch.outputs.first().copied().unwrap_or(DROP);
        if scratch.outputs.iter().all(|output| *output == first) {
            send(at, first, batch, reason);
        } else {
            scratch.divide(at, batch, reason);
        }
        self.scratch.replace(std::mem::take(scratch));
    }
}

impl Scratch {
    fn divide(&mut self, at: At<'_>, batch: &mut Batch, reason: DropReason) {
        self.places.clear();
        self.places.resize(at.outputs() + 1, NOWHERE);
        match at.groups() {
            Some(groups) => self.sort_in_order(at, batch, groups, reason),
            None => self.sort(batch),
        }
        // Only the batches of this call hold packets: others are spare.
        for (output, part) in &mut self.batches {
            if !part.is_empty() {
                send(at, *output, part, reason);
            }
        }
    }

    /// Puts packets into the batches of their outputs.
    ///
    /// Apart from who passes these on: a drain takes 2 KiB of the stack, and elements call each other.
    #[inline(never)]
    fn sort(&mut self, batch: &mut Batch) {
        let Self { outputs, batches, places, .. } = self;
        let mut used = 0;
        for (packet, output) in batch.drain().zip(outputs) {
            put(places, batches, &mut used, *output, packet);
        }
    }

    /// The same, where the batch of an output leaves before a packet of another one that meets it.
    fn sort_in_order(&mut self, at: At<'_>, batch: &mut Batch, groups: &[u32], reason: DropReason) {
        let Self { outputs, batches, places, open } = self;
        open.clear();
        open.resize(at.outputs(), DROP);
        let mut used = 0;
        let mut waiting = at.router.take_turned(batch);
        for output in &*outputs {
            let Some(packet) = waiting.pop() else { break };
            if let Some(group) = groups.get(*output as usize) {
                // What went to another output that meets this one goes all its way before this packet.
                let before = std::mem::replace(&mut open[*group as usize], *output);
                if before != *output && before != DROP {
                    let place = usize::from(places[before as usize]);
                    send(at, before, &mut batches[place].1, reason);
                }
            }
            put(places, batches, &mut used, *output, packet);
        }
        at.router.keep_spare(waiting);
    }
}

/// Puts a packet into the batch of its output, of which so many are used.
#[inline]
fn put(places: &mut [u16], batches: &mut Vec<(u32, Batch)>, used: &mut u16, output: u32, packet: Packet) {
    let last = places.len() - 1;
    let place = &mut places[(output as usize).min(last)];
    if *place == NOWHERE {
        *place = *used;
        *used += 1;
        match batches.get_mut(usize::from(*place)) {
            Some((of, _)) => *of = output,
            None => batches.push((output, Batch::new())),
        }
    }
    // It holds no more than the batch did, so that there is room.
    let _ = batches[usize::from(*place)].1.push(packet);
}

/// Passes a batch on by an output, or ends its packets.
fn send(at: At<'_>, output: u32, batch: &mut Batch, reason: DropReason) {
    if output as usize >= at.outputs() {
        at.drop_batch(batch, reason);
    } else {
        at.push_batch(output as usize, batch);
    }
}
