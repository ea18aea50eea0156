//! Guests that write what no honest one does.

use netbricks_core::DropReason;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::guest::{BASE, END, IN, INDIRECT, NEXT, OUT, SIZE, WRITE};
use super::*;
use crate::vhost_user::ring::MOST_PIECES;

/// A place in the guest's memory for tables.
const TABLE: usize = 0xf_0000;

/// The port drops what a guest sends for a reason, gives the descriptor back, and goes on.
fn is_dropped(name: &str, reason: DropReason, write: impl Fn(&mut Guest)) {
    let mut lab = Lab::new(name, "");
    let mut guest = Guest::connect(&lab, u64::MAX);
    for round in 0..3 {
        write(&mut guest);
        guest.offer(OUT, 0);
        let totals = lab.turns();
        assert_eq!(totals.drops.of(reason).packets, round + 1, "{totals:?}");
        assert_eq!(guest.used(OUT), [(0, 0)]);
        guest.send(&frame(1, 60));
        lab.turns();
        assert!(lab.far.frames(0) == [frame(1, 60)]);
        assert_eq!(guest.used(OUT).len(), 1);
    }
    assert_eq!((lab.port.link(), lab.port.warnings()), (Link::Up, Vec::new()));
    lab.finish();
}

#[test]
fn chains_that_cannot_be_are_dropped_as_malformed() {
    let one = |at: u64, len: u32, flags: u16, next: u16| {
        move |guest: &mut Guest| guest.describe(OUT, 0, (at, len), flags, next)
    };
    let table = |at: u64, len: u32| one(at, len, INDIRECT, 0);
    let place = BASE + TABLE as u64;
    let is_malformed =
        |name: &str, write: &dyn Fn(&mut Guest)| is_dropped(name, DropReason::Malformed, write);
    is_malformed("zero", &one(BASE, 0, 0, 0));
    is_malformed("header-only", &one(BASE, 12, 0, 0));
    is_malformed("less", &one(BASE, 11, 0, 0));
    is_malformed("outside", &one(END, 100, 0, 0));
    is_malformed("below", &one(BASE - 1, 100, 0, 0));
    is_malformed("beyond", &one(END - 50, 100, 0, 0));
    is_malformed("around", &one(u64::MAX - 20, 100, 0, 0));
    is_malformed("write-only", &one(BASE, 100, WRITE, 0));
    is_malformed("next-outside", &one(BASE, 100, NEXT, SIZE));
    is_malformed("table-outside", &table(END, 32));
    is_malformed("table-around", &table(u64::MAX - 15, 32));
    is_malformed("table-uneven", &table(place, 17));
    is_malformed("table-empty", &table(place, 0));
    is_malformed("table-huge", &table(place, !15));
    is_malformed("table-in-table", &|guest| {
        table(place, 16)(guest);
        guest.describe_at(TABLE, (place, 16), INDIRECT, 0);
    });
    is_malformed("table-unfinished", &|guest| {
        table(place, 16)(guest);
        guest.describe_at(TABLE, (BASE, 100), NEXT, 1);
    });
    is_malformed("second-outside", &|guest| {
        one(BASE, 100, NEXT, 1)(guest);
        guest.describe(OUT, 1, (END, 100), 0, 0);
    });
}

#[test]
fn chains_without_end_are_dropped() {
    // A loop ends when there is no room for more of its pieces, and also where it is shorter than that.
    is_dropped("loop", DropReason::Malformed, |guest| guest.describe(OUT, 0, (BASE, 1), NEXT, 0));
    is_dropped("loop-in-table", DropReason::TooBig, |guest| {
        guest.describe(OUT, 0, (BASE + TABLE as u64, 16 * 512), INDIRECT, 0);
        guest.describe_at(TABLE, (BASE, 1), NEXT, 0);
    });
    is_dropped("long-table", DropReason::TooBig, |guest| {
        let pieces = MOST_PIECES + 1;
        guest.describe(OUT, 0, (BASE + TABLE as u64, 16 * pieces as u32), INDIRECT, 0);
        for piece in 0..pieces {
            let flags = if piece + 1 < pieces { NEXT } else { 0 };
            guest.describe_at(TABLE + 16 * piece, (BASE, 20), flags, piece as u16 + 1);
        }
    });
}

#[test]
fn packets_that_are_too_large_are_dropped() {
    is_dropped("64k", DropReason::TooBig, |guest| guest.describe(OUT, 0, (BASE, 70_000), 0, 0));
    is_dropped("4g", DropReason::TooBig, |guest| guest.describe(OUT, 0, (BASE, u32::MAX), 0, 0));
    is_dropped("many-4g", DropReason::Malformed, |guest| {
        guest.describe(OUT, 0, (BASE, u32::MAX), NEXT, 1);
        guest.describe(OUT, 1, (BASE, u32::MAX), 0, 0);
    });
}

#[test]
fn headers_that_cannot_be_are_dropped() {
    for (name, header) in [
        ("kind", vec![0, 0x7f]),
        ("place", vec![1, 0, 0, 0, 0, 0, 0xff, 0xff, 6, 0]),
        ("size", vec![1, 1, 0, 0, 0, 0, 34, 0, 6, 0]),
    ] {
        let mut lab = Lab::new(&format!("header-{name}"), "");
        let mut guest = Guest::connect(&lab, u64::MAX);
        guest.send_with(header, &frame(1, 100));
        let totals = lab.turns();
        assert_eq!(totals.drops.of(DropReason::NoOffload).packets, 1, "{name} {totals:?}");
        lab.finish();
    }
}

/// The connection ends for a reason, and an honest guest comes next.
fn ends(name: &str, reason: &str, write: impl Fn(&mut Guest)) {
    let mut lab = Lab::new(name, "");
    let mut guest = Guest::connect(&lab, u64::MAX);
    guest.echo(&mut lab, &[frame(1, 60)]);
    write(&mut guest);
    (0..3).for_each(|number| assert!(lab.far.push(0, &frame(number, 60))));
    let before = lab.turns();
    lab.is_down();
    let said = lab.port.warnings();
    assert!(said.len() == 1 && said[0].contains(reason), "{name}: {said:?}");
    assert!(lab.far.push(0, &frame(1, 60)));
    let totals = lab.turns();
    let lost = |totals: &Totals| totals.drops.of(DropReason::LinkDown).packets;
    assert_eq!(lost(&totals), lost(&before) + 1);
    drop(guest);
    lab.works();
    lab.finish();
}

#[test]
fn an_index_that_jumps_ends_the_connection() {
    for queue in [IN, OUT] {
        for jump in [SIZE + 1, 0x8000, u16::MAX] {
            ends(&format!("index-{queue}-{jump}"), "further on", |guest| {
                // The echo took one of each.
                guest.set_index(queue, jump.wrapping_add(1));
            });
        }
    }
}

#[test]
fn a_head_that_does_not_exist_ends_the_connection() {
    for queue in [IN, OUT] {
        for head in [SIZE, u16::MAX] {
            ends(&format!("head-{queue}-{head}"), "names a descriptor", |guest| {
                // Behind the buffers that the echo has left.
                (0..3).for_each(|_| guest.offer(queue, head));
            });
        }
    }
}

#[test]
fn a_buffer_that_cannot_be_written_ends_the_connection() {
    for (name, at, len, flags) in [
        ("outside", END, 2_048, WRITE),
        ("around", u64::MAX, 2_048, WRITE),
        ("read-only", BASE + 0x9_0000, 2_048, 0),
        ("empty", BASE + 0x9_0000, 0, WRITE),
        ("loop", BASE + 0x9_0000, 1, WRITE | NEXT),
        ("table", END, 32, INDIRECT),
    ] {
        ends(&format!("buffer-{name}"), "offers a buffer", |guest| {
            // Behind the buffer that the echo has left.
            guest.describe(IN, 40, (at, len), flags, 40);
            (0..3).for_each(|_| guest.offer(IN, 40));
        });
    }
}

/// Writes descriptors, heads and indexes of both virtqueues.
///
/// A guest that is not `wild` does nothing that ends its connection, unless the port looks in between.
fn scribble(guest: &Guest, random: &mut Xoshiro256PlusPlus, wild: bool) {
    let queue = (random.next_u32() % 2) as usize;
    let number = (random.next_u32() % u32::from(SIZE)) as u16;
    let may_lie = wild || queue == OUT;
    match random.next_u32() % 8 {
        0..=4 => {
            let beyond = if may_lie { 100_000 } else { 0 };
            let at = BASE + 0x9_0000 + random.next_u64() % (END - BASE - 0x9_0000 - 3_000 + beyond);
            let mut flags = if queue == IN { WRITE } else { 0 };
            if may_lie {
                flags |= (random.next_u32() % 2) as u16 * NEXT;
                flags ^= (random.next_u32() % 8 / 7) as u16 * INDIRECT;
            }
            let next = (random.next_u32() % (u32::from(SIZE) + 1)) as u16;
            guest.describe(queue, number, (at, 1 + random.next_u32() % 3_000), flags, next);
        }
        5 => guest.set_head(queue, number, (random.next_u32() % (u32::from(SIZE) + u32::from(wild))) as u16),
        _ if wild => guest.move_index(queue, (random.next_u32() % 4) as u16),
        _ => guest.fill_index(queue, (random.next_u32() % u32::from(SIZE)) as u16),
    }
}

/// A guest that writes anything at any time, also while the port reads, loses packets or its connection.
#[test]
fn a_guest_that_writes_anything_is_contained() {
    let mut lab = Lab::new("scribbles", "device_mtu = 9000");
    for seed in 0..12 {
        let guest = Guest::connect(&lab, if seed % 2 == 0 { u64::MAX } else { 0 });
        lab.is_up();
        let wild = seed % 4 >= 2;
        // Before the port reads.
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..1_000).for_each(|_| scribble(&guest, &mut random, false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..30_000).for_each(|_| scribble(&guest, &mut random, wild));
            });
            for number in 0..300 {
                lab.far.push(0, &frame(number, 60 + number * 20));
                let graph = lab.graph.as_mut().unwrap();
                for _ in 0..8 {
                    graph.wake();
                    graph.turn(1);
                }
                lab.far.frames(0);
            }
        });
        lab.turns();
        drop(guest);
        lab.is_down();
        let said = lab.port.warnings();
        assert!(said.iter().all(|said| !said.contains("panic")), "{seed}: {said:?}");
        assert!(lab.graph.as_mut().unwrap().take_panics().is_empty());
    }
    let totals = lab.turns();
    assert!(totals.drops.of(DropReason::Malformed).packets > 0, "{totals:?}");
    lab.works();
    lab.finish();
}
