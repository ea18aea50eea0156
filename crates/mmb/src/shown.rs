//! Answers to `list`, `show`, `explain` and `expect`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use netbricks_core::StoredFlow;
use netbricks_core::packet::stack::LengthSlack;
use netbricks_core::tables::FlowTable;
use netbricks_core::tables::classifier::Matches;

use crate::change::{Over, Planned, plan, plan_over};
use crate::compile::{CompileError, Conditions, Names, compile};
use crate::connection::Connection;
use crate::described;
use crate::field::{FieldId, Kind};
use crate::key::{Filling, KeyLayout, Located};
use crate::language::parse_rule;
use crate::rule::{Atom, Command, Comparison, DescribedPacket, Match, Mode, Rule, Shown, Value};
use crate::rules::{RuleData, Rules};
use crate::state::tried;

/// Rules that did not match, of which an explanation says why.
const NEARLY: usize = 20;

/// The answer to lines that changed rules: warnings, what was added, and the answers to questions among them.
///
/// # Errors
/// An `expect` that does not hold.
pub(crate) fn answer(rules: &Rules, planned: &Planned) -> Result<String, String> {
    let mut text = String::new();
    for (line, warning) in &planned.warnings {
        // Text takes any text.
        let _ = writeln!(text, "line {line}: {warning}");
    }
    for (line, question) in &planned.questions {
        let answer = one(rules, question).map_err(|problem| format!("line {line}: {problem}"))?;
        text += &answer;
    }
    match (&planned.edits[..], &planned.added[..]) {
        ([], _) => {}
        (_, [place]) if planned.changes() == 1 => {
            let _ = writeln!(text, "rule {place} of {}", rules.len());
        }
        (_, _) => {
            let _ = writeln!(text, "{} changes, {} rules", planned.changes(), rules.len());
        }
    }
    Ok(text)
}

/// Says what lines would change, as `run` or `replace` does, and changes nothing.
///
/// # Errors
/// Every wrong line, or the want of room.
pub(crate) fn check(rules: &Rules, text: &str, over: Over) -> Result<String, String> {
    let planned = plan_over(rules, text, over)?;
    tried(rules, &planned)?;
    let mut text = String::new();
    for (line, warning) in &planned.warnings {
        let _ = writeln!(text, "line {line}: {warning}");
    }
    let _ = writeln!(text, "{} changes", planned.changes());
    Ok(text)
}

/// Answers questions, one a line.
///
/// # Errors
/// A line that is wrong or changes something, or an `expect` that does not hold.
pub(crate) fn ask(rules: &Rules, text: &str) -> Result<String, String> {
    let planned = plan(rules, text)?;
    if !planned.edits.is_empty() {
        return Err("the line changes rules: it is a command for `run`".into());
    }
    answer(rules, &planned)
}

fn one(rules: &Rules, question: &Command) -> Result<String, String> {
    match question {
        Command::List => Ok(list(rules)),
        Command::Show(Shown::Tables, verbose) => Ok(tables(rules, *verbose)),
        Command::Show(Shown::Sets, verbose) => Ok(sets(rules, *verbose)),
        Command::Show(Shown::Fields, _) => Ok(fields()),
        Command::Show(Shown::Connections, _) => {
            Err("connections are each worker's: call the handler `connections`".into())
        }
        Command::Explain(packet) => explain(rules, packet),
        Command::Expect(packet, drops) => expect(rules, packet, *drops),
        Command::Test(_) => Err("a capture is read where it lies: `netbricks mmb test`".into()),
        _ => Ok(String::new()),
    }
}

/// The rules with their counts, one a line.
fn list(rules: &Rules) -> String {
    let mut text = String::new();
    for (place, rule) in rules.iter().enumerate() {
        let [packets, bytes, ..] = rule.totals();
        let name = rule.name.as_deref().map_or(String::new(), |name| format!("name {name} "));
        let _ = writeln!(text, "{:>6}  {packets:>12}  {bytes:>15}  {name}{}", place + 1, rule.text);
    }
    if rules.mode == Mode::AllMatch {
        text += "mode all-match\n";
    }
    if rules.drops_by_default {
        text += "policy drop\n";
    }
    text
}

/// The rules with their counts, as JSON.
pub(crate) fn list_json(rules: &Rules) -> String {
    let of = |(place, rule): (usize, &std::sync::Arc<RuleData>)| {
        let [packets, bytes, replies, not_applied, last] = rule.totals();
        serde_json::json!({
            "number": place + 1,
            "name": rule.name,
            "rule": rule.text,
            "stateful": rule.is_stateful,
            "packets": packets,
            "bytes": bytes,
            "replies": replies,
            "not_applied": not_applied,
            "last_ns": (last > 0).then_some(last),
        })
    };
    let rows: Vec<serde_json::Value> = rules.iter().enumerate().map(of).collect();
    serde_json::json!({
        "mode": if rules.mode == Mode::AllMatch { "all-match" } else { "ordered" },
        "policy": if rules.drops_by_default { "drop" } else { "accept" },
        "rules": rows,
    })
    .to_string()
}

/// The rows of one worker's report: rules that packets met.
pub(crate) fn report_rows(rules: &Rules, worker: usize) -> Vec<Vec<String>> {
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    let row = |(place, rule): (usize, &std::sync::Arc<RuleData>)| {
        let count = rule.counts.of(worker)?;
        let (packets, not_applied) = (read(&count.packets), read(&count.not_applied));
        let name = rule.name.as_deref().map_or_else(|| format!("{} {}", place + 1, rule.text), Into::into);
        (packets + not_applied > 0)
            .then(|| vec![name, packets.to_string(), read(&count.bytes).to_string(), not_applied.to_string()])
    };
    rules.iter().enumerate().filter_map(row).take(1_000).collect()
}

fn tables(rules: &Rules, verbose: bool) -> String {
    let mut text = String::new();
    let bytes = rules.classifier.bytes();
    let _ = writeln!(
        text,
        "{} rules, {} conditions, {} tables, {bytes} bytes",
        rules.len(),
        rules.classifier.len(),
        rules.classifier.tables().count()
    );
    if verbose {
        for (mask, entries) in rules.classifier.tables().map(|table| (table.mask, table.entries)) {
            let fields = rules.layout.named(&mask);
            let fields = if fields.is_empty() { "any packet".to_owned() } else { fields.join(" ") };
            let _ = writeln!(text, "{entries:>9}  {fields}");
        }
    }
    text
}

fn sets(rules: &Rules, verbose: bool) -> String {
    let mut text = String::new();
    for (name, values) in rules.sets() {
        if verbose {
            let _ = writeln!(text, "{}", Command::Define(name.clone(), values.to_vec()));
        } else {
            let _ = writeln!(text, "@{name}  {} values", values.len());
        }
    }
    text
}

fn fields() -> String {
    let mut text = String::new();
    for id in FieldId::all() {
        let info = id.info();
        let other = info.other_names.join(", ");
        let summary = crate::complete::summary(id);
        let _ = writeln!(text, "{:<30} {:<28} {summary}", info.name, other);
    }
    text
}

/// Connections that one answer has at most, and entries of the table that it looks at.
const MOST_CONNECTIONS: usize = 1_000;
const MOST_LOOKED_AT: usize = 1 << 18;

/// Connections of this worker behind so many entries of its table: so many of them, one a line.
///
/// From the first entry on it says how many there are. The last line says from which entry on there may be more.
/// The work is bounded, since packets wait meanwhile.
pub(crate) fn connections(
    rules: &Rules,
    table: &FlowTable<StoredFlow, Connection>,
    most: usize,
    from: usize,
) -> String {
    let (mut lines, mut shown, mut count) = (String::new(), 0, 0);
    let (mut next, mut all) = (None, true);
    for (at, (_, of)) in table.iter().enumerate().skip(from) {
        if at - from == MOST_LOOKED_AT || next.is_some() && from > 0 {
            (next, all) = (next.or(Some(at)), false);
            break;
        }
        if of.is_alias || !of.rules.iter().any(|rule| rules.live(*rule).is_some()) {
            continue;
        }
        count += 1;
        if shown == most.min(MOST_CONNECTIONS) {
            next = next.or(Some(at));
            continue;
        }
        shown += 1;
        let _ = write!(lines, "{}  {}", of.origin, of.progress.name());
        if of.translated != of.origin {
            let _ = write!(lines, "  as {}", of.translated);
        }
        lines.push('\n');
    }
    let mut text = match (from, all) {
        (0, true) => format!("{count} connections\n"),
        (0, false) => format!("at least {count} connections\n"),
        _ => String::new(),
    };
    text += &lines;
    if let Some(next) = next.filter(|_| most > 0) {
        let _ = writeln!(text, "more from {next}");
    }
    text
}

/// A packet that is asked about, with the numbers of its ports from 1; 0 is none.
struct Asked {
    frame: Vec<u8>,
    ports: (u16, u16),
    /// Its values of all fields, which have these places.
    key: Vec<u32>,
    layout: KeyLayout,
}

impl Asked {
    /// The described packet.
    ///
    /// # Errors
    /// An interface that is not there, or a field that the packet cannot be made with.
    fn of(rules: &Rules, packet: &DescribedPacket) -> Result<Self, String> {
        let frame = described::frame(packet)?;
        let fields: &[(FieldId, Atom)] = match packet {
            DescribedPacket::Fields(fields) => fields,
            DescribedPacket::Frame(_) => &[],
        };
        let mut ports = (0, 0);
        for (field, value) in fields {
            let port = match field.info().kind {
                Kind::In => &mut ports.0,
                Kind::Out => &mut ports.1,
                _ => continue,
            };
            let Atom::Interface(name) = value else { continue };
            *port = rules.port(name).ok_or_else(|| format!("there is no interface `{name}`"))?;
        }
        let located = Located::find(&frame, LengthSlack::default());
        let layout = KeyLayout::new();
        let filling = Filling::of(&layout, FieldId::all(), true, true);
        let mut key = vec![0; layout.layout().words()];
        filling.fill(&layout, &frame, &located, ports, &mut key);
        for (field, value) in fields.iter().filter(|(field, _)| !is_port(*field)) {
            let test = Some((Comparison::Equal, Value::Atom(value.clone())));
            let has = Match { is_negated: false, field: *field, test, span: 0..0 };
            let holds = match compile(&layout, std::slice::from_ref(&has), rules) {
                Ok(conditions) => holds(&conditions, &key),
                // More bytes than rules compare.
                Err(CompileError::TooManyBytes { .. }) => true,
                Err(error) => return Err(error.to_string()),
            };
            if !holds {
                return Err(format!(
                    "no packet is made with `{has}` here: describe it by `hex` and its bytes"
                ));
            }
        }
        Ok(Self { frame, ports, key, layout })
    }

    /// The name of its interface, where rules leave that alone.
    fn disabled<'r>(&self, rules: &'r Rules) -> Option<&'r str> {
        let (ingress, _) = self.ports;
        let is_disabled = ingress > 0 && rules.disabled.contains(&ingress);
        is_disabled.then(|| rules.setup.ports.name(ingress - 1).unwrap_or("this interface"))
    }

    /// Whether it is dropped, as a packet of no known connection.
    fn is_dropped(&self, rules: &Rules) -> bool {
        self.disabled(rules).is_none() && is_dropped(rules, &self.matching(rules))
    }

    fn matching(&self, rules: &Rules) -> Vec<usize> {
        if self.disabled(rules).is_some() {
            return Vec::new();
        }
        matching(rules, &self.frame, self.ports)
    }
}

fn is_port(field: FieldId) -> bool {
    matches!(field.info().kind, Kind::In | Kind::Out)
}

fn holds(conditions: &Conditions, key: &[u32]) -> bool {
    conditions.entries.iter().any(|all| all.iter().all(|one| one.holds(key)))
}

/// The rules that a frame of these ports matches, in order: their places from 0.
fn matching(rules: &Rules, frame: &[u8], ports: (u16, u16)) -> Vec<usize> {
    let located = Located::find(frame, LengthSlack::default());
    let mut key = vec![0; rules.layout.layout().words()];
    rules.filling.fill(&rules.layout, frame, &located, ports, &mut key);
    let mut found = Matches::default();
    rules.classifier.matches(&key, &mut found);
    found.rules().filter_map(|slot| rules.place(slot)).collect()
}

/// Whether a packet of no known connection that matches these rules is dropped.
fn is_dropped(rules: &Rules, matched: &[usize]) -> bool {
    let actions = || {
        let of = |place: &usize| rules.at(*place).map(|rule| rule.actions.iter());
        matched.iter().filter_map(of).flatten()
    };
    use crate::action::Action;
    match rules.mode {
        Mode::AllMatch => {
            let accepts = actions().any(|action| *action == Action::Accept);
            let drops = actions().any(|action| *action == Action::Drop);
            !accepts && (drops || rules.drops_by_default)
        }
        Mode::Ordered => match actions().find(|action| action.is_last()) {
            Some(action) => *action == Action::Drop,
            None => rules.drops_by_default,
        },
    }
}

/// Checks each `expect` among lines that were loaded.
///
/// # Errors
/// The first that does not hold.
pub(crate) fn expected(rules: &Rules, planned: &Planned) -> Result<(), String> {
    for (line, question) in &planned.questions {
        if let Command::Expect(packet, drops) = question {
            expect(rules, packet, *drops).map_err(|problem| format!("line {line}: {problem}"))?;
        }
    }
    Ok(())
}

fn expect(rules: &Rules, packet: &DescribedPacket, drops: bool) -> Result<String, String> {
    let asked = Asked::of(rules, packet)?;
    let names_ports = || match packet {
        DescribedPacket::Fields(fields) => fields.iter().any(|(field, _)| is_port(*field)),
        DescribedPacket::Frame(_) => false,
    };
    // In a file that is only checked, all names stand for one port.
    if rules.setup.ports.names.is_empty() && (names_ports() || rules.any_tests_ports()) {
        return Ok(String::new());
    }
    if asked.is_dropped(rules) == drops {
        return Ok(String::new());
    }
    let (wanted, found) = if drops { ("drop", "accept") } else { ("accept", "drop") };
    Err(format!("expected {wanted}, found {found}\n{}", explain(rules, packet)?))
}

fn explain(rules: &Rules, packet: &DescribedPacket) -> Result<String, String> {
    let asked = Asked::of(rules, packet)?;
    let matched = asked.matching(rules);
    let mut text = String::new();
    if let Some(name) = asked.disabled(rules) {
        return Ok(format!("rules leave packets from {name} alone, until `enable {name}`\naccept\n"));
    }
    for place in &matched {
        if let Some(rule) = rules.at(*place) {
            let _ = writeln!(text, "rule {} matches: {}", place + 1, rule.text);
        }
    }
    let mut nearly = 0;
    for (place, rule) in rules.iter().enumerate() {
        if matched.contains(&place) || nearly == NEARLY {
            continue;
        }
        let Ok(parsed) = parse_rule(&rule.text) else { continue };
        let holds = |given: &crate::rule::Match| {
            let alone = Rule { matches: vec![given.clone()], ..parsed.clone() };
            compile(&asked.layout, &alone.matches, rules)
                .is_ok_and(|conditions| self::holds(&conditions, &asked.key))
        };
        let failed: Vec<&crate::rule::Match> = parsed.matches.iter().filter(|given| !holds(given)).collect();
        if let [failed] = failed[..]
            && parsed.matches.len() > 1
        {
            nearly += 1;
            let _ = writeln!(text, "rule {} would match but for `{failed}`: {}", place + 1, rule.text);
        }
    }
    let verdict = if asked.is_dropped(rules) { "drop" } else { "accept" };
    let _ = writeln!(text, "{verdict}");
    Ok(text)
}

/// The ports of arrival and departure that packets may have, by their numbers from 1.
fn possible_ports(rules: &Rules) -> Vec<(u16, u16)> {
    const MOST: usize = 256;
    if !rules.any_tests_ports() {
        return vec![(0, 0)];
    }
    let ports = &rules.setup.ports;
    let departures: BTreeSet<u16> = ports.only_egress().map(|port| port.map_or(0, |port| port + 1)).collect();
    let arrivals = ports.names.iter().map(|(_, number)| number + 1);
    arrivals
        .flat_map(|arrival| departures.iter().map(move |departure| (arrival, *departure)))
        .take(MOST)
        .collect()
}

/// The sentence of a trace about a frame.
///
/// # Errors
/// Those of `why`.
pub(crate) fn why(rules: &Rules, frame: &[u8], why: &mut dyn std::fmt::Write) -> std::fmt::Result {
    // The frame alone does not say by which port it came or goes.
    let by_ports: BTreeSet<Vec<usize>> =
        possible_ports(rules).into_iter().map(|ports| matching(rules, frame, ports)).collect();
    let matched: BTreeSet<usize> = by_ports.iter().flatten().copied().collect();
    if matched.is_empty() {
        return why.write_str(if rules.drops_by_default {
            "no rule matches, and the policy drops"
        } else {
            "no rule matches"
        });
    }
    for (at, place) in matched.iter().take(4).enumerate() {
        let Some(rule) = rules.at(*place) else { continue };
        let before = if at == 0 { "" } else { "; " };
        let matches = match by_ports.iter().all(|matched| matched.contains(place)) {
            true => "matches",
            false => "matches where its ports are the packet's",
        };
        write!(why, "{before}rule {} {matches}: {}", place + 1, rule.text)?;
    }
    match matched.len().saturating_sub(4) {
        0 => Ok(()),
        more => write!(why, "; and {more} more"),
    }
}
