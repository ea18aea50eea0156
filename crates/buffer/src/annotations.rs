//! Annotations: values that functions of a graph attach to a packet, beyond its metadata.

use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::meta::{CAPTURED, CUT, Details, FAR, Lines, Meta, NEAR, Offload, Second};
use crate::packet::{Bytes, Packet};

/// A packet's bytes for slots that a graph allocates, lent to operators for one call; zero in a new packet.
pub struct Annotations<'b> {
    /// The place of the packet's handle, read only for an access to annotations, which is rare.
    place: NonNull<NonNull<Meta>>,
    lent: PhantomData<&'b mut Meta>,
}

impl Annotations<'_> {
    /// Bytes of annotations in the line of a packet's other metadata: to annotate here takes no second line from memory.
    pub const NEAR: usize = NEAR;
    /// Bytes of annotations in a line of their own.
    pub const FAR: usize = FAR;

    /// The annotations of a packet.
    ///
    /// # Safety
    /// While this lives, the packet whose handle is kept there is mutably borrowed, and the handle is not replaced. The
    /// handle was made from its pool's memory.
    #[inline(always)]
    pub(crate) unsafe fn of(place: NonNull<NonNull<Meta>>) -> Self {
        Self { place, lent: PhantomData }
    }

    #[inline(always)]
    fn handle(&self) -> NonNull<Meta> {
        // SAFETY: it is kept there for as long as this lives.
        unsafe { self.place.read() }
    }

    #[inline(always)]
    fn line(&self) -> &Meta {
        // SAFETY: the packet is lent to us, so that its line is there.
        unsafe { self.handle().as_ref() }
    }
    #[inline(always)]
    fn line_mut(&mut self) -> &mut Meta {
        // SAFETY: the packet is lent to us for changing, so that its line exists and is only ours.
        unsafe { self.handle().as_mut() }
    }
    #[inline(always)]
    fn second(&self) -> &Second {
        // SAFETY: a packet's pointer was made from its pool's memory.
        let second = unsafe { Lines::second(self.handle()) };
        // SAFETY: the line belongs to the packet's frame, and was zeroed when the pool was made.
        unsafe { second.as_ref() }
    }
    #[inline(always)]
    pub(crate) fn second_mut(&mut self) -> &mut Second {
        // SAFETY: as in `second`.
        let mut second = unsafe { Lines::second(self.handle()) };
        // SAFETY: as in `second`, and the packet is lent to us alone.
        unsafe { second.as_mut() }
    }
    /// Those beside the packet's other metadata.
    #[inline]
    pub fn near(&self) -> &[u8; NEAR] {
        &self.line().fresh.near
    }
    /// The same, for writing.
    #[inline]
    pub fn near_mut(&mut self) -> &mut [u8; NEAR] {
        &mut self.line_mut().fresh.near
    }
    /// Those in a cache line of their own.
    #[inline]
    pub fn far(&self) -> &[u8; FAR] {
        &self.second().far
    }
    /// The same, for writing.
    #[inline]
    pub fn far_mut(&mut self) -> &mut [u8; FAR] {
        self.line_mut().fresh.annotated = true;
        &mut self.second_mut().far
    }
    /// When the packet arrived (ns): what it causes is of that time too.
    #[inline]
    pub fn received_at(&self) -> u64 {
        self.line().fresh.received_at
    }
    /// Bytes that were on the wire behind the packet's last, and are not here.
    #[inline]
    pub fn missing(&self) -> usize {
        if self.line().fresh.flags & CUT == 0 { 0 } else { self.second().missing as usize }
    }
    /// Whether a length of 0 in the packet's IP header stands for the frame's.
    pub fn is_length_unstated(&self) -> bool {
        self.line().fresh.is_length_unstated()
    }
    /// Whether the packet comes from a capture, which does not say which work was left to a device.
    #[inline]
    pub fn is_captured(&self) -> bool {
        self.line().fresh.flags & CAPTURED != 0
    }
    /// Work that the packet's sender left to the device: it is known in the same place.
    #[inline]
    pub fn offload(&self) -> Offload {
        self.line().fresh.offload(|| &self.second().details)
    }
    pub(crate) fn set_offload(&mut self, offload: Offload) {
        let Offload { gso_size, checksum_start, checksum_offset, .. } = offload;
        if self.line_mut().fresh.set_offload(offload) {
            let vlan = self.second().details.vlan;
            self.second_mut().details = Details { gso_size, checksum_start, checksum_offset, vlan };
        }
    }
}

/// Whether packets come from a capture, which does not say which work was left to a device.
impl Packet {
    /// Whether it comes from a capture.
    #[inline]
    pub fn is_captured(&self) -> bool {
        self.line().fresh.flags & CAPTURED != 0
    }
    /// Says that it comes from a capture.
    pub fn set_captured(&mut self) {
        self.line_mut().fresh.flags |= CAPTURED;
    }
}

impl Bytes<'_> {
    /// Whether the packet comes from a capture; see [`Packet::is_captured`].
    pub fn is_captured(&self) -> bool {
        // SAFETY: the packet is lent to these bytes, so that its line exists, and no other code writes its flags meanwhile.
        unsafe { self.line().as_ref() }.fresh.flags & CAPTURED != 0
    }
}
