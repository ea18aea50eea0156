//! Packets that left for devices, until who runs the configuration takes them.

use netbricks_core::buffer::{Batch, Packet};

/// Packets for devices in the order in which they left.
///
/// Most bursts are for one device: they stay a batch. Only what comes behind them for another device stands alone.
#[derive(Default)]
pub(super) struct Outbox {
    /// The first packets are for this device.
    device: usize,
    first: Option<Batch>,
    /// Those behind them.
    rest: Vec<(usize, Packet)>,
}

impl Outbox {
    pub(super) fn len(&self) -> usize {
        self.first.as_ref().map_or(0, Batch::len) + self.rest.len()
    }

    /// The batch of the first packets, if one more for the device may go there.
    #[inline]
    fn batch(&mut self, device: usize) -> Option<&mut Batch> {
        if !self.rest.is_empty() {
            return None;
        }
        let first = self.first.get_or_insert_default();
        if first.is_empty() {
            self.device = device;
        }
        (self.device == device).then_some(first)
    }

    #[inline]
    pub(super) fn push(&mut self, device: usize, packet: Packet) {
        let behind = match self.batch(device) {
            Some(first) => first.push(packet).err(),
            None => Some(packet),
        };
        if let Some(packet) = behind {
            self.rest.push((device, packet));
        }
    }

    /// Takes all packets of a batch.
    #[inline]
    pub(super) fn append(&mut self, device: usize, batch: &mut Batch) {
        if let Some(first) = self.batch(device) {
            first.append(batch);
        }
        if !batch.is_empty() {
            self.rest.extend(batch.drain().map(|packet| (device, packet)));
        }
    }

    /// Moves the first packets, which are for one device, to an empty batch, if the device fits.
    #[inline]
    pub(super) fn take_first(&mut self, batch: &mut Batch, fits: impl FnOnce(usize) -> bool) {
        if let Some(first) = &mut self.first
            && !first.is_empty()
            && fits(self.device)
        {
            batch.append(first);
        }
    }

    /// Gives all packets away, with their devices.
    pub(super) fn drain(&mut self, mut each: impl FnMut(usize, Packet)) {
        if let Some(first) = &mut self.first {
            // An iterator over a batch has room for as many packets as a batch has.
            if !first.is_empty() {
                first.drain().for_each(|packet| each(self.device, packet));
            }
        }
        self.rest.drain(..).for_each(|(device, packet)| each(device, packet));
    }
}
