//! Settings of `lpm`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use netbricks_core::live::Entries;
use netbricks_core::units::list_from_text;
use netbricks_core::{InvalidSetting, LiveSettings, Settings, read_text};
use serde::de::Deserializer;

use super::route::{self, Lines, Route, RouteError, Written};
use super::table::First;

netbricks_core::settings! {
    /// Settings of `lpm`.
    #[derive(Clone, Debug)]
    pub struct LpmSettings {
        /// Routes; the longest prefix that holds the destination decides.
        pub routes: Vec<Route> = [], "list of \"PREFIX NEXT-HOP\", next hops being numbers", read by routes;
        /// More routes; `#` begins a comment.
        pub table: Option<PathBuf> = unset, "path of a file with one route a line, from the chain file's directory";
        /// The name of the annotation with the next hop.
        pub annotation: String = "next-hop", "name";
        /// Whether the report says how many packets each next hop had, which costs some instructions a packet.
        pub count: bool = false, "true or false";
        /// The file's routes with their lines, after they have been read.
        read: OnceLock<Lines<Route>> = skipped;
        /// All routes as the first table has them, once a node was built.
        first: OnceLock<Made> = skipped;
    }
}

/// The routes for the table, and those of the chain file and its other file from which they were made.
type Made = (First, Vec<Route>, Option<PathBuf>);

/// Reads a list of routes; an error points at a prefix that is given twice.
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

impl LpmSettings {
    /// These routes and no file.
    pub fn of(routes: impl IntoIterator<Item = Route>) -> Self {
        Self { routes: routes.into_iter().collect(), ..Self::default() }
    }

    /// All routes, the file's last. The file is read once.
    ///
    /// # Errors
    /// The key that is wrong, and the fault; for the file, every wrong line.
    pub(super) fn all(&self) -> Result<Vec<Route>, InvalidSetting> {
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        let mut known = BTreeSet::new();
        if let Some(twice) = self.routes.iter().find(|route| !known.insert((route.prefix, route.len))) {
            return refused("routes", given_twice(twice));
        }
        let mut all = self.routes.clone();
        if let Some(path) = &self.table {
            let lines = self.lines(path)?;
            let again = lines.iter().filter(|(_, route)| known.contains(&(route.prefix, route.len)));
            let again = again.map(|(line, Route { prefix, len, .. })| {
                format!(
                    "{}:{line}: {prefix}/{len} is a route of the chain file already: take one out",
                    path.display()
                )
            });
            let again: Vec<_> = again.collect();
            if !again.is_empty() {
                return refused("table", in_file(&again));
            }
            all.extend(lines.iter().map(|(_, route)| route));
            if all.is_empty() {
                let path = path.display();
                let problem =
                    format!("names {path}, which holds no route: write one a line, as `192.0.2.0/24 7`");
                return refused("table", problem);
            }
        }
        if all.is_empty() {
            let problem =
                "must hold at least one route as \"192.0.2.0/24 7\", or `table` name a file of them".into();
            return refused("routes", problem);
        }
        Ok(all)
    }

    /// All routes, for the table. They are sorted once for all workers.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub(super) fn first(&self) -> Result<First, InvalidSetting> {
        let make = || self.all().map(|routes| (First::of(routes), self.routes.clone(), self.table.clone()));
        let made = match self.first.get() {
            Some(made) => made,
            None => {
                let made = make()?;
                self.first.get_or_init(|| made)
            }
        };
        // The settings may be a copy that was changed since.
        if made.1 == self.routes && made.2 == self.table {
            return Ok(made.0.clone());
        }
        make().map(|made| made.0)
    }

    /// The file's routes with their lines.
    fn lines(&self, path: &Path) -> Result<&[(usize, Route)], InvalidSetting> {
        if let Some(read) = self.read.get() {
            return Ok(read);
        }
        let refused = |problem| InvalidSetting { key: "table", problem };
        let shown = path.display();
        let text = read_text(path, LARGEST)
            .map_err(|error| refused(format!("names {shown}, which cannot be read: {error}")))?;
        let routes = route::routes(&text).map_err(|wrong| {
            let line =
                |(line, error): &(usize, RouteError)| format!("{shown}:{line}:{}: {error}", error.column);
            refused(in_file(&wrong.iter().map(line).collect::<Vec<_>>()))
        })?;
        // Another thread may have read the same file meanwhile.
        Ok(self.read.get_or_init(|| routes))
    }
}

/// The most bytes of a table's file: some ten million routes.
const LARGEST: u64 = 256 << 20;

/// Wrong lines of a file that are shown; after mending twenty a user checks again anyway.
const SHOWN: usize = 20;

/// The number of wrong routes of a file, and then the wrong routes, one on each line.
fn in_file(wrong: &[String]) -> String {
    format!("names a file with {}", listed(wrong))
}

/// The number of wrong routes, and then the wrong routes, one on each line.
pub(super) fn listed(wrong: &[String]) -> String {
    let mut text =
        if let [_] = wrong { "a wrong route".to_owned() } else { format!("{} wrong routes", wrong.len()) };
    for line in wrong.iter().take(SHOWN) {
        text += &format!("\n{line}");
    }
    if wrong.len() > SHOWN {
        text += &format!("\n… and {} more", wrong.len() - SHOWN);
    }
    text
}

impl Settings for LpmSettings {
    fn start_from(&mut self, directory: &Path) {
        self.table = self.table.take().map(|table| directory.join(table));
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        if self.annotation.is_empty() {
            return Err(InvalidSetting { key: "annotation", problem: "must be a name, found \"\"".into() });
        }
        self.all().map(|_| ())
    }
}

impl LiveSettings for LpmSettings {
    const LIVE: &'static [&'static str] = &["routes", "table"];
    const ENTRIES: &'static str = "routes";
    const ADD: &'static str = "add";
    const REMOVE: &'static str = "withdraw";

    fn entries(&self) -> Entries {
        let line = |route: Route| (format!("{}/{}", route.prefix, route.len), route.to_string());
        self.all().into_iter().flatten().map(line).collect()
    }

    fn entry(word: &str) -> String {
        route::shown_prefix(word)
    }
}
