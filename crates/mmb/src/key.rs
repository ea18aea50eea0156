//! The key vector: the values of a packet's fields, as the classifier compares them.
//!
//! A field gets its place in the vector with the first rule that tests it, so that vectors of few fields are short.
//! Only those that some rule tests are filled. What a packet has not is 0 there, and its bit in the set of layers is 0.

use std::collections::BTreeMap;

use netbricks_core::buffer::Offload;
use netbricks_core::packet::ip::IpFacts;
use netbricks_core::packet::link::LinkRef;
use netbricks_core::packet::rewrite::Shape;
use netbricks_core::packet::stack::{Header, Layer as Parsed, LengthSlack, NOTHING, Root, Stack};
use netbricks_core::packet::{Icmpv4, Ip, IpRef, Ipv6, Link, SegmentRouting, Tcp, protocol};
use netbricks_core::tables::classifier::{Field, Layout};

use crate::field::{FieldId, Kind, Layer};
use crate::rule::Match;
use crate::tcp_options::{Options, number_option};

/// Layers that there can be.
const LAYERS: usize = Layer::ALL.len();
/// Bytes of a payload or an option that are compared with its length.
const WITH_LENGTH: usize = 15;
/// Words of 16 bytes behind those that are compared, too.
const BEHIND: usize = 3;
/// Bytes from a payload's first that rules compare. An option never has as many.
pub(crate) const COMPARED: usize = WITH_LENGTH + 16 * BEHIND;

/// Where the layers of a frame are, in bytes from its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// The layers that it has, by [`Layer::bit`].
    pub(crate) layers: u32,
    at: [u16; LAYERS],
    /// Extension headers that it has, by place in [`EXTENSIONS`].
    extensions: u16,
    /// The payload's end, by which all layers within IP end.
    end: u16,
    /// Where UDP's length says that it ends.
    udp_end: u16,
    /// The TCP options, as a range.
    options: (u16, u16),
    /// The EtherType behind all tags and labels; 0 where there is none.
    network: u16,
    /// Whether it is an IP fragment other than the first.
    pub is_later_fragment: bool,
    ip: Option<IpFacts>,
    /// The number of the protocol that IP carries; 255 where that is not known.
    protocol: u8,
    is_authenticated: bool,
}

/// The extension headers that rules know, by number; each has a bit.
pub(crate) const EXTENSIONS: [u8; 9] = [0, 43, 44, 50, 51, 60, 135, 139, 140];

/// A number that IANA keeps back, for no protocol.
const UNKNOWN: u8 = 255;
/// The number of routing headers (RFC 8200, section 4.4).
const ROUTING: u8 = 43;
/// The authentication header's bit.
const AH: u16 = 1 << 4;

impl Located {
    /// Finds the layers of a frame, up to a tunnel's header.
    ///
    /// What is not well-formed is not there: a frame whose IP header is cut has Ethernet alone. `slack` says which bytes
    /// behind the frame's last its length fields may state.
    pub fn find(frame: &[u8], slack: LengthSlack) -> Self {
        match Self::usual_end(frame) {
            Some(end) => {
                let mut found = Self::none(frame.len());
                found.put(Layer::Ethernet, 0);
                found.put_ip(frame, 14, 34, end, IpFacts::V4);
                found
            }
            None => Self::find_any(frame, slack),
        }
    }

    /// The end of the packet in a frame as most are: IPv4 without options or tags, whole and no fragment.
    #[inline(always)]
    fn usual_end(frame: &[u8]) -> Option<usize> {
        let fixed = frame.first_chunk::<34>()?;
        let end = 14 + usize::from(u16::from_be_bytes([fixed[16], fixed[17]]));
        let is_usual = fixed[12..15] == [8, 0, 0x45]
            && u16::from_be_bytes([fixed[20], fixed[21]]) & 0x3fff == 0
            && (34..=frame.len()).contains(&end);
        is_usual.then_some(end)
    }

    /// A frame of which nothing was found yet.
    fn none(len: usize) -> Self {
        Self {
            layers: Layer::Frame.bit(),
            at: [0; LAYERS],
            extensions: 0,
            end: len.min(0xffff) as u16,
            udp_end: 0,
            options: (0, 0),
            network: 0,
            is_later_fragment: false,
            ip: None,
            protocol: UNKNOWN,
            is_authenticated: false,
        }
    }

    /// As [`find`](Self::find), for any frame.
    fn find_any(frame: &[u8], slack: LengthSlack) -> Self {
        let mut found = Self::none(frame.len());
        if frame.len() >= 14 {
            found.put(Layer::Ethernet, 0);
            found.network = ethertype(u16::from_be_bytes([frame[12], frame[13]]));
        }
        let Ok(link) = Parsed::<Root, Link>::parse_with(Root, frame, slack) else { return found };
        let (_, facts) = link.top();
        found.link(Link::view(&frame[..link.end()], facts));
        found.network = ethertype(link.next());
        if found.network == 0x0806 && frame.len() >= link.end() + 28 {
            found.put(Layer::Arp, link.end());
        }
        if let Ok(ip) = Parsed::<_, Ip>::parse_with(link, frame, slack) {
            let (at, facts) = ip.top();
            found.put_ip(frame, at, ip.end(), ip.limit(frame.len()).min(frame.len()), facts);
        }
        found
    }

    fn put(&mut self, layer: Layer, at: usize) {
        self.layers |= layer.bit();
        self.at[layer as usize] = at.min(0xffff) as u16;
    }

    fn link(&mut self, link: LinkRef<'_>) {
        let (vlans, labels) = (link.vlans().len(), link.labels().len());
        let mut at = 14;
        if vlans > 0 {
            self.put(Layer::Vlan, at);
        }
        if vlans > 1 {
            self.put(Layer::InnerVlan, at + 4);
        }
        at += 4 * vlans;
        if link.pppoe().is_some() {
            self.put(Layer::Pppoe, at);
        }
        if labels > 0 {
            self.put(Layer::Mpls, link.len() - 4 * labels);
        }
    }

    /// The IP header at `at..behind` and what it carries up to `end`.
    fn put_ip(&mut self, frame: &[u8], at: usize, behind: usize, end: usize, facts: IpFacts) {
        self.end = end.min(0xffff) as u16;
        self.ip = Some(facts);
        let header = Ip::view(&frame[at..behind], facts);
        match header {
            IpRef::V4(_) => {
                self.put(Layer::Ipv4, at);
                self.network = 0x0800;
            }
            IpRef::V6(header) => {
                self.put(Layer::Ipv6, at);
                self.network = 0x86dd;
                let mut start = at + Ipv6::SIZE;
                for extension in header.extensions() {
                    self.extension(extension.kind);
                    if extension.kind == ROUTING
                        && !self.has(Layer::Srv6)
                        && SegmentRouting::find(extension.bytes, 0).is_ok()
                    {
                        self.put(Layer::Srv6, start);
                    }
                    start += extension.bytes.len();
                }
                self.extension(header.protocol());
            }
        }
        self.is_authenticated = header.protocol() == protocol::AH || self.extensions & AH != 0;
        self.at[PAYLOAD] = behind.min(0xffff) as u16;
        self.is_later_fragment = header.is_later_fragment();
        if self.is_later_fragment {
            return;
        }
        self.protocol = header.protocol();
        let payload = &frame[behind..end];
        match header.protocol() {
            protocol::TCP => {
                if let Ok(found) = Tcp::find(payload, 0) {
                    self.put(Layer::Tcp, behind);
                    self.options = ((behind + 20) as u16, (behind + found.len).min(0xffff) as u16);
                }
            }
            protocol::UDP if payload.len() >= 8 => {
                self.put(Layer::Udp, behind);
                // A length that cannot be right says nothing.
                let stated = usize::from(u16::from_be_bytes([payload[4], payload[5]]));
                let len = if (8..payload.len()).contains(&stated) { stated } else { payload.len() };
                self.udp_end = (behind + len).min(0xffff) as u16;
                self.tunnel(payload, behind + 8);
            }
            protocol::ICMP if matches!(facts, IpFacts::V4) && payload.len() >= Icmpv4::SIZE => {
                self.put(Layer::Icmp, behind);
                match (payload[0], payload[1]) {
                    (0 | 8 | 13 | 14 | 15 | 16, _) => self.put(Layer::IcmpEcho, behind),
                    (3, 4) => self.put(Layer::IcmpMtu, behind),
                    _ => {}
                }
            }
            protocol::ICMPV6 if matches!(facts, IpFacts::V6(_)) && payload.len() >= Icmpv4::SIZE => {
                self.put(Layer::Icmpv6, behind);
                match payload[0] {
                    128 | 129 => self.put(Layer::Icmpv6Echo, behind),
                    2 => self.put(Layer::Icmpv6Mtu, behind),
                    _ => {}
                }
            }
            protocol::GRE if payload.len() >= 4 => self.put(Layer::Gre, behind),
            _ => {}
        }
    }

    fn extension(&mut self, number: u8) {
        if let Some(place) = EXTENSIONS.iter().position(|known| *known == number) {
            self.extensions |= 1 << place;
        }
    }

    /// A tunnel's header behind that of UDP.
    fn tunnel(&mut self, udp: &[u8], at: usize) {
        if udp.len() < 16 {
            return;
        }
        match u16::from_be_bytes([udp[2], udp[3]]) {
            4789 => self.put(Layer::Vxlan, at),
            6081 => self.put(Layer::Geneve, at),
            2152 => self.put(Layer::Gtpu, at),
            _ => {}
        }
    }

    /// Whether the frame has this layer.
    #[inline(always)]
    pub fn has(&self, layer: Layer) -> bool {
        self.layers & layer.bit() != 0
    }
    /// Where a layer's header begins, if the frame has it.
    #[inline(always)]
    pub fn at(&self, layer: Layer) -> Option<usize> {
        self.has(layer).then(|| usize::from(self.at[layer as usize]))
    }
    /// Where the IP header begins.
    pub fn ip_at(&self) -> Option<usize> {
        self.at(Layer::Ipv4).or_else(|| self.at(Layer::Ipv6))
    }
    /// The places that a rewrite of addresses and ports needs, and the IP packet's range in the frame.
    ///
    /// An authentication header, also one in the first fragment alone, forbids such rewrites.
    pub(crate) fn shape(&self, frame: &[u8], offload: Offload) -> Option<(Shape, std::ops::Range<usize>)> {
        if self.is_authenticated {
            return None;
        }
        let (at, end) = (self.ip_at()?, usize::from(self.end));
        let behind = usize::from(self.at[PAYLOAD]);
        let shape = Shape::known(frame.get(at..end)?, self.ip?, behind - at, end - at);
        let shape = match usize::from(offload.checksum_start).checked_sub(at) {
            Some(start) if offload.needs_checksum => {
                shape.left_to_device(start, offload.checksum_offset.into())
            }
            _ => shape,
        };
        Some((shape, at..end))
    }
    /// The number of the protocol whose header follows IP's, whether or not the header is whole.
    pub fn transport(&self) -> Option<u8> {
        (self.protocol != UNKNOWN).then_some(self.protocol)
    }
    /// The bytes that IP carries, as a range of the frame; `None` for fragments other than the first.
    pub fn carried(&self) -> Option<std::ops::Range<usize>> {
        let start = self.ip_at().map(|_| usize::from(self.at[PAYLOAD]))?;
        (!self.is_later_fragment).then(|| start..usize::from(self.end).max(start))
    }
    /// The IP header and the bytes that it carries, of the frame in which it was found.
    #[inline]
    pub fn ip<'f>(&self, frame: &'f [u8]) -> Option<(IpRef<'f>, &'f [u8])> {
        let (at, behind) = (self.ip_at()?, usize::from(self.at[PAYLOAD]));
        let end = usize::from(self.end).min(frame.len()).max(behind);
        Some((Ip::view(frame.get(at..behind)?, self.ip?), frame.get(behind..end)?))
    }
    /// The EtherType behind all tags and labels; 0 where there is none.
    pub fn network(&self) -> u16 {
        self.network
    }
    /// Whether an authentication header (RFC 4302) covers the packet.
    pub fn has_ah(&self) -> bool {
        self.is_authenticated
    }
    /// The TCP options, as a range of the frame.
    pub fn tcp_options(&self) -> std::ops::Range<usize> {
        usize::from(self.options.0)..usize::from(self.options.1)
    }
    /// Where a layer's bytes end, its payload included.
    pub fn end(&self, layer: Layer) -> usize {
        usize::from(if layer == Layer::Udp { self.udp_end } else { self.end })
    }
    /// The bytes that a layer carries, as a range of the frame.
    pub fn payload(&self, layer: Layer) -> Option<std::ops::Range<usize>> {
        let end = self.end(layer);
        let start = match layer {
            Layer::Ipv4 | Layer::Ipv6 => self.at(layer).map(|_| usize::from(self.at[PAYLOAD]))?,
            Layer::Tcp => self.at(layer).map(|_| usize::from(self.options.1))?,
            Layer::Udp | Layer::Icmp | Layer::Icmpv6 => self.at(layer)? + 8,
            _ => return None,
        };
        (start <= end).then_some(start..end)
    }
}

/// The EtherType of a number; 0 where it is a length (IEEE 802.3, clause 3.2.6) or stands for none.
fn ethertype(number: u16) -> u16 {
    if (0x600..NOTHING).contains(&number) { number } else { 0 }
}

/// The place of the IP payload's start in `at`, where the first layer, the frame, needs none.
const PAYLOAD: usize = Layer::Frame as usize;

/// The places of fields in the key vector.
#[derive(Clone, Debug)]
pub struct KeyLayout {
    layers: Field,
    extensions: Field,
    /// Which TCP options there are, by kind; the layers' place where no field is an option.
    kinds: [Field; 2],
    /// A place for each field of the catalogue that has a value of its own.
    fields: Vec<Option<Field>>,
    /// The places of bytes behind the first ones, for fields that have any.
    behind: BTreeMap<FieldId, [Field; BEHIND]>,
    layout: Layout,
}

impl Default for KeyLayout {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyLayout {
    /// The layout of all fields, which is the same in every process.
    pub fn new() -> Self {
        Self::only(|_| true)
    }

    /// The layout of the fields for which `wanted` answers `true`. Rules about others are refused.
    ///
    /// Without an option of TCP among them, it has no place for the kinds of options either.
    pub fn only(wanted: impl Fn(FieldId) -> bool) -> Self {
        let mut layout = Layout::new();
        let layers = layout.field(32);
        let extensions = layout.field(16);
        let fields = vec![None; FieldId::all().count()];
        let mut all =
            Self { layers, extensions, kinds: [layers; 2], fields, behind: BTreeMap::new(), layout };
        FieldId::all().filter(|id| wanted(*id)).for_each(|id| all.place(id));
        all
    }

    /// This layout with places behind the others for fields that matches test; `None` where all of them have one.
    pub(crate) fn with(&self, matches: &[Match]) -> Option<Self> {
        let fields = || matches.iter().map(|given| given.field.whole());
        if fields().all(|id| self.has(id)) {
            return None;
        }
        let mut wider = self.clone();
        fields().for_each(|id| wider.place(id));
        Some(wider)
    }

    /// Whether all fields of `other` have the same places here.
    pub(crate) fn extends(&self, other: &Self) -> bool {
        let is_same = |(id, place): (FieldId, &Option<Field>)| place.is_none() || *place == self.field(id);
        FieldId::all().zip(&other.fields).all(is_same) && (!other.has_kinds() || self.kinds == other.kinds)
    }

    /// Gives a field its place, and the kinds of options theirs with the first option.
    fn place(&mut self, id: FieldId) {
        let kind = id.info().kind;
        if kind.is_option() && !self.has_kinds() {
            self.kinds = [self.layout.field(128), self.layout.field(128)];
        }
        let place = &mut self.fields[id.index()];
        if let (None, Some(bits)) = (&place, key_bits(kind)) {
            *place = Some(self.layout.field(bits));
            if matches!(kind, Kind::BytesOption { .. } | Kind::Payload) {
                self.behind.insert(id, std::array::from_fn(|_| self.layout.field(128)));
            }
        }
    }

    fn has(&self, id: FieldId) -> bool {
        let kind = id.info().kind;
        (!kind.is_option() || self.has_kinds()) && (key_bits(kind).is_none() || self.field(id).is_some())
    }

    fn has_kinds(&self) -> bool {
        self.kinds[0] != self.layers
    }

    /// Adds a place of so many bits behind the others, for a value that its user fills in.
    pub fn add(&mut self, bits: u16) -> Field {
        self.layout.field(bits)
    }

    /// The classifier's layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
    /// The fields of masked words, each with the bits of it that count: a prefix's length, or the mask.
    pub(crate) fn named(&self, words: &[(usize, u32)]) -> Vec<String> {
        let whole = [("layers", self.layers), ("ip6-eh", self.extensions)];
        let kinds = self.kinds.into_iter().filter(|_| self.has_kinds()).map(|field| ("tcp-opt", field));
        let fields = FieldId::all().filter_map(|id| Some((id.info().name.as_str(), self.field(id)?)));
        let named = |(name, field): (&str, Field)| {
            let mut key = vec![0; self.layout.words()];
            for (word, bits) in words {
                if let Some(part) = key.get_mut(*word) {
                    *part = *bits;
                }
            }
            let (mask, bits) = (field.get(&key), field.bits());
            let prefix = mask.count_ones();
            let is_prefix = mask
                == u128::MAX.checked_shl(u32::from(bits) - prefix).unwrap_or(0)
                    & u128::MAX >> (128 - u32::from(bits));
            match mask {
                0 => None,
                _ if prefix == u32::from(bits) => Some(name.to_owned()),
                _ if is_prefix => Some(format!("{name}/{prefix}")),
                mask => Some(format!("{name}&{mask:#x}")),
            }
        };
        whole.into_iter().chain(kinds).chain(fields).filter_map(named).collect()
    }

    /// The set of layers.
    pub(crate) fn layers(&self) -> Field {
        self.layers
    }
    /// The set of extension headers.
    pub(crate) fn extensions(&self) -> Field {
        self.extensions
    }
    /// The set of TCP option kinds with this kind, and the kind's bit in it.
    pub(crate) fn kind(&self, kind: u8) -> (Field, u128) {
        (self.kinds[usize::from(kind >> 7)], 1 << (kind & 0x7f))
    }
    /// The place of a field, where it has one.
    pub fn field(&self, id: FieldId) -> Option<Field> {
        self.fields[id.index()]
    }
    /// The places of the bytes behind a field's first.
    pub(crate) fn behind(&self, id: FieldId) -> &[Field] {
        self.behind.get(&id).map(|places| &places[..]).unwrap_or_default()
    }
    /// Both sets of TCP option kinds.
    pub(crate) fn kinds(&self) -> [Field; 2] {
        self.kinds
    }
}

/// Bits of a kind's values in the key vector; `None` for those that have no value of their own.
fn key_bits(kind: Kind) -> Option<u16> {
    match kind {
        Kind::All | Kind::ExtensionHeader(_) | Kind::AnyOption | Kind::Code { .. } => None,
        Kind::Bits { bits, .. } => Some(bits),
        Kind::In | Kind::Out | Kind::NetworkProtocol => Some(16),
        // A bit above the value says that the option is there.
        Kind::NumberOption { bits, .. } => Some(bits + 1),
        // The length from 1 above as many bytes as are compared; 0 where the option is not there.
        Kind::BytesOption { .. } | Kind::Payload => Some(128),
    }
}

/// One field to fill in.
#[derive(Clone, Copy, Debug)]
struct Fill {
    field: Field,
    layer: Layer,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// At most 32 bits within 8 bytes at an offset: shift and mask of the big-endian number.
    Narrow {
        offset: u16,
        shift: u8,
        mask: u32,
    },
    /// More bits: the first bit and their number.
    Wide {
        bit: u16,
        bits: u16,
    },
    /// At most 32 bits at the end of a header shorter than 8 bytes.
    Short {
        offset: u16,
        shift: u8,
        mask: u32,
    },
    Ingress,
    Egress,
    Network,
    NumberOption {
        kind: u8,
        bits: u16,
    },
    BytesOption {
        kind: u8,
        behind: [Field; BEHIND],
    },
    Payload {
        behind: [Field; BEHIND],
    },
}

/// The fields that rules test, in the order in which they are filled.
#[derive(Clone, Debug, Default)]
pub struct Filling {
    fills: Vec<Fill>,
    options: bool,
    extensions: bool,
}

impl Filling {
    /// The fields of these that have values, each once.
    pub fn of(
        layout: &KeyLayout,
        fields: impl IntoIterator<Item = FieldId>,
        options: bool,
        extensions: bool,
    ) -> Self {
        let mut known: Vec<FieldId> = fields.into_iter().collect();
        known.sort_unstable();
        known.dedup();
        let fill = |id: FieldId| {
            let info = id.info();
            let source = match info.kind {
                Kind::All | Kind::ExtensionHeader(_) | Kind::AnyOption | Kind::Code { .. } => return None,
                Kind::Bits { bit, bits } => bits_source(info.layer, bit, bits),
                Kind::In => Source::Ingress,
                Kind::Out => Source::Egress,
                Kind::NetworkProtocol => Source::Network,
                Kind::NumberOption { kind, bits } => Source::NumberOption { kind, bits },
                Kind::BytesOption { kind } => Source::BytesOption { kind, behind: *layout.behind.get(&id)? },
                Kind::Payload => Source::Payload { behind: *layout.behind.get(&id)? },
            };
            Some(Fill { field: layout.field(id)?, layer: info.layer, source })
        };
        let fills: Vec<Fill> = known.into_iter().filter_map(fill).collect();
        let options = options
            || fills
                .iter()
                .any(|fill| matches!(fill.source, Source::NumberOption { .. } | Source::BytesOption { .. }));
        Self { fills, options, extensions }
    }

    /// Fills the key vector with the values of a frame's fields.
    ///
    /// `ingress` and `egress` are the numbers of ports from 1; 0 stands for none.
    pub fn fill(
        &self,
        layout: &KeyLayout,
        frame: &[u8],
        found: &Located,
        (ingress, egress): (u16, u16),
        key: &mut [u32],
    ) {
        layout.layers.put_word(key, found.layers);
        if self.extensions {
            layout.extensions.put(key, found.extensions.into());
        }
        let options = self.options.then(|| {
            let options = Options::of(frame.get(found.tcp_options()).unwrap_or_default());
            layout.kinds[0].put(key, options.kinds[0]);
            layout.kinds[1].put(key, options.kinds[1]);
            options
        });
        let option = |kind| options.as_ref().and_then(|options| options.data(kind));
        for Fill { field, layer, source } in &self.fills {
            let Some(at) = found.at(*layer) else {
                field.put_word(key, 0);
                source.behind().iter().for_each(|field| field.put(key, 0));
                continue;
            };
            match *source {
                Source::Narrow { offset, shift, mask } => {
                    let at = at + usize::from(offset);
                    let number = match frame.get(at..at + 8).and_then(|bytes| bytes.first_chunk()) {
                        Some(bytes) => u64::from_be_bytes(*bytes),
                        None => 0,
                    };
                    field.put_word(key, (number >> shift) as u32 & mask);
                }
                Source::Short { offset, shift, mask } => {
                    let at = at + usize::from(offset);
                    let number = match frame.get(at..at + 4).and_then(|bytes| bytes.first_chunk()) {
                        Some(bytes) => u32::from_be_bytes(*bytes),
                        None => 0,
                    };
                    field.put_word(key, number >> shift & mask);
                }
                Source::Wide { bit, bits } => {
                    field.put(
                        key,
                        frame.get(at..).and_then(|header| read_wide(header, bit, bits)).unwrap_or(0),
                    );
                }
                Source::Ingress => field.put_word(key, ingress.into()),
                Source::Egress => field.put_word(key, egress.into()),
                Source::Network => field.put_word(key, found.network.into()),
                Source::NumberOption { kind, bits } => {
                    field.put(key, option(kind).map_or(0, |data| number_option(data, bits)));
                }
                Source::BytesOption { kind, behind } => put_bytes(*field, &behind, key, option(kind)),
                Source::Payload { behind } => {
                    let bytes = found.payload(*layer).and_then(|range| frame.get(range));
                    put_bytes(*field, &behind, key, bytes);
                }
            }
        }
    }
}

impl Source {
    /// The places of bytes behind the first ones.
    fn behind(&self) -> &[Field] {
        match self {
            Self::BytesOption { behind, .. } | Self::Payload { behind } => behind,
            _ => &[],
        }
    }
}

/// How the bits of a header's field are read.
fn bits_source(layer: Layer, bit: u16, bits: u16) -> Source {
    if bits > 32 {
        return Source::Wide { bit, bits };
    }
    let mask = (u64::from(u32::MAX) >> (32 - bits)) as u32;
    let size = size(layer);
    let (window, offset) =
        if size >= 8 { (8, (bit / 8).min(size - 8)) } else { (4, (bit / 8).min(size - 4)) };
    let shift = (window * 8 - (bit - offset * 8) - bits) as u8;
    if window == 8 { Source::Narrow { offset, shift, mask } } else { Source::Short { offset, shift, mask } }
}

/// Bytes of a layer's fixed header.
const fn size(layer: Layer) -> u16 {
    match layer {
        Layer::Ethernet => 14,
        Layer::Vlan | Layer::InnerVlan | Layer::Mpls | Layer::Gre => 4,
        Layer::Pppoe => 6,
        Layer::Arp => 28,
        Layer::Ipv4 | Layer::Tcp => 20,
        Layer::Ipv6 => 40,
        Layer::Frame => 0,
        _ => 8,
    }
}

fn read_wide(header: &[u8], bit: u16, bits: u16) -> Option<u128> {
    let field = netbricks_core::packet::field::Field {
        name: "",
        bit,
        bits,
        covered: netbricks_core::packet::field::Covered::No,
        show: netbricks_core::packet::field::Show::Hex,
    };
    field.read(header)
}

/// The length from 1, and behind it the first bytes.
///
/// The length is in the highest byte, 255 standing for more; behind the last byte are zeros.
pub(crate) fn compared(bytes: &[u8]) -> u128 {
    let mut word = [0; 16];
    word[0] = (bytes.len() + 1).min(255) as u8;
    let shown = bytes.len().min(WITH_LENGTH);
    word[1..=shown].copy_from_slice(&bytes[..shown]);
    u128::from_be_bytes(word)
}

/// The bytes behind those of [`compared`], 16 in each number, with zeros behind the last.
pub(crate) fn compared_behind(bytes: &[u8]) -> [u128; BEHIND] {
    let rest = bytes.get(WITH_LENGTH..).unwrap_or_default();
    let mut parts = rest.chunks(16);
    std::array::from_fn(|_| {
        let mut word = [0; 16];
        let part = parts.next().unwrap_or_default();
        word[..part.len()].copy_from_slice(part);
        u128::from_be_bytes(word)
    })
}

/// Puts bytes into their places; none count as 0.
fn put_bytes(field: Field, behind: &[Field], key: &mut [u32], bytes: Option<&[u8]>) {
    let bytes = bytes.map(|bytes| (compared(bytes), compared_behind(bytes)));
    let (first, rest) = bytes.unwrap_or_default();
    field.put(key, first);
    behind.iter().zip(rest).for_each(|(field, part)| field.put(key, part));
}

#[cfg(test)]
mod tests {
    use netbricks_testkit::kinds;
    use netbricks_testkit::mutate::{Random, mutate};

    use super::*;

    /// Frames of the usual form are found as all others are.
    #[test]
    fn the_short_way_finds_what_the_long_way_finds() {
        let mut random = Random::new(5);
        let slack = LengthSlack { missing: 0, unstated: false };
        let mut usual = 0;
        for (name, frame) in kinds::every() {
            for round in 0..200 {
                let mut frame = frame.clone();
                if round > 0 {
                    mutate(&mut frame, &mut random);
                }
                usual += usize::from(Located::usual_end(&frame).is_some());
                assert_eq!(
                    Located::find(&frame, slack),
                    Located::find_any(&frame, slack),
                    "{name}: {frame:02x?}"
                );
            }
        }
        assert!(usual > 500, "{usual}");
    }
}
