//! Static mappings and outside addresses, which an operator adds and removes.

use std::net::{IpAddr, Ipv4Addr};

use super::ports::{OutsideAddress, Status};
use super::purge::Chosen;
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
                    pcp: None,
                });
                match entered {
                    Some(_) => {
                        self.fixed += 1;
                        Ok(())
                    }
                    None => {
                        self.release_port(index, *transport, external.port, true);
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
                self.may_purge()?;
                self.fixed = self.fixed.saturating_sub(1);
                if let Some(found) = self.mappings.get(number).copied() {
                    self.unindex(number, &found);
                }
                self.purge(Chosen::Mapping(number));
                Ok(())
            }
        }
    }

    /// Takes an address out that only static mappings had, with the last of them.
    pub(super) fn remove_unused(&mut self, index: u16) {
        let unused = |place: &OutsideAddress| place.status == Status::Fixed && place.mappings == 0;
        if self.ports.get(index).is_some_and(unused) {
            self.ports.remove(index);
        }
    }

    /// Gives addresses no new mappings.
    pub(super) fn drain(&mut self, addresses: &[u16]) {
        for index in addresses {
            self.ports.get_mut(*index).into_iter().for_each(|place| place.status = Status::Draining);
        }
    }

    /// Ends the mappings of addresses and takes them out; answers whether that is done.
    ///
    /// # Errors
    /// When the sessions of too many calls are not over.
    pub(super) fn remove_addresses(&mut self, addresses: Vec<u16>) -> Result<bool, String> {
        self.may_purge()?;
        self.drain(&addresses);
        Ok(self.purge(Chosen::Addresses(addresses)))
    }
}

fn insert_sorted(list: &mut Vec<(Ipv4Addr, Ipv4Addr)>, item: (Ipv4Addr, Ipv4Addr)) {
    let at = list.partition_point(|other| *other < item);
    list.insert(at, item);
}
