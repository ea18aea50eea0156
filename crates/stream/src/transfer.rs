//! The positions of all connections as bytes, which another reassembler takes over in a live change.
//!
//! The new reassembler continues in the middle of streams. Out-of-order bytes are not included: the old
//! reassembler delivers them to its own users when it is taken down.

use netbricks_core::packet::checksum;

use super::connection::{Connection, Direction, Phase, Start};
use super::reader::number;
use super::reassembler::Reassembler;
use super::segment::{Protocol, Signatures};

/// The version (2 bytes) and the number of connections (4 bytes).
const HEAD: usize = 6;
/// The key, the index of the client's direction, and both directions.
pub(super) const CONNECTION: usize = 40 + 1 + 2 * DIRECTION;
/// The phase, the kind of start, the signatures, five positions, and the number of urgent bytes.
const DIRECTION: usize = 3 + 6 * 8;
const VERSION: u16 = 6;

impl<P: Protocol> Reassembler<P> {
    /// The positions of all connections, with a version, their number and a checksum.
    ///
    /// The connection that was silent longest comes first. The Internet checksum covers everything.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.len() * CONNECTION + 2);
        bytes.extend(VERSION.to_be_bytes());
        bytes.extend((self.len() as u32).to_be_bytes());
        for connection in self.connections.iter() {
            write_connection(connection, &mut bytes);
        }
        // An even number of bytes, so that the checksum over all with it is zero.
        if bytes.len() % 2 == 1 {
            bytes.push(0);
        }
        bytes.extend(checksum::internet(&bytes).to_be_bytes());
        bytes
    }

    /// Continues connections from the bytes of [`encode`](Self::encode), at time `now` (ns).
    ///
    /// Connections that are already followed stay as they are. Answers how many connections were taken over:
    /// no more than there are places for.
    ///
    /// # Errors
    /// The fault of the bytes; nothing is changed then.
    pub fn decode(&mut self, bytes: &[u8], now: u64) -> Result<usize, String> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
            return Err(format!("exported streams are {HEAD} bytes and more, found {}", bytes.len()));
        };
        let version = u16::from_be_bytes([head[0], head[1]]);
        if version != VERSION {
            return Err(format!("exported streams of version {VERSION} were expected, found {version}"));
        }
        let count = u32::from_be_bytes([head[2], head[3], head[4], head[5]]) as usize;
        let body = count.saturating_mul(CONNECTION);
        let expected = HEAD.saturating_add(body).next_multiple_of(2).saturating_add(2);
        if bytes.len() != expected {
            return Err(format!("{count} exported streams are {expected} bytes, found {}", bytes.len()));
        }
        if checksum::internet(bytes) != 0 {
            return Err("the exported streams are corrupt: their checksum is wrong".into());
        }
        let parsed: Option<Vec<Connection>> =
            rest[..body].chunks_exact(CONNECTION).map(|bytes| connection(bytes, now)).collect();
        let Some(parsed) = parsed else {
            return Err("an exported stream is in no phase that there is, or ends before it begins".into());
        };
        Ok(parsed.into_iter().filter(|connection| self.resume(connection).is_some()).count())
    }
}

pub(super) fn write_connection(connection: &Connection, bytes: &mut Vec<u8>) {
    connection.key.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.push(connection.client as u8);
    for direction in &connection.directions {
        let Direction { phase, start, first, next, end, end_from, signatures, urgent, taken_out, .. } =
            *direction;
        bytes.extend([phase as u8, start as u8, signatures.0]);
        [first, next, end, end_from, urgent, taken_out]
            .iter()
            .for_each(|position| bytes.extend(position.to_be_bytes()));
    }
}

pub(super) fn connection(bytes: &[u8], now: u64) -> Option<Connection> {
    let key = [0, 8, 16, 24, 32].map(|at| number(&bytes[at..at + 8]));
    let client = usize::from(bytes[40]);
    let mut connection = Connection::new(key, client, now);
    for (way, bytes) in bytes[41..].chunks_exact(DIRECTION).enumerate() {
        let phase = match bytes[0] {
            0 => Phase::Unseen,
            1 => Phase::Open,
            2 => Phase::Ended,
            _ => return None,
        };
        let start = match bytes[1] {
            0 => Start::Opened,
            1 => Start::Middle,
            2 => Start::Bare,
            3 => Start::Agreed,
            _ => return None,
        };
        let signatures = Signatures(bytes[2]);
        let [first, next, end, end_from, urgent, taken_out] =
            [3, 11, 19, 27, 35, 43].map(|at| number(&bytes[at..at + 8]));
        let places = Direction { first, next, end, end_from, urgent, taken_out, ..Direction::UNSEEN };
        let direction = Direction { phase, start, signatures, ..places };
        if !direction.is_sound() {
            return None;
        }
        connection.directions[way] = direction;
    }
    (client < 2).then_some(connection)
}
