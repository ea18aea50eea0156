//! The listener with a fake dataplane behind it, asked by the client and by raw bytes.

mod access;
mod bodies;
#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;
mod hostile;
mod live;
mod logged;
mod openapi;
mod paths;
mod plane;
mod rules;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// A path for a socket of this test.
fn place(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("nb-server-{}-{name}", std::process::id()));
    let _old = std::fs::remove_dir_all(&directory);
    directory.join("test.sock")
}

/// A response, as far as tests look at it.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    /// The value of a header.
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
    /// The body as JSON.
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends bytes and reads the response to the end of the connection.
fn exchange(mut stream: impl Read + Write, request: &[u8]) -> Reply {
    // The server may answer and close before it has read everything.
    let _closed = stream.write_all(request);
    read_reply(&mut stream)
}

fn read_reply(stream: &mut impl Read) -> Reply {
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    while let Ok(count) = stream.read(&mut piece) {
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&piece[..count]);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}

/// One request over a Unix socket.
fn ask(socket: &Path, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let stream = std::os::unix::net::UnixStream::connect(socket).expect("the server listens");
    exchange(stream, &request(method, path, headers, body))
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        request += &format!("content-length: {}\r\n", body.len());
    }
    request += "\r\n";
    [request.as_bytes(), body].concat()
}
