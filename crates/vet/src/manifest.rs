//! Manifests: profiles that change what a panic does, and what no stable cargo knows.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::{Finding, Rule};

/// Keys of a profile that leave the meaning of code alone.
const PROFILE: &[&str] = &[
    "build-override",
    "codegen-units",
    "debug",
    "debug-assertions",
    "incremental",
    "inherits",
    "lto",
    "opt-level",
    "overflow-checks",
    "package",
    "split-debuginfo",
    "strip",
];

/// Everything in a workspace's manifest that is not known to be harmless.
///
/// Its patches show in the resolved graph, and its lints come before ours.
pub(crate) fn findings(path: &Path, shown: &Path) -> Vec<Finding> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return vec![Finding::new(Rule::Manifest, shown, (1, 1), error.to_string())],
    };
    let mut findings = Vec::new();
    let Ok(manifest) = DeTable::parse(&text) else {
        return vec![Finding::new(Rule::Manifest, shown, (1, 1), "it is not TOML")];
    };
    let mut find = |offset: usize, what: String| {
        let before = &text[..offset.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |end| end + 1) + 1;
        findings.push(Finding::new(Rule::Manifest, shown, (line, column), what));
    };
    for (key, value) in manifest.get_ref() {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("cargo-features", _) => {
                find(key.span().start, "`cargo-features`: only stable features are known".into())
            }
            ("profile", DeValue::Table(profiles)) => {
                for (name, profile) in profiles {
                    self::profile(name.get_ref(), profile, &mut find);
                }
            }
            _ => (),
        }
    }
    findings
}

fn profile(name: &str, value: &Spanned<DeValue<'_>>, find: &mut impl FnMut(usize, String)) {
    let DeValue::Table(keys) = value.get_ref() else { return };
    for (key, value) in keys {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("panic", DeValue::String(text)) if text == "unwind" => (),
            ("panic", _) => {
                let text =
                    format!("`panic` of profile `{name}`: only `unwind` lets the graph contain a panic");
                find(value.span().start, text);
            }
            ("package", DeValue::Table(packages)) => {
                packages.iter().for_each(|(_, package)| profile(name, package, &mut *find));
            }
            (known, _) if PROFILE.contains(&known) => (),
            (unknown, _) => find(key.span().start, format!("`{unknown}` of profile `{name}` is not known")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_aborts_is_found_at_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("Cargo.toml");
        std::fs::write(
            &path,
            "[package]\nname = \"a\"\n[profile.release]\nlto = true\npanic = \"abort\"\nrustflags = []\n",
        )
        .expect("it can be written");
        let found = findings(&path, Path::new("Cargo.toml"));
        assert_eq!(
            found.iter().map(|found| (found.line, found.column)).collect::<Vec<_>>(),
            [(5, 9), (6, 1)]
        );
    }
}
