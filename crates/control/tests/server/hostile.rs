//! Clients that send too much, too little, nothing, or nonsense. Each gets a clear answer, and the next is served.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use netbricks_control::api::Code;

use crate::plane::Running;
use crate::{Reply, ask, exchange, read_reply, request};

const PUT: &str = "/v1/functions/routes/handlers/add";

#[test]
fn broken_json_is_refused_with_its_place() {
    let running = Running::new("json");
    for (body, place) in [
        (&b"{"[..], "line 1, column 1"),
        (b"{\n\"value\": 1}", "line 2, column 10"),
        (b"\"value\"", "line 1, column 7"),
        (b"{\"value\":\"x\",\"worker\":-1}", "line 1"),
        (b"{\"value\":\"x\",\"wroker\":1}", "line 1"),
        (b"{\"value\":\"\\ud800\"}", "line 1"),
        (b"\xff\xfe", "line 1"),
        (&[b'['; 100_000], "line 1"),
    ] {
        let reply = ask(running.socket(), "PUT", PUT, &[], body);
        assert_eq!((reply.status, &reply.json()["code"]), (400, &"bad-request".into()), "{reply:?}");
        assert!(reply.body.contains(place), "{}", reply.body);
    }
    for path in ["/v1/apply", "/v1/plan"] {
        assert_eq!(ask(running.socket(), "POST", path, &[], b"{}").status, 400);
        assert_eq!(ask(running.socket(), "POST", path, &[], b"").status, 400);
    }
    assert!(running.client().status().is_ok());
}

#[test]
fn requests_that_are_no_http_end_their_connection() {
    let running = Running::new("nonsense");
    let long = [&b"GET /"[..], &[b'x'; 200_000]].concat();
    let many = [&b"GET / HTTP/1.1\r\n"[..], &b"x: y\r\n".repeat(10_000)].concat();
    let wrong: [&[u8]; 6] = [
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\r\n\r\n",
        &long,
        &many,
    ];
    for request in wrong {
        let stream = UnixStream::connect(running.socket()).expect("it listens");
        let status = exchange(stream, request).status;
        assert!(matches!(status, 0 | 400..=499), "{status}");
    }
    assert!(running.client().status().is_ok());
}

/// Sends a body in pieces until the server answers, and at most `most` bytes. Answers how many it took.
fn pour(running: &Running, headers: &[(&str, &str)], most: usize) -> (usize, Reply) {
    let mut stream = UnixStream::connect(running.socket()).expect("it listens");
    let headers = [&[("transfer-encoding", "chunked")], headers].concat();
    stream.write_all(&request("PUT", PUT, &headers, b"")).expect("the server reads the head");
    let piece = [b"10000\r\n", &[b'x'; 0x10000][..], b"\r\n"].concat();
    let mut sent = 0;
    while sent < most && stream.write_all(&piece).is_ok() {
        sent += 0x10000;
    }
    (sent, read_reply(&mut stream))
}

#[test]
fn a_gigabyte_is_refused_before_it_is_read() {
    let running = Running::new("gigabyte");
    // Its length says so: nothing of it is read.
    let head = [("content-length", "1073741824")];
    for headers in [&head[..], &[head[0], ("content-type", "text/plain")]] {
        let reply = ask(running.socket(), "PUT", PUT, headers, b"");
        assert_eq!((reply.status, &reply.json()["code"]), (413, &"too-large".into()), "{reply:?}");
    }
    // Its length is not known: reading stops at the limit.
    let slack = 4 << 20;
    for (kind, limit) in [("application/json", 1 << 20), ("text/plain", 64 << 20)] {
        let (sent, reply) = pour(&running, &[("content-type", kind)], 1 << 30);
        assert_eq!(reply.status, 413, "{kind}: {reply:?}");
        assert!(sent < limit + slack, "{kind}: {sent} bytes were taken");
    }
    assert!(running.client().status().is_ok());
}

#[test]
fn a_client_learns_that_its_value_is_too_large() {
    let running = Running::new("too-large");
    let value = "x".repeat(65 << 20);
    for _ in 0..20 {
        let problem = running.client().write("routes", "add", &value, None).expect_err("too large");
        assert_eq!(problem.code, Code::TooLarge, "{problem}");
        let problem = running.client().plan(&crate::plane::file(&value)).expect_err("too large");
        assert_eq!(problem.code, Code::TooLarge, "{problem}");
    }
}

#[test]
fn bodies_share_a_bounded_memory() {
    let running = Running::limited("memory", |limits| limits.memory = 1 << 20);
    // What has arrived of a body counts already.
    let mut first = UnixStream::connect(running.socket()).expect("it listens");
    let text = [("content-type", "text/plain"), ("content-length", "400000"), ("expect", "100-continue")];
    first.write_all(&request("PUT", PUT, &text, b"")).expect("the server reads");
    let mut go_on = [0; 25];
    first.read_exact(&mut go_on).expect("the server answers");
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    first.write_all(&[b'x'; 300_000]).expect("the server reads");
    // The server may not have read it yet.
    let large = loop {
        let large = ask(running.socket(), "PUT", PUT, &text[..1], &[b'x'; 500_000]);
        if large.status != 200 {
            break large;
        }
    };
    assert_eq!((large.status, large.header("retry-after")), (503, Some("1")), "{large:?}");
    first.write_all(&[b'x'; 100_000]).expect("the server reads");
    assert_eq!(read_reply(&mut first).status, 200);
    let (_, reply) = pour(&running, &text[..1], 1 << 30);
    assert_eq!(reply.status, 503);
    // What was taken is free again.
    while ask(running.socket(), "PUT", PUT, &text[..1], &[b'x'; 500_000]).status != 200 {}
}

#[test]
fn a_length_that_is_announced_takes_no_memory() {
    let running = Running::limited("announced", |limits| limits.memory = 1 << 20);
    let head = [("content-type", "text/plain"), ("content-length", "1000000"), ("expect", "100-continue")];
    let held = (0..2).map(|_| {
        let mut stream = UnixStream::connect(running.socket()).expect("it listens");
        stream.write_all(&request("PUT", PUT, &head, b"")).expect("the server reads");
        stream.read_exact(&mut [0; 25]).expect("the server waits for the body");
        stream
    });
    let held: Vec<UnixStream> = held.collect();
    assert_eq!(ask(running.socket(), "PUT", PUT, &head[..1], &[b'x'; 300_000]).status, 200);
    drop(held);
}

#[test]
fn ten_thousand_connections_are_answered() {
    // Those that are let in stay open, and say nothing more.
    let running = Running::limited("connections", |limits| limits.head = Duration::from_secs(600));
    let mut inside = Vec::new();
    for _ in 0..64 {
        let mut stream = UnixStream::connect(running.socket()).expect("it listens");
        stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n").expect("it reads");
        let mut first = [0; 12];
        stream.read_exact(&mut first).expect("it answers");
        assert_eq!(&first, b"HTTP/1.1 200");
        inside.push(stream);
    }
    for _ in 0..10_000 {
        let reply = ask(running.socket(), "GET", "/v1/status", &[], b"");
        assert_eq!((reply.status, &reply.json()["code"]), (503, &"busy".into()));
    }
    // Some that say nothing, all at once.
    let silent: Vec<_> = (0..500).map_while(|_| UnixStream::connect(running.socket()).ok()).collect();
    assert_eq!(silent.len(), 500);
    for mut stream in silent {
        assert!(matches!(read_reply(&mut stream).status, 0 | 503));
    }
    let problem = running.client().status().expect_err("no place is free");
    assert_eq!(problem.code, Code::Busy, "{problem}");
    drop(inside);
    while running.client().status().is_err() {}
}

#[test]
fn clients_that_send_slowly_are_cut_off() {
    let running = Running::limited("slow", |limits| {
        limits.connections = 3;
        limits.head = Duration::from_secs(2);
        limits.upload = Duration::from_secs(2);
    });
    let mut head = UnixStream::connect(running.socket()).expect("it listens");
    head.write_all(b"GET /v1/status HTTP/1.1\r\nhos").expect("it reads");
    let mut idle = UnixStream::connect(running.socket()).expect("it listens");
    let mut body = UnixStream::connect(running.socket()).expect("it listens");
    body.write_all(&request("PUT", PUT, &[("content-length", "10")], b"")).expect("it reads");
    // Each ends without a further byte from here.
    let reply = read_reply(&mut body);
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("did not arrive within 2 s"), "{}", reply.body);
    for stream in [&mut head, &mut idle] {
        assert!(matches!(read_reply(stream).status, 0 | 408));
    }
    let mut kept = UnixStream::connect(running.socket()).expect("it listens");
    kept.write_all(b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n").expect("it reads");
    assert_eq!(read_reply(&mut kept).status, 200);
    while running.client().status().is_err() {}
}

#[test]
fn a_client_that_reads_no_answer_is_cut_off() {
    let running = Running::limited("unread", |limits| {
        limits.connections = 1;
        limits.unread = Duration::from_millis(100);
        limits.head = Duration::from_secs(600);
    });
    let mut stream = UnixStream::connect(running.socket()).expect("it listens");
    let ask = b"GET /v1/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n";
    while stream.write_all(ask).is_ok() {}
    while running.client().status().is_err() {}
}
