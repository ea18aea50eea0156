//! Packets compared with a `Vec<u8>`.
//!
//! The same operations on both must give the same bytes and the same errors. Bytes that an earlier packet left in a
//! frame must never show.

use netbricks_buffer::{GsoKind, HEADROOM, NoRoom, Offload, Packet, Pool, VlanTag};
use proptest::prelude::*;

const FRAME: usize = 1024;
const SHORT: usize = 512;
const SECRET: u8 = 0xee;

#[derive(Clone, Debug)]
enum Step {
    PushFront(usize),
    PullFront(usize),
    Extend(usize),
    ExtendFrom(Vec<u8>),
    Truncate(usize),
    Resize(usize),
    Write(usize, u8),
    Fill(usize),
    Copy,
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![8 => 0..300usize, 1 => 700..1100usize, 1 => Just(usize::MAX)];
    let bytes = proptest::collection::vec(0..SECRET, 0..300);
    prop_oneof![
        size.clone().prop_map(Step::PushFront),
        size.clone().prop_map(Step::PullFront),
        size.clone().prop_map(Step::Extend),
        bytes.prop_map(Step::ExtendFrom),
        size.clone().prop_map(Step::Truncate),
        size.clone().prop_map(Step::Resize),
        (any::<usize>(), 0..SECRET).prop_map(|(at, value)| Step::Write(at, value)),
        size.prop_map(Step::Fill),
        Just(Step::Copy),
    ]
}

/// The model: the bytes, where in the frame they start, and the frame's size.
struct Model {
    start: usize,
    bytes: Vec<u8>,
    frame: usize,
    /// Whether there are short frames.
    short: bool,
    /// Times that it moved into a larger frame.
    moved: u64,
}

impl Model {
    fn tailroom(&self) -> usize {
        self.frame - self.start - self.bytes.len()
    }
    /// Where a frame that is too small is the short one, there is a larger one.
    fn outgrow(&mut self, more: usize) {
        let end = more.saturating_add(self.start + self.bytes.len());
        if end > self.frame && end <= FRAME {
            self.frame = FRAME;
            self.moved += 1;
        }
    }
    fn extend(&mut self, more: &[u8]) -> Result<(), NoRoom> {
        self.outgrow(more.len());
        if more.len() > self.tailroom() {
            return Err(NoRoom { needed: more.len(), available: self.tailroom() });
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }
    fn extend_zeros(&mut self, count: usize) -> Result<(), NoRoom> {
        self.outgrow(count);
        if count > self.tailroom() {
            return Err(NoRoom { needed: count, available: self.tailroom() });
        }
        self.bytes.resize(self.bytes.len() + count, 0);
        Ok(())
    }
}

fn both(packet: &mut Packet, model: &mut Model, step: &Step) {
    match step {
        Step::PushFront(count) => {
            let expected = if *count > model.start {
                Err(NoRoom { needed: *count, available: model.start })
            } else {
                model.start -= count;
                model.bytes.splice(..0, vec![0; *count]);
                Ok(*count)
            };
            let pushed = packet.push_front(*count).map(|new| {
                assert!(new.iter().all(|byte| *byte == 0));
                new.len()
            });
            assert_eq!(pushed, expected);
        }
        Step::PullFront(count) => {
            let expected = if *count > model.bytes.len() {
                Err(NoRoom { needed: *count, available: model.bytes.len() })
            } else {
                model.start += count;
                model.bytes.drain(..count);
                Ok(())
            };
            assert_eq!(packet.pull_front(*count), expected);
        }
        Step::Extend(count) => {
            let expected = model.extend_zeros(*count).map(|()| *count);
            let extended = packet.extend(*count).map(|new| {
                assert!(new.iter().all(|byte| *byte == 0));
                new.len()
            });
            assert_eq!(extended, expected);
        }
        Step::ExtendFrom(more) => assert_eq!(packet.extend_from(more), model.extend(more)),
        Step::Truncate(len) => {
            packet.truncate(*len);
            model.bytes.truncate(*len);
        }
        Step::Resize(len) => {
            let expected = match len.checked_sub(model.bytes.len()) {
                Some(more) => model.extend_zeros(more),
                None => {
                    model.bytes.truncate(*len);
                    Ok(())
                }
            };
            assert_eq!(packet.resize(*len), expected);
        }
        Step::Write(at, value) => {
            if let Some(at) = at.checked_rem(model.bytes.len()) {
                packet.data_mut()[at] = *value;
                model.bytes[at] = *value;
            }
        }
        Step::Fill(claimed) => {
            let write = |room: &mut [u8]| {
                assert_eq!(room.len(), model.tailroom());
                room.fill(3);
                *claimed
            };
            // SAFETY: the whole room is written before any of it counts, and none is read.
            let written = unsafe { packet.fill(write) };
            assert_eq!(written, (*claimed).min(model.tailroom()));
            model.bytes.resize(model.bytes.len() + written, 3);
        }
        Step::Copy => {
            packet.set_flow_hash(model.bytes.len() as u32);
            let copy = packet.try_copy().expect("a free frame");
            assert_eq!(copy.flow_hash(), packet.flow_hash());
            assert_ne!(copy.index(), packet.index());
            *packet = copy;
            // A copy takes the smallest frame that leaves some room.
            let end = model.start + model.bytes.len();
            model.frame = if model.short && end + 64 <= SHORT { SHORT } else { FRAME };
        }
    }
    assert_eq!(packet.data(), model.bytes);
    assert_eq!((packet.len(), packet.headroom()), (model.bytes.len(), model.start));
    assert_eq!(packet.tailroom(), model.tailroom());
}

/// A pool of which every byte and every annotation was once full of secrets.
fn soiled(small: usize, short: usize) -> Pool {
    let pool = Pool::builder().frames(small).frame_size(FRAME).short(short, SHORT).build();
    let pool = pool.expect("memory for a few frames");
    let sizes = [vec![FRAME; small], vec![SHORT; short]].concat();
    let soiled: Vec<_> = sizes
        .into_iter()
        .map(|size| {
            let fits = if size == SHORT { size - 64 } else { size };
            let mut packet = pool.allocate(fits - HEADROOM).expect("a free frame");
            assert_eq!(packet.tailroom(), size - fits);
            packet.extend(size - fits).expect("all of the tailroom");
            packet.push_front(HEADROOM).expect("all of the headroom");
            packet.data_mut().fill(SECRET);
            packet.annotations_mut().near_mut().fill(SECRET);
            packet.annotations_mut().far_mut().fill(SECRET);
            packet.set_received_at(u64::MAX);
            packet.set_flow_hash(u32::MAX);
            packet.set_ingress(u16::MAX, u16::MAX);
            packet.set_owner(u16::MAX);
            packet.set_verdict(u16::MAX);
            packet.set_trace(Some(u32::MAX));
            packet.set_vlan(Some(VlanTag { protocol: 0x88a8, control: u16::MAX }));
            packet.set_offload(detailed(u16::MAX));
            packet
        })
        .collect();
    drop(soiled);
    pool
}

/// All of which lies in the second line, at these numbers.
fn detailed(number: u16) -> Offload {
    Offload {
        needs_checksum: true,
        gso: GsoKind::Udp,
        gso_size: number,
        checksum_start: number,
        checksum_offset: number,
        ..Offload::default()
    }
}

fn assert_new(packet: &Packet) {
    assert_eq!((packet.near_annotations(), packet.far_annotations()), (&[0; 8], &[0; 48]));
    assert_eq!((packet.received_at(), packet.flow_hash(), packet.owner(), packet.verdict()), (0, 0, 0, 0));
    assert_eq!((packet.ingress(), packet.queue(), packet.trace()), (0, 0, None));
    assert_eq!((packet.vlan(), packet.offload()), (None, Offload::default()));
    assert!(!packet.needs_device());
    assert_eq!(packet.headroom(), HEADROOM);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// All frames' bytes are secret at first, and no step writes a secret.
    ///
    /// Equality with the model therefore shows that no secret is seen.
    #[test]
    fn a_packet_behaves_like_a_vector(steps in proptest::collection::vec(step(), 1..40), short in any::<bool>()) {
        let pool = soiled(2, if short { 2 } else { 0 });
        let mut packet = pool.empty(0).unwrap();
        assert_new(&packet);
        let frame = if short { SHORT } else { FRAME };
        let mut model = Model { start: packet.headroom(), bytes: Vec::new(), frame, short, moved: 0 };
        for step in &steps {
            both(&mut packet, &mut model, step);
        }
        let copies = steps.iter().filter(|step| matches!(step, Step::Copy)).count();
        prop_assert_eq!(pool.counters().copied, copies as u64 + model.moved);
        drop(packet);
        prop_assert_eq!(pool.available(), pool.capacity());
    }

    /// The same through bounds that are lent, by a packet and by a batch.
    #[test]
    fn lent_bytes_behave_like_the_packet(
        counts in proptest::collection::vec((0..4u8, 0..400usize), 1..20),
        short in any::<bool>(),
    ) {
        let pool = soiled(3, if short { 2 } else { 0 });
        let mut batch = netbricks_buffer::Batch::new();
        prop_assert!(batch.push(pool.empty(0).unwrap()).is_ok());
        let mut packet = batch.get(0).unwrap().try_copy().unwrap();
        let mut through_batch = Vec::new();
        batch.each(|_, bytes| {
            for (kind, count) in &counts {
                through_batch.push(match kind {
                    0 => bytes.push_front(*count).map(|new| new.len()),
                    1 => bytes.pull_front(*count).map(|()| 0),
                    2 => bytes.extend(*count).map(|new| new.len()),
                    _ => { bytes.truncate(*count); Ok(1) }
                });
            }
        });
        let direct: Vec<_> = counts.iter().map(|(kind, count)| match kind {
            0 => packet.push_front(*count).map(|new| new.len()),
            1 => packet.pull_front(*count).map(|()| 0),
            2 => packet.extend(*count).map(|new| new.len()),
            _ => { packet.truncate(*count); Ok(1) }
        }).collect();
        prop_assert_eq!(through_batch, direct);
        prop_assert_eq!(batch.get(0).unwrap().data(), packet.data());
        prop_assert!(packet.data().iter().all(|byte| *byte == 0));
        prop_assert_eq!(batch.bytes(), packet.len() as u64);
        drop((batch, packet));
        prop_assert_eq!(pool.available(), pool.capacity());
    }
}

/// In a batch of which others leave, stay and are lent one by one.
#[test]
fn a_packet_that_outgrows_its_frame_keeps_its_contents_and_frees_the_frame() {
    let pool = soiled(4, 4);
    let mut batch = netbricks_buffer::Batch::new();
    for mark in 0..4u8 {
        let mut packet = pool.packet(&[mark; 100]).unwrap();
        assert_eq!(packet.tailroom(), SHORT - HEADROOM - 100);
        packet.set_owner(u16::from(mark));
        packet.annotations_mut().near_mut()[5] = mark + 1;
        packet.annotations_mut().far_mut()[5] = mark + 1;
        packet.set_vlan(Some(VlanTag { protocol: 0x8100, control: 7 }));
        packet.set_offload(detailed(3));
        batch.push(packet).unwrap();
    }
    let kept = batch.compact(|slot, bytes| match slot {
        0 => 9,
        1 => {
            bytes.extend(300).unwrap()[299] = 8;
            let (_, mut annotations) = bytes.parts();
            assert_eq!((annotations.near()[5], annotations.far()[5]), (2, 2));
            annotations.near_mut()[6] = 1;
            annotations.far_mut()[6] = 1;
            0
        }
        2 => {
            bytes.extend(400).unwrap();
            3
        }
        _ => 0,
    });
    assert_eq!((kept, pool.counters().copied), (2, 2));
    {
        let mut last = batch.packet(1).unwrap();
        last.resize(500).unwrap();
        assert_eq!(last.data(), [&[3; 100][..], &[0; 400]].concat());
    }
    let first = batch.get(0).unwrap();
    assert_eq!(first.data(), [&[1; 100][..], &[0; 299], &[8]].concat());
    let (near, far) = (first.near_annotations(), first.far_annotations());
    assert_eq!((first.owner(), &near[5..8], &far[5..8]), (1, &[2, 1, 0][..], &[2, 1, 0][..]));
    assert_eq!(first.vlan(), Some(VlanTag { protocol: 0x8100, control: 7 }));
    assert_eq!(first.offload(), detailed(3));
    assert_eq!((batch.bytes(), pool.available()), (400 + 500 + 100 + 500, 4));
    let gone: Vec<_> = batch.drain_from(2).map(|packet| (packet.verdict(), packet.len())).collect();
    assert_eq!(gone, [(9, 100), (3, 500)]);
    drop(batch);
    assert_eq!(pool.available(), 8);
    // Nothing of it shows in the frames that were left.
    let fresh: Vec<_> = std::iter::from_fn(|| pool.empty(0)).collect();
    assert_eq!(fresh.len(), 8);
    fresh.iter().for_each(assert_new);
}

/// The frame that it had is another packet's by then.
#[test]
fn a_caught_panic_after_a_move_shows_nothing_of_the_old_frame() {
    let pool = soiled(2, 1);
    let mut batch = netbricks_buffer::Batch::new();
    batch.push(pool.packet(&[1; 100]).unwrap()).unwrap();
    let mut other = None;
    batch.each(|_, bytes| {
        let moving = std::panic::AssertUnwindSafe(|| {
            bytes.apart(|bytes| {
                bytes.extend(400).unwrap();
                panic!("on purpose")
            })
        });
        assert!(std::panic::catch_unwind(moving).is_err());
        let taken = pool.packet(&[9; 100]).unwrap();
        assert_eq!((bytes.len(), bytes.data_mut().len()), (0, 0));
        other = Some(taken);
    });
    assert_eq!(other.unwrap().data(), &[9; 100]);
    assert_eq!(batch.get(0).unwrap().data(), [&[1; 100][..], &[0; 400]].concat());
}

#[test]
fn a_packet_that_finds_no_larger_frame_stays_as_it_is() {
    let pool = soiled(1, 1);
    let mut short = pool.packet(&[1; 100]).unwrap();
    let small = pool.packet(&[2; 600]).unwrap();
    let none = Err(NoRoom { needed: 157, available: 156 });
    assert_eq!(short.extend(157).map(|_| ()), none);
    assert_eq!(short.extend_from(&[7; 157]), none);
    assert_eq!(short.extend(usize::MAX).map(|_| ()), Err(NoRoom { needed: usize::MAX, available: 156 }));
    // What no frame holds is not asked for.
    assert_eq!((pool.counters().exhausted, pool.counters().copied, short.data()), (2, 0, &[1; 100][..]));
    drop(small);
    short.extend_from(&[7; 157]).unwrap();
    assert_eq!((short.data(), pool.available()), (&[&[1; 100][..], &[7; 157]].concat()[..], 1));
}

#[test]
fn no_way_of_making_a_packet_shows_a_secret() {
    let pool = soiled(4, 4);
    let check = |packet: Packet, len: usize| {
        assert_new(&packet);
        assert_eq!(packet.len(), len);
        assert!(packet.data().iter().all(|byte| *byte != SECRET));
    };
    for _ in 0..8 {
        check(pool.empty(FRAME - HEADROOM).unwrap(), 0);
        check(pool.allocate(FRAME - HEADROOM).unwrap(), FRAME - HEADROOM);
        check(pool.packet(&[1; 9]).unwrap(), 9);
        let mut batch = netbricks_buffer::Batch::new();
        assert_eq!(pool.allocate_into(&mut batch, 2), 2);
        assert_eq!(pool.allocate_written_into(&mut batch, 2, &[2; 64]), 2);
        for (packet, len) in batch.drain().zip([0, 0, 64, 64]) {
            check(packet, len);
        }
    }
}

#[test]
fn offload_and_vlan_tag_are_those_set_last() {
    let pool = soiled(2, 0);
    let mut packet = pool.packet(b"first").unwrap();
    // The places of an earlier packet are not those of this one.
    let plain = Offload { needs_checksum: true, ..Offload::default() };
    packet.set_offload(plain);
    assert_eq!((packet.offload(), packet.vlan()), (plain, None));
    let tag = VlanTag { protocol: 0x88a8, control: 7 };
    packet.set_vlan(Some(tag));
    assert_eq!((packet.offload(), packet.vlan()), (plain, Some(tag)));
    packet.set_offload(detailed(5));
    assert_eq!((packet.offload(), packet.vlan()), (detailed(5), Some(tag)));
    packet.set_vlan(Some(VlanTag { control: 9, ..tag }));
    assert_eq!((packet.offload(), packet.vlan().unwrap().control), (detailed(5), 9));
    let copy = packet.try_copy().unwrap();
    assert_eq!((copy.offload(), copy.vlan()), (packet.offload(), packet.vlan()));
    packet.set_vlan(None);
    assert_eq!((packet.offload(), packet.vlan()), (detailed(5), None));
    packet.set_offload(plain);
    assert_eq!(packet.offload(), plain);
    assert_eq!((copy.offload(), copy.vlan().unwrap().control), (detailed(5), 9));
}

#[test]
fn a_copy_takes_metadata_and_annotations_along_and_leaves_none_behind() {
    let pool = soiled(2, 0);
    let mut packet = pool.packet(b"first").unwrap();
    packet.annotations_mut().near_mut()[7] = 8;
    packet.annotations_mut().far_mut()[47] = 9;
    packet.set_owner(4);
    packet.set_trace(Some(6));
    packet.set_vlan(Some(VlanTag { protocol: 0x8100, control: 77 }));
    let copy = packet.try_copy().unwrap();
    assert_eq!((copy.near_annotations()[7], copy.far_annotations()[47]), (8, 9));
    assert_eq!((copy.owner(), copy.trace(), copy.data()), (4, Some(6), &b"first"[..]));
    assert_eq!(copy.vlan(), packet.vlan());
    assert!(packet.try_copy().is_none(), "the pool has two frames");
    assert_eq!(pool.counters().exhausted, 1);
    drop(packet);
    assert_eq!(copy.data(), b"first");
    drop(copy);
    let fresh = [pool.empty(0).unwrap(), pool.empty(0).unwrap()];
    fresh.iter().for_each(assert_new);
}

#[test]
fn a_panicking_visitor_leaves_a_packet_as_far_as_it_got() {
    let pool = soiled(1, 0);
    let mut packet = pool.packet(b"some bytes").unwrap();
    let headroom = packet.headroom();
    let visit = std::panic::AssertUnwindSafe(|| {
        packet.open(|bytes| {
            bytes.pull_front(4).unwrap();
            bytes.extend(100).unwrap();
            panic!("on purpose");
        })
    });
    assert!(std::panic::catch_unwind(visit).is_err());
    assert_eq!(packet.data(), [&b" bytes"[..], &[0; 100]].concat());
    assert_eq!(packet.headroom(), headroom + 4);
}
