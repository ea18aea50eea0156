//! What a reassembler wants to know of a segment, and how TCP says it.

use netbricks_packet::stack::Header;
use netbricks_packet::tcp::flags;
use netbricks_packet::{Tcp, TcpOption};

/// A transport whose segments are pieces of a stream of numbered bytes.
pub trait Protocol: Header {
    /// Bits of its numbers; they wrap. 16 to 62.
    const BITS: u32;
    /// What a segment with this header and payload says.
    fn segment<'a>(header: Self::Ref<'_>, payload: &'a [u8]) -> Segment<'a>;
}

/// What one segment says of its direction, and of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub credit: Option<Credit>,
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

/// What a receiver takes (RFC 9293, section 3.8.6; RFC 7323, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The window as it stands in the segment: bytes behind what it acknowledges, once shifted.
    pub window: u32,
    /// Of a segment that opens: by how many bits windows after it are shifted, if its sender offers that.
    pub shift: Option<u8>,
}

/// RFC 7323, section 2.3.
pub(super) const MOST_SHIFT: u8 = 14;

/// RFC 9293. Urgent data stays in its place among the others (`SO_OOBINLINE`): RFC 6093 says that applications should
/// take it so, and a sender and a receiver that don't agree about the pointer's meaning then agree about the bytes.
///
/// What comes without an acknowledgment and does not open the connection does not count: receivers drop it (section 3.10.7.4), as
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
        Segment {
            // The SYN takes the number before the first byte (section 3.4).
            number: u64::from(header.sequence_number().wrapping_add(u32::from(opens))),
            opens,
            answers: opens && answers,
            ends: set(flags::FIN) && carries && !opens,
            aborts,
            acknowledges: answers.then(|| u64::from(header.acknowledgment_number())),
            credit: (answers || opens).then(|| Credit {
                window: u32::from(header.window()),
                shift: match opens {
                    true => header.options().flatten().find_map(|option| match option {
                        TcpOption::WindowScale(shift) => Some(shift.min(MOST_SHIFT)),
                        _ => None,
                    }),
                    false => None,
                },
            }),
            bytes: if carries || opens { payload } else { &[] },
        }
    }
}
