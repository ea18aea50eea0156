//! Capture files that ports write: no two may write one, and none may write what another reads.

use std::ops::Range;
use std::path::{Path, PathBuf};

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
    /// Reports files that are written twice, or read and written: whoever closes such a file last replaces what the other wrote.
    pub(crate) fn check_files(&self, directory: &Path, diagnostics: &mut Diagnostics) {
        let mut known: Vec<Named<'_>> = Vec::new();
        for port in &self.ports {
            // `read` and `write` are the capture driver's; another driver's may mean anything.
            let keys: &[&'static str] =
                if port.driver == "pcap" { &["read", "write", "capture"] } else { &["capture"] };
            for key in keys {
                let Some(value) = port.settings.get_ref().get(*key) else { continue };
                let Some(path) = value.get_ref().as_str() else { continue };
                let named =
                    Named { port: &port.name, key, path: whole(&directory.join(path)), place: value.span() };
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

/// A path by which one file has one name, as far as its directory is there.
fn whole(path: &Path) -> PathBuf {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (directory.canonicalize(), path.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => path.to_owned(),
    }
}
