//! The options of LCP (RFC 1661, section 6), IPCP (RFC 1332, RFC 1877) and IPV6CP (RFC 5072).
//!
//! What a concentrator asks for, and what it says to the requests of subscribers.

use std::net::Ipv4Addr;

use super::config::Authentication;
use super::control::{Options, PppOption, Writer, WrongLength, protocol};
use super::random::Random;
use super::session::{Session, Which};

const MRU: u8 = 1;
const AUTHENTICATION: u8 = 3;
const MAGIC: u8 = 5;
const IP_ADDRESS: u8 = 3;
const PRIMARY_DNS: u8 = 129;
const SECONDARY_DNS: u8 = 131;
const INTERFACE_ID: u8 = 1;

/// The algorithm MD5 of CHAP.
const MD5: u8 = 5;
/// The smallest packets that a subscriber must take.
pub(super) const LEAST_MRU: u16 = 576;

/// The answer to a Configure-Request, as far as its options decide.
pub(super) struct CheckedOptions {
    pub(super) naks: Writer,
    /// The options that are refused with any value.
    pub(super) rejects: Writer,
    /// The options of a Nak as they came, which are rejected after too many Naks.
    pub(super) naked: Writer,
    wishes: Wishes,
}

/// The values of a request, which hold once it is acknowledged.
#[derive(Clone, Copy, Default)]
struct Wishes {
    mru: Option<u16>,
}

impl Session {
    /// Writes the options that we ask for.
    pub(super) fn own_options(&self, which: Which, own: Ipv4Addr, to: &mut Writer) {
        match which {
            Which::Lcp => {
                if self.asks_mru {
                    to.option(MRU, &self.max_payload.to_be_bytes());
                }
                match self.method {
                    Some(Authentication::Pap) => {
                        to.option(AUTHENTICATION, &protocol::PAP.to_be_bytes());
                    }
                    Some(Authentication::Chap) => {
                        let [high, low] = protocol::CHAP.to_be_bytes();
                        to.option(AUTHENTICATION, &[high, low, MD5]);
                    }
                    None => {}
                }
                if self.asks_magic {
                    to.option(MAGIC, &self.magic.to_be_bytes());
                }
            }
            Which::Ipcp => {
                if self.asks_address {
                    to.option(IP_ADDRESS, &own.octets());
                }
            }
            Which::Ipv6cp => {
                to.option(INTERFACE_ID, &self.interface_id.to_be_bytes());
            }
        }
    }

    /// Checks the options of a Configure-Request.
    ///
    /// # Errors
    /// A length lies: the packet is malformed.
    pub(super) fn check_options(
        &self,
        which: Which,
        data: &[u8],
        dns: [Option<Ipv4Addr>; 2],
        random: &mut Random,
    ) -> Result<CheckedOptions, WrongLength> {
        let mut checked = CheckedOptions {
            naks: Writer::new(),
            rejects: Writer::new(),
            naked: Writer::new(),
            wishes: Wishes::default(),
        };
        let mut has_first = false;
        for option in Options(data) {
            let option = option?;
            match which {
                Which::Lcp => self.check_lcp(option, random, &mut checked),
                Which::Ipcp => {
                    has_first |= option.kind == IP_ADDRESS;
                    self.check_ipcp(option, dns, &mut checked);
                }
                Which::Ipv6cp => {
                    has_first |= option.kind == INTERFACE_ID;
                    self.check_ipv6cp(option, random, &mut checked);
                }
            }
        }
        // An option that must be there is asked for in a Nak (RFC 1661, section 5.3).
        match (which, self.address) {
            (Which::Ipcp, Some(address)) if !has_first => {
                checked.naks.option(IP_ADDRESS, &address.octets());
            }
            (Which::Ipv6cp, _) if !has_first => {
                checked.naks.option(INTERFACE_ID, &self.another_id(random).to_be_bytes());
            }
            _ => {}
        }
        Ok(checked)
    }

    fn check_lcp(&self, option: PppOption<'_>, random: &mut Random, checked: &mut CheckedOptions) {
        match (option.kind, option.value) {
            (MRU, &[high, low]) => {
                let mru = u16::from_be_bytes([high, low]);
                if mru < LEAST_MRU {
                    checked.nak(option, &self.max_payload.to_be_bytes());
                } else {
                    checked.wishes.mru = Some(mru);
                }
            }
            (MAGIC, &[a, b, c, d]) => {
                let magic = u32::from_be_bytes([a, b, c, d]);
                // Our own number comes back where the line is looped (section 6.4).
                if magic == 0 || self.asks_magic && magic == self.magic {
                    checked.nak(option, &random.magic().to_be_bytes());
                }
            }
            // Compressed fields have no place in PPPoE (RFC 2516, section 7), and the concentrator does not authenticate to subscribers.
            _ => checked.reject(option),
        }
    }

    fn check_ipcp(&self, option: PppOption<'_>, dns: [Option<Ipv4Addr>; 2], checked: &mut CheckedOptions) {
        let assigned = match option.kind {
            IP_ADDRESS => self.address,
            PRIMARY_DNS => dns[0],
            SECONDARY_DNS => dns[1],
            _ => None,
        };
        match assigned.map(|address| address.octets()) {
            Some(octets) if option.value.len() == 4 => {
                if option.value != octets {
                    checked.nak(option, &octets);
                }
            }
            _ => checked.reject(option),
        }
    }

    fn check_ipv6cp(&self, option: PppOption<'_>, random: &mut Random, checked: &mut CheckedOptions) {
        match (option.kind, <[u8; 8]>::try_from(option.value)) {
            (INTERFACE_ID, Ok(id)) => {
                let id = u64::from_be_bytes(id);
                if id == 0 || id == self.interface_id {
                    checked.nak(option, &self.another_id(random).to_be_bytes());
                }
            }
            _ => checked.reject(option),
        }
    }

    /// An interface identifier for the subscriber: not 0, not ours, and not universal (RFC 5072, section 4.1).
    fn another_id(&self, random: &mut Random) -> u64 {
        let id = random.number() & !(2 << 56);
        if id == 0 || id == self.interface_id { self.interface_id ^ 1 } else { id }
    }

    /// Keeps the values of a request that is acknowledged.
    pub(super) fn adopt(&mut self, which: Which, checked: &CheckedOptions) {
        if which == Which::Lcp {
            // A request without the option asks for the default (section 6.1).
            self.peer_mru = checked.wishes.mru.unwrap_or(DEFAULT_MRU);
        }
    }

    /// Changes our wishes as a Configure-Nak proposes; `allowed` are the authentication protocols to choose from.
    pub(super) fn heed_nak(
        &mut self,
        which: Which,
        data: &[u8],
        allowed: &[Authentication],
        random: &mut Random,
    ) {
        for option in Options(data).flatten() {
            match (which, option.kind, option.value) {
                (Which::Lcp, MRU, &[high, low]) => {
                    let mru = u16::from_be_bytes([high, low]);
                    if (LEAST_MRU..self.max_payload).contains(&mru) {
                        self.max_payload = mru;
                    }
                }
                (Which::Lcp, AUTHENTICATION, &[high, low, ref more @ ..]) => {
                    let method = match (u16::from_be_bytes([high, low]), more) {
                        (protocol::PAP, []) => Some(Authentication::Pap),
                        (protocol::CHAP, [MD5]) => Some(Authentication::Chap),
                        _ => None,
                    };
                    let method = method.or_else(|| self.other_method(allowed));
                    if let Some(method) =
                        method.filter(|method| self.method.is_some() && allowed.contains(method))
                    {
                        self.method = Some(method);
                    }
                }
                (Which::Lcp, MAGIC, _) => self.magic = random.magic(),
                (Which::Ipv6cp, INTERFACE_ID, _) => self.interface_id = self.another_id(random),
                _ => {}
            }
        }
    }

    /// The allowed protocol that is not asked for at present.
    fn other_method(&self, allowed: &[Authentication]) -> Option<Authentication> {
        allowed.iter().copied().find(|method| Some(*method) != self.method)
    }

    /// Gives up wishes that a Configure-Reject names; `false` where one of them is needed.
    pub(super) fn heed_reject(&mut self, which: Which, data: &[u8]) -> bool {
        let mut goes_on = true;
        for option in Options(data).flatten() {
            match (which, option.kind) {
                (Which::Lcp, MRU) => self.asks_mru = false,
                (Which::Lcp, MAGIC) => {
                    self.asks_magic = false;
                    // What is sent without a negotiated number is 0 (section 6.4).
                    self.magic = 0;
                }
                (Which::Ipcp, IP_ADDRESS) => self.asks_address = false,
                _ => goes_on = false,
            }
        }
        goes_on
    }
}

/// The MRU without an option (RFC 1661, section 6.1).
pub(super) const DEFAULT_MRU: u16 = 1_500;

impl CheckedOptions {
    fn nak(&mut self, option: PppOption<'_>, value: &[u8]) {
        self.naks.option(option.kind, value);
        self.naked.add(option.whole);
    }
    fn reject(&mut self, option: PppOption<'_>) {
        self.rejects.add(option.whole);
    }
}
