//! Packets that left for devices, until who runs the configuration takes them.

use netbricks_core::buffer::{Batch, Packet};

/// Packets for devices, in batches: those of one device in the order in which they left.
#[derive(Default)]
pub(super) struct Outbox {
    /// Batches and their devices; from `used` on they are spare.
    batches: Vec<(usize, Batch)>,
    used: usize,
    /// The last batch of each device: its place and 1, or 0.
    last: Vec<usize>,
    packets: usize,
}

impl Outbox {
    pub(super) fn len(&self) -> usize {
        self.packets
    }

    /// The last batch of a device. It is an empty one where there is none, or the last is `full`.
    #[inline]
    fn batch(&mut self, device: usize, full: bool) -> &mut Batch {
        if self.last.len() <= device {
            self.last.resize(device + 1, 0);
        }
        let place = match self.last[device] {
            last if last > 0 && !full => last - 1,
            _ => {
                let place = self.used;
                match self.batches.get_mut(place) {
                    Some((of, _)) => *of = device,
                    None => self.batches.push((device, Batch::new())),
                }
                self.used += 1;
                self.last[device] = self.used;
                place
            }
        };
        &mut self.batches[place].1
    }

    #[inline]
    pub(super) fn push(&mut self, device: usize, packet: Packet) {
        self.packets += 1;
        if let Err(packet) = self.batch(device, false).push(packet) {
            // An empty batch has room.
            let _ = self.batch(device, true).push(packet);
        }
    }

    /// Takes all packets of a batch.
    #[inline]
    pub(super) fn append(&mut self, device: usize, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        self.packets += batch.len();
        self.batch(device, false).append(batch);
        if !batch.is_empty() {
            self.batch(device, true).append(batch);
        }
    }

    /// Gives all batches away, with their devices. What `each` leaves in a batch is freed.
    pub(super) fn drain(&mut self, mut each: impl FnMut(usize, &mut Batch)) {
        let used = std::mem::take(&mut self.used);
        if used == 0 {
            return;
        }
        self.packets = 0;
        self.last.fill(0);
        for (device, batch) in self.batches.iter_mut().take(used) {
            each(*device, batch);
            batch.clear();
        }
    }
}
