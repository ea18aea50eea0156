//! System calls that no library wraps: the only unsafe code of this crate.
//!
//! Each file owns one kind of kernel object and gives it a safe interface:
//!
//! - memory shared with the kernel (`mapping`)
//! - socket options (`socket`)
//! - interface requests (`interface`)
//! - AF_PACKET sockets and their rings (`packet`)
//! - AF_XDP sockets and their rings (`xdp`)
//! - TAP devices (`tun`)
//! - memory shared with another process (`shared`), and that of a guest (`guest`)
//! - BPF maps, programs and links (`bpf`)

pub(crate) mod bpf;
pub(crate) mod guest;
pub(crate) mod interface;
pub(crate) mod mapping;
pub(crate) mod packet;
pub(crate) mod shared;
mod socket;
pub(crate) mod tun;
pub(crate) mod xdp;
