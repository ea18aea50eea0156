//! Tests of rewriters: packets go in, and come out of queues at their outputs.

mod errors;
mod flows;
mod packets;
mod robust;

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::packet::checksum;

use crate::packet::Annotated as _;
use crate::testing::{Run, build};

/// A rewriter with a queue at each output.
pub(super) struct Rig {
    run: Run,
    element: usize,
    queues: Vec<usize>,
}

/// Builds `rw :: {declaration}` with idle inputs and queues at its outputs, beside other elements.
pub(super) fn rig(declaration: &str, inputs: usize, outputs: usize, others: &str) -> Rig {
    let mut text = format!("rw :: {declaration}; {others};");
    for input in 0..inputs {
        text += &format!("Idle -> [{input}]rw;");
    }
    for output in 0..outputs {
        text += &format!("rw[{output}] -> q{output} :: Queue(10000) -> Idle;");
    }
    let run = build(&text);
    let Some(router) = &run.router else { panic!("{:?}", run.errors) };
    let find = |name: &str| router.exactly(name).expect("the rig names it");
    let element = find("rw");
    let queues = (0..outputs).map(|output| find(&format!("q{output}"))).collect();
    Rig { run, element, queues }
}

impl Rig {
    fn router(&self) -> &crate::router::Router {
        self.run.router.as_ref().expect("it was built")
    }
    pub(super) fn packet(&self, bytes: &[u8]) -> Packet {
        let mut packet = self.router().at(self.element).packet(bytes).expect("a frame");
        let length = bytes.first().map_or(0, |first| usize::from(first & 0xF) * 4);
        packet.set_network(0, length);
        packet
    }
    pub(super) fn push_packet(&self, input: usize, packet: Packet) {
        let router = self.router();
        router.element(self.element).push(router.at(self.element), input, packet);
    }
    pub(super) fn push(&self, input: usize, bytes: &[u8]) {
        self.push_packet(input, self.packet(bytes));
    }
    pub(super) fn push_all(&self, input: usize, packets: &[Vec<u8>]) {
        let mut batch = Batch::new();
        for bytes in packets {
            batch.push(self.packet(bytes)).expect("room in the batch");
        }
        let router = self.router();
        router.element(self.element).push_batch(router.at(self.element), input, &mut batch);
        assert!(batch.is_empty());
    }
    pub(super) fn take_packet(&self, output: usize) -> Option<Packet> {
        let (router, queue) = (self.router(), self.queues[output]);
        router.element(queue).pull(router.at(queue), 0)
    }
    /// Packets that came out of an output.
    pub(super) fn take(&self, output: usize) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.take_packet(output)).map(|packet| packet.data().to_vec()).collect()
    }
    /// The one packet that came out of an output, as text.
    pub(super) fn came(&self, output: usize) -> String {
        let came = self.take(output);
        match &came[..] {
            [one] => show(one),
            others => format!("{} packets", others.len()),
        }
    }
    pub(super) fn read(&self, handler: &str) -> String {
        self.run.read(handler)
    }
    pub(super) fn write(&self, handler: &str) -> String {
        self.run.write(handler)
    }
    /// Lets time pass (ms), in which timers expire.
    pub(super) fn wait(&self, milliseconds: u64) {
        let router = self.router();
        let end = router.steady() + milliseconds * 1_000_000;
        while let Some(first) = router.timers.first().filter(|first| *first <= end) {
            router.surroundings().clock.jump(first);
            let _ = crate::drive::round(router, 16);
        }
        router.surroundings().clock.jump(end);
    }
}

fn ip(protocol: u8, from: [u8; 4], to: [u8; 4], behind: &[u8]) -> Vec<u8> {
    let length = (20 + behind.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
    packet.extend(from);
    packet.extend(to);
    let sum = checksum::internet(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(behind);
    packet
}

fn with_checksum(protocol: u8, from: [u8; 4], to: [u8; 4], mut segment: Vec<u8>) -> Vec<u8> {
    let at = checksum::field_offset(protocol).expect("it has a checksum");
    segment[at..at + 2].fill(0);
    let sum = checksum::transport(from.into(), to.into(), protocol, &segment);
    segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    ip(protocol, from, to, &segment)
}

type End = ([u8; 4], u16);

/// A UDP packet with right checksums.
pub(super) fn udp(from: End, to: End, data: &[u8]) -> Vec<u8> {
    let mut segment = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    segment.extend(((8 + data.len()) as u16).to_be_bytes());
    segment.extend([0, 0]);
    segment.extend(data);
    with_checksum(17, from.0, to.0, segment)
}

/// A TCP packet with right checksums.
pub(super) fn tcp(from: End, to: End, flags: u8, numbers: [u32; 2], options: &[u8], data: &[u8]) -> Vec<u8> {
    let mut segment = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    segment.extend(numbers[0].to_be_bytes());
    segment.extend(numbers[1].to_be_bytes());
    segment.extend([((20 + options.len()) * 4) as u8, flags, 1, 0, 0, 0, 0, 0]);
    segment.extend(options);
    segment.extend(data);
    with_checksum(6, from.0, to.0, segment)
}

/// An ICMP echo request, or a reply.
pub(super) fn echo(from: [u8; 4], to: [u8; 4], request: bool, identifier: u16) -> Vec<u8> {
    let mut message = vec![if request { 8 } else { 0 }, 0, 0, 0];
    message.extend(identifier.to_be_bytes());
    message.extend([0, 7, 1, 2, 3]);
    with_checksum(1, from, to, message)
}

/// An ICMP error about a packet.
pub(super) fn error(from: [u8; 4], to: [u8; 4], about: &[u8]) -> Vec<u8> {
    let mut message = vec![11, 0, 0, 0, 0, 0, 0, 0];
    message.extend(about);
    with_checksum(1, from, to, message)
}

/// A packet in words, with a note where a checksum is wrong.
pub(super) fn show(bytes: &[u8]) -> String {
    let address = |at: usize| std::net::Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
    let (from, to, behind) = (address(12), address(16), &bytes[20..]);
    let port = |at: usize| u16::from_be_bytes([behind[at], behind[at + 1]]);
    let mut text = match bytes[9] {
        1 if matches!(behind[0], 0 | 8) => format!("{from} > {to} echo {}", port(4)),
        1 => format!("{from} > {to} error ({})", show(&behind[8..])),
        _ => format!("{from}:{} > {to}:{}", port(0), port(2)),
    };
    if checksum::internet(&bytes[..20]) != 0 {
        text += " bad IP checksum";
    }
    if checksum::is_valid(from.into(), to.into(), bytes[9], behind) == Some(false) {
        text += " bad checksum";
    }
    text
}

pub(super) const HOST: [u8; 4] = [10, 0, 0, 1];
pub(super) const OTHER: [u8; 4] = [10, 0, 0, 2];
pub(super) const SERVER: [u8; 4] = [20, 0, 0, 9];
pub(super) const OUTSIDE: [u8; 4] = [1, 0, 0, 1];
