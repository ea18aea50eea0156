//! `functions` and `ports`: list what a binary has, with keys, units and defaults.

use netbricks_core::Key;
use netbricks_ports::COMMON_KEYS;

use super::{Application, Console, Failure, ListArguments};
use crate::diagnostic::width;
use crate::report::{Align, Table};

/// Something that can be listed.
struct Item<'a> {
    name: &'a str,
    summary: &'a str,
    keys: &'a [Key],
}

pub(super) fn functions(
    app: &Application,
    console: Console,
    arguments: &ListArguments,
) -> Result<(), Failure> {
    let items: Vec<_> = app
        .registry
        .iter()
        .map(|definition| Item { name: definition.name, summary: definition.summary, keys: definition.keys })
        .collect();
    let example = |name: &str| format!("[function.{name}]\nuse = \"{name}\"\n");
    list(console, arguments, "function", &items, &[], &example)
}

pub(super) fn ports(app: &Application, console: Console, arguments: &ListArguments) -> Result<(), Failure> {
    let items: Vec<_> = app
        .drivers
        .iter()
        .map(|driver| Item { name: driver.name, summary: driver.summary, keys: driver.keys })
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
    if arguments.json {
        return console.json(&describe(item));
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
