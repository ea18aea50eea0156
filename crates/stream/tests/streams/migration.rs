//! Rewritten streams that move between two workers with their connections.
//!
//! Their output must equal, packet by packet, the output of a packetizer that they never leave.

use netbricks_stream::{
    Fate, InlineWindow, InlineWindowConfig, PacketizeConfig, Packetizer, Replace, Replacing, Rewriter, Why,
    Window,
};
use netbricks_testkit::mutate::Random;

use super::endpoints::{CONFIG, Elsewhere, conversation_between, replaced};

/// Two ends talk while their connection moves. Answers how often it moved. All memory is free at the end.
fn moved<R: Rewriter>(
    (seed, random): (u64, Random),
    trouble: usize,
    config: PacketizeConfig,
    rewriter: impl Fn() -> R,
    expected: impl Fn(&[u8]) -> Vec<u8>,
) -> (usize, Packetizer<R>) {
    let new = || Packetizer::new(config, rewriter()).expect("so little memory is there");
    let elsewhere = Elsewhere { other: new(), random: Random::new(seed), moves: 0 };
    let (mut here, elsewhere, _) =
        conversation_between(random, trouble, new(), Some((elsewhere, new())), expected);
    let (mut elsewhere, alone) = elsewhere.expect("they were there");
    let counters = [here.counters(), elsewhere.other.counters()];
    let alone = alone.counters();
    assert_eq!(counters[0].replaced + counters[1].replaced, alone.replaced);
    assert_eq!(counters[0].resent + counters[1].resent, alone.resent);
    assert_eq!(counters.map(|counters| (counters.homeless, counters.cut)), [(0, 0); 2]);
    here.finish();
    elsewhere.other.finish();
    assert_eq!([here.memory(), elsewhere.other.memory()], [0; 2]);
    (elsewhere.moves, here)
}

/// The string to find, and the one in its place.
fn strings(random: &mut Random) -> (&'static [u8], &'static [u8]) {
    let find = [&b"aab"[..], b"abcab", b"a", b"bbbb"][random.below(4)];
    (find, [&b"<longer than that>"[..], b"x", b"", b"aab"][random.below(4)])
}

#[test]
fn replacements_go_on_where_their_connection_moves() {
    let mut moves = 0;
    for seed in 1..600 {
        let mut random = Random::new(seed);
        let (find, put) = strings(&mut random);
        let replace = || Replace::new(find, put, None).expect("both strings are short");
        let trouble = [0, 1, 5, 12][seed as usize % 4];
        moves += moved((seed, random), trouble, CONFIG, replace, |data| replaced(data, find, put)).0;
    }
    assert!(moves > 10_000, "{moves}");
}

#[test]
fn replacements_that_count_as_one_move() {
    let mut moves = 0;
    for seed in 1..300 {
        let mut random = Random::new(seed);
        let (find, put) = strings(&mut random);
        let replace = || Replace::new(find, put, None).expect("both strings are short");
        let trouble = [0, 1, 5, 12][seed as usize % 4];
        let config = PacketizeConfig { edits: [0, 1, 8, 40][random.below(4)], ..CONFIG };
        moves += moved((seed, random), trouble, config, replace, |data| replaced(data, find, put)).0;
    }
    assert!(moves > 5_000, "{moves}");
}

/// Some windows are held until they are full, others until they are due or their sender repeats them.
#[test]
fn held_bytes_go_on_where_their_connection_moves() {
    let mut moves = 0;
    for seed in 1..400 {
        let mut random = Random::new(seed);
        let (find, put) = strings(&mut random);
        let size = find.len() + random.below(90);
        let slide = 1 + random.below(size - find.len() + 1);
        let timeout = [0, 10, 1_000, u64::MAX][random.below(4)];
        let packets = PacketizeConfig { flow_memory: 1 << 18, memory: 1 << 22, ..CONFIG };
        let config = InlineWindowConfig {
            memory: 8 * size,
            longer: 20,
            packets,
            ..InlineWindowConfig::new(size, slide, timeout)
        };
        let inline = || {
            let censor = move |window: &Window<'_>, replacing: &mut Replacing<'_, '_>| {
                let mut at = 0;
                while let Some(next) = window.bytes[at..].windows(find.len()).position(|bytes| bytes == find)
                {
                    at += next + find.len();
                    assert!(replacing.replace(at - find.len()..at, put));
                }
                if window.why == Why::Due { Fate::Hold } else { Fate::Pass }
            };
            InlineWindow::new(config, censor).expect("these bounds are possible")
        };
        let trouble = [1, 5, 12][seed as usize % 3];
        let (times, here) = moved((seed, random), trouble, packets, inline, |data| replaced(data, find, put));
        assert_eq!(here.rewriter().holding(), 0);
        moves += times;
    }
    assert!(moves > 10_000, "{moves}");
}
