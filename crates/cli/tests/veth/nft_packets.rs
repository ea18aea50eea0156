//! Packets of connections in all states, each with its number in its IP header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// Two ends that talk.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) client: IpAddr,
    pub(crate) server: IpAddr,
    pub(crate) client_port: u16,
    pub(crate) server_port: u16,
    is_tcp: Option<bool>,
}

impl Pair {
    pub(crate) fn any(random: &mut Random) -> Self {
        let v6 = random.below(3) == 0;
        let mut address = |network: u8| -> IpAddr {
            let (a, b) = (random.below(4) as u8, random.below(200) as u8 + 1);
            if v6 {
                Ipv6Addr::new(0x2001, 0xdb8, u16::from(network), u16::from(a), 0, 0, 0, u16::from(b)).into()
            } else {
                Ipv4Addr::new(network, a, 0, b).into()
            }
        };
        let (client, server) = (address(20), address(30));
        let server_port = [22, 53, 80, 443, 8_080][random.below(5)];
        Self { client, server, client_port: 1_024 + random.below(60_000) as u16, server_port, is_tcp: None }
    }

    /// Ends within prefixes; none where the kernel forwards no packets between such addresses.
    pub(crate) fn within(
        from: &str,
        to: &str,
        (client_port, server_port): (u16, u16),
        is_tcp: bool,
        random: &mut Random,
    ) -> Option<Self> {
        let mut address = |prefix: &str| -> Option<IpAddr> {
            let (address, length) = prefix.split_once('/')?;
            let (address, length): (Ipv4Addr, u32) = (address.parse().ok()?, length.parse().ok()?);
            let host = u32::MAX.checked_shr(length).unwrap_or(0) & random.next() as u32;
            let address = Ipv4Addr::from_bits(address.to_bits() | host);
            let first = address.octets()[0];
            let is_usual = (1..224).contains(&first) && first != 127 && address.octets()[..2] != [10, 255];
            is_usual.then(|| address.into())
        };
        let (client, server) = (address(from)?, address(to)?);
        (client != server).then_some(Self { client, server, client_port, server_port, is_tcp: Some(is_tcp) })
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.client.is_ipv6()
    }
}

/// An address with the bits behind the first `length` cleared, as a prefix.
pub(crate) fn prefix(address: IpAddr, length: u32) -> String {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX << (32 - length);
            format!("{}/{length}", Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX << (128 - length);
            format!("{}/{length}", Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

/// One conversation: its next packets come from what was said so far.
struct Conversation {
    pair: Pair,
    kind: Kind,
    /// The next number of each end.
    next: [u32; 2],
    step: usize,
    last: Option<Vec<u8>>,
    scales: bool,
    sacks: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Tcp,
    Udp,
    Echo,
    Gre,
}

impl Conversation {
    fn new(pair: &Pair, random: &mut Random) -> Self {
        let kind = match pair.is_tcp {
            Some(true) => Kind::Tcp,
            Some(false) => Kind::Udp,
            None => [Kind::Tcp, Kind::Tcp, Kind::Tcp, Kind::Udp, Kind::Echo, Kind::Gre][random.below(6)],
        };
        Self {
            pair: Pair { client_port: pair.client_port.wrapping_add(random.below(3) as u16), ..pair.clone() },
            kind,
            next: [random.next() as u32, random.next() as u32],
            step: if random.below(10) == 0 { 3 } else { 0 },
            last: None,
            scales: random.below(2) == 0,
            sacks: random.below(2) == 0,
        }
    }

    /// A frame of this conversation.
    fn frame(&self, forward: bool, make: impl Fn(Start) -> Result<Vec<u8>, String>) -> Vec<u8> {
        let Pair { client, server, .. } = self.pair;
        let (from, to) = if forward { (client, server) } else { (server, client) };
        make(Start { from, to }).expect("a packet can be built")
    }

    fn segment(
        &self,
        forward: bool,
        flags: u8,
        number: u32,
        acknowledged: u32,
        len: usize,
        window: u16,
    ) -> Vec<u8> {
        let (a, b) = (self.pair.client_port, self.pair.server_port);
        let (a, b) = if forward { (a, b) } else { (b, a) };
        let payload = vec![b'x'; len];
        let (scales, sacks) = (self.scales && flags & SYN != 0, self.sacks && flags & SYN != 0);
        self.frame(forward, |start| {
            macro_rules! with {
                ($ip:expr) => {{
                    let tcp = $ip.tcp(a, b).sequence(number).ack(acknowledged).flags(flags).window(window);
                    match (scales, sacks) {
                        (false, false) => tcp.payload(&payload).build(),
                        (true, false) => tcp.window_scale(3).payload(&payload).build(),
                        (false, true) => tcp.sack_permitted().payload(&payload).build(),
                        (true, true) => tcp.window_scale(3).sack_permitted().payload(&payload).build(),
                    }
                    .map_err(|error| error.to_string())
                }};
            }
            match (start.from, start.to) {
                (IpAddr::V4(from), IpAddr::V4(to)) => with!(link().ipv4(from, to)),
                (IpAddr::V6(from), IpAddr::V6(to)) => with!(link().ipv6(from, to)),
                _ => Err("two versions".into()),
            }
        })
    }

    fn next(&mut self, random: &mut Random) -> Vec<u8> {
        self.step += 1;
        if random.below(25) == 0
            && let Some(quoted) = &self.last
        {
            return self.error(&quoted.clone(), random);
        }
        let mut frame = match self.kind {
            Kind::Tcp if random.below(5) == 0 => self.noise(random),
            Kind::Tcp => self.tcp(random),
            Kind::Udp => self.datagram(random.below(3) > 0),
            Kind::Echo => self.echo(random),
            Kind::Gre => self.other(random.below(2) == 0),
        };
        if random.below(60) == 0
            && let Some(last) = frame.last_mut()
        {
            // A wrong checksum, or another byte that it covers.
            *last ^= 0x55;
        }
        self.last = Some(frame.clone());
        frame
    }

    /// The next segment of a usual connection.
    fn tcp(&mut self, random: &mut Random) -> Vec<u8> {
        let [own, other] = self.next;
        let window = [1_000, 8_000, 65_535][random.below(3)];
        match self.step {
            1 => {
                self.next[0] = own.wrapping_add(1);
                self.segment(true, SYN, own, 0, 0, window)
            }
            2 => {
                self.next[1] = other.wrapping_add(1);
                self.segment(false, SYN | ACK, other, own, 0, window)
            }
            3 => self.segment(true, ACK, own, other, 0, window),
            _ => {
                let forward = random.below(2) == 0;
                let way = usize::from(!forward);
                let (number, acknowledged) = (self.next[way], self.next[1 - way]);
                let (flags, len) = match random.below(12) {
                    0..=4 => (ACK | PSH, 1 + random.below(400)),
                    5..=8 => (ACK, 0),
                    9 | 10 => (FIN | ACK, random.below(2) * 10),
                    _ => (RST | ACK, 0),
                };
                if flags & RST == 0 {
                    let more = len as u32 + u32::from(flags & FIN != 0);
                    self.next[way] = number.wrapping_add(more);
                }
                if random.below(15) == 0 {
                    // The same ports again.
                    self.step = 0;
                    self.next = [random.next() as u32, random.next() as u32];
                }
                self.segment(forward, flags, number, acknowledged, len, window)
            }
        }
    }

    /// A segment that may fit or not.
    fn noise(&mut self, random: &mut Random) -> Vec<u8> {
        let forward = random.below(2) == 0;
        let way = usize::from(!forward);
        let near = |number: u32, random: &mut Random| match random.below(6) {
            0 => number.wrapping_add(random.below(3_000) as u32),
            1 => number.wrapping_sub(random.below(3_000) as u32),
            2 => number.wrapping_add(100_000),
            3 => number.wrapping_sub(100_000),
            4 => random.next() as u32,
            _ => number,
        };
        let flags = [
            SYN,
            SYN | ACK,
            ACK,
            ACK | PSH,
            FIN | ACK,
            RST,
            RST | ACK,
            FIN,
            0,
            SYN | FIN,
            SYN | RST,
            FIN | PSH | 32,
            ACK | 32,
            SYN | 0xc0,
        ][random.below(14)];
        let (number, acknowledged) = (near(self.next[way], random), near(self.next[1 - way], random));
        let len = if random.below(2) == 0 { 0 } else { random.below(200) };
        self.segment(forward, flags, number, acknowledged, len, random.next() as u16)
    }

    fn datagram(&self, forward: bool) -> Vec<u8> {
        let (a, b) = (self.pair.client_port, self.pair.server_port);
        let (a, b) = if forward { (a, b) } else { (b, a) };
        self.frame(forward, |start| {
            match (start.from, start.to) {
                (IpAddr::V4(from), IpAddr::V4(to)) => {
                    link().ipv4(from, to).udp(a, b).payload(b"question").build()
                }
                (IpAddr::V6(from), IpAddr::V6(to)) => {
                    link().ipv6(from, to).udp(a, b).payload(b"question").build()
                }
                _ => return Err("two versions".into()),
            }
            .map_err(|error| error.to_string())
        })
    }

    fn echo(&self, random: &mut Random) -> Vec<u8> {
        let forward = random.below(2) == 0;
        let id = self.pair.client_port;
        // A query from the client, an answer from the server, or a type that is no query at all.
        let (v4, v6) = match (forward, random.below(12)) {
            (_, 0) => ([9, 12, 14, 13][random.below(4)], 200),
            (true, _) => (8, 128),
            (false, _) => (0, 129),
        };
        let [high, low] = id.to_be_bytes();
        self.frame(forward, |start| {
            match (start.from, start.to) {
                (IpAddr::V4(from), IpAddr::V4(to)) => {
                    link().ipv4(from, to).icmp(v4, 0, [high, low, 0, 1]).payload(&[7; 24]).build()
                }
                (IpAddr::V6(from), IpAddr::V6(to)) => {
                    link().ipv6(from, to).icmpv6(v6, 0, [high, low, 0, 1]).payload(&[7; 24]).build()
                }
                _ => return Err("two versions".into()),
            }
            .map_err(|error| error.to_string())
        })
    }

    fn other(&self, forward: bool) -> Vec<u8> {
        self.frame(forward, |start| {
            match (start.from, start.to) {
                (IpAddr::V4(from), IpAddr::V4(to)) => {
                    link().ipv4(from, to).protocol(99).payload(&[7; 24]).build()
                }
                (IpAddr::V6(from), IpAddr::V6(to)) => {
                    link().ipv6(from, to).protocol(99).payload(&[7; 24]).build()
                }
                _ => return Err("two versions".into()),
            }
            .map_err(|error| error.to_string())
        })
    }

    /// An error about a packet, from a router, to the packet's sender.
    fn error(&self, quoted: &[u8], random: &mut Random) -> Vec<u8> {
        let quote = &quoted[14..quoted.len().min(14 + 200)];
        let forged = random.below(4) == 0;
        match self.pair.client {
            IpAddr::V4(_) => {
                let sender: [u8; 4] = quote[12..16].try_into().expect("four bytes");
                let to = if forged { [20, 9, 9, 9] } else { sender };
                let mut quote = quote.to_vec();
                if forged {
                    quote[19] ^= 1;
                }
                link().ipv4([99, 0, 0, 1], to).icmp_time_exceeded(&quote).build()
            }
            IpAddr::V6(_) => {
                let sender: [u8; 16] = quote[8..24].try_into().expect("sixteen bytes");
                let mut quote = quote.to_vec();
                if forged {
                    quote[39] ^= 1;
                }
                link().ipv6("2001:db8:99::1", Ipv6Addr::from(sender)).icmpv6_time_exceeded(&quote).build()
            }
        }
        .expect("an error can be built")
    }
}

/// The addresses of a packet to be built.
struct Start {
    from: IpAddr,
    to: IpAddr,
}

fn link() -> netbricks_testkit::build::Builder<'static, netbricks_core::packet::Ethernet> {
    ethernet().source("02:00:00:00:00:01").destination("02:00:00:00:00:02")
}

/// So many packets of conversations between these pairs, in a random order that keeps that of each conversation.
pub(crate) fn traffic(pairs: &[Pair], count: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let mut open: Vec<Conversation> = Vec::new();
    let mut frames = Vec::with_capacity(count);
    while frames.len() < count {
        if open.len() < 300 && random.below(8) == 0 || open.is_empty() {
            let pair = &pairs[random.below(pairs.len())];
            open.push(Conversation::new(pair, &mut random));
        }
        let at = random.below(open.len());
        let mut frame = open[at].next(&mut random);
        set_number(&mut frame, frames.len());
        frames.push(frame);
        if random.below(20) == 0 {
            open.swap_remove(at);
        }
    }
    frames
}

/// Writes a packet's number into the identification, or the flow label.
fn set_number(frame: &mut [u8], number: usize) {
    assert!(number < 1 << 16, "a packet's number has 16 bits");
    let ip = &mut frame[14..];
    if ip[0] >> 4 == 4 {
        ip[4..6].copy_from_slice(&(number as u16).to_be_bytes());
        ip[10..12].fill(0);
        let mut sum: u32 =
            ip[..20].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    } else {
        ip[1] = 1;
        ip[2..4].copy_from_slice(&(number as u16).to_be_bytes());
    }
}

/// The number of a packet; `None` for one that was not made here.
pub(crate) fn number(frame: &[u8]) -> Option<usize> {
    let ip = frame.get(14..54)?;
    match frame.get(12..14)? {
        [8, 0] if ip[12..14] != [10, 255] => Some(u16::from_be_bytes([ip[4], ip[5]]).into()),
        [0x86, 0xdd] if ip[1] == 1 => Some(u16::from_be_bytes([ip[2], ip[3]]).into()),
        _ => None,
    }
}

/// The packet and those before it that have the same addresses, for messages.
pub(crate) fn shown(packets: &[Vec<u8>], number: usize) -> String {
    let ends = |frame: &[u8]| -> BTreeEnds {
        let ip = &frame[14..];
        let (from, to) = if ip[0] >> 4 == 4 { (&ip[12..16], &ip[16..20]) } else { (&ip[8..24], &ip[24..40]) };
        if from < to { (from.to_vec(), to.to_vec()) } else { (to.to_vec(), from.to_vec()) }
    };
    let of = ends(&packets[number]);
    let mut text = String::new();
    let same = packets[..=number].iter().enumerate().filter(|(_, frame)| ends(frame) == of);
    for (at, frame) in same.collect::<Vec<_>>().iter().rev().take(12).rev() {
        text += &format!("\n  {at}: {}", netbricks_core::packet::print::one_line(frame));
    }
    text
}

type BTreeEnds = (Vec<u8>, Vec<u8>);
