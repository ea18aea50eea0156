//! A route as an operator writes it: `10.0.0.0/8 via 192.0.2.2 via 192.0.2.3 weight 2`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::faces::Faces;
use super::interface::truncated;
use super::words::{Fault, Words};

/// A route before its next hops are looked for among the interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The prefix's address; all bits behind `len` are 0.
    pub prefix: IpAddr,
    /// The prefix's length in bits.
    pub len: u8,
    /// Where its packets go.
    pub way: Way,
}

/// Where the packets of a route go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// To one of these next hops, by flow.
    Hops(Vec<WrittenHop>),
    /// Dropped silently.
    Blackhole,
    /// Dropped, and the sender is told that the host is unreachable.
    Unreachable,
    /// Dropped, and the sender is told that it is prohibited.
    Prohibit,
}

/// A next hop as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenHop {
    /// The router to which packets go; `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The interface, by its name.
    pub interface: Option<String>,
    /// Its share of the flows, beside those of the others.
    pub weight: u16,
}

/// A next hop whose interface is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Hop {
    pub(super) gateway: Option<IpAddr>,
    pub(super) interface: u16,
    pub(super) weight: u16,
}

/// The meaning of a prefix to the router.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Action {
    /// An address of the router.
    Local,
    /// The broadcast address of a network on a link.
    Broadcast,
    /// Packets go to one of these, by flow.
    Via(Vec<Hop>),
    /// As [`Way::Blackhole`].
    Blackhole,
    /// As [`Way::Unreachable`].
    Unreachable,
    /// As [`Way::Prohibit`].
    Prohibit,
}

/// The most next hops of one route.
pub(super) const MOST_HOPS: usize = 64;

impl Route {
    /// Finds the interface of each next hop.
    ///
    /// # Errors
    /// A next hop on the network of no interface, or an interface that there is not.
    pub(super) fn resolved(&self, faces: &Faces) -> Result<Action, String> {
        let hops = match &self.way {
            Way::Hops(hops) => hops,
            Way::Blackhole => return Ok(Action::Blackhole),
            Way::Unreachable => return Ok(Action::Unreachable),
            Way::Prohibit => return Ok(Action::Prohibit),
        };
        let mut resolved = Vec::with_capacity(hops.len());
        for WrittenHop { gateway, interface, weight } in hops {
            let named = interface.as_ref().map(|name| {
                faces
                    .by_name(name)
                    .ok_or_else(|| format!("there is no interface `{name}`; there are: {}", faces.names()))
            });
            let named = named.transpose()?;
            let interface = match (gateway, named) {
                (None, Some(named)) => named,
                (None, None) => return Err(format!("{self}: a next hop needs `via` or `dev`")),
                (Some(gateway), named) => faces.towards(*gateway, named)?,
            };
            let hop = Hop { gateway: *gateway, interface, weight: *weight };
            if resolved
                .iter()
                .any(|known: &Hop| (known.gateway, known.interface) == (hop.gateway, hop.interface))
            {
                return Err(format!("{self} has a next hop twice: give it a weight"));
            }
            resolved.push(hop);
        }
        resolved.sort_unstable();
        Ok(Action::Via(resolved))
    }
}

impl FromStr for Route {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let mut words = Words::of(text);
        let (prefix, len) = prefix(&mut words)?;
        let mut hops = Vec::new();
        let way = match words.peek() {
            Some("blackhole") => Some(Way::Blackhole),
            Some("unreachable") => Some(Way::Unreachable),
            Some("prohibit") => Some(Way::Prohibit),
            _ => None,
        };
        if let Some(way) = way {
            words.more();
            return match words.more() {
                None => Ok(Self { prefix, len, way }),
                Some(word) => Err(words.fault(word, format!("expected nothing more, found `{word}`"))),
            };
        }
        loop {
            match words.peek() {
                Some("via" | "dev") => hops.push(hop(&mut words)?),
                Some(word) => {
                    let expected =
                        "expected `via ADDRESS`, `dev INTERFACE`, `blackhole`, `unreachable` or `prohibit`";
                    return Err(words.fault(word, format!("{expected}, found `{word}`")));
                }
                None if hops.is_empty() => {
                    words.next("`via ADDRESS`, `dev INTERFACE`, `blackhole`, `unreachable` or `prohibit`")?;
                }
                None => break,
            }
            if hops.len() > MOST_HOPS {
                return Err(Fault { column: 1, problem: format!("more than {MOST_HOPS} next hops") });
            }
        }
        Ok(Self { prefix, len, way: Way::Hops(hops) })
    }
}

/// One next hop: `via ADDRESS [dev INTERFACE] [weight NUMBER]`, or `dev INTERFACE`.
fn hop(words: &mut Words<'_>) -> Result<WrittenHop, Fault> {
    let mut hop = WrittenHop { gateway: None, interface: None, weight: 1 };
    if words.peek() == Some("via") {
        words.more();
        let word = words.next("the address of a next hop")?;
        let address = word.parse::<IpAddr>().ok().filter(|address| !is_no_host(*address));
        let wrong = || words.fault(word, format!("expected the address of a next hop, found `{word}`"));
        hop.gateway = Some(address.ok_or_else(wrong)?);
    }
    loop {
        match words.peek() {
            Some("dev") if hop.interface.is_none() => {
                words.more();
                hop.interface = Some(words.next("the name of an interface")?.to_owned());
            }
            Some("weight") => {
                words.more();
                hop.weight = words.number("a weight", 1..=1_000)? as u16;
            }
            _ => return Ok(hop),
        }
    }
}

fn is_no_host(address: IpAddr) -> bool {
    address.is_multicast() || address.is_unspecified() || address.is_loopback()
}

/// The next word as a prefix.
pub(super) fn prefix(words: &mut Words<'_>) -> Result<(IpAddr, u8), Fault> {
    let word = words.next("a prefix as `192.0.2.0/24` or `2001:db8::/32`")?;
    parsed_prefix(word).map_err(|problem| words.fault(word, problem))
}

/// A prefix in the form in which routes show it; other words stay as they are.
pub(super) fn shown_prefix(word: &str) -> String {
    parsed_prefix(word).map_or_else(|_| word.to_owned(), |(prefix, len)| format!("{prefix}/{len}"))
}

fn parsed_prefix(word: &str) -> Result<(IpAddr, u8), String> {
    let expected =
        || format!("expected a prefix as `192.0.2.0/24`, `2001:db8::/32` or `default`, found `{word}`");
    let (address, len) = match word {
        "default" => ("0.0.0.0", "0"),
        "default6" => ("::", "0"),
        word => word.split_once('/').ok_or_else(expected)?,
    };
    let address: IpAddr = address.parse().map_err(|_| expected())?;
    if !len.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(expected());
    }
    let len: u8 = len.parse().map_err(|_| expected())?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    if len > bits {
        return Err(format!("`{word}`: addresses like this have {bits} bits, give a length of 0 to {bits}"));
    }
    let network = truncated(address, len);
    if network != address {
        return Err(format!("`{word}` has bits set behind its first {len}: write `{network}/{len}`"));
    }
    if address.is_multicast() {
        return Err(format!("`{word}` is of groups, which the router does not forward"));
    }
    Ok((address, len))
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.prefix, self.len)?;
        match &self.way {
            Way::Hops(hops) => hops.iter().try_for_each(|hop| {
                hop.gateway.map_or(Ok(()), |gateway| write!(f, " via {gateway}"))?;
                hop.interface.as_ref().map_or(Ok(()), |name| write!(f, " dev {name}"))?;
                if hop.weight == 1 { Ok(()) } else { write!(f, " weight {}", hop.weight) }
            }),
            Way::Blackhole => f.write_str(" blackhole"),
            Way::Unreachable => f.write_str(" unreachable"),
            Way::Prohibit => f.write_str(" prohibit"),
        }
    }
}

/// An item of each line of a text, with the line's number from 1.
pub(super) type Lines<T> = Vec<(usize, T)>;

/// The items of a text, one a line. `#` begins a comment, and lines without more are skipped.
///
/// # Errors
/// All wrong lines, with the fault of each.
pub(super) fn lines<T>(
    text: &str,
    read: impl Fn(&str) -> Result<T, Fault>,
) -> Result<Lines<T>, Lines<Fault>> {
    let (mut items, mut wrong) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        if line.trim().is_empty() {
            continue;
        }
        match read(line) {
            Ok(item) => items.push((number, item)),
            Err(fault) => wrong.push((number, fault)),
        }
    }
    if wrong.is_empty() { Ok(items) } else { Err(wrong) }
}
