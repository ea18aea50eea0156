//! The calls that fuzz targets and tests make on untrusted bytes. None of these may panic.

use netbricks_packet::field::Field;
use netbricks_packet::ip::FIRST_FRAGMENT;
use netbricks_packet::print::{self, Protocol};
use netbricks_packet::stack::{Header, Layer, Root, Stack, Wire};
use netbricks_packet::{
    Arp, Ethernet, FlowKey, Geneve, Gre, Gtpu, Icmpv4, Icmpv6, Ip, Ipv4, Ipv6, Link, Mpls, Ppp, Pppoe,
    SegmentRouting, Tcp, Udp, Vlan, Vxlan,
};

/// A frame's bytes as a stack that announces a number, so that any header can be tried at its front.
#[derive(Clone, Copy)]
struct Front(u16);

impl Stack for Front {
    type Top = Wire;
    fn top(&self) -> (usize, ()) {
        (0, ())
    }
    fn end(&self) -> usize {
        0
    }
    fn limit(&self, frame: usize) -> usize {
        frame
    }
    fn next(&self) -> u16 {
        self.0
    }
    fn resized(self, _: isize) -> Self {
        self
    }
    fn stretched(self, _: isize) -> Self {
        self
    }
    fn announcing(self, next: u16) -> Self {
        Self(next)
    }
    type Packed = Self;
    fn pack(self) -> Self {
        self
    }
    fn unpack(packed: Self) -> Self {
        packed
    }
    fn restate(&self, _: &mut [u8]) {}
}

/// Parses `H` at the front of the bytes, and checks the guarantees of the parse.
fn parse<H: Header>(bytes: &[u8], announced: u16) -> Option<Layer<Front, H>> {
    let layer = Layer::<Front, H>::parse(Front(announced), bytes).ok()?;
    assert!(
        layer.end() <= layer.limit(bytes.len()) && layer.limit(bytes.len()) <= bytes.len(),
        "{}: ends outside",
        H::NAME
    );
    let header = &bytes[..layer.end()];
    let (_, facts) = layer.top();
    let _ = H::view(header, facts);
    for field in H::FIELDS {
        check(field, header);
    }
    // Writing through the view stays inside it. It is safe to announce the same number, or to write the same
    // length.
    let mut copy = bytes.to_vec();
    let (head, tail) = copy.split_at_mut(layer.end());
    H::announce(H::view_mut(head, facts), layer.next());
    H::set_total(H::view_mut(head, facts), layer.limit(bytes.len()));
    assert_eq!(tail, &bytes[layer.end()..], "{}: wrote outside", H::NAME);
    Some(layer)
}

fn check(field: &Field, header: &[u8]) {
    if let Some(value) = field.read(header) {
        let mut copy = header.to_vec();
        assert_eq!(field.write(&mut copy, value), Some(()));
        assert_eq!(copy, header, "{}: writing what was read changed a bit", field.name);
    }
}

/// The names that [`header`] takes.
pub const HEADERS: [&str; 19] = [
    "ethernet", "vlan", "link", "arp", "mpls", "pppoe", "ppp", "ipv4", "ipv6", "ip", "tcp", "udp", "icmpv4",
    "icmpv6", "gre", "vxlan", "geneve", "gtpu", "srv6",
];

/// Every parser, at the front of the bytes.
pub fn parsers(bytes: &[u8]) {
    for name in HEADERS {
        header(name, bytes);
    }
}

/// Runs one parser at the front of the bytes, and the iterators of its view.
///
/// # Panics
/// If a promise is broken, or no header has this name.
pub fn header(name: &str, bytes: &[u8]) {
    finds(name, bytes);
}

/// As [`header`]; whether the bytes are that header.
pub fn finds(name: &str, bytes: &[u8]) -> bool {
    match name {
        "ethernet" => parse::<Ethernet>(bytes, 0).is_some(),
        "vlan" => parse::<Vlan>(bytes, 0).is_some(),
        "link" => parse::<Link>(bytes, 0).is_some(),
        "arp" => parse::<Arp>(bytes, 0).is_some(),
        "mpls" => parse::<Mpls>(bytes, 0).is_some(),
        "pppoe" => parse::<Pppoe>(bytes, 0).is_some(),
        "ppp" => parse::<Ppp>(bytes, 0).is_some(),
        "ip" => parse::<Ip>(bytes, 0).is_some(),
        "vxlan" => parse::<Vxlan>(bytes, 0).is_some(),
        // A first fragment's length may also count bytes of later fragments.
        "udp" => {
            let whole = parse::<Udp>(bytes, 17).is_some();
            parse::<Udp>(bytes, FIRST_FRAGMENT | 17).is_some() | whole
        }
        "ipv4" => with::<Ipv4>(bytes, |view, _| assert!(view.options().count() <= 40)),
        "tcp" => with::<Tcp>(bytes, |view, _| assert!(view.options().count() <= 40)),
        "ipv6" => with::<Ipv6>(bytes, |view, size| {
            let walked: usize = view.extensions().map(|extension| extension.bytes.len()).sum();
            assert_eq!(walked + Ipv6::SIZE, size, "the extension headers fill the header");
        }),
        "icmpv4" => with::<Icmpv4>(bytes, |view, size| {
            let _ = view.quoted(&bytes[size..]).map(|quoted| (quoted.flow(), quoted.extensions().count()));
        }),
        "icmpv6" => with::<Icmpv6>(bytes, |view, size| {
            let _ = view.quoted(&bytes[size..]).map(|quoted| (quoted.flow(), quoted.extensions().count()));
            let _ = format!("{:?}", view.neighbor(&bytes[size..]));
        }),
        "gre" => with::<Gre>(bytes, |view, _| assert!(view.to_string().starts_with("gre "))),
        "geneve" => with::<Geneve>(bytes, |view, _| assert!(view.options().count() <= 63)),
        "gtpu" => with::<Gtpu>(bytes, |view, size| {
            let extensions: usize = view.extensions().map(|extension| extension.content.len() + 2).sum();
            let optional = if view.has_optional_fields() { 12 } else { 8 };
            assert_eq!(extensions + optional, size, "the extension headers fill the header");
        }),
        "srv6" => with::<SegmentRouting>(bytes, |view, size| {
            assert!(view.active_segment().is_some());
            assert_eq!(8 + 16 * view.segments().len() + view.tlvs().len(), size);
        }),
        other => panic!("no parser is named {other}"),
    }
}

/// Calls `look` with the view and the header's length, if the bytes are that header; whether they are.
fn with<'a, H: Header>(bytes: &'a [u8], look: impl FnOnce(H::Ref<'a>, usize)) -> bool {
    let found = parse::<H>(bytes, 0);
    if let Some(layer) = &found {
        look(H::view(&bytes[..layer.end()], layer.top().1), layer.end());
    }
    found.is_some()
}

/// The flow key of a frame: stable, reversible, and the same for both directions once canonical.
pub fn flow_key(bytes: &[u8]) {
    let Some(key) = FlowKey::from_frame(bytes) else { return };
    assert_eq!(Some(key), FlowKey::from_frame(bytes));
    assert_eq!(key.reversed().reversed(), key);
    assert_eq!(key.canonical(), key.reversed().canonical());
    // As a lookup asks it, which has a short way for most packets and others for the rest.
    let (header, payload) = Ip::in_frame(bytes).expect("it has a key");
    let link = Layer::<Root, Link>::parse(Root, bytes).expect("it has a key");
    let ip = Layer::<_, Ip>::parse(link, bytes).expect("it has a key");
    let ((at, facts), end, limit) = (ip.top(), ip.end(), ip.limit(bytes.len()));
    assert_eq!(FlowKey::at(bytes, at, end, limit, facts), key);
    assert_eq!(FlowKey::related_at(bytes, at, end, limit, facts), FlowKey::related(header, payload));
    assert!(FlowKey::quoted(header, payload).is_none() || FlowKey::is_error(header, payload));
}

/// Runs every printer, and checks a dissection's guarantees: headers in order, inside the frame, none
/// overlapping.
pub fn printing(bytes: &[u8]) {
    for first in [Protocol::Ethernet, Protocol::Ipv4, Protocol::Ipv6] {
        let dissection = print::dissect_from(first, bytes);
        let mut end = 0;
        for layer in dissection.layers() {
            assert!(layer.offset >= end, "{} overlaps the header before it", layer.name());
            end = layer.offset + layer.bytes.len();
            assert_eq!(bytes.get(layer.offset..end), Some(layer.bytes));
            assert!(layer.parts().all(|part| part.bytes.len() <= layer.bytes.len()));
        }
        let covered = dissection.payload_offset() + dissection.payload().len() + dissection.padding().len();
        assert!(covered >= bytes.len() && dissection.payload_offset() >= end);
        assert!(!print::OneLine::from(dissection.clone()).to_string().contains('\n'));
        assert!(print::Tree::from(dissection).to_string().starts_with("frame, "));
    }
}

/// The difference of the two halves, and of each half with itself.
pub fn difference(bytes: &[u8]) {
    let (before, after) = bytes.split_at(bytes.len() / 2);
    changes(before, after);
    assert_eq!(print::difference(before, before).to_string(), "");
}

/// Two packets differ in print if and only if they differ.
pub fn changes(before: &[u8], after: &[u8]) {
    let difference = print::difference(before, after);
    let text = difference.to_string();
    assert_eq!(difference.is_empty(), before == after);
    assert_eq!(text.is_empty(), before == after, "{text}");
}
