//! The packet buffers of a process.

use netbricks_buffer::{HEADROOM, Pool, PoolError};

/// Bytes of a frame.
const FRAME: usize = 2_048;
/// Bytes of a large frame: a packet of 64 KiB that the kernel has not cut, with its headers and headroom.
const LARGE: usize = 69_632;
/// Bytes of a short frame: packets of up to 192 bytes, with their headroom and a little room behind.
const SHORT: usize = 512;

/// Large frames that a pool has where a port may bring packets for them and the file does not say how many.
pub(crate) const RESERVED: usize = 512;

/// Bytes of memory that so many large frames take.
pub(crate) fn large_bytes(frames: usize) -> usize {
    frames * LARGE
}

/// Bytes of the largest packet that a frame takes which is not large.
pub(crate) const fn small_packet() -> usize {
    FRAME - HEADROOM
}

/// Who puts packets into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// We do, and know how long they are: there are short frames for short ones.
    Us,
    /// A device too, which takes any frame for any packet and wants them aligned.
    Device,
}

/// So many frames of 2 KiB, as many short ones where those are of use, and so many large ones, for so many workers.
pub(crate) fn pool(frames: usize, large: usize, writer: Writer, workers: usize) -> Result<Pool, PoolError> {
    // As for two where there is one: its stacks need not be as large as that allows.
    let mut builder = Pool::builder().frames(frames).frame_size(FRAME).workers(workers.max(2));
    if large > 0 {
        builder = builder.large(large, LARGE);
    }
    match writer {
        Writer::Us => builder.short(frames, SHORT),
        Writer::Device => builder.aligned(true),
    }
    .build()
}

/// Bytes of the largest packet that fits a pool with so many large frames.
pub(crate) fn largest_packet(large: usize) -> usize {
    if large > 0 { LARGE - HEADROOM } else { small_packet() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_known_before_there_is_a_pool() {
        for (large, writer) in [(0, Writer::Us), (2, Writer::Us), (0, Writer::Device), (2, Writer::Device)] {
            let pool = pool(64, large, writer, 2).unwrap();
            assert_eq!(pool.largest_packet(), largest_packet(large), "{large} {writer:?}");
        }
    }
}
