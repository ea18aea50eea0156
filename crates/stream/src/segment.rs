//! The fields of a segment that a reassembler reads, and how TCP states them.

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
pub use netbricks_core::packet::tcp_options::Signature;
use netbricks_core::packet::{Tcp, TcpOption};

/// A transport whose segments are pieces of a stream of numbered bytes.
pub trait Protocol: Header {
    /// Bits of its numbers, which wrap: 16 to 62.
    const BITS: u32;
    /// Reads a segment from its header and payload.
    fn segment<'a>(header: Self::Ref<'_>, payload: &'a [u8]) -> Segment<'a>;
}

/// One segment: the facts for its own direction and for the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The number of its first byte, whether or not it has one.
    pub number: u64,
    /// It opens the connection. `number` is the number of its sender's first byte.
    pub opens: bool,
    /// It answers a segment that opens.
    pub answers: bool,
    /// The direction ends behind its bytes.
    pub ends: bool,
    /// It ends the connection at once, as a reset does.
    pub aborts: bool,
    /// Its sender has all bytes of the other direction before this number.
    pub acknowledges: Option<u64>,
    /// The window for the other direction, where the protocol states one.
    pub advertised: Option<AdvertisedWindow>,
    /// The signature that it carries.
    pub signature: Signature,
    /// The number of the urgent byte, which its receiver takes out of the stream.
    pub urgent: Option<u64>,
    /// Its only byte may have no meaning, as the byte of a keep-alive (RFC 9293, section 3.8.4).
    pub may_probe: bool,
    /// Its bytes.
    ///
    /// Bytes of a segment that opens count once the receiver acknowledges them: not all receivers take them
    /// (RFC 7413).
    pub bytes: &'a [u8],
}

impl Segment<'_> {
    /// Whether it has nothing by which a connection could be recognised.
    pub(super) fn says_nothing(&self) -> bool {
        let Self { opens, ends, aborts, acknowledges, bytes, .. } = self;
        !(*opens || *ends || *aborts || acknowledges.is_some()) && bytes.is_empty()
    }
}

/// The signatures that are possible for a connection: more than one only before its ends have agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signatures(pub(super) u8);

impl Signatures {
    pub(super) const ANY: Self = Self(7);

    pub(super) fn of(signature: Signature) -> Self {
        Self(match signature {
            Signature::None => 1,
            Signature::Md5 => 2,
            Signature::Authentication => 4,
            Signature::Several => 0,
        })
    }
    pub(super) fn has(self, signature: Signature) -> bool {
        self.0 & Self::of(signature).0 != 0
    }
    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The window that a receiver advertises (RFC 9293, section 3.8.6; RFC 7323, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvertisedWindow {
    /// The window field: bytes behind the acknowledged ones, to be shifted by the window scale.
    pub window: u32,
    /// In a segment that opens: the window scale for later windows, if its sender offers one.
    pub shift: Option<u8>,
}

/// The largest window scale (RFC 7323, section 2.3).
pub(super) const MOST_SHIFT: u8 = 14;

/// TCP as in RFC 9293, with the urgent byte as Linux reads it by default.
///
/// The urgent byte is the last byte of urgent data in the wording of RFC 1011. It is the byte before the one
/// to which the pointer points (`net.ipv4.tcp_stdurg` = 0; RFC 6093, section 2.1). Linux takes it out of the
/// stream, unless an application asked to keep it in place (`SO_OOBINLINE`).
///
/// A segment without an acknowledgment that does not open the connection does not count: receivers drop it
/// (section 3.10.7.4). Receivers also drop a segment that opens the connection and ends it at once. A segment
/// that opens the connection and aborts it is a reset.
impl Protocol for Tcp {
    const BITS: u32 = 32;

    #[inline]
    fn segment<'a>(header: Self::Ref<'_>, payload: &'a [u8]) -> Segment<'a> {
        let set = |flag| header.flags() & flag != 0;
        let (aborts, answers) = (set(flags::RST), set(flags::ACK));
        let opens = set(flags::SYN) && !aborts && (answers || !set(flags::FIN));
        // The bytes of a reset are a diagnostic (section 3.5.3).
        let carries = answers && !aborts;
        let pointer = header.urgent_pointer();
        Segment {
            // The SYN takes the number before the first byte (section 3.4).
            number: u64::from(header.sequence_number().wrapping_add(u32::from(opens))),
            opens,
            answers: opens && answers,
            ends: set(flags::FIN) && carries && !opens,
            aborts,
            acknowledges: answers.then(|| u64::from(header.acknowledgment_number())),
            advertised: (answers || opens).then(|| AdvertisedWindow {
                window: u32::from(header.window()),
                shift: match opens {
                    true => header.options().flatten().find_map(|option| match option {
                        TcpOption::WindowScale(shift) => Some(shift.min(MOST_SHIFT)),
                        _ => None,
                    }),
                    false => None,
                },
            }),
            signature: Signature::of(header.options_bytes()),
            // A pointer of 0 points at the first byte, as 1 does.
            urgent: (set(flags::URG) && carries && !opens).then(|| {
                u64::from(header.sequence_number().wrapping_add(u32::from(pointer.saturating_sub(1))))
            }),
            // A sender that sends all of its data pushes it (section 3.9.1.2, MUST-61).
            may_probe: payload.len() == 1 && !set(flags::PSH) && !set(flags::FIN) && carries && !opens,
            bytes: if carries || opens { payload } else { &[] },
        }
    }
}
