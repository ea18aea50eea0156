//! Answers of servers behind address translation, which get the address and port of the service.

use std::net::IpAddr;

use netbricks_core::buffer::Bytes;
use netbricks_core::packet::{FlowKey, protocol};
use netbricks_core::tables::{Entry, Table};
use netbricks_core::{DropReason, TableKey};

use super::packet::{Parsed, has_ports};
use super::servers::Pool;
use super::{Balancer, send};
use crate::fragment::{Fragment, FragmentKey};

/// A packet whose first fragment is none of ours: its other fragments pass.
pub(super) const PASSES: u64 = u64::MAX;
/// An answer of a server.
const ANSWER: u64 = u64::MAX - 1;

impl Balancer {
    /// The decision about the packet whose first fragment has this key; `None` where that one was not here.
    pub(super) fn decided(&self, fragment: &Fragment, now: u64) -> Option<u64> {
        let mut fragments = self.fragments.borrow_mut();
        let found = fragments.lookup(<FragmentKey as TableKey>::store(fragment.key), now).found();
        found.copied()
    }

    /// Remembers the decision about a first fragment, which later ones follow.
    pub(super) fn decide(&self, fragment: &Fragment, decision: u64, now: u64) {
        let mut fragments = self.fragments.borrow_mut();
        match fragments.lookup(<FragmentKey as TableKey>::store(fragment.key), now) {
            Entry::Found(mut found) => *found.get_mut() = decision,
            Entry::Vacant(vacant) => drop(vacant.insert(decision)),
            Entry::Full => {}
        }
    }

    /// Gives a server's answer the address of the service; `None` for other packets.
    pub(super) fn answer(
        &mut self,
        pool: &Pool,
        frame: &mut Bytes<'_>,
        parsed: &Parsed,
        now: u64,
    ) -> Option<Result<(), DropReason>> {
        let flow = parsed.flow;
        let service = self.services[usize::from(parsed.place.is_v6)]?;
        if !pool.has_address(flow.source()) || flow.destination() != parsed.destination {
            return None;
        }
        let is_answer = match parsed.later() {
            // Ahead of its first one, only the address can tell.
            Some(fragment) => self.decided(fragment, now).is_none_or(|decision| decision == ANSWER),
            None => self.is_answer(pool, parsed, service, now),
        };
        if let Some(first) = parsed.first().filter(|_| is_answer) {
            self.decide(first, ANSWER, now);
        } else if let Some(first) = parsed.first() {
            self.decide(first, PASSES, now);
        }
        if !is_answer {
            return None;
        }
        let place = parsed.place;
        Some(if parsed.quotes {
            // A router on the way keeps its address.
            let source = (parsed.source == flow.source()).then_some(service);
            send::error_from_server(frame, place, flow.reversed(), (service, self.port), source)
        } else {
            send::from_service(frame, place, service, self.port)
        })
    }

    /// Whether a packet from a server's address is of a connection to the service.
    ///
    /// So is an error about a packet to the server. A server also has connections of its own, to name servers or with its operator.
    fn is_answer(&mut self, pool: &Pool, parsed: &Parsed, service: IpAddr, now: u64) -> bool {
        let flow = parsed.flow;
        if !parsed.quotes && [protocol::ICMP, protocol::ICMPV6].contains(&flow.protocol()) {
            return match parsed.place.is_v6 {
                // Replies to echoes; in IPv4 also to timestamps, information and address masks.
                false => matches!(parsed.message, Some(0 | 14 | 16 | 18)),
                true => parsed.message == Some(129),
            };
        }
        // Without ports, as in the quote of a later fragment too, only the address can tell.
        if !has_ports(flow) || parsed.quotes && flow.source_port() == 0 {
            return true;
        }
        if !pool.answers_from(flow.source(), flow.source_port(), self.port) {
            return false;
        }
        let port = self.port.unwrap_or(flow.source_port());
        let asked = FlowKey::new(flow.destination(), service, flow.destination_port(), port, flow.protocol());
        let server = self.balance.answered(pool, asked, flow.source(), parsed.kind, now);
        self.port.is_some() || server
    }
}
