//! The packet buffers of a process.

use netbricks_buffer::{HEADROOM, Pool, PoolError};

/// Bytes of a frame.
const FRAME: usize = 2_048;
/// Bytes of a large frame.
///
/// It holds a packet of 64 KiB that the kernel has not cut into segments, with its headers and headroom.
const LARGE: usize = 69_632;
/// Bytes of a short frame: packets of up to 192 bytes, with their headroom and a little tailroom.
const SHORT: usize = 512;

/// Large frames in a pool whose ports may need them, where the file gives no number.
pub(crate) const RESERVED: usize = 512;

/// Bytes of memory that `frames` large frames take.
pub(crate) fn large_bytes(frames: usize) -> usize {
    frames * LARGE
}

/// Bytes of the largest packet that fits a frame that is not large.
pub(crate) const fn small_packet() -> usize {
    FRAME - HEADROOM
}

/// The writer of packets into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Our own code writes them and knows their lengths, so the pool has short frames for short packets.
    Us,
    /// A device also writes them: it takes any frame for any packet.
    Device,
}

/// A pool of `frames` frames of 2 KiB and `large` large frames, for this number of workers.
///
/// If only our code writes packets, it also has `frames` short frames.
pub(crate) fn pool(frames: usize, large: usize, writer: Writer, workers: usize) -> Result<Pool, PoolError> {
    // Count at least two workers, so that a single worker's stock of free frames is not larger than it needs.
    let mut builder = Pool::builder().frames(frames).frame_size(FRAME).workers(workers.max(2));
    if large > 0 {
        builder = builder.large(large, LARGE);
    }
    match writer {
        Writer::Us => builder.short(frames, SHORT),
        Writer::Device => builder.for_device(true),
    }
    .build()
}

/// Bytes of the largest packet that fits a pool with this number of large frames.
pub(crate) fn largest_packet(large: usize) -> usize {
    if large > 0 { LARGE - HEADROOM } else { small_packet() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_packet_is_known_before_there_is_a_pool() {
        for (large, writer) in [(0, Writer::Us), (2, Writer::Us), (0, Writer::Device), (2, Writer::Device)] {
            let pool = pool(64, large, writer, 2).unwrap();
            assert_eq!(pool.largest_packet(), largest_packet(large), "{large} {writer:?}");
        }
    }
}
