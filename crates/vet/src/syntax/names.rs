//! The names that a crate may use: paths by the crate that they begin with, macros, derives and attributes.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Rule, standard};

/// A crate whose name may begin a path.
#[derive(Clone, Debug)]
pub(crate) enum Root {
    /// The standard library under this name, of which `standard::PATHS` may be named.
    Standard,
    /// A crate on the list, of which these paths may be named.
    Offered(Vec<String>),
    /// A crate on the list that functions may not name.
    Unoffered(String),
}

/// The names that one crate may use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) roots: BTreeMap<String, Root>,
    /// Paths of the standard library that the list offers beside the usual ones.
    pub(crate) standard: Vec<String>,
    /// Macros of crates on the list.
    pub(crate) macros: BTreeSet<String>,
    /// Macros of the crate itself and of the vetted crates that it uses.
    pub(crate) own_macros: BTreeSet<String>,
    pub(crate) derives: BTreeSet<String>,
    pub(crate) attributes: BTreeSet<String>,
}

impl Names {
    /// The names of the standard library alone.
    pub(crate) fn standard() -> Self {
        let roots = standard::SYSTEM_CRATES.iter().map(|name| ((*name).to_owned(), Root::Standard)).collect();
        Self { roots, ..Self::default() }
    }

    /// Whether a path begins with the name of a crate whose paths are restricted.
    pub(crate) fn is_root(&self, name: &str) -> bool {
        self.roots.contains_key(name)
    }

    /// The rule that a path breaks, and what it says.
    pub(crate) fn refused(&self, path: &[String]) -> Option<(Rule, String)> {
        let (first, rest) = path.split_first()?;
        let written = path.join("::");
        match self.roots.get(first)? {
            Root::Standard => {
                let full: Vec<&str> = std::iter::once("std").chain(rest.iter().map(String::as_str)).collect();
                let offered = self.standard.iter().map(String::as_str);
                let allowed =
                    standard::PATHS.iter().copied().chain(offered).any(|entry| begins(&full, entry));
                (!allowed).then(|| {
                    (
                        Rule::StandardLibrary,
                        format!("`{written}` is not among what functions may name of the standard library"),
                    )
                })
            }
            Root::Offered(paths) => {
                let full: Vec<&str> = path.iter().map(String::as_str).collect();
                let allowed = paths.iter().any(|entry| begins(&full, entry));
                (!allowed).then(|| {
                    (
                        Rule::Unoffered,
                        format!(
                            "`{written}` is not among what vet.toml offers of `{first}`: {}",
                            paths.join(", ")
                        ),
                    )
                })
            }
            Root::Unoffered(name) => Some((
                Rule::Unoffered,
                format!(
                    "`{written}`: the crate `{name}` is on the list for other crates, and no [[use]] offers it to functions"
                ),
            )),
        }
    }

    /// The rule that a macro breaks, by its name alone.
    pub(crate) fn refused_macro(&self, name: &str) -> Option<(Rule, String)> {
        if let Some(rule) = standard::refused_macro(name) {
            return Some((rule, format!("`{name}!` reaches further than the crate")));
        }
        let known =
            standard::MACROS.contains(&name) || self.own_macros.contains(name) || self.macros.contains(name);
        (!known).then(|| {
            (Rule::Macro, format!("`{name}!` is neither of this crate nor among the macros that are known"))
        })
    }

    /// Whether a macro's words become code of this crate's own making, rather than of a crate that is known.
    pub(crate) fn is_own(&self, name: &str) -> bool {
        self.own_macros.contains(name) || !(standard::MACROS.contains(&name) || self.macros.contains(name))
    }
}

/// Whether a path begins with this one.
fn begins(path: &[&str], entry: &str) -> bool {
    let mut given = path.iter();
    entry.split("::").all(|part| given.next().is_some_and(|found| *found == part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_allowed_below_an_entry_and_never_above() {
        let names = Names::standard();
        let refused = |path: &str| names.refused(&path.split("::").map(str::to_owned).collect::<Vec<_>>());
        for good in [
            "std::fmt",
            "core::fmt::Write",
            "std::net::Ipv4Addr::LOCALHOST",
            "std::collections::BTreeMap",
            "mine::fs",
        ] {
            assert_eq!(refused(good), None, "{good}");
        }
        for bad in
            ["std", "std::net", "std::fs::read", "core::mem::forget", "std::mem", "std::collections::HashMap"]
        {
            assert!(refused(bad).is_some(), "{bad}");
        }
    }
}
