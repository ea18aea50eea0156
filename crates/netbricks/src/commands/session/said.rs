//! Lists of settings that say what handlers wrote, of functions whose handlers do not change entries of live keys.

use netbricks_control::Written;

/// A list of settings, and the handlers whose writes it says.
pub(super) struct Said {
    pub(super) key: &'static str,
    pub(super) list: Vec<String>,
    pub(super) handlers: &'static [&'static str],
}

impl Said {
    /// The list of this function after its writes, where a key can say them.
    ///
    /// `text` is the file that they change. Writes for one worker alone are in no file.
    pub(super) fn of(definition: &str, function: &str, text: &str, writes: &[&Written]) -> Option<Self> {
        let of: fn(&toml::Table, &[&Written]) -> Option<Self> = match definition {
            "firewall" => rules,
            "nat" => mappings,
            _ => return None,
        };
        let table = text.parse::<toml::Table>().ok()?;
        let settings = table.get("function")?.get(function)?.as_table()?;
        let said = of(settings, writes)?;
        let is_said = |written: &&&Written| said.handlers.contains(&&*written.handler);
        writes.iter().filter(is_said).all(|written| written.worker.is_none()).then_some(said)
    }
}

/// The lines of a firewall: those that were loaded last, where no set was changed after that.
fn rules(settings: &toml::Table, writes: &[&Written]) -> Option<Said> {
    let last = writes.iter().rev().find(|written| ["load", "set"].contains(&&*written.handler))?;
    // Lines come behind a file of rules, and not in its place.
    let loaded = last.handler == "load" && !settings.contains_key("rules");
    let list = last.argument.lines().map(str::to_owned).collect();
    loaded.then_some(Said { key: "lines", list, handlers: &["load", "set"] })
}

/// The static mappings of a translator.
fn mappings(settings: &toml::Table, writes: &[&Written]) -> Option<Said> {
    let mut list: Vec<String> = Vec::new();
    for item in settings.get("static").and_then(toml::Value::as_array).into_iter().flatten() {
        list.push(item.as_str()?.to_owned());
    }
    let mut any = false;
    for written in writes {
        let mapping = written.argument.split_whitespace().collect::<Vec<_>>().join(" ");
        match &*written.handler {
            // The file may have it by now.
            "static-add" if list.contains(&mapping) => {}
            "static-add" => list.push(mapping),
            // One that is written otherwise in the file stays a comment.
            "static-remove" => drop(list.remove(list.iter().position(|known| *known == mapping)?)),
            _ => continue,
        }
        any = true;
    }
    any.then_some(Said { key: "static", list, handlers: &["static-add", "static-remove"] })
}
