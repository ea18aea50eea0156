//! `PPPControlProtocol`: LCP and IPCP, as far as a link of PPPoE needs them (RFC 1661, RFC 1332).

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::super::header::{get16, get32, put, set16};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::SECOND;

pub(super) const CLASSES: &[Class] =
    &[Class::new("PPPControlProtocol", ppp_control_protocol).ports("2/2").processing("h/h").flow("xy/yx")];

mod protocol {
    pub(super) const IPV4: u16 = 0x0021;
    pub(super) const IPCP: u16 = 0x8021;
    pub(super) const LCP: u16 = 0xC021;
}

mod code {
    pub(super) const REQUEST: u8 = 1;
    pub(super) const ACK: u8 = 2;
    pub(super) const NAK: u8 = 3;
    pub(super) const REJECT: u8 = 4;
    pub(super) const TERMINATE: u8 = 5;
    pub(super) const TERMINATED: u8 = 6;
    pub(super) const CODE_REJECT: u8 = 7;
    pub(super) const PROTOCOL_REJECT: u8 = 8;
    pub(super) const ECHO: u8 = 9;
    pub(super) const ECHO_REPLY: u8 = 10;
    pub(super) const DISCARD: u8 = 11;
}

const MRU: u8 = 1;
const MAGIC: u8 = 5;
const IP_ADDRESS: u8 = 3;

/// The most often that a request is sent again, and how soon (ns).
const RETRIES: u32 = 10;
const RETRY: u64 = 3 * SECOND;
/// The most bytes of a packet that a reject repeats.
const REPEATED: usize = 1400;

/// One of the two control protocols' state.
#[derive(Clone, Copy, Default)]
struct Negotiation {
    /// The other side has agreed to our request.
    agreed: bool,
    /// We have agreed to the other side's.
    agrees: bool,
    /// Number of our request.
    identifier: u8,
    /// How often the request can still be sent; 0: it is not being sent.
    tries: u32,
}

impl Negotiation {
    fn is_open(&self) -> bool {
        self.agreed && self.agrees
    }
}

/// `PPPControlProtocol(ADDR, PEER [, MRU])`: brings a PPP link up, with these addresses for its two ends.
///
/// Input 0 takes packets of the link, which begin with PPP's protocol field. Output 0 has those for the link. Once the
/// link is open, output 1 has the IPv4 packets that came, and input 1 takes those to send. There is no authentication,
/// and no options but the receive unit, the magic number and the address.
struct PppControlProtocol {
    address: Ipv4Addr,
    peer: Ipv4Addr,
    mru: u16,
    magic: Cell<u32>,
    lcp: Cell<Negotiation>,
    ipcp: Cell<Negotiation>,
    drops: Cell<u64>,
}

fn ppp_control_protocol(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let address: Option<Ipv4Addr> = arguments.required("ADDR");
    let peer: Option<Ipv4Addr> = arguments.required("PEER");
    let mru: u16 = arguments.keyword("MRU").unwrap_or(1492);
    arguments.complete()?;
    Some(Rc::new(PppControlProtocol {
        address: address?,
        peer: peer?,
        mru,
        magic: Cell::new(setup.at.router.random() | 1),
        lcp: Cell::default(),
        ipcp: Cell::default(),
        drops: Cell::default(),
    }))
}

/// The first byte of each option with the whole option. `None`: they do not fit their lengths.
fn options(bytes: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut options = Vec::new();
    let mut rest = bytes;
    while let [kind, length, ..] = *rest {
        if length < 2 {
            return None;
        }
        let (option, next) = rest.split_at_checked(length.into())?;
        options.push((kind, option));
        rest = next;
    }
    rest.is_empty().then_some(options)
}

impl PppControlProtocol {
    fn of(&self, number: u16) -> &Cell<Negotiation> {
        if number == protocol::LCP { &self.lcp } else { &self.ipcp }
    }
    fn update(&self, number: u16, change: impl FnOnce(&mut Negotiation)) {
        let mut negotiation = self.of(number).get();
        change(&mut negotiation);
        self.of(number).set(negotiation);
    }

    fn send(&self, at: At<'_>, number: u16, code: u8, identifier: u8, body: &[u8]) {
        let Ok(length) = u16::try_from(4 + body.len()) else { return };
        let Some(mut packet) = at.allocate(6 + body.len()) else { return };
        let data = packet.data_mut();
        set16(data, 0, number);
        put(data, 2, &[code, identifier]);
        set16(data, 4, length);
        put(data, 6, body);
        packet.set_timestamp(at.now());
        at.push(0, packet);
    }

    fn request(&self, at: At<'_>, number: u16) {
        let negotiation = self.of(number).get();
        if negotiation.agreed || negotiation.tries == 0 {
            return;
        }
        self.update(number, |one| {
            one.tries -= 1;
            one.identifier = one.identifier.wrapping_add(1);
        });
        let mut body = Vec::new();
        if number == protocol::LCP {
            body.extend_from_slice(&[MRU, 4]);
            body.extend_from_slice(&self.mru.to_be_bytes());
            body.extend_from_slice(&[MAGIC, 6]);
            body.extend_from_slice(&self.magic.get().to_be_bytes());
        } else {
            body.extend_from_slice(&[IP_ADDRESS, 6]);
            body.extend_from_slice(&self.address.octets());
        }
        at.timer_after(usize::from(number == protocol::IPCP), RETRY);
        self.send(at, number, code::REQUEST, negotiation.identifier.wrapping_add(1), &body);
    }

    /// Begins to ask, unless that is going on.
    fn begin(&self, at: At<'_>, number: u16) {
        let negotiation = self.of(number).get();
        if !negotiation.agreed && negotiation.tries == 0 {
            self.update(number, |one| one.tries = RETRIES);
            self.request(at, number);
        }
    }

    /// The answer to an option: none if it is right, a better one, or that it is unknown.
    fn answer_to(&self, at: At<'_>, number: u16, kind: u8, option: &[u8]) -> (u8, Vec<u8>) {
        let better = |value: &[u8]| {
            let mut better = vec![kind, (value.len() + 2) as u8];
            better.extend_from_slice(value);
            (code::NAK, better)
        };
        match (number, kind, option.len()) {
            (protocol::LCP, MRU, 4) => match get16(option, 2) {
                0..64 => better(&self.mru.to_be_bytes()),
                _ => (code::ACK, Vec::new()),
            },
            (protocol::LCP, MAGIC, 6) => {
                if [0, self.magic.get()].contains(&get32(option, 2)) {
                    // Our own packets come back, or both chose the same number.
                    self.magic.set(at.router.random() | 1);
                    return better(&(at.router.random() | 1).to_be_bytes());
                }
                (code::ACK, Vec::new())
            }
            (protocol::IPCP, IP_ADDRESS, 6) if option[2..] == self.peer.octets() => (code::ACK, Vec::new()),
            (protocol::IPCP, IP_ADDRESS, 6) => better(&self.peer.octets()),
            _ => (code::REJECT, option.to_vec()),
        }
    }

    /// Answers a request of the other side.
    fn answer_request(&self, at: At<'_>, number: u16, identifier: u8, body: &[u8]) {
        let Some(options) = options(body) else {
            self.drops.set(self.drops.get() + 1);
            return;
        };
        let (mut naks, mut rejects) = (Vec::new(), Vec::new());
        for (kind, option) in options {
            match self.answer_to(at, number, kind, option) {
                (code::NAK, better) => naks.extend(better),
                (code::REJECT, unknown) => rejects.extend(unknown),
                _ => (),
            }
        }
        let (code, said) = if !rejects.is_empty() {
            (code::REJECT, &rejects[..])
        } else if !naks.is_empty() {
            (code::NAK, &naks[..])
        } else {
            (code::ACK, body)
        };
        if number == protocol::LCP && self.lcp.get().is_open() {
            // The other side begins again.
            self.lcp.set(Negotiation { identifier: self.lcp.get().identifier, ..Negotiation::default() });
            self.ipcp.set(Negotiation { identifier: self.ipcp.get().identifier, ..Negotiation::default() });
        }
        self.update(number, |one| one.agrees = code == code::ACK);
        self.send(at, number, code, identifier, said);
        self.begin(at, number);
        self.opened(at, number);
    }

    fn opened(&self, at: At<'_>, number: u16) {
        if number == protocol::LCP && self.lcp.get().is_open() {
            self.begin(at, protocol::IPCP);
        }
    }

    fn control(&self, at: At<'_>, number: u16, message: &[u8]) -> Option<()> {
        let length = usize::from(get16(message, 2));
        let whole = message.get(..length).filter(|whole| whole.len() >= 4)?;
        let (code, identifier, body) = (whole[0], whole[1], &whole[4..]);
        let own = identifier == self.of(number).get().identifier;
        if number == protocol::IPCP && !self.lcp.get().is_open() {
            return None;
        }
        match code {
            code::REQUEST => self.answer_request(at, number, identifier, body),
            code::ACK if own => {
                self.update(number, |one| {
                    one.agreed = true;
                    one.tries = 0;
                });
                self.opened(at, number);
            }
            // What we ask for is the least; the timer has us ask again.
            code::NAK | code::REJECT if own => (),
            code::TERMINATE => {
                self.send(at, number, code::TERMINATED, identifier, &[]);
                self.close(number);
            }
            code::TERMINATED => self.close(number),
            code::ECHO if number == protocol::LCP && self.lcp.get().is_open() && body.len() >= 4 => {
                let mut reply = body.get(..body.len().min(REPEATED))?.to_vec();
                put(&mut reply, 0, &self.magic.get().to_be_bytes());
                self.send(at, number, code::ECHO_REPLY, identifier, &reply);
            }
            code::ACK..=code::REJECT | code::CODE_REJECT..=code::DISCARD => (),
            _ => {
                self.send(at, number, code::CODE_REJECT, identifier, whole.get(..whole.len().min(REPEATED))?)
            }
        }
        Some(())
    }

    fn close(&self, number: u16) {
        if number == protocol::LCP {
            self.lcp.set(Negotiation { identifier: self.lcp.get().identifier, ..Negotiation::default() });
        }
        self.ipcp.set(Negotiation { identifier: self.ipcp.get().identifier, ..Negotiation::default() });
    }

    fn is_up(&self) -> bool {
        self.lcp.get().is_open() && self.ipcp.get().is_open()
    }

    fn take(&self, at: At<'_>, mut packet: Packet) {
        let number = get16(packet.data(), 0);
        match number {
            protocol::IPV4 if self.is_up() => {
                packet.pull_bytes(2);
                at.push(1, packet);
                return;
            }
            protocol::LCP | protocol::IPCP => {
                let message = packet.data().get(2..).map(<[u8]>::to_vec).unwrap_or_default();
                if self.control(at, number, &message).is_none() {
                    self.drops.set(self.drops.get() + 1);
                }
            }
            _ if packet.len() > 2 && number != protocol::IPV4 && self.lcp.get().is_open() => {
                let shown = packet.len().min(REPEATED);
                let rejected = packet.data()[..shown].to_vec();
                let identifier = self.lcp.get().identifier;
                self.send(at, protocol::LCP, code::PROTOCOL_REJECT, identifier, &rejected);
            }
            _ => self.drops.set(self.drops.get() + 1),
        }
        at.drop_packet(packet, DropReason::LocalDelivery);
    }
}

impl Element for PppControlProtocol {
    fn push(&self, at: At<'_>, input: usize, mut packet: Packet) {
        if input == 0 {
            self.take(at, packet);
        } else if !self.is_up() {
            self.drops.set(self.drops.get() + 1);
            at.drop_packet(packet, DropReason::LinkDown);
        } else if packet.push_bytes(at.pool(), 2) {
            set16(packet.data_mut(), 0, protocol::IPV4);
            at.push(0, packet);
        } else {
            at.drop_packet(packet, DropReason::PoolExhausted);
        }
    }
    fn run_timer(&self, at: At<'_>, timer: usize) {
        self.request(at, if timer == 0 { protocol::LCP } else { protocol::IPCP });
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("up", |this: &Self, _| this.is_up());
        handlers.read("lcp", |this: &Self, _| this.lcp.get().is_open());
        handlers.read("ipcp", |this: &Self, _| this.ipcp.get().is_open());
        handlers.read("drops", |this: &Self, _| this.drops.get());
        handlers.button("open", |this: &Self, at| this.begin(at, protocol::LCP));
        handlers.button("close", |this: &Self, at| {
            this.close(protocol::LCP);
            let identifier = this.lcp.get().identifier;
            this.send(at, protocol::LCP, code::TERMINATE, identifier, &[]);
        });
    }
}
