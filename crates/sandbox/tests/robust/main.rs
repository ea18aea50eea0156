//! Random bytes as modules, and as what a module does to its batch: no packet is lost and nothing panics.

pub mod exercise;

/// A sequence of numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn assembled(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn damaged_modules_are_refused_or_run() {
    let whole = assembled(include_str!("../modules/macswap.wat"));
    assert!(exercise::module(&whole));
    let mut numbers = Numbers(7);
    let mut taken = 0;
    for _ in 0..300 {
        let mut damaged = whole.clone();
        for _ in 0..=numbers.next() % 3 {
            let place = numbers.next() as usize % damaged.len();
            match numbers.next() % 3 {
                0 => damaged[place] ^= 1 << (numbers.next() % 8),
                1 => damaged[place] = numbers.next() as u8,
                _ => damaged.truncate(place.max(9)),
            }
        }
        taken += u32::from(exercise::module(&damaged));
    }
    assert!((1..300).contains(&taken), "some are taken and some refused: {taken}");
}

#[test]
fn scripts_of_host_calls_and_writes_lose_no_packet() {
    let interpreter = assembled(include_str!("../modules/script.wat"));
    let mut numbers = Numbers(11);
    for _ in 0..150 {
        let mut script = Vec::new();
        for _ in 0..numbers.next() % 40 {
            script.push(numbers.next() as u8);
            // Small numbers as often as large ones.
            for _ in 0..2 {
                let number = numbers.next() as u32 >> (numbers.next() % 32);
                script.extend(number.to_le_bytes());
            }
        }
        exercise::script(&interpreter, &script);
    }
}
