//! Looks up the names in a file: drivers, functions, and the ends of each chain.
//!
//! Every fault is reported at its place.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use netbricks_core::graph::RestartPolicy;
use netbricks_core::{Blueprint, ConfigWarning, Key, Registry};
use netbricks_ports::steer::Unsteerable;
use netbricks_ports::{COMMON_KEYS, ConfiguredPort, Directions, Driver, Drivers, PortError};
use toml::Spanned;
use toml::de::DeTable;

use super::control::ControlSettings;
use super::document::{ChainEntry, Document, Entry};
use super::runtime::RuntimeSettings;
use super::settings::configure;
use super::tenants::{self, PlannedTenant, bare, qualified};
use super::written::{Written, written};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::frames;

/// A configuration that can be built.
#[derive(Debug)]
pub struct Plan<'t> {
    /// The ports that chains use, in the order of the file.
    pub ports: Vec<PlannedPort<'t>>,
    /// The functions that chains use, in the order of first use.
    pub functions: Vec<PlannedFunction>,
    /// The chains, in the order of the file.
    pub chains: Vec<PlannedChain>,
    /// The tenants, in the order of the file.
    pub tenants: Vec<PlannedTenant>,
    /// `[runtime]`.
    pub runtime: RuntimeSettings,
    /// `[control]`.
    pub control: ControlSettings,
}

/// A port that chains use.
#[derive(Debug)]
pub struct PlannedPort<'t> {
    /// Its name.
    pub name: String,
    /// Where the name stands in its header.
    pub place: Range<usize>,
    /// Its driver's name.
    pub driver: String,
    /// Where the driver is named.
    pub driver_place: Range<usize>,
    /// The workers of its receive queues: queue `n` is on the `n`th worker of this list.
    ///
    /// Queues beyond the list's length start at its first worker again. If the list is empty, queues go to
    /// workers in turn.
    pub workers: Vec<Spanned<usize>>,
    /// All other settings of its table.
    pub settings: Spanned<DeTable<'t>>,
    /// All settings, as the file writes them.
    pub(crate) written: Written,
    /// The port as its driver read these settings; `None` where they are wrong.
    pub configured: Option<ConfiguredPort>,
    /// Whether the port can send with these settings, as far as its driver knows before opening it.
    pub can_transmit: bool,
    /// Where a chain receives from it.
    pub receives: Option<Range<usize>>,
    /// Where the first chain sends to it.
    pub transmits: Option<Range<usize>>,
}

/// A function that chains use.
#[derive(Clone)]
pub struct PlannedFunction {
    /// Its name in the chains.
    pub name: String,
    /// The registered function behind it.
    pub definition: String,
    /// Makes its node.
    pub blueprint: Blueprint,
    /// Its settings as the file writes them.
    pub(crate) settings: Written,
    /// Where it is first used.
    pub place: Range<usize>,
    /// The tenant to whom it belongs, by its number in the plan from 1; 0 for the operator.
    pub owner: u16,
}

impl std::fmt::Debug for PlannedFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlannedFunction")
            .field("name", &self.name)
            .field("definition", &self.definition)
            .finish_non_exhaustive()
    }
}

/// Where a chain's packets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A port, by its number in the plan.
    Port(usize),
    /// Another way out of a function, for all uses of that function.
    Output {
        /// The function, by its number in the plan.
        function: usize,
        /// The way out's name.
        output: String,
    },
}

/// A chain.
#[derive(Clone, Debug)]
pub struct PlannedChain {
    /// Its name; `lan-wan` where the file gives none.
    pub name: String,
    /// Where its packets come from.
    pub origin: Origin,
    /// Where the file names that origin.
    pub from_place: Range<usize>,
    /// Its functions, by number in the plan, and where they are named.
    pub through: Vec<(usize, Range<usize>)>,
    /// The port that it sends to, by its number in the plan; `None` where all packets leave it before.
    pub to: Option<usize>,
    /// Where the file names that port.
    pub to_place: Range<usize>,
    /// The tenant whose chain it is, by its number in the plan.
    pub tenant: Option<usize>,
}

/// Looks up all names of a document. Relative file names start from `directory`.
///
/// Every name that is not found is reported. The plan is complete only if no error was reported.
pub fn resolve<'t>(
    document: Document<'t>,
    registry: &Registry,
    drivers: &Drivers,
    directory: &Path,
    diagnostics: &mut Diagnostics,
) -> Plan<'t> {
    let Document { ports, functions, chains, tenants, runtime, control } = document;
    if chains.is_empty() && !diagnostics.has_errors() {
        diagnostics.push(
            Diagnostic::error("there is no chain: packets would go nowhere")
                .help("add `[[chain]]` with `from`, `through` and `to`"),
        );
    }
    for (port, function) in
        ports.iter().flat_map(|port| functions.iter().map(move |function| (&port.name, &function.name)))
    {
        if port.get_ref() == function.get_ref() {
            diagnostics.push(
                Diagnostic::error(format!("`{}` names a port and a function", port.get_ref()))
                    .at(function.span(), "the function: rename one of them")
                    .at(port.span(), "the port"),
            );
        }
    }
    let mut resolver = Resolver {
        registry,
        directory,
        entries: &functions,
        ports: ports.iter().map(|entry| plan_port(entry, drivers, directory, diagnostics)).collect(),
        numbers: BTreeMap::new(),
        functions: Vec::new(),
        mentioned: Vec::new(),
        tenants: tenants.iter().map(|tenant| tenant.name.get_ref().clone()).collect(),
        diagnostics,
    };
    let mut chains = resolver.chains(&chains);
    let Resolver { mut ports, functions: mut used, mentioned, .. } = resolver;
    tenants::check(&tenants, &ports, diagnostics);
    let tenants: Vec<PlannedTenant> = tenants.iter().map(PlannedTenant::of).collect();
    unused(&ports, &functions, &mentioned, registry, directory, diagnostics);
    if !diagnostics.has_errors() {
        loops(&used, &chains, diagnostics);
        tenants::put_in_front(&ports, &mut used, &mut chains, &tenants, diagnostics);
    }
    // Where there is another error, a port's settings may not mean what they say.
    let whole = !diagnostics.has_errors();
    let planned = ports.iter().filter(|port| port.is_used());
    let largest = frames::largest_packet(large_frames(&runtime, planned));
    for port in ports.iter_mut().filter(|port| whole && port.is_used()) {
        let Some(configured) = &port.configured else { continue };
        let Directions { receives, transmits } = configured.directions();
        port.can_transmit = transmits;
        let fits = configured.fits(largest);
        port.one_way(receives, transmits).into_iter().for_each(|error| diagnostics.push(error));
        if let Err(error) = fits {
            diagnostics.push(refusal(&error, &port.settings));
        }
    }
    let mut plan = Plan { ports, functions: used, chains, tenants, runtime, control };
    if !diagnostics.has_errors() {
        plan.forget_unused_ports();
    }
    plan
}

/// As [`resolve`], for a program whose chains are written in Rust: its file has only ports and `[runtime]`.
pub(crate) fn resolve_ports<'t>(
    document: Document<'t>,
    drivers: &Drivers,
    directory: &Path,
    diagnostics: &mut Diagnostics,
) -> Plan<'t> {
    let Document { ports, functions, chains, tenants, runtime, control } = document;
    let places = functions
        .iter()
        .map(|entry| entry.name.span())
        .chain(chains.into_iter().map(|chain| chain.header))
        .chain(tenants.iter().map(|tenant| tenant.name.span()));
    for place in places {
        diagnostics.push(
            Diagnostic::error("functions and chains of this file would never be used")
                .at(place, "the program makes them: take this out"),
        );
    }
    if ports.is_empty() && !diagnostics.has_errors() {
        diagnostics.push(
            Diagnostic::error("there is no port: packets would come from nowhere")
                .help("add `[port.NAME]` with its `driver`"),
        );
    }
    let ports = ports.iter().map(|entry| plan_port(entry, drivers, directory, diagnostics)).collect();
    let (functions, chains, tenants) = (Vec::new(), Vec::new(), Vec::new());
    let plan = Plan { ports, functions, chains, tenants, runtime, control };
    plan.check_placement(diagnostics);
    plan.check_files(directory, diagnostics);
    plan.check_devices(drivers, diagnostics);
    plan
}

/// The large frames that a pool needs for its ports, as far as that is known before they are opened.
fn large_frames<'p, 't: 'p>(
    runtime: &RuntimeSettings,
    mut ports: impl Iterator<Item = &'p PlannedPort<'t>>,
) -> usize {
    let brings = |port: &PlannedPort<'_>| port.brings_large_packets();
    runtime.large_frames.unwrap_or_else(|| if ports.any(brings) { frames::RESERVED } else { 0 })
}

impl Plan<'_> {
    /// The number of large frames in the pool.
    ///
    /// The file's number, or else the reserve if a port may bring packets that need them.
    pub(crate) fn large_frames(&self) -> usize {
        large_frames(&self.runtime, self.ports.iter())
    }

    /// The ports for which large frames are reserved although the file does not ask for any.
    pub(crate) fn large_ports(&self) -> Vec<&str> {
        let ports = self.ports.iter().filter(|port| port.brings_large_packets());
        if self.runtime.large_frames.is_some() {
            Vec::new()
        } else {
            ports.map(|port| port.name.as_str()).collect()
        }
    }
}

/// Checks a port's table as far as that is possible without opening it.
fn plan_port<'t>(
    entry: &Entry<'t>,
    drivers: &Drivers,
    directory: &Path,
    diagnostics: &mut Diagnostics,
) -> PlannedPort<'t> {
    let name = entry.name.get_ref();
    let kind = entry.kind.as_ref();
    let mut configured = None;
    if let Some(kind) = kind {
        match drivers.get(kind.get_ref()) {
            None => diagnostics.push(
                Diagnostic::error(format!("driver `{}` does not exist", kind.get_ref())).meant(
                    kind.span(),
                    kind.get_ref(),
                    drivers.iter().map(|driver| driver.name).collect::<Vec<_>>(),
                ),
            ),
            Some(driver) => {
                let (what, keys) = (format!("port `{name}`"), port_keys(driver));
                // Told also where other keys are wrong.
                let refused = RefCell::new(Vec::new());
                configured = configure(&what, &entry.settings, diagnostics, &keys, |table| {
                    let port = driver.read(name, table)?;
                    *refused.borrow_mut() = port.check(directory);
                    Ok(port)
                });
                for error in refused.into_inner() {
                    diagnostics.push(refusal(&error, &entry.settings));
                }
            }
        }
    }
    PlannedPort {
        name: name.clone(),
        place: entry.name.span(),
        driver: kind.map(|kind| kind.get_ref().clone()).unwrap_or_default(),
        driver_place: kind.map_or(entry.settings.span(), Spanned::span),
        workers: entry.workers.clone().unwrap_or_default(),
        written: written(entry.settings.get_ref(), None, &entry.originals),
        settings: entry.settings.clone(),
        configured,
        can_transmit: true,
        receives: None,
        transmits: None,
    }
}

impl PlannedPort<'_> {
    /// Whether it may bring packets that only a large frame takes.
    fn brings_large_packets(&self) -> bool {
        let small = frames::small_packet();
        self.configured.as_ref().is_some_and(|port| port.brings_large_packets(small))
    }

    /// Whether a chain names it.
    fn is_used(&self) -> bool {
        self.receives.is_some() || self.transmits.is_some()
    }

    /// The error where a chain needs a direction that the port does not have.
    pub fn one_way(&self, receives: bool, transmits: bool) -> Option<Diagnostic> {
        let (place, wanted, has) = match (&self.receives, &self.transmits) {
            (Some(place), _) if !receives => (place, "receives from", "sends"),
            (_, Some(place)) if !transmits => (place, "sends to", "receives"),
            _ => return None,
        };
        let asked = Diagnostic::error(format!("a chain {wanted} port `{}`, which only {has}", self.name));
        let set_up = format!("set up like this, `{}` only {has}", self.driver);
        Some(asked.at(place.clone(), "").at(self.driver_place.clone(), set_up))
    }
}

/// The keys of a port with this driver, beside `driver` itself.
pub fn port_keys(driver: &Driver) -> Vec<Key> {
    driver.keys.iter().chain(COMMON_KEYS).copied().chain([PLACEMENT]).collect()
}

/// The key that every port has for its place among the workers.
pub const PLACEMENT: Key = Key {
    name: "workers",
    kind: "list of worker numbers, from 0",
    default: Some("in turn"),
    summary: "On which worker each receive queue is, queue by queue.",
};

/// A port's error at the key that it is about, or else at the port's header.
pub fn refusal(error: &PortError, settings: &Spanned<DeTable<'_>>) -> Diagnostic {
    let text_at = |text: &str| {
        settings.get_ref().iter().find_map(|(_, value)| {
            let written = value.get_ref().as_str()?;
            (!written.is_empty() && text.ends_with(written)).then(|| value.span())
        })
    };
    let (place, label) = match error {
        PortError::Setting { key, .. } => (settings.get_ref().get(*key).map(Spanned::span), String::new()),
        PortError::NoDevice { device, suggestion, .. } => {
            let label = suggestion.as_ref().map(|name| format!("did you mean `{name}`?")).unwrap_or_default();
            (text_at(device), label)
        }
        PortError::File { path, .. } => (text_at(path), String::new()),
        PortError::Steer { reason, .. } => rule_at(reason, settings),
        _ => (None, String::new()),
    };
    let message = match error {
        PortError::NoDevice { port, device, .. } => {
            format!("port `{port}`: there is no network interface `{device}`")
        }
        error => error.to_string(),
    };
    let diagnostic = Diagnostic::error(message).at(place.unwrap_or_else(|| settings.span()), label);
    let wrong_file = match error {
        PortError::Setting { .. } => true,
        PortError::Steer { reason, .. } => !matches!(reason, Unsteerable::System { .. }),
        _ => false,
    };
    Diagnostic { machine: !wrong_file, ..diagnostic }
}

/// The place of a steering rule's fault, and how to mend it.
///
/// The place is that of the queue's number where a rule names a queue that does not exist, and else that of
/// the list.
fn rule_at(reason: &Unsteerable, settings: &Spanned<DeTable<'_>>) -> (Option<Range<usize>>, String) {
    let Some(list) = settings.get_ref().get("steer") else { return (None, String::new()) };
    let Unsteerable::NoQueue { rule, queues, .. } = reason else { return (Some(list.span()), String::new()) };
    let queue = list.get_ref().get(*rule).and_then(|rule| rule.get_ref().get("queue"));
    // A generator has no more queues than flows.
    let flows = settings.get_ref().get("flows").and_then(|flows| flows.get_ref().as_integer());
    let flows = flows.and_then(|flows| usize::from_str_radix(flows.as_str(), flows.radix()).ok());
    let more = if flows == Some(*queues) { "`flows`" } else { "`workers` in `[runtime]`" };
    let label = match queues {
        1 => format!("name queue 0, or have more {more}"),
        _ => format!("name one of queues 0 to {}, or have more {more}", queues - 1),
    };
    (Some(queue.map_or(list.span(), Spanned::span)), label)
}

struct Resolver<'t, 'a> {
    registry: &'a Registry,
    directory: &'a Path,
    entries: &'a [Entry<'t>],
    ports: Vec<PlannedPort<'t>>,
    numbers: BTreeMap<String, Option<usize>>,
    functions: Vec<PlannedFunction>,
    /// Every name in `through` and `from`, whether it exists or not.
    mentioned: Vec<String>,
    /// The names of tenants.
    tenants: Vec<String>,
    diagnostics: &'a mut Diagnostics,
}

impl Resolver<'_, '_> {
    fn chains(&mut self, entries: &[ChainEntry]) -> Vec<PlannedChain> {
        let mut chains: Vec<PlannedChain> = Vec::with_capacity(entries.len());
        let mut names: BTreeMap<String, Range<usize>> = BTreeMap::new();
        // Functions first: a chain may begin at a function that only a later chain passes through.
        let through: Vec<Vec<(Option<usize>, Range<usize>)>> = entries
            .iter()
            .map(|entry| {
                let number = |name: &Spanned<String>| (self.function(name, entry.tenant), name.span());
                entry.through.iter().map(number).collect()
            })
            .collect();
        for (entry, through) in entries.iter().zip(through) {
            let origin = self.origin(&entry.from, entry.tenant);
            let to = self.port(&entry.to, "sends to", entry.tenant);
            if let Some(to) = to {
                self.ports[to].transmits.get_or_insert(entry.to.span());
            }
            if let Some(Origin::Port(port)) = origin {
                self.ports[port].receives.get_or_insert(entry.from.span());
            }
            let Some(origin) = origin else { continue };
            let same = |chain: &&PlannedChain| chain.origin == origin && chain.tenant == entry.tenant;
            if let Some(first) = chains.iter().find(same) {
                let what = match &origin {
                    Origin::Port(_) => format!("two chains receive from port `{}`", entry.from.get_ref()),
                    Origin::Output { .. } => format!("`{}` is connected twice", entry.from.get_ref()),
                };
                self.diagnostics.push(
                    Diagnostic::error(what)
                        .at(entry.from.span(), "connected again here")
                        .at(first.from_place.clone(), "connected here already")
                        .help("a packet can go one way only: take one of the chains out"),
                );
                continue;
            }
            let name = match &entry.name {
                Some(name) => {
                    if let Some(first) = names.insert(name.get_ref().clone(), name.span()) {
                        self.diagnostics.push(
                            Diagnostic::error(format!("two chains are named `{}`", name.get_ref()))
                                .at(name.span(), "named here")
                                .at(first, "and here: rename one"),
                        );
                    }
                    name.get_ref().clone()
                }
                None => {
                    let name = format!("{}-{}", entry.from.get_ref().replace('.', "-"), entry.to.get_ref());
                    self.qualified(entry.tenant, &name)
                }
            };
            if to.is_none() {
                continue;
            }
            let Some(through) =
                through.into_iter().map(|(number, place)| Some((number?, place))).collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            chains.push(PlannedChain {
                name,
                origin,
                from_place: entry.from.span(),
                through,
                to,
                to_place: entry.to.span(),
                tenant: entry.tenant,
            });
        }
        self.distinct_names(&mut chains);
        chains
    }

    /// Renames chains that the file gives no name, so that each chain has its own name.
    fn distinct_names(&self, chains: &mut [PlannedChain]) {
        for i in 1..chains.len() {
            let wanted = chains[i].name.clone();
            let mut name = wanted.clone();
            let mut number = 2;
            while chains[..i].iter().any(|chain| chain.name == name) {
                name = format!("{wanted}-{number}");
                number += 1;
            }
            chains[i].name = name;
        }
    }

    /// A name as the operator has it.
    fn qualified(&self, tenant: Option<usize>, name: &str) -> String {
        qualified(tenant.map(|number| self.tenants[number].as_str()), name)
    }

    fn origin(&mut self, from: &Spanned<String>, tenant: Option<usize>) -> Option<Origin> {
        let Some((function, output)) = from.get_ref().split_once('.') else {
            return self.port(from, "receives from", tenant).map(Origin::Port);
        };
        let defined = self.registry.get(function).is_some();
        let function = self.qualified(tenant, function);
        let function = function.as_str();
        self.mentioned.push(function.to_owned());
        let place = from.span();
        match self.functions.iter().position(|known| known.name == function) {
            Some(number) => Some(Origin::Output { function: number, output: output.to_owned() }),
            None if self.numbers.get(function) == Some(&None) => None,
            None if self.entries.iter().any(|entry| entry.name.get_ref() == function) || defined => {
                self.diagnostics.push(
                    Diagnostic::error(format!("no chain passes through function `{function}`"))
                        .at(place, "so nothing leaves it here"),
                );
                None
            }
            None => {
                let known: Vec<_> = self.functions.iter().map(|known| known.name.clone()).collect();
                self.diagnostics.push(
                    Diagnostic::error(format!("function `{function}` is not defined")).meant(
                        place,
                        function,
                        known.iter().map(String::as_str).collect::<Vec<_>>(),
                    ),
                );
                None
            }
        }
    }

    fn port(&mut self, name: &Spanned<String>, does: &str, tenant: Option<usize>) -> Option<usize> {
        let own = self.qualified(tenant, name.get_ref());
        let shared = || self.ports.iter().position(|port| port.name == *name.get_ref());
        // A port of another tenant has no name here.
        let number = self.ports.iter().position(|port| port.name == own).or_else(shared);
        if let Some(number) = number.filter(|_| !name.get_ref().contains(':')) {
            return Some(number);
        }
        let own = tenant.map(|number| self.tenants[number].as_str());
        let seen = |port: &&PlannedPort<'_>| {
            port.name.rsplit_once(':').is_none_or(|(tenant, _)| Some(tenant) == own)
        };
        let known: Vec<_> = self.ports.iter().filter(seen).map(|port| bare(&port.name)).collect();
        let mut diagnostic = Diagnostic::error(format!("port `{}` is not defined", name.get_ref())).meant(
            name.span(),
            name.get_ref(),
            known,
        );
        if self.registry.get(name.get_ref()).is_some() || self.entries.iter().any(|e| e.name == *name) {
            diagnostic.help = Some(format!(
                "`{}` is a function; a chain {does} a port, or starts at `function.output`",
                name.get_ref()
            ));
        } else if self.ports.is_empty() {
            diagnostic.help = Some(format!("add `[port.{}]` with its `driver`", name.get_ref()));
        }
        self.diagnostics.push(diagnostic);
        None
    }

    fn function(&mut self, name: &Spanned<String>, tenant: Option<usize>) -> Option<usize> {
        let kind = name.get_ref();
        let key = &self.qualified(tenant, kind);
        self.mentioned.push(key.clone());
        if let Some(number) = self.numbers.get(key).copied() {
            // A wrong table was reported once; an unknown name is reported at each place where it stands.
            if number.is_none()
                && self.registry.get(kind).is_none()
                && !self.entries.iter().any(|entry| entry.name.get_ref() == key)
            {
                self.undefined(name, tenant);
            }
            return number;
        }
        let entry = self.entries.iter().find(|entry| entry.name.get_ref() == key);
        let settings = entry
            .map(|entry| written(entry.settings.get_ref(), Some(self.directory), &entry.originals))
            .unwrap_or_default();
        let planned = match entry {
            Some(entry) => plan_function(entry, self.registry, self.directory, self.diagnostics),
            None => match self.registry.get(kind) {
                Some(definition) => {
                    let empty = Spanned::new(name.span(), DeTable::new());
                    configure(
                        &format!("function `{key}`"),
                        &empty,
                        self.diagnostics,
                        definition.keys,
                        |table| definition.configure(table, self.directory),
                    )
                    .map(|blueprint| (definition.name.to_owned(), blueprint))
                }
                None => {
                    self.undefined(name, tenant);
                    None
                }
            },
        };
        let policy = entry.and_then(|entry| entry.restart.as_ref());
        let restart = restart(policy, self.diagnostics);
        let mut settings = settings;
        settings.extend(policy.map(|policy| ("restart".into(), policy.get_ref().clone())));
        let number = planned.map(|(definition, blueprint)| {
            let blueprint = blueprint.restarting(restart);
            let blueprint = match tenant {
                Some(number) => blueprint.of_tenant(&self.tenants[number]),
                None => blueprint,
            };
            self.functions.push(PlannedFunction {
                name: key.clone(),
                definition,
                blueprint,
                settings,
                place: name.span(),
                owner: tenant.map_or(0, |number| number as u16 + 1),
            });
            self.functions.len() - 1
        });
        self.numbers.insert(key.clone(), number);
        number
    }

    fn undefined(&mut self, name: &Spanned<String>, tenant: Option<usize>) {
        let own = tenant.map(|number| self.tenants[number].as_str());
        let seen = |name: &str| name.rsplit_once(':').map(|(tenant, _)| tenant) == own;
        let known = self
            .entries
            .iter()
            .filter(|entry| seen(entry.name.get_ref()))
            .map(|entry| bare(entry.name.get_ref()))
            .chain(self.registry.iter().map(|definition| definition.name))
            .collect::<Vec<_>>();
        self.diagnostics.push(
            Diagnostic::error(format!("function `{}` is not defined", name.get_ref())).meant(
                name.span(),
                name.get_ref(),
                known,
            ),
        );
    }
}

/// The policy that a function's `restart` names.
fn restart(named: Option<&Spanned<String>>, diagnostics: &mut Diagnostics) -> RestartPolicy {
    const POLICIES: [&str; 3] = ["always", "back-off", "never"];
    let Some(named) = named else { return RestartPolicy::Always };
    match named.get_ref().as_str() {
        "always" => RestartPolicy::Always,
        "back-off" => RestartPolicy::BackOff,
        "never" => RestartPolicy::Never,
        other => {
            let error = Diagnostic::error(format!("`restart` has no value `{other}`"));
            diagnostics.push(error.meant(named.span(), other, POLICIES));
            RestartPolicy::Always
        }
    }
}

/// The registered function behind a function's table, and the blueprint of its node.
fn plan_function(
    entry: &Entry<'_>,
    registry: &Registry,
    directory: &Path,
    diagnostics: &mut Diagnostics,
) -> Option<(String, Blueprint)> {
    let name = entry.name.get_ref();
    let (kind, place) = match &entry.kind {
        Some(kind) => (kind.get_ref(), kind.span()),
        None => (&bare(name).to_owned(), entry.name.span()),
    };
    let Some(definition) = registry.get(kind) else {
        let known: Vec<_> = registry.iter().map(|definition| definition.name).collect();
        diagnostics.push(match &entry.kind {
            Some(_) => Diagnostic::error(format!("there is no function `{kind}`")).meant(place, kind, known),
            None => Diagnostic::error(format!("function `{name}` lacks the key `use`"))
                .at(entry.settings.span(), "add `use = \"…\"`, one of `netbricks functions`"),
        });
        return None;
    };
    let blueprint =
        configure(&format!("function `{name}`"), &entry.settings, diagnostics, definition.keys, |table| {
            definition.configure(table, directory)
        })?;
    for ConfigWarning { key, item, problem } in blueprint.warnings() {
        let value = entry.settings.get_ref().get(*key);
        let item = value.zip(*item).and_then(|(value, item)| value.get_ref().get(item));
        let place = item.or(value).map_or(entry.settings.span(), Spanned::span);
        diagnostics
            .push(Diagnostic::warning(format!("`{key}` of function `{name}`: {problem}")).at(place, ""));
    }
    Some((definition.name.to_owned(), blueprint))
}

fn unused(
    ports: &[PlannedPort<'_>],
    functions: &[Entry<'_>],
    mentioned: &[String],
    registry: &Registry,
    directory: &Path,
    diagnostics: &mut Diagnostics,
) {
    // A table that no chain names is checked, too.
    let idle: Vec<_> = functions.iter().filter(|entry| !mentioned.contains(entry.name.get_ref())).collect();
    for entry in &idle {
        plan_function(entry, registry, directory, diagnostics);
    }
    // In a broken chain it is unknown which functions are used, so its own error comes first.
    if diagnostics.has_errors() {
        return;
    }
    for entry in idle {
        diagnostics.push(
            Diagnostic::warning(format!("function `{}` is in no chain", entry.name.get_ref()))
                .at(entry.name.span(), "never used"),
        );
    }
    for port in ports.iter().filter(|port| !port.is_used()) {
        diagnostics.push(
            Diagnostic::warning(format!("port `{}` is in no chain", port.name))
                .at(port.place.clone(), "never opened"),
        );
    }
}

/// Reports chains that form a loop: out of a function by another way, and into it again.
fn loops(functions: &[PlannedFunction], chains: &[PlannedChain], diagnostics: &mut Diagnostics) {
    let starts_at = |chain: &PlannedChain| match chain.origin {
        Origin::Output { function, .. } => Some(function),
        Origin::Port(_) => None,
    };
    for (i, chain) in chains.iter().enumerate() {
        let Some(function) = starts_at(chain) else { continue };
        // Everything that can be reached from this chain; each chain is entered once.
        let mut reached = vec![false; chains.len()];
        let mut next = vec![i];
        while let Some(here) = next.pop() {
            if std::mem::replace(&mut reached[here], true) {
                continue;
            }
            if let Some((_, place)) = chains[here].through.iter().find(|(number, _)| *number == function) {
                let name = &functions[function].name;
                diagnostics.push(
                    Diagnostic::error(format!("what leaves `{name}` here comes back to `{name}`"))
                        .at(chain.from_place.clone(), "leaves")
                        .at(place.clone(), "comes back: packets would go round")
                        .help(format!(
                            "let the chain pass through another function: `[function.NAME]` with `use = \"{}\"`",
                            functions[function].definition
                        )),
                );
                break;
            }
            for (number, _) in &chains[here].through {
                next.extend((0..chains.len()).filter(|other| starts_at(&chains[*other]) == Some(*number)));
            }
        }
    }
}

impl Plan<'_> {
    /// Removes the ports that no chain names: they were checked, but will not be opened.
    fn forget_unused_ports(&mut self) {
        let mut renumbered = Vec::with_capacity(self.ports.len());
        let mut kept = 0;
        for port in &self.ports {
            renumbered.push(port.is_used().then_some(kept));
            kept += usize::from(port.is_used());
        }
        self.ports.retain(PlannedPort::is_used);
        for chain in &mut self.chains {
            // A chain's ports are never unused.
            chain.to = chain.to.and_then(|to| renumbered[to]);
            if let Origin::Port(port) = &mut chain.origin {
                *port = renumbered[*port].unwrap_or_default();
            }
        }
    }
}
