//! Socket options by number, for those that no library names.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Sets an option. The value must hold no address: the kernel then reads the value's bytes and no others.
pub(super) fn set<T: IntoBytes + Immutable>(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let bytes = value.as_bytes();
    let descriptor = socket.as_fd().as_raw_fd();
    let len = bytes.len() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and pointer and length describe `bytes`.
    let result = unsafe { libc::setsockopt(descriptor, level, option, bytes.as_ptr().cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option. If the kernel's value is shorter than `T`, the rest is zero.
pub(super) fn get<T: FromBytes + IntoBytes>(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<T> {
    let mut value = T::new_zeroed();
    let bytes = value.as_mut_bytes();
    let mut len = bytes.len() as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open while it is borrowed, and pointer and length describe `bytes`.
    let result =
        unsafe { libc::getsockopt(descriptor, level, option, bytes.as_mut_ptr().cast(), &raw mut len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Turns a system call's answer into a result.
pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
