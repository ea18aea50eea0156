//! Targets on a frame, with every checksum computed from scratch.
//!
//! A checksum that was right is right afterwards; one that was wrong stays wrong by the same amount.

use netbricks_mmb::field::FieldId;
use netbricks_mmb::rule::{Atom, Target};
use netbricks_testkit::checksums;

use crate::fields::{Means, meaning, write_bits};
use crate::matching::number;
use crate::places::{Network, Part, Places, word};

/// A TCP option: its kind and the bytes behind its length.
type Options = Vec<(u8, Vec<u8>)>;

/// A frame while targets change it.
#[derive(Clone, Debug)]
pub(crate) struct Rewrite {
    pub(crate) frame: Vec<u8>,
    pub(crate) places: Places,
    /// TCP options, from the first target that takes one out or adds one.
    options: Option<Options>,
    /// Places of wrong checksums of which 0 and 0xffff are the same amount wrong.
    pub(crate) either: Vec<usize>,
}

/// A checksum: its place, and the bytes that it covers.
#[derive(Clone, Debug)]
struct Sum {
    at: usize,
    covers: std::ops::Range<usize>,
    /// The protocol whose pseudo-header it covers.
    pseudo: Option<u8>,
    is_udp: bool,
}

/// The one's complement sum of bytes (RFC 1071).
fn add(bytes: &[u8]) -> u32 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) * 256 + u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

fn fold(mut sum: u32) -> u32 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

impl Sum {
    /// The sum of all that is covered, the checksum included: 0xffff where it is right.
    fn of(&self, frame: &[u8], ip: &Network) -> u32 {
        let mut sum = add(&frame[self.covers.clone()]);
        if let Some(protocol) = self.pseudo {
            let (size, first) = if ip.is_v6 { (16, ip.at + 8) } else { (4, ip.at + 12) };
            if ip.covers.0 {
                sum += add(&frame[first..first + size]);
            }
            if ip.covers.1 {
                sum += add(&frame[first + size..first + 2 * size]);
            }
            sum += u32::from(protocol) + fold(self.covers.len() as u32);
        }
        fold(sum)
    }
}

/// Whether the checksum of a TCP segment is known, and wrong.
pub(crate) fn is_wrong_segment(frame: &[u8], places: &Places) -> bool {
    let Some(ip) = places.ip.as_ref().filter(|ip| !ip.is_fragment) else { return false };
    if ip.covers != (true, true) {
        let place = places.at(Part::Tcp).map(|at| format!(" at {at}")).unwrap_or_default();
        return checksums::wrong(frame).iter().any(|wrong| wrong.ends_with(&place));
    }
    let sums = Rewrite::of(frame, places).sums();
    sums.iter().any(|sum| sum.pseudo == Some(6) && sum.of(frame, ip) != 0xffff)
}

impl Rewrite {
    pub(crate) fn of(frame: &[u8], places: &Places) -> Self {
        Self { frame: frame.to_vec(), places: places.clone(), options: None, either: Vec::new() }
    }

    /// The checksums of the packet that are there, as the bytes are now.
    fn sums(&self) -> Vec<Sum> {
        let Some(ip) = &self.places.ip else { return Vec::new() };
        let mut sums = Vec::new();
        if !ip.is_v6 {
            sums.push(Sum { at: ip.at + 10, covers: ip.at..ip.payload, pseudo: None, is_udp: false });
        }
        let offset = match ip.protocol {
            6 => 16,
            17 | 136 | 33 => 6,
            1 | 58 => 2,
            47 => 4,
            _ => return sums,
        };
        let (at, end) = (ip.payload + offset, ip.end);
        // RFC 2784: the checksum has a word of its own behind it.
        let needed = if ip.protocol == 47 { at + 4 } else { at + 2 };
        if ip.is_later || needed > end || ip.is_hidden {
            return sums;
        }
        let is_udp = matches!(ip.protocol, 17 | 136);
        let is_there = match ip.protocol {
            47 => self.frame[ip.payload] & 0x80 != 0,
            17 | 136 => word(&self.frame, at) != 0,
            _ => true,
        };
        let mut covers = ip.payload..end;
        let stated = ip.payload + usize::from(word(&self.frame, ip.payload + 4));
        if ip.protocol == 17 && (ip.payload + 8..=end).contains(&stated) {
            covers.end = stated;
        }
        let pseudo = (!matches!(ip.protocol, 1 | 47)).then_some(ip.protocol);
        if is_there {
            sums.push(Sum { at, covers, pseudo, is_udp });
        }
        sums
    }

    /// Changes bytes, and computes each checksum that covers them, unless they are the checksum.
    fn change(&mut self, range: std::ops::Range<usize>, change: impl FnOnce(&mut [u8])) {
        let before: Vec<(Sum, u32)> = match self.places.ip.clone() {
            Some(ip) => self.sums().into_iter().map(|sum| (sum.clone(), sum.of(&self.frame, &ip))).collect(),
            None => Vec::new(),
        };
        change(&mut self.frame);
        let Some(ip) = self.places.ip.clone() else { return };
        for (sum, before) in before {
            if range.start < sum.at + 2 && range.end > sum.at {
                continue;
            }
            self.correct(&sum, before, &ip);
        }
    }

    /// Writes a checksum with which the sum is what it was.
    fn correct(&mut self, sum: &Sum, before: u32, ip: &Network) {
        if sum.of(&self.frame, ip) % 0xffff == before % 0xffff {
            return;
        }
        self.frame[sum.at..sum.at + 2].fill(0);
        let others = sum.of(&self.frame, ip);
        let value = match before {
            0xffff => !others as u16,
            wrong => fold(wrong + 0xffff - others) as u16,
        };
        if before != 0xffff && !sum.is_udp && matches!(value, 0 | 0xffff) {
            self.either.push(sum.at);
        }
        let value = if sum.is_udp && value == 0 { 0xffff } else { value };
        self.frame[sum.at..sum.at + 2].copy_from_slice(&value.to_be_bytes());
    }

    /// Writes one field, payload or option.
    pub(crate) fn write(&mut self, field: FieldId, value: &Atom) {
        let name = field.info().name.as_str();
        let of = meaning(field);
        let Some(at) = self.places.at(of.part) else { return };
        match of.means {
            Means::Bits(first, count) => {
                let is_address = matches!(name, "ip-saddr" | "ip-daddr" | "ip6-saddr" | "ip6-daddr");
                if is_address && !self.can_change_address(name.ends_with("saddr")) {
                    return;
                }
                let value = number(value);
                let range = at + first / 8..at + (first + count).div_ceil(8);
                self.change(range, |frame| write_bits(&mut frame[at..], first, count, value));
            }
            Means::Is(first, value) => {
                self.change(at..at + 2, |frame| write_bits(&mut frame[at..], first, 2, value.into()));
            }
            Means::Payload => {
                let (Some(range), Atom::Bytes(bytes)) = (self.places.payload(&self.frame, of.part), value)
                else {
                    return;
                };
                if range.len() >= bytes.len() {
                    let range = range.start..range.start + bytes.len();
                    self.change(range.clone(), |frame| frame[range].copy_from_slice(bytes));
                }
            }
            Means::Number(kind, size) => {
                let value = number(value).to_be_bytes();
                self.write_option(kind, size, &value[16 - size..]);
            }
            Means::Bytes(kind) => {
                let Atom::Bytes(bytes) = value else { panic!("no bytes: {value:?}") };
                self.write_option(kind, bytes.len(), bytes);
            }
            other => panic!("{name} is not writable: {other:?}"),
        }
    }

    /// Under an authentication header no address changes, nor where the checksum over it is in another fragment.
    fn can_change_address(&self, is_source: bool) -> bool {
        let Some(ip) = &self.places.ip else { return false };
        let is_covered = if is_source { ip.covers.0 } else { ip.covers.1 };
        let offset = match ip.protocol {
            6 => 16,
            17 | 136 | 33 => 6,
            58 => 2,
            _ => 0,
        };
        let is_cut = offset > 0 && !ip.is_later && ip.payload + offset + 2 > ip.end;
        !ip.is_authenticated && !(is_covered && (ip.is_hidden || is_cut))
    }

    /// Writes the value of the first option of a kind that has this length. A timestamp keeps its echo.
    fn write_option(&mut self, kind: u8, size: usize, value: &[u8]) {
        let fits = |length: usize| if kind == 8 { length == 8 } else { length == size };
        if let Some(options) = &mut self.options {
            if let Some((_, data)) = options.iter_mut().find(|(known, _)| *known == kind)
                && fits(data.len())
            {
                data[..value.len()].copy_from_slice(value);
            }
            return;
        }
        let (options, _) = self.places.tcp_options(&self.frame);
        if let Some((_, range)) = options.into_iter().find(|(known, _)| *known == kind)
            && fits(range.len())
        {
            let range = range.start..range.start + value.len();
            self.change(range.clone(), |frame| frame[range].copy_from_slice(value));
        }
    }

    /// The options to change; `None` where they are not well-formed, or the packet is not TCP.
    fn options(&mut self) -> Option<Options> {
        self.places.at(Part::Tcp)?;
        if let Some(options) = &self.options {
            return Some(options.clone());
        }
        let (options, is_whole) = self.places.tcp_options(&self.frame);
        let options = options.into_iter().map(|(kind, range)| (kind, self.frame[range].to_vec())).collect();
        is_whole.then_some(options)
    }

    /// Takes out the options that are not to stay.
    pub(crate) fn strip(&mut self, stays: impl Fn(u8) -> bool) {
        let Some(mut options) = self.options() else { return };
        let before = options.len();
        options.retain(|(kind, _)| stays(*kind));
        if options.len() < before {
            self.options = Some(options);
        }
    }

    /// Adds an option, where there is room in 40 bytes.
    pub(crate) fn add(&mut self, kind: u8, value: Option<&Atom>) {
        let Some(mut options) = self.options() else { return };
        let data = match (kind, value) {
            (_, None) => Vec::new(),
            (_, Some(Atom::Bytes(bytes))) => bytes.clone(),
            (2, Some(value)) => (number(value) as u16).to_be_bytes().to_vec(),
            (3, Some(value)) => vec![number(value) as u8],
            (8, Some(value)) => [(number(value) as u32).to_be_bytes(), [0; 4]].concat(),
            (_, Some(other)) => panic!("option {kind} with {other:?}"),
        };
        let used: usize = options.iter().map(|(_, data)| data.len() + 2).sum();
        if used + data.len() + 2 <= 40 {
            options.push((kind, data));
            self.options = Some(options);
        }
    }

    /// Gives the frame its new options.
    pub(crate) fn finish(&mut self) {
        let (Some(options), Some(ip)) = (self.options.take(), self.places.ip.clone()) else { return };
        if ip.is_fragment || ip.is_authenticated {
            return;
        }
        let mut bytes = Vec::new();
        for (kind, data) in options {
            bytes.extend([kind, data.len() as u8 + 2]);
            bytes.extend(data);
        }
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let before: Vec<u32> = self.sums().iter().map(|sum| sum.of(&self.frame, &ip)).collect();
        let at = ip.payload;
        self.frame.splice(at + 20..ip.tcp_end, bytes.iter().copied());
        self.frame[at + 12] = (self.frame[at + 12] & 15) | (((20 + bytes.len()) / 4) << 4) as u8;
        let end = ip.end + bytes.len() + at + 20 - ip.tcp_end;
        let restate = |frame: &mut Vec<u8>, place: usize, length: usize| {
            frame[place..place + 2].copy_from_slice(&(length as u16).to_be_bytes());
        };
        match ip.is_v6 {
            true => restate(&mut self.frame, ip.at + 4, end - ip.at - 40),
            false => restate(&mut self.frame, ip.at + 2, end - ip.at),
        }
        if let Some(pppoe) = self.places.pppoe {
            let grown = usize::from(word(&self.frame, pppoe + 4)) + end - ip.end;
            restate(&mut self.frame, pppoe + 4, grown);
        }
        let ip = Network { end, tcp_end: at + 20 + bytes.len(), ..ip };
        self.places.ip = Some(ip.clone());
        for (sum, before) in self.sums().iter().zip(before) {
            self.correct(sum, before, &ip);
        }
    }

    /// Does what a target says with the bytes.
    pub(crate) fn target(&mut self, target: &Target, all: &[Target]) {
        match target {
            Target::Mod(field, value) => self.write(*field, value),
            Target::Strip { is_kept: false, option } => {
                self.strip(|kind| option.is_some_and(|option| option != kind));
            }
            Target::Strip { is_kept: true, .. } => {
                // The first one stands for all: what is added behind it stays.
                let strips = |other: &&Target| matches!(other, Target::Strip { is_kept: true, .. });
                if !all.iter().find(strips).is_some_and(|first| std::ptr::eq(first, target)) {
                    return;
                }
                let kept: Vec<u8> = all
                    .iter()
                    .filter_map(|target| match target {
                        Target::Strip { option, .. } => *option,
                        _ => None,
                    })
                    .collect();
                self.strip(|kind| kept.contains(&kind));
            }
            Target::Add { option, value } => self.add(*option, value.as_ref()),
            _ => {}
        }
    }
}
