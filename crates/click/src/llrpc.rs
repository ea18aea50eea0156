//! Click's low-level procedure calls: a number says which one, how many bytes it takes and how many it gives.
//!
//! Numbers are in their network form, as clients of a control socket write them.

use std::io;

/// The call that reads the output of a `Switch`.
pub const GET_SWITCH: u32 = 0x4004_C005;
/// The call that sets the output of a `Switch`.
pub const SET_SWITCH: u32 = 0x8004_4006;

/// Bytes that a call takes or gives.
pub fn size(command: u32) -> usize {
    (command >> 16 & 0xFFF) as usize
}
/// Whether a call takes bytes.
pub fn takes(command: u32) -> bool {
    command & 0x8000_0000 != 0
}
/// Whether a call gives bytes.
pub fn gives(command: u32) -> bool {
    command & 0x4000_0000 != 0
}
/// Whether all that a call takes and gives is in its bytes.
pub fn is_flat(command: u32) -> bool {
    command & 0x4000 != 0
}

/// The error of calls that an element does not know, or of arguments out of range.
pub fn unknown() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error())
}

/// The number in a call's bytes, in the machine's order.
pub fn number(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

/// Puts a number into a call's bytes.
pub fn set_number(bytes: &mut [u8], number: i32) {
    if let Some(place) = bytes.first_chunk_mut() {
        *place = number.to_ne_bytes();
    }
}
