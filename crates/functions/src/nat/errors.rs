//! ICMP errors about packets of sessions and mappings (RFC 5508, section 4).

use std::net::IpAddr;

use netbricks_core::DropReason;
use netbricks_core::buffer::Bytes;
use netbricks_core::packet::rewrite::QuotedChange;
use netbricks_core::packet::{FlowKey, MacAddress};

use super::packet::{Seen, change_quote, set_address};
use super::session::{Direction, flow};
use super::spec::{Endpoint, Transport};
use super::state::{State, whole};

/// The changes of an ICMP error.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorPlan {
    pub(super) quoted_source: Endpoint,
    pub(super) quoted_destination: Endpoint,
    pub(super) outer_source: Option<IpAddr>,
    pub(super) outer_destination: IpAddr,
    pub(super) neighbor: Option<MacAddress>,
}

impl ErrorPlan {
    /// Makes the changes; the quoted packet has the ports of the side that the error comes from.
    pub(super) fn apply(&self, frame: &mut Bytes<'_>, seen: &Seen) -> Result<(), DropReason> {
        let data = frame.data();
        let about = FlowKey::quoted(seen.place.header(data), seen.place.payload(data));
        // The quoted packet went the other way.
        let quoted = about.ok_or(DropReason::NoMapping)?.reversed();
        let is_query = Transport::of(quoted.protocol()) == Some(Transport::Icmp);
        if quoted.source() != self.quoted_source.address {
            change_quote(frame, seen, QuotedChange::Source(self.quoted_source.address))?;
        }
        if quoted.destination() != self.quoted_destination.address {
            change_quote(frame, seen, QuotedChange::Destination(self.quoted_destination.address))?;
        }
        if quoted.source_port() != self.quoted_source.port {
            change_quote(frame, seen, QuotedChange::SourcePort(self.quoted_source.port))?;
        }
        if !is_query && quoted.destination_port() != self.quoted_destination.port {
            change_quote(frame, seen, QuotedChange::DestinationPort(self.quoted_destination.port))?;
        }
        if let Some(source) = self.outer_source {
            set_address(frame, seen, source, true)?;
        }
        set_address(frame, seen, self.outer_destination, false)
    }
}

/// The changes of an error that came to an outside endpoint; `about` is the flow in the error's direction.
pub(super) fn from_outside(
    state: &State,
    about: &FlowKey,
    transport: Transport,
    sender: IpAddr,
) -> Option<ErrorPlan> {
    if let Some((Direction::In, number)) = state.peek(about) {
        let session = state.sessions.get(number)?;
        let quoted_destination = match transport {
            Transport::Icmp => Endpoint { port: session.inside.port, ..session.seen },
            _ => session.seen,
        };
        // A router on the way keeps its address.
        let from_remote = sender == session.remote.address;
        return Some(ErrorPlan {
            quoted_source: session.inside,
            quoted_destination,
            outer_source: from_remote.then_some(session.seen.address),
            outer_destination: session.inside.address,
            neighbor: state.translated(number, Direction::In)?.neighbor,
        });
    }
    let IpAddr::V4(address) = about.destination() else { return None };
    let remote = Endpoint { address: about.source(), port: about.source_port() };
    if let Some(inside) = whole(&state.whole_outside, address) {
        return Some(ErrorPlan {
            quoted_source: Endpoint { address: inside.into(), port: about.destination_port() },
            quoted_destination: remote,
            outer_source: None,
            outer_destination: inside.into(),
            neighbor: state.host(inside.into()),
        });
    }
    let mapping = state.mapping_outside(address, about.destination_port(), transport)?;
    let mapping = state.mappings.get(mapping)?;
    Some(ErrorPlan {
        quoted_source: mapping.inside,
        quoted_destination: remote,
        outer_source: None,
        outer_destination: mapping.inside.address,
        neighbor: state.neighbor_behind(mapping),
    })
}

/// The changes of an error from inside, and whether it goes back inside.
pub(super) fn from_inside(state: &State, about: &FlowKey, transport: Transport) -> Option<(ErrorPlan, bool)> {
    let (external, remote) = match state.peek(about) {
        Some((Direction::Out, number)) => {
            let out = state.translated(number, Direction::Out)?;
            (out.source, out.destination)
        }
        _ => {
            let inside = Endpoint { address: about.source(), port: about.source_port() };
            let own = match inside.address {
                IpAddr::V4(address) => whole(&state.whole_inside, address),
                IpAddr::V6(_) => None,
            };
            let external = match own {
                Some(own) => Endpoint { address: own.into(), ..inside },
                None => state.external(state.mapping_inside(inside, transport)?)?,
            };
            (external, Endpoint { address: about.destination(), port: about.destination_port() })
        }
    };
    let identifier = external.port;
    let quoted_source = match transport {
        Transport::Icmp => Endpoint { port: identifier, ..remote },
        _ => remote,
    };
    let plan = ErrorPlan {
        quoted_source,
        quoted_destination: external,
        outer_source: Some(external.address),
        outer_destination: remote.address,
        neighbor: None,
    };
    if !state.is_outside(remote.address) {
        return Some((plan, false));
    }
    // The error goes back to another host inside (RFC 5508, REQ-7).
    let back = flow(external, remote, transport, identifier);
    let inside = from_outside(state, &back, transport, external.address)?;
    let plan = ErrorPlan {
        quoted_source: inside.quoted_source,
        outer_destination: inside.outer_destination,
        neighbor: inside.neighbor,
        ..plan
    };
    Some((plan, true))
}
