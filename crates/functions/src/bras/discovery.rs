//! PPPoE discovery (RFC 2516, section 5): offers without state, and sessions for those who show a cookie.

use netbricks_core::buffer::Packet;
use netbricks_core::{Context, DropReason};

use super::access::Access;
use super::happening::Cause;
use super::random::are_equal;
use super::sessions::{Refusal, Sessions};
use super::tags::{TagWriter, Tags, kind};

/// Codes of discovery packets.
pub(super) mod code {
    pub(in super::super) const PADI: u8 = 0x09;
    pub(in super::super) const PADO: u8 = 0x07;
    pub(in super::super) const PADR: u8 = 0x19;
    pub(in super::super) const PADS: u8 = 0x65;
    pub(in super::super) const PADT: u8 = 0xa7;
}

/// The time in which cookies are equal (ns). A cookie holds in this one and in the next.
const PERIOD: u64 = 30_000_000_000;
/// The largest PPP payload without RFC 4638.
const USUAL_PAYLOAD: u16 = 1_492;

impl Sessions {
    /// Takes a discovery packet.
    ///
    /// The answer is the reason under which it ends: `answered` and `local-delivery` are no losses.
    pub(super) fn discover(
        &mut self,
        packet: &Packet,
        access: &Access,
        now: u64,
        cx: &mut Context,
    ) -> DropReason {
        let frame = packet.data();
        let payload = access.payload(frame);
        let is_to_us = frame.first_chunk() == Some(&self.shared.fixed.mac.octets());
        if access.code == code::PADT {
            return if is_to_us { self.hear_end(access, now, cx) } else { DropReason::Martian };
        }
        if access.id != 0 {
            return DropReason::Malformed;
        }
        match access.code {
            code::PADI if is_to_us || frame.first_chunk() == Some(&[0xff; 6]) => {}
            code::PADR if is_to_us => {}
            code::PADI | code::PADR => return DropReason::Martian,
            // Those of other concentrators.
            _ => return DropReason::Unmatched,
        }
        let Some(tags) = Tags::read(payload) else { return DropReason::Malformed };
        if !self.limits.take(access.line.key(0), now) {
            return DropReason::RateLimited;
        }
        let Some(service) = tags.service else { return DropReason::Malformed };
        match access.code {
            code::PADI => self.offer(access, service, &tags, now, cx),
            _ => self.request(access, service, &tags, now, cx),
        }
    }

    /// Whether a service is offered; an empty name asks for any.
    fn has_service(&self, service: &[u8]) -> bool {
        let services = &self.shared.fixed.services;
        service.is_empty() || services.is_empty() || services.iter().any(|name| name == service)
    }

    /// The cookie of a host for this period (section 5.2 and appendix A, AC-Cookie).
    fn cookie(&self, access: &Access, period: u64) -> [u8; 16] {
        let vlans = access.line.vlans().to_be_bytes();
        self.cookies.digest(&[&access.line.mac, &vlans, &period.to_be_bytes()])
    }

    /// The longest PPP payload for a host that asks for this one (RFC 4638).
    fn max_payload(&self, asked: Option<u16>) -> Option<u16> {
        let most = self.shared.fixed.mru;
        asked.filter(|asked| *asked > USUAL_PAYLOAD && most > USUAL_PAYLOAD).map(|asked| asked.min(most))
    }

    /// Answers a PADI by a PADO, and remembers nothing.
    fn offer(
        &mut self,
        access: &Access,
        service: &[u8],
        tags: &Tags<'_>,
        now: u64,
        cx: &mut Context,
    ) -> DropReason {
        if !self.has_service(service) {
            return DropReason::Unmatched;
        }
        if self.is_full() {
            // One that cannot serve does not answer (section 5.1).
            return DropReason::TableFull;
        }
        let cookie = self.cookie(access, now / PERIOD);
        let fixed = self.shared.fixed.clone();
        let mut answer = TagWriter::new();
        answer.tag(kind::AC_NAME, &fixed.name).tag(kind::SERVICE_NAME, service);
        for offered in fixed.services.iter().filter(|offered| offered.as_slice() != service) {
            answer.tag(kind::SERVICE_NAME, offered);
        }
        answer
            .tag(kind::AC_COOKIE, &cookie)
            .maybe(kind::HOST_UNIQ, tags.host_uniq)
            .maybe(kind::RELAY_SESSION_ID, tags.relay);
        if let Some(most) = self.max_payload(tags.max_payload) {
            answer.tag(kind::PPP_MAX_PAYLOAD, &most.to_be_bytes());
        }
        if answer.bytes().is_none() {
            return DropReason::Malformed;
        }
        if self.say(access, code::PADO, 0, &answer, cx) {
            self.shared.counts.offers.add(1);
        }
        DropReason::Answered
    }

    /// Answers a PADR by a PADS, with a session or an error.
    fn request(
        &mut self,
        access: &Access,
        service: &[u8],
        tags: &Tags<'_>,
        now: u64,
        cx: &mut Context,
    ) -> DropReason {
        let period = now / PERIOD;
        let is_known = |cookie: &[u8]| {
            [period, period.wrapping_sub(1)]
                .iter()
                .any(|period| are_equal(cookie, &self.cookie(access, *period)))
        };
        let Some(cookie) = tags.cookie.filter(|cookie| is_known(cookie)) else {
            self.shared.counts.wrong_cookies.add(1);
            return DropReason::Denied;
        };
        let mut answer = TagWriter::new();
        answer
            .tag(kind::SERVICE_NAME, service)
            .maybe(kind::HOST_UNIQ, tags.host_uniq)
            .maybe(kind::RELAY_SESSION_ID, tags.relay);
        if !self.has_service(service) {
            answer.tag(kind::SERVICE_NAME_ERROR, b"this service is not offered");
            self.say(access, code::PADS, 0, &answer, cx);
            return DropReason::Denied;
        }
        let asked = self.cookies.digest(&[tags.host_uniq.unwrap_or_default(), b"/", cookie]);
        let asked = u64::from_be_bytes([
            asked[0], asked[1], asked[2], asked[3], asked[4], asked[5], asked[6], asked[7],
        ]);
        let most = self.max_payload(tags.max_payload);
        let begun = match self.begun(&access.line, asked) {
            Some(known) => Ok((known, false)),
            None => {
                let payload = most.unwrap_or(self.shared.fixed.mru.min(USUAL_PAYLOAD));
                self.begin(access, (asked, payload), now).map(|index| (index, true))
            }
        };
        match begun {
            Ok((index, is_new)) => {
                if let Some(most) = most {
                    answer.tag(kind::PPP_MAX_PAYLOAD, &most.to_be_bytes());
                }
                let id = self.id_of(index);
                self.say(access, code::PADS, id, &answer, cx);
                if is_new {
                    self.shared.counts.begun.add(1);
                    self.start(index, now, cx);
                }
                DropReason::Answered
            }
            Err(refusal) => {
                self.shared.counts.refused.add(1);
                let (reason, text): (_, &[u8]) = match refusal {
                    Refusal::Full => (DropReason::TableFull, b"no more sessions are possible"),
                    Refusal::Host => {
                        (DropReason::SubscriberLimit, b"this host has all the sessions that it may have")
                    }
                    Refusal::Line => {
                        (DropReason::SubscriberLimit, b"this line has all the sessions that it may have")
                    }
                };
                answer.tag(kind::AC_SYSTEM_ERROR, text);
                self.say(access, code::PADS, 0, &answer, cx);
                reason
            }
        }
    }

    /// The subscriber ends its session by a PADT (section 5.5).
    fn hear_end(&mut self, access: &Access, now: u64, cx: &mut Context) -> DropReason {
        let Some(index) = self.find(&access.line, access.id) else { return DropReason::NoSession };
        self.with(index, now, cx, |session, _| {
            session.heard_padt = true;
            session.end(Cause::Subscriber);
        });
        DropReason::LocalDelivery
    }

    /// Says that a session is not there, to a host that sends packets of one.
    pub(super) fn disown(&mut self, access: &Access, now: u64, cx: &mut Context) {
        if self.stray.take(now, STRAYS, STRAYS) {
            let mut tags = TagWriter::new();
            tags.tag(kind::AC_NAME, &self.shared.fixed.name);
            if self.say(access, code::PADT, access.id, &tags, cx) {
                self.shared.counts.strays.add(1);
            }
        }
    }

    /// Sends a discovery packet back to where a packet came from; `false` where there is no buffer.
    fn say(&mut self, access: &Access, code: u8, id: u16, tags: &TagWriter, cx: &mut Context) -> bool {
        let fixed = &self.shared.fixed;
        let (link, len) = access.line.link(fixed.mac.octets(), netbricks_core::packet::Pppoe::DISCOVERY);
        // It was checked that there is room for all tags.
        let Some(tags) = tags.bytes() else { return false };
        let packet = discovery_frame((&link[..len], code, id), tags, cx);
        let is_made = packet.is_some();
        self.shared.to_access.extend(packet);
        is_made
    }
}

/// PADTs a second for sessions that are not there.
const STRAYS: u64 = 100;

/// A discovery packet behind this link header; counted as created.
pub(super) fn discovery_frame(
    (link, code, id): (&[u8], u8, u16),
    tags: &[u8],
    cx: &mut Context,
) -> Option<Packet> {
    let whole = link.len() + 6 + tags.len();
    let Some(mut packet) = cx.pool().allocate(whole.max(60)) else {
        cx.lost_without_buffer(whole);
        return None;
    };
    packet.set_received_at(cx.now());
    let bytes = packet.data_mut();
    let (front, rest) = bytes.split_at_mut(link.len());
    front.copy_from_slice(link);
    let [[a, b], [c, d]] = [id, tags.len() as u16].map(u16::to_be_bytes);
    rest[..6].copy_from_slice(&[0x11, code, a, b, c, d]);
    rest[6..6 + tags.len()].copy_from_slice(tags);
    cx.created(&packet);
    Some(packet)
}
