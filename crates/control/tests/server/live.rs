//! Streams: events and counters as they come, and readers that do not keep up.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use netbricks_control::api::{Code, EventLevel};

use crate::plane::Running;
use crate::{ask, request};

#[test]
fn events_come_as_they_happen() {
    let running = Running::new("events");
    let tell = |message: &str| running.events.tell(EventLevel::Info, "test", "lan", message);
    tell("before");
    let mut all = running.client().events(Some(0)).expect("a stream");
    assert_eq!(all.next().expect("an event").expect("whole").message, "before");
    // A stream without a number begins with what comes, and has begun when its call returns.
    let mut new = running.client().events(None).expect("a stream");
    tell("after");
    for stream in [&mut all as &mut dyn Iterator<Item = _>, &mut new] {
        let event = stream.next().expect("an event").expect("whole");
        assert_eq!((event.number, &*event.message, &*event.subject), (1, "after", "lan"));
    }
    running.client().suspend().expect("suspended");
    assert_eq!(new.next().expect("an event").expect("whole").kind, "suspended");
    assert_eq!(running.client().events_so_far(1).expect("events").len(), 2);
    // With the listener, streams end.
    drop(running);
    assert!(new.all(|event| event.is_ok()));
}

#[test]
fn browsers_go_on_where_they_were() {
    let running = Running::new("last-event-id");
    for message in ["zero", "one", "two"] {
        running.events.tell(EventLevel::Info, "test", "", message);
    }
    for (last, expected) in [("0", "id: 1\n"), ("1", "id: 2\n"), ("77", "id: 0\n")] {
        let mut stream = UnixStream::connect(running.socket()).expect("it listens");
        let headers = [("accept", "text/event-stream"), ("last-event-id", last)];
        stream.write_all(&request("GET", "/v1/events", &headers, b"")).expect("it reads");
        let mut text = String::new();
        let mut piece = [0; 1_024];
        while !text.contains("data: ") {
            let count = stream.read(&mut piece).expect("it goes on");
            text += &String::from_utf8_lossy(&piece[..count]);
        }
        assert!(text.contains(&format!("event: test\n{expected}")), "{text}");
    }
}

#[test]
fn counters_come_again_and_again() {
    let running = Running::new("rounds");
    let mut rounds = running.client().stats_every(0.1).expect("a stream");
    for _ in 0..3 {
        assert_eq!(rounds.next().expect("a round").expect("whole").ports[0].port, "lan");
    }
    for wrong in ["0", "0.01", "4000", "-1", "NaN", "x"] {
        let reply = ask(running.socket(), "GET", &format!("/v1/stats?every={wrong}"), &[], b"");
        assert_eq!(reply.status, 400, "{wrong}");
    }
}

#[test]
fn a_slow_reader_is_told_what_it_lost() {
    let running = Running::limited("lost", |limits| limits.unread = Duration::from_secs(600));
    let mut stream = running.client().events(None).expect("a stream");
    let message = "x".repeat(1_000);
    for _ in 0..30_000 {
        running.events.tell(EventLevel::Info, "test", "", &*message);
    }
    let (mut next, mut lost) = (0, 0);
    while next < 30_000 {
        let event = stream.next().expect("an event").expect("whole");
        if event.kind == "missed" {
            lost += event.number + 1 - next;
            assert!(event.message.starts_with(&(event.number + 1 - next).to_string()), "{}", event.message);
        } else {
            assert_eq!(event.number, next);
        }
        next = event.number + 1;
    }
    assert!(lost > 0);
}

#[test]
fn a_reader_that_never_reads_is_cut_off() {
    let running = Running::limited("never", |limits| {
        limits.streams = 1;
        limits.unread = Duration::from_millis(100);
    });
    let mut stream = UnixStream::connect(running.socket()).expect("it listens");
    stream.write_all(&request("GET", "/v1/events?follow", &[], b"")).expect("it reads");
    stream.read_exact(&mut [0; 12]).expect("the stream begins");
    let full = running.client().events(None).err().expect("one stream is open already");
    assert_eq!(full.code, Code::Busy, "{full}");
    let message = "x".repeat(1_000);
    while running.client().events(None).is_err() {
        for _ in 0..1_000 {
            running.events.tell(EventLevel::Info, "test", "", &*message);
        }
    }
}

#[test]
fn whole_answers_can_be_downloaded() {
    let running = Running::new("download");
    let mut bytes = Vec::new();
    let count = running.client().download("openapi.json", &mut bytes).expect("it is there");
    assert_eq!(String::from_utf8(bytes).expect("text"), netbricks_control::server::document());
    assert_eq!(count as usize, netbricks_control::server::document().len());
    let lines = running.client().stream("openapi.json").expect("it is there");
    assert_eq!(lines.last().expect("lines").expect("whole"), "}");
    assert_eq!(
        running.client().download("nothing", Vec::new()).expect_err("no such path").code,
        Code::NotFound
    );
}
