//! The server of the Port Control Protocol (RFC 6887): hosts inside ask for mappings, and are answered.

use std::net::{IpAddr, Ipv4Addr};

use netbricks_core::buffer::Bytes;
use netbricks_core::packet::build::ipv4;
use netbricks_core::packet::{MacAddress, protocol};
use netbricks_core::{Context, DropReason, Edge, Verdict};

use super::engine::{Engine, Outcome, dropped, redirected};
use super::packet::{Seen, ethernet_source};
use super::pcp_mappings::{Granted, Refused};
use super::pcp_message::{self, Answer, Invalid, LONGEST, Map, Opcode, PORT, Request, ResultCode};
use super::spec::{Endpoint, Transport};

/// Bytes of a UDP header.
const UDP: usize = 8;

impl Engine {
    /// Whether a packet from inside is a request to the server.
    pub(super) fn is_pcp(&self, seen: &Seen) -> bool {
        let Some(server) = self.rules.pcp else { return false };
        seen.destination() == Endpoint { address: server.into(), port: PORT }
            && seen.transport == Some(Transport::Udp)
            && !seen.is_fragment
    }

    /// Answers a request by a packet of its own; the request is consumed.
    pub(super) fn pcp(
        &mut self,
        slot: usize,
        frame: &mut Bytes<'_>,
        seen: &Seen,
        cx: &mut Context,
    ) -> Outcome {
        let (IpAddr::V4(client), IpAddr::V4(server)) = (seen.flow.source(), seen.flow.destination()) else {
            return Err(Verdict::PASS);
        };
        self.state.borrow_mut().pcp.tally.requests += 1;
        let message = message(frame, seen).map_err(dropped)?;
        let mut room = [0; LONGEST];
        let neighbor = ethernet_source(frame.data()).map(MacAddress::new);
        let Some(length) = self.pcp_response(message, client, neighbor, &mut room) else {
            return Err(dropped(DropReason::Discarded));
        };
        let response = room.get(..length).unwrap_or_default();
        let answer = ipv4(server, client).udp(PORT, seen.flow.source_port()).payload(response);
        let (link, data) = (seen.place.ip, frame.data());
        let Some(mut packet) = cx.pool().allocate(link + answer.size()) else {
            return Err(dropped(DropReason::PoolExhausted));
        };
        let (front, behind) = packet.data_mut().split_at_mut(link);
        front.copy_from_slice(data.get(..link).unwrap_or_default());
        if let Some((to, from)) = front.split_first_chunk_mut::<6>()
            && let Some(from) = from.first_chunk_mut::<6>()
        {
            std::mem::swap(to, from);
        }
        if answer.write(behind).is_err() {
            return Err(dropped(DropReason::Malformed));
        }
        packet.set_received_at(frame.parts().1.received_at());
        cx.answer(slot, Edge::REPLY, packet);
        Err(dropped(DropReason::Answered))
    }

    /// Does what a message asks for and writes the response; answers its length, or none where it gets none.
    fn pcp_response(
        &mut self,
        message: &[u8],
        client: Ipv4Addr,
        neighbor: Option<MacAddress>,
        room: &mut [u8; LONGEST],
    ) -> Option<usize> {
        let request = match pcp_message::read(message, client.into()) {
            Ok(request) => Ok(request),
            Err(Invalid::Refused(code)) => Err(Refused::from(code)),
            Err(Invalid::Ignored) => {
                self.state.borrow_mut().pcp.tally.ignored += 1;
                return None;
            }
        };
        let granted = match &request {
            Ok(request) => self.pcp_grant_or_refuse(request, client, neighbor),
            Err(refused) => Err(*refused),
        };
        let mut state = self.state.borrow_mut();
        let answer = match granted {
            Ok(Granted { lifetime, external }) => {
                let assigned = external.and_then(|external| match external.address {
                    IpAddr::V4(address) => Some((address, external.port)),
                    IpAddr::V6(_) => None,
                });
                Answer { code: ResultCode::Success, lifetime, assigned }
            }
            Err(Refused { code, lifetime }) => {
                state.pcp.tally.refused += 1;
                Answer { code, lifetime: lifetime.unwrap_or(code.lifetime()), assigned: None }
            }
        };
        let opcode = request.as_ref().ok().map(|request| &request.opcode);
        Some(pcp_message::respond(message, opcode, &answer, state.epoch(), room))
    }

    fn pcp_grant_or_refuse(
        &mut self,
        request: &Request,
        client: Ipv4Addr,
        neighbor: Option<MacAddress>,
    ) -> Result<Granted, Refused> {
        match &request.opcode {
            Opcode::Announce => Ok(Granted { lifetime: 0, external: None }),
            Opcode::Map(map) => self.state.borrow_mut().pcp_map(client, map, request, neighbor),
            Opcode::Peer(map, peer) => self.pcp_peer(map, *peer, request.lifetime, (client, neighbor)),
        }
    }

    fn pcp_peer(
        &mut self,
        map: &Map,
        peer: Endpoint,
        lifetime: u32,
        (client, neighbor): (Ipv4Addr, Option<MacAddress>),
    ) -> Result<Granted, Refused> {
        let is_host = match peer.address {
            IpAddr::V4(address) => !super::engine::is_of_the_link(address) && !address.is_unspecified(),
            IpAddr::V6(_) => false,
        };
        // A session with the server itself would translate the requests that come after it.
        let is_server = peer.port == PORT && self.rules.pcp.is_some_and(|server| peer.address == server);
        if map.protocol == 0 || map.internal_port == 0 || peer.port == 0 || !is_host || is_server {
            return Err(ResultCode::MalformedRequest.into());
        }
        let Some(transport @ (Transport::Tcp | Transport::Udp)) = Transport::of(map.protocol) else {
            return Err(ResultCode::UnsuppProtocol.into());
        };
        let inside = Endpoint { address: client.into(), port: map.internal_port };
        let is_exempt =
            |exempt: &super::spec::Exempt| exempt.covers(peer.address, Some(transport), peer.port);
        if self.rules.exempt.iter().any(is_exempt) {
            // Its packets are not translated, and need no session.
            return Ok(Granted { lifetime, external: Some(inside) });
        }
        let remote = redirected(&self.rules.redirects, transport, peer);
        self.state.borrow_mut().pcp_peer(inside, (peer, remote), map, lifetime, neighbor)
    }
}

/// The payload of a datagram, whose checksum is right.
///
/// # Errors
/// The reason to drop it.
fn message<'f>(frame: &'f Bytes<'_>, seen: &Seen) -> Result<&'f [u8], DropReason> {
    let data = frame.data();
    let (header, payload) = (seen.place.header(data), seen.place.payload(data));
    let (udp, _) = payload.split_first_chunk::<UDP>().ok_or(DropReason::Malformed)?;
    let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    let datagram = payload.get(..length).filter(|datagram| datagram.len() >= UDP);
    let datagram = datagram.ok_or(DropReason::Malformed)?;
    let is_checked = udp[6..] != [0, 0] && !frame.offload().needs_checksum;
    if is_checked {
        let sum = header.pseudo_header().sum(protocol::UDP, length as u32).add_bytes(datagram);
        if sum.finish() != 0 {
            return Err(DropReason::BadChecksum);
        }
    }
    datagram.get(UDP..).ok_or(DropReason::Malformed)
}
