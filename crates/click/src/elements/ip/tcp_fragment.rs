//! TCP segments: `TCPFragmenter` cuts them, `TCPIPSend` makes them.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::encap::{Destination, Template};
use super::header::{self, Ip, copy_annotations, get32, put, set16};
use crate::annotation::Place;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::{Answer, Handlers};
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::boolean;

pub(super) const CLASSES: &[Class] = &[
    Class::new("TCPFragmenter", tcp_fragmenter),
    Class::new("TCPIPSend", tcp_ip_send).ports("0/1").processing("h/h"),
];

/// Flags of a TCP header: those that only the last segment of several keeps.
const FIN_AND_PSH: u8 = 0x09;
const URG: u8 = 0x20;
/// Bytes of a TCP header without options.
const TCP: usize = 20;
/// Packets that one call of `send` makes at most.
const MOST_SENT: u32 = 1 << 16;

/// `TCPFragmenter(MTU [, MTU_ANNO])`: cuts TCP segments with more than `MTU` bytes of payload into several.
///
/// Each has the headers of the first with a sequence number, lengths and checksums of its own. FIN and PSH are those of the
/// last. With `MTU_ANNO`, an annotation of two bytes that is not 0 is a packet's limit, too.
struct TcpFragmenter {
    most: usize,
    anno: Option<usize>,
    count: Cell<u64>,
    fragments: Cell<u64>,
}

fn tcp_fragmenter(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let most: Option<u16> = arguments.required("MTU");
    let anno: Option<Place<2>> = arguments.keyword("MTU_ANNO");
    arguments.complete()?;
    Some(Rc::new(TcpFragmenter {
        most: usize::from(most?),
        anno: anno.map(|place| place.0),
        count: Cell::default(),
        fragments: Cell::default(),
    }))
}

/// Where a segment's parts lie, in bytes from the packet's first.
struct Segment {
    network: usize,
    tcp: usize,
    payload: usize,
    end: usize,
    sequence: u32,
    flags: u8,
}

impl Segment {
    fn of(packet: &Packet) -> Option<Self> {
        let ip = Ip::of(packet).filter(|ip| ip.protocol() == header::TCP && !ip.is_fragment())?;
        let network = usize::try_from(packet.network_place()?).ok()?;
        let header_length = ip.header_length();
        let tcp = ip.0.get(header_length..ip.total_length()).filter(|tcp| tcp.len() >= TCP)?;
        let data_offset = usize::from(tcp[12] >> 4) * 4;
        if header_length < header::LENGTH || data_offset < TCP || data_offset > tcp.len() {
            return None;
        }
        Some(Self {
            network,
            tcp: network + header_length,
            payload: network + header_length + data_offset,
            end: network + header_length + tcp.len(),
            sequence: get32(tcp, 4),
            flags: tcp[13],
        })
    }
}

impl TcpFragmenter {
    /// The most bytes of payload that a packet may have; `None`: as many as it has.
    fn limit(&self, packet: &Packet) -> Option<usize> {
        let own = self.anno.map_or(0, |anno| usize::from(packet.anno_u16(anno)));
        [self.most, own].into_iter().filter(|most| *most > 0).min()
    }

    /// A segment with a part of another's payload.
    fn part(at: At<'_>, packet: &Packet, of: &Segment, from: usize, to: usize) -> Option<Packet> {
        let data = packet.data();
        let mut bytes = Vec::with_capacity(of.payload + to - from);
        bytes.extend_from_slice(data.get(..of.payload)?);
        bytes.extend_from_slice(data.get(from..to)?);
        let mut part = at.packet(&bytes)?;
        copy_annotations(&mut part, packet);
        part.set_mac_place(packet.mac_place().and_then(|place| usize::try_from(place).ok()));
        part.set_network(of.network, of.tcp - of.network);
        let (head, tcp) = part.data_mut().split_at_mut_checked(of.tcp)?;
        let ip = head.get_mut(of.network..)?;
        set16(ip, 2, u16::try_from(ip.len() + tcp.len()).ok()?);
        header::set_checksum(ip);
        put(tcp, 4, &of.sequence.wrapping_add((from - of.payload) as u32).to_be_bytes());
        if to < of.end {
            tcp[13] = of.flags & !FIN_AND_PSH;
        }
        if from > of.payload {
            // Urgent data were told with the first part.
            tcp[13] &= !URG;
        }
        set16(tcp, 16, 0);
        let sum = header::transport_checksum(Ip(ip), header::TCP, tcp);
        set16(tcp, 16, sum);
        Some(part)
    }

    fn cut(&self, at: At<'_>, packet: Packet, of: &Segment, most: usize) {
        self.fragments.set(self.fragments.get() + 1);
        let mut from = of.payload;
        while from < of.end {
            let to = of.end.min(from + most);
            let Some(part) = Self::part(at, &packet, of, from, to) else {
                at.drop_packet(packet, DropReason::PoolExhausted);
                return;
            };
            self.count.set(self.count.get() + 1);
            at.push(0, part);
            from = to;
        }
        at.drop_packet(packet, DropReason::Replaced);
    }
}

impl Element for TcpFragmenter {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        let cut = self.limit(&packet).and_then(|most| {
            let segment = Segment::of(&packet).filter(|of| of.end - of.payload > most)?;
            Some((segment, most))
        });
        match cut {
            Some((segment, most)) => self.cut(at, packet, &segment, most),
            None => at.push(0, packet),
        }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("fragments", |this: &Self, _| this.fragments.get());
        handlers.read("count", |this: &Self, _| this.count.get());
    }
}

/// `TCPIPSend`: sends TCP segments without payload when its handler `send` is written.
struct TcpIpSend {
    id: Cell<u16>,
}

fn tcp_ip_send(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(TcpIpSend { id: Cell::default() }))
}

const EXPECTED: &str = "expected SADDR SPORT DADDR DPORT SEQNO ACKNO BITS [COUNT STOP]";

impl TcpIpSend {
    fn send(&self, at: At<'_>, value: &str) -> Answer {
        let words: Vec<&str> = value.split_whitespace().collect();
        let [source, source_port, destination, port, sequence, acknowledgement, bits, rest @ ..] = &words[..]
        else {
            return Err(EXPECTED.into());
        };
        let address = |word: &str| word.parse::<Ipv4Addr>().map_err(|_| format!("'{word}' is no IP address"));
        let number = |word: &str, most: u32| {
            let number = word.parse::<u32>().ok().filter(|number| *number <= most);
            number.ok_or_else(|| format!("'{word}' is no number up to {most}"))
        };
        let (source, destination) = (address(source)?, address(destination)?);
        let ports = [number(source_port, 0xFFFF)?, number(port, 0xFFFF)?];
        let numbers = [number(sequence, u32::MAX)?, number(acknowledgement, u32::MAX)?];
        let bits = number(bits, 0x3F)?;
        let (count, stop) = match rest {
            [] => (1, false),
            [count] => (number(count, MOST_SENT)?, false),
            [count, stop] => (number(count, MOST_SENT)?, boolean(stop).ok_or("STOP must be true or false")?),
            _ => return Err(EXPECTED.into()),
        };
        let template = Template::new(header::TCP, source, Destination::Fixed(destination), 255);
        for _ in 0..count {
            let mut packet = at.allocate(header::LENGTH + TCP).ok_or("no memory for packets")?;
            template.write(&mut packet, super::encap::next(&self.id));
            let (ip, tcp) = packet.data_mut().split_at_mut(header::LENGTH);
            set16(tcp, 0, ports[0] as u16);
            set16(tcp, 2, ports[1] as u16);
            put(tcp, 4, &numbers[0].to_be_bytes());
            put(tcp, 8, &numbers[1].to_be_bytes());
            put(tcp, 12, &[(TCP as u8 / 4) << 4, bits as u8]);
            set16(tcp, 14, 32_120);
            let sum = header::transport_checksum(Ip(ip), header::TCP, tcp);
            set16(tcp, 16, sum);
            packet.set_timestamp(at.now());
            at.push(0, packet);
        }
        if stop {
            at.router.please_stop();
        }
        Ok(String::new())
    }
}

impl Element for TcpIpSend {
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.write("send", |this: &Self, at, value| this.send(at, value));
    }
}

#[cfg(test)]
mod tests {
    use netbricks_core::packet::checksum;

    use crate::testing::build;

    /// A segment from 1.2.3.4 with FIN, ACK and this many bytes of payload, as Click's `DATA`.
    fn segment(payload: usize) -> String {
        let mut bytes = vec![0_u8; 40 + payload];
        bytes[0] = 0x45;
        bytes[2..4].copy_from_slice(&(40 + payload as u16).to_be_bytes());
        bytes[8..10].copy_from_slice(&[64, 6]);
        bytes[12..20].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let sum = checksum::internet(&bytes[..20]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes[24..28].copy_from_slice(&1000_u32.to_be_bytes());
        bytes[32..34].copy_from_slice(&[0x50, 0x11]);
        for (place, byte) in bytes[40..].iter_mut().enumerate() {
            *byte = place as u8;
        }
        let sum = checksum::transport([1, 2, 3, 4].into(), [5, 6, 7, 8].into(), 6, &bytes[20..]);
        bytes[36..38].copy_from_slice(&sum.to_be_bytes());
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("\\<{hex}>")
    }

    #[test]
    fn large_segments_are_cut_and_small_ones_pass() {
        let source = |payload| {
            format!("InfiniteSource(LIMIT 1, STOP true, DATA {}) -> MarkIPHeader", segment(payload))
        };
        let rest = "-> ip::CheckIPHeader -> tcp::CheckTCPHeader -> Print(p, 45) -> c::Counter -> Discard";
        let run = crate::testing::run(&format!("{} -> f::TCPFragmenter(10) {rest}", source(25)));
        assert_eq!(run.errors, [""; 0]);
        let said = run.said();
        let field = |line: &str, from: usize, to: usize| {
            let hex: String = line.split('|').nth(1).unwrap_or("").split_whitespace().collect();
            hex[2 * from..2 * to].to_owned()
        };
        let lengths: Vec<String> = said.iter().map(|line| field(line, 2, 4)).collect();
        assert_eq!(lengths, ["0032", "0032", "002d"], "{said:?}");
        let sequences: Vec<String> = said.iter().map(|line| field(line, 24, 28)).collect();
        assert_eq!(sequences, ["000003e8", "000003f2", "000003fc"]);
        let flags: Vec<String> = said.iter().map(|line| field(line, 33, 34)).collect();
        assert_eq!(flags, ["10", "10", "11"], "the last one ends the stream");
        let first: Vec<String> = said.iter().map(|line| field(line, 40, 41)).collect();
        assert_eq!(first, ["00", "0a", "14"]);
        assert_eq!(["ip.drops", "tcp.drops", "f.count"].map(|name| run.read(name)), ["0", "0", "3"]);
        let run = crate::testing::run(&format!("{} -> f::TCPFragmenter(25) {rest}", source(25)));
        assert_eq!(["c.count", "f.fragments"].map(|name| run.read(name)), ["1", "0"]);
        // An annotation may ask for less.
        let run = crate::testing::run(&format!(
            "{} -> SetAnnoByte(30, 5) -> f::TCPFragmenter(0, MTU_ANNO 30) {rest}",
            source(25)
        ));
        assert_eq!(run.read("c.count"), if cfg!(target_endian = "little") { "5" } else { "1" });
    }

    #[test]
    fn segments_are_sent_on_demand() {
        let run = build(
            "s::TCPIPSend -> ip::CheckIPHeader -> tcp::CheckTCPHeader -> Print(t, 40) -> c::Counter -> Discard",
        );
        assert_eq!(run.write("s.send 1.2.3.4 80 5.6.7.8 90 1 2 18 3"), "");
        assert_eq!(["c.count", "ip.drops", "tcp.drops"].map(|name| run.read(name)), ["3", "0", "0"]);
        assert!(run.said()[0].contains("0050005a 00000001 00000002 5012"), "{:?}", run.said());
        for (wrong, problem) in [
            ("1.2.3.4 80", "expected SADDR SPORT"),
            ("x 80 5.6.7.8 90 1 2 18", "'x' is no IP address"),
            ("1.2.3.4 80 5.6.7.8 90 1 2 64", "'64' is no number up to 63"),
            ("1.2.3.4 80 5.6.7.8 90 1 2 18 70000", "'70000' is no number up to 65536"),
        ] {
            let said = run.write(&format!("s.send {wrong}"));
            assert!(said.contains(problem), "{wrong}: {said}");
        }
    }
}
