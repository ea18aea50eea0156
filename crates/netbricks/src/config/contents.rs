//! Files that functions name, such as routes, and files with an earlier content that are read in their place.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use netbricks_control::Files;
use toml::de::{DeTable, DeValue};

use super::document::{Document, parse};
use crate::diagnostic::Diagnostics;

/// The most files of a configuration that are kept.
const MOST: usize = 1_000;

/// Names in a file, by the names that stand for them.
pub(crate) type Originals = BTreeMap<String, String>;

impl Document<'_> {
    /// Has functions read these files in place of those that they name.
    pub(crate) fn read_instead(&mut self, directory: &Path, files: &Files) {
        for entry in self.functions.iter_mut().filter(|_| !files.is_empty()) {
            let originals = &mut entry.originals;
            each_text(entry.settings.get_mut(), &mut |text| {
                let Some(named) = path_of(directory, text) else { return };
                let Some(other) = files.get(&named).and_then(|path| path.to_str()) else { return };
                originals.insert(other.to_owned(), text.to_string());
                *text = Cow::Owned(other.to_owned());
            });
        }
    }
}

/// The files that the functions of a text name, each with the place of its content.
///
/// Names of files that are not there, and not in `files` either, are left out.
pub(crate) fn named_files(text: &str, directory: &Path, files: &Files) -> Files {
    let mut document = parse(text, &mut Diagnostics::default());
    let mut named = Files::new();
    for entry in &mut document.functions {
        each_text(entry.settings.get_mut(), &mut |text| {
            let Some(path) = path_of(directory, text) else { return };
            let content = files.get(&path).cloned().unwrap_or_else(|| path.clone().into());
            // A pipe or a device has no content to keep.
            if named.len() < MOST && std::fs::metadata(&content).is_ok_and(|file| file.is_file()) {
                named.insert(path, content);
            }
        });
    }
    named
}

fn path_of(directory: &Path, text: &str) -> Option<String> {
    let path = directory.join(text);
    // An empty text is no name.
    path.to_str().filter(|_| !text.is_empty()).map(str::to_owned)
}

/// Calls `change` with each text in a table.
fn each_text<'t>(table: &mut DeTable<'t>, change: &mut dyn FnMut(&mut Cow<'t, str>)) {
    for (_, value) in table.iter_mut() {
        each_text_in(value.get_mut(), change);
    }
}

fn each_text_in<'t>(value: &mut DeValue<'t>, change: &mut dyn FnMut(&mut Cow<'t, str>)) {
    match value {
        DeValue::String(text) => change(text),
        DeValue::Array(items) => {
            items.iter_mut().for_each(|item| each_text_in(item.get_mut(), change));
        }
        DeValue::Table(table) => each_text(table, change),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_functions_are_found_and_others_are_read_in_their_place() {
        let directory = std::env::temp_dir().join(format!("netbricks-contents-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (routes, kept) = (directory.join("routes"), directory.join("kept"));
        std::fs::write(&routes, "10.0.0.0/8 1").unwrap();
        std::fs::write(&kept, "10.0.0.0/8 2").unwrap();
        let text = "[port.a]\ndriver = \"pcap\"\nread = \"routes\"\n[function.f]\nuse = \"lpm\"\n\
                    table = \"routes\"\nlist = [{ of = \"gone\" }, \"\"]\n";
        let name = |path: &Path| path.to_str().unwrap().to_owned();
        let live = Files::from([(name(&routes), routes.clone())]);
        assert_eq!(named_files(text, &directory, &Files::new()), live);
        let gone = name(&directory.join("gone"));
        let earlier = Files::from([(name(&routes), kept.clone()), (gone.clone(), kept.clone())]);
        assert_eq!(named_files(text, &directory, &earlier), earlier);

        let mut document = parse(text, &mut Diagnostics::default());
        document.read_instead(&directory, &earlier);
        let settings = document.functions[0].settings.get_ref();
        assert_eq!(settings["table"].get_ref().as_str(), kept.to_str());
        assert_eq!(document.ports[0].settings.get_ref()["read"].get_ref().as_str(), Some("routes"));
        // To the operator it is the same setting with another content.
        let shown =
            super::super::written::written(settings, Some(&directory), &document.functions[0].originals);
        assert!(shown["table"].starts_with("\"routes\" (content "), "{shown:?}");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
