//! `[tenant.NAME]`: a tenant's share of the workers, its packets, and its own ports, functions and chains.
//!
//! A tenant's names are its own: its function `limit` is `acme:limit` to the operator. In front of its chains come
//! a demultiplexer, where it shares a port, and a queue. They are functions like others, which the file does not
//! name.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::str::FromStr;

use netbricks_core::tenants::{
    Demultiplexer, TenantFilter, TenantFilterError, TenantPolicy, TenantPolicyError, TenantQueue,
};
use netbricks_core::units::{Bytes, Probability, list_from_text};
use netbricks_core::{Blueprint, InvalidSetting, Key, Keys, Settings};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::plan::{Origin, PlannedChain, PlannedFunction, PlannedPort};
use super::written::Written;
use crate::diagnostic::{Diagnostic, Diagnostics};

/// The end of the name of the queue in front of a tenant's chain.
pub(crate) const QUEUE: &str = ":queue";
/// The most tenants of a file.
const MOST: usize = 4_096;

netbricks_core::settings! {
    /// The settings of a tenant, beside its ports, functions and chains.
    #[derive(Clone, Debug, PartialEq)]
    pub struct TenantSettings {
        /// Its part of the time that tenants of its priority share.
        pub weight: u32 = 1, "whole number, 1 to 10000";
        /// Its strict class: tenants of a lower number come first.
        pub priority: u8 = 4, "whole number, 0 to 7";
        /// The most time that it gets on each worker.
        pub ceiling: Option<Probability> = unset "no limit", "percentage, such as \"50 %\"";
        /// Networks whose packets are its, at ports that it shares.
        pub addresses: Vec<Network> = [], "list of networks, such as \"10.1.0.0/16\"", read by networks;
        /// VLANs whose packets are its, at ports that it shares.
        pub vlans: Vec<u16> = [], "list of VLAN identifiers, 1 to 4094";
        /// Packets that wait for its turn, in front of each of its chains.
        pub queue: usize = 512, "whole number of packets, 1 to 1048576";
        /// Memory that the tables of its functions may take on each worker.
        pub memory: Option<Bytes> = unset "no limit", "bytes, such as \"64 MB\"";
        /// Entries that the tables of its functions may have room for on each worker.
        pub entries: Option<u64> = unset "no limit", "whole number of entries";
        /// Packet buffers that its queues may hold on each worker.
        pub frames: Option<usize> = unset "no limit", "whole number of packets";
        /// Users of this machine who may see it, and change its functions' state.
        pub users: Vec<u32> = [], "list of user identifiers";
        /// The file with the token of clients that may do so over TCP.
        pub token_file: Option<std::path::PathBuf> = unset "none", "path of a file with one line";
    }
}

/// A network in the form `ADDRESS/LENGTH`; an address alone is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Bits of its prefix.
    pub length: u8,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected a network such as `10.1.0.0/16`, found `{text}`");
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.trim().parse().map_err(|_| expected())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(length) => length.trim().parse::<u8>().ok().filter(|l| *l <= most).ok_or_else(expected)?,
        };
        let first = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(u32::from(32 - length)).unwrap_or(0);
                IpAddr::V4((v4.to_bits() & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(u32::from(128 - length)).unwrap_or(0);
                IpAddr::V6((v6.to_bits() & mask).into())
            }
        };
        if first != address {
            return Err(format!("`{text}` has bits behind its prefix: write `{first}/{length}`"));
        }
        Ok(Self { address, length })
    }
}

fn networks<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Network>, D::Error> {
    list_from_text(deserializer, str::parse)
}

impl TenantSettings {
    /// Its keys.
    pub fn keys() -> &'static [Key] {
        Self::KEYS
    }

    fn policy(&self, name: &str) -> TenantPolicy {
        TenantPolicy {
            name: name.to_owned(),
            weight: self.weight,
            priority: self.priority,
            ceiling: self.ceiling.map(|ceiling| (ceiling.value() * 1_000.0).round() as u32),
        }
    }
}

impl Settings for TenantSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        if let Err(error) = self.policy("").check() {
            let key = match error {
                TenantPolicyError::Weight(_) => "weight",
                TenantPolicyError::Priority(_) => "priority",
                TenantPolicyError::Ceiling(_) => "ceiling",
            };
            return Err(InvalidSetting { key, problem: error.to_string() });
        }
        if let Some(vlan) = self.vlans.iter().find(|vlan| !(1..4095).contains(*vlan)) {
            return Err(InvalidSetting { key: "vlans", problem: format!("must be 1 to 4094, found {vlan}") });
        }
        if !(1..=TenantQueue::LONGEST).contains(&self.queue) {
            let problem = format!("must be 1 to {} packets, found {}", TenantQueue::LONGEST, self.queue);
            return Err(InvalidSetting { key: "queue", problem });
        }
        Ok(())
    }
}

/// A tenant's table.
#[derive(Clone, Debug)]
pub struct TenantEntry {
    /// The NAME of `[tenant.NAME]`.
    pub name: Spanned<String>,
    /// Its settings.
    pub settings: TenantSettings,
    /// Where each of its `addresses` stands.
    pub(crate) places: Vec<Range<usize>>,
}

/// A tenant of a plan. The owner of its nodes is its number in the plan, from 1.
#[derive(Clone, Debug)]
pub struct PlannedTenant {
    /// Its name.
    pub name: String,
    /// Its share of each worker.
    pub policy: TenantPolicy,
    /// Its settings.
    pub settings: TenantSettings,
    /// Where it is named.
    pub place: Range<usize>,
    /// Packets that its queues and functions may hold on a worker, once they were made on trial.
    pub room: usize,
}

/// The name of something that belongs to a tenant.
pub(crate) fn qualified(tenant: Option<&str>, name: &str) -> String {
    tenant.map_or_else(|| name.to_owned(), |tenant| format!("{tenant}:{name}"))
}

/// Keeps a tenant's module in the sandbox apart from those of others.
///
/// Its pool has the tenant's name, so that no other tenant's module shares it. The folder of compiled modules is the
/// operator's.
pub(super) fn enclose(tenant: &str, settings: &mut Spanned<DeTable<'_>>, diagnostics: &mut Diagnostics) {
    let table = settings.get_mut();
    if let Some(cache) = table.get("cache") {
        diagnostics.push(
            Diagnostic::error(format!("tenant `{tenant}` may not choose where compiled modules are kept"))
                .at(cache.span(), "take this out: the operator's functions alone may have it"),
        );
    }
    if let Some(DeValue::String(pool)) = table.get_mut("pool").map(Spanned::get_mut) {
        *pool = qualified(Some(tenant), pool).into();
    }
}

/// The name without that of its tenant.
pub(crate) fn bare(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, name)| name)
}

impl PlannedTenant {
    pub(super) fn of(entry: &TenantEntry) -> Self {
        let name = entry.name.get_ref().clone();
        let policy = entry.settings.policy(&name);
        Self { name, policy, settings: entry.settings.clone(), place: entry.name.span(), room: 0 }
    }

    fn filter(&self) -> TenantFilter {
        TenantFilter {
            tenant: self.name.clone(),
            addresses: self.settings.addresses.iter().map(|of| (of.address, of.length)).collect(),
            vlans: self.settings.vlans.clone(),
        }
    }

    /// The settings that a report of changes compares.
    pub(crate) fn written(&self) -> Written {
        let TenantSettings { weight, priority, ceiling, queue, memory, entries, frames, .. } = &self.settings;
        let mut written = Written::from([
            ("weight".into(), weight.to_string()),
            ("priority".into(), priority.to_string()),
            ("queue".into(), queue.to_string()),
            ("addresses".into(), listed(&self.settings.addresses)),
            ("vlans".into(), listed(&self.settings.vlans)),
        ]);
        written.extend(ceiling.map(|of| ("ceiling".into(), format!("{} %", of.value() * 100.0))));
        written.extend(memory.map(|of| ("memory".into(), of.bytes().to_string())));
        written.extend(entries.map(|of| ("entries".into(), of.to_string())));
        written.extend(frames.map(|of| ("frames".into(), of.to_string())));
        written
    }
}

fn listed<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// Reports faults that only the tenants together show.
pub(super) fn check(tenants: &[TenantEntry], ports: &[PlannedPort<'_>], diagnostics: &mut Diagnostics) {
    if tenants.len() > MOST {
        diagnostics.push(
            Diagnostic::error(format!("{} tenants: at most {MOST}", tenants.len()))
                .at(tenants[MOST].name.span(), "one too many"),
        );
    }
    for tenant in tenants {
        if let Some(port) = ports.iter().find(|port| port.name == *tenant.name.get_ref()) {
            diagnostics.push(
                Diagnostic::error(format!("`{}` names a port and a tenant", port.name))
                    .at(tenant.name.span(), "the tenant: rename one of them")
                    .at(port.place.clone(), "the port"),
            );
        }
    }
    for (number, tenant) in tenants.iter().enumerate() {
        let shared = |other: &&TenantEntry| {
            other.settings.users.iter().any(|user| tenant.settings.users.contains(user))
        };
        if let Some(other) = tenants[..number].iter().find(shared) {
            let (one, two) = (other.name.get_ref(), tenant.name.get_ref());
            diagnostics.push(
                Diagnostic::error(format!("tenants `{one}` and `{two}` have a user in common"))
                    .at(tenant.name.span(), "a user can be one tenant only")
                    .at(other.name.span(), "the other"),
            );
        }
    }
    let filters: Vec<TenantFilter> = tenants.iter().map(|entry| PlannedTenant::of(entry).filter()).collect();
    let Err(error) = TenantFilter::check_apart(&filters) else { return };
    let entry = |name: &str| tenants.iter().find(|entry| entry.name.get_ref() == name);
    let place = |name: &str, network: Option<(IpAddr, u8)>| {
        let entry = entry(name)?;
        let number = entry.settings.addresses.iter().position(|of| Some((of.address, of.length)) == network);
        let place = number.and_then(|number| entry.places.get(number)).cloned();
        Some(place.unwrap_or_else(|| entry.name.span()))
    };
    let places = match &error {
        TenantFilterError::Addresses { first, ours, second, theirs } => {
            [place(second, Some(*theirs)), place(first, Some(*ours))]
        }
        TenantFilterError::Vlan { first, second, .. } => [place(second, None), place(first, None)],
    };
    let mut diagnostic = Diagnostic::error(error.to_string());
    for (place, label) in places.into_iter().zip(["the same packets", "already belong to this one"]) {
        if let Some(place) = place {
            diagnostic = diagnostic.at(place, label);
        }
    }
    diagnostics.push(diagnostic.help("a packet belongs to one tenant only"));
}

/// Puts queues and demultiplexers in front of the chains of tenants.
pub(super) fn put_in_front(
    ports: &[PlannedPort<'_>],
    functions: &mut Vec<PlannedFunction>,
    chains: &mut Vec<PlannedChain>,
    tenants: &[PlannedTenant],
    diagnostics: &mut Diagnostics,
) {
    for (number, port) in ports.iter().enumerate() {
        let of_tenants: Vec<usize> = (0..chains.len())
            .filter(|chain| chains[*chain].tenant.is_some() && chains[*chain].origin == Origin::Port(number))
            .collect();
        if of_tenants.is_empty() {
            continue;
        }
        for chain in &of_tenants {
            let Some(tenant) = chains[*chain].tenant else { continue };
            let place = chains[*chain].from_place.clone();
            let queue = queue(&tenants[tenant], tenant, &port.name, place.clone());
            functions.push(queue);
            chains[*chain].through.insert(0, (functions.len() - 1, place));
        }
        if !port.name.contains(':') {
            demultiplex((number, port), functions, chains, (tenants, &of_tenants), diagnostics);
        }
    }
}

/// The queue in front of a tenant's chain.
fn queue(tenant: &PlannedTenant, number: usize, port: &str, place: Range<usize>) -> PlannedFunction {
    let capacity = tenant.settings.queue;
    PlannedFunction {
        name: format!("{}:{}{QUEUE}", tenant.name, bare(port)),
        definition: "tenant-queue".into(),
        blueprint: Blueprint::new(move |_| Ok(Box::new(TenantQueue::new(capacity)))),
        settings: Written::from([("capacity".into(), capacity.to_string())]),
        place,
        owner: number as u16 + 1,
    }
}

/// Sends the packets of a port that tenants share to their chains.
fn demultiplex(
    (number, port): (usize, &PlannedPort<'_>),
    functions: &mut Vec<PlannedFunction>,
    chains: &mut Vec<PlannedChain>,
    (tenants, of_tenants): (&[PlannedTenant], &[usize]),
    diagnostics: &mut Diagnostics,
) {
    for chain in of_tenants {
        let Some(tenant) = chains[*chain].tenant.map(|tenant| &tenants[tenant]) else { continue };
        if tenant.settings.addresses.is_empty() && tenant.settings.vlans.is_empty() {
            diagnostics.push(
                Diagnostic::error(format!(
                    "no packet of port `{}` would be tenant `{}`'s",
                    port.name, tenant.name
                ))
                .at(chains[*chain].from_place.clone(), "a port that others may share")
                .at(tenant.place.clone(), "has no `addresses` and no `vlans`")
                .help("say which packets are its, or give it a port of its own: `[tenant.NAME.port.NAME]`"),
            );
        }
    }
    let place = chains[of_tenants[0]].from_place.clone();
    let operators = (0..chains.len())
        .find(|chain| chains[*chain].tenant.is_none() && chains[*chain].origin == Origin::Port(number));
    let groups: Vec<&[usize]> = of_tenants.chunks(Demultiplexer::MOST).collect();
    let mut through = Vec::with_capacity(groups.len());
    for (group, of) in groups.iter().enumerate() {
        let rest = operators.is_some() || group + 1 < groups.len();
        let function = functions.len();
        let filters_of = |chains_of: &[usize]| -> Vec<TenantFilter> {
            chains_of.iter().filter_map(|chain| Some(tenants[chains[*chain].tenant?].filter())).collect()
        };
        let filters = filters_of(of);
        // A tenant behind may have the VLAN, or the destination, of a packet whose source a tenant here has.
        let later: Vec<TenantFilter> = groups[group + 1..].iter().flat_map(|of| filters_of(of)).collect();
        let text = |filter: &TenantFilter| {
            let networks: Vec<String> =
                filter.addresses.iter().map(|(address, length)| format!("{address}/{length}")).collect();
            (filter.tenant.clone(), format!("{} VLANs {}", networks.join(" "), listed(&filter.vlans)))
        };
        let mut settings: Written = filters.iter().map(text).collect();
        settings.insert(":rest".into(), rest.to_string());
        settings.extend(later.iter().map(|filter| {
            let (tenant, packets) = text(filter);
            (format!(":later {tenant}"), packets)
        }));
        // The numbers of ways out are those of the tenants in this order.
        settings.insert(
            ":order".into(),
            filters.iter().map(|of| of.tenant.as_str()).collect::<Vec<_>>().join(" "),
        );
        for chain in *of {
            let Some(tenant) = chains[*chain].tenant else { continue };
            chains[*chain].origin = Origin::Output { function, output: tenants[tenant].name.clone() };
        }
        let suffix = if group == 0 { String::new() } else { format!("-{}", group + 1) };
        functions.push(PlannedFunction {
            name: format!("{}:tenants{suffix}", port.name),
            definition: "demultiplexer".into(),
            blueprint: Blueprint::new(move |_| {
                let (filters, later) = (filters.clone(), later.clone());
                Ok(Box::new(match later.is_empty() {
                    true => Demultiplexer::new(filters, rest)?,
                    false => Demultiplexer::followed(filters, later)?,
                }))
            }),
            settings,
            place: place.clone(),
            owner: 0,
        });
        through.push((function, place.clone()));
    }
    match operators {
        Some(chain) => _ = chains[chain].through.splice(0..0, through),
        None => chains.push(PlannedChain {
            name: format!("{}-tenants", port.name),
            origin: Origin::Port(number),
            from_place: place.clone(),
            through,
            to: None,
            to_place: place,
            tenant: None,
        }),
    }
}
