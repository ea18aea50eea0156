//! The device of one connection: what a front end asked for so far, and the virtqueues that follow from it.
//!
//! The requests are those of the vhost-user protocol. A request that cannot be met ends the connection.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_queue::{Queue, QueueT};

use super::Shared;
use super::memory::Table;
use super::ring::{Fault, Format, Ring};
use super::transmit::LONGEST_HEADER;
use crate::node::TransmitLimits;
use crate::peer::bells::Bells;
use crate::peer::interrupt::event_of;
use crate::virtio;

/// The most descriptors of a virtqueue (Virtio 1.2, section 2.7).
const MOST_DESCRIPTORS: u32 = 32_768;

/// Bits of virtio's features (Virtio 1.2, sections 5.1.3 and 6).
pub(super) mod feature {
    pub(crate) const CSUM: u64 = 1 << 0;
    pub(crate) const GUEST_CSUM: u64 = 1 << 1;
    pub(crate) const GUEST_TSO4: u64 = 1 << 7;
    pub(crate) const GUEST_TSO6: u64 = 1 << 8;
    pub(crate) const GUEST_ECN: u64 = 1 << 9;
    pub(crate) const HOST_TSO4: u64 = 1 << 11;
    pub(crate) const HOST_TSO6: u64 = 1 << 12;
    pub(crate) const HOST_ECN: u64 = 1 << 13;
    pub(crate) const MRG_RXBUF: u64 = 1 << 15;
    pub(crate) const MQ: u64 = 1 << 22;
    pub(crate) const INDIRECT_DESC: u64 = 1 << 28;
    pub(crate) const EVENT_IDX: u64 = 1 << 29;
    pub(crate) const VERSION_1: u64 = 1 << 32;
    pub(crate) const GUEST_USO4: u64 = 1 << 54;
    pub(crate) const GUEST_USO6: u64 = 1 << 55;
    pub(crate) const HOST_USO: u64 = 1 << 56;
    /// The guest takes segments of all kinds that are not cut.
    pub(crate) const GUEST_SEGMENTS: u64 =
        GUEST_CSUM | GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN | GUEST_USO4 | GUEST_USO6;
}
use feature::{
    CSUM, EVENT_IDX, GUEST_CSUM, GUEST_SEGMENTS, HOST_ECN, HOST_TSO4, HOST_TSO6, HOST_USO, INDIRECT_DESC, MQ,
    MRG_RXBUF, VERSION_1,
};

/// The features that a port with these settings offers. `large` says whether its pool takes segments that are not cut.
pub(super) fn offered(queues: usize, offload: bool, large: bool) -> u64 {
    let mut offered =
        VERSION_1 | INDIRECT_DESC | EVENT_IDX | MRG_RXBUF | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
    if queues > 1 {
        offered |= MQ;
    }
    if offload {
        offered |= CSUM | GUEST_SEGMENTS;
        if large {
            offered |= HOST_TSO4 | HOST_TSO6 | HOST_ECN | HOST_USO;
        }
    }
    offered
}

/// The packet format for features on which both ends agreed.
fn format(features: u64) -> Format {
    let has = |bits| features & bits == bits;
    // The number of chains belongs to the header since version 1 of virtio (section 5.1.6.1).
    let header = if has(VERSION_1) || has(MRG_RXBUF) { LONGEST_HEADER } else { virtio::LEN };
    Format {
        header,
        mergeable: has(MRG_RXBUF),
        event_idx: has(EVENT_IDX),
        takes_checksum: has(CSUM),
        gives_checksum: has(GUEST_CSUM),
        gives_segments: has(GUEST_SEGMENTS),
    }
}

fn refused(problem: impl Into<String>) -> Error {
    Error::ReqHandlerError(io::Error::other(problem.into()))
}
fn not_offered<T>(request: &str) -> Result<T> {
    Err(refused(format!("the peer sent {request}, which this port does not offer")))
}

/// A virtqueue as the front end described it.
#[derive(Clone, Copy, Debug, Default)]
struct Vring {
    size: u16,
    /// The front end's addresses of descriptors, used ring and available ring.
    places: Option<(u64, u64, u64)>,
    /// The next available index.
    base: u16,
    /// It was started, by its kick.
    started: bool,
    /// There is no event: the guest expects to be asked.
    polled: bool,
    enabled: bool,
    /// The worker has it.
    runs: bool,
}

/// The device of one connection.
pub(super) struct Device {
    shared: Arc<Shared>,
    fault: Arc<Fault>,
    bells: Arc<Bells>,
    features: u64,
    table: Option<Table>,
    vrings: Vec<Vring>,
    /// Packets could flow before: the connection was counted.
    is_counted: bool,
}

impl Device {
    pub(super) fn new(shared: Arc<Shared>, fault: Arc<Fault>, bells: Arc<Bells>) -> Self {
        let vrings = vec![Vring::default(); shared.places.len()];
        Self { shared, fault, bells, features: 0, table: None, vrings, is_counted: false }
    }

    fn vring(&mut self, index: u32) -> Result<(usize, &mut Vring)> {
        let (number, queues) = (index as usize, self.vrings.len() / 2);
        let vring = self.vrings.get_mut(number).ok_or_else(|| {
            refused(format!(
                "the peer asks for virtqueue {index}, and the port has {} (`queues`: {queues})",
                2 * queues
            ))
        })?;
        Ok((number, vring))
    }

    /// Takes a virtqueue from its worker.
    fn stop(&mut self, number: usize) {
        let vring = &mut self.vrings[number];
        if std::mem::take(&mut vring.runs) {
            let ring = self.shared.places[number].change(Option::take);
            if let Some(ring) = ring {
                vring.base = ring.queue.next_avail();
            }
        }
    }

    /// Gives a virtqueue to its worker, if all is there that it needs.
    fn start(&mut self, number: usize) -> Result<()> {
        let vring = self.vrings[number];
        let (Some(table), Some(places), true) = (&self.table, vring.places, vring.started && vring.size > 0)
        else {
            return Ok(());
        };
        let format = format(self.features);
        let queue = queue(table, &vring, places, format).map_err(|problem| {
            refused(format!("virtqueue {number} of the peer cannot be used: {problem}"))
        })?;
        let is_negotiated = self.features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0;
        let ring = Ring::new(
            (queue, Arc::clone(&table.memory)),
            format,
            (vring.enabled || !is_negotiated, vring.polled),
            (Arc::clone(&self.bells), number),
            Arc::clone(&self.fault),
        );
        let before = self.shared.places[number].change(|place| place.replace(Box::new(ring)));
        drop(before);
        self.vrings[number].runs = true;
        Ok(())
    }

    /// Takes a virtqueue from its worker, and gives it back in its new form.
    fn restart(&mut self, number: usize) -> Result<()> {
        self.stop(number);
        self.start(number)?;
        self.tell();
        Ok(())
    }

    fn stop_all(&mut self) {
        (0..self.vrings.len()).for_each(|number| self.stop(number));
    }
    fn restart_all(&mut self) -> Result<()> {
        self.stop_all();
        (0..self.vrings.len()).try_for_each(|number| self.start(number))?;
        self.tell();
        Ok(())
    }

    /// Says whether packets can flow: the first queue runs both ways.
    fn tell(&mut self) {
        let is_negotiated = self.features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0;
        let flows = |vring: &Vring| vring.runs && (vring.enabled || !is_negotiated);
        let up = self.vrings.iter().take(2).all(flows);
        self.shared.set_up(up, up && !self.is_counted);
        self.is_counted |= up;
    }
}

/// A virtqueue, all of whose parts are inside of the memory.
fn queue(
    table: &Table,
    vring: &Vring,
    (descriptors, used, available): (u64, u64, u64),
    format: Format,
) -> std::result::Result<Queue, String> {
    let place = |name: &str, user| {
        table
            .guest_address(user)
            .ok_or_else(|| format!("its {name} at {user:#x} is in no memory region of the peer"))
    };
    let failed = |error: virtio_queue::Error| error.to_string();
    let mut queue = Queue::new(vring.size).map_err(failed)?;
    queue.try_set_desc_table_address(place("descriptor table", descriptors)?).map_err(failed)?;
    queue.try_set_used_ring_address(place("used ring", used)?).map_err(failed)?;
    queue.try_set_avail_ring_address(place("available ring", available)?).map_err(failed)?;
    queue.set_event_idx(format.event_idx);
    queue.set_next_avail(vring.base);
    queue.set_ready(true);
    if !queue.is_valid(&*table.memory) {
        return Err("its rings are not inside of the peer's memory".into());
    }
    // What was used before is known to the guest alone.
    let next = queue
        .used_idx(&*table.memory, std::sync::atomic::Ordering::Relaxed)
        .map_err(|error| format!("its used ring cannot be read: {error}"))?;
    queue.set_next_used(next.0);
    Ok(queue)
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }
    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }
    fn reset_device(&mut self) -> Result<()> {
        self.shared.clear();
        self.vrings.fill(Vring::default());
        self.features = 0;
        self.tell();
        Ok(())
    }
    fn get_features(&mut self) -> Result<u64> {
        Ok(self.shared.offered)
    }
    fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !self.shared.offered;
        if unknown != 0 {
            return Err(refused(format!("the peer chose features that were not offered: {unknown:#x}")));
        }
        self.features = features;
        let format = format(features);
        self.shared.limits.set(TransmitLimits {
            mtu: self.shared.settings.device_mtu,
            checksum_offload: format.gives_checksum,
            segmentation_offload: format.gives_segments,
        });
        self.restart_all()
    }
    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let table = Table::map(regions, files, self.shared.settings.sealed_memory).map_err(refused)?;
        self.stop_all();
        self.table = Some(table);
        self.restart_all()?;
        Ok(None)
    }
    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        let (number, vring) = self.vring(index)?;
        if !size.is_power_of_two() || size > MOST_DESCRIPTORS {
            return Err(refused(format!(
                "virtqueue {index} must have a power of two of descriptors, at most {MOST_DESCRIPTORS}, and the peer \
                 wants {size}"
            )));
        }
        vring.size = size as u16;
        self.restart(number)
    }
    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let (number, vring) = self.vring(index)?;
        vring.places = Some((descriptors, used, available));
        self.restart(number)
    }
    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let (number, vring) = self.vring(index)?;
        if vring.runs {
            return Err(refused(format!("the peer moves virtqueue {number} while it runs")));
        }
        vring.base = base as u16;
        Ok(())
    }
    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let (number, _) = self.vring(index)?;
        self.stop(number);
        let vring = &mut self.vrings[number];
        vring.started = false;
        let base = vring.base;
        // It can only fail because nothing is watched.
        let _ = self.shared.places[number].kick.watch(None);
        self.tell();
        Ok(VhostUserVringState::new(index, base.into()))
    }
    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let (number, vring) = self.vring(index.into())?;
        vring.started = true;
        vring.polled = file.is_none();
        let event = file
            .map(|file| event_of(OwnedFd::from(file)))
            .transpose()
            .map_err(|problem| refused(format!("the kick of virtqueue {index} cannot be used: {problem}")))?;
        self.shared.places[number].kick.watch(event).map_err(Error::ReqHandlerError)?;
        self.restart(number)
    }
    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let (number, _) = self.vring(index.into())?;
        let event = file
            .map(|file| event_of(OwnedFd::from(file)))
            .transpose()
            .map_err(|problem| refused(format!("the call of virtqueue {index} cannot be used: {problem}")))?;
        self.bells.set(number, event);
        if self.vrings[number].runs {
            // What was used before may have been told to the former event.
            self.bells.ring(number);
        }
        Ok(())
    }
    fn set_vring_err(&mut self, index: u8, _file: Option<File>) -> Result<()> {
        self.vring(index.into()).map(|_| ())
    }
    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK)
    }
    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !self.get_protocol_features()?.bits();
        if unknown != 0 {
            return Err(refused(format!(
                "the peer chose protocol features that were not offered: {unknown:#x}"
            )));
        }
        Ok(())
    }
    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.shared.settings.queues as u64)
    }
    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let (number, vring) = self.vring(index)?;
        vring.enabled = enable;
        self.restart(number)
    }
    fn get_config(&mut self, _offset: u32, _size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        not_offered("GET_CONFIG")
    }
    fn set_config(&mut self, _offset: u32, _bytes: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        not_offered("SET_CONFIG")
    }
    fn set_gpu_socket(&mut self, _backend: GpuBackend) -> Result<()> {
        not_offered("GPU_SET_SOCKET")
    }
    fn get_shared_object(&mut self, _object: VhostUserSharedMsg) -> Result<File> {
        not_offered("GET_SHARED_OBJECT")
    }
    fn get_inflight_fd(&mut self, _inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        not_offered("GET_INFLIGHT_FD")
    }
    fn set_inflight_fd(&mut self, _inflight: &VhostUserInflight, _file: File) -> Result<()> {
        not_offered("SET_INFLIGHT_FD")
    }
    fn get_max_mem_slots(&mut self) -> Result<u64> {
        not_offered("GET_MAX_MEM_SLOTS")
    }
    fn add_mem_region(
        &mut self,
        _region: &VhostUserSingleMemoryRegion,
        _file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        not_offered("ADD_MEM_REG")
    }
    fn remove_mem_region(&mut self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        not_offered("REM_MEM_REG")
    }
    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        not_offered("SET_DEVICE_STATE_FD")
    }
    fn check_device_state(&mut self) -> Result<()> {
        not_offered("CHECK_DEVICE_STATE")
    }
    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        not_offered("GET_SHMEM_CONFIG")
    }
    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        not_offered("SET_LOG_BASE")
    }
}
