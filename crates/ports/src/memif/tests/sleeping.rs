//! Events: asked for only by a receiver that sleeps, and never a reason to wait.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::*;

/// How often an event was written.
fn count(event: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    match rustix::io::read(event, &mut bytes) {
        Ok(_) => u64::from_ne_bytes(bytes),
        Err(Errno::AGAIN) => 0,
        Err(error) => panic!("{error}"),
    }
}

/// The descriptors on which a graph's worker sleeps.
fn bed(graph: &mut Graph) -> [OwnedFd; 2] {
    let mut files = Vec::new();
    graph.descriptors(&mut |file| files.push(file.try_clone_to_owned().unwrap()));
    files.try_into().expect("the seat's and the ring's")
}

fn wakes(bed: &[OwnedFd; 2], patience: Duration) -> bool {
    wait([bed[0].as_fd(), bed[1].as_fd()], patience).contains(&true)
}

#[test]
fn a_sleeping_worker_is_woken() {
    for to_server in [true, false] {
        let lab = Lab::new(&format!("sleep-{to_server}"));
        let (mut server, mut client) = lab.pair("");
        let (from, to) = if to_server { (&mut client, &mut server) } else { (&mut server, &mut client) };
        let ((source, mut sends), (sink, mut receives)) = (lab.sender(&mut **from), lab.receiver(&mut **to));
        turns(&mut receives);
        for round in 0..5 {
            assert!(receives.can_sleep());
            let asleep = bed(&mut receives);
            assert!(!wakes(&asleep, Duration::ZERO), "there is nothing");
            assert!(source.push(0, &frame(round, 60)));
            turns(&mut sends);
            assert!(wakes(&asleep, PATIENCE), "{round}");
            turns_until(&mut receives, 2 * round as u64 + 1);
            // What came before the sleep needs no event.
            assert!(source.push(0, &frame(round, 60)));
            turns(&mut sends);
            assert!(wakes(&bed(&mut receives), Duration::ZERO), "{round}");
            turns_until(&mut receives, 2 * round as u64 + 2);
            assert_eq!(sink.frames(0).len(), 2);
        }
    }
}

/// A worker that sleeps while there is no peer is woken by its ring.
#[test]
fn a_ring_wakes_a_sleeping_worker() {
    let lab = Lab::new("bell");
    let mut server = lab.port("server", "");
    let (_sink, mut receives) = lab.receiver(&mut *server);
    turns(&mut receives);
    let mut files = Vec::new();
    receives.descriptors(&mut |file| files.push(file.try_clone_to_owned().unwrap()));
    assert_eq!(files.len(), 1, "the seat's");
    assert_eq!(wait([files[0].as_fd()], Duration::ZERO), [false]);
    let _client = lab.port("client", "");
    assert_eq!(wait([files[0].as_fd()], PATIENCE), [true]);
    turns(&mut receives);
    assert_eq!(wait([files[0].as_fd()], Duration::ZERO), [false]);
}

/// A peer that polls gets no event. One that asks for them gets them.
#[test]
fn events_are_written_only_to_a_peer_that_wants_them() {
    let lab = Lab::new("masked");
    let mut server = lab.port("server", "ring_size = 64");
    let (_channel, agreed) = lab.join("ring_size = 64");
    is_up(&*server);
    let (source, mut sends) = lab.sender(&mut *server);
    let end = &agreed.receive[0];
    let buffers = end.own.unwrap();
    for position in 0..64 {
        let offset = (buffers.first + buffers.size * usize::from(position)) as u32;
        let empty = ring::Descriptor { flags: 0, region: 0, length: 2048, offset };
        end.ring.set_descriptor(position, empty);
    }
    end.ring.set_head(64);
    for round in 0..8 {
        let masked = round % 2 == 0;
        end.ring.set_masked(masked);
        assert!(source.push(0, &frame(round, 60)));
        turns(&mut sends);
        if masked {
            // The next round shows that none was on its way.
            assert_eq!(count(&end.event), 0);
        } else {
            let mut events = 0;
            eventually("an event", || {
                events += count(&end.event);
                events > 0
            });
            assert_eq!(events, 1);
        }
    }
    assert_eq!(end.ring.tail(), 8);
}

/// A peer whose event descriptor blocks holds up neither the worker nor the end of the port.
#[test]
fn an_event_that_blocks_holds_up_nothing() {
    let lab = Lab::new("blocks");
    for _ in 0..2 {
        let mut server = lab.port("server", "ring_size = 64");
        let (channel, agreed) = lab.join("ring_size = 64");
        is_up(&*server);
        let (source, mut sends) = lab.sender(&mut *server);
        let end = &agreed.receive[0];
        let flags = fcntl_getfl(&end.event).unwrap();
        fcntl_setfl(&end.event, flags - OFlags::NONBLOCK).unwrap();
        rustix::io::write(&end.event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        for position in 0..64 {
            let offset = end.own.unwrap().first as u32;
            end.ring.set_descriptor(position, ring::Descriptor { flags: 0, region: 0, length: 2048, offset });
        }
        end.ring.set_head(64);
        for number in 0..64 {
            assert!(source.push(0, &frame(number, 60)));
            assert_eq!(turns(&mut sends).sent.packets, number as u64 + 1);
        }
        drop(sends);
        server.close().unwrap();
        drop(channel);
    }
}

/// The threads that wake peers are bounded, and end with their peers, also where nothing reads their events.
#[test]
fn threads_that_peers_hold_up_are_bounded() {
    let writers = bells::Writers::default();
    let event = || {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        event
    };
    let start = || bells::Bells::start("port", vec![Some(event())], &writers);
    let connected: Vec<_> = (0..8).map(|_| start().unwrap()).collect();
    connected.iter().for_each(|bells| bells.ring(0));
    let refused = start().unwrap_err().to_string();
    assert!(refused.contains("8 earlier peers"), "{refused}");
    writers.stop();
    eventually("the end of a thread", || start().is_ok());
}
