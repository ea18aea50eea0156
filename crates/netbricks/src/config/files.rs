//! Capture files that ports write: no two ports may write one file or write a file that another reads.

use std::ops::Range;
use std::path::{Path, PathBuf};

use netbricks_ports::pcap::{Target, target};

use super::plan::Plan;
use crate::diagnostic::{Diagnostic, Diagnostics};

/// A file that a port names.
struct Named<'p> {
    port: &'p str,
    key: &'static str,
    path: PathBuf,
    place: Range<usize>,
}

impl Named<'_> {
    fn is_written(&self) -> bool {
        self.key != "read"
    }
}

impl Plan<'_> {
    /// Reports files that are written twice, or both read and written.
    ///
    /// When such a file is closed, it replaces the data of the other port.
    pub(crate) fn check_files(&self, directory: &Path, diagnostics: &mut Diagnostics) {
        let mut known: Vec<Named<'_>> = Vec::new();
        for port in &self.ports {
            // `read` and `write` are keys of the capture driver; another driver may use these names for
            // anything.
            let keys: &[&'static str] =
                if port.driver == "pcap" { &["read", "write", "capture"] } else { &["capture"] };
            for key in keys {
                let Some(value) = port.settings.get_ref().get(*key) else { continue };
                let Some(path) = value.get_ref().as_str() else { continue };
                // A device or pipe that takes all data loses nothing. A file that cannot be written is
                // reported when it is opened.
                let Ok(Target::File(path)) = target(&directory.join(path)) else { continue };
                let named = Named { port: &port.name, key, path, place: value.span() };
                let other = known
                    .iter()
                    .find(|other| other.path == named.path && (other.is_written() || named.is_written()));
                if let Some(other) = other {
                    let message = format!("`{}` of port `{}` names the same file as another", key, port.name);
                    let first = format!("`{}` of port `{}`", other.key, other.port);
                    diagnostics.push(
                        Diagnostic::error(message)
                            .at(
                                named.place.clone(),
                                "name another file: one would replace the other's packets",
                            )
                            .at(other.place.clone(), first),
                    );
                }
                known.push(named);
            }
        }
    }
}
