//! Building tunnels: GRE and PPTP, VXLAN, Geneve, GTP-U. IP in IP is `ipv4` after `ipv4`.

use super::{BuildError, Builder};
use crate::geneve::Geneve;
use crate::gre::Gre;
use crate::gtpu::Gtpu;
use crate::protocol_table::Protocol;
use crate::stack::{Follows, Header};
use crate::vxlan::Vxlan;

impl<'p, H> Builder<'p, H> {
    /// GRE, version 0, without optional words.
    pub fn gre(self) -> Builder<'p, Gre>
    where
        Gre: Follows<H>,
        H: Header,
    {
        self.push(<Gre as Follows<H>>::NUMBERS[0], &Gre::new(0x0800).octets())
    }

    /// PPTP's GRE, version 1, with a payload (RFC 2637, section 4.1).
    pub fn pptp(self, call_id: u16, sequence: u32) -> Builder<'p, Gre>
    where
        Gre: Follows<H>,
        H: Header,
    {
        let [a, b] = call_id.to_be_bytes();
        let [c, d, e, f] = sequence.to_be_bytes();
        let header = [0x30, 0x01, 0x88, 0x0b, 0, 0, a, b, c, d, e, f];
        self.push(<Gre as Follows<H>>::NUMBERS[0], &header)
    }

    /// VXLAN for network `vni`; the UDP header before it gets the destination port 4789.
    pub fn vxlan(self, vni: u32) -> Builder<'p, Vxlan>
    where
        Vxlan: Follows<H>,
        H: Header,
    {
        self.push(<Vxlan as Follows<H>>::NUMBERS[0], &Vxlan::new(vni).octets())
    }

    /// Geneve for network `vni`; the UDP header before it gets the destination port 6081.
    pub fn geneve(self, vni: u32) -> Builder<'p, Geneve>
    where
        Geneve: Follows<H>,
        H: Header,
    {
        let header = Geneve::new(vni, Geneve::ETHERNET).octets();
        self.push(<Geneve as Follows<H>>::NUMBERS[0], &header)
    }

    /// GTP-U for tunnel `teid`; the UDP header before it gets the destination port 2152.
    pub fn gtpu(self, teid: u32) -> Builder<'p, Gtpu>
    where
        Gtpu: Follows<H>,
        H: Header,
    {
        self.push(<Gtpu as Follows<H>>::NUMBERS[0], &Gtpu::new(teid, 0).octets())
    }
}

impl Builder<'_, Gre> {
    /// Adds a checksum over header and payload (RFC 2784, section 2.5).
    pub fn checksum(self) -> Self {
        self.word(0x80, [0; 4])
    }
    /// Adds a key (RFC 2890, section 2.1).
    pub fn key(self, key: u32) -> Self {
        self.word(0x20, key.to_be_bytes())
    }
    /// Adds a sequence number (RFC 2890, section 2.2).
    pub fn sequence(self, number: u32) -> Self {
        self.word(0x10, number.to_be_bytes())
    }

    /// Inserts an optional word at the place that its flag gives, or replaces it.
    fn word(mut self, flag: u8, word: [u8; 4]) -> Self {
        let at = self.at();
        if self.error.is_some() {
            return self;
        }
        let flags = self.headers[at];
        // Words are in the order of their flags, from the highest bit down.
        let before = (flags & 0xb0 & !(flag | (flag - 1))).count_ones() as usize;
        let place = at + 4 + 4 * before;
        if flags & flag == 0 {
            let end = self.size;
            self.append(&[0; 4]);
            if self.error.is_some() {
                return self;
            }
            self.headers.copy_within(place..end, place + 4);
            self.headers[at] |= flag;
        }
        self.headers[place..place + 4].copy_from_slice(&word);
        self
    }
}

impl Builder<'_, Geneve> {
    /// A control message.
    pub fn control(self) -> Self {
        self.with::<Geneve>(|header| header.set_control(true))
    }
    /// An option. Its data is filled with zeros to a multiple of 4 bytes, up to 124.
    ///
    /// An option whose type has its upper bit set makes the header critical.
    pub fn option(mut self, class: u16, kind: u8, data: &[u8]) -> Self {
        let mut option = [0; 128];
        let words = data.len().div_ceil(4);
        let before = self.placed().options;
        let most = Protocol::Geneve.options().map_or(0, |options| options.most);
        let after = before + 4 + 4 * words;
        let Some(place) = option.get_mut(4..4 + data.len()).filter(|_| after <= most) else {
            self.fail(BuildError::TooManyOptions { header: Geneve::SHORT, bytes: after, most });
            return self;
        };
        place.copy_from_slice(data);
        let [high, low] = class.to_be_bytes();
        option[..4].copy_from_slice(&[high, low, kind, words as u8]);
        self.append(&option[..4 + 4 * words]);
        self.placed().options = after;
        self.with::<Geneve>(|header| {
            header.set_option_length((after / 4) as u8);
            let critical = header.critical() || kind & 0x80 != 0;
            header.set_critical(critical);
        })
    }
}

impl Builder<'_, Gtpu> {
    /// Adds the sequence number.
    pub fn sequence(mut self, number: u16) -> Self {
        self.optional_fields(0x02);
        let at = self.at() + 8;
        if self.error.is_none() {
            self.headers[at..at + 2].copy_from_slice(&number.to_be_bytes());
        }
        self
    }

    /// Adds an extension header; its content is filled with zeros to 4 n - 2 bytes.
    pub fn extension(mut self, kind: u8, content: &[u8]) -> Self {
        self.optional_fields(0x04);
        let mut extension = [0; 256];
        let size = (2 + content.len()).next_multiple_of(4);
        let Some(place) = extension.get_mut(1..1 + content.len()).filter(|_| size <= 256) else {
            self.fail(BuildError::TooManyOptions { header: Gtpu::SHORT, bytes: content.len(), most: 254 });
            return self;
        };
        place.copy_from_slice(content);
        extension[0] = (size / 4) as u8;
        // The last byte so far, of the optional fields or of the extension header before, announces this one.
        let announced = self.size - 1;
        self.append(&extension[..size]);
        if self.error.is_none() {
            self.headers[announced] = kind;
        }
        self
    }

    fn optional_fields(&mut self, flag: u8) {
        let at = self.at();
        if self.error.is_some() {
            return;
        }
        if self.headers[at] & 0b111 == 0 {
            self.append(&[0; 4]);
        }
        self.headers[at] |= flag;
    }
}
