//! A watch over packets, and the stream that is made of what it sees.

use std::time::Instant;

use netbricks_core::observer::Sightings;
use netbricks_runtime::Observation;

/// Makes the bytes of a stream out of what workers saw.
pub trait Encode: Send {
    /// The stream's first bytes.
    fn begin(&mut self) -> Vec<u8>;
    /// Called before workers are asked for what they saw.
    fn before(&mut self) {}
    /// The bytes for what workers saw since the last call.
    fn add(&mut self, seen: &[(usize, Sightings)], now: Instant) -> Vec<u8>;
    /// Whether all packets that were wanted are in the stream.
    fn is_complete(&self) -> bool;
    /// The stream's last bytes.
    fn end(&mut self) -> Vec<u8>;
    /// Bytes that mean nothing, for a reader that waits; none where the format has no such bytes.
    fn sign_of_life(&mut self) -> Vec<u8>;
}

/// A watch, and the encoder of its stream.
pub struct Observing {
    /// The watch.
    pub observation: Observation,
    /// The encoder.
    pub encode: Box<dyn Encode>,
}

impl std::fmt::Debug for Observing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observing").field("observation", &self.observation).finish_non_exhaustive()
    }
}
