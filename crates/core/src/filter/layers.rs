//! Where the layers of a frame start, which `vlan`, `mpls`, `pppoes` and `geneve` move for what follows them.

use super::error::Fault;
use super::generator::{Condition, Decided, Generator};
use super::program::{Is, Load, Operand, Operation, Width};
use super::protocol::Selects;

/// The largest length that the length field of IEEE 802.3 has; greater numbers are EtherTypes from 0x600 on.
const MOST_LENGTH: u32 = 1500;

const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Ethernet,
    Ppp,
    /// The Ethernet header within Geneve, which may be absent.
    Geneve,
}

/// The start of a layer: `offset` bytes, after as many as the slot says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Start {
    slot: Option<u8>,
    offset: u32,
}

impl Start {
    fn load(self, at: u32, width: Width) -> Load {
        Load { slot: self.slot, header: None, offset: self.offset.wrapping_add(at), width }
    }
}

/// The layers that the next primitive looks at.
#[derive(Clone, Debug)]
pub(super) struct Layers {
    link: Link,
    header: Start,
    kind: Start,
    payload: Start,
    /// Bytes of MPLS labels between the link layer's payload and the network layer.
    labels: u32,
    /// Bytes between the payload and an OSI network layer, which has an LLC header in Ethernet.
    osi: u32,
    mpls: bool,
}

impl Default for Layers {
    fn default() -> Self {
        Self {
            link: Link::Ethernet,
            header: Start::default(),
            kind: Start { slot: None, offset: 12 },
            payload: Start { slot: None, offset: 14 },
            labels: 0,
            osi: 3,
            mpls: false,
        }
    }
}

impl Layers {
    /// Bytes from the start of the link-layer header.
    pub(super) fn in_link(&self, at: u32, width: Width) -> Load {
        self.header.load(at, width)
    }

    fn in_kind(&self) -> Load {
        self.kind.load(0, Width::Two)
    }

    fn in_llc(&self, at: u32, width: Width) -> Load {
        self.payload.load(at, width)
    }

    pub(super) fn in_network(&self, at: u32, width: Width) -> Load {
        self.payload.load(self.labels.wrapping_add(at), width)
    }

    pub(super) fn in_osi(&self, at: u32, width: Width) -> Load {
        self.payload.load(self.osi + at, width)
    }

    /// Bytes behind an IPv4 header with its options.
    pub(super) fn behind_ipv4(&self, at: u32, width: Width) -> Load {
        let header = self.payload.offset.wrapping_add(self.labels);
        Load { header: Some(header), ..self.in_network(at, width) }
    }

    /// Bytes behind an IPv6 header without extension headers.
    pub(super) fn behind_ipv6(&self, at: u32, width: Width) -> Load {
        self.in_network(40 + at, width)
    }

    pub(super) fn is_ethernet(&self) -> bool {
        self.link != Link::Ppp
    }

    /// Whether MPLS labels come before the network layer.
    pub(super) fn has_labels(&self) -> bool {
        self.mpls
    }

    /// Whether the place of the payload differs from frame to frame.
    pub(super) fn is_variable(&self) -> bool {
        self.payload.slot.is_some()
    }
}

impl Generator {
    /// The condition that the link layer carries a protocol: an EtherType or an LLC service access point.
    pub(super) fn link_type(&mut self, protocol: u32) -> Decided {
        if self.layers.mpls {
            return self.mpls_payload(protocol);
        }
        let kind = self.layers.in_kind();
        if self.layers.link == Link::Ppp {
            return Ok(self.equal(kind, ppp_protocol(protocol)));
        }
        match protocol {
            // OSI, IP over LLC and NetBEUI have the same access point as source and destination.
            0xfe | 0x06 | 0xf0 => {
                let is_length = self.is_length();
                let access_points = self.layers.in_llc(0, Width::Two);
                self.and(is_length, |to| Ok(to.equal(access_points, protocol << 8 | protocol)))
            }
            0xe0 => self.ipx(),
            0x809b => self.type_or_snap(protocol, 0x08_0007),
            0x80f3 => self.type_or_snap(protocol, 0),
            0..=MOST_LENGTH => {
                let is_length = self.is_length();
                let access_point = self.layers.in_llc(0, Width::One);
                self.and(is_length, |to| Ok(to.equal(access_point, protocol)))
            }
            _ => Ok(self.equal(kind, protocol)),
        }
    }

    pub(super) fn is_ipv4(&mut self) -> Decided {
        self.link_type(IPV4)
    }

    pub(super) fn is_ipv6(&mut self) -> Decided {
        self.link_type(IPV6)
    }

    /// The condition that the frame has a length in the place of an EtherType.
    fn is_length(&mut self) -> Condition {
        let kind = self.layers.in_kind();
        self.test(kind, u32::MAX, Is::Greater, MOST_LENGTH).negated()
    }

    /// IPX by EtherType, by SNAP, by access point or by a frame without LLC.
    fn ipx(&mut self) -> Decided {
        let by_type = self.equal(self.layers.in_kind(), 0x8137);
        let access_point = self.layers.in_llc(0, Width::One);
        let raw = self.layers.in_llc(0, Width::Two);
        self.or(by_type, |to| {
            let is_length = to.is_length();
            to.and(is_length, |to| {
                let by_snap = to.snap(0, 0x8137)?;
                let by_llc = to.or(by_snap, |to| Ok(to.equal(access_point, 0xe0)))?;
                to.or(by_llc, |to| Ok(to.equal(raw, 0xffff)))
            })
        })
    }

    fn type_or_snap(&mut self, protocol: u32, organization: u32) -> Decided {
        let by_type = self.equal(self.layers.in_kind(), protocol);
        self.or(by_type, |to| {
            let is_length = to.is_length();
            to.and(is_length, |to| to.snap(organization, protocol))
        })
    }

    /// A SNAP header: AA AA 03, three bytes of an organization, two bytes of a type (IEEE 802).
    fn snap(&mut self, organization: u32, protocol: u32) -> Decided {
        let first = self.layers.in_llc(0, Width::Four);
        let second = self.layers.in_llc(4, Width::Four);
        let second = self.equal(second, (organization & 0xffff) << 16 | protocol);
        self.and(second, |to| Ok(to.equal(first, 0xaaaa_0300 | organization >> 16)))
    }

    /// Below the last MPLS label, only the version of IP tells the protocol.
    fn mpls_payload(&mut self, protocol: u32) -> Decided {
        let version = match protocol {
            IPV4 => 0x40,
            IPV6 => 0x60,
            _ => {
                return Err(Fault::new(
                    "`ip`, `ip6` or a protocol over them after `mpls`",
                    "an MPLS label does not tell other protocols; put this before `mpls`",
                ));
            }
        };
        let last = self.layers.in_network(2_u32.wrapping_sub(4), Width::One);
        let first = self.layers.in_network(0, Width::One);
        let is_last = self.test(last, 1, Is::Equal, 1);
        self.and(is_last, |to| Ok(to.test(first, 0xf0, Is::Equal, version)))
    }

    /// `vlan`: a tag with one of three EtherTypes, and the VLAN's number.
    pub(super) fn vlan(&mut self, number: Option<u32>) -> Decided {
        check_most("VLAN", number, 0xfff)?;
        if self.layers.mpls {
            return Err(Fault::new("`vlan` before `mpls`", "put `vlan` before `mpls`"));
        }
        if self.layers.link == Link::Ppp {
            return Err(Fault::new("`vlan` before `pppoes`", "put `vlan` before `pppoes`"));
        }
        let kind = self.layers.in_kind();
        let mut condition = self.any([0x8100, 0x88a8, 0x9100], |to, tag| Ok(to.equal(kind, tag)))?;
        if let Some(number) = number {
            let tag = self.layers.payload.load(0, Width::Two);
            condition = self.and(condition, |to| Ok(to.test(tag, 0xfff, Is::Equal, number)))?;
        }
        self.layers.kind.offset += 4;
        self.layers.payload.offset += 4;
        Ok(condition)
    }

    /// `mpls`: a label stack, or the next label of one.
    pub(super) fn mpls(&mut self, label: Option<u32>) -> Decided {
        check_most("MPLS label", label, 0xf_ffff)?;
        let mut condition = if self.layers.mpls {
            let before = self.layers.in_network(2_u32.wrapping_sub(4), Width::One);
            self.test(before, 1, Is::Equal, 0)
        } else {
            let ethertype = if self.layers.link == Link::Ppp { 0x0281 } else { 0x8847 };
            self.equal(self.layers.in_kind(), ethertype)
        };
        if let Some(label) = label {
            let entry = self.layers.in_network(0, Width::Four);
            condition = self.and(condition, |to| Ok(to.test(entry, 0xffff_f000, Is::Equal, label << 12)))?;
        }
        self.layers.labels += 4;
        self.layers.osi += 4;
        self.layers.mpls = true;
        Ok(condition)
    }

    pub(super) fn pppoe_discovery(&mut self) -> Decided {
        self.link_type(0x8863)
    }

    /// `pppoes`: a PPPoE session (RFC 2516), with a PPP header as the link layer of what follows.
    pub(super) fn pppoe_session(&mut self, session: Option<u32>) -> Decided {
        check_most("PPPoE session", session, 0xffff)?;
        let mut condition = self.link_type(0x8864)?;
        if let Some(session) = session {
            let start = self.layers.in_network(0, Width::Four);
            condition = self.and(condition, |to| Ok(to.test(start, 0xffff, Is::Equal, session)))?;
        }
        let Layers { payload, labels, .. } = self.layers;
        let header = Start { slot: payload.slot, offset: payload.offset + labels + 6 };
        self.layers.link = Link::Ppp;
        self.layers.header = header;
        self.layers.kind = header;
        self.layers.payload = Start { offset: header.offset + 2, ..header };
        self.layers.labels = 0;
        self.layers.osi = 0;
        Ok(condition)
    }

    /// `geneve`: UDP to port 6081 (RFC 8926), with what it carries as the layers of what follows.
    pub(super) fn geneve(&mut self, network: Option<u32>) -> Decided {
        check_most("Geneve VNI", network, 0xff_ffff)?;
        let into = self.reserve_slots(3)?;
        let over_ipv4 = self.is_ipv4()?;
        let over_ipv4 = self.and(over_ipv4, |to| {
            let udp = to.equal(to.layers.in_network(9, Width::One), 17);
            let whole = to.and(udp, |to| Ok(to.is_first_fragment()))?;
            let start = to.layers.clone();
            to.geneve_header(whole, |at, width| start.behind_ipv4(at, width), network, into)
        })?;
        let condition = self.or(over_ipv4, |to| {
            let over_ipv6 = to.is_ipv6()?;
            to.and(over_ipv6, |to| {
                let udp = to.equal(to.layers.in_network(6, Width::One), 17);
                let start = to.layers.clone();
                to.geneve_header(udp, |at, width| start.behind_ipv6(at, width), network, into)
            })
        })?;
        let start = |slot| Start { slot: Some(slot), offset: 0 };
        self.layers.link = Link::Geneve;
        self.layers.kind = start(into);
        self.layers.header = start(into + 1);
        self.layers.payload = start(into + 2);
        self.layers.labels = 0;
        Ok(condition)
    }

    /// A Geneve header 8 bytes behind the start of UDP, of version 0.
    fn geneve_header(
        &mut self,
        before: Condition,
        at: impl Fn(u32, Width) -> Load,
        network: Option<u32>,
        into: u8,
    ) -> Decided {
        let mut condition = self.and(before, |to| Ok(to.equal(at(2, Width::Two), 6081)))?;
        condition = self.and(condition, |to| Ok(to.test(at(8, Width::One), 0xc0, Is::Equal, 0)))?;
        if let Some(network) = network {
            let number = at(12, Width::Four);
            condition =
                self.and(condition, |to| Ok(to.test(number, 0xffff_ff00, Is::Equal, network << 8)))?;
        }
        self.and(condition, |to| {
            let start = at(8, Width::One);
            let mut found = to.decide(|exits| Operation::Geneve { at: start, into, exits });
            found.forget_no();
            Ok(found)
        })
    }

    /// Within Geneve: the condition that there is an inner Ethernet header.
    pub(super) fn has_link_header(&mut self) -> Option<Condition> {
        let (Link::Geneve, Some(header), Some(payload)) =
            (self.layers.link, self.layers.header.slot, self.layers.payload.slot)
        else {
            return None;
        };
        Some(self.compare(Operand::Slot(header), Is::Equal, Operand::Slot(payload)).negated())
    }

    /// `llc`, or `llc` with a type of LLC PDU (IEEE 802.2).
    pub(super) fn llc(&mut self, kind: Option<LlcType>) -> Decided {
        if !self.layers.is_ethernet() {
            return Err(Fault::new(
                "`llc` before `pppoes`",
                "PPP has no LLC header; put `llc` before `pppoes`",
            ));
        }
        let is_length = self.is_length();
        let start = self.layers.in_llc(0, Width::Two);
        let control = self.layers.in_llc(2, Width::One);
        let condition = self.and(is_length, |to| Ok(to.equal(start, 0xffff).negated()))?;
        let Some(LlcType { mask, value }) = kind else { return Ok(condition) };
        self.and(condition, |to| Ok(to.test(control, mask, Is::Equal, value)))
    }

    /// The condition that a protocol keyword alone stands for.
    pub(super) fn selects(&mut self, selects: Selects) -> Decided {
        match selects {
            Selects::Everything => Err(Fault::new(
                "`host`, `proto`, `broadcast`, `multicast` or `[` after a link layer",
                "all frames have this link layer; remove the word",
            )),
            Selects::LinkType(protocol) => self.link_type(protocol),
            Selects::IpProtocol(number, versions) => self.ip_protocol(number, versions),
            Selects::IsoProtocol(number) => self.iso_protocol(number),
            Selects::IsisTypes(types) => self.any(types, |to, &kind| to.isis_type(kind)),
        }
    }
}

/// The control field of a type of LLC PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LlcType {
    mask: u32,
    value: u32,
}

impl LlcType {
    #[rustfmt::skip]
    const NAMES: [(&'static str, Self); 13] = [
        ("i", Self { mask: 0x01, value: 0x00 }), ("s", Self { mask: 0x03, value: 0x01 }),
        ("u", Self { mask: 0x03, value: 0x03 }), ("rr", Self { mask: 0x0f, value: 0x01 }),
        ("rnr", Self { mask: 0x0f, value: 0x05 }), ("rej", Self { mask: 0x0f, value: 0x09 }),
        ("ui", Self { mask: 0xef, value: 0x03 }), ("ua", Self { mask: 0xef, value: 0x63 }),
        ("disc", Self { mask: 0xef, value: 0x43 }), ("sabme", Self { mask: 0xef, value: 0x6f }),
        ("test", Self { mask: 0xef, value: 0xe3 }), ("xid", Self { mask: 0xef, value: 0xaf }),
        ("frmr", Self { mask: 0xef, value: 0x87 }),
    ];

    pub(super) fn named(name: &str) -> Result<Self, Fault> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|&(_, kind)| kind).ok_or_else(|| Fault {
            nearest: super::names::nearest(name, Self::NAMES.iter().map(|&(known, _)| known)),
            ..Fault::new(
                "a type of LLC PDU",
                "write i, s, u, rr, rnr, rej, ui, ua, disc, sabme, test, xid or frmr",
            )
        })
    }
}

fn check_most(what: &str, number: Option<u32>, most: u32) -> Result<(), Fault> {
    match number {
        Some(number) if number > most => {
            Err(Fault::new(format!("a {what} from 0 to {most}"), format!("write a number up to {most}")))
        }
        _ => Ok(()),
    }
}

/// The PPP protocol number (IANA, "PPP DLL Protocol Numbers") of an EtherType or LLC access point.
fn ppp_protocol(protocol: u32) -> u32 {
    match protocol {
        IPV4 => 0x0021,
        IPV6 => 0x0057,
        0x6003 => 0x0027,
        0x809b => 0x0029,
        0x0600 => 0x0025,
        0xfe => 0x0023,
        0x42 => 0x0031,
        0xe0 => 0x002b,
        other => other,
    }
}
