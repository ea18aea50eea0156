//! UDP, whose length field bounds its payload.

use zerocopy::FromBytes;

use crate::checksum::{self, update16};
use crate::ip::FIRST_FRAGMENT;
use crate::stack::{Found, Header, LengthSlack, Malformed, NOTHING, malformed, whole};

crate::header! {
    /// A UDP header (RFC 768).
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |          Source Port          |       Destination Port        |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |            Length             |           Checksum            |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Udp, "udp", 8 bytes {
        /// The sender's port.
        source_port, put_source_port: u16 = 0, 16, Own, Dec, kept;
        /// The receiver's port.
        destination_port, put_destination_port: u16 = 16, 16, Own, Dec, kept;
        /// Bytes of header and payload, 8 or more.
        length, set_length: u16 = 32, 16, Own, Dec, kept;
        /// Over pseudo-header, header and payload; 0 means that there is none (IPv4 only).
        checksum, set_checksum: u16 = 48, 16, No, Hex, plain;
    }
}

crate::field::display! { Udp }

impl Udp {
    /// A header for `payload` bytes (limited to what 16 bits can state), without checksum.
    pub fn new(source_port: u16, destination_port: u16, payload: usize) -> Self {
        let mut header = Self([0; 8]);
        header.put_source_port(source_port);
        header.put_destination_port(destination_port);
        header.set_length((payload + Self::SIZE).min(0xffff) as u16);
        header
    }
    /// Writes the sender's port and updates the checksum, if there is one.
    #[inline(always)]
    pub fn set_source_port(&mut self, port: u16) {
        self.carry(self.source_port(), port);
        self.put_source_port(port);
    }
    /// Writes the receiver's port and updates the checksum, if there is one.
    #[inline(always)]
    pub fn set_destination_port(&mut self, port: u16) {
        self.carry(self.destination_port(), port);
        self.put_destination_port(port);
    }
    /// RFC 768: 0 means that there is no checksum, so a checksum of 0 is written as 0xffff.
    #[inline(always)]
    fn carry(&mut self, old: u16, new: u16) {
        let checksum = self.checksum();
        if checksum != 0 {
            let carried = update16(checksum, old, new);
            self.set_checksum(if carried == 0 { 0xffff } else { carried });
        }
    }
}

impl Header for Udp {
    type Facts = ();
    type Ref<'a> = &'a Self;
    type Mut<'a> = &'a mut Self;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [crate::field::Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], announced: u16) -> Result<Found<()>, Malformed> {
        let Some(header) = bytes.first_chunk::<8>() else {
            return Err(malformed::<Self>("the bytes end before the header does", Self::SIZE, bytes.len()));
        };
        let total = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if total < Self::SIZE {
            return Err(malformed::<Self>("its length is less than 8", Self::SIZE, total));
        }
        if total > bytes.len() {
            // The rest of the datagram is in later fragments, so nothing inside it can be parsed either.
            if announced & FIRST_FRAGMENT != 0 && announced != NOTHING {
                return Ok(Found { facts: (), len: Self::SIZE, total: None, next: NOTHING });
            }
            return Err(malformed::<Self>("its length points beyond what encloses it", total, bytes.len()));
        }
        // UDP has no number for its payload; the destination port is the nearest to one.
        let next = u16::from_be_bytes([header[2], header[3]]);
        Ok(Found { facts: (), len: Self::SIZE, total: Some(total), next })
    }
    fn find_with(bytes: &[u8], announced: u16, slack: LengthSlack) -> Result<Found<()>, Malformed> {
        let refused = match Self::find(bytes, announced) {
            Ok(found) => return Ok(found),
            Err(refused) => refused,
        };
        let Some(header) = bytes.first_chunk::<8>() else { return Err(refused) };
        let total = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if total < Self::SIZE || total > bytes.len().saturating_add(slack.missing) {
            return Err(refused);
        }
        let next = u16::from_be_bytes([header[2], header[3]]);
        Ok(Found { facts: (), len: Self::SIZE, total: Some(total), next })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> &Self {
        whole(Self::ref_from_prefix(bytes)).0
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> &mut Self {
        whole(Self::mut_from_prefix(bytes)).0
    }
    /// Its port announces a tunnel put into UDP.
    ///
    /// The caller corrects the checksum, as after every change of the payload.
    fn announce(header: &mut Self, next: u16) {
        header.put_destination_port(next);
    }
    fn set_total(header: &mut Self, total: usize) {
        header.set_length(total.min(0xffff) as u16);
    }
    fn cover(bytes: &mut [u8], out: bool) -> bool {
        let is_there = bytes.get(6..8).is_some_and(|checksum| checksum != [0, 0]);
        if is_there {
            checksum::cover(bytes, 6, bytes.len(), out, true);
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{self, Random};
    use crate::protocol;

    #[test]
    fn ports_keep_the_checksum_and_none_stays_none() {
        let mut random = Random(50);
        for _ in 0..20_000 {
            let mut sample = oracle::packet(&mut random);
            if sample.protocol != protocol::UDP {
                continue;
            }
            let header = Udp::view_mut(&mut sample.bytes[sample.transport..], ());
            let none = header.checksum() == 0;
            if random.chance(2) {
                header.set_source_port(random.word() as u16);
            } else {
                header.set_destination_port(random.word() as u16);
            }
            assert_eq!(header.checksum() == 0, none);
            let written = sample.bytes.clone();
            sample.refresh();
            assert_eq!(written, sample.bytes, "an update is a recomputation");
        }
    }

    #[test]
    fn its_length_bounds_the_payload() {
        let find = |length: u16, size: usize, announced: u16| {
            let mut header = Udp::new(53, 1000, 0);
            header.set_length(length);
            let mut bytes = [0; 40];
            bytes[..8].copy_from_slice(&header.octets());
            Udp::find(&bytes[..size], announced)
                .map(|found| (found.total, found.next))
                .map_err(|error| error.rule)
        };
        assert_eq!(find(20, 40, 17), Ok((Some(20), 1000)));
        assert_eq!(find(8, 8, 17), Ok((Some(8), 1000)));
        assert!(find(7, 40, 17).unwrap_err().contains("less than 8"));
        assert!(find(0, 40, 17).unwrap_err().contains("less than 8"));
        assert!(find(41, 40, 17).unwrap_err().contains("beyond"));
        assert!(find(8, 7, 17).unwrap_err().contains("end before"));
        // The first fragment of a larger datagram.
        assert_eq!(find(1400, 40, FIRST_FRAGMENT | 17), Ok((None, NOTHING)));
    }
}
