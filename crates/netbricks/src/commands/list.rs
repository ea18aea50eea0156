//! `functions`, `ports` and `reasons`: lists of functions, port drivers and drop reasons, and the details of one.

use netbricks_buffer::Pool;
use netbricks_core::{Definition, DropReason, Handler, HandlerSide, Key, NodeState, ShuffleKey, Worker};
use netbricks_ports::COMMON_KEYS;

use super::{Application, Console, Failure, ListArguments, ReasonArguments};
use crate::diagnostic::width;
use crate::report::{Align, Table};

/// Something that can be listed.
struct Item<'a> {
    name: &'a str,
    summary: &'a str,
    keys: &'a [Key],
    /// The function, where it is one.
    definition: Option<&'a Definition>,
}

/// The parts of a node that other parts of a file or the control side name.
#[derive(Debug, Default, serde::Serialize)]
struct Parts {
    ways_out: Vec<WayOut>,
    handlers: Vec<Handler>,
    state: Vec<Named>,
}

#[derive(Debug, serde::Serialize)]
struct WayOut {
    number: u8,
    name: String,
    /// Packets that leave on it are dropped as `unconnected` where nothing is connected.
    optional: bool,
}

#[derive(Debug, serde::Serialize)]
struct Named {
    name: String,
    summary: String,
}

impl Parts {
    /// The parts of a function's node. `Err` says why none could be made here.
    fn of(definition: &Definition) -> Result<Self, String> {
        let settings = definition.examples.first().copied().unwrap_or_default();
        let blueprint = definition.blueprint(settings).map_err(|error| error.to_string())?;
        let pool = Pool::builder().frames(64).build().map_err(|error| error.to_string())?;
        let mut node = blueprint.build(&Worker::new(0, 1, pool)).map_err(|error| error.to_string())?;
        let ways_out = node.shape().outputs.into_iter().map(|output| WayOut {
            number: output.edge.0,
            name: output.name,
            optional: output.optional,
        });
        let mut parts = Self { ways_out: ways_out.collect(), ..Self::default() };
        node.with_state(&mut |state| parts.add(state));
        Ok(parts)
    }

    fn add(&mut self, state: &mut dyn NodeState) {
        let moving = state.follows(ShuffleKey::SymmetricFlow);
        let bound = state.bound(ShuffleKey::SymmetricFlow);
        let shared: Vec<_> = state.shared_state().into_iter().map(|(name, _)| name).collect();
        let belongs = |name: &String| {
            if shared.contains(name) {
                "shared by all workers"
            } else if moving.contains(name) {
                "by flow; moves to another worker with its flows"
            } else if bound.contains(name) {
                "by flow; cannot move, so no flow moves behind a shuffle"
            } else {
                "each worker has its own"
            }
        };
        self.state.extend(state.export().into_iter().map(|(name, _)| {
            let summary = belongs(&name).to_owned();
            Named { name, summary }
        }));
        self.handlers.extend(state.handlers());
    }

    fn text(&self) -> String {
        let mut out = String::from("\nWays out:\n\n");
        let number = |way: &WayOut| if way.number == 0 { "the chain" } else { "chains `from` it" };
        let ways = self.ways_out.iter().map(|way| {
            let drops = if way.optional { "; dropped as `unconnected` where there is none" } else { "" };
            (way.name.as_str(), format!("{}{drops}", number(way)))
        });
        out.push_str(&columns(ways));
        if !self.handlers.is_empty() {
            out.push_str("\nHandlers:\n\n");
            let calls: Vec<_> = self.handlers.iter().map(|handler| (call(handler), handler)).collect();
            out.push_str(&columns(calls.iter().map(|(call, handler)| (call.as_str(), effect(handler)))));
        }
        if !self.state.is_empty() {
            out.push_str("\nState:\n\n");
            out.push_str(&columns(self.state.iter().map(|item| (item.name.as_str(), item.summary.clone()))));
        }
        out
    }
}

/// A handler as it is called: `add PREFIX NEXT-HOP`.
fn call(Handler { name, argument, .. }: &Handler) -> String {
    argument.as_ref().map_or_else(|| name.clone(), |argument| format!("{name} {argument}"))
}

/// A handler's kind, side and summary.
fn effect(Handler { kind, side, summary, .. }: &Handler) -> String {
    let side = match side {
        HandlerSide::Control => "",
        HandlerSide::Worker => ", by worker",
        HandlerSide::AnyWorker => ", by one worker for all",
    };
    format!("[{kind}{side}] {summary}")
}

/// Names with a text beside each; the text of a long name begins in the next line.
fn columns<'a>(rows: impl Iterator<Item = (&'a str, String)>) -> String {
    let rows: Vec<_> = rows.collect();
    let most = WIDTH / 2;
    let indent =
        rows.iter().map(|(name, _)| width(name)).filter(|width| *width <= most).max().unwrap_or(0) + 2;
    let mut out = String::new();
    for (name, text) in rows {
        let is_long = width(name) > most;
        if is_long {
            out.push_str(&format!("{name}\n"));
        }
        for (i, line) in wrapped(&text, WIDTH - indent).into_iter().enumerate() {
            let name = if i == 0 && !is_long { name } else { "" };
            out.push_str(&format!("{name:indent$}{line}\n"));
        }
    }
    out
}

/// Lists the reasons for which packets are dropped or consumed, or shows one.
pub(super) fn reasons(console: Console, arguments: &ReasonArguments) -> Result<(), Failure> {
    let describe = |reason: &DropReason| {
        serde_json::json!({
            "name": reason.name(), "class": reason.class().name(), "sentence": reason.sentence(),
        })
    };
    let Some(wanted) = &arguments.name else {
        if arguments.json {
            return console.json(&DropReason::ALL.iter().map(describe).collect::<Vec<_>>());
        }
        let columns = ["reason", "class", "packets that leave for it"];
        let mut table = Table::new(columns.map(|column| (column, Align::Left)));
        for reason in DropReason::ALL {
            table.row([reason.name(), reason.class().name(), reason.sentence()]);
        }
        return console.print(&format!("{}\n", table.render()));
    };
    let Some(reason) = DropReason::ALL.iter().find(|reason| reason.name() == wanted) else {
        let near = || netbricks_core::nearest(wanted, DropReason::ALL.iter().map(|reason| reason.name()));
        let hint = match (DropReason::renamed(wanted), near()) {
            (Some(now), _) => format!("it is called `{}` now", now.name()),
            (None, Some(near)) => format!("did you mean `{near}`?"),
            (None, None) => "`netbricks reasons` lists them".to_owned(),
        };
        return Err(Failure::Usage(format!("there is no reason `{wanted}`; {hint}")));
    };
    if arguments.json {
        return console.json(&describe(reason));
    }
    console.print(&format!("{} ({}): {}\n", reason.name(), reason.class().name(), reason.sentence()))
}

pub(super) fn functions(
    app: &Application,
    console: Console,
    arguments: &ListArguments,
) -> Result<(), Failure> {
    let items: Vec<_> = app
        .registry
        .iter()
        .map(|definition| Item {
            name: definition.name,
            summary: definition.summary,
            keys: definition.keys,
            definition: Some(definition),
        })
        .collect();
    let example = |name: &str| format!("[function.{name}]\nuse = \"{name}\"\n");
    list(console, arguments, "function", &items, &[], &example)
}

pub(super) fn ports(app: &Application, console: Console, arguments: &ListArguments) -> Result<(), Failure> {
    let items: Vec<_> = app
        .drivers
        .iter()
        .map(|driver| Item {
            name: driver.name,
            summary: driver.summary,
            keys: driver.keys,
            definition: None,
        })
        .collect();
    let example = |name: &str| format!("[port.lan]\ndriver = \"{name}\"\n");
    {
        let keys: Vec<_> = COMMON_KEYS.iter().copied().chain([crate::config::PLACEMENT]).collect();
        list(console, arguments, "port driver", &items, &keys, &example)
    }
}

fn list(
    console: Console,
    arguments: &ListArguments,
    kind: &str,
    items: &[Item<'_>],
    common: &[Key],
    example: &dyn Fn(&str) -> String,
) -> Result<(), Failure> {
    let describe = |item: &Item<'_>| {
        let mut value =
            serde_json::json!({ "name": item.name, "summary": item.summary, "keys": keys_json(item.keys) });
        if !common.is_empty() {
            value["common_keys"] = keys_json(common);
        }
        value
    };
    let Some(wanted) = &arguments.name else {
        if arguments.json {
            return console.json(&items.iter().map(describe).collect::<Vec<_>>());
        }
        let mut table = Table::new([(kind, Align::Left), ("what it does", Align::Left)]);
        for item in items {
            table.row([item.name, item.summary]);
        }
        let command = if common.is_empty() { "functions" } else { "ports" };
        return console
            .print(&format!("{}\n`netbricks {command} NAME` shows the keys of one.\n", table.render()));
    };
    let Some(item) = items.iter().find(|item| item.name == wanted) else {
        let hint = match netbricks_core::nearest(wanted, items.iter().map(|item| item.name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                format!("there are: {}", items.iter().map(|item| item.name).collect::<Vec<_>>().join(", "))
            }
        };
        return Err(Failure::Usage(format!("there is no {kind} `{wanted}`; {hint}")));
    };
    let parts = item.definition.map(Parts::of);
    if arguments.json {
        let mut value = describe(item);
        if let Some(Ok(parts)) = &parts {
            value["parts"] = serde_json::json!(parts);
        }
        return console.json(&value);
    }
    let mut text = format!("{}: {}\n\n{}", item.name, item.summary, example(item.name));
    for key in item.keys.iter().filter(|key| key.default.is_none()) {
        text.push_str(&format!("{} = …\n", key.name));
    }
    text.push('\n');
    text.push_str(&match item.keys {
        [] => "It has no keys of its own.\n".to_owned(),
        keys => keys_text(keys),
    });
    if !common.is_empty() {
        text.push_str("\nKeys of every port:\n\n");
        text.push_str(&keys_text(common));
    }
    match parts {
        Some(Ok(parts)) => text.push_str(&parts.text()),
        Some(Err(problem)) => text.push_str(&format!("\nIts ways out are not known here: {problem}\n")),
        None => {}
    }
    console.print(&text)
}

/// Keys for programs: whether a key is required, and its default as it would be written.
fn keys_json(keys: &[Key]) -> serde_json::Value {
    let key = |key: &Key| {
        serde_json::json!({
            "name": key.name, "kind": key.kind, "required": key.default.is_none(),
            "default": key.default.filter(|default| *default != "none"), "summary": key.summary,
        })
    };
    keys.iter().map(key).collect()
}

/// Columns that text may take before it is wrapped.
const WIDTH: usize = 100;

/// Each key with the type of its value, its summary and its default.
fn keys_text(keys: &[Key]) -> String {
    let indent = keys.iter().map(|key| key.name.len()).max().unwrap_or(0) + 2;
    let mut out = String::new();
    for key in keys {
        let default = match key.default {
            Some(default) => format!("Default: {default}"),
            None => "Must be given.".to_owned(),
        };
        let lines =
            [key.kind, key.summary, &default].into_iter().flat_map(|text| wrapped(text, WIDTH - indent));
        for (i, line) in lines.enumerate() {
            let name = if i == 0 { key.name } else { "" };
            out.push_str(&format!("{name:indent$}{line}\n"));
        }
    }
    out
}

/// Breaks a text between words into lines of at most `columns` columns, unless a word is longer.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_loses_no_word() {
        let text = "Sizes of frames, 42 to 9216; of a list each is equally likely; imix is 60, 566 and 1514.";
        for columns in 1..120 {
            let lines = wrapped(text, columns);
            assert_eq!(lines.join(" "), text);
            assert!(lines.iter().all(|line| width(line) <= columns || !line.contains(' ')), "{lines:?}");
        }
    }
}
