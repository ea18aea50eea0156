//! Packets against a `Vec<u8>`: the same operations on both must give the same bytes and the same errors, and what an
//! earlier packet left in a frame must never show.

use netbricks_buffer::{GsoKind, HEADROOM, NoRoom, Offload, Packet, Pool, VlanTag};
use proptest::prelude::*;

const FRAME: usize = 1024;
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

/// The model: the bytes, and where in the frame they start.
struct Model {
    start: usize,
    bytes: Vec<u8>,
}

impl Model {
    fn tailroom(&self) -> usize {
        FRAME - self.start - self.bytes.len()
    }
    fn extend(&mut self, more: &[u8]) -> Result<(), NoRoom> {
        if more.len() > self.tailroom() {
            return Err(NoRoom { needed: more.len(), available: self.tailroom() });
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }
    fn extend_zeros(&mut self, count: usize) -> Result<(), NoRoom> {
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
        }
    }
    assert_eq!(packet.data(), model.bytes);
    assert_eq!((packet.len(), packet.headroom()), (model.bytes.len(), model.start));
    assert_eq!(packet.tailroom(), model.tailroom());
}

/// A pool all of whose frames were once full of secrets, from the first byte to the last, annotations included.
fn soiled(frames: usize) -> Pool {
    let pool = Pool::builder().frames(frames).frame_size(FRAME).build().expect("memory for a few frames");
    let soiled: Vec<_> = (0..frames)
        .map(|_| {
            let mut packet = pool.allocate(FRAME - HEADROOM).expect("a free frame");
            packet.push_front(HEADROOM).expect("all of the headroom");
            packet.data_mut().fill(SECRET);
            packet.annotations_mut().fill(SECRET);
            packet.set_received_at(u64::MAX);
            packet.set_flow_hash(u32::MAX);
            packet.set_ingress(u16::MAX, u16::MAX);
            packet.set_owner(u16::MAX);
            packet.set_verdict(u16::MAX);
            packet.set_traced(true);
            packet.set_vlan(Some(VlanTag { protocol: 0x88a8, control: u16::MAX }));
            packet.set_offload(Offload { needs_checksum: true, gso: GsoKind::Udp, ..Offload::default() });
            packet
        })
        .collect();
    drop(soiled);
    pool
}

fn assert_new(packet: &Packet) {
    assert_eq!(packet.annotations(), &[0; 64]);
    assert_eq!((packet.received_at(), packet.flow_hash(), packet.owner(), packet.verdict()), (0, 0, 0, 0));
    assert_eq!((packet.ingress(), packet.queue(), packet.traced()), (0, 0, false));
    assert_eq!((packet.vlan(), packet.offload()), (None, Offload::default()));
    assert!(!packet.needs_device());
    assert_eq!(packet.headroom(), HEADROOM);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// The frames' bytes are all secret at first and no step writes a secret: equality with the model shows that none
    /// is seen.
    #[test]
    fn a_packet_behaves_like_a_vector(steps in proptest::collection::vec(step(), 1..40)) {
        let pool = soiled(2);
        let mut packet = pool.empty(0).unwrap();
        assert_new(&packet);
        let mut model = Model { start: packet.headroom(), bytes: Vec::new() };
        for step in &steps {
            both(&mut packet, &mut model, step);
        }
        let copies = steps.iter().filter(|step| matches!(step, Step::Copy)).count();
        prop_assert_eq!(pool.counters().copied, copies as u64);
        drop(packet);
        prop_assert_eq!(pool.available(), 2);
    }

    /// The same through bounds that are lent, by a packet and by a batch.
    #[test]
    fn lent_bytes_behave_like_the_packet(counts in proptest::collection::vec((0..4u8, 0..400usize), 1..20)) {
        let pool = soiled(2);
        let mut batch = netbricks_buffer::Batch::new();
        prop_assert_eq!(pool.allocate_into(&mut batch, 1), 1);
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
    }
}

#[test]
fn no_way_of_making_a_packet_shows_a_secret() {
    let pool = soiled(4);
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
fn a_copy_takes_metadata_and_annotations_along_and_leaves_none_behind() {
    let pool = soiled(2);
    let mut packet = pool.packet(b"first").unwrap();
    packet.annotations_mut()[63] = 9;
    packet.set_owner(4);
    packet.set_vlan(Some(VlanTag { protocol: 0x8100, control: 77 }));
    let copy = packet.try_copy().unwrap();
    assert_eq!((copy.annotations()[63], copy.owner(), copy.data()), (9, 4, &b"first"[..]));
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
    let pool = soiled(1);
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
