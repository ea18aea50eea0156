//! The host's side of a batch: it lends frames to a module, takes them back, and answers its calls.
//!
//! Nothing here trusts the module's memory. Counts, lengths and places are the host's own, and only verdicts and the bytes
//! of frames come back. It knows nothing of the back end either: it gets the module's memory as a slice.

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_core::Random;
use netbricks_core::buffer::{Batch, NoRoom};

use crate::abi::{self, BATCH, PACKET_BYTES, PACKETS, Refusal, VERDICT, Writes, get, put};
use crate::records::Records;
use crate::sys::frames::{Copies, Frames};
use crate::sys::memory::ALIGNMENT;

/// Bytes of a page of linear memory.
pub(crate) const PAGE: usize = 64 << 10;
/// Bytes of a cache line: frames lie on lines of their own in the module's memory.
const LINE: usize = 64;
/// Frames of which a module reads more than this lie in large slots from the start.
pub(crate) const MOST_SMALL: usize = 256;
/// Room before and behind a frame in its large slot, for `nb_push_front` and `nb_resize`.
const ROOM: usize = 128;
/// Most bytes of a module's configuration.
pub(crate) const MOST_CONFIG: usize = 1 << 20;
/// Most bytes of a line of `nb_log`, and of a counter's name.
const MOST_LINE: usize = 256;
const MOST_NAME: usize = 32;

/// The needs of a module that the host must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Bytes of each frame that the module wants to see at once.
    pub(crate) reads: usize,
    pub(crate) writes: Writes,
}

/// The part of a module's memory in which the host puts configuration and frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Bytes of configuration.
    pub(crate) config: usize,
    small_stride: usize,
    large_stride: usize,
}

impl Window {
    /// A window for frames of up to `largest` bytes and this much configuration.
    pub(crate) fn new(needs: Needs, largest: usize, config: usize) -> Self {
        let small_stride = match needs.reads {
            0..=MOST_SMALL => needs.reads.max(1).next_multiple_of(LINE),
            _ => 0,
        };
        // A line more, so that frames do not all fall into the same sets of the cache.
        let large_stride = (ROOM + largest + ROOM).next_multiple_of(LINE) + LINE;
        Self { config: config.next_multiple_of(LINE), small_stride, large_stride }
    }

    /// A window of configuration alone: frames lie in the memory already.
    pub(crate) fn without_frames(config: usize) -> Self {
        Self { config: config.max(1).next_multiple_of(LINE), small_stride: 0, large_stride: 0 }
    }

    /// Bytes of the whole window.
    pub(crate) fn bytes(&self) -> usize {
        self.config + BATCH * (self.small_stride + self.large_stride)
    }

    /// Bytes by which a module's memory grows for the window, and for as many bytes of mapped frames.
    pub(crate) fn room(&self, mapped: usize) -> usize {
        self.bytes().next_multiple_of(PAGE) + mapped + if mapped > 0 { ALIGNMENT } else { 0 }
    }
}

/// Where a packet's bytes lie in the module's memory, once a host call has moved them.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// The first byte's place.
    at: usize,
    /// Bytes of the frame that lie there, from its first.
    brought: usize,
    /// Bytes that the module may write where it declares headers.
    headers: usize,
    /// Whether it lies in the large slot.
    large: bool,
}

/// A change of a packet's bounds.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// So many bytes more before the first, or fewer.
    Front(i32),
    /// This length.
    Length(usize),
}

/// The host's side of a node's module.
pub(crate) struct Host {
    /// The packets, while the module runs.
    pub(crate) batch: Batch,
    needs: Needs,
    window: Window,
    /// Copies of the packets in frames that are mapped into the memory (`mapped`), and where the frames begin there.
    mapped: Option<Copies>,
    frames_at: usize,
    /// Where the window begins.
    window_at: usize,
    /// Where the module wants `nb_batch`.
    batch_at: usize,
    /// Whether a host call has moved bytes of this batch; then `places` are right.
    moved: bool,
    places: Box<[Place; BATCH]>,
    /// The end of what each large slot has ever held.
    high: Box<[usize; BATCH]>,
    now: u64,
    most_calls: u32,
    calls: u32,
    random: Random,
    records: Rc<RefCell<Records>>,
    /// A breach of the interface that a host call found.
    pub(crate) breach: Option<String>,
}

impl Host {
    pub(crate) fn new(
        needs: Needs,
        window: Window,
        most_calls: u32,
        random: Random,
        records: Rc<RefCell<Records>>,
    ) -> Self {
        Self {
            batch: Batch::new(),
            needs,
            window,
            mapped: None,
            frames_at: 0,
            window_at: 0,
            batch_at: 0,
            moved: false,
            places: Box::new([Place::default(); BATCH]),
            high: Box::new([0; BATCH]),
            now: 0,
            most_calls,
            calls: 0,
            random,
            records,
            breach: None,
        }
    }

    pub(crate) fn window(&self) -> Window {
        self.window
    }

    /// The same host, with copies of its packets in mapped frames.
    pub(crate) fn over(self, copies: Copies) -> Self {
        Self { mapped: Some(copies), ..self }
    }

    /// The copies in mapped frames.
    #[inline]
    pub(crate) fn mapped(&mut self) -> Option<&mut Copies> {
        self.mapped.as_mut()
    }

    /// The pool whose frames are mapped.
    pub(crate) fn frames(&self) -> Option<Rc<Frames>> {
        self.mapped.as_ref().map(|copies| Rc::clone(copies.frames()))
    }

    /// Begins with the memory of a new instance, in which frames and the window lie there.
    pub(crate) fn begin(&mut self, frames_at: usize, window_at: usize) {
        self.frames_at = frames_at;
        self.window_at = window_at;
        self.high.fill(0);
        self.calls = 0;
        self.breach = None;
    }

    /// Takes the place of `nb_batch` that `nb_setup` returned.
    ///
    /// # Errors
    /// Where the structure does not fit there.
    pub(crate) fn set_batch(&mut self, memory: &[u8], at: u32) -> Result<(), String> {
        let place = at as usize;
        if at == 0 {
            return Err("`nb_setup` returned a null pointer: it refuses its configuration".into());
        }
        let end = place.checked_add(abi::BATCH_BYTES).filter(|end| *end <= memory.len());
        if end.is_none() || !place.is_multiple_of(8) {
            return Err(format!(
                "`nb_setup` returned {at:#x}, where no `nb_batch` fits: expected {} bytes, aligned to 8, within the memory's {:#x}",
                abi::BATCH_BYTES,
                memory.len()
            ));
        }
        // The host changes the table while it looks at frames.
        if let Some(copies) = &self.mapped {
            let mapped = self.frames_at..self.frames_at + copies.frames().bytes();
            if place < mapped.end && place + abi::BATCH_BYTES > mapped.start {
                return Err(format!(
                    "`nb_setup` returned {at:#x}, which lies in the mapped frames: expected a place in the module's own memory"
                ));
            }
        }
        self.batch_at = place;
        Ok(())
    }

    pub(crate) fn batch_at(&self) -> u32 {
        self.batch_at as u32
    }

    fn small_at(&self, slot: usize) -> usize {
        self.window_at + self.window.config + slot * self.window.small_stride
    }

    fn large_at(&self, slot: usize) -> usize {
        self.window_at
            + self.window.config
            + BATCH * self.window.small_stride
            + slot * self.window.large_stride
    }

    fn table_at(&self, slot: usize) -> usize {
        self.batch_at + PACKETS + slot * PACKET_BYTES
    }

    /// Puts the batch into the module's memory: the table, and the first bytes of each frame.
    pub(crate) fn fill(&mut self, memory: &mut [u8], now: u64) {
        self.now = now;
        self.calls = 0;
        self.moved = false;
        if let Some(place) = memory.get_mut(self.batch_at + abi::NOW..).and_then(<[u8]>::first_chunk_mut) {
            *place = now.to_le_bytes();
        }
        put(memory, self.batch_at + abi::COUNT, self.batch.len() as u32);
        put(memory, self.batch_at + abi::FLAGS, if self.mapped.is_some() { abi::FLAG_MAPPED } else { 0 });
        let mut table = self.table_at(0);
        if let Some(copies) = &self.mapped {
            for (place, len) in copies.places() {
                let at = self.frames_at + place;
                if let Some(entry) = memory.get_mut(table..table + PACKET_BYTES) {
                    entry[..4].copy_from_slice(&(at as u32).to_le_bytes());
                    entry[4..8].copy_from_slice(&(len as u32).to_le_bytes());
                    entry[8..].copy_from_slice(&abi::PASS.to_le_bytes());
                }
                table += PACKET_BYTES;
            }
            return;
        }
        self.batch.warm();
        if self.window.small_stride == 0 {
            self.fill_large(memory);
            return;
        }
        let (reads, stride, len) = (self.needs.reads, self.window.small_stride, self.batch.len());
        let first = self.small_at(0);
        // Each part in one go: so the bounds of both are looked at once for the batch.
        if let Some(slots) = memory.get_mut(first..first + len * stride) {
            for (slot, packet) in slots.chunks_exact_mut(stride).zip(self.batch.iter()) {
                bring(slot, packet.data(), reads);
            }
        }
        if let Some(entries) = memory.get_mut(table..table + len * PACKET_BYTES) {
            let (entries, _) = entries.as_chunks_mut::<PACKET_BYTES>();
            let mut at = first as u32;
            for (entry, packet) in entries.iter_mut().zip(self.batch.iter()) {
                let fields = u64::from(at) | (packet.len() as u64) << 32;
                entry[..8].copy_from_slice(&fields.to_le_bytes());
                entry[8..].copy_from_slice(&abi::PASS.to_le_bytes());
                at += stride as u32;
            }
        }
    }

    /// As [`fill`](Self::fill), for modules that read much of each frame.
    fn fill_large(&mut self, memory: &mut [u8]) {
        self.moved = true;
        for slot in 0..self.batch.len() {
            let Some(packet) = self.batch.get(slot) else { break };
            let brought = packet.len().min(self.needs.reads);
            let first = self.large_at(slot);
            clear_room(memory, first);
            self.places[slot] = Place { at: first + ROOM, brought: 0, headers: brought, large: true };
            self.bring_more(memory, slot, brought);
            put(memory, self.table_at(slot) + VERDICT, abi::PASS);
        }
    }

    /// Notes where each frame lies, before a host call moves one.
    #[cold]
    fn note_places(&mut self) {
        self.moved = true;
        for slot in 0..self.batch.len() {
            let brought = self.batch.get(slot).map_or(0, |packet| packet.len().min(self.needs.reads));
            self.places[slot] = Place { at: self.small_at(slot), brought, headers: brought, large: false };
        }
    }

    /// Tells the module where the frame lies now, and its length.
    fn tell(&self, memory: &mut [u8], slot: usize) {
        let length = self.batch.get(slot).map_or(0, |packet| packet.len());
        put(memory, self.table_at(slot), self.places[slot].at as u32);
        put(memory, self.table_at(slot) + 4, length as u32);
    }

    /// Brings bytes of a frame in its large slot, up to `wanted`.
    fn bring_more(&mut self, memory: &mut [u8], slot: usize, wanted: usize) {
        let place = &mut self.places[slot];
        let Some(packet) = self.batch.get(slot) else { return };
        let wanted = wanted.min(packet.len());
        if wanted > place.brought {
            let (from, to) = (place.at + place.brought, place.at + wanted);
            if let Some(room) = memory.get_mut(from..to) {
                room.copy_from_slice(&packet.data()[place.brought..wanted]);
            }
            place.brought = wanted;
        }
        // What an earlier packet left behind the end is no part of this one.
        let end = place.at + place.brought;
        if let Some(stale) = memory.get_mut(end..self.high[slot].max(end)) {
            stale.fill(0);
        }
        self.high[slot] = end;
        self.tell(memory, slot);
    }

    /// Moves a frame to its large slot, with the bytes that the module sees.
    fn enlarge(&mut self, memory: &mut [u8], slot: usize) {
        let at = self.large_at(slot) + ROOM;
        let place = &mut self.places[slot];
        if place.large {
            return;
        }
        let end = place.at + place.brought;
        if end <= memory.len() && at + place.brought <= memory.len() {
            memory.copy_within(place.at..end, at);
        }
        clear_room(memory, at - ROOM);
        (place.at, place.large) = (at, true);
        self.bring_more(memory, slot, 0);
    }

    /// The slot of a packet that a host call names, once the host knows where each frame lies.
    fn slot(&mut self, packet: u32) -> Result<usize, Refusal> {
        let slot = packet as usize;
        if slot >= self.batch.len() {
            return Err(Refusal::NoPacket);
        }
        if !self.moved {
            self.note_places();
        }
        Ok(slot)
    }

    /// Counts a host call. `false` where the batch has none left.
    #[inline]
    pub(crate) fn admit(&mut self) -> bool {
        self.calls += 1;
        if self.calls <= self.most_calls {
            return true;
        }
        self.breach = Some(format!("it makes more than {} host calls for a batch", self.most_calls));
        false
    }

    /// Host calls of the present batch.
    pub(crate) fn calls(&self) -> u32 {
        self.calls
    }

    /// Tells the module where a mapped frame begins now, and its length.
    fn tell_mapped(&self, memory: &mut [u8], slot: usize) {
        if let Some((place, len)) = self.mapped.as_ref().and_then(|copies| copies.place(slot)) {
            put(memory, self.table_at(slot), (self.frames_at + place) as u32);
            put(memory, self.table_at(slot) + 4, len as u32);
        }
    }

    /// Changes a packet's bounds, and those of its copy in a mapped frame.
    ///
    /// The copy grows in its own frame only: no other frame would be mapped for certain.
    fn reshape(&mut self, memory: &mut [u8], packet: u32, change: Change) -> Result<i32, Refusal> {
        if self.needs.writes == Writes::None {
            return Err(Refusal::ReadOnly);
        }
        let slot = self.slot(packet)?;
        let (headroom, tailroom) =
            self.mapped.as_ref().and_then(|copies| copies.room(slot)).ok_or(Refusal::NoPacket)?;
        let length = self.batch.get(slot).map_or(0, |packet| packet.len());
        let fits = match change {
            Change::Front(bytes) => bytes < 0 || bytes as usize <= headroom,
            Change::Length(len) => len.saturating_sub(length) <= tailroom,
        };
        if !fits {
            return Err(Refusal::NoRoom);
        }
        let no_room = |_: NoRoom| Refusal::NoRoom;
        let mut lent = self.batch.packet(slot).ok_or(Refusal::NoPacket)?;
        match change {
            Change::Front(bytes) if bytes < 0 => lent.pull_front(bytes.unsigned_abs() as usize),
            Change::Front(bytes) => lent.push_front(bytes.unsigned_abs() as usize).map(|_| ()),
            Change::Length(len) => lent.resize(len),
        }
        .map_err(no_room)?;
        drop(lent);
        let headers = &mut self.places[slot].headers;
        if let Some(copies) = &mut self.mapped {
            match change {
                Change::Front(bytes) => {
                    *headers = headers.saturating_add_signed(bytes as isize);
                    copies.push_front(slot, bytes)
                }
                Change::Length(len) => {
                    *headers = (*headers).min(len);
                    copies.resize(slot, len)
                }
            }
            .map_err(no_room)?;
        }
        self.tell_mapped(memory, slot);
        Ok(0)
    }

    /// `nb_pull`: shows the module the first `bytes` of a packet, as far as it has so many.
    ///
    /// Answers how many it sees.
    pub(crate) fn pull(&mut self, memory: &mut [u8], packet: u32, bytes: u32) -> Result<i32, Refusal> {
        if self.mapped.is_some() {
            return self
                .batch
                .get(packet as usize)
                .map(|packet| packet.len() as i32)
                .ok_or(Refusal::NoPacket);
        }
        let slot = self.slot(packet)?;
        let length = self.batch.get(slot).map_or(0, |packet| packet.len());
        let wanted = length.min(bytes as usize);
        if wanted > self.places[slot].brought {
            self.enlarge(memory, slot);
            self.bring_more(memory, slot, wanted);
        }
        Ok(self.places[slot].brought as i32)
    }

    /// `nb_push_front`: adds zero bytes before a packet's first, or takes bytes off where `bytes` is below 0.
    pub(crate) fn push_front(&mut self, memory: &mut [u8], packet: u32, bytes: i32) -> Result<i32, Refusal> {
        if self.mapped.is_some() {
            return self.reshape(memory, packet, Change::Front(bytes));
        }
        if self.needs.writes == Writes::None {
            return Err(Refusal::ReadOnly);
        }
        let slot = self.slot(packet)?;
        let count = bytes.unsigned_abs() as usize;
        let length = self.batch.get(slot).map_or(0, |packet| packet.len());
        if bytes < 0 && count > length {
            return Err(Refusal::NoRoom);
        }
        if bytes < 0 {
            self.pull(memory, packet, count as u32)?;
        }
        self.enlarge(memory, slot);
        let first = self.large_at(slot);
        let room = self.places[slot].at - first;
        if bytes > 0 && count > room {
            return Err(Refusal::NoRoom);
        }
        let mut packet = self.batch.packet(slot).ok_or(Refusal::NoPacket)?;
        if bytes < 0 {
            packet.pull_front(count).map_err(|_| Refusal::NoRoom)?;
        } else {
            packet.push_front(count).map_err(|_| Refusal::NoRoom)?;
        }
        drop(packet);
        let place = &mut self.places[slot];
        if bytes < 0 {
            place.at += count;
            place.brought -= count;
            place.headers = place.headers.saturating_sub(count);
        } else {
            place.at -= count;
            place.brought += count;
            place.headers += count;
            if let Some(new) = memory.get_mut(place.at..place.at + count) {
                new.fill(0);
            }
        }
        self.tell(memory, slot);
        Ok(0)
    }

    /// `nb_resize`: cuts a packet to `len` bytes, or adds zero bytes behind its last.
    pub(crate) fn resize(&mut self, memory: &mut [u8], packet: u32, len: u32) -> Result<i32, Refusal> {
        if self.mapped.is_some() {
            return self.reshape(memory, packet, Change::Length(len as usize));
        }
        if self.needs.writes == Writes::None {
            return Err(Refusal::ReadOnly);
        }
        let slot = self.slot(packet)?;
        let wanted = len as usize;
        let length = self.batch.get(slot).map_or(0, |packet| packet.len());
        if wanted > length {
            // All of it, so that the new bytes follow on those that it has.
            self.pull(memory, packet, u32::MAX)?;
            self.enlarge(memory, slot);
            let end = self.large_at(slot) + self.window.large_stride;
            if wanted > end - self.places[slot].at {
                return Err(Refusal::NoRoom);
            }
        }
        let mut lent = self.batch.packet(slot).ok_or(Refusal::NoPacket)?;
        lent.resize(wanted).map_err(|_| Refusal::NoRoom)?;
        drop(lent);
        let place = &mut self.places[slot];
        place.brought = place.brought.min(wanted);
        place.headers = place.headers.min(wanted);
        if place.large {
            self.bring_more(memory, slot, if wanted > length { wanted } else { 0 });
        } else {
            // The bytes behind the new end are no longer the packet's.
            let (end, last) = (place.at + place.brought, place.at + self.window.small_stride);
            if let Some(gone) = memory.get_mut(end..last) {
                gone.fill(0);
            }
            self.tell(memory, slot);
        }
        Ok(0)
    }

    /// `nb_count`: adds to the counter of this name.
    pub(crate) fn count(&mut self, memory: &[u8], name: u32, len: u32, add: u64) -> Result<i32, Refusal> {
        let name = text(memory, name, len, MOST_NAME).ok_or(Refusal::NoCounter)?;
        self.records.borrow_mut().count(name, add).then_some(0).ok_or(Refusal::NoCounter)
    }

    /// `nb_log`: keeps a line for the operator, unless there were too many of late.
    pub(crate) fn log(&mut self, memory: &[u8], line: u32, len: u32) {
        let line = text(memory, line, len.min(MOST_LINE as u32), MOST_LINE).unwrap_or_default();
        self.records.borrow_mut().log(self.now, line);
    }

    /// `nb_random`: the next number of the node's own sequence, which tells the module nothing of the run's seed.
    pub(crate) fn random(&mut self) -> u64 {
        self.random.draw()
    }

    /// The verdict of the packet in a slot, as the module left it.
    pub(crate) fn verdict(&self, memory: &[u8], slot: usize) -> u32 {
        get(memory, self.table_at(slot) + VERDICT).unwrap_or(u32::MAX)
    }

    /// Whether the verdict of every packet is to pass.
    pub(crate) fn all_pass(&self, memory: &[u8]) -> bool {
        const { assert!(abi::PASS == 0, "the verdicts are joined bit by bit") };
        let from = self.table_at(0);
        let Some(table) = memory.get(from..from + self.batch.len() * PACKET_BYTES) else { return false };
        let verdict = |entry: &[u8; PACKET_BYTES]| {
            let [.., a, b, c, d] = *entry;
            u32::from_le_bytes([a, b, c, d])
        };
        let (entries, _) = table.as_chunks::<PACKET_BYTES>();
        entries.iter().fold(abi::PASS, |joined, entry| joined | verdict(entry)) == abi::PASS
    }

    /// Takes back what the module has written, where all packets stay in the graph.
    pub(crate) fn settle_all(&mut self, memory: &[u8]) {
        if self.needs.writes == Writes::None {
            self.mapped().into_iter().for_each(Copies::clear);
            return;
        }
        if self.mapped.is_some() || self.moved {
            let kept = self.settle(memory, |_| (true, 0));
            debug_assert_eq!(kept, self.batch.len());
            return;
        }
        // The slots lie one behind the other, each with a frame's first bytes.
        let (from, stride) = (self.small_at(0), self.window.small_stride);
        let Self { batch, needs, .. } = self;
        let (len, reads) = (batch.len(), needs.reads);
        let Some(slots) = memory.get(from..from + len * stride) else { return };
        batch.each_beside(slots.chunks_exact(stride), |_, frame, slot| {
            let data = frame.data_mut();
            let count = reads.min(data.len()).min(slot.len());
            copy(&mut data[..count], &slot[..count]);
        });
    }

    /// Decides on each packet by its verdict, as [`Batch::compact`] does.
    ///
    /// Where `settle` says that a packet stays in the graph, its frame gets the bytes that the module has written.
    pub(crate) fn settle(&mut self, memory: &[u8], mut settle: impl FnMut(u32) -> (bool, u16)) -> usize {
        let (small, stride, table) = (self.small_at(0), self.window.small_stride, self.table_at(0));
        let Self { batch, needs, moved, places, mapped, .. } = self;
        let copies = needs.writes != Writes::None;
        if let Some(mapped) = mapped {
            let kept = batch.compact(|slot, frame| {
                let verdict = get(memory, table + slot * PACKET_BYTES + VERDICT).unwrap_or(u32::MAX);
                let (stays, decided) = settle(verdict);
                if stays && copies {
                    let (data, written) = (frame.data_mut(), mapped.data(slot));
                    let count = match needs.writes {
                        Writes::All => data.len(),
                        _ if *moved => places[slot].headers,
                        _ => needs.reads,
                    };
                    let count = count.min(data.len()).min(written.len());
                    copy(&mut data[..count], &written[..count]);
                }
                decided
            });
            mapped.clear();
            return kept;
        }
        batch.compact(|slot, frame| {
            let verdict = get(memory, table + slot * PACKET_BYTES + VERDICT).unwrap_or(u32::MAX);
            let (stays, decided) = settle(verdict);
            if !stays || !copies {
                return decided;
            }
            let (at, count) = if *moved {
                let place = places[slot];
                (
                    place.at,
                    if needs.writes == Writes::All {
                        place.brought
                    } else {
                        place.headers.min(place.brought)
                    },
                )
            } else {
                (small + slot * stride, needs.reads)
            };
            let data = frame.data_mut();
            let count = count.min(data.len());
            if let Some(written) = memory.get(at..at + count) {
                copy(&mut data[..count], written);
            }
            decided
        })
    }
}

/// Clears the room before a frame's place in its large slot, where `nb_push_front` put bytes of an earlier packet.
#[inline]
fn clear_room(memory: &mut [u8], first: usize) {
    if let Some(room) = memory.get_mut(first..first + ROOM) {
        room.fill(0);
    }
}

/// Fills a slot with the first `reads` bytes of a frame; what the frame does not have is zero.
#[inline(always)]
fn bring(slot: &mut [u8], data: &[u8], reads: usize) {
    if reads == LINE
        && let Some(slot) = slot.first_chunk_mut::<LINE>()
    {
        match data.first_chunk::<LINE>() {
            Some(first) => *slot = *first,
            None => bring_short(slot, data),
        }
        return;
    }
    let brought = data.len().min(reads);
    let (frame, rest) = slot.split_at_mut(brought.min(slot.len()));
    frame.copy_from_slice(&data[..frame.len()]);
    rest.fill(0);
}

/// As [`bring`], of a frame of less than a line: two overlapping moves, as minimum-sized frames have 60 bytes.
#[inline(always)]
fn bring_short(slot: &mut [u8; LINE], data: &[u8]) {
    const HALF: usize = LINE / 2;
    match (data.first_chunk::<HALF>(), data.last_chunk::<HALF>()) {
        (Some(first), Some(last)) => {
            let from = data.len() - HALF;
            slot[HALF..].fill(0);
            slot[..HALF].copy_from_slice(first);
            slot[from..from + HALF].copy_from_slice(last);
        }
        _ => {
            slot.fill(0);
            slot[..data.len()].copy_from_slice(data);
        }
    }
}

/// Copies a frame's bytes back, mostly a line or a little less.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8]) {
    const HALF: usize = LINE / 2;
    let len = to.len().min(from.len());
    if (HALF..=LINE).contains(&len) {
        if let (Some(to), Some(from)) = (to.first_chunk_mut::<HALF>(), from.first_chunk::<HALF>()) {
            *to = *from;
        }
        if let (Some(to), Some(from)) = (to[..len].last_chunk_mut::<HALF>(), from[..len].last_chunk::<HALF>())
        {
            *to = *from;
        }
        return;
    }
    to[..len].copy_from_slice(&from[..len]);
}

/// Bytes that a module names, up to `most`.
fn text(memory: &[u8], at: u32, len: u32, most: usize) -> Option<&[u8]> {
    let (at, len) = (at as usize, len as usize);
    (len <= most).then(|| memory.get(at..at.checked_add(len)?)).flatten()
}
