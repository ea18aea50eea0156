//! The bpf(2) system call: maps, programs, and the links that attach them.
//!
//! Each object ends with its descriptor, so a process that is killed leaves nothing.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The program can handle packets in several buffers.
pub(crate) const F_XDP_HAS_FRAGS: u32 = 1 << 5;

/// One instruction, in the kernel's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// Destination in the low, source in the high four bits.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

/// Kinds of map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    Hash = 1,
    Array = 2,
    /// Longest-prefix match: the key begins with the number of its bits that count.
    LpmTrie = 11,
    XskMap = 17,
}

#[derive(IntoBytes, Immutable, FromZeros)]
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[derive(Clone, Copy, IntoBytes, Immutable, FromZeros)]
#[repr(C)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach_type: u32,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
}

/// Makes the call.
///
/// # Safety
/// Every address in `attributes` points to memory of the size that the command reads or writes there.
unsafe fn bpf<T: IntoBytes + Immutable>(command: libc::c_long, attributes: &T) -> io::Result<i32> {
    let bytes = attributes.as_bytes();
    // SAFETY: pointer and length describe the attributes, which the kernel copies; what they point to is the caller's
    // promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, bytes.as_ptr(), bytes.len()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// As [`bpf`], for commands that answer a new descriptor.
///
/// # Safety
/// As [`bpf`].
unsafe fn create<T: IntoBytes + Immutable>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let descriptor = unsafe { bpf(command, attributes) }?;
    // SAFETY: the command made this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    let len = text.len().min(15);
    name[..len].copy_from_slice(&text.as_bytes()[..len]);
    name
}

/// A map whose keys have `KEY` bytes, and its values four.
#[derive(Debug)]
pub(crate) struct Map<const KEY: usize = 4>(OwnedFd);

impl Map {
    pub(crate) fn new(kind: MapKind, entries: u32, called: &str) -> io::Result<Self> {
        Self::made(kind, entries, 0, called)
    }

    /// Sets the value of a key.
    pub(crate) fn set(&self, key: u32, value: u32) -> io::Result<()> {
        self.set_bytes(&key.to_ne_bytes(), value)
    }
    /// Removes a key; no error if it does not exist.
    pub(crate) fn remove(&self, key: u32) -> io::Result<()> {
        self.remove_bytes(&key.to_ne_bytes())
    }
}

impl<const KEY: usize> Map<KEY> {
    /// A map of prefixes: a key begins with the number of bits that count of the others.
    pub(crate) fn of_prefixes(entries: u32, called: &str) -> io::Result<Self> {
        // Such maps exist without preallocation only.
        const NO_PREALLOCATION: u32 = 1;
        Self::made(MapKind::LpmTrie, entries, NO_PREALLOCATION, called)
    }

    fn made(kind: MapKind, entries: u32, flags: u32, called: &str) -> io::Result<Self> {
        let attributes = MapCreate {
            kind: kind as u32,
            key_size: KEY as u32,
            value_size: 4,
            entries,
            flags,
            name: name(called),
            ..FromZeros::new_zeroed()
        };
        // SAFETY: the attributes hold no address.
        Ok(Self(unsafe { create(MAP_CREATE, &attributes) }?))
    }

    /// Sets the value of a key.
    pub(crate) fn set_bytes(&self, key: &[u8; KEY], value: u32) -> io::Result<()> {
        let attributes = self.element(key, &value);
        // SAFETY: the key has as many bytes as the map's keys, the value four as its values; both outlive the call.
        unsafe { bpf(MAP_UPDATE, &attributes) }.map(|_| ())
    }
    /// Removes a key; no error if it does not exist.
    pub(crate) fn remove_bytes(&self, key: &[u8; KEY]) -> io::Result<()> {
        // The kernel refuses a deletion that names a value.
        let attributes = MapElement { value: 0, ..self.element(key, &0) };
        // SAFETY: as in `set_bytes`, without a value.
        match unsafe { bpf(MAP_DELETE, &attributes) } {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result.map(|_| ()),
        }
    }
    fn element(&self, key: &[u8; KEY], value: &u32) -> MapElement {
        MapElement {
            map: self.0.as_raw_fd() as u32,
            padding: 0,
            key: key.as_ptr() as u64,
            value: std::ptr::from_ref(value) as u64,
            flags: 0,
        }
    }
    /// The map's descriptor, for instructions that refer to it.
    pub(crate) fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// A program that the verifier accepted.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

/// Bytes of the verifier's log that are kept.
const LOG: usize = 64 << 10;

impl Program {
    /// Loads an XDP program. An error of the verifier contains the end of its log.
    pub(crate) fn load_xdp(instructions: &[Instruction], flags: u32, called: &str) -> io::Result<Self> {
        let head = ProgLoad {
            kind: PROG_TYPE_XDP,
            flags,
            name: name(called),
            attach_type: ATTACH_XDP,
            ..FromZeros::new_zeroed()
        };
        Self::load_logged(instructions, &head)
    }
    /// Loads a socket filter, as [`load_xdp`](Self::load_xdp).
    pub(crate) fn load_filter(instructions: &[Instruction], called: &str) -> io::Result<Self> {
        let head = ProgLoad { kind: PROG_TYPE_SOCKET_FILTER, name: name(called), ..FromZeros::new_zeroed() };
        Self::load_logged(instructions, &head)
    }

    fn load_logged(instructions: &[Instruction], head: &ProgLoad) -> io::Result<Self> {
        let mut log = Vec::new();
        let first = Self::load(instructions, head, &mut log);
        match first {
            Err(error)
                if error.raw_os_error() == Some(libc::EINVAL)
                    || error.raw_os_error() == Some(libc::EACCES) =>
            {
                log.resize(LOG, 0);
                Self::load(instructions, head, &mut log).map_err(|error| {
                    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                    let text = String::from_utf8_lossy(&log[..end]);
                    let last: Vec<&str> = text.lines().rev().take(3).collect();
                    let last = last.into_iter().rev().collect::<Vec<_>>().join("; ");
                    if last.is_empty() {
                        error
                    } else {
                        io::Error::new(error.kind(), format!("{error}: {last}"))
                    }
                })
            }
            result => result,
        }
    }

    fn load(instructions: &[Instruction], head: &ProgLoad, log: &mut [u8]) -> io::Result<Self> {
        let attributes = ProgLoad {
            count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            ..*head
        };
        // SAFETY: instructions, licence and log are as long as the attributes say, or a C string, and outlive the call.
        Ok(Self(unsafe { create(PROG_LOAD, &attributes) }?))
    }

    /// Attaches the program to an interface for as long as the link is open. `flags` are `XDP_FLAGS_*`.
    pub(crate) fn attach_xdp(&self, index: u32, flags: u32) -> io::Result<Link> {
        let program = self.0.as_raw_fd() as u32;
        let attributes = LinkCreate { program, target: index, attach_type: ATTACH_XDP, flags };
        // SAFETY: the attributes hold no address.
        Ok(Link(unsafe { create(LINK_CREATE, &attributes) }?))
    }
}

/// An attachment, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
