//! The fields of a segment that a reassembler reads, and how TCP states them.

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::tcp_options::TcpOptions;
use netbricks_core::packet::{Tcp, TcpOption};

/// A transport whose segments are pieces of a stream of numbered bytes.
pub trait Protocol: Header {
    /// Bits of its numbers; they wrap. 16 to 62.
    const BITS: u32;
    /// Reads a segment from its header and payload.
    fn segment<'a>(header: Self::Ref<'_>, payload: &'a [u8]) -> Segment<'a>;
}

/// One segment, as its direction and the other one read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The number of its first byte, whether or not it has one.
    pub number: u64,
    /// It opens the connection; `number` is where its sender's bytes begin.
    pub opens: bool,
    /// It answers one that opens.
    pub answers: bool,
    /// Behind its bytes the direction ends.
    pub ends: bool,
    /// The connection is over.
    pub aborts: bool,
    /// Its sender has all bytes of the other direction before this number.
    pub acknowledges: Option<u64>,
    /// How many bytes of the other direction its sender takes, where the protocol says so.
    pub advertised: Option<AdvertisedWindow>,
    /// How its sender signs it.
    pub signature: Signature,
    /// The number of the urgent byte, which its receiver takes out of the stream.
    pub urgent: Option<u64>,
    /// Its only byte may have no meaning, as that of a keep-alive (RFC 9293, section 3.8.4).
    pub may_probe: bool,
    /// Its bytes. Those of one that opens count once the receiver acknowledges them: not all take them (RFC 7413).
    pub bytes: &'a [u8],
}

impl Segment<'_> {
    /// There is nothing in it that a connection could be known by.
    pub(super) fn says_nothing(&self) -> bool {
        let Self { opens, ends, aborts, acknowledges, bytes, .. } = self;
        !(*opens || *ends || *aborts || acknowledges.is_some()) && bytes.is_empty()
    }
}

/// How a sender signs its segments. A receiver drops those that are signed otherwise than it agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signature {
    /// Not at all.
    #[default]
    None,
    /// With an MD5 digest (RFC 2385).
    Md5,
    /// With the TCP Authentication Option (RFC 5925).
    Authentication,
    /// With more than one, which no receiver takes (RFC 5925, section 2.2).
    Several,
}

/// The signatures that a connection may have: more than one only before its ends have agreed.
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
    /// The window as it stands in the segment: bytes behind what it acknowledges, once shifted.
    pub window: u32,
    /// Of a segment that opens: by how many bits windows after it are shifted, if its sender offers that.
    pub shift: Option<u8>,
}

/// RFC 7323, section 2.3.
pub(super) const MOST_SHIFT: u8 = 14;

/// RFC 9293. The urgent byte is the last one of urgent data as RFC 1011 words it, and as Linux reads the pointer by default
/// (`net.ipv4.tcp_stdurg` = 0; RFC 6093, section 2.1): the one before that to which the pointer points. Linux takes it out of
/// the stream, unless an application asked for it in its place (`SO_OOBINLINE`).
///
/// A segment without an acknowledgment that does not open the connection does not count: receivers drop it (section 3.10.7.4), as
/// they do what opens it and ends it at once. What opens it and aborts it is a reset.
impl Protocol for Tcp {
    const BITS: u32 = 32;

    #[inline]
    fn segment<'a>(header: Self::Ref<'_>, payload: &'a [u8]) -> Segment<'a> {
        let set = |flag| header.flags() & flag != 0;
        let (aborts, answers) = (set(flags::RST), set(flags::ACK));
        let opens = set(flags::SYN) && !aborts && (answers || !set(flags::FIN));
        // What a reset carries is a diagnostic (section 3.5.3).
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
            signature: signature(header.options_bytes()),
            // A pointer of 0 points at the first byte, as 1 does.
            urgent: (set(flags::URG) && carries && !opens).then(|| {
                u64::from(header.sequence_number().wrapping_add(u32::from(pointer.saturating_sub(1))))
            }),
            // A sender of all that there is pushes it (section 3.9.1.2, MUST-61).
            may_probe: payload.len() == 1 && !set(flags::PSH) && !set(flags::FIN) && carries && !opens,
            bytes: if carries || opens { payload } else { &[] },
        }
    }
}

/// How a segment with these options is signed.
#[inline]
fn signature(options: &[u8]) -> Signature {
    // Nearly all have none, or time stamps alone (RFC 7323, appendix A).
    match options {
        [] | [1, 1, 8, 10, _, _, _, _, _, _, _, _] => Signature::None,
        _ => signature_among(options),
    }
}

#[cold]
fn signature_among(options: &[u8]) -> Signature {
    TcpOptions::new(options).flatten().fold(Signature::None, |found, option| {
        let signs = match option {
            TcpOption::Md5(_) => Signature::Md5,
            TcpOption::Authentication { .. } => Signature::Authentication,
            _ => return found,
        };
        if found == Signature::None { signs } else { Signature::Several }
    })
}
