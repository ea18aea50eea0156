//! Subscribers: the outside address, ports and blocks of each.

use std::net::IpAddr;

use netbricks_core::DropReason;
use netbricks_core::tables::{Entry, Table};

use super::config::Pooling;
use super::pcp_mappings::Suggested;
use super::ports::{FIRST_HIGH, Ports, Status};
use super::session::Subscriber;
use super::spec::Transport;
use super::state::State;

impl State {
    /// Releases a port, at once or after it was held down.
    pub(super) fn release_port(&mut self, index: u16, transport: Transport, port: u16, at_once: bool) {
        if let Some((index, port)) = self.ports.release(index, transport, port, at_once, self.now) {
            self.freed(index, port);
        }
    }

    /// A port is free again: its block is released with the last, and its subscriber with the last block.
    pub(super) fn freed(&mut self, index: u16, port: u16) {
        if self.deterministic.is_some() {
            return;
        }
        let Some(owner) = self.ports.owner_of(index, port) else { return };
        let Some(block) = self.ports.block_of(port) else { return };
        if self.ports.is_block_used(index, block) {
            return;
        }
        self.ports.release_block(index, block);
        let Some(subscriber) = self.subscribers.get_mut(owner) else { return };
        if let Some(at) = subscriber.blocks().iter().position(|held| *held == block) {
            let last = usize::from(subscriber.blocks_held) - 1;
            subscriber.blocks.swap(at, last);
            subscriber.blocks_held -= 1;
        }
        let address = subscriber.address;
        if let Some(outside) = self.ports.address(index) {
            self.log.released(self.now, address, outside, self.ports.range_of_block(block));
        }
        self.unsubscribe_idle(owner);
    }

    /// Enters a subscriber with the outside address that is suggested, or another one.
    pub(super) fn subscribe(
        &mut self,
        address: IpAddr,
        transport: Transport,
        suggested: Option<Suggested>,
    ) -> Result<u32, DropReason> {
        let (index, part) = match self.place_of(address) {
            Some((index, block)) => (index, self.ports.part_of_block(block)),
            None if self.deterministic.is_some() => return Err(DropReason::NoMapping),
            None => {
                let part = self.ports.part_of(address);
                let fits = |ports: &Ports, index: u16| ports.has_room(index, transport, part);
                let liked = suggested.and_then(|suggested| self.ports.index(suggested.address?));
                let liked = liked.filter(|index| {
                    let place = self.ports.get(*index);
                    place.is_some_and(|place| place.status == Status::Active) && fits(&self.ports, *index)
                });
                let Some(index) = liked.or_else(|| self.ports.choose(fits)) else {
                    self.tally.exhausted += 1;
                    self.log.exhausted(self.now, Some(address));
                    return Err(DropReason::PortsExhausted);
                };
                (index, part)
            }
        };
        self.subscribe_at(address, index, part).ok_or(DropReason::TableFull)
    }

    /// Enters a subscriber with this outside address.
    pub(super) fn subscribe_at(&mut self, address: IpAddr, index: u16, part: u32) -> Option<u32> {
        let subscriber = Subscriber {
            address,
            index,
            part,
            mappings: [0; Transport::COUNT],
            sessions: 0,
            blocks: [0; super::session::MOST_BLOCKS],
            blocks_held: 0,
            tokens: self.limits.rate,
            filled: self.now,
            pcp: None,
            neighbor: None,
        };
        let number = self.subscribers.insert(subscriber)?;
        match self.by_address.lookup(address, self.now) {
            Entry::Vacant(place) => drop(place.insert(number)),
            Entry::Found(_) | Entry::Full => {
                self.subscribers.remove(number);
                return None;
            }
        }
        if let Some(place) = self.ports.get_mut(index) {
            place.subscribers += 1;
        }
        Some(number)
    }

    pub(super) fn subscriber(&self, address: IpAddr) -> Option<u32> {
        self.by_address.get(&self.subscriber_address(address)).copied()
    }

    pub(super) fn unsubscribe_idle(&mut self, number: u32) {
        if self.subscribers.get(number).is_none_or(|found| !found.is_idle()) {
            return;
        }
        let Some(subscriber) = self.subscribers.remove(number) else { return };
        self.by_address.remove(&subscriber.address);
        if let Some(place) = self.ports.get_mut(subscriber.index) {
            place.subscribers = place.subscribers.saturating_sub(1);
        }
    }

    /// The outside address and block that a deterministic subscriber has for ever (RFC 7422).
    pub(super) fn place_of(&self, inside: IpAddr) -> Option<(u16, u32)> {
        let (ranges, IpAddr::V4(address)) = (self.deterministic.as_ref()?, inside) else { return None };
        let mut before = 0u64;
        for (first, count) in ranges {
            if let Some(at) = address.to_bits().checked_sub(*first).filter(|at| at < count) {
                let number = before + u64::from(at);
                let blocks = u64::from(self.ports.blocks());
                let index = u16::try_from(number.checked_div(blocks)?).ok()?;
                return Some((index, (number % blocks) as u32));
            }
            before += u64::from(*count);
        }
        None
    }

    /// A free port for a subscriber, with its outside address.
    pub(super) fn take_port(&mut self, number: u32, like: u16, transport: Transport) -> Option<(u16, u16)> {
        let subscriber = *self.subscribers.get(number)?;
        let Subscriber { mut index, part, address, .. } = subscriber;
        let active =
            |ports: &Ports, index| ports.get(index).is_some_and(|place| place.status != Status::Draining);
        if let Some((index, block)) = self.place_of(address) {
            let range = self.ports.range_of_block(block);
            if !active(&self.ports, index) {
                return None;
            }
            return self.ports.take(index, transport, range, like).map(|port| (index, port));
        }
        if !active(&self.ports, index) || self.pooling == Pooling::Arbitrary && self.ports.block == 0 {
            let fits = |ports: &Ports, index: u16| ports.has_room(index, transport, part);
            index = self.ports.choose(fits)?;
        }
        // RFC 4787, REQ-3 (a): the class is kept while ports of the lower one are left.
        if transport != Transport::Icmp && like < FIRST_HIGH && like > 0 {
            let range = self.ports.range_of(part, true);
            if let Some(port) = self.ports.take(index, transport, range, like) {
                return Some((index, port));
            }
        }
        if self.ports.block == 0 {
            let range = self.ports.range_of(part, false);
            return self.ports.take(index, transport, range, like).map(|port| (index, port));
        }
        index = subscriber.index;
        for block in subscriber.blocks() {
            let range = self.ports.range_of_block(*block);
            if let Some(port) = self.ports.take(index, transport, range, like) {
                return Some((index, port));
            }
        }
        if subscriber.blocks_held >= self.limits.blocks || !active(&self.ports, index) {
            return None;
        }
        let block = self.ports.take_block(index, part, number)?;
        self.give_block(number, index, block);
        let range = self.ports.range_of_block(block);
        let port = self.ports.take(index, transport, range, like);
        if port.is_none() {
            // Such as a block of one port, of the other parity.
            self.freed(index, range.first);
        }
        port.map(|port| (index, port))
    }

    /// Notes a block as its subscriber's.
    pub(super) fn give_block(&mut self, number: u32, index: u16, block: u32) {
        let Some(subscriber) = self.subscribers.get_mut(number) else { return };
        if usize::from(subscriber.blocks_held) < subscriber.blocks.len() {
            subscriber.blocks[usize::from(subscriber.blocks_held)] = block;
            subscriber.blocks_held += 1;
        }
        if let Some(outside) = self.ports.address(index) {
            self.log.assigned(self.now, subscriber.address, outside, self.ports.range_of_block(block));
        }
    }
}

impl Subscriber {
    /// Whether its rate allows another mapping, which is counted.
    pub(super) fn may_map(&mut self, rate: u32, now: u64) -> bool {
        let step = 1_000_000_000 / u64::from(rate);
        let new = now.saturating_sub(self.filled) / step.max(1);
        if new > 0 {
            let tokens = u64::from(self.tokens).saturating_add(new).min(rate.into());
            self.filled = if tokens == u64::from(rate) { now } else { self.filled + new * step };
            self.tokens = tokens as u32;
        }
        let may = self.tokens > 0;
        self.tokens -= u32::from(may);
        may
    }
}
