//! Static mappings and outside addresses, which an operator adds and removes.

use std::net::{IpAddr, Ipv4Addr};

use super::ports::{OutsideAddress, Status};
use super::session::Mapping;
use super::spec::Static;
use super::state::State;

impl State {
    /// Adds a static mapping.
    ///
    /// # Errors
    /// The reason why it cannot be there.
    pub(super) fn add_static(&mut self, mapping: &Static) -> Result<(), String> {
        match mapping {
            Static::Address { external, inside } => {
                if self.whole_outside.iter().any(|(other, _)| other == external)
                    || self.whole_inside.iter().any(|(other, _)| other == inside)
                {
                    return Err(format!("`{mapping}` conflicts with another mapping: remove that first"));
                }
                if self.ports.index(*external).is_some() {
                    return Err(format!("{external} is an address of the pool, or has mappings of ports"));
                }
                let full = || format!("there is no room for another outside address beside `{mapping}`");
                self.ports.add(*external, Status::Fixed).ok_or_else(full)?;
                insert_sorted(&mut self.whole_outside, (*external, *inside));
                insert_sorted(&mut self.whole_inside, (*inside, *external));
                Ok(())
            }
            Static::Port { transport, external, inside } => {
                let IpAddr::V4(address) = external.address else {
                    return Err("the outside address must be IPv4".into());
                };
                if self.mapping_inside(*inside, *transport).is_some() {
                    return Err(format!("{inside} has a mapping already: remove it first"));
                }
                if self.whole_outside.iter().any(|(other, _)| *other == address) {
                    return Err(format!("all of {address} is mapped already"));
                }
                let full = || format!("there is no room for another outside address beside `{mapping}`");
                let index = self.ports.add(address, Status::Fixed).ok_or_else(full)?;
                if !self.ports.claim(index, *transport, external.port) {
                    return Err(format!("{} {external} is in use: choose another port", transport.name()));
                }
                let entered = self.enter_mapping(Mapping {
                    inside: *inside,
                    index,
                    port: external.port,
                    transport: *transport,
                    subscriber: None,
                    sessions: 0,
                });
                match entered {
                    Some(_) => {
                        self.fixed += 1;
                        Ok(())
                    }
                    None => {
                        self.ports.release(index, *transport, external.port, true, self.now);
                        Err("there is no room for another mapping".into())
                    }
                }
            }
        }
    }

    /// Removes a static mapping and ends its sessions.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn remove_static(&mut self, mapping: &Static) -> Result<(), String> {
        let missing = || format!("there is no mapping `{mapping}`");
        match mapping {
            Static::Address { external, inside } => {
                let before = self.whole_outside.len();
                self.whole_outside.retain(|found| *found != (*external, *inside));
                self.whole_inside.retain(|found| *found != (*inside, *external));
                if self.whole_outside.len() == before {
                    return Err(missing());
                }
                if let Some(index) = self.ports.index(*external) {
                    self.ports.remove(index);
                }
                Ok(())
            }
            Static::Port { transport, external, inside } => {
                let number = self.mapping_inside(*inside, *transport).ok_or_else(missing)?;
                let is_it = self.external(number) == Some(*external)
                    && self.mappings.get(number).is_some_and(|found| found.subscriber.is_none());
                if !is_it {
                    return Err(missing());
                }
                self.end_sessions(|session| session.mapping == number);
                self.fixed = self.fixed.saturating_sub(1);
                let index = self.mappings.get(number).map(|found| found.index);
                self.unmap(number, true);
                if let Some(index) = index {
                    self.remove_unused(index);
                }
                Ok(())
            }
        }
    }

    /// Takes an address out that only static mappings had, with the last of them.
    fn remove_unused(&mut self, index: u16) {
        let unused = |place: &OutsideAddress| place.status == Status::Fixed && place.mappings == 0;
        if self.ports.get(index).is_some_and(unused) {
            self.ports.remove(index);
        }
    }

    /// Gives an address no new mappings; `at_once` ends those that it has and takes it out.
    pub(super) fn drain_address(&mut self, index: u16, at_once: bool) {
        if let Some(place) = self.ports.get_mut(index) {
            place.status = Status::Draining;
        }
        if !at_once {
            return;
        }
        let has = |state: &Self, number: u32| {
            state.mappings.get(number).is_some_and(|mapping| mapping.index == index)
        };
        for number in 0..self.sessions.end() as u32 {
            if self.sessions.get(number).is_some_and(|session| has(self, session.mapping)) {
                self.end_with(number, true);
            }
        }
        let fixed = self.mappings.iter().any(|(_, mapping)| mapping.index == index);
        let subscribers = self.subscribers.iter().filter(|(_, found)| found.index == index);
        for number in subscribers.map(|(number, _)| number).collect::<Vec<_>>() {
            if let Some(subscriber) = self.subscribers.get_mut(number) {
                // Its blocks held ports that were held down.
                subscriber.blocks_held = 0;
            }
            self.unsubscribe_idle(number);
        }
        match fixed {
            true => self.ports.get_mut(index).into_iter().for_each(|place| place.status = Status::Fixed),
            false => self.ports.remove(index),
        }
    }
}

fn insert_sorted(list: &mut Vec<(Ipv4Addr, Ipv4Addr)>, item: (Ipv4Addr, Ipv4Addr)) {
    let at = list.partition_point(|other| *other < item);
    list.insert(at, item);
}
