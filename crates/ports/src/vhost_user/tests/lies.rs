//! Guests that write what no honest one does.

use netbricks_core::DropReason;

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
    is_malformed("table-huge", &table(place, u32::MAX & !15));
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
