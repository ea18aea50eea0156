//! Packets as programs see them: four bytes at each place, and how long a packet is.

use netbricks_core::buffer::Packet;

use crate::packet::Annotated;

/// The place of the MAC header's first byte, less 2: then addresses lie well in words.
pub(crate) const MAC: u16 = 0;
/// The place of the network header's first byte.
pub(crate) const NETWORK: u16 = 256;
/// The place of the transport header's first byte.
pub(crate) const TRANSPORT: u16 = 512;

/// A packet as a program sees it.
pub(crate) trait View {
    /// The four bytes at a place as the machine reads them, if all are in the packet.
    fn word(&self, place: u16) -> Option<u32>;
    /// The same with zeros for bytes that are not in the packet.
    fn part(&self, place: u16) -> u32;
    /// Tests that need a greater length find the packet too short.
    fn length(&self) -> u32;
}

/// A packet's bytes from the first on.
pub(crate) struct BytesView<'p>(pub(crate) &'p [u8]);

/// Four bytes of a slice, if it has them.
fn word_at(bytes: &[u8], place: usize) -> Option<u32> {
    let four = bytes.get(place..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*four))
}

fn part_at(bytes: &[u8], place: usize) -> u32 {
    let mut four = [0; 4];
    for (to, from) in four.iter_mut().zip(bytes.get(place..).unwrap_or_default()) {
        *to = *from;
    }
    u32::from_ne_bytes(four)
}

impl View for BytesView<'_> {
    #[inline(always)]
    fn word(&self, place: u16) -> Option<u32> {
        word_at(self.0, place.into())
    }
    fn part(&self, place: u16) -> u32 {
        part_at(self.0, place.into())
    }
    fn length(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}

/// A packet's headers.
///
/// Places of three ranges name bytes from the MAC, network and transport header on. A packet is as long as its
/// transport header's bytes say, or its network header's where it has none: what lies before counts as present.
pub(crate) struct HeadersView<'p> {
    mac: [u8; 16],
    network: &'p [u8],
    transport: &'p [u8],
    length: u32,
}

impl<'p> HeadersView<'p> {
    /// The view of a packet. `with_mac` says whether the program looks at the MAC header.
    #[inline(always)]
    pub(crate) fn of(packet: &'p Packet, with_mac: bool) -> Self {
        let network = packet.network().unwrap_or_default();
        let header = packet.network_length().unwrap_or(0);
        let transport = network.get(header..).unwrap_or_default();
        let length = if transport.is_empty() {
            usize::from(NETWORK) + network.len()
        } else {
            usize::from(TRANSPORT) + transport.len()
        };
        let mac = if with_mac { mac_of(packet) } else { [0; 16] };
        Self { mac, network, transport, length: length as u32 }
    }

    /// Of bytes that begin with the network header.
    #[cfg(test)]
    pub(crate) fn of_bytes(network: &'p [u8], header: usize) -> Self {
        let transport = network.get(header..).unwrap_or_default();
        let places = if transport.is_empty() { NETWORK } else { TRANSPORT };
        let here = if transport.is_empty() { network.len() } else { transport.len() };
        Self { mac: [0; 16], network, transport, length: u32::from(places) + here as u32 }
    }

    /// The network header's length with what is behind.
    #[inline(always)]
    pub(crate) fn network_length(&self) -> usize {
        self.network.len()
    }

    #[inline(always)]
    fn bytes(&self, place: u16) -> (&[u8], usize) {
        if place >= TRANSPORT {
            (self.transport, usize::from(place - TRANSPORT))
        } else if place >= NETWORK {
            (self.network, usize::from(place - NETWORK))
        } else {
            (&self.mac, usize::from(place))
        }
    }
}

/// The MAC header behind two zero bytes; zeros where the packet does not have it.
#[cold]
fn mac_of(packet: &Packet) -> [u8; 16] {
    let mut mac = [0; 16];
    let Some(place) = packet.mac_place() else { return mac };
    // The header may lie before the first byte, in whole or in part.
    let pulled = packet.pulled_bytes();
    let before = usize::try_from(-place).unwrap_or(0);
    let missing = before.saturating_sub(pulled.len());
    let pulled = pulled.get(pulled.len() - (before - missing)..).unwrap_or_default();
    let first = usize::try_from(place).unwrap_or(0);
    let bytes = pulled.iter().chain(packet.data().get(first..).unwrap_or_default());
    for (to, from) in mac[2..].iter_mut().skip(missing).zip(bytes) {
        *to = *from;
    }
    mac
}

impl View for HeadersView<'_> {
    #[inline(always)]
    fn word(&self, place: u16) -> Option<u32> {
        let (bytes, at) = self.bytes(place);
        word_at(bytes, at)
    }
    fn part(&self, place: u16) -> u32 {
        let (bytes, at) = self.bytes(place);
        part_at(bytes, at)
    }
    fn length(&self) -> u32 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use netbricks_core::buffer::Pool;

    use super::*;

    #[test]
    fn mac_headers_are_found_behind_a_strip() {
        let pool = Pool::builder().frames(4).frame_size(1024).build().unwrap();
        let mut packet = pool.packet(&(1..=40).collect::<Vec<u8>>()).unwrap();
        packet.set_mac_place(Some(0));
        packet.set_network(14, 20);
        for pulled in [0, 5, 9] {
            packet.pull_bytes(pulled);
            let view = HeadersView::of(&packet, true);
            let bytes: Vec<u8> =
                (0..4).flat_map(|word| view.word(MAC + 4 * word).unwrap().to_ne_bytes()).collect();
            assert_eq!(bytes[2..], (1..=14).collect::<Vec<u8>>());
            assert_eq!(view.word(NETWORK).map(u32::to_ne_bytes), Some([15, 16, 17, 18]));
            assert_eq!(view.length(), u32::from(TRANSPORT) + 6);
        }
        packet.set_mac_place(None);
        let view = HeadersView::of(&packet, true);
        assert_eq!(view.word(MAC + 8), Some(0));
    }
}
