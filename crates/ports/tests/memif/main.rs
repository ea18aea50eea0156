//! memif: its messages, and peers in other processes.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[expect(unreachable_pub, reason = "the fuzz crate exports this file's function")]
mod exercise;
mod fixture;
mod processes;
mod testpmd;

use std::path::Path;

use netbricks_buffer::Pool;
use netbricks_ports::Port;
use netbricks_ports::memif::message::{LEN, MessageError};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Opens a port of this role on the socket `s` of a directory.
fn open(directory: &Path, role: &str, more: &str, pool: &Pool) -> Box<dyn Port> {
    fixture::open(directory, "memif", &format!("role = \"{role}\"\n{more}"), pool)
}

#[test]
fn any_bytes_are_a_message_or_refused() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut understood = [0; 9];
    for round in 0..20_000 {
        let mut bytes = vec![0; LEN];
        random.fill_bytes(&mut bytes);
        let kind = (round % 10) as u16;
        bytes[..2].copy_from_slice(&kind.to_ne_bytes());
        match exercise::message(&bytes) {
            Ok(_) => understood[usize::from(kind)] += 1,
            Err(error) => assert_eq!(error, MessageError::Type(kind)),
        }
        bytes.truncate(round % LEN);
        assert_eq!(exercise::message(&bytes), Err(MessageError::Length(round % LEN)));
    }
    assert_eq!(understood, [0, 2000, 2000, 2000, 2000, 2000, 2000, 2000, 2000]);
}
