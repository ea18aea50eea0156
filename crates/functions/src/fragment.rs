//! The packet of a fragment, as the key by which later fragments find the first one's decision.

use netbricks_core::TableKey;
use netbricks_core::packet::{FlowKey, HashKey, IpRef, protocol};
use netbricks_core::shuffle::ShuffleKey;

/// The packet that a fragment is of: addresses, protocol and identification (RFC 791; RFC 8200, section 4.5).
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
        let number = header.protocol();
        let is_short = offset == 0 && number == protocol::TCP && payload.len() < 20;
        Some(Self {
            key: FragmentKey {
                flow: FlowKey::new(header.source(), header.destination(), 0, 0, number_of(header)),
                identification,
            },
            is_first: !header.is_later_fragment(),
            is_suspect: is_short || offset == 1 && number == protocol::TCP,
        })
    }
}

/// The protocol number that all fragments of a packet have.
///
/// In IPv6 it is that of the first header behind the fragment header (RFC 8200, section 4.5). A shuffle sorts by it, too.
fn number_of(header: IpRef<'_>) -> u8 {
    match header {
        IpRef::V4(header) => header.protocol(),
        IpRef::V6(header) => {
            let of_fragments = header.extensions().find(|extension| extension.kind == protocol::FRAGMENT);
            of_fragments.map_or(header.protocol(), |extension| extension.next)
        }
    }
}
