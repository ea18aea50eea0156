//! The memory that a front end shares: where it is in this process, and which addresses name it.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use crate::sys::shared;

/// A range of memory in both address spaces.
#[derive(Clone, Copy, Debug)]
struct Range {
    guest: u64,
    /// The front end's own address.
    user: u64,
    len: u64,
}

/// The memory of a front end.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) memory: Arc<GuestMemoryMmap>,
    ranges: Vec<Range>,
}

impl Table {
    /// Maps the regions. Where they must be `sealed`, only files are taken whose memory cannot go away.
    ///
    /// # Errors
    /// The region that cannot be used, and the reason.
    pub(super) fn map(
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        sealed: bool,
    ) -> Result<Self, String> {
        let (mut mapped, mut ranges) = (Vec::new(), Vec::new());
        for (number, (region, file)) in regions.iter().zip(files).enumerate() {
            let (guest, user, len) = (region.guest_phys_addr, region.user_addr, region.memory_size);
            let made = map(file, region.mmap_offset, len, sealed)
                .and_then(|made| {
                    GuestRegionMmap::new(made, GuestAddress(guest))
                        .ok_or_else(|| "it goes beyond the last address".to_owned())
                })
                .map_err(|problem| format!("memory region {number} of the peer cannot be used: {problem}"))?;
            mapped.push(made);
            ranges.push(Range { guest, user, len });
        }
        mapped.sort_by_key(|region| vm_memory::GuestMemoryRegion::start_addr(region).0);
        let memory = GuestMemoryMmap::from_regions(mapped)
            .map_err(|error| format!("the memory regions of the peer cannot be used: {error}"))?;
        Ok(Self { memory: Arc::new(memory), ranges })
    }

    /// The guest's address of what the front end has at an address of its own.
    pub(super) fn guest_address(&self, user: u64) -> Option<GuestAddress> {
        self.ranges.iter().find_map(|range| {
            let offset = user.checked_sub(range.user).filter(|offset| *offset < range.len)?;
            // A region's last guest address fits: the region was mapped.
            Some(GuestAddress(range.guest + offset))
        })
    }
}

fn map(file: File, offset: u64, len: u64, sealed: bool) -> Result<MmapRegion, String> {
    if sealed {
        shared::cannot_fail(file.as_fd()).map_err(|problem| {
            format!("{problem}; or trust the peer to leave its memory as it is (`sealed_memory = false`)")
        })?;
    } else {
        // Only of a memory file: others may make us wait.
        shared::seals(file.as_fd())?;
    }
    let there = shared::size(file.as_fd())?;
    if offset.checked_add(len).is_none_or(|end| end > there) {
        return Err(format!("it has {len} bytes from {offset} on, and its file has {there}"));
    }
    let len = usize::try_from(len).map_err(|_| "it is larger than the address space".to_owned())?;
    // With pages reserved where they are huge: `from_file` would map them without.
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    MmapRegion::build(Some(FileOffset::new(file, offset)), len, protection, libc::MAP_SHARED)
        .map_err(|error| format!("mapping it for reading and writing: {error}"))
}
