//! Lists of settings that say what handlers wrote, of functions whose handlers do not change entries of live keys.

use netbricks_control::Written;

/// Answers a read handler of a function, by their names.
pub(super) type Read<'r> = dyn FnMut(&str, &str) -> Option<String> + 'r;

/// Most bytes of rules in a list; with more, a file would be hard to read and to send.
const MOST_BYTES: usize = 1 << 20;

/// A list of settings, and the handlers whose writes it says.
pub(super) struct Said {
    pub(super) key: &'static str,
    pub(super) list: Vec<String>,
    pub(super) handlers: &'static [&'static str],
    /// The key whose content the list has, too.
    pub(super) instead_of: Option<&'static str>,
}

/// Whether two files have the same settings of a function.
pub(super) fn alike(one: &str, other: &str) -> impl Fn(&str) -> bool + use<> {
    let functions = |text: &str| match text.parse::<toml::Table>().ok()?.remove("function")? {
        toml::Value::Table(functions) => Some(functions),
        _ => None,
    };
    let files = functions(one).zip(functions(other));
    move |function| {
        let of = files.as_ref().map(|(one, other)| (one.get(function), other.get(function)));
        of.is_some_and(|(one, other)| one.is_some() && one == other)
    }
}

impl Said {
    /// The list of this function after its writes, where a key can say them.
    ///
    /// `text` is the file that they change. Writes for one worker alone are in no file.
    pub(super) fn of(
        definition: &str,
        function: &str,
        text: &str,
        writes: &[&Written],
        read: &mut Read<'_>,
    ) -> Option<Self> {
        let table = text.parse::<toml::Table>().ok()?;
        let settings = table.get("function")?.get(function)?.as_table()?;
        let said = match definition {
            "firewall" => match rules(settings, writes) {
                Some(said) => said,
                None => present(&read(function, "rules")?, &["load", "set"], writes)?,
            },
            "mmb" => present(&read(function, "lines")?, &["run", "replace"], writes)?,
            "nat" => mappings(settings, writes)?,
            _ => return None,
        };
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
    loaded.then_some(Said { key: "lines", list, handlers: &["load", "set"], instead_of: None })
}

/// The lines that make the present rules, as their function tells them: those of its file, too.
fn present(lines: &str, handlers: &'static [&'static str], writes: &[&Written]) -> Option<Said> {
    writes.iter().find(|written| handlers.contains(&&*written.handler))?;
    if lines.len() > MOST_BYTES {
        return None;
    }
    let list = lines.lines().map(str::to_owned).collect();
    Some(Said { key: "lines", list, handlers, instead_of: Some("rules") })
}

/// The static mappings of a translator, whose pool handlers have not changed.
fn mappings(settings: &toml::Table, writes: &[&Written]) -> Option<Said> {
    // The addresses of mappings may have left the pool or come into it first.
    if writes.iter().any(|written| written.handler.starts_with("pool-")) {
        return None;
    }
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
    any.then_some(Said { key: "static", list, handlers: &["static-add", "static-remove"], instead_of: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAT: &str = "[function.f]\nuse = \"nat\"\nstatic = [\"198.51.100.9 -> 10.0.0.6\"]";

    fn written(handler: &str, argument: &str) -> Written {
        let (handler, argument) = (handler.to_owned(), argument.to_owned());
        Written { function: "f".into(), handler, argument, worker: None, tenant: None }
    }

    fn list(definition: &str, text: &str, writes: &[Written], lines: &str) -> Option<Vec<String>> {
        let writes: Vec<&Written> = writes.iter().collect();
        let said = Said::of(definition, "f", text, &writes, &mut |_, _| Some(lines.to_owned()));
        said.map(|said| said.list)
    }

    #[test]
    fn mappings_stay_writes_where_the_pool_was_written_too() {
        let add = written("static-add", "tcp 203.0.113.7:80 -> 10.0.0.5:8080");
        let both = ["198.51.100.9 -> 10.0.0.6", &add.argument].map(str::to_owned).to_vec();
        assert_eq!(list("nat", NAT, std::slice::from_ref(&add), ""), Some(both));
        let pool = written("pool-remove", "203.0.113.7");
        assert_eq!(list("nat", NAT, &[pool, add], ""), None);
    }

    #[test]
    fn more_rules_than_a_file_is_to_have_stay_writes() {
        let (mmb, write) = ("[function.f]\nuse = \"mmb\"", [written("run", "add all drop")]);
        let line = "add all drop\n";
        let (fits, many) = (line.repeat(MOST_BYTES / line.len()), line.repeat(MOST_BYTES / line.len() + 1));
        assert_eq!(list("mmb", mmb, &write, &fits).map(|list| list.len()), Some(MOST_BYTES / line.len()));
        assert_eq!(list("mmb", mmb, &write, &many), None);
    }
}
