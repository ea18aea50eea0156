//! PAP (RFC 1334) and CHAP (RFC 1994) against a file of users or RADIUS servers, and accounting (RFC 2866).

use netbricks_core::DropReason;
use netbricks_core::packet::MacAddress;

use md5::{Digest, Md5};

use super::config::Authentication;
use super::control::{Control, Writer, protocol};
use super::happening::{Cause, Happening, Kind};
use super::pool::Unavailable;
use super::ppp::{Env, RESTART};
use super::radius::{FRAMED, PPP, Request, code as radius_code, kind};
use super::random::are_equal;
use super::requests::Kind as RequestKind;
use super::session::{NEVER, Name, Owed, Proof, Session, Summary, Verdict};
use super::users::Grant;

/// Codes of PAP.
mod pap {
    pub(super) const REQUEST: u8 = 1;
    pub(super) const ACK: u8 = 2;
    pub(super) const NAK: u8 = 3;
}

/// Codes of CHAP.
mod chap {
    pub(super) const CHALLENGE: u8 = 1;
    pub(super) const RESPONSE: u8 = 2;
    pub(super) const SUCCESS: u8 = 3;
    pub(super) const FAILURE: u8 = 4;
}

/// Challenges without a response before there is no agreement.
const MAX_CHALLENGES: u8 = 10;
/// The time (ns) after which a report that had no room is tried again.
const AGAIN: u64 = 200_000_000;
/// The time (ns) for which the report of an end is tried.
const PATIENCE: u64 = 30_000_000_000;
/// The longest password that RADIUS carries (RFC 2865, section 5.2).
const LONGEST_PASSWORD: usize = 128;

/// The occasion of an accounting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Start,
    Interim,
    Stop(Cause),
}

/// The proof that a subscriber sends.
#[derive(Clone, Copy)]
enum Evidence<'p> {
    Password(&'p [u8]),
    Response(&'p [u8; 16]),
}

impl Session {
    /// Begins to ask who the subscriber is, once LCP is up.
    pub(super) fn begin_proof(&mut self, env: &mut Env<'_>) {
        self.proof = Proof::Wanted;
        match self.method {
            None => self.accept(Grant::default(), env),
            Some(Authentication::Pap) => {}
            Some(Authentication::Chap) => {
                self.challenge = env.shared.random.bytes();
                self.proof_id = env.shared.random.number() as u8;
                self.proof_tries = 0;
                self.send_challenge(env);
            }
        }
    }

    fn send_challenge(&mut self, env: &mut Env<'_>) {
        let fixed = env.shared.fixed.clone();
        let mut data = Writer::new();
        data.add(&[16]).add(&self.challenge).add(&fixed.name);
        self.proof_tries += 1;
        self.proof_due = env.now + RESTART;
        self.send(protocol::CHAP, chap::CHALLENGE, self.proof_id, data.bytes(), env);
    }

    /// A challenge, or a request to RADIUS servers, has no answer yet.
    pub(super) fn proof_timed_out(&mut self, env: &mut Env<'_>) {
        match self.proof {
            Proof::Wanted if self.proof_tries < MAX_CHALLENGES => self.send_challenge(env),
            Proof::Wanted => self.end(Cause::NoAgreement),
            Proof::Asked => self.give_up(env),
            _ => self.proof_due = NEVER,
        }
    }

    /// Takes a packet of PAP or CHAP.
    pub(super) fn hear_proof(
        &mut self,
        number: u16,
        payload: &[u8],
        env: &mut Env<'_>,
    ) -> Result<(), DropReason> {
        let packet = Control::read(payload).ok_or(DropReason::Malformed)?;
        match (number, self.method) {
            (protocol::PAP, Some(Authentication::Pap)) => self.hear_pap(packet, env),
            (protocol::CHAP, Some(Authentication::Chap)) => self.hear_chap(packet, env),
            _ => Err(DropReason::InvalidState),
        }
    }

    fn hear_pap(&mut self, packet: Control<'_>, env: &mut Env<'_>) -> Result<(), DropReason> {
        if packet.code != pap::REQUEST {
            return Err(DropReason::Malformed);
        }
        let (name, rest) = counted(packet.data).ok_or(DropReason::Malformed)?;
        let (password, _) = counted(rest).ok_or(DropReason::Malformed)?;
        match self.proof {
            Proof::Wanted => {
                self.proof_id = packet.id;
                self.consider(name, Evidence::Password(password), env);
            }
            // The servers have been asked already.
            Proof::Asked => self.proof_id = packet.id,
            // The answer was lost (RFC 1334, section 2.2.1).
            Proof::Accepted | Proof::Refused => {
                self.proof_id = packet.id;
                self.send_verdict(env);
            }
            Proof::None => return Err(DropReason::InvalidState),
        }
        Ok(())
    }

    fn hear_chap(&mut self, packet: Control<'_>, env: &mut Env<'_>) -> Result<(), DropReason> {
        if packet.code != chap::RESPONSE {
            return Err(DropReason::Malformed);
        }
        let (response, name) = counted(packet.data).ok_or(DropReason::Malformed)?;
        if packet.id != self.proof_id {
            return Err(DropReason::InvalidState);
        }
        match self.proof {
            Proof::Wanted => {
                let response = response.try_into().map_err(|_| DropReason::Malformed)?;
                self.consider(name, Evidence::Response(response), env);
            }
            Proof::Asked => {}
            Proof::Accepted | Proof::Refused => self.send_verdict(env),
            Proof::None => return Err(DropReason::InvalidState),
        }
        Ok(())
    }

    /// Checks a proof with the file of users, or asks the RADIUS servers.
    fn consider(&mut self, name: &[u8], evidence: Evidence<'_>, env: &mut Env<'_>) {
        let is_too_long =
            matches!(evidence, Evidence::Password(password) if password.len() > LONGEST_PASSWORD);
        let Some(known) = Name::new(name).filter(|_| !name.is_empty() && !is_too_long) else {
            return self.refuse(env);
        };
        self.pay(env);
        if self.owed.is_some() {
            // The end of its last accept is not reported yet: the subscriber asks again.
            return env.shared.counts.unanswered.add(1);
        }
        self.name = known;
        let fixed = env.shared.fixed.clone();
        if let Some(secret) = &fixed.secret {
            return self.ask(evidence, secret.bytes(), env);
        }
        // An unknown user costs the same time as a wrong password.
        let (password, grant, is_known) = fixed
            .users
            .get(name)
            .map_or((&b"?"[..], Grant::default(), false), |(password, grant)| (password, grant, true));
        let is_right = match evidence {
            Evidence::Password(stated) => are_equal(stated, password),
            Evidence::Response(stated) => {
                let sum = Md5::new()
                    .chain_update([self.proof_id])
                    .chain_update(password)
                    .chain_update(self.challenge);
                are_equal(stated, &sum.finalize())
            }
        };
        if is_known && is_right { self.accept(grant, env) } else { self.refuse(env) }
    }

    /// Puts a request for the RADIUS servers into the queue.
    fn ask(&mut self, evidence: Evidence<'_>, secret: &[u8], env: &mut Env<'_>) {
        // Each accept has an Acct-Session-Id of its own, which no earlier run had either.
        self.account = env.shared.random.number();
        let authenticator = env.shared.random.bytes();
        let mut request = Request::new(radius_code::ACCESS_REQUEST, authenticator);
        // First, so that no one can put other bytes before it (CVE-2024-3596).
        request.add(kind::MESSAGE_AUTHENTICATOR, &[0; 16]);
        self.describe(&mut request, env);
        match evidence {
            Evidence::Password(password) => {
                request.password(password, secret);
            }
            Evidence::Response(response) => {
                let mut value = [0; 17];
                value[0] = self.proof_id;
                value[1..].copy_from_slice(response);
                request.add(kind::CHAP_PASSWORD, &value).add(kind::CHAP_CHALLENGE, &self.challenge);
            }
        }
        let token = env.shared.random.number().max(1);
        if env.shared.requests.add(RequestKind::Access, (self.number, token), request) {
            self.proof = Proof::Asked;
            self.asked = token;
            self.proof_due = env.now.saturating_add(env.shared.fixed.proof_wait);
        } else {
            // The subscriber asks again.
            env.shared.counts.unanswered.add(1);
        }
    }

    /// Adds what each request says about the session.
    fn describe(&self, request: &mut Request, env: &Env<'_>) {
        let fixed = &env.shared.fixed;
        let ports = self.line.tags.iter().filter(|tag| **tag != 0).count() as u32;
        request
            .add(kind::USER_NAME, self.name.bytes())
            .add(kind::NAS_IP_ADDRESS, &fixed.address.octets())
            .add(kind::NAS_IDENTIFIER, &fixed.name)
            // PPPoEoE, PPPoEoVLAN or PPPoEoQinQ.
            .number(kind::NAS_PORT_TYPE, 32 + ports)
            .text(kind::NAS_PORT_ID, format_args!("{} {}", fixed.access, self.line))
            .text(kind::CALLING_STATION_ID, format_args!("{}", MacAddress::new(self.line.mac)))
            .text(kind::ACCT_SESSION_ID, format_args!("{:016x}", self.account))
            .number(kind::SERVICE_TYPE, FRAMED)
            .number(kind::FRAMED_PROTOCOL, PPP);
    }

    /// Reports the session to the RADIUS servers: that it began, or goes on.
    pub(super) fn account(&mut self, status: Status, env: &mut Env<'_>) {
        if !env.shared.fixed.accounts || self.report(status, &self.summary(env.now), env) {
            return;
        }
        // The next report says what this one would have said.
        self.interim_due = self.interim_due.min(env.now.saturating_add(AGAIN));
        if status == Status::Start {
            env.shared.counts.lost_reports.add(1);
        }
    }

    /// Reports the end of the session, now or as soon as there is room.
    pub(super) fn owe(&mut self, cause: Cause, env: &mut Env<'_>) {
        if env.shared.fixed.accounts {
            let until = env.now.saturating_add(PATIENCE);
            self.owed = Some(Owed { cause, summary: self.summary(env.now), due: env.now, until });
            self.pay(env);
        }
    }

    /// Hands over the report of an end that waits.
    pub(super) fn pay(&mut self, env: &mut Env<'_>) {
        let Some(owed) = self.owed.filter(|owed| owed.due <= env.now) else { return };
        let is_handed_over = self.report(Status::Stop(owed.cause), &owed.summary, env);
        self.owed = if is_handed_over {
            None
        } else if owed.until <= env.now {
            env.shared.counts.lost_reports.add(1);
            None
        } else {
            Some(Owed { due: env.now.saturating_add(AGAIN), ..owed })
        };
    }

    fn summary(&self, now: u64) -> Summary {
        let seconds = now.saturating_sub(self.up_since) / 1_000_000_000;
        let Self { address, prefix, from_subscriber, to_subscriber, .. } = *self;
        Summary { address, prefix, seconds, from_subscriber, to_subscriber }
    }

    /// Puts a report into the queue; `false` where there is no room.
    fn report(&self, status: Status, summary: &Summary, env: &mut Env<'_>) -> bool {
        if !env.shared.requests.has_room(RequestKind::Accounting) {
            return false;
        }
        let mut request = Request::new(radius_code::ACCOUNTING_REQUEST, [0; 16]);
        self.describe(&mut request, env);
        let number = match status {
            Status::Start => 1,
            Status::Stop(_) => 2,
            Status::Interim => 3,
        };
        request.number(kind::ACCT_STATUS_TYPE, number);
        if !self.grant.class.bytes().is_empty() {
            request.add(kind::CLASS, self.grant.class.bytes());
        }
        if let Some(address) = summary.address {
            request.add(kind::FRAMED_IP_ADDRESS, &address.octets());
        }
        if let Some(prefix) = summary.prefix {
            let mut value = [0; 10];
            value[1] = prefix.len;
            value[2..].copy_from_slice(&prefix.bits.to_be_bytes());
            request.add(kind::FRAMED_IPV6_PREFIX, &value);
        }
        if status != Status::Start {
            let (input, output) = (summary.from_subscriber, summary.to_subscriber);
            request
                .number(kind::ACCT_SESSION_TIME, summary.seconds as u32)
                .number(kind::ACCT_INPUT_OCTETS, input.bytes as u32)
                .number(kind::ACCT_INPUT_GIGAWORDS, (input.bytes >> 32) as u32)
                .number(kind::ACCT_INPUT_PACKETS, input.packets as u32)
                .number(kind::ACCT_OUTPUT_OCTETS, output.bytes as u32)
                .number(kind::ACCT_OUTPUT_GIGAWORDS, (output.bytes >> 32) as u32)
                .number(kind::ACCT_OUTPUT_PACKETS, output.packets as u32);
        }
        if let Status::Stop(cause) = status {
            request.number(kind::ACCT_TERMINATE_CAUSE, cause.number());
        }
        env.shared.requests.add(RequestKind::Accounting, (self.number, 0), request)
    }

    /// Takes the answer of the RADIUS servers to the request with this token.
    pub(super) fn answer(&mut self, token: u64, verdict: Verdict, env: &mut Env<'_>) {
        if self.proof != Proof::Asked || self.asked != token {
            return;
        }
        self.asked = 0;
        match verdict {
            Verdict::Accept(grant) => self.accept(grant, env),
            Verdict::Reject => self.refuse(env),
            Verdict::Unanswered => self.give_up(env),
        }
    }

    /// Lets the subscriber in with what it is given, if there is an address for it.
    fn accept(&mut self, grant: Grant, env: &mut Env<'_>) {
        self.proof_due = NEVER;
        self.grant = grant;
        let shared = &mut *env.shared;
        if grant.address.is_some() || shared.fixed.has_pool {
            match shared.addresses.take_v4(grant.address, self.index) {
                Ok(address) => self.address = Some(address),
                Err(Unavailable::Taken | Unavailable::Exhausted) => return self.lack_address(env),
            }
        }
        // Only prefixes of the configured length are routed, the delegated one first.
        let len = shared.addresses.len;
        let given = [grant.prefix, grant.framed_prefix];
        let odd = given.iter().flatten().filter(|prefix| prefix.len != len).count() as u64;
        shared.counts.ignored_prefixes.add(odd + u64::from(grant.odd_prefixes));
        let prefix = given.into_iter().flatten().find(|prefix| prefix.len == len);
        match shared.addresses.take_v6(prefix, self.index) {
            Ok(prefix) => self.prefix = prefix,
            Err(Unavailable::Taken | Unavailable::Exhausted) => return self.lack_address(env),
        }
        self.proof = Proof::Accepted;
        if self.method.is_some() {
            self.send_verdict(env);
        }
        self.begin_network(env);
    }

    /// Ends a session for which there is no address.
    fn lack_address(&mut self, env: &mut Env<'_>) {
        env.shared.counts.without_address.add(1);
        if let Some(address) = self.address.take() {
            env.shared.addresses.put_v4(address);
        }
        self.proof = Proof::Refused;
        if self.method.is_some() {
            self.send_verdict(env);
        }
        self.close(Cause::NoAddress, env);
    }

    fn refuse(&mut self, env: &mut Env<'_>) {
        env.shared.counts.authentication_failed.add(1);
        self.turn_away((Kind::Refused, Cause::Refused), env);
    }

    /// Ends a session for which no server has answered: its password may be right.
    fn give_up(&mut self, env: &mut Env<'_>) {
        env.shared.counts.unanswered.add(1);
        self.turn_away((Kind::Unanswered, Cause::Unanswered), env);
    }

    fn turn_away(&mut self, (kind, cause): (Kind, Cause), env: &mut Env<'_>) {
        self.proof = Proof::Refused;
        (self.proof_due, self.asked) = (NEVER, 0);
        env.shared.events.push(Happening::of(self, kind, env.now));
        self.send_verdict(env);
        self.close(cause, env);
    }

    /// Tells the subscriber whether it is let in.
    fn send_verdict(&mut self, env: &mut Env<'_>) {
        let is_in = self.proof == Proof::Accepted;
        // The message is for people; its length comes first in PAP.
        let message: &[u8] = if is_in { b"welcome" } else { b"refused" };
        let mut data = Writer::new();
        match self.method {
            Some(Authentication::Pap) => {
                data.add(&[message.len() as u8]).add(message);
                let code = if is_in { pap::ACK } else { pap::NAK };
                self.send(protocol::PAP, code, self.proof_id, data.bytes(), env);
            }
            Some(Authentication::Chap) => {
                data.add(message);
                let code = if is_in { chap::SUCCESS } else { chap::FAILURE };
                self.send(protocol::CHAP, code, self.proof_id, data.bytes(), env);
            }
            None => {}
        }
    }
}

/// A field whose first byte is its length, and the bytes behind it.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked((*len).into())
}
