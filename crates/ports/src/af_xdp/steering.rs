//! Rules that divide arrivals between us and the host, by EtherType, IP protocol and port.
//!
//! They are kept in BPF maps that the program at the interface consults. The most specific matching rule
//! decides: a port's rule before a protocol's, before an EtherType's, before the default.

use std::io;
use std::str::FromStr;

use super::assembler::{Arithmetic, Assembler, Helper, Label, Register, When, Width};
use super::choice::Choice;
use crate::sys::bpf::{self, Map, MapKind, Program};

/// The treatment of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Action {
    /// The host's stack gets the packet, as if we were not there.
    Kernel = 0,
    /// We get the packet.
    Redirect = 1,
}

/// Traffic that a rule matches: `"arp"`, `"ipv6"`, `"ethertype/0x88cc"`, `"icmp"`, `"protocol/89"`,
/// `"tcp/22"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Traffic {
    /// Frames with this EtherType, behind up to two VLAN tags.
    EtherType(u16),
    /// IPv4 and IPv6 packets with this protocol number (in IPv6, of the first next header).
    Protocol(u8),
    /// Packets of a protocol (TCP, UDP, SCTP) with this source or destination port; later fragments have no
    /// port.
    Port(u8, u16),
}

/// Not the name of traffic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must name traffic as \"arp\", \"ipv4\", \"ipv6\", \"icmp\", \"icmpv6\", \"tcp\", \"udp\", \"sctp\", \"tcp/22\", \"protocol/89\" or \"ethertype/0x88cc\", found {found:?}"
)]
pub(super) struct UnknownTraffic {
    /// The text that was written.
    pub found: String,
}

impl FromStr for Traffic {
    type Err = UnknownTraffic;
    fn from_str(text: &str) -> Result<Self, UnknownTraffic> {
        let unknown = || UnknownTraffic { found: text.into() };
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u16::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let (name, rest) = match text.split_once('/') {
            Some((name, rest)) => (name, Some(number(rest).ok_or_else(unknown)?)),
            None => (text, None),
        };
        let protocol = match name {
            "icmp" => 1,
            "tcp" => 6,
            "udp" => 17,
            "icmpv6" => 58,
            "sctp" => 132,
            _ => 0,
        };
        match (name, rest) {
            ("arp", None) => Ok(Self::EtherType(0x0806)),
            ("ipv4", None) => Ok(Self::EtherType(0x0800)),
            ("ipv6", None) => Ok(Self::EtherType(0x86dd)),
            ("ethertype", Some(number)) => Ok(Self::EtherType(number)),
            ("protocol", Some(number)) => u8::try_from(number).map(Self::Protocol).map_err(|_| unknown()),
            (_, None) if protocol > 0 => Ok(Self::Protocol(protocol)),
            ("tcp" | "udp" | "sctp", Some(port)) => Ok(Self::Port(protocol, port)),
            _ => Err(unknown()),
        }
    }
}

impl Traffic {
    /// The key in the rules' map: kind, protocol, number.
    fn key(self) -> u32 {
        match self {
            Self::EtherType(number) => u32::from(number),
            Self::Protocol(protocol) => PROTOCOL as u32 | u32::from(protocol) << 16,
            Self::Port(protocol, port) => PORT as u32 | u32::from(protocol) << 16 | u32::from(port),
        }
    }
}

const PROTOCOL: i32 = 1 << 24;
const PORT: i32 = 2 << 24;
/// The most rules of an interface.
const RULES: u32 = 1024;
/// Bits of the settings' one word: the default action, whether there are rules, and which filters of the graph count.
const DEFAULT: u32 = 1;
const LOOK: u32 = 2;
const SECOND: u32 = 4;
const XDP_PASS: i32 = 2;

/// The program at an interface, with its maps.
#[derive(Debug)]
pub(super) struct Steering {
    settings: Map,
    rules: Map,
    sockets: Map,
    program: Program,
    /// The choice of one of several sockets of a device queue, by filters of the graph.
    choice: Option<Choice>,
    count: u32,
    default: Action,
    keys: Vec<u32>,
}

impl Steering {
    /// Loads the program. It redirects all packets to the sockets that are entered by their queue.
    ///
    /// `fragments`: packets in several buffers may arrive. `each`: the sockets of each queue, among which filters of the
    /// graph choose.
    pub(super) fn load(queues: u32, each: Option<u32>, fragments: bool) -> io::Result<Self> {
        let choice = each.map(Choice::new).transpose()?;
        let settings = Map::new(MapKind::Array, 1, "nb_settings")?;
        let rules = Map::new(MapKind::Hash, RULES, "nb_rules")?;
        let sockets = Map::new(MapKind::XskMap, queues * each.unwrap_or(1), "nb_sockets")?;
        let instructions = program(&settings, &rules, &sockets, choice.as_ref());
        let flags = if fragments { bpf::F_XDP_HAS_FRAGS } else { 0 };
        let program = Program::load_xdp(&instructions, flags, "nb_steering")?;
        let (default, keys) = (Action::Redirect, Vec::new());
        let mut steering = Self { settings, rules, sockets, program, choice, count: 0, default, keys };
        steering.set_default(Action::Redirect)?;
        Ok(steering)
    }
    pub(super) fn program(&self) -> &Program {
        &self.program
    }
    /// Sends arrivals of this queue to this socket (given by its descriptor), the `number`th of the queue.
    pub(super) fn enter(&self, queue: u32, number: u32, socket: i32) -> io::Result<()> {
        let each = self.choice.as_ref().map_or(1, Choice::queues);
        self.sockets.set(queue * each + number, socket as u32)
    }
    /// Replaces the filters of the graph at once, if the program has a choice. After an error those before stay.
    pub(super) fn choose_by(&mut self, rules: &crate::steer::Rules) -> io::Result<()> {
        let Some(choice) = &mut self.choice else { return Ok(()) };
        choice.prepare(rules)?;
        choice.turn();
        let published = self.publish();
        if let (Err(_), Some(choice)) = (&published, &mut self.choice) {
            choice.turn();
        }
        published
    }
    /// Sets the treatment of arrivals that no rule matches.
    pub(super) fn set_default(&mut self, action: Action) -> io::Result<()> {
        self.default = action;
        self.publish()
    }
    /// Adds, changes or removes a rule.
    pub(super) fn set(&mut self, traffic: Traffic, action: Option<Action>) -> io::Result<()> {
        let key = traffic.key();
        match action {
            Some(action) => {
                self.rules.set(key, action as u32)?;
                if !self.keys.contains(&key) {
                    self.keys.push(key);
                }
            }
            None => {
                self.rules.remove(key)?;
                self.keys.retain(|known| *known != key);
            }
        }
        self.count = self.keys.len() as u32;
        self.publish()
    }
    fn publish(&self) -> io::Result<()> {
        let look = if self.count > 0 { LOOK } else { 0 };
        let second = self.choice.as_ref().is_some_and(Choice::is_second);
        let second = if second { SECOND } else { 0 };
        self.settings.set(0, (self.default as u32 * DEFAULT) | look | second)
    }
}

/// Offsets on the program's stack.
///
/// They hold the key of a lookup, and the EtherType or protocol that is kept during a lookup.
const KEY: i16 = -4;
const KEPT: i16 = -8;

/// The program: reads headers only if there are rules.
///
/// R6 is the context, R7 the position in the packet, R8 the packet's end. R9 has the verdict so far in its
/// lowest bit.
fn program(settings: &Map, rules: &Map, sockets: &Map, choice: Option<&Choice>) -> Vec<bpf::Instruction> {
    use Register::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
    let mut a = Assembler::default();
    let (verdict, pass) = (a.label(), a.label());
    a.compute_with(Arithmetic::Move, R6, R1);
    a.load(Width::Word, R7, R6, 0);
    a.load(Width::Word, R8, R6, 4);
    a.store_value(Width::Word, R10, KEY, 0);
    look_up(&mut a, settings);
    a.jump_if(When::Equal, R0, 0, pass);
    a.load(Width::Word, R9, R0, 0);
    if choice.is_some() {
        Choice::emit_generation(&mut a, SECOND);
    }
    a.compute_with(Arithmetic::Move, R1, R9);
    a.compute(Arithmetic::And, R1, LOOK as i32);
    a.jump_if(When::Equal, R1, 0, verdict);

    // Ethernet and up to two tags. The EtherType is in R2 at the end.
    need(&mut a, 14, verdict);
    a.load_network_half(R2, R7, 12);
    a.compute(Arithmetic::Add, R7, 14);
    for _ in 0..2 {
        let (tag, untagged) = (a.label(), a.label());
        a.jump_if(When::Equal, R2, 0x8100, tag);
        a.jump_if(When::NotEqual, R2, 0x88a8, untagged);
        a.bind(tag);
        need(&mut a, 4, verdict);
        a.load_network_half(R2, R7, 2);
        a.compute(Arithmetic::Add, R7, 4);
        a.bind(untagged);
    }
    a.store(Width::Word, R10, KEPT, R2);
    a.store(Width::Word, R10, KEY, R2);
    rule(&mut a, rules);

    // IP: at the end the protocol is in R2, and R7 is behind the header. R3 marks a later fragment.
    let (ipv4, ipv6, transport) = (a.label(), a.label(), a.label());
    a.load(Width::Word, R2, R10, KEPT);
    a.jump_if(When::Equal, R2, 0x0800, ipv4);
    a.jump_if(When::Equal, R2, 0x86dd, ipv6);
    a.jump(verdict);
    a.bind(ipv4);
    need(&mut a, 20, verdict);
    a.load(Width::Byte, R2, R7, 9);
    a.load_network_half(R3, R7, 6);
    a.compute(Arithmetic::And, R3, 0x1fff);
    a.load(Width::Byte, R1, R7, 0);
    // From a process without CAP_PERFMON, the kernel accepts no program that adds an unknown number to a
    // packet's address. So the header's length, in words of four bytes, is added bit by bit.
    for bit in [1, 2, 4, 8] {
        let unset = a.label();
        a.compute_with(Arithmetic::Move, R0, R1);
        a.compute(Arithmetic::And, R0, bit);
        a.jump_if(When::Equal, R0, 0, unset);
        a.compute(Arithmetic::Add, R7, 4 * bit);
        a.bind(unset);
    }
    a.jump(transport);
    a.bind(ipv6);
    need(&mut a, 40, verdict);
    a.load(Width::Byte, R2, R7, 6);
    a.compute(Arithmetic::Move, R3, 0);
    a.compute(Arithmetic::Add, R7, 40);

    a.bind(transport);
    a.compute(Arithmetic::ShiftLeft, R2, 16);
    // A fragment is marked above the protocol.
    let whole = a.label();
    a.store(Width::Word, R10, KEPT, R2);
    a.jump_if(When::Equal, R3, 0, whole);
    a.store_value(Width::Word, R10, KEPT, 0);
    a.bind(whole);
    a.compute(Arithmetic::Or, R2, PROTOCOL);
    a.store(Width::Word, R10, KEY, R2);
    rule(&mut a, rules);

    // Ports, if the protocol has them at its beginning: source, then destination.
    let ports = a.label();
    a.load(Width::Word, R2, R10, KEPT);
    for protocol in [6, 17, 132] {
        a.jump_if(When::Equal, R2, protocol << 16, ports);
    }
    a.jump(verdict);
    a.bind(ports);
    need(&mut a, 4, verdict);
    for offset in [0, 2] {
        a.load_network_half(R1, R7, offset);
        a.load(Width::Word, R2, R10, KEPT);
        a.compute_with(Arithmetic::Or, R2, R1);
        a.compute(Arithmetic::Or, R2, PORT);
        a.store(Width::Word, R10, KEY, R2);
        rule(&mut a, rules);
    }

    a.bind(verdict);
    a.compute(Arithmetic::And, R9, DEFAULT as i32);
    a.jump_if(When::Equal, R9, 0, pass);
    match choice {
        Some(choice) => choice.emit(&mut a),
        None => a.load(Width::Word, R2, R6, 16),
    }
    a.load_map(R1, sockets);
    // If a queue has no socket, the host gets the packet.
    a.compute(Arithmetic::Move, R3, XDP_PASS);
    a.call(Helper::RedirectMap);
    a.exit();
    a.bind(pass);
    a.compute(Arithmetic::Move, R0, XDP_PASS);
    a.exit();
    a.finish()
}

/// Jumps to `otherwise` unless the packet has `bytes` more bytes.
pub(super) fn need(a: &mut Assembler, bytes: i32, otherwise: Label) {
    a.compute_with(Arithmetic::Move, Register::R1, Register::R7);
    a.compute(Arithmetic::Add, Register::R1, bytes);
    a.jump_if_register(When::Greater, Register::R1, Register::R8, otherwise);
}

/// R0 = the value of the key on the stack, or 0.
fn look_up(a: &mut Assembler, map: &Map) {
    a.load_map(Register::R1, map);
    a.compute_with(Arithmetic::Move, Register::R2, Register::R10);
    a.compute(Arithmetic::Add, Register::R2, i32::from(KEY));
    a.call(Helper::MapLookup);
}

/// Takes the verdict of the rule for the key on the stack, if there is one.
fn rule(a: &mut Assembler, rules: &Map) {
    let none = a.label();
    look_up(a, rules);
    a.jump_if(When::Equal, Register::R0, 0, none);
    a.load(Width::Word, Register::R9, Register::R0, 0);
    a.bind(none);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_has_names() {
        assert_eq!("arp".parse(), Ok(Traffic::EtherType(0x0806)));
        assert_eq!("ethertype/0x88cc".parse(), Ok(Traffic::EtherType(0x88cc)));
        assert_eq!("protocol/89".parse(), Ok(Traffic::Protocol(89)));
        assert_eq!("icmpv6".parse(), Ok(Traffic::Protocol(58)));
        assert_eq!("tcp/22".parse(), Ok(Traffic::Port(6, 22)));
        for wrong in ["", "tcp/", "tcp/70000", "icmp/8", "protocol/256", "arp/1", "ethertype", "ssh"] {
            let error = wrong.parse::<Traffic>().unwrap_err();
            assert!(error.to_string().contains(&format!("{wrong:?}")), "{error}");
        }
    }

    #[test]
    fn keys_do_not_collide() {
        let keys = [
            Traffic::EtherType(0x0800).key(),
            Traffic::Protocol(6).key(),
            Traffic::Port(6, 0).key(),
            Traffic::Port(6, 22).key(),
            Traffic::Port(17, 22).key(),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(key), "{key:#x}");
        }
    }
}
