//! Front ends whose requests cannot be met, or that break the protocol.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::cmsg_space;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};

use super::guest::{BASE, END, IN, OUT, USER, unsealed};
use super::*;

/// A request is refused for a reason, and an honest guest comes next.
fn is_refused(name: &str, reason: &str, ask: impl Fn(&mut Guest) -> bool) {
    let mut lab = Lab::new(name, "");
    let mut guest = Guest::connect(&lab, u64::MAX);
    assert!(!ask(&mut guest), "{name} is accepted");
    lab.is_down();
    eventually("the reason", || !lab.port.warnings().is_empty());
    let said = lab.port.warnings();
    assert!(said[0].contains(reason), "{name}: {said:?}");
    drop(guest);
    lab.works();
    lab.finish();
}

#[test]
fn memory_that_may_go_away_is_refused() {
    let shared = |change: &dyn Fn(&mut [VhostUserMemoryRegionInfo; 2]), guest: &Guest| {
        let mut regions = guest.regions();
        change(&mut regions);
        guest.front.set_mem_table(&regions).is_ok()
    };
    let file = unsealed();
    is_refused("unsealed", "`sealed_memory = false`", |guest| {
        shared(&|regions| regions[1].mmap_handle = file.as_raw_fd(), guest)
    });
    is_refused("short", "its file has 2097152", |guest| {
        shared(&|regions| regions[1].memory_size += 1, guest)
    });
    is_refused("behind", "its file has 2097152", |guest| {
        shared(&|regions| regions[1].mmap_offset = 1 << 40, guest)
    });
    is_refused("overlap", "memory regions of the peer", |guest| {
        shared(&|regions| regions[1].guest_phys_addr -= 4096, guest)
    });
    is_refused("uneven", "mapping it", |guest| shared(&|regions| regions[1].mmap_offset -= 1, guest));
    let status = std::fs::File::open("/proc/self/status").unwrap();
    is_refused("no-memory-file", "no memory file", |guest| {
        shared(&|regions| regions[0].mmap_handle = status.as_raw_fd(), guest)
    });
    is_refused("without-rings", "is in no memory region", |guest| {
        guest.front.set_mem_table(&guest.regions()[1..]).is_ok()
    });
}

#[test]
fn memory_without_seals_is_taken_where_the_port_is_told_to() {
    let lab = Lab::new("trusting", "sealed_memory = false");
    let guest = Guest::connect(&lab, u64::MAX);
    let file = unsealed();
    let regions =
        guest.regions().map(|region| VhostUserMemoryRegionInfo { mmap_handle: file.as_raw_fd(), ..region });
    guest.front.set_mem_table(&regions).unwrap();
    assert_eq!(lab.port.link(), Link::Up);
    let status = std::fs::File::open("/proc/self/status").unwrap();
    let regions =
        regions.map(|region| VhostUserMemoryRegionInfo { mmap_handle: status.as_raw_fd(), ..region });
    assert!(guest.front.set_mem_table(&regions).is_err(), "only of a memory file");
    lab.finish();
}

#[test]
fn virtqueues_that_cannot_be_are_refused() {
    let addresses = |change: &dyn Fn(&mut vhost::VringConfigData), guest: &Guest| {
        let mut places = Guest::places(OUT);
        change(&mut places);
        guest.front.set_vring_addr(OUT, &places).is_ok()
    };
    is_refused("features", "features that were not offered", |guest| {
        guest.front.set_features(guest.features | 1 << 34).is_ok()
    });
    is_refused("size", "power of two", |guest| guest.front.set_vring_num(OUT, 48).is_ok());
    is_refused("size-0", "power of two", |guest| guest.front.set_vring_num(OUT, 0).is_ok());
    is_refused("number", "virtqueue 2", |guest| guest.front.set_vring_num(2, 64).is_ok());
    is_refused("move", "while it runs", |guest| guest.front.set_vring_base(IN, 7).is_ok());
    is_refused("place", "is in no memory region", |guest| {
        addresses(&|places| places.used_ring_addr = 4096, guest)
    });
    is_refused("uneven-place", "invalid message", |guest| {
        addresses(&|places| places.desc_table_addr += 8, guest)
    });
    is_refused("last-place", "not inside", |guest| {
        addresses(&|places| places.avail_ring_addr = USER + (END - BASE) - 16, guest)
    });
}

/// A message of the protocol: a request's number, and a body.
fn message(request: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = request.to_le_bytes().to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(body);
    bytes
}

fn connect(lab: &Lab) -> UnixStream {
    UnixStream::connect(lab.path()).unwrap()
}

/// Waits until the port has ended a connection.
fn is_ended(mut stream: UnixStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = Vec::new();
    // It is reset where bytes were left unread.
    if let Err(error) = stream.read_to_end(&mut said) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
}

const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;

/// A file that is no event would make a wait for it depend on the peer.
#[test]
fn only_events_are_taken_for_events() {
    for request in [SET_VRING_KICK, SET_VRING_CALL] {
        let mut lab = Lab::new(&format!("no-event-{request}"), "");
        let stream = connect(&lab);
        let (reader, _writer) = std::io::pipe().unwrap();
        let files: [BorrowedFd<'_>; 1] = [reader.as_fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        let bytes = message(request, &1_u64.to_le_bytes());
        rustix::net::sendmsg(&stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty()).unwrap();
        is_ended(stream);
        eventually("the reason", || !lab.port.warnings().is_empty());
        assert!(lab.port.warnings()[0].contains("no eventfd"), "{:?}", lab.port.warnings());
        lab.works();
        lab.finish();
    }
}

/// A front end may stop in the middle of a message: the port can end, and serves the next one.
#[test]
fn a_message_that_does_not_end_holds_up_nothing() {
    for len in [1, 11, 12, 15] {
        let mut lab = Lab::new(&format!("part-{len}"), "");
        let mut stream = connect(&lab);
        stream.write_all(&message(2, &[0; 8])[..len]).unwrap();
        drop(stream);
        lab.works();
        let mut stream = connect(&lab);
        stream.write_all(&message(2, &[0; 8])[..len]).unwrap();
        lab.finish();
        is_ended(stream);
    }
}

/// Any bytes are served or refused.
#[test]
fn any_bytes_are_served_or_refused() {
    let mut lab = Lab::new("bytes", "");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for round in 0..60_u32 {
        let mut stream = connect(&lab);
        for _ in 0..4 {
            let mut body = vec![0; (random.next_u32() % 64) as usize];
            random.fill_bytes(&mut body);
            let len = if round % 2 == 0 { 8 } else { body.len() };
            body.resize(len, 0);
            if len >= 8 && random.next_u32() % 2 == 0 {
                // Small numbers are those of virtqueues.
                body[..8].copy_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0]);
            }
            // The port may have refused an earlier one.
            let _ = stream.write_all(&message(random.next_u32() % 44, &body));
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        is_ended(stream);
    }
    let said = lab.port.warnings();
    assert!(said.iter().all(|said| !said.contains("panic")), "{said:?}");
    lab.works();
    lab.finish();
}

#[test]
fn a_port_serves_one_guest_and_ends_other_connections() {
    let mut lab = Lab::new("one", "");
    let mut guest = Guest::connect(&lab, u64::MAX);
    is_ended(connect(&lab));
    guest.echo(&mut lab, &[frame(1, 60)]);
    lab.finish();
}

#[test]
fn a_socket_has_one_port_and_a_killed_ones_is_replaced() {
    let lab = Lab::new("socket", "");
    let path = lab.path();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let cx = context(&lab.pool, &lab.directory);
    let said = open("vhost-user", "socket = \"s\"", &cx).map(|_| ()).unwrap_err().to_string();
    assert!(said.contains("listens there") && said.contains(&path.display().to_string()), "{said}");
    let long = format!("socket = \"{}\"", "x".repeat(100));
    let said = open("vhost-user", &long, &cx).map(|_| ()).unwrap_err().to_string();
    assert!(said.contains("107 bytes"), "{said}");
    lab.finish();
}
