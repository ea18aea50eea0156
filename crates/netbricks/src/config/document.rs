//! The shape of a configuration file: its tables and the names in them. Nothing is looked up yet.

use std::ops::Range;

use netbricks_core::{Key, Settings};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::contents::Originals;
use super::control::ControlSettings;
use super::fields::{Fields, bad_name, is_name, named_tables, type_name};
use super::instances;
use super::runtime::RuntimeSettings;
use super::settings::configure;
use super::tenants::{self, TenantEntry, TenantSettings, qualified};
use super::unclosed;
use crate::diagnostic::{Diagnostic, Diagnostics};

/// A file that is TOML of the right shape.
#[derive(Debug, Default)]
pub struct Document<'t> {
    /// `[port.NAME]`, in the order of the file.
    pub ports: Vec<Entry<'t>>,
    /// `[function.NAME]`, in the order of the file.
    pub functions: Vec<Entry<'t>>,
    /// `[[chain]]`, in the order of the file.
    pub chains: Vec<ChainEntry>,
    /// `[tenant.NAME]`, in the order of the file.
    pub tenants: Vec<TenantEntry>,
    /// `[runtime]`.
    pub runtime: RuntimeSettings,
    /// `[control]`.
    pub control: ControlSettings,
}

/// A port's or function's table.
#[derive(Debug)]
pub struct Entry<'t> {
    /// The NAME of `[port.NAME]`.
    pub name: Spanned<String>,
    /// The value of its `driver` or `use`.
    pub kind: Option<Spanned<String>>,
    /// The workers of a port's queues, queue by queue; only ports have this key.
    pub workers: Option<Vec<Spanned<usize>>>,
    /// The policy of a function after a panic; only functions have this key.
    pub restart: Option<Spanned<String>>,
    /// All other keys; the span is that of the table's header.
    pub settings: Spanned<DeTable<'t>>,
    /// The names in the file, by those that stand for them in the settings.
    pub originals: Originals,
}

/// One `[[chain]]`.
#[derive(Debug)]
pub struct ChainEntry {
    /// `[[chain]]` itself.
    pub header: Range<usize>,
    /// Its name, where it has one.
    pub name: Option<Spanned<String>>,
    /// `"lan"`, a port, or `"flows.other"`, another way out of a function.
    pub from: Spanned<String>,
    /// Names of functions.
    pub through: Vec<Spanned<String>>,
    /// `"wan"`, a port.
    pub to: Spanned<String>,
    /// The tenant whose chain it is, by its number in the document; `None` for the operator.
    pub tenant: Option<usize>,
}

const SECTIONS: &[&str] = &["port", "function", "instance", "chain", "tenant", "runtime", "control"];
const CHAIN_KEYS: &[&str] = &["name", "from", "through", "to"];

/// Reads a text. It never fails: it reports every fault and returns the rest.
pub fn parse<'t>(text: &'t str, diagnostics: &mut Diagnostics) -> Document<'t> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // All further errors would only follow from the broken table.
        syntax(text, &errors, diagnostics);
        return Document::default();
    }
    let root_span = 0..text.find('\n').unwrap_or(text.len());
    let mut root = Fields::new("the file", Spanned::new(root_span, root.into_inner()), diagnostics);
    let (port, function) = (root.take("port"), root.take("function"));
    let (chain, runtime, control) = (root.take("chain"), root.take("runtime"), root.take("control"));
    let (tenant, instance) = (root.take("tenant"), root.take("instance"));
    root.finish(SECTIONS);

    let mut ports = ports(port, None, diagnostics);
    let mut functions = functions(function, None, diagnostics);
    let mut chains = chains(chain, None, diagnostics);
    instances::attach(instance, &mut functions, &chains, diagnostics);
    let mut tenants = Vec::new();
    for (name, table) in named_tables(tenant, "tenant", diagnostics) {
        let mut fields = Fields::new(format!("tenant `{}`", name.get_ref()), table, diagnostics);
        let (port, function, chain) = (fields.take("port"), fields.take("function"), fields.take("chain"));
        let settings = fields.rest();
        let scope = Some((tenants.len(), name.get_ref().as_str()));
        ports.extend(self::ports(port, scope, diagnostics));
        functions.extend(self::functions(function, scope, diagnostics));
        chains.extend(self::chains(chain, scope, diagnostics));
        tenants.push(tenant_entry(name, &settings, diagnostics));
    }
    instances::check_owners(&functions, &tenants, diagnostics);
    let runtime = section("runtime", runtime, diagnostics, RuntimeSettings::keys());
    let control = section("control", control, diagnostics, ControlSettings::keys());
    Document { ports, functions, chains, tenants, runtime, control }
}

/// A tenant by its number in the document and its name.
type Scope<'n> = Option<(usize, &'n str)>;

/// The name of a table's entry, with that of its tenant.
fn in_scope(scope: Scope<'_>, name: &Spanned<String>) -> Spanned<String> {
    Spanned::new(name.span(), qualified(scope.map(|(_, tenant)| tenant), name.get_ref()))
}

fn ports<'t>(
    section: Option<Spanned<DeValue<'t>>>,
    scope: Scope<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<Entry<'t>> {
    let mut entries = Vec::new();
    for (name, table) in named_tables(section, "port", diagnostics) {
        let name = in_scope(scope, &name);
        let mut fields = Fields::new(format!("port `{}`", name.get_ref()), table, diagnostics);
        let kind = fields.required_text("driver", "one of `netbricks ports`");
        let workers = fields.numbers("workers", "[0, 1]");
        let settings = fields.rest();
        entries.push(Entry { name, kind, workers, restart: None, settings, originals: Originals::new() });
    }
    entries
}

fn functions<'t>(
    section: Option<Spanned<DeValue<'t>>>,
    scope: Scope<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<Entry<'t>> {
    let mut entries = Vec::new();
    for (name, table) in named_tables(section, "function", diagnostics) {
        let is_named_sandbox = name.get_ref() == "sandbox";
        let name = in_scope(scope, &name);
        let mut fields = Fields::new(format!("function `{}`", name.get_ref()), table, diagnostics);
        let kind = fields.text("use");
        let restart = fields.text("restart");
        let mut settings = fields.rest();
        // Without `use`, a table is of the function of its name.
        let is_sandbox = kind.as_ref().map_or(is_named_sandbox, |kind| kind.get_ref() == "sandbox");
        if let Some((_, tenant)) = scope.filter(|_| is_sandbox) {
            tenants::enclose(tenant, &mut settings, diagnostics);
        }
        entries.push(Entry { name, kind, workers: None, restart, settings, originals: Originals::new() });
    }
    entries
}

fn tenant_entry(
    name: Spanned<String>,
    table: &Spanned<DeTable<'_>>,
    diagnostics: &mut Diagnostics,
) -> TenantEntry {
    let what = format!("tenant `{}`", name.get_ref());
    let settings = configure(&what, table, diagnostics, TenantSettings::keys(), |table| {
        netbricks_core::read_settings::<TenantSettings>(table, None)
    });
    let addresses = table.get_ref().get("addresses").and_then(|list| list.get_ref().as_array());
    let places = addresses.into_iter().flat_map(|list| list.iter().map(Spanned::span)).collect();
    TenantEntry { name, settings: settings.unwrap_or_default(), places }
}

/// The settings of a table that stands once in the file; the defaults where it is not there or wrong.
fn section<S: Settings + Default>(
    name: &str,
    value: Option<Spanned<DeValue<'_>>>,
    diagnostics: &mut Diagnostics,
    keys: &[Key],
) -> S {
    match value.map(|value| (value.span(), value.into_inner())) {
        None => S::default(),
        Some((span, DeValue::Table(table))) => {
            let what = format!("`[{name}]`");
            let table = Spanned::new(span, table);
            configure(&what, &table, diagnostics, keys, |table| {
                netbricks_core::read_settings::<S>(table, None)
            })
            .unwrap_or_default()
        }
        Some((span, other)) => {
            diagnostics.push(
                Diagnostic::error(format!("`{name}` is {}", type_name(&other)))
                    .at(span, format!("expected a table: write `[{name}]`")),
            );
            S::default()
        }
    }
}

fn chains(
    section: Option<Spanned<DeValue<'_>>>,
    scope: Scope<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<ChainEntry> {
    let Some(section) = section else { return Vec::new() };
    let span = section.span();
    let DeValue::Array(items) = section.into_inner() else {
        diagnostics.push(Diagnostic::error("`chain` is not a list of chains").at(span, "write `[[chain]]`"));
        return Vec::new();
    };
    let mut chains = Vec::with_capacity(items.len());
    for item in items {
        let header = item.span();
        let DeValue::Table(table) = item.into_inner() else {
            diagnostics
                .push(Diagnostic::error("`chain` is not a list of chains").at(header, "write `[[chain]]`"));
            continue;
        };
        let mut fields = Fields::new("the chain", Spanned::new(header.clone(), table), diagnostics);
        let name = fields.text("name");
        let from = fields.required_text("from", "the port that it receives from");
        let through = fields.texts("through", "[\"ttl\"]");
        let to = fields.required_text("to", "the port that it sends to");
        fields.finish(CHAIN_KEYS);
        let name = name.filter(|name| {
            let good = is_name(name.get_ref());
            if !good {
                diagnostics.push(bad_name("chain", name));
            }
            good
        });
        let (name, tenant) = (name.map(|name| in_scope(scope, &name)), scope.map(|(number, _)| number));
        if let (Some(from), Some(to)) = (from, to) {
            chains.push(ChainEntry { header, name, from, through, to, tenant });
        }
    }
    chains
}

/// A key or a table that stands a second time.
fn twice(text: &str, span: Range<usize>) -> Diagnostic {
    let named = text.get(span.clone()).unwrap_or_default();
    let second = line_at(text, span.start);
    // A table of the file's is said with its kind, as `[tenant.acme]` is the tenant `acme`.
    let kind = header(&text[second.clone()]).and_then(|parts| match parts.as_slice() {
        [.., kind, name] if *name == named => KINDS.iter().find(|known| *known == kind),
        _ => None,
    });
    let said = kind.map_or_else(|| format!("`{named}`"), |kind| format!("{kind} `{named}`"));
    let found = Diagnostic::error(format!("{said} is given twice")).at(span.clone(), "the second of them");
    match first_of(text, named, &second) {
        Some(first) => found.at(first, "the first: join them, or take one out"),
        None => found,
    }
}

/// The kinds of tables that have a name.
const KINDS: [&str; 4] = ["tenant", "port", "function", "instance"];

/// The line at a place of the text.
fn line_at(text: &str, place: usize) -> Range<usize> {
    let place = place.min(text.len());
    let begin = text[..place].rfind('\n').map_or(0, |end| end + 1);
    let end = text[place..].find('\n').map_or(text.len(), |end| place + end);
    begin..end
}

/// The parts of a table's header, such as `[tenant.acme]`.
fn header(line: &str) -> Option<Vec<&str>> {
    let line = line.trim_start();
    let inside = line.strip_prefix('[').filter(|line| !line.starts_with('['))?.split(']').next()?;
    Some(inside.split('.').map(|part| part.trim().trim_matches(['"', '\''])).collect())
}

/// The place of the header or key that the line at `second` gives again.
fn first_of(text: &str, named: &str, second: &Range<usize>) -> Option<Range<usize>> {
    let again = header(&text[second.clone()]);
    let mut first = None;
    let mut begin = 0;
    for line in text[..second.start].split_inclusive('\n') {
        let place = begin;
        begin += line.len();
        let is_table = line.trim_start().starts_with('[');
        let is_it = match &again {
            Some(parts) => header(line).as_ref() == Some(parts),
            None => {
                // A key of an earlier table is another.
                first = first.filter(|_| !is_table);
                let key = line.split_once('=').map(|(key, _)| key.trim());
                key.is_some_and(|key| key.trim_matches(['"', '\'']) == named.trim_matches(['"', '\'']))
            }
        };
        if is_it && first.is_none() {
            let at = if again.is_some() { line.rfind(named) } else { line.find(named) };
            first = at.map(|at| place + at..place + at + named.len());
        }
    }
    first
}

/// Reports the TOML parser's errors, but only the first of each line.
///
/// Later errors on a line follow from the first. So do errors behind a bracket or quote that is not closed.
fn syntax(text: &str, errors: &[toml::de::Error], diagnostics: &mut Diagnostics) {
    let mut places: Vec<_> =
        errors.iter().map(|error| (error.span().unwrap_or(0..0), error.message())).collect();
    places.sort_by_key(|(span, _)| span.start);
    let line = |span: &Range<usize>| {
        text.as_bytes()[..span.start.min(text.len())].iter().filter(|b| **b == b'\n').count()
    };
    places.dedup_by_key(|(span, _)| line(span));
    for unclosed in unclosed::all(text) {
        let opens = line(&unclosed.span);
        places.retain(|(span, _)| line(span) < opens || unclosed.one_line && line(span) > opens);
        diagnostics.push(unclosed.diagnostic(text));
    }
    for (span, message) in places {
        let (message, label) = match message.split_once(", expected ") {
            Some((found, "nothing")) => (found, "take this out".to_owned()),
            Some((found, expected)) => (found, format!("expected {expected}")),
            None => (message, String::new()),
        };
        let named = text.get(span.clone()).unwrap_or_default();
        let diagnostic = match message {
            "duplicate key" => twice(text, span),
            "string values must be quoted" if named.trim().is_empty() => {
                Diagnostic::error("a value is missing").at(span, "write text in quotes, a number, a list")
            }
            "string values must be quoted" => Diagnostic::error("text must stand in quotes")
                .at(span, format!("write `\"{}\"`", named.trim())),
            message => Diagnostic::error(format!("this is not TOML: {message}")).at(span, label),
        };
        diagnostics.push(diagnostic);
    }
}
