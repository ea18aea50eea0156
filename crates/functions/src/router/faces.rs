//! The interfaces as workers need them: places, addresses of both layers, and the networks behind them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_core::packet::MacAddress;

use super::interface::{Interface, Network};

/// An interface of the running router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Face {
    pub(crate) name: String,
    /// The number of its port, and so of the node's input and way out.
    pub(crate) port: usize,
    pub(crate) vlan: Option<u16>,
    pub(crate) mac: MacAddress,
    pub(crate) mtu: usize,
    pub(crate) networks: Vec<Network>,
    pub(crate) link_local: Ipv6Addr,
    /// Whether the host is behind it: the router's own packets come and go there.
    pub(crate) is_host: bool,
}

/// All interfaces. The ports are numbered as they are named first, and the host's is the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faces {
    pub(crate) all: Vec<Face>,
    pub(crate) ports: Vec<String>,
    /// The host's interface.
    pub(crate) host: Option<u16>,
}

impl Faces {
    pub(crate) fn of(interfaces: &[Interface], host: Option<&Interface>) -> Self {
        let mut faces = Self::default();
        for (interface, is_host) in
            interfaces.iter().zip(std::iter::repeat(false)).chain(host.map(|host| (host, true)))
        {
            let port = faces.ports.iter().position(|port| *port == interface.port).unwrap_or_else(|| {
                faces.ports.push(interface.port.clone());
                faces.ports.len() - 1
            });
            if is_host {
                faces.host = Some(faces.all.len() as u16);
            }
            faces.all.push(Face {
                name: interface.name(),
                port,
                vlan: interface.vlan,
                mac: interface.mac(),
                mtu: interface.mtu,
                networks: interface.networks.clone(),
                link_local: interface.link_local(),
                is_host,
            });
        }
        faces
    }

    pub(crate) fn get(&self, number: u16) -> Option<&Face> {
        self.all.get(usize::from(number))
    }

    /// The interface for frames that come by a port with this tag.
    pub(crate) fn entered(&self, port: usize, vlan: Option<u16>) -> Option<u16> {
        let found = self.all.iter().position(|face| face.port == port && face.vlan == vlan);
        found.map(|number| number as u16)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<u16> {
        self.all.iter().position(|face| face.name == name).map(|number| number as u16)
    }

    pub(crate) fn names(&self) -> String {
        let names = self.all.iter().filter(|face| !face.is_host).map(|face| {
            let networks = face.networks.iter().map(|network| format!(" {network}")).collect::<String>();
            format!("{}{networks}", face.name)
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// The interface on whose network this next hop is.
    ///
    /// # Errors
    /// It is on none, on another than the one that is `named`, or is the router itself.
    pub(crate) fn towards(&self, gateway: IpAddr, named: Option<u16>) -> Result<u16, String> {
        if let Some(owner) = self.owner(gateway) {
            return Err(format!("next hop {gateway} is the router's own address on `{}`", owner.name));
        }
        let is_link_local = matches!(gateway, IpAddr::V6(address) if address.is_unicast_link_local());
        match named {
            Some(named) if is_link_local => return Ok(named),
            None if is_link_local => {
                return Err(format!("next hop {gateway} is link-local: say on which interface by `dev`"));
            }
            _ => {}
        }
        let network = |number: &u16| {
            let networks = self.get(*number).map(|face| face.networks.iter()).into_iter().flatten();
            networks.filter(|network| network.holds(gateway)).map(|network| network.len).max()
        };
        let numbers = 0..self.all.len() as u16;
        let best = numbers.filter(|number| network(number).is_some()).max_by_key(network);
        match (best, named) {
            (_, Some(named)) if network(&named).is_some() => Ok(named),
            (Some(best), None) => Ok(best),
            (_, named) => {
                let of = named
                    .and_then(|named| self.get(named))
                    .map_or_else(|| "of any interface".to_owned(), |face| format!("of `{}`", face.name));
                Err(format!(
                    "next hop {gateway} is unreachable: it is not on the network {of}; interfaces are {}",
                    self.names()
                ))
            }
        }
    }

    /// The interface with this address.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<&Face> {
        self.all.iter().find(|face| face.has(address))
    }

    /// The address for errors about packets that came by an interface.
    pub(crate) fn source_v4(&self, number: u16) -> Option<Ipv4Addr> {
        let of = |face: &Face| {
            face.networks.iter().find_map(|network| match network.address {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            })
        };
        self.get(number).and_then(of).or_else(|| self.all.iter().find_map(of))
    }
    /// As [`source_v4`](Self::source_v4). Without a global address it is the link-local one.
    pub(crate) fn source_v6(&self, number: u16) -> Option<Ipv6Addr> {
        let of = |face: &Face| {
            face.networks.iter().find_map(|network| match network.address {
                IpAddr::V6(address) if !address.is_unicast_link_local() => Some(address),
                _ => None,
            })
        };
        let local = || self.get(number).map(|face| face.link_local);
        self.get(number).and_then(of).or_else(|| self.all.iter().find_map(of)).or_else(local)
    }
}

impl Face {
    /// Whether the address is its own, link-local ones included.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        !self.is_host
            && (address == IpAddr::V6(self.link_local)
                || self.networks.iter().any(|network| network.address == address))
    }
    /// Whether an address is on its link.
    pub(crate) fn is_on_link(&self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
            || self.networks.iter().any(|network| network.holds(address))
    }
    /// The length of its frames' link headers.
    pub(crate) fn link_len(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }
    /// The IPv4 address by which it asks for a neighbour.
    pub(crate) fn asks_from(&self, target: Ipv4Addr) -> Ipv4Addr {
        let own = self.networks.iter().filter_map(|network| match network.address {
            IpAddr::V4(address) => Some((network.holds(target.into()), address)),
            IpAddr::V6(_) => None,
        });
        own.max_by_key(|(holds, _)| *holds).map_or(Ipv4Addr::UNSPECIFIED, |(_, address)| address)
    }
}
