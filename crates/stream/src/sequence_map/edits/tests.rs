//! Where bytes lie that were replaced, held against a walk over all replacements.

use std::cell::Cell;
use std::collections::VecDeque;

use super::{Edit, Edits, SequenceMap, distance};
use crate::blocks::NONE;
use crate::sequence_map::Opening;

/// A fixed sequence of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A direction's replacements as a list of their own.
struct Naive {
    edits: VecDeque<Edit>,
    shift: i64,
    /// Where the last one ended that was forgotten.
    forgotten: (u64, u64),
    emitted: u64,
}

impl Naive {
    /// The shift at an input position, or the replacement around it: its beginning and its end.
    fn around(&self, input: u64, is_end: bool) -> Result<i64, (u64, u64)> {
        let mut shift = self.shift;
        for edit in &self.edits {
            if input <= edit.input {
                break;
            }
            if input < edit.input_end || is_end && input == edit.input_end {
                return Err((edit.output, edit.output_end));
            }
            shift = edit.shift();
        }
        Ok(shift)
    }
    fn output_of(&self, input: u64) -> u64 {
        self.around(input, false).map_or_else(|(from, _)| from, |shift| input.strict_add_signed(shift))
    }
    fn output_behind(&self, input: u64) -> u64 {
        self.around(input, true).map_or_else(|(_, to)| to, |shift| input.strict_add_signed(shift))
    }
    fn input_of(&self, output: u64) -> u64 {
        let mut shift = self.shift;
        for edit in &self.edits {
            if output < edit.output_end {
                return if output > edit.output { edit.input } else { output.strict_add_signed(-shift) };
            }
            shift = edit.shift();
        }
        output.strict_add_signed(-shift).min(self.emitted)
    }
}

/// A direction of which the positions are as after a beginning that was acknowledged.
fn pair(start: u64) -> (SequenceMap, Naive) {
    let mut map = SequenceMap::opened(Opening::new(7), None);
    (map.taken, map.emitted, map.sent, map.acknowledged) = (start, start, start, start);
    (map, Naive { edits: VecDeque::new(), shift: 0, forgotten: (0, 0), emitted: start })
}

/// The next replacement of a direction: so many bytes behind the last one, so many, by so many.
fn next(map: &mut SequenceMap, naive: &mut Naive, [passed, input, output]: [u64; 3]) -> Edit {
    (map.emitted, map.sent) = (map.emitted + passed, map.sent + passed);
    let edit = Edit {
        input: map.emitted,
        input_end: map.emitted + input,
        output: map.sent,
        output_end: map.sent + output,
        ..Edit::default()
    };
    (map.emitted, map.sent) = (edit.input_end, edit.output_end);
    naive.emitted = map.emitted;
    edit
}

#[test]
fn positions_are_those_of_a_walk_over_all_replacements() {
    let mut most = 0;
    for seed in 0..150 {
        let mut random = Random(seed);
        // Numbers wrap in some; positions never do.
        let (mut map, mut naive) = pair([1, u64::from(u32::MAX) - 400][seed as usize % 2]);
        let mut edits = Edits::new(2_000, 2, 2_000).expect("so little memory is there");
        for _ in 0..random.below(1_200) {
            let sizes = [random.below(4), random.below(4), random.below(4)];
            let edit = next(&mut map, &mut naive, sizes);
            edits.append(&mut map, edit);
            naive.edits.push_back(edit);
            if random.below(3 + seed) == 0 {
                let behind = random.below(map.sent - map.acknowledged + 1) / (1 + random.below(9));
                map.acknowledged += behind;
                map.forget_acknowledged(&mut edits);
                while let Some(edit) = naive.edits.front().filter(|edit| edit.output_end <= map.acknowledged)
                {
                    (naive.shift, naive.forgotten) = (edit.shift(), (edit.input_end, edit.output_end));
                    naive.edits.pop_front();
                }
            }
            most = most.max(naive.edits.len());
            assert_eq!(map.edits as usize, naive.edits.len());
            for _ in 0..4 {
                let input = map.emitted - random.below(map.emitted.min(1_500));
                let output = map.sent - random.below(map.sent.min(1_500));
                // What became what before that is not known.
                if input < naive.forgotten.0 || output < naive.forgotten.1 {
                    continue;
                }
                assert_eq!(map.output_of(&edits, input), naive.output_of(input), "{seed}: input {input}");
                assert_eq!(map.output_behind(&edits, input), naive.output_behind(input), "{seed}: {input}");
                assert_eq!(map.input_of(&edits, output), naive.input_of(output), "{seed}: output {output}");
            }
        }
        while edits.remove_oldest(&mut map).is_some() {}
        assert_eq!((map.oldest, map.newest, map.edits, edits.available), (NONE, NONE, 0, 2_000));
    }
    assert!(most > 300, "never many at a time: {most}");
}

/// Tens of thousands are in flight, after any number of earlier ones.
#[test]
fn few_replacements_are_looked_at_however_many_there_are() {
    const FLIGHT: u32 = 20_000;
    let mut random = Random(1);
    let (mut map, mut naive) = pair(0);
    let mut edits = Edits::new(65_536, 2, 65_536).expect("so little memory is there");
    let mut worst = 0;
    for turn in 0..3 * FLIGHT {
        let edit = next(&mut map, &mut naive, [1, 1, 2]);
        edits.append(&mut map, edit);
        if turn >= FLIGHT {
            map.acknowledged += 3;
            map.forget_acknowledged(&mut edits);
            assert_eq!(map.edits, FLIGHT);
        }
        let input = map.emitted - random.below(map.emitted.min(2 * u64::from(FLIGHT)));
        let looks = Cell::new(0);
        let found = edits.last(&map, |edit| {
            looks.set(looks.get() + 1);
            edit.input < input
        });
        let next = map.next(&edits, found);
        assert!(found.is_none_or(|edit| edit.input < input) && next.is_none_or(|next| next.input >= input));
        worst = worst.max(looks.get());
    }
    assert!((20..=64).contains(&worst), "{worst} were looked at");
}

/// Of the numbers' last digits in skew binary, the first.
#[test]
fn distances_are_the_last_digits() {
    let first: Vec<u32> = (1..=16).map(distance).collect();
    assert_eq!(first, [1, 1, 3, 1, 1, 3, 7, 1, 1, 3, 1, 1, 3, 7, 15, 1]);
    assert_eq!((distance(u64::from(u32::MAX)), distance(u64::from(u32::MAX) + 1)), (u32::MAX, 1));
}
