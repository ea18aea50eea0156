//! The negotiation of a session: what it says to each control packet and each timer (RFC 1661).

use std::sync::Arc;

use netbricks_core::buffer::Packet;
use netbricks_core::{Context, DropReason, EventLog};

use super::automaton::{Actions, Event, State};
use super::control::{Control, Writer, code, protocol};
use super::counts::Counts;
use super::fixed::Fixed;
use super::happening::{Cause, Happening, Kind};
use super::pool::Addresses;
use super::random::Random;
use super::requests::Requests;
use super::session::{Layer, NEVER, Order, Proof, Session, Which};

/// Time between two requests (the Restart timer's default of section 4.6), in ns.
pub(super) const RESTART: u64 = 3_000_000_000;
/// Requests without an answer (Max-Configure and Max-Terminate of section 4.6).
const MAX_CONFIGURE: u8 = 10;
const MAX_TERMINATE: u8 = 2;
/// Naks to a subscriber before its options are rejected (Max-Failure of section 4.6).
const MAX_FAILURE: u8 = 5;
/// Naks and rejects of a subscriber before there is no agreement.
const MAX_HEARD: u8 = 20;
/// Control packets of a session: packets a second, and at once.
const CONTROL_RATE: (u64, u64) = (20, 60);

/// The things that sessions need beside themselves.
pub(super) struct Shared {
    pub(super) fixed: Arc<Fixed>,
    pub(super) random: Random,
    pub(super) addresses: Addresses,
    pub(super) requests: Requests,
    pub(super) events: EventLog<Happening>,
    pub(super) counts: Counts,
    /// Frames for subscribers, in order.
    pub(super) to_access: Vec<Packet>,
}

/// A call of a session: the time in ns, and what is beside it.
pub(super) struct Env<'e> {
    pub(super) now: u64,
    pub(super) shared: &'e mut Shared,
    pub(super) cx: &'e mut Context,
}

/// The parts of an answer that a received packet decides.
#[derive(Clone, Copy, Default)]
pub(super) struct Reply<'r> {
    pub(super) id: u8,
    /// The code of an answer to a Configure-Request.
    pub(super) code: u8,
    pub(super) data: &'r [u8],
}

/// Bytes of PPPoE's header and PPP's protocol field.
const FRAMING: usize = 8;
/// The shortest Ethernet frame, without its check sequence.
const SHORTEST: usize = 60;

impl Session {
    /// Sends a control packet to the subscriber.
    pub(super) fn send(&self, protocol: u16, code: u8, id: u8, data: &[u8], env: &mut Env<'_>) {
        let most = self.mtu() - 4;
        let data = &data[..data.len().min(most)];
        let len = 4 + data.len();
        self.frame(protocol, len, env, |room| {
            room[0] = code;
            room[1] = id;
            room[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            room[4..].copy_from_slice(data);
        });
    }

    /// Sends a PPP packet of `len` bytes behind the protocol field to the subscriber.
    pub(super) fn frame(&self, protocol: u16, len: usize, env: &mut Env<'_>, write: impl FnOnce(&mut [u8])) {
        let link = usize::from(self.link_len);
        let whole = link + FRAMING + len;
        let Some(mut packet) = env.cx.pool().allocate(whole.max(SHORTEST)) else {
            return env.cx.lost_without_buffer(whole);
        };
        packet.set_received_at(env.cx.now());
        let bytes = packet.data_mut();
        bytes[..link].copy_from_slice(&self.link[..link]);
        let (head, body) = bytes[link..whole].split_at_mut(FRAMING);
        head.copy_from_slice(&self.framing(protocol, len));
        write(body);
        env.cx.created(&packet);
        env.shared.to_access.push(packet);
    }

    /// The headers of PPPoE and PPP before `len` bytes.
    #[inline]
    pub(super) fn framing(&self, protocol: u16, len: usize) -> [u8; FRAMING] {
        let [[a, b], [c, d], [e, f]] = [self.id, (len + 2) as u16, protocol].map(u16::to_be_bytes);
        [0x11, 0, a, b, c, d, e, f]
    }

    /// Takes a PPP packet that is no IP packet.
    ///
    /// # Errors
    /// The reason why it has no effect.
    pub(super) fn hear(
        &mut self,
        protocol: u16,
        payload: &[u8],
        env: &mut Env<'_>,
    ) -> Result<(), DropReason> {
        if self.ended.is_some() {
            return Err(DropReason::InvalidState);
        }
        if !self.control.take(env.now, CONTROL_RATE.0, CONTROL_RATE.1) {
            return Err(DropReason::RateLimited);
        }
        let is_up = self.state(Which::Lcp) == State::Opened;
        match protocol {
            protocol::LCP => self.control(Which::Lcp, payload, env),
            _ if !is_up => Err(DropReason::InvalidState),
            protocol::PAP | protocol::CHAP => self.hear_proof(protocol, payload, env),
            protocol::IPCP | protocol::IPV6CP if !self.is_network_phase() => Err(DropReason::InvalidState),
            protocol::IPCP if self.address.is_some() => self.control(Which::Ipcp, payload, env),
            protocol::IPV6CP if self.takes_v6() => self.control(Which::Ipv6cp, payload, env),
            _ => {
                let mut data = Writer::new();
                data.add(&protocol.to_be_bytes()).add(payload);
                let id = self.next_reject_id();
                self.send(protocol::LCP, code::PROTOCOL_REJECT, id, data.bytes(), env);
                Ok(())
            }
        }
    }

    /// Whether the subscriber's links are large enough for IPv6 (RFC 8200, section 5).
    pub(super) fn takes_v6(&self) -> bool {
        self.mtu() >= 1_280
    }

    fn next_id(&mut self, which: Which) -> u8 {
        let layer = self.layer(which);
        layer.id = layer.id.wrapping_add(1);
        layer.id
    }

    /// The identifier of a reject. The answer to a request that is on its way needs that of the request.
    fn next_reject_id(&mut self) -> u8 {
        self.reject_id = self.reject_id.wrapping_add(1);
        self.reject_id
    }

    /// Takes a packet of LCP, IPCP or IPV6CP.
    fn control(&mut self, which: Which, payload: &[u8], env: &mut Env<'_>) -> Result<(), DropReason> {
        let packet = Control::read(payload).ok_or(DropReason::Malformed)?;
        let reply = Reply { id: packet.id, code: 0, data: packet.data };
        match packet.code {
            code::CONFIGURE_REQUEST => return self.configure(which, packet, env),
            code::CONFIGURE_ACK | code::CONFIGURE_NAK | code::CONFIGURE_REJECT => {
                return self.answered(which, packet, env);
            }
            code::TERMINATE_REQUEST => {
                // In a negotiation it only begins that again (section 4.3).
                if which == Which::Lcp && self.state(which) == State::Opened {
                    self.closing = self.closing.or(Some(Cause::Subscriber));
                }
                self.step(which, Event::Terminate, reply, env);
            }
            code::TERMINATE_ACK => self.step(which, Event::TerminateAck, reply, env),
            code::CODE_REJECT => {
                let rejected = packet.data.first().copied().unwrap_or(0);
                let is_fatal = (code::CONFIGURE_REQUEST..=code::CODE_REJECT).contains(&rejected);
                let event = if is_fatal { Event::FatalReject } else { Event::Reject };
                self.step(which, event, reply, env);
            }
            code::PROTOCOL_REJECT if which == Which::Lcp => self.protocol_rejected(packet.data, env)?,
            code::ECHO_REQUEST | code::ECHO_REPLY | code::DISCARD_REQUEST if which == Which::Lcp => {
                self.echoed(packet, env)?;
            }
            _ => self.step(which, Event::UnknownCode, Reply { data: packet.whole, ..reply }, env),
        }
        Ok(())
    }

    fn protocol_rejected(&mut self, data: &[u8], env: &mut Env<'_>) -> Result<(), DropReason> {
        let [high, low, ..] = data else { return Err(DropReason::Malformed) };
        match u16::from_be_bytes([*high, *low]) {
            _ if self.state(Which::Lcp) != State::Opened => return Err(DropReason::InvalidState),
            protocol::IPCP => self.step(Which::Ipcp, Event::FatalReject, Reply::default(), env),
            protocol::IPV6CP => self.step(Which::Ipv6cp, Event::FatalReject, Reply::default(), env),
            protocol::LCP | protocol::PAP | protocol::CHAP => {
                self.step(Which::Lcp, Event::FatalReject, Reply::default(), env);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes an Echo-Request, an Echo-Reply or a Discard-Request (section 5.8).
    fn echoed(&mut self, packet: Control<'_>, env: &mut Env<'_>) -> Result<(), DropReason> {
        let (magic, more) = packet.data.split_first_chunk::<4>().ok_or(DropReason::Malformed)?;
        if self.magic != 0 && u32::from_be_bytes(*magic) == self.magic {
            // Our own packet, on a line that is looped.
            return Err(DropReason::InvalidState);
        }
        match packet.code {
            code::ECHO_REQUEST => {
                let mut data = Writer::new();
                data.add(&self.magic.to_be_bytes()).add(more);
                self.step(Which::Lcp, Event::Echo, Reply { id: packet.id, code: 0, data: data.bytes() }, env);
            }
            code::ECHO_REPLY if packet.id == self.echo_id => self.echo_missed = 0,
            _ => {}
        }
        Ok(())
    }

    /// Takes a Configure-Request (section 5.1).
    fn configure(&mut self, which: Which, packet: Control<'_>, env: &mut Env<'_>) -> Result<(), DropReason> {
        let dns = self.dns(env);
        let checked = self
            .check_options(which, packet.data, dns, &mut env.shared.random)
            .map_err(|_| DropReason::Malformed)?;
        let layer = self.layer(which);
        let is_tired = layer.naks_sent >= MAX_FAILURE;
        let (event, code, data) = if !checked.rejects.is_empty() {
            (Event::BadRequest, code::CONFIGURE_REJECT, checked.rejects.bytes())
        } else if checked.naks.is_empty() {
            (Event::GoodRequest, code::CONFIGURE_ACK, packet.data)
        } else if !is_tired {
            layer.naks_sent += 1;
            (Event::BadRequest, code::CONFIGURE_NAK, checked.naks.bytes())
        } else if checked.naked.is_empty() {
            // An option that must be there does not come.
            self.end(Cause::NoAgreement);
            return Ok(());
        } else {
            (Event::BadRequest, code::CONFIGURE_REJECT, checked.naked.bytes())
        };
        if code == code::CONFIGURE_REJECT {
            layer.naks_heard = layer.naks_heard.saturating_add(1);
            if layer.naks_heard > MAX_HEARD {
                self.end(Cause::NoAgreement);
                return Ok(());
            }
        }
        if event == Event::GoodRequest {
            // Before the layer comes up by it.
            self.adopt(which, &checked);
        }
        self.step(which, event, Reply { id: packet.id, code, data }, env);
        Ok(())
    }

    fn dns(&self, env: &Env<'_>) -> [Option<std::net::Ipv4Addr>; 2] {
        if self.grant.dns[0].is_some() { self.grant.dns } else { env.shared.fixed.dns_v4 }
    }

    /// Takes an answer to our Configure-Request (sections 5.2 to 5.4).
    fn answered(&mut self, which: Which, packet: Control<'_>, env: &mut Env<'_>) -> Result<(), DropReason> {
        let layer = self.layer(which);
        if packet.id != layer.id {
            return Err(DropReason::InvalidState);
        }
        let event = if packet.code == code::CONFIGURE_ACK {
            let mut own = Writer::new();
            self.own_options(which, env.shared.fixed.address, &mut own);
            if packet.data != own.bytes() {
                return Err(DropReason::InvalidState);
            }
            Event::Ack
        } else {
            if super::control::Options(packet.data).any(|option| option.is_err()) {
                return Err(DropReason::Malformed);
            }
            layer.naks_heard = layer.naks_heard.saturating_add(1);
            let mut goes_on = layer.naks_heard <= MAX_HEARD;
            if packet.code == code::CONFIGURE_REJECT {
                goes_on &= self.heed_reject(which, packet.data);
            } else {
                let fixed = env.shared.fixed.clone();
                self.heed_nak(which, packet.data, &fixed.methods, &mut env.shared.random);
            }
            if !goes_on {
                self.disagree(which, env);
                return Ok(());
            }
            Event::Nak
        };
        self.step(which, event, Reply { id: packet.id, ..Reply::default() }, env);
        Ok(())
    }

    /// Gives up a layer whose ends do not agree.
    fn disagree(&mut self, which: Which, env: &mut Env<'_>) {
        match which {
            Which::Lcp => self.end(Cause::NoAgreement),
            _ => self.step(which, Event::Close, Reply::default(), env),
        }
    }

    /// Takes an event of a layer's automaton, and does what its table says.
    pub(super) fn step(&mut self, which: Which, event: Event, reply: Reply<'_>, env: &mut Env<'_>) {
        let number = number_of(which);
        let before = self.state(which);
        let (actions, next) = before.step(event);
        self.layer(which).state = next;
        if actions.has(Actions::TLD) {
            self.layer_down(which, env);
        }
        let layer = self.layer(which);
        if actions.has(Actions::IRC) {
            layer.restarts = if actions.has(Actions::STR) { MAX_TERMINATE } else { MAX_CONFIGURE };
        }
        if actions.has(Actions::ZRC) {
            layer.restarts = 0;
            layer.due = env.now + RESTART;
        }
        if actions.has(Actions::SCR) {
            let mut own = Writer::new();
            self.own_options(which, env.shared.fixed.address, &mut own);
            let id = self.start_timer(which, env.now);
            self.send(number, code::CONFIGURE_REQUEST, id, own.bytes(), env);
        }
        if actions.has(Actions::SCA) || actions.has(Actions::SCN) {
            self.send(number, reply.code, reply.id, reply.data, env);
        }
        if actions.has(Actions::STR) {
            let id = self.start_timer(which, env.now);
            self.send(number, code::TERMINATE_REQUEST, id, b"", env);
        }
        if actions.has(Actions::STA) {
            self.send(number, code::TERMINATE_ACK, reply.id, b"", env);
        }
        if actions.has(Actions::SCJ) {
            let id = self.next_reject_id();
            self.send(number, code::CODE_REJECT, id, reply.data, env);
        }
        if actions.has(Actions::SER) {
            self.send(number, code::ECHO_REPLY, reply.id, reply.data, env);
        }
        if !next.has_timer() {
            self.layer(which).due = NEVER;
        }
        if actions.has(Actions::TLU) {
            self.layer_up(which, env);
        }
        if actions.has(Actions::TLF) {
            self.layer_finished(which, env);
        }
    }

    /// Starts the restart timer for a request; answers the request's identifier.
    fn start_timer(&mut self, which: Which, now: u64) -> u8 {
        let layer = self.layer(which);
        layer.restarts = layer.restarts.saturating_sub(1);
        layer.due = now + RESTART;
        self.next_id(which)
    }

    fn layer_up(&mut self, which: Which, env: &mut Env<'_>) {
        let layer = self.layer(which);
        (layer.naks_sent, layer.naks_heard) = (0, 0);
        match which {
            Which::Lcp => {
                self.echo_due = env.now + env.shared.fixed.keepalive;
                self.echo_missed = 0;
                self.begin_proof(env);
            }
            Which::Ipcp => {
                self.is_open_v4 = true;
                self.announce(env);
            }
            Which::Ipv6cp => {
                self.is_open_v6 = true;
                self.announce(env);
                self.advertise_due = if self.prefix.is_some() { env.now } else { NEVER };
            }
        }
    }

    fn layer_down(&mut self, which: Which, env: &mut Env<'_>) {
        match which {
            Which::Lcp => {
                for layer in [Which::Ipcp, Which::Ipv6cp] {
                    self.step(layer, Event::Down, Reply::default(), env);
                    *self.layer(layer) = Layer::NEW;
                }
                let was_up = self.is_announced;
                self.withdraw(self.closing.unwrap_or(Cause::Subscriber), env);
                self.proof = Proof::None;
                // Answers to what was asked before are about another proof.
                self.asked = 0;
                (self.proof_due, self.echo_due) = (NEVER, NEVER);
                if was_up {
                    // A negotiation behind an open session has as long as the first.
                    self.setup_until = env.now + env.shared.fixed.setup;
                }
            }
            Which::Ipcp => self.is_open_v4 = false,
            Which::Ipv6cp => {
                self.is_open_v6 = false;
                self.advertise_due = NEVER;
            }
        }
    }

    fn layer_finished(&mut self, which: Which, env: &mut Env<'_>) {
        let is_over =
            |state: State| matches!(state, State::Initial | State::Starting | State::Closed | State::Stopped);
        match which {
            Which::Lcp => self.end(self.closing.unwrap_or(Cause::NoAgreement)),
            _ if self.is_network_phase()
                && is_over(self.state(Which::Ipcp))
                && is_over(self.state(Which::Ipv6cp)) =>
            {
                self.close(Cause::NoAgreement, env);
            }
            _ => {}
        }
    }

    /// Lets the subscriber in, once it has its addresses: IPCP and IPV6CP begin.
    pub(super) fn begin_network(&mut self, env: &mut Env<'_>) {
        if self.address.is_some() {
            self.step(Which::Ipcp, Event::Open, Reply::default(), env);
            self.step(Which::Ipcp, Event::Up, Reply::default(), env);
        }
        if self.takes_v6() {
            self.interface_id = env.shared.random.number() & !(2 << 56) | 1;
            self.step(Which::Ipv6cp, Event::Open, Reply::default(), env);
            self.step(Which::Ipv6cp, Event::Up, Reply::default(), env);
        }
    }

    /// Tells the control side that the session is up, at its first layer.
    fn announce(&mut self, env: &mut Env<'_>) {
        if self.is_announced {
            return;
        }
        let fixed = env.shared.fixed.clone();
        // A time of 0 is no limit.
        let seconds = |value: Option<u32>| {
            value.filter(|seconds| *seconds > 0).map(|seconds| u64::from(seconds) * 1_000_000_000)
        };
        self.is_announced = true;
        self.up_since = env.now;
        self.heard_at = env.now;
        self.idle = seconds(self.grant.idle_timeout).unwrap_or(fixed.idle);
        let longest = seconds(self.grant.session_timeout).unwrap_or(fixed.longest);
        self.ends_at = env.now.saturating_add(longest);
        self.interim =
            seconds(self.grant.interim).map_or(fixed.interim, |interim| interim.max(60_000_000_000));
        self.interim_due = if fixed.accounts { env.now.saturating_add(self.interim) } else { NEVER };
        env.shared.counts.opened.add(1);
        env.shared.events.push(Happening::of(self, Kind::Up, env.now));
        self.account(super::proof::Status::Start, env);
    }

    /// Takes back what the subscriber was given, and reports the end where the session was up.
    pub(super) fn withdraw(&mut self, cause: Cause, env: &mut Env<'_>) {
        if std::mem::take(&mut self.is_announced) {
            env.shared.counts.closed.add(1);
            self.owe(cause, env);
            env.shared.events.push(Happening::of(self, Kind::Down(cause), env.now));
        }
        if let Some(address) = self.address.take() {
            env.shared.addresses.put_v4(address);
        }
        if let Some(prefix) = self.prefix.take() {
            env.shared.addresses.put_v6(prefix);
        }
        (self.is_open_v4, self.is_open_v6) = (false, false);
        (self.ends_at, self.interim_due, self.advertise_due) = (NEVER, NEVER, NEVER);
        (self.from_subscriber, self.to_subscriber) = Default::default();
    }

    /// Ends the session by LCP's Terminate-Request; it is taken away once that is answered, or not for long.
    pub(super) fn close(&mut self, cause: Cause, env: &mut Env<'_>) {
        self.closing = self.closing.or(Some(cause));
        match self.state(Which::Lcp) {
            State::ReqSent | State::AckRcvd | State::AckSent | State::Opened => {
                self.step(Which::Lcp, Event::Close, Reply::default(), env);
            }
            State::Closing | State::Stopping => {}
            _ => self.end(cause),
        }
    }

    /// Marks the session as over: the caller sends a PADT and takes it away.
    pub(super) fn end(&mut self, cause: Cause) {
        self.ended = self.ended.or(Some(cause));
    }

    /// Follows an order of the control side, and does what is due.
    pub(super) fn turn(&mut self, env: &mut Env<'_>) {
        self.pay(env);
        if self.ended.is_some() {
            return;
        }
        match self.order.take() {
            Some(Order::Answer { token, verdict }) => self.answer(token, verdict, env),
            Some(Order::Disconnect) => self.close(Cause::Operator, env),
            None => {}
        }
        self.tick(env);
    }

    /// Does what is due at this time.
    fn tick(&mut self, env: &mut Env<'_>) {
        let now = env.now;
        for which in Which::ALL {
            let layer = self.layer(which);
            if layer.due <= now {
                let event = if layer.restarts > 0 { Event::Timeout } else { Event::LastTimeout };
                self.step(which, event, Reply::default(), env);
            }
        }
        if self.ended.is_some() {
            return;
        }
        if !self.is_announced && self.setup_until <= now {
            return self.end(self.closing.unwrap_or(Cause::NoAgreement));
        }
        if self.proof_due <= now {
            self.proof_timed_out(env);
        }
        if self.echo_due <= now {
            self.send_echo(env);
        }
        if self.is_announced {
            if self.ends_at <= now {
                self.close(Cause::SessionTimeout, env);
            } else if self.heard_at.saturating_add(self.idle) <= now {
                self.close(Cause::IdleTimeout, env);
            }
        }
        if self.interim_due <= now {
            self.interim_due = now.saturating_add(self.interim);
            self.account(super::proof::Status::Interim, env);
        }
        if self.advertise_due <= now {
            self.advertise(env);
        }
    }

    fn send_echo(&mut self, env: &mut Env<'_>) {
        let fixed = env.shared.fixed.clone();
        if self.echo_missed >= fixed.misses {
            return self.end(Cause::Lost);
        }
        self.echo_missed += 1;
        self.echo_id = self.echo_id.wrapping_add(1);
        self.echo_due = env.now + fixed.keepalive;
        self.send(protocol::LCP, code::ECHO_REQUEST, self.echo_id, &self.magic.to_be_bytes(), env);
    }
}

/// The protocol number of a layer.
fn number_of(which: Which) -> u16 {
    match which {
        Which::Lcp => protocol::LCP,
        Which::Ipcp => protocol::IPCP,
        Which::Ipv6cp => protocol::IPV6CP,
    }
}
