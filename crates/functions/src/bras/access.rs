//! The frames of the access side: the line of their subscriber, and PPPoE's header.

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;
use netbricks_core::packet::{Pppoe, ethertype};

use super::session::Line;

/// Bytes of PPPoE's header.
pub(super) const PPPOE: usize = 6;
/// The tag protocol of stacked VLANs before 802.1ad.
const OLD_SERVICE_VLAN: u16 = 0x9100;

/// Clears what is behind PPPoE's header in a session's frame.
///
/// It may be a password, and what ends early is recorded.
pub(super) fn forget_session(frame: &mut [u8]) {
    let mut at = 12;
    while let Some([high, low]) = frame.get(at..at + 2) {
        match u16::from_be_bytes([*high, *low]) {
            ethertype::VLAN | ethertype::SERVICE_VLAN | OLD_SERVICE_VLAN => at += 4,
            Pppoe::SESSION => {
                if let Some(bytes) = frame.get_mut(at + 2 + PPPOE..) {
                    bytes.fill(0);
                }
                return;
            }
            _ => return,
        }
    }
}

/// A PPPoE packet whose lengths were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) line: Line,
    /// Where PPPoE's header begins, and where its payload ends.
    pub(super) at: usize,
    pub(super) end: usize,
    pub(super) is_session: bool,
    pub(super) code: u8,
    pub(super) id: u16,
}

impl Access {
    /// Looks at a frame.
    ///
    /// # Errors
    /// The reason why it is no PPPoE packet.
    #[inline]
    pub(super) fn read(packet: &Packet) -> Result<Self, DropReason> {
        Self::read_frame(packet.data(), packet.missing())
    }

    /// As [`read`](Self::read), of a frame of which so many bytes are missing at the end.
    #[inline]
    pub(super) fn read_frame(frame: &[u8], missing: usize) -> Result<Self, DropReason> {
        let word = |at: usize| frame.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
        let mac: [u8; 6] =
            frame.get(6..12).and_then(|mac| mac.try_into().ok()).ok_or(DropReason::Malformed)?;
        let (mut at, mut tags) = (12, [0; 2]);
        let mut kind = word(at).ok_or(DropReason::Malformed)?;
        for tag in &mut tags {
            if !matches!(kind, ethertype::VLAN | ethertype::SERVICE_VLAN | OLD_SERVICE_VLAN) {
                break;
            }
            let control = word(at + 2).ok_or(DropReason::Malformed)?;
            *tag = u32::from(kind) << 16 | u32::from(control);
            at += 4;
            kind = word(at).ok_or(DropReason::Malformed)?;
        }
        let is_session = match kind {
            Pppoe::SESSION => true,
            Pppoe::DISCOVERY => false,
            _ => return Err(DropReason::Unmatched),
        };
        if mac[0] & 1 == 1 || mac == [0; 6] {
            return Err(DropReason::Martian);
        }
        at += 2;
        let head = frame.get(at..at + PPPOE).ok_or(DropReason::Malformed)?;
        let end = at + PPPOE + usize::from(u16::from_be_bytes([head[4], head[5]]));
        if head[0] != 0x11 {
            return Err(DropReason::Malformed);
        }
        if end > frame.len() {
            // The rest was on the wire, but not in the capture.
            let was_there = end <= frame.len() + missing;
            return Err(if was_there { DropReason::Truncated } else { DropReason::Malformed });
        }
        let id = u16::from_be_bytes([head[2], head[3]]);
        Ok(Self { line: Line { mac, tags }, at, end, is_session, code: head[1], id })
    }

    /// The bytes behind PPPoE's header.
    pub(super) fn payload<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        frame.get(self.at + PPPOE..self.end).unwrap_or_default()
    }
}
