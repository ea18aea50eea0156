//! One server as an operator writes it: `web-1 10.0.0.5:8080 02:00:00:00:00:01 3`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use netbricks_core::packet::MacAddress;
use netbricks_core::units::from_text;
use serde::de::{Deserialize, Deserializer};

use crate::maglev::Backend;

/// A server: its name, where it is, and its share of the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name, of at most [`Backend::MOST_NAME`] bytes.
    pub name: String,
    /// Its IP address, for address translation, tunnels and health checks.
    pub address: Option<IpAddr>,
    /// Its port, where that differs from the service's.
    pub port: Option<u16>,
    /// Its Ethernet address, or that of the router on the way to it.
    pub mac: Option<MacAddress>,
    /// Its share of the new connections, relative to the other servers' weights; 0 drains it.
    pub weight: u32,
}

impl FromStr for Server {
    type Err = String;

    /// A name, and behind it an address with or without port, an Ethernet address and a weight, in any order.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = "`NAME [ADDRESS[:PORT]] [ETHERNET-ADDRESS] [WEIGHT]`, as in `web-1 10.0.0.5:8080 02:00:00:00:00:01 3`";
        let mut words = text.split_whitespace();
        let name = words.next().ok_or_else(|| format!("expected a server as {form}, found `{text}`"))?;
        if name.len() > Backend::MOST_NAME {
            return Err(format!(
                "a server's name has at most {} bytes, `{name}` has {}",
                Backend::MOST_NAME,
                name.len()
            ));
        }
        let mut server = Self { name: name.into(), address: None, port: None, mac: None, weight: 1 };
        let mut weighted = false;
        for word in words {
            let given = if let Ok(weight) = word.parse::<u32>() {
                if weight > Backend::MOST_WEIGHT {
                    return Err(format!(
                        "the weight of server `{name}` must be 0 to {}, found `{word}`",
                        Backend::MOST_WEIGHT
                    ));
                }
                server.weight = weight;
                std::mem::replace(&mut weighted, true)
            } else if let Ok(mac) = word.parse::<MacAddress>() {
                if mac.is_multicast() {
                    return Err(format!(
                        "server `{name}` has the address {mac}, which is a group's: give its own"
                    ));
                }
                server.mac.replace(mac).is_some()
            } else {
                let (address, port) = match (word.parse::<IpAddr>(), word.parse::<SocketAddr>()) {
                    (Ok(address), _) => (address, None),
                    (_, Ok(place)) if place.port() != 0 => (place.ip(), Some(place.port())),
                    _ => return Err(format!("expected a server as {form}, found `{word}` in it")),
                };
                server.port = port;
                server.address.replace(address).is_some()
            };
            if given {
                return Err(format!("server `{name}` has two of a kind: take `{word}` or the other one out"));
            }
        }
        Ok(server)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match (self.address, self.port) {
            (Some(address), Some(port)) => write!(f, " {}", SocketAddr::new(address, port))?,
            (Some(address), None) => write!(f, " {address}")?,
            _ => {}
        }
        if let Some(mac) = self.mac {
            write!(f, " {mac}")?;
        }
        write!(f, " {}", self.weight)
    }
}

impl<'de> Deserialize<'de> for Server {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}
