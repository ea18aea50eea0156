//! `FTPPortMapper`: flows that FTP's command `PORT` announces (RFC 959).

use std::collections::HashSet;
use std::rc::Rc;

use netbricks_core::buffer::Packet;
use netbricks_core::packet::checksum;

use super::configure::Make;
use super::flow_id::FlowId;
use super::rewriter::{Rewriter, Want, is_rewriter};
use super::translate::{Headers, half, protocol, set_half, word};
use crate::arguments::{Arguments, Parsed};
use crate::element::{Class, Element};
use crate::language::errors::Errors;
use crate::packet::Annotated as _;
use crate::router::{At, Setup};

const MAKE: Make = ftp_port_mapper;
pub(super) const CLASSES: &[Class] = &[Class::new("FTPPortMapper", MAKE)];

/// `FTPPortMapper(CONTROL_REWRITER, DATA_REWRITER, DATA_REWRITER_INPUT)`: follows the command `PORT` of FTP.
///
/// It makes the flow that the command announces in a rewriter, and writes the flow's new address and port into it.
struct FtpPortMapper {
    control: usize,
    data: usize,
    input: usize,
}

/// Another element of some class.
fn element(text: &str, at: At<'_>, expected: &str, fits: impl Fn(&str) -> bool) -> Parsed<usize> {
    let id = at.router.find(text, at.id).ok_or("does not name an element")?;
    if fits(at.router.class(id)) {
        Ok(id)
    } else {
        Err(format!("element type mismatch, expected {expected}").into())
    }
}

fn has_tcp(class: &str) -> bool {
    matches!(class, "TCPRewriter" | "IPRewriter")
}

fn ftp_port_mapper(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let control =
        arguments.required_with("CONTROL_REWRITER", |text, at| element(text, at, "TCPRewriter", has_tcp));
    let data =
        arguments.required_with("DATA_REWRITER", |text, at| element(text, at, "IPRewriterBase", is_rewriter));
    let input: Option<i32> = arguments.required("DATA_REWRITER_INPUT");
    arguments.complete()?;
    let (control, data) = (control?, data?);
    let inputs = setup.at.router.at(data).inputs();
    let Some(input) = usize::try_from(input?).ok().filter(|input| *input < inputs) else {
        setup.errors.error("DATA_REWRITER_INPUT out of range");
        return None;
    };
    Some(Rc::new(FtpPortMapper { control, data, input }))
}

/// A command `PORT` in a segment's data.
struct Command {
    /// Where its six numbers begin and end, from the data's first byte.
    from: usize,
    to: usize,
    address: u32,
    port: u16,
}

impl Command {
    fn read(data: &[u8]) -> Option<Self> {
        if data.len() < 5 || !data[..4].eq_ignore_ascii_case(b"PORT") || data[4] != b' ' {
            return None;
        }
        let from = 5 + data[5..].iter().take_while(|byte| **byte == b' ').count();
        let mut numbers = [0_u32; 6];
        let (mut which, mut to) = (0, from);
        while let Some(byte) = data.get(to)
            && let Some(number) = numbers.get_mut(which)
        {
            match byte {
                b'0'..=b'9' => *number = number.saturating_mul(10).saturating_add(u32::from(byte - b'0')),
                b',' => which += 1,
                _ => break,
            }
            to += 1;
        }
        let ends = matches!(data.get(to), Some(b'\r' | b'\n'));
        if which != 5 || !ends {
            return None;
        }
        let mut bytes = [0_u8; 6];
        for (byte, number) in bytes.iter_mut().zip(numbers) {
            *byte = u8::try_from(number).ok()?;
        }
        let [a, b, c, d, high, low] = bytes;
        Some(Self {
            from,
            to,
            address: u32::from_be_bytes([a, b, c, d]),
            port: u16::from_be_bytes([high, low]),
        })
    }
}

impl FtpPortMapper {
    /// Makes the announced flow and changes the command. `None`: nothing is to be done.
    fn map(&self, at: At<'_>, packet: &mut Packet) -> Option<()> {
        let headers = Headers::of(packet)?;
        let bytes = packet.data();
        let (ip, segment) = (&bytes[headers.network..], bytes.get(headers.transport..)?);
        if ip[9] != protocol::TCP || half(ip, 6) & 0x1FFF != 0 || segment.len() < 20 {
            return None;
        }
        let offset = usize::from(segment[12] >> 4) * 4;
        let text = segment.get(offset..)?;
        let command = Command::read(text)?;
        let (sequence, length) = (word(segment, 4), text.len());
        let id = FlowId {
            source: word(ip, 12),
            destination: word(ip, 16),
            source_port: half(segment, 0),
            destination_port: half(segment, 2),
        };
        let control = at.router.element_as::<Rewriter>(self.control)?;
        let entry = control.entry(at.router.at(self.control), protocol::TCP, id, Want::Known)?;
        let announced = FlowId {
            source: command.address,
            source_port: command.port,
            destination: id.destination,
            destination_port: id.destination_port.wrapping_sub(1),
        };
        let data = at.router.element_as::<Rewriter>(self.data)?;
        let made = data.entry(at.router.at(self.data), protocol::TCP, announced, Want::Input(self.input))?;
        let to = data.flows.borrow().flow(made).rewritten(made & 1 != 0);
        let ([a, b, c, d], [high, low]) = (to.source.to_be_bytes(), to.source_port.to_be_bytes());
        let numbers = format!("{a},{b},{c},{d},{high},{low}");
        let shift = numbers.len() as i32 - (command.to - command.from) as i32;
        replace(packet, headers.transport + offset, &command, numbers.as_bytes())?;
        write_lengths(packet, headers);
        // The new flow may have ended others, the control connection's among them.
        if control.entry(at.router.at(self.control), protocol::TCP, id, Want::Known) != Some(entry) {
            return Some(());
        }
        let annotation = {
            let mut flows = control.flows.borrow_mut();
            let place = sequence.wrapping_add(length as u32);
            flows.shifts_mut(entry)[(entry & 1) as usize].add(place, shift);
            flows.flow(entry).reply_annotation
        };
        data.flows.borrow_mut().flow_mut(made).reply_annotation = annotation;
        Some(())
    }
}

/// Writes other numbers into a command. `None` when the frame has no room for them.
fn replace(packet: &mut Packet, at: usize, command: &Command, numbers: &[u8]) -> Option<()> {
    let (from, to, old) = (at + command.from, at + command.to, packet.len());
    if let Some(more) = numbers.len().checked_sub(to - from)
        && !packet.put_bytes(more)
    {
        return None;
    }
    packet.data_mut().copy_within(to..old, from + numbers.len());
    packet.data_mut()[from..from + numbers.len()].copy_from_slice(numbers);
    packet.truncate(old - (to - from) + numbers.len());
    Some(())
}

/// Writes the IP packet's length and the TCP checksum of a packet whose data has changed.
fn write_lengths(packet: &mut Packet, headers: Headers) {
    let length = packet.len();
    let Some((before, segment)) = packet.data_mut().split_at_mut_checked(headers.transport) else { return };
    let Some(ip) = before.get_mut(headers.network..) else { return };
    let old = half(ip, 2);
    let new = u16::try_from(length - headers.network).unwrap_or(u16::MAX);
    let sum = half(ip, 10);
    set_half(ip, 2, new);
    set_half(ip, 10, checksum::update16(sum, old, new));
    let addresses = (std::net::Ipv4Addr::from(word(ip, 12)), std::net::Ipv4Addr::from(word(ip, 16)));
    set_half(segment, 16, 0);
    let sum = checksum::transport(addresses.0.into(), addresses.1.into(), protocol::TCP, segment);
    set_half(segment, 16, sum);
}

impl Element for FtpPortMapper {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        if !is_downstream(at, self.control) {
            let declaration = at.router.at(self.control).declaration();
            errors.warning(&format!("control packet rewriter '{declaration}' is not downstream"));
        }
        true
    }

    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let _ = self.map(at, &mut packet);
        Some(packet)
    }
}

/// Whether packets come to a rewriter before any other of TCP's.
fn is_downstream(at: At<'_>, rewriter: usize) -> bool {
    let router = at.router;
    let mut seen = HashSet::new();
    let mut open = router.targets(at.id, 0);
    while let Some((id, input)) = open.pop() {
        if id == rewriter {
            return true;
        }
        if has_tcp(router.class(id)) || !seen.insert((id, input)) {
            continue;
        }
        for output in router.connected_ports(id, input, false) {
            open.extend(router.targets(id, output));
        }
    }
    false
}
