//! Images of connections as arbitrary bytes: a malformed image changes nothing, and a valid one does no harm.

use netbricks_core::Declared;
use netbricks_core::packet::checksum;
use netbricks_core::packet::tcp::flags;
use netbricks_stream::{Cut, Fate, InlineWindowConfig, Replacing, Rewriter, Window};
use netbricks_testkit::mutate::Random;
use proptest::prelude::*;

use super::endpoints::CONFIG;
use super::exercise::flow;
use super::homeless::{RESET, cats};
use super::inline_windows::{Way, through};

/// Connections with everything: waiting and unacknowledged bytes, replacements, held bytes, ends.
fn image(inline: bool) -> Vec<u8> {
    fn speak<R: Rewriter>(mut way: Way<R>) -> Vec<u8> {
        (1..=4).for_each(|number| way.open(number));
        way.says(1, 100, b"cat or cat, not");
        way.says(1, 115, b"a cat ca");
        way.says(1, 140, b"another");
        way.push(flow(1).reversed(), [500, 107], flags::ACK, b"cats");
        way.says(2, 100, b"");
        way.push(flow(2), [100, 500], flags::FIN | flags::ACK, b"the end");
        way.says(3, 100, b"quit");
        way.push(flow(4), [100, 500], RESET | flags::ACK, b"");
        way.push(flow(5), [99, 0], flags::SYN, b"");
        way.packetizer.take_where(|_| true)
    }
    if inline { speak(door()) } else { speak(cats(CONFIG)) }
}

fn door() -> Way<impl Rewriter> {
    let config =
        InlineWindowConfig { memory: 64, longer: 4, packets: CONFIG, ..InlineWindowConfig::new(16, 12, 0) };
    through(config, |window: &Window<'_>, replacing: &mut Replacing<'_, '_>| {
        if window.bytes.starts_with(b"quit") {
            return Fate::Cut(Cut::Silence);
        }
        if let Some(at) = window.bytes.windows(3).position(|bytes| bytes == b"cat") {
            // Replaces where there is memory for it.
            let _replaced = replacing.replace(at..at + 3, b"<tiger>");
        }
        if window.bytes.len() < 8 { Fate::Hold } else { Fate::Pass }
    })
}

/// Imports any image, and continues with the connections that are there then.
fn survives<R: Rewriter>(mut way: Way<R>, image: &[u8], seed: u64) -> Result<(), String> {
    way.open(9);
    way.says(9, 100, b"cat");
    let standing = |way: &Way<R>| {
        let packetizer = &way.packetizer;
        (packetizer.occupancy(), packetizer.memory(), packetizer.counters())
    };
    let before = standing(&way);
    let taken = way.packetizer.import(image, 1);
    if taken.is_err() {
        assert_eq!(standing(&way), before, "nothing was changed");
    }
    let mut random = Random::new(seed);
    for _ in 0..60 {
        assert!(way.packetizer.memory() <= 2 * CONFIG.memory);
        let number = 1 + random.below(6) as u32;
        let flow = if random.below(2) == 0 { flow(number) } else { flow(number).reversed() };
        let flags = [
            flags::ACK,
            flags::ACK | flags::URG,
            flags::ACK | flags::FIN,
            flags::ACK | flags::PSH,
            flags::SYN,
            RESET,
        ];
        let flags = flags[random.below(5) + usize::from(random.below(12) == 0)];
        let number = |random: &mut Random| match random.below(8) {
            0 => random.next() as u32,
            _ => [90, 490][random.below(2)] + random.below(60) as u32,
        };
        let numbers = [number(&mut random), number(&mut random)];
        way.now += random.below(1 << 30) as u64;
        way.push(flow, numbers, flags, &b"cat and cat, and so on"[..random.below(22)]);
        way.packetizer.expire(way.now, 3);
    }
    way.packetizer.take_where(|_| random.below(2) == 0);
    way.packetizer.finish();
    assert_eq!((way.packetizer.occupancy().0, way.packetizer.memory()), (0, 0));
    taken
}

fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len().saturating_sub(2) & !1);
    let sum = checksum::internet(&bytes);
    bytes.extend(sum.to_be_bytes());
    bytes
}

/// Mostly a byte that makes a number very small or very large.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), prop::sample::select(vec![0, 1, 0x3f, 0x7f, 0x80, 0xff])]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_image_breaks_anything(
        inline: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), byte()), 0..6),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
        sums: bool,
        seed: u64,
    ) {
        let good = image(inline);
        let mut bytes = good.clone();
        if let Some(cut) = cut {
            bytes.truncate(cut.index(good.len()));
        }
        let len = bytes.len();
        for (at, byte) in changes.into_iter().filter(|_| len > 0) {
            bytes[at.index(len)] = byte;
        }
        let bytes = if sums { summed(bytes) } else { bytes };
        let taken = if inline { survives(door(), &bytes, seed) } else { survives(cats(CONFIG), &bytes, seed) };
        if bytes == good {
            prop_assert_eq!(taken, Ok(()));
        } else if !sums && !bytes.is_empty() {
            // The checksum has 16 bits, and so may be right by chance.
            prop_assert!(taken.is_err() || checksum::internet(&bytes) == 0);
        }
    }

    #[test]
    fn no_bytes_are_an_image(bytes in prop::collection::vec(any::<u8>(), 2..300), seed: u64) {
        let bytes = summed([&[0, 8, 0, 0, 0, 1, 0][..], &bytes].concat());
        prop_assert!(survives(cats(CONFIG), &bytes, seed).is_err());
    }
}

#[test]
fn an_error_says_what_is_wrong() {
    let import = |bytes: &[u8]| cats(CONFIG).packetizer.import(bytes, 0).unwrap_err();
    let good = image(false);
    let mut other = good.clone();
    other[1] = 2;
    assert!(import(&other).contains("checksum is wrong"));
    let problem = import(&summed(other));
    assert!(problem.contains("of version 8, found version 2"), "{problem}");
    assert!(import(&summed(good[..good.len() - 8].to_vec())).contains("end in the middle"));
    // An end that no segment can have stated: gaps were counted up to it.
    let mut far = good;
    let end = 6 + 1 + 41 + 3 + 2 * 8;
    assert_eq!(far[end..end + 16], [u8::MAX; 16], "it has not ended");
    (far[end], far[end + 8]) = (0x7f, 0x7f);
    assert!(import(&summed(far)).contains("none that can be"));
}
