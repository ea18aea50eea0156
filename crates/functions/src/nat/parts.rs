//! The part of the subscribers and ports that a packet belongs to, as a shuffle before the function asks it.

use std::net::IpAddr;

use netbricks_core::PacketPart;
use netbricks_core::buffer::Packet;
use netbricks_core::packet::FlowKey;

use super::config::{NatConfig, is_in};
use super::ports::Ports;
use super::spec::Transport;
use super::state::State;

/// The rule that configuration alone decides, alike on all workers.
struct Rule {
    /// Knows outside addresses, blocks and static mappings; it never sees a session.
    state: State,
    config: NatConfig,
}

/// The rule of these settings.
pub(super) fn of(config: &NatConfig) -> Option<PacketPart> {
    if config.parts == 1 {
        return Some(PacketPart::new(|_| 0));
    }
    // The ports of an address are divided alike for all.
    let config = NatConfig { capacity: 1, log: 1, pool: Vec::new(), ..config.clone() };
    let state = State::new(&config, 1, false).ok()?;
    let rule = Rule { state, config };
    Some(PacketPart::new(move |packet| rule.part(packet).into()))
}

impl Rule {
    fn part(&self, packet: &Packet) -> u32 {
        let frame = packet.data();
        // An ICMP error goes with the flow that it is about. Of fragments, the first has ports.
        let flow = match FlowKey::related_from_frame(frame) {
            Some(flow) if flow.destination_port() == 0 => FlowKey::from_frame(frame).unwrap_or(flow),
            Some(flow) => flow,
            None => return 0,
        };
        let (source, destination) = (flow.source(), flow.destination());
        if self.is_inside(source, destination) {
            return self.of_subscriber(source);
        }
        let IpAddr::V4(address) = destination else { return 0 };
        if let Some(inside) = super::state::whole(&self.state.whole_outside, address) {
            return self.of_subscriber(inside.into());
        }
        let fixed = Transport::of(flow.protocol())
            .and_then(|transport| self.state.mapping_outside(address, flow.destination_port(), transport));
        match fixed.and_then(|number| self.state.mappings.get(number)) {
            Some(mapping) => self.of_subscriber(mapping.inside.address),
            None => self.ports().part_of_port(flow.destination_port()),
        }
    }

    fn ports(&self) -> &Ports {
        &self.state.ports
    }

    fn is_inside(&self, source: IpAddr, destination: IpAddr) -> bool {
        match source {
            IpAddr::V4(source) => {
                is_in(&self.config.inside, source.into())
                    || super::state::whole(&self.state.whole_inside, source).is_some()
            }
            IpAddr::V6(_) => self.config.nat64.is_some_and(|prefix| prefix.holds(destination)),
        }
    }

    fn of_subscriber(&self, inside: IpAddr) -> u32 {
        let address = self.state.subscriber_address(inside);
        match self.state.place_of(address) {
            Some((_, block)) => self.ports().part_of_block(block),
            None => self.ports().part_of(address),
        }
    }
}
