//! Peers that do not keep to the protocol while they connect.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::message::{AddRing, Hello, Init, LEN, NAME, SECRET, VERSION, padded};
use super::*;
use crate::sys::shared::SharedMemory;

fn init() -> Init {
    let secret = padded(b"open", SECRET);
    Init { version: VERSION, id: 7, mode: 0, secret, name: padded(b"test", NAME) }
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

fn memory(len: usize) -> OwnedFd {
    SharedMemory::create("test", len).unwrap().1
}

fn ring(to_server: bool) -> AddRing {
    AddRing { to_server, index: 0, region: 0, offset: 0, log2_size: 4, private_header: 0 }
}

/// A client that has come as far as INIT.
struct Client(Channel);

impl Client {
    fn greeted(lab: &Lab) -> Self {
        let channel = lab.connect();
        let Ok(Message::Hello(hello)) = hear(&channel) else { panic!() };
        assert_eq!((hello.min_version, hello.max_version, hello.max_region), (VERSION, VERSION, 255));
        assert_eq!((hello.max_s2m_ring, hello.max_m2s_ring, hello.max_log2_ring_size), (0, 0, 5));
        Self(channel)
    }
    fn known(lab: &Lab) -> Self {
        let client = Self::greeted(lab);
        client.well(Message::Init(init()), None);
        client
    }
    fn say(&self, message: Message, file: Option<&OwnedFd>) -> Result<Message, String> {
        self.0.send(&message, file.map(AsFd::as_fd)).unwrap();
        hear(&self.0)
    }
    fn well(&self, message: Message, file: Option<&OwnedFd>) {
        assert_eq!(self.say(message, file), Ok(Message::Ack), "{message:?}");
    }
    fn raw(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<Message, String> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
        hear(&self.0)
    }
}

const SERVER: &str = "id = 7\nsecret = \"open\"\nring_size = 32";

/// Each refusal reaches the peer and the port's warnings, and the next peer is served.
fn refused(lab: &Lab, server: &dyn Port, said: Result<Message, String>, expected: &str) {
    // The peer is told as much of the reason as a message has room for.
    let said = said.expect_err(expected);
    assert!(said.starts_with("the peer ended the connection: \""), "expected {expected}: {said}");
    eventually("a warning", || server.warnings().iter().any(|warning| warning.contains(expected)));
    let client = lab.port("client", SERVER);
    is_up(&*client);
    is_up(server);
    drop(client);
    eventually("the end", || server.link() == Link::Down);
}

#[test]
fn a_client_that_is_another_is_refused() {
    let lab = Lab::new("init");
    let server = lab.port("server", SERVER);
    for (wrong, expected) in [
        (Init { version: 0x0300, ..init() }, "version 0x0300"),
        (Init { id: 8, ..init() }, "`id` 7"),
        (Init { mode: 1, ..init() }, "mode 1"),
        (Init { secret: padded(b"opem", SECRET), ..init() }, "secret"),
        (Init { secret: [0; SECRET], ..init() }, "secret"),
    ] {
        let said = Client::greeted(&lab).say(Message::Init(wrong), None);
        refused(&lab, &*server, said, expected);
    }
    let said = Client::greeted(&lab).say(Message::Ack, None);
    refused(&lab, &*server, said, "expected INIT from the peer, got ACK");
    let said = Client::known(&lab).say(Message::Init(init()), None);
    refused(&lab, &*server, said, "expected ADD_REGION, ADD_RING or CONNECT from the peer, got INIT");
}

#[test]
fn memory_that_cannot_be_trusted_is_refused() {
    let lab = Lab::new("regions");
    let server = lab.port("server", SERVER);
    let loose = rustix::fs::memfd_create("loose", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&loose, 8192).unwrap();
    let huge = rustix::fs::memfd_create("huge", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&huge, 1 << 31).unwrap();
    rustix::fs::fcntl_add_seals(&huge, SealFlags::SHRINK).unwrap();
    let file: OwnedFd = std::fs::File::open("/proc/self/status").unwrap().into();
    let good = memory(8192);
    for (index, size, file, expected) in [
        (0, 8192, None, "did not come with the message"),
        (1, 8192, Some(&good), "0 was next"),
        (0, 8193, Some(&good), "1 to 8192 bytes"),
        (0, 0, Some(&good), "1 to 8192 bytes"),
        (0, u64::MAX, Some(&good), "may share 1024 MiB"),
        (0, (1 << 30) + 1, Some(&huge), "may share 1024 MiB"),
        (0, 8192, Some(&loose), "F_SEAL_SHRINK"),
        (0, 1, Some(&file), "memfd_create"),
    ] {
        let said = Client::known(&lab).say(Message::AddRegion { index, size }, file);
        refused(&lab, &*server, said, expected);
    }
    // The limit is for all regions together.
    let client = Client::known(&lab);
    client.well(Message::AddRegion { index: 0, size: 1 << 30 }, Some(&huge));
    let said = client.say(Message::AddRegion { index: 1, size: 1 }, Some(&good));
    refused(&lab, &*server, said, "may share 1024 MiB");
    let client = Client::known(&lab);
    (0..256).for_each(|index| client.well(Message::AddRegion { index, size: 4096 }, Some(&good)));
    let said = client.say(Message::AddRegion { index: 256, size: 4096 }, Some(&good));
    refused(&lab, &*server, said, "at most 256");
}

#[test]
fn rings_that_are_not_where_they_should_be_are_refused() {
    let lab = Lab::new("rings");
    let server = lab.port("server", SERVER);
    let (good, memory) = (event(), memory(8192));
    let other: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    for (wrong, event, expected) in [
        (ring(true), None, "did not come with the message"),
        (ring(true), Some(&other), "no eventfd"),
        (ring(true), Some(&memory), "no eventfd"),
        (AddRing { index: 1, ..ring(true) }, Some(&good), "0 was next"),
        (AddRing { log2_size: 6, ..ring(true) }, Some(&good), "2^6 descriptors, and `ring_size` is 32"),
        (AddRing { log2_size: 255, ..ring(true) }, Some(&good), "2^255"),
        (AddRing { private_header: 4, ..ring(true) }, Some(&good), "private header of 4"),
    ] {
        let said = Client::known(&lab).say(Message::AddRing(wrong), event);
        refused(&lab, &*server, said, expected);
    }
    let client = Client::known(&lab);
    client.well(Message::AddRing(ring(false)), Some(&good));
    let said = client.say(Message::AddRing(AddRing { index: 1, ..ring(false) }), Some(&good));
    refused(&lab, &*server, said, "at most `queues` (1)");
    // What a ring says about its place is looked at when all regions are there.
    for (wrong, expected) in [
        (AddRing { region: 1, ..ring(true) }, "not inside region 1"),
        (AddRing { region: u16::MAX, ..ring(true) }, "not inside region 65535"),
        (AddRing { offset: 8192 - 128, ..ring(true) }, "not inside region 0"),
        (AddRing { offset: u32::MAX - 15, ..ring(true) }, "not inside region 0"),
        (AddRing { offset: 8, ..ring(true) }, "misaligned"),
        (ring(true), "cookie"),
    ] {
        let client = Client::known(&lab);
        client.well(Message::AddRegion { index: 0, size: 8192 }, Some(&memory));
        client.well(Message::AddRing(wrong), Some(&good));
        client.well(Message::AddRing(ring(false)), Some(&good));
        let said = client.say(Message::Connect { name: [0; NAME] }, None);
        refused(&lab, &*server, said, expected);
    }
    for rings in [&[][..], &[true], &[false]] {
        let client = Client::known(&lab);
        rings.iter().for_each(|to_server| client.well(Message::AddRing(ring(*to_server)), Some(&good)));
        let said = client.say(Message::Connect { name: [0; NAME] }, None);
        refused(&lab, &*server, said, "this port needs a ring");
    }
}

#[test]
fn bytes_that_are_no_message_are_refused() {
    let lab = Lab::new("bytes");
    let server = lab.port("server", SERVER);
    for (bytes, expected) in [
        (&[0; LEN][..], "found 0"),
        (&[9; LEN], "found 2313"),
        (&[3; 1], "128 bytes, found 1"),
        (&[3; 4000], "longer than 128 bytes"),
    ] {
        let said = Client::greeted(&lab).raw(bytes, &[]);
        refused(&lab, &*server, said, expected);
    }
    let files = [event(), event(), event()];
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // Descriptors that were not asked for do not stay open in the server, which is this process.
    let mut most = 0;
    for round in 0..50 {
        let said = Client::known(&lab).raw(&Message::Connect { name: [0; NAME] }.encode(), &files);
        assert!(said.unwrap_err().contains("several descriptors"));
        match round {
            0..10 => most = most.max(open() + 90),
            _ => assert!(open() <= most, "{} of {most}", open()),
        }
    }
    // While packets flow, the only message is the end.
    let client = lab.port("client", SERVER);
    is_up(&*client);
    drop(client);
    let peer = lab.peer("client", SERVER);
    let channel = lab.connect();
    handshake::join(&channel, &peer).unwrap();
    is_up(&*server);
    channel.send(&Message::Ack, None).unwrap();
    let said = hear(&channel).unwrap_err();
    assert!(said.contains("ACK while packets flow"), "{said}");
}

/// A peer that goes away in the middle, at every step, leaves the server as it was.
#[test]
fn a_client_may_go_away_at_any_step() {
    let lab = Lab::new("away");
    let server = lab.port("server", SERVER);
    for _ in 0..3 {
        drop(lab.connect());
        drop(Client::greeted(&lab));
        drop(Client::known(&lab));
    }
    let client = lab.port("client", SERVER);
    is_up(&*client);
    is_up(&*server);
    assert!(server.warnings().is_empty(), "{:?}", server.warnings());
}

#[test]
fn a_server_that_is_another_is_refused() {
    let hello = Hello {
        name: [0; NAME],
        min_version: VERSION,
        max_version: VERSION,
        max_region: 0,
        max_m2s_ring: 1,
        max_s2m_ring: 1,
        max_log2_ring_size: 10,
    };
    for (number, (wrong, expected)) in [
        (
            Message::Hello(Hello { min_version: 0x0201, max_version: 0x0300, ..hello }),
            "versions 0x0201 to 0x0300",
        ),
        (Message::Hello(Hello { max_version: 0x01ff, min_version: 0, ..hello }), "versions 0x0000 to 0x01ff"),
        (Message::Hello(Hello { max_m2s_ring: 0, ..hello }), "takes 1 rings a direction, and `queues` is 2"),
        (Message::Ack, "expected HELLO from the peer, got ACK"),
        (Message::disconnect("not today"), "not today"),
    ]
    .into_iter()
    .enumerate()
    {
        let lab = Lab::new(&format!("hello{number}"));
        let client = lab.port("client", "queues = 2");
        let listener = Listener::open("peer", &lab.directory.0.join("s")).unwrap();
        let mut found = None;
        eventually("a client", || {
            found = listener.accept();
            found.is_some()
        });
        let channel = found.unwrap();
        channel.send(&wrong, None).unwrap();
        eventually("a warning", || client.warnings().iter().any(|warning| warning.contains(expected)));
        assert_eq!(client.link(), Link::Down);
    }
}

/// The smaller ring counts, and an id and a secret that fit.
#[test]
fn ends_with_different_rings_agree() {
    let lab = Lab::new("agree");
    let server = lab.port("server", SERVER);
    let client = lab.port("client", "id = 7\nsecret = \"open\"\nring_size = 4096");
    is_up(&*client);
    is_up(&*server);
    drop((client, server));
    let lab = Lab::new("secrets");
    let server = lab.port("server", "secret = \"open\"");
    let client = lab.port("client", "");
    eventually("a refusal", || client.warnings().iter().any(|warning| warning.contains("secret")));
    assert!(server.link() == Link::Down && client.link() == Link::Down);
}
