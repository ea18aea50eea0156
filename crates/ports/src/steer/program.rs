//! Rules as a classic BPF program.
//!
//! The kernel runs it for every arrival to choose among the sockets of a fanout group (packet(7),
//! `PACKET_FANOUT_CBPF`).
//!
//! The program finds the [`Facts`](super::Facts) of a frame and stores each in a word of its memory. It
//! compares them with one rule after the other, and hashes flows that match no rule. It sees the packet as a
//! socket of the group would get it: from the network layer on, with the first VLAN tag beside it, which the
//! kernel has removed.

use std::net::IpAddr;

use netbricks_packet::ethernet::ethertype;
use netbricks_packet::ip::Version;
use netbricks_packet::{icmpv4, protocol};

use super::{Filter, Prefix, Rules};
use crate::sys::packet::Instruction;
use netbricks_core::guards::{EXTENSIONS, FRAGMENT_V4, FRAGMENT_V6};

// Words of the program's memory. A fact that is not known has a value that no rule can ask for.
const VLAN: u32 = 0;
const ETHERTYPE: u32 = 1;
const NETWORK: u32 = 2;
const PROTOCOL: u32 = 3;
const TRANSPORT: u32 = 4;
const SOURCE_PORT: u32 = 5;
const DESTINATION_PORT: u32 = 6;
const VERSION: u32 = 7;
/// Four words each; IPv4 uses the first.
const SOURCE: u32 = 8;
const DESTINATION: u32 = 12;
const NO_VLAN: u32 = 0x1000;
const NO_PROTOCOL: u32 = 0x100;
const NO_PORT: u32 = 0x1_0000;
/// Replaces [`NETWORK`] after that was read: the packet is not a fragment, and [`TRANSPORT`] is valid.
const WHOLE: u32 = 0x1_0000;

/// Types of ICMP that quote a packet (RFC 792; RFC 1122, section 3.2.2).
const ERRORS_V4: [u8; 5] = [
    icmpv4::kind::DESTINATION_UNREACHABLE,
    icmpv4::kind::SOURCE_QUENCH,
    icmpv4::kind::REDIRECT,
    icmpv4::kind::TIME_EXCEEDED,
    icmpv4::kind::PARAMETER_PROBLEM,
];
/// The first type of ICMPv6 that quotes no packet (RFC 4443, section 2.1).
const INFORMATIONAL_V6: u8 = 128;

// Offsets of the data beside the packet (linux/filter.h).
pub(super) const AD_PROTOCOL: u32 = AD;
pub(super) const AD_VLAN_TAG: u32 = AD + 44;
pub(super) const AD_VLAN_TAG_PRESENT: u32 = AD + 48;
const AD: u32 = -0x1000_i32 as u32;

// Opcodes (linux/bpf_common.h): a class, a width or operation, a mode.
pub(super) const LOAD: u16 = 0x00;
pub(super) const LOAD_X: u16 = 0x01;
pub(super) const STORE: u16 = 0x02;
pub(super) const COMPUTE: u16 = 0x04;
pub(super) const JUMP: u16 = 0x05;
pub(super) const RETURN: u16 = 0x06;
pub(super) const MOVE: u16 = 0x07;
const WORD: u16 = 0x00;
const HALF: u16 = 0x08;
const BYTE: u16 = 0x10;
pub(super) const VALUE: u16 = 0x00;
pub(super) const ABSOLUTE: u16 = 0x20;
pub(super) const INDIRECT: u16 = 0x40;
pub(super) const MEMORY: u16 = 0x60;
pub(super) const LENGTH: u16 = 0x80;
pub(super) const BY_X: u16 = 0x08;
const ADD: u16 = 0x00;
const MULTIPLY: u16 = 0x20;
const AND: u16 = 0x50;
const SHIFT_LEFT: u16 = 0x60;
const SHIFT_RIGHT: u16 = 0x70;
const XOR: u16 = 0xa0;
pub(super) const ALWAYS: u16 = 0x00;
pub(super) const EQUAL: u16 = 0x10;
pub(super) const AT_LEAST: u16 = 0x30;
pub(super) const ANY_BIT: u16 = 0x40;
pub(super) const ACCUMULATOR: u16 = 0x10;
const TO_X: u16 = 0x00;
pub(super) const TO_A: u16 = 0x80;

/// The program: answers the queue of the first rule that matches, or a hash of the flow.
///
/// The hash is the same for both directions.
pub(crate) fn program(rules: &Rules) -> Vec<Instruction> {
    let mut a = Assembler::default();
    let known = a.label();
    link(&mut a, known);
    a.bind(known);
    for rule in rules.iter() {
        let next = a.label();
        matches(&mut a, &rule.filter, next);
        a.emit(RETURN | VALUE, rule.queue.into());
        a.bind(next);
        if rule.filter == Filter::ANY {
            // No packet goes further, and the verifier of eBPF refuses unreachable code.
            return a.finish();
        }
    }
    quoted(&mut a);
    hash(&mut a);
    a.finish()
}

/// Reads tags and EtherType, then the headers after them. Goes to `known` when there are no more facts.
fn link(a: &mut Assembler, known: Label) {
    for (word, value) in [
        (VLAN, NO_VLAN),
        (PROTOCOL, NO_PROTOCOL),
        (SOURCE_PORT, NO_PORT),
        (DESTINATION_PORT, NO_PORT),
        (NETWORK, 0),
        (TRANSPORT, 0),
        (VERSION, 0),
    ] {
        a.set(word, value);
    }
    a.emit(LOAD | VALUE, 0);
    for word in SOURCE..SOURCE + 8 {
        a.emit(STORE, word);
    }
    let (tagged, second, network, v4, v6) = (a.label(), a.label(), a.label(), a.label(), a.label());
    a.emit(LOAD | WORD | ABSOLUTE, AD_PROTOCOL);
    a.emit(STORE, ETHERTYPE);
    a.emit(LOAD | WORD | ABSOLUTE, AD_VLAN_TAG_PRESENT);
    a.unless(EQUAL, 0, tagged);
    tag(a, true, network);
    a.go(second);
    a.bind(tagged);
    a.emit(LOAD | WORD | ABSOLUTE, AD_VLAN_TAG);
    a.emit(COMPUTE | AND, 0xfff);
    a.emit(STORE, VLAN);
    a.bind(second);
    tag(a, false, network);

    a.bind(network);
    a.load(ETHERTYPE);
    a.when(EQUAL, ethertype::IPV4.into(), v4);
    a.when(EQUAL, ethertype::IPV6.into(), v6);
    a.go(known);
    let transport = a.label();
    a.bind(v4);
    ipv4(a, transport, known);
    a.bind(v6);
    ipv6(a, transport, known);

    a.bind(transport);
    a.set(NETWORK, WHOLE);
    ports(a, known);
}

/// Reads the ports of a packet that is not a fragment; goes to `known` if there are none.
fn ports(a: &mut Assembler, known: Label) {
    let ports = a.label();
    a.load(PROTOCOL);
    for number in (0..=u8::MAX).filter(|number| protocol::has_ports(*number)) {
        a.when(EQUAL, number.into(), ports);
    }
    a.go(known);
    a.bind(ports);
    a.need(TRANSPORT, 4, known);
    a.at(TRANSPORT);
    a.copy(HALF, 0, SOURCE_PORT);
    a.copy(HALF, 2, DESTINATION_PORT);
}

/// Replaces an ICMP error by the packet that it quotes, so that it comes to the queue of its flow.
///
/// See RFC 792 and RFC 4443, section 2.4. Any router may send the error. Rules were compared with the error
/// itself before.
fn quoted(a: &mut Assembler) {
    let done = a.label();
    type Read = fn(&mut Assembler, Label, Label);
    let kinds: [(u32, u8, Read); 2] = [(4, protocol::ICMP, ipv4), (6, protocol::ICMPV6, ipv6)];
    for (version, protocol, header) in kinds {
        // Conditional jumps are short.
        let (other, none, error, transport, end) = (a.label(), a.label(), a.label(), a.label(), a.label());
        a.load(NETWORK);
        a.unless(EQUAL, WHOLE, none);
        a.load(VERSION);
        a.unless(EQUAL, version, none);
        a.load(PROTOCOL);
        a.unless(EQUAL, protocol.into(), none);
        a.need(TRANSPORT, 8, none);
        a.at(TRANSPORT);
        a.emit(LOAD | BYTE | INDIRECT, 0);
        if version == 4 {
            for kind in ERRORS_V4 {
                a.when(EQUAL, kind.into(), error);
            }
        } else {
            a.unless(AT_LEAST, INFORMATIONAL_V6.into(), error);
        }
        a.bind(none);
        a.go(other);
        a.bind(error);
        a.advance(8, NETWORK);
        header(a, transport, end);
        a.bind(transport);
        ports(a, end);
        a.bind(end);
        a.go(done);
        a.bind(other);
    }
    a.bind(done);
}

/// Reads a tag in the packet; goes to `network` if there is none.
fn tag(a: &mut Assembler, is_first: bool, network: Label) {
    let tag = a.label();
    a.load(ETHERTYPE);
    for number in [ethertype::VLAN, ethertype::SERVICE_VLAN, ethertype::LEGACY_QINQ] {
        a.when(EQUAL, number.into(), tag);
    }
    a.go(network);
    a.bind(tag);
    a.need(NETWORK, 4, network);
    a.at(NETWORK);
    if is_first {
        a.emit(LOAD | HALF | INDIRECT, 0);
        a.emit(COMPUTE | AND, 0xfff);
        a.emit(STORE, VLAN);
    }
    a.copy(HALF, 2, ETHERTYPE);
    a.advance(4, NETWORK);
}

fn ipv4(a: &mut Assembler, transport: Label, known: Label) {
    a.need(NETWORK, 20, known);
    a.at(NETWORK);
    a.emit(LOAD | BYTE | INDIRECT, 0);
    a.emit(COMPUTE | SHIFT_RIGHT, 4);
    a.unless(EQUAL, 4, known);
    a.emit(LOAD | BYTE | INDIRECT, 0);
    a.emit(COMPUTE | AND, 0xf);
    a.emit(COMPUTE | SHIFT_LEFT, 2);
    a.unless(AT_LEAST, 20, known);
    a.emit(COMPUTE | ADD | BY_X, 0);
    a.emit(STORE, TRANSPORT);
    a.set(VERSION, 4);
    a.copy(BYTE, 9, PROTOCOL);
    a.copy(WORD, 12, SOURCE);
    a.copy(WORD, 16, DESTINATION);
    a.emit(LOAD | HALF | INDIRECT, 6);
    a.when(ANY_BIT, FRAGMENT_V4.into(), known);
    a.go(transport);
}

fn ipv6(a: &mut Assembler, transport: Label, known: Label) {
    a.need(NETWORK, 40, known);
    a.at(NETWORK);
    a.emit(LOAD | BYTE | INDIRECT, 0);
    a.emit(COMPUTE | SHIFT_RIGHT, 4);
    a.unless(EQUAL, 6, known);
    a.set(VERSION, 6);
    for word in 0..4 {
        a.copy(WORD, 8 + 4 * word, SOURCE + word);
        a.copy(WORD, 24 + 4 * word, DESTINATION + word);
    }
    a.copy(BYTE, 6, PROTOCOL);
    a.advance(40, TRANSPORT);
    let (cut, done) = (a.label(), a.label());
    for _ in 0..EXTENSIONS {
        let (fragment, options, next) = (a.label(), a.label(), a.label());
        a.load(PROTOCOL);
        a.when(EQUAL, protocol::FRAGMENT.into(), fragment);
        for number in [protocol::HOP_BY_HOP, protocol::ROUTING, protocol::DESTINATION_OPTIONS] {
            a.when(EQUAL, number.into(), options);
        }
        a.go(done);
        a.bind(fragment);
        a.need(TRANSPORT, 4, cut);
        a.at(TRANSPORT);
        a.copy(BYTE, 0, PROTOCOL);
        a.emit(LOAD | HALF | INDIRECT, 2);
        a.when(ANY_BIT, FRAGMENT_V6.into(), known);
        a.advance(8, TRANSPORT);
        a.go(next);
        a.bind(options);
        a.need(TRANSPORT, 4, cut);
        a.at(TRANSPORT);
        a.copy(BYTE, 0, PROTOCOL);
        a.emit(LOAD | BYTE | INDIRECT, 1);
        a.emit(COMPUTE | SHIFT_LEFT, 3);
        a.emit(COMPUTE | ADD, 8);
        a.emit(COMPUTE | ADD | BY_X, 0);
        a.emit(STORE, TRANSPORT);
        a.bind(next);
    }
    a.go(done);
    a.bind(cut);
    a.set(PROTOCOL, NO_PROTOCOL);
    a.go(known);
    a.bind(done);
    a.go(transport);
}

/// Goes to `next` unless a filter matches.
fn matches(a: &mut Assembler, filter: &Filter, next: Label) {
    let version = filter.version.map(|version| match version {
        Version::V4 => 4,
        Version::V6 => 6,
    });
    let fields = [
        (VLAN, filter.vlan.map(u32::from)),
        (ETHERTYPE, filter.ethertype.map(u32::from)),
        (VERSION, version),
        (PROTOCOL, filter.protocol.map(u32::from)),
        (SOURCE_PORT, filter.source_port.map(u32::from)),
        (DESTINATION_PORT, filter.destination_port.map(u32::from)),
    ];
    for (word, wanted) in fields {
        if let Some(wanted) = wanted {
            a.load(word);
            a.unless(EQUAL, wanted, next);
        }
    }
    for (first, prefix) in [(SOURCE, filter.source), (DESTINATION, filter.destination)] {
        if let Some(prefix) = prefix {
            within(a, first, prefix, next);
        }
    }
}

fn within(a: &mut Assembler, first: u32, prefix: Prefix, next: Label) {
    let words = match prefix.address() {
        IpAddr::V4(address) => vec![address.to_bits()],
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            vec![(bits >> 96) as u32, (bits >> 64) as u32, (bits >> 32) as u32, bits as u32]
        }
    };
    let mut left = u32::from(prefix.bits());
    for (word, wanted) in (first..).zip(words) {
        if left == 0 {
            return;
        }
        a.load(word);
        if left < 32 {
            a.emit(COMPUTE | AND, u32::MAX << (32 - left));
        }
        a.unless(EQUAL, wanted, next);
        left = left.saturating_sub(32);
    }
}

/// Returns a hash of addresses, protocol and ports that is the same in both directions.
///
/// The kernel's own hash divides other groups. Programs can read it only if the device or the sender computed
/// it.
fn hash(a: &mut Assembler) {
    // The sums are symmetric. The multipliers are those of MurmurHash3's finaliser and the golden ratio's.
    const SUM: u32 = NETWORK;
    const PARTS: [(u32, u32); 5] = [
        (SOURCE_PORT, DESTINATION_PORT),
        (SOURCE, DESTINATION),
        (SOURCE + 1, DESTINATION + 1),
        (SOURCE + 2, DESTINATION + 2),
        (SOURCE + 3, DESTINATION + 3),
    ];
    a.load(PROTOCOL);
    a.emit(STORE, SUM);
    for (one, other) in PARTS {
        a.at(one);
        a.load(other);
        a.emit(COMPUTE | XOR | BY_X, 0);
        a.emit(COMPUTE | MULTIPLY, 0x9e37_79b1);
        a.emit(STORE, TRANSPORT);
        a.load(other);
        a.emit(COMPUTE | ADD | BY_X, 0);
        a.at(TRANSPORT);
        a.emit(COMPUTE | ADD | BY_X, 0);
        a.at(SUM);
        a.emit(COMPUTE | ADD | BY_X, 0);
        mix(a, 15, 0x85eb_ca6b);
        a.emit(STORE, SUM);
    }
    mix(a, 16, 0x85eb_ca6b);
    mix(a, 13, 0xc2b2_ae35);
    mix(a, 16, 1);
    a.emit(RETURN | ACCUMULATOR, 0);
}

/// A = (A ^ A >> bits) * by
fn mix(a: &mut Assembler, bits: u32, by: u32) {
    a.emit(MOVE | TO_X, 0);
    a.emit(COMPUTE | SHIFT_RIGHT, bits);
    a.emit(COMPUTE | XOR | BY_X, 0);
    a.emit(COMPUTE | MULTIPLY, by);
}

/// A later place to jump to; bound once.
#[derive(Clone, Copy)]
struct Label(usize);

/// The field of a jump that holds its distance.
#[derive(Clone, Copy)]
enum Way {
    IfTrue,
    IfFalse,
    Always,
}

#[derive(Default)]
struct Assembler {
    instructions: Vec<Instruction>,
    labels: Vec<usize>,
    jumps: Vec<(usize, Way, Label)>,
}

impl Assembler {
    fn emit(&mut self, code: u16, value: u32) {
        self.instructions.push(Instruction { code, if_true: 0, if_false: 0, value });
    }
    fn label(&mut self) -> Label {
        self.labels.push(usize::MAX);
        Label(self.labels.len() - 1)
    }
    fn bind(&mut self, label: Label) {
        self.labels[label.0] = self.instructions.len();
    }
    fn jump(&mut self, way: Way, test: u16, value: u32, label: Label) {
        self.jumps.push((self.instructions.len(), way, label));
        self.emit(JUMP | test, value);
    }
    /// Jumps if the test of A holds.
    fn when(&mut self, test: u16, value: u32, label: Label) {
        self.jump(Way::IfTrue, test, value, label);
    }
    /// Jumps if the test of A does not hold.
    fn unless(&mut self, test: u16, value: u32, label: Label) {
        self.jump(Way::IfFalse, test, value, label);
    }
    fn go(&mut self, label: Label) {
        self.jump(Way::Always, ALWAYS, 0, label);
    }
    /// A = a word of the memory.
    fn load(&mut self, word: u32) {
        self.emit(LOAD | MEMORY, word);
    }
    /// X = a word of the memory.
    fn at(&mut self, word: u32) {
        self.emit(LOAD_X | MEMORY, word);
    }
    /// A word of the memory = a value.
    fn set(&mut self, word: u32, value: u32) {
        self.emit(LOAD | VALUE, value);
        self.emit(STORE, word);
    }
    /// A word of the memory = the packet's bytes at X + `offset`.
    fn copy(&mut self, width: u16, offset: u32, word: u32) {
        self.emit(LOAD | width | INDIRECT, offset);
        self.emit(STORE, word);
    }
    /// A word of the memory = X + `bytes`.
    fn advance(&mut self, bytes: u32, word: u32) {
        self.emit(MOVE | TO_A, 0);
        self.emit(COMPUTE | ADD, bytes);
        self.emit(STORE, word);
    }
    /// Jumps to `otherwise` unless the packet has `bytes` bytes from the offset in a word of the memory.
    ///
    /// A load beyond the packet's end would end the program.
    fn need(&mut self, word: u32, bytes: u32, otherwise: Label) {
        self.load(word);
        self.emit(COMPUTE | ADD, bytes);
        self.emit(MOVE | TO_X, 0);
        self.emit(LOAD | LENGTH, 0);
        self.unless(AT_LEAST | BY_X, 0, otherwise);
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (place, way, label) in &self.jumps {
            // Jumps are counted from the instruction after them.
            let distance = self.labels[label.0] - place - 1;
            let jump = &mut self.instructions[*place];
            let near = || u8::try_from(distance).expect("labels lie within a rule or before the first");
            match way {
                Way::IfTrue => jump.if_true = near(),
                Way::IfFalse => jump.if_false = near(),
                Way::Always => jump.value = distance as u32,
            }
        }
        self.instructions
    }
}

#[cfg(test)]
pub(super) mod tests;
