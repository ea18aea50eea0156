//! A crate's source files as syntax trees, from the roots of its targets along its modules.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{is_test_only, line_column, literal_text};
use crate::{Finding, Rule};

/// The files that were read, and what is wrong with how they are found.
#[derive(Default)]
pub(crate) struct Sources {
    /// Canonical paths, and trees.
    pub(crate) files: Vec<(PathBuf, syn::File)>,
    pub(crate) findings: Vec<Finding>,
}

impl Sources {
    /// Reads the modules below these roots. `folder` is the crate's own, canonical.
    pub(crate) fn read(folder: &Path, roots: &[PathBuf]) -> Self {
        let mut sources = Self::default();
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<(PathBuf, bool)> = roots.iter().map(|root| (root.clone(), true)).collect();
        while let Some((path, is_root)) = waiting.pop() {
            let shown = path.strip_prefix(folder).unwrap_or(&path).to_owned();
            let Ok(path) = path.canonicalize() else {
                sources.findings.push(Finding::new(
                    Rule::Uncompilable,
                    &shown,
                    (1, 1),
                    "the file cannot be found",
                ));
                continue;
            };
            // Folders that no hash covers hold no source.
            let hidden = path.strip_prefix(folder).is_ok_and(|inside| {
                inside.starts_with("target")
                    || inside.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."))
            });
            if hidden {
                let text = format!("`{}` lies in a folder that is not looked into", shown.display());
                sources.findings.push(Finding::new(Rule::OutsideFile, &shown, (1, 1), text));
                continue;
            }
            if !path.starts_with(folder) {
                let text = format!("`{}` lies outside the crate's folder", path.display());
                sources.findings.push(Finding::new(Rule::OutsideFile, &shown, (1, 1), text));
                continue;
            }
            if !seen.insert(path.clone()) {
                continue;
            }
            let parsed = std::fs::read_to_string(&path)
                .map_err(|error| ((1, 1), error.to_string()))
                .and_then(|text| {
                    syn::parse_file(&text).map_err(|error| (line_column(error.span()), error.to_string()))
                });
            let file = match parsed {
                Ok(file) => file,
                Err((place, problem)) => {
                    let text = format!("it cannot be parsed: {problem}");
                    sources.findings.push(Finding::new(Rule::Uncompilable, &shown, place, text));
                    continue;
                }
            };
            if file.attrs.iter().any(is_test_only) {
                continue;
            }
            let beside = path.parent().map(Path::to_owned).unwrap_or_default();
            let is_mod = is_root || path.file_name().is_some_and(|name| name == "mod.rs");
            let below = match path.file_stem() {
                Some(stem) if !is_mod => beside.join(stem),
                _ => beside.clone(),
            };
            let mut modules =
                Modules { beside, below, shown: &shown, depth: 0, found: Vec::new(), findings: Vec::new() };
            modules.visit_file(&file);
            waiting.append(&mut modules.found);
            sources.findings.append(&mut modules.findings);
            sources.files.push((path, file));
        }
        sources
    }
}

/// Finds the files of the modules that a file declares.
struct Modules<'a> {
    /// The folder of the file.
    beside: PathBuf,
    /// The folder of the files of modules at this place.
    below: PathBuf,
    shown: &'a Path,
    /// Inline modules around this place.
    depth: usize,
    /// Paths, and whether modules of theirs lie beside them.
    found: Vec<(PathBuf, bool)>,
    findings: Vec<Finding>,
}

impl Modules<'_> {
    fn file_of(&mut self, module: &syn::ItemMod, name: &str, path: Option<String>) {
        if let Some(path) = path {
            let base = if self.depth > 0 { &self.below } else { &self.beside };
            self.found.push((base.join(path), true));
            return;
        }
        let candidates = [self.below.join(format!("{name}.rs")), self.below.join(name).join("mod.rs")];
        let found: Vec<_> = candidates.into_iter().filter(|path| path.exists()).collect();
        // A module for another system may be missing; the compiler's own list of files is compared later.
        if found.is_empty() && !module.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            let text = format!("there is no file for the module `{name}`");
            let place = line_column(module.span());
            self.findings.push(Finding::new(Rule::Uncompilable, self.shown, place, text));
        }
        self.found.extend(found.into_iter().map(|path| (path, false)));
    }
}

impl<'ast> Visit<'ast> for Modules<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.attrs.iter().any(is_test_only) {
            return;
        }
        let name = module.ident.to_string().trim_start_matches("r#").to_owned();
        let path =
            module.attrs.iter().find(|attribute| attribute.path().is_ident("path")).and_then(|attribute| {
                match &attribute.meta {
                    syn::Meta::NameValue(pair) => literal_text(&pair.value),
                    _ => None,
                }
            });
        match &module.content {
            None => self.file_of(module, &name, path),
            Some(_) => {
                let folder = self.below.join(path.unwrap_or(name));
                let outer = std::mem::replace(&mut self.below, folder);
                self.depth += 1;
                visit::visit_item_mod(self, module);
                self.depth -= 1;
                self.below = outer;
            }
        }
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !super::attributes_of(item).iter().any(is_test_only) {
            visit::visit_item(self, item);
        }
    }
}
