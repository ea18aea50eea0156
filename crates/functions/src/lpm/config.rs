//! What an operator may write for `lpm`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::OnceLock;

use netbricks_core::units::list_from_text;
use netbricks_core::{Key, Refused, Settings};
use serde::de::Deserializer;

use super::route::{self, Route, Written};

/// Settings of `lpm`.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LpmSettings {
    /// Routes, each `"PREFIX NEXT-HOP"`.
    #[serde(deserialize_with = "routes")]
    pub routes: Vec<Route>,
    /// A file of more routes, one a line.
    pub table: Option<PathBuf>,
    /// Under which name packets are annotated with their next hop.
    pub annotation: String,
    /// The file's routes, once they are read.
    #[serde(skip)]
    read: OnceLock<Vec<Route>>,
}

/// One whose prefix is given twice is pointed at.
fn routes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Route>, D::Error> {
    let mut known = BTreeSet::new();
    list_from_text(deserializer, |text| {
        let Written(route) = text.parse()?;
        if !known.insert((route.prefix, route.len)) {
            return Err(given_twice(&route));
        }
        Ok(route)
    })
}

fn given_twice(route: &Route) -> String {
    format!("gives {}/{} a second time: take one out", route.prefix, route.len)
}

impl Default for LpmSettings {
    fn default() -> Self {
        Self { routes: Vec::new(), table: None, annotation: super::NEXT_HOP.into(), read: OnceLock::new() }
    }
}

impl LpmSettings {
    /// These routes and no file.
    pub fn of(routes: impl IntoIterator<Item = Route>) -> Self {
        Self { routes: routes.into_iter().collect(), ..Self::default() }
    }

    /// All routes, the file's last. The file is read once.
    ///
    /// # Errors
    /// Which key is wrong, and what in it.
    pub(super) fn all(&self) -> Result<Vec<Route>, Refused> {
        let mut all = self.routes.clone();
        if let Some(path) = &self.table {
            if self.read.get().is_none() {
                let refused = |problem| Refused { key: "table", problem };
                let text = std::fs::read_to_string(path).map_err(|error| {
                    refused(format!("names {}, which cannot be read: {error}", path.display()))
                })?;
                let routes = route::routes(&text).map_err(|(line, error)| {
                    let (path, column) = (path.display(), error.column);
                    refused(format!("names a file with a wrong route: {path}:{line}:{column}: {error}"))
                })?;
                // Another thread may have read the same.
                let _ = self.read.set(routes);
            }
            all.extend(self.read.get().into_iter().flatten());
        }
        let mut known = BTreeSet::new();
        if let Some(twice) = all.iter().find(|route| !known.insert((route.prefix, route.len))) {
            let key = if self.routes.iter().filter(|route| same(route, twice)).count() > 1 {
                "routes"
            } else {
                "table"
            };
            return Err(Refused { key, problem: given_twice(twice) });
        }
        if let Some(path) = self.table.as_ref().filter(|_| all.is_empty()) {
            let problem = format!(
                "names {}, which holds no route: write one a line, as `192.0.2.0/24 7`",
                path.display()
            );
            return Err(Refused { key: "table", problem });
        }
        if all.is_empty() {
            let problem =
                "must hold at least one route as \"192.0.2.0/24 7\", or `table` name a file of them".into();
            return Err(Refused { key: "routes", problem });
        }
        Ok(all)
    }
}

fn same(one: &Route, other: &Route) -> bool {
    (one.prefix, one.len) == (other.prefix, other.len)
}

impl Settings for LpmSettings {
    const KEYS: &'static [Key] = &[
        Key {
            name: "routes",
            kind: "list of \"PREFIX NEXT-HOP\", next hops being numbers",
            default: Some("[]"),
            summary: "Routes; the longest prefix that holds the destination decides.",
        },
        Key {
            name: "table",
            kind: "path of a file with one route a line",
            default: Some("none"),
            summary: "More routes; `#` begins a comment.",
        },
        Key {
            name: "annotation",
            kind: "name",
            default: Some("\"next-hop\""),
            summary: "Under which name packets are annotated with their next hop.",
        },
    ];

    fn check(&self) -> Result<(), Refused> {
        if self.annotation.is_empty() {
            return Err(Refused { key: "annotation", problem: "must be a name, found \"\"".into() });
        }
        self.all().map(|_| ())
    }
}
