//! The settings of a part as the file writes them, to see what another file changes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::contents::Originals;

/// Settings by key, each in one form for all ways of writing it.
///
/// A file that a setting names is part of it: its value has a hash of the content.
pub(crate) type Written = BTreeMap<String, String>;

/// The settings of a table. Files that they name are in `directory`, or else are no part of them.
///
/// `originals` has the names of the file by those that stand for them.
pub(crate) fn written(table: &DeTable<'_>, directory: Option<&Path>, originals: &Originals) -> Written {
    let value = |value: &DeValue<'_>| {
        let mut text = String::new();
        write_value(value, (directory, originals), &mut text);
        text
    };
    table.iter().map(|(key, of)| (key.get_ref().to_string(), value(of.get_ref()))).collect()
}

fn write_value(value: &DeValue<'_>, names: (Option<&Path>, &Originals), text: &mut String) {
    match value {
        DeValue::String(written) => {
            let (directory, originals) = names;
            let original = originals.get(written.as_ref()).map_or(written.as_ref(), String::as_str);
            text.push_str(&format!("{original:?}"));
            if let Some(hash) = directory.and_then(|directory| content(&directory.join(written.as_ref()))) {
                text.push_str(&format!(" (content {hash:016x})"));
            }
        }
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => text.push_str(&number.to_string()),
            Err(_) => text.push_str(number.as_str()),
        },
        DeValue::Float(number) => text.push_str(number.as_str()),
        DeValue::Boolean(value) => text.push_str(&value.to_string()),
        DeValue::Datetime(time) => text.push_str(&time.to_string()),
        DeValue::Array(items) => {
            text.push('[');
            for (number, item) in items.iter().enumerate() {
                text.push_str(if number > 0 { ", " } else { "" });
                write_value(item.get_ref(), names, text);
            }
            text.push(']');
        }
        DeValue::Table(table) => {
            let keys: BTreeMap<_, _> =
                table.iter().map(|(key, of)| (key.get_ref().as_ref(), of.get_ref())).collect();
            text.push('{');
            for (number, (key, of)) in keys.into_iter().enumerate() {
                text.push_str(if number > 0 { ", " } else { "" });
                text.push_str(key);
                text.push_str(" = ");
                write_value(of, names, text);
            }
            text.push('}');
        }
    }
}

/// A hash of a file's content; `None` where there is no plain file of this name.
fn content(path: &Path) -> Option<u64> {
    // A pipe or device would wait, or give its content away.
    let is_file = std::fs::metadata(path).is_ok_and(|file| file.is_file());
    let mut file = is_file.then(|| std::fs::File::open(path).ok()).flatten()?;
    let (mut hash, mut piece) = (DefaultHasher::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Some(hash.finish()),
            Ok(read) => hash.write(&piece[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// The settings that differ, one after the other: ``"`capacity` 1000 → 2000, `idle` was "60s""``.
pub(crate) fn difference(before: &Written, after: &Written) -> String {
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let short = |text: &String| match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.clone(),
    };
    let changed = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    let told = changed.map(|key| match (before.get(key), after.get(key)) {
        (Some(old), Some(new)) => format!("`{key}` {} → {}", short(old), short(new)),
        (None, Some(new)) => format!("`{key}` is {} now", short(new)),
        (Some(old), None) => format!("`{key}` was {}, and has its default now", short(old)),
        (None, None) => String::new(),
    });
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Written {
        written(DeTable::parse(text).unwrap().get_ref(), None, &Originals::new())
    }

    #[test]
    fn one_value_has_one_form() {
        assert_eq!(
            of("a = 0x10\nb = [1, 2]\nc = {y = 1, x = 'q'}"),
            of("c = {x = \"q\", y = 1}\na = 1_6\nb = [ 1,2 ]")
        );
        assert_ne!(of("a = 1"), of("a = \"1\""));
    }

    #[test]
    fn a_difference_names_each_key() {
        let (before, after) = (of("a = 1\nb = 2\nc = 3"), of("a = 1\nb = 4\nd = true"));
        assert_eq!(
            difference(&before, &after),
            "`b` 2 → 4, `c` was 3, and has its default now, `d` is true now"
        );
    }

    #[test]
    fn a_named_file_is_part_of_its_setting() {
        let directory = std::env::temp_dir().join(format!("netbricks-written-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let read = || {
            let table = DeTable::parse("table = \"routes\"").unwrap();
            written(table.get_ref(), Some(&directory), &Originals::new())
        };
        std::fs::write(directory.join("routes"), "10.0.0.0/8 1").unwrap();
        let before = read();
        assert_eq!(before, read());
        std::fs::write(directory.join("routes"), "10.0.0.0/8 2").unwrap();
        assert_ne!(before, read());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
