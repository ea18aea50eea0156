//! The contents of packets: filling, DNS messages, HTTP messages.

use std::net::IpAddr;

use rand_xoshiro::rand_core::Rng;

use super::flow::Flow;

/// Contents of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// Zeros.
    #[default]
    Zero,
    /// Bytes that count from 0 to 255 again and again.
    Pattern,
    /// Random bytes.
    Random,
    /// DNS queries and their answers (RFC 1035).
    Dns,
    /// HTTP/1.1 requests and their answers (RFC 9112).
    Http,
}

impl Payload {
    /// The number of bytes that a frame may have even if its size is smaller.
    ///
    /// That is all headers with all their options and a byte, or a short message.
    pub(super) fn least(self) -> usize {
        match self {
            Self::Zero | Self::Pattern | Self::Random => 128,
            Self::Dns | Self::Http => 256,
        }
    }
}

/// Writes into a slice from the front; bytes that do not fit are left out.
pub(super) struct Pen<'b> {
    room: &'b mut [u8],
    len: usize,
}

impl<'b> Pen<'b> {
    pub(super) fn new(room: &'b mut [u8]) -> Self {
        Self { room, len: 0 }
    }
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(self.room.len() - self.len);
        self.room[self.len..self.len + count].copy_from_slice(&bytes[..count]);
        self.len += count;
    }
    fn put16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }
    pub(super) fn put_number(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return self.put(&digits[at..]);
            }
        }
    }
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Fills `room` with the bytes of the stream from `offset` on.
pub(super) fn fill(room: &mut [u8], payload: Payload, offset: u64, random: &mut impl Rng) {
    match payload {
        Payload::Zero => room.fill(0),
        Payload::Random => {
            for chunk in room.chunks_mut(8) {
                chunk.copy_from_slice(&random.next_u64().to_le_bytes()[..chunk.len()]);
            }
        }
        Payload::Pattern | Payload::Dns | Payload::Http => {
            for (byte, place) in (offset as u8..=255).chain((0..=255).cycle()).zip(room) {
                *place = byte;
            }
        }
    }
}

/// Writes the DNS message number `message` of a flow: queries are even, their answers odd.
///
/// Answers its length, at most 100 bytes.
pub(super) fn dns(room: &mut [u8], flow: &Flow, message: u64) -> usize {
    let is_answer = message % 2 == 1;
    // Types A and AAAA, answered from the addresses for documentation.
    let (kind, address): (u16, &[u8]) = match flow.server {
        IpAddr::V4(_) => (1, &[198, 51, 100, 1]),
        IpAddr::V6(_) => (28, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    };
    let mut pen = Pen::new(room);
    pen.put16((message / 2 + flow.number) as u16);
    // A query that asks for recursion; an answer with recursion (RFC 1035, section 4.1.1).
    pen.put16(if is_answer { 0x8180 } else { 0x0100 });
    pen.put16(1);
    pen.put16(u16::from(is_answer));
    pen.put16(0);
    pen.put16(0);
    // hNUMBER.example.net
    let mut label = [0; 21];
    let len = {
        let mut pen = Pen::new(&mut label);
        pen.put(b"h");
        pen.put_number(flow.number);
        pen.len()
    };
    pen.put(&[len as u8]);
    pen.put(&label[..len]);
    pen.put(b"\x07example\x03net\x00");
    pen.put16(kind);
    pen.put16(1);
    if is_answer {
        pen.put16(0xc00c);
        pen.put16(kind);
        pen.put16(1);
        pen.put(&[0, 0, 1, 44]);
        pen.put16(address.len() as u16);
        pen.put(address);
    }
    pen.len()
}

/// The longest head of an HTTP message here, in bytes.
pub(super) const HEAD: usize = 128;

/// Writes an HTTP request for an object; answers its length.
pub(super) fn http_request(room: &mut [u8; HEAD], object: u64) -> usize {
    let mut pen = Pen::new(room);
    pen.put(b"GET /objects/");
    pen.put_number(object);
    pen.put(b" HTTP/1.1\r\nHost: example.net\r\nAccept: */*\r\n\r\n");
    pen.len()
}

/// Writes the head of an HTTP answer with a body of `body` bytes; answers its length.
pub(super) fn http_answer(room: &mut [u8; HEAD], body: u64) -> usize {
    let mut pen = Pen::new(room);
    pen.put(b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: ");
    pen.put_number(body);
    pen.put(b"\r\n\r\n");
    pen.len()
}
