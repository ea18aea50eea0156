//! A packet's metadata: a 64-byte line for each frame, and a second line that few packets use.
//!
//! The lines are in a private table apart from the frames.

use std::ptr::NonNull;

use crate::depot::Shared;

/// How a packet is to be cut into segments that fit the link (virtio-net's GSO types).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum GsoKind {
    /// It is not.
    #[default]
    None,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams of equal size (USO).
    Udp,
}

/// Work that the sender left to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The checksum at `checksum_start + checksum_offset` holds only the pseudo-header's sum.
    pub needs_checksum: bool,
    /// The checksum was verified on the way here.
    pub checksum_valid: bool,
    /// Congestion experienced is to be handled as RFC 3168 says when cutting.
    pub gso_ecn: bool,
    /// How to cut.
    pub gso: GsoKind,
    /// Payload bytes of a segment.
    pub gso_size: u16,
    /// Where summing starts, in bytes from the frame's first.
    pub checksum_start: u16,
    /// Where the checksum lies, in bytes from `checksum_start`.
    pub checksum_offset: u16,
}

impl Offload {
    /// Whether the packet needs nothing of the device that sends it.
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        !self.needs_checksum && matches!(self.gso, GsoKind::None)
    }
}

/// A VLAN tag that the device took off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// 0x8100 or 0x88a8.
    pub protocol: u16,
    /// Priority, drop eligibility and VLAN identifier, as on the wire.
    pub control: u16,
}

pub(crate) const TRACED: u8 = 1;
pub(crate) const VLAN: u8 = 2;
pub(crate) const VLAN_AD: u8 = 4;
/// The work left to a device has sizes or places, in the second line.
pub(crate) const DETAILED: u8 = 8;
/// Bytes are missing behind the last one, in the second line.
pub(crate) const CUT: u8 = 16;
/// A length of 0 in its IP header stands for the frame's.
pub(crate) const UNSTATED: u8 = 32;
/// Bytes before the first are kept, from a place in the second line on.
pub(crate) const KEPT: u8 = 64;
/// It comes from a capture.
pub(crate) const CAPTURED: u8 = 128;

/// Bytes of annotations in the first metadata line, so that they need no second line from memory.
pub(crate) const NEAR: usize = 8;
/// Bytes of annotations that lie in the line behind that.
pub(crate) const FAR: usize = 48;

/// Metadata of `LINES` frames of a pool.
///
/// First lines lie side by side, so that second lines, which few packets touch, take no cache space between them. A
/// frame's second line is a fixed distance from its first. Its place is then known without reading the first line,
/// which saves a wait for memory.
#[repr(C)]
pub(crate) struct Lines {
    first: [Meta; LINES],
    second: [Second; LINES],
}

/// As many lines as have distinct places in a second-level cache of 2,048 sets.
///
/// With huge pages all of that cache then serves the first lines of a pool.
const LINES: usize = 2048;

/// A packet's second line, which few packets use.
#[repr(C, align(64))]
pub(crate) struct Second {
    /// Zero but for packets that are `annotated`.
    pub(crate) far: [u8; FAR],
    /// Bytes that were on the wire behind the last one, or where kept bytes begin in the frame.
    ///
    /// The number belongs to an earlier packet unless the packet has the `CUT` or the `KEPT` flag, of which it has one.
    pub(crate) missing: u32,
    /// The number of the packet's trace; it belongs to an earlier packet unless the packet has the `TRACED` flag.
    pub(crate) trace: u32,
    /// The details, which belong to an earlier packet unless the packet has a `DETAILED` or `VLAN` flag.
    pub(crate) details: Details,
}

/// Metadata that counts only where a packet's flags say so.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Details {
    pub(crate) gso_size: u16,
    pub(crate) checksum_start: u16,
    pub(crate) checksum_offset: u16,
    pub(crate) vlan: u16,
}

impl Lines {
    /// Bytes of the table for that many frames.
    pub(crate) const fn bytes(frames: usize) -> usize {
        frames.div_ceil(LINES) * size_of::<Self>()
    }

    /// The first line of a frame in a table that begins at `base`.
    ///
    /// # Safety
    /// The table has [bytes](Self::bytes) for more than `index` frames, and begins at a page.
    pub(crate) unsafe fn line(base: NonNull<Self>, index: usize) -> NonNull<Meta> {
        // SAFETY: the table has a whole block for every frame that the caller says it has.
        let block = unsafe { base.add(index / LINES) };
        // SAFETY: the first lines are at the block's beginning, and a remainder is below their number.
        unsafe { block.cast::<Meta>().add(index % LINES) }
    }

    /// The second line that belongs to a first.
    ///
    /// # Safety
    /// The line is a pool's, and the pointer was made from the pool's memory, not from a reference to the line.
    #[inline(always)]
    pub(crate) unsafe fn second(line: NonNull<Meta>) -> NonNull<Second> {
        // SAFETY: first and second lines are of one size, so that those of one frame are as far from each other as the arrays
        // are, which lie whole in the pool's memory.
        unsafe { line.byte_add(std::mem::offset_of!(Self, second)).cast() }
    }
}

/// The line. Everything up to `capacity` is written once, when the pool is made.
#[repr(C, align(64))]
pub(crate) struct Meta {
    pub(crate) frame: NonNull<u8>,
    pub(crate) pool: NonNull<Shared>,
    pub(crate) index: u32,
    pub(crate) capacity: u32,
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) fresh: Fresh,
}

/// Fields that every new packet starts with zeroed, by one 32-byte store.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Fresh {
    pub(crate) received_at: u64,
    pub(crate) near: [u8; NEAR],
    pub(crate) flow_hash: u32,
    pub(crate) ingress: u16,
    pub(crate) queue: u16,
    pub(crate) owner: u16,
    pub(crate) verdict: u16,
    pub(crate) flags: u8,
    work: u8,
    /// The slot of the batch that it left, if it has a verdict.
    pub(crate) slot: u8,
    /// Whether the far annotations were borrowed for writing.
    ///
    /// It is not one of the flags: code that annotates would have to load them before it could write them back.
    pub(crate) annotated: bool,
}

const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_VALID: u8 = 2;
const GSO_ECN: u8 = 4;
const GSO_SHIFT: u8 = 4;

impl Fresh {
    pub(crate) const NEW: Self = Self {
        received_at: 0,
        near: [0; NEAR],
        flow_hash: 0,
        ingress: 0,
        queue: 0,
        owner: 0,
        verdict: 0,
        flags: 0,
        work: 0,
        slot: 0,
        annotated: false,
    };

    /// The work left to the device; `details` are only looked at where there are any.
    pub(crate) fn offload<'d>(&self, details: impl FnOnce() -> &'d Details) -> Offload {
        let details = if self.flags & DETAILED != 0 { *details() } else { Details::default() };
        Offload {
            needs_checksum: self.work & NEEDS_CHECKSUM != 0,
            checksum_valid: self.work & CHECKSUM_VALID != 0,
            gso_ecn: self.work & GSO_ECN != 0,
            gso: match self.work >> GSO_SHIFT {
                1 => GsoKind::TcpV4,
                2 => GsoKind::TcpV6,
                3 => GsoKind::Udp,
                _ => GsoKind::None,
            },
            gso_size: details.gso_size,
            checksum_start: details.checksum_start,
            checksum_offset: details.checksum_offset,
        }
    }
    /// Sets it, and returns whether there are details, which the caller then writes.
    #[must_use]
    pub(crate) fn set_offload(&mut self, offload: Offload) -> bool {
        self.work = (offload.gso as u8) << GSO_SHIFT
            | if offload.needs_checksum { NEEDS_CHECKSUM } else { 0 }
            | if offload.checksum_valid { CHECKSUM_VALID } else { 0 }
            | if offload.gso_ecn { GSO_ECN } else { 0 };
        let Offload { gso_size, checksum_start, checksum_offset, .. } = offload;
        let detailed = (gso_size, checksum_start, checksum_offset) != (0, 0, 0);
        self.flags = self.flags & !DETAILED | if detailed { DETAILED } else { 0 };
        detailed
    }
    /// Whether a length of 0 stands for the frame's.
    #[inline]
    pub(crate) fn is_length_unstated(&self) -> bool {
        self.flags & UNSTATED != 0 || self.work >> GSO_SHIFT != 0
    }
    #[inline(always)]
    pub(crate) fn needs_device(&self) -> bool {
        self.work & !(CHECKSUM_VALID | GSO_ECN) != 0
    }
}

const _: () = assert!(size_of::<Fresh>() == 32, "new metadata is one wide store");
const _: () = assert!(size_of::<Meta>() == 64, "a packet's metadata is one cache line");
const _: () =
    assert!(size_of::<Second>() == size_of::<Meta>(), "what few packets have is one cache line more");
