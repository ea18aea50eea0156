//! The packet of a fragment, as the key by which later fragments find the first one's decision.

use netbricks_core::TableKey;
use netbricks_core::packet::{FlowKey, HashKey, IpRef, protocol};
use netbricks_core::shuffle::ShuffleKey;

/// The packet that a fragment is of: addresses and identification, in IPv4 also the protocol (RFC 791).
///
/// Fragments of one IPv6 packet may differ in their Next Header (RFC 8200, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentKey {
    flow: FlowKey,
    identification: u32,
}

impl TableKey for FragmentKey {
    type Stored = [u64; 6];

    fn store(self) -> [u64; 6] {
        let [a, b, c, d, e] = self.flow.words();
        [a, b, c, d, e, self.identification.into()]
    }
    fn restore([a, b, c, d, e, identification]: [u64; 6]) -> Self {
        let none = FlowKey::new([0; 4].into(), [0; 4].into(), 0, 0, 0);
        let flow = FlowKey::try_from_words([a, b, c, d, e]).unwrap_or(none);
        Self { flow, identification: identification as u32 }
    }
    fn spread(self, by: ShuffleKey, hash: &HashKey) -> Option<u64> {
        self.flow.spread(by, hash)
    }
    fn follows(by: ShuffleKey) -> bool {
        FlowKey::follows(by)
    }
}

/// A fragment, as far as functions look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) key: FragmentKey,
    /// Whether it is the packet's first.
    pub(crate) is_first: bool,
    /// Whether it could overwrite TCP's flags in the first one (RFC 1858, section 4).
    pub(crate) is_suspect: bool,
}

impl Fragment {
    /// The fragment that a packet with this header is; `None` for whole packets.
    #[cold]
    pub(crate) fn of(header: IpRef<'_>, payload: &[u8]) -> Option<Self> {
        let (identification, offset) = match header {
            IpRef::V4(header) => (u32::from(header.identification()), header.fragment_offset()),
            IpRef::V6(header) => (header.identification()?, header.fragment_offset()),
        };
        if !header.is_fragment() {
            return None;
        }
        let (number, is_v6) = (header.protocol(), matches!(header, IpRef::V6(_)));
        let is_short = offset == 0 && number == protocol::TCP && payload.len() < 20;
        // In IPv6 it says nothing of the packet but in the first one. A shuffle sorts them without it, too.
        let number_in_key = if is_v6 { protocol::FRAGMENT } else { number };
        Some(Self {
            key: FragmentKey {
                flow: FlowKey::new(header.source(), header.destination(), 0, 0, number_in_key),
                identification,
            },
            is_first: !header.is_later_fragment(),
            is_suspect: is_short || offset == 1 && (number == protocol::TCP || is_v6),
        })
    }
}

#[cfg(test)]
mod tests {
    use netbricks_core::packet::Ip;
    use netbricks_testkit::build::ethernet;

    use super::*;

    fn fragment(frame: &[u8]) -> Fragment {
        let (header, payload) = Ip::in_frame(frame).unwrap();
        Fragment::of(header, payload).unwrap()
    }

    #[test]
    fn fragments_of_one_ipv6_packet_have_one_key_with_any_next_header() {
        let piece = |offset, identification| {
            ethernet().ipv6("2001:db8::1", "2001:db8::2").fragment(offset, offset == 0, identification)
        };
        let first = fragment(&piece(0, 7).udp(1, 53).payload(&[0; 24]).build().unwrap());
        for next in [17, 60, 6, 44] {
            let later = |identification| {
                fragment(&piece(4, identification).protocol(next).payload(&[0; 24]).build().unwrap())
            };
            assert_eq!((later(7).key, later(7).is_first), (first.key, false), "{next}");
            assert_ne!(later(8).key, first.key, "{next}");
        }
        let behind_options = piece(0, 7).destination_options(&[0; 6]).udp(1, 53).payload(&[0; 24]);
        assert_eq!(fragment(&behind_options.build().unwrap()).key, first.key);
        // In a stored form, too.
        assert_eq!(FragmentKey::restore(first.key.store()), first.key);
        // Its Next Header does not tell whether it would overwrite the flags of TCP.
        let second = piece(1, 7).protocol(17).payload(&[0; 24]).build().unwrap();
        assert!(fragment(&second).is_suspect);
    }

    #[test]
    fn fragments_of_ipv4_packets_with_different_protocols_are_of_different_packets() {
        let piece = |number| {
            let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").identification(7).fragment(4, false);
            fragment(&frame.protocol(number).payload(&[0; 24]).build().unwrap()).key
        };
        assert_eq!(piece(17), piece(17));
        assert_ne!(piece(17), piece(6));
    }
}
