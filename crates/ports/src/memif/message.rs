//! Messages of memif's control channel, version 2.0.
//!
//! Each is one datagram of 128 bytes: a type of 2 bytes, and fields without padding in the byte order of the
//! machine, which both ends share. The source is the header `memif.h` of VPP and libmemif.

/// Bytes of every message.
pub const LEN: usize = 128;
/// The version that is spoken here: the major number in the upper byte.
pub const VERSION: u16 = 0x0200;
/// Bytes of a secret.
pub const SECRET: usize = 24;
/// Bytes of a name.
pub const NAME: usize = 32;
/// Bytes of the reason for a disconnection.
pub const REASON: usize = 96;
/// The most that the binary logarithm of a ring's size may be.
pub const MOST_LOG2: u8 = 14;

/// A name, filled up with zero bytes.
pub type Name = [u8; NAME];

/// The offer that the server sends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The server's name.
    pub name: Name,
    /// The lowest version that it speaks.
    pub min_version: u16,
    /// The highest version that it speaks.
    pub max_version: u16,
    /// The highest number of a region.
    pub max_region: u16,
    /// The highest number of a ring from the server to the client.
    pub max_m2s_ring: u16,
    /// The highest number of a ring from the client to the server.
    pub max_s2m_ring: u16,
    /// The binary logarithm of the largest ring.
    pub max_log2_ring_size: u8,
}

/// The client's answer: the interface that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// The version that the client speaks.
    pub version: u16,
    /// The number of the interface.
    pub id: u32,
    /// The content of a buffer.
    ///
    /// 0 is an Ethernet frame, 1 an IP packet, and 2 a packet with a header of VPP.
    pub mode: u8,
    /// The password, filled up with zero bytes.
    pub secret: [u8; SECRET],
    /// The client's name.
    pub name: Name,
}

/// A ring of the client's. Its event descriptor comes with the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddRing {
    /// Whether packets go from the client to the server.
    pub to_server: bool,
    /// Its number among the rings of the direction, from 0.
    pub index: u16,
    /// The region in which it lies.
    pub region: u16,
    /// Its place in the region, in bytes.
    pub offset: u32,
    /// The binary logarithm of its number of descriptors.
    pub log2_size: u8,
    /// Bytes of a private header before each packet.
    pub private_header: u16,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The last message was accepted.
    Ack,
    /// See [`Hello`].
    Hello(Hello),
    /// See [`Init`].
    Init(Init),
    /// A region of the client's memory, whose file comes with the message.
    AddRegion {
        /// Its number, from 0.
        index: u16,
        /// Its size in bytes.
        size: u64,
    },
    /// See [`AddRing`].
    AddRing(AddRing),
    /// The client has sent all its regions and rings.
    Connect {
        /// The client's name of the interface.
        name: Name,
    },
    /// The server has accepted them: packets may flow.
    Connected {
        /// The server's name of the interface.
        name: Name,
    },
    /// The sender ends the connection.
    Disconnect {
        /// A number without a meaning in the protocol.
        code: u32,
        /// The reason, filled up with zero bytes.
        reason: [u8; REASON],
    },
}

/// A message that is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It has another length than all messages.
    #[error("a message has {LEN} bytes, found {0}")]
    Length(usize),
    /// Its type is not known.
    #[error("the types of messages are 1 to 8, found {0}")]
    Type(u16),
}

/// Reads fields one after the other. Behind the end there are zero bytes.
struct Fields<'m>(&'m [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let (field, rest) = self.0.split_at(N.min(self.0.len()));
        bytes[..field.len()].copy_from_slice(field);
        self.0 = rest;
        bytes
    }
    fn u8(&mut self) -> u8 {
        u8::from_ne_bytes(self.bytes())
    }
    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.bytes())
    }
    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.bytes())
    }
}

/// The bit of a ring's flags that says that it leads to the server.
const TO_SERVER: u16 = 1;

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// [`MessageError`] if it has another length or an unknown type. The values of fields are not judged.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        if bytes.len() != LEN {
            return Err(MessageError::Length(bytes.len()));
        }
        let mut fields = Fields(bytes);
        Ok(match fields.u16() {
            1 => Self::Ack,
            2 => Self::Hello(Hello {
                name: fields.bytes(),
                min_version: fields.u16(),
                max_version: fields.u16(),
                max_region: fields.u16(),
                max_m2s_ring: fields.u16(),
                max_s2m_ring: fields.u16(),
                max_log2_ring_size: fields.u8(),
            }),
            3 => Self::Init(Init {
                version: fields.u16(),
                id: fields.u32(),
                mode: fields.u8(),
                secret: fields.bytes(),
                name: fields.bytes(),
            }),
            4 => Self::AddRegion { index: fields.u16(), size: u64::from_ne_bytes(fields.bytes()) },
            5 => Self::AddRing(AddRing {
                to_server: fields.u16() & TO_SERVER != 0,
                index: fields.u16(),
                region: fields.u16(),
                offset: fields.u32(),
                log2_size: fields.u8(),
                private_header: fields.u16(),
            }),
            6 => Self::Connect { name: fields.bytes() },
            7 => Self::Connected { name: fields.bytes() },
            8 => Self::Disconnect { code: fields.u32(), reason: fields.bytes() },
            other => return Err(MessageError::Type(other)),
        })
    }

    /// Writes a message. Bytes behind its fields are zero.
    pub fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&self.kind().to_ne_bytes());
        match self {
            Self::Ack => {}
            Self::Hello(hello) => {
                put(&hello.name);
                for number in [
                    hello.min_version,
                    hello.max_version,
                    hello.max_region,
                    hello.max_m2s_ring,
                    hello.max_s2m_ring,
                ] {
                    put(&number.to_ne_bytes());
                }
                put(&[hello.max_log2_ring_size]);
            }
            Self::Init(init) => {
                put(&init.version.to_ne_bytes());
                put(&init.id.to_ne_bytes());
                put(&[init.mode]);
                put(&init.secret);
                put(&init.name);
            }
            Self::AddRegion { index, size } => {
                put(&index.to_ne_bytes());
                put(&size.to_ne_bytes());
            }
            Self::AddRing(ring) => {
                let flags = if ring.to_server { TO_SERVER } else { 0 };
                for number in [flags, ring.index, ring.region] {
                    put(&number.to_ne_bytes());
                }
                put(&ring.offset.to_ne_bytes());
                put(&[ring.log2_size]);
                put(&ring.private_header.to_ne_bytes());
            }
            Self::Connect { name } | Self::Connected { name } => put(name),
            Self::Disconnect { code, reason } => {
                put(&code.to_ne_bytes());
                put(reason);
            }
        }
        bytes
    }

    /// The number of its type.
    fn kind(&self) -> u16 {
        match self {
            Self::Ack => 1,
            Self::Hello(_) => 2,
            Self::Init(_) => 3,
            Self::AddRegion { .. } => 4,
            Self::AddRing(_) => 5,
            Self::Connect { .. } => 6,
            Self::Connected { .. } => 7,
            Self::Disconnect { .. } => 8,
        }
    }

    /// Its type as the protocol calls it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Ack => "ACK",
            Self::Hello(_) => "HELLO",
            Self::Init(_) => "INIT",
            Self::AddRegion { .. } => "ADD_REGION",
            Self::AddRing(_) => "ADD_RING",
            Self::Connect { .. } => "CONNECT",
            Self::Connected { .. } => "CONNECTED",
            Self::Disconnect { .. } => "DISCONNECT",
        }
    }

    /// A disconnection for a reason, of which the message has the first 95 bytes.
    pub fn disconnect(reason: &str) -> Self {
        Self::Disconnect { code: 0, reason: padded(reason.as_bytes(), REASON - 1) }
    }
}

/// At most `most` bytes of a text, filled up with zero bytes.
pub fn padded<const N: usize>(text: &[u8], most: usize) -> [u8; N] {
    let mut field = [0; N];
    let len = text.len().min(most).min(N);
    field[..len].copy_from_slice(&text[..len]);
    field
}

/// The text of a field up to its first zero byte. Bytes that are not printable ASCII become `?`.
pub fn text(field: &[u8]) -> String {
    let bytes = field.iter().take_while(|byte| **byte != 0);
    bytes.map(|byte| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_protocol_has_them() {
        let hello = Hello {
            name: padded(b"vpp", NAME),
            min_version: VERSION,
            max_version: 0x0201,
            max_region: 255,
            max_m2s_ring: 3,
            max_s2m_ring: 7,
            max_log2_ring_size: 14,
        };
        let bytes = Message::Hello(hello).encode();
        assert_eq!(bytes[..2], 2_u16.to_ne_bytes());
        assert_eq!(bytes[2..5], *b"vpp");
        let numbers: Vec<u8> =
            [0x0200_u16, 0x0201, 255, 3, 7].iter().flat_map(|number| number.to_ne_bytes()).collect();
        assert_eq!((&bytes[34..44], bytes[44]), (&numbers[..], 14));
        let ring = AddRing {
            to_server: true,
            index: 1,
            region: 2,
            offset: 0x0102_0304,
            log2_size: 10,
            private_header: 9,
        };
        let bytes = Message::AddRing(ring).encode();
        assert_eq!(bytes[8..12], 0x0102_0304_u32.to_ne_bytes());
        assert_eq!((bytes[12], &bytes[13..15]), (10, &9_u16.to_ne_bytes()[..]));
        let init = Init { version: VERSION, id: 5, mode: 0, secret: [7; SECRET], name: padded(b"x", NAME) };
        let bytes = Message::Init(init).encode();
        assert_eq!((&bytes[4..8], bytes[8], bytes[9], bytes[33]), (&5_u32.to_ne_bytes()[..], 0, 7, b'x'));
        let region = Message::AddRegion { index: 1, size: 1 << 40 }.encode();
        assert_eq!(region[4..12], (1_u64 << 40).to_ne_bytes());
    }

    #[test]
    fn messages_of_another_shape_are_refused() {
        for len in [0, 1, 127, 129] {
            assert_eq!(Message::parse(&vec![1; len]), Err(MessageError::Length(len)));
        }
        for kind in [0_u16, 9, 0x0100, u16::MAX] {
            let mut bytes = [0; LEN];
            bytes[..2].copy_from_slice(&kind.to_ne_bytes());
            assert_eq!(Message::parse(&bytes), Err(MessageError::Type(kind)));
        }
    }

    #[test]
    fn a_peers_text_is_printable() {
        assert_eq!(text(b"bad\x1b[31m secret\0behind"), "bad?[31m secret");
        let Message::Disconnect { reason, .. } = Message::disconnect(&"x".repeat(200)) else { panic!() };
        assert_eq!(text(&reason).len(), REASON - 1);
    }
}
