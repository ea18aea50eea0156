//! The core side: packets for subscribers, ARP and neighbour discovery, and the gateway's Ethernet address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_core::buffer::Packet;
use netbricks_core::packet::MacAddress;
use netbricks_core::packet::build::ipv6;
use netbricks_core::{Context, DropReason};

use super::concentrator::Concentrator;
use super::config::Gateway;
use super::control::protocol;
use super::data::drop_early;
use super::fixed::Fixed;
use super::ppp::Env;
use super::session::{NEVER, Session};
use super::time;
use crate::router::Network;
use crate::router::discovery::{self, Kind};
use crate::router::faces::Face;
use crate::router::look::{Parsed, Seen, is_intact, is_martian, look};

/// The time between two questions for the gateway while it does not answer, and once it has (ns).
const ASK: u64 = 1_000_000_000;
const REFRESH: u64 = 30_000_000_000;
/// The MTU of the core side.
const MTU: usize = 1_500;

/// The knowledge about the next hop.
pub(super) struct Gate {
    /// Its address, where it is asked for.
    address: Option<Ipv4Addr>,
    mac: Option<MacAddress>,
    ask_at: u64,
}

impl Gate {
    pub(super) fn new(gateway: Gateway) -> Self {
        match gateway {
            Gateway::Mac(mac) => Self { address: None, mac: Some(mac), ask_at: NEVER },
            Gateway::Address(address) => Self { address: Some(address), mac: None, ask_at: 0 },
        }
    }
    pub(super) fn is_known(&self) -> bool {
        self.mac.is_some()
    }
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.ask_at <= now
    }
}

/// The core side as an interface of the router's messages.
pub(super) fn face(fixed: &Fixed) -> Face {
    Face {
        name: "core".into(),
        port: 1,
        vlan: None,
        mac: fixed.mac,
        mtu: MTU,
        networks: vec![Network { address: fixed.address.into(), len: 32 }],
        link_local: fixed.link_local,
        is_host: false,
    }
}

impl Concentrator {
    /// Writes the Ethernet header of a packet to the gateway.
    pub(super) fn write_core_link(&self, packet: &mut Packet, kind: u16) {
        let to = self.gate.mac.unwrap_or(MacAddress::new([0; 6]));
        if let Some(header) = packet.data_mut().get_mut(..14) {
            discovery::write_link(header, &self.face, to, kind);
        }
    }

    /// Asks for the gateway's Ethernet address, at most once a second.
    pub(super) fn ask_gateway(&mut self, cx: &mut Context) {
        let now = time(cx);
        let Some(address) = self.gate.address.filter(|_| self.gate.is_due(now)) else { return };
        self.gate.ask_at = now + ASK;
        if let Some(question) = discovery::question(cx.pool(), &self.face, address.into(), None) {
            self.made(question, cx);
        }
    }

    /// Sends a packet that was made here to the core.
    fn made(&mut self, mut packet: Packet, cx: &mut Context) {
        packet.set_received_at(cx.now());
        cx.created(&packet);
        cx.emit(super::CORE, packet);
    }

    /// Takes a frame of the core port.
    pub(super) fn hear_core(&mut self, packet: Packet, cx: &mut Context) {
        match look(&packet) {
            Seen::Lost(reason) => drop_early(packet, reason, cx),
            Seen::Arp { at, vlan: None } => self.hear_arp(packet, at.into(), cx),
            Seen::Ip(parsed) if parsed.vlan.is_none() && parsed.at == 14 => {
                self.hear_core_ip(packet, &parsed, cx)
            }
            Seen::Arp { .. } | Seen::Ip(_) => drop_early(packet, DropReason::Unmatched, cx),
        }
    }

    fn hear_core_ip(&mut self, packet: Packet, parsed: &Parsed, cx: &mut Context) {
        let (ip, payload) = parsed.header(packet.data());
        match discovery::of_icmpv6(ip, payload) {
            Ok(Some(message)) if self.is_for_link(ip.destination()) => {
                return self.hear_neighbour(packet, message.address, message.kind, cx);
            }
            _ => {}
        }
        if packet.data().first_chunk() != Some(&self.fixed.mac.octets()) {
            // A port in promiscuous mode shows what is for others.
            return cx.drop_packet(packet, DropReason::Martian);
        }
        if !is_intact(packet.data(), parsed) {
            return cx.drop_packet(packet, DropReason::BadChecksum);
        }
        if self.is_own(ip.destination()) {
            return self.deliver(packet, parsed, None, cx);
        }
        if is_martian(ip) {
            return cx.drop_packet(packet, DropReason::Martian);
        }
        let index = self.owner(ip.destination());
        match index {
            Some(index) => self.downstream(packet, parsed, index, None, cx),
            None => cx.drop_packet(packet, DropReason::NoSession),
        }
    }

    /// The session that has an address.
    pub(super) fn owner(&self, address: IpAddr) -> Option<u32> {
        let sessions = self.sessions.borrow();
        match address {
            IpAddr::V4(address) => sessions.shared.addresses.of_v4(address),
            IpAddr::V6(address) => sessions.shared.addresses.of_v6(address),
        }
    }

    fn is_for_link(&self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V6(to) if to.is_multicast() || to.is_unicast_link_local())
            || self.is_own(address)
            || self.owner(address).is_some()
    }

    /// Answers for the concentrator and for the addresses of open sessions, and learns where the gateway is.
    fn hear_arp(&mut self, packet: Packet, at: usize, cx: &mut Context) {
        let Some((arp, message)) = discovery::of_arp(packet.data(), at) else {
            return cx.drop_packet(packet, DropReason::Malformed);
        };
        if let (Some(gateway), Some(mac)) = (self.gate.address, message.mac)
            && message.address == IpAddr::V4(gateway)
        {
            self.gate.mac = Some(mac);
            self.gate.ask_at = time(cx) + REFRESH;
        }
        let is_ours = |target: IpAddr| self.is_own(target) || self.owner(target).is_some();
        match message.kind {
            Kind::Asks { target } if is_ours(target) => {
                if let Some(answer) = discovery::arp_reply(cx.pool(), &self.face, &arp) {
                    self.made(answer, cx);
                }
                cx.drop_packet(packet, DropReason::Answered);
            }
            Kind::Asks { .. } => cx.drop_packet(packet, DropReason::Unmatched),
            Kind::Answers { .. } => cx.drop_packet(packet, DropReason::LocalDelivery),
        }
    }

    fn hear_neighbour(&mut self, packet: Packet, asker: IpAddr, kind: Kind, cx: &mut Context) {
        let from = packet.data().get(6..12).and_then(|mac| <[u8; 6]>::try_from(mac).ok());
        let (Kind::Asks { target: IpAddr::V6(target) }, IpAddr::V6(asker), Some(from)) = (kind, asker, from)
        else {
            return cx.drop_packet(packet, DropReason::LocalDelivery);
        };
        if !self.is_own(target.into()) && self.owner(target.into()).is_none() {
            return cx.drop_packet(packet, DropReason::Unmatched);
        }
        let answer = discovery::advertisement(cx.pool(), &self.face, target, asker, MacAddress::new(from));
        if let Some(answer) = answer {
            self.made(answer, cx);
        }
        cx.drop_packet(packet, DropReason::Answered);
    }
}

/// All nodes of the link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The type of a router advertisement.
const ADVERTISEMENT: u8 = 134;
/// Seconds for which the concentrator is a router to a subscriber, and for which its prefix and servers hold.
const LIFETIME: u16 = 1_800;
/// The time between two advertisements (ns).
const ADVERTISE: u64 = 600_000_000_000;

impl Session {
    /// Advertises the subscriber's prefix (RFC 4861, section 4.2; RFC 8106): it makes addresses of the first /64.
    pub(super) fn advertise(&mut self, env: &mut Env<'_>) {
        let Some(prefix) = self.prefix.filter(|_| self.is_open_v6) else {
            self.advertise_due = NEVER;
            return;
        };
        self.advertise_due = env.now + ADVERTISE;
        self.advertised_at = env.now;
        let fixed = env.shared.fixed.clone();
        let mut body = [0; 8 + 32 + 8 + 40];
        let lifetime = u32::from(LIFETIME).to_be_bytes();
        // Not on the link, and free to make addresses of.
        body[8..12].copy_from_slice(&[3, 4, 64, 0x40]);
        body[12..16].copy_from_slice(&lifetime);
        body[16..20].copy_from_slice(&lifetime);
        body[24..32].copy_from_slice(&prefix.bits.to_be_bytes());
        body[40..42].copy_from_slice(&[5, 1]);
        body[44..48].copy_from_slice(&(self.mtu() as u32).to_be_bytes());
        let mut len = 48;
        let servers = fixed.dns_v6.iter().flatten().count();
        if servers > 0 {
            body[48..50].copy_from_slice(&[25, 1 + 2 * servers as u8]);
            body[52..56].copy_from_slice(&lifetime);
            len += 8;
            for server in fixed.dns_v6.iter().flatten() {
                body[len..len + 16].copy_from_slice(&server.octets());
                len += 16;
            }
        }
        let [high, low] = LIFETIME.to_be_bytes();
        let message = ipv6(fixed.link_local, ALL_NODES)
            .hop_limit(255)
            .icmpv6(ADVERTISEMENT, 0, [64, 0, high, low])
            .payload(&body[..len]);
        let size = message.size();
        self.frame(protocol::IPV6, size, env, |room| {
            // The room has the message's exact size.
            let _ = message.write(room);
        });
    }
}
