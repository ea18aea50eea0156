//! The name under which clients find the run, so that it stays over restarts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Store, StoreError};

/// The file's name.
pub(super) const NAME: &str = "place";
/// The most bytes of the file.
const MOST_BYTES: usize = 64 << 10;

/// The graph's name and its socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The name of the graph, which is that of the first file.
    pub graph: String,
    /// The socket on which the run listens.
    pub socket: Option<PathBuf>,
}

impl Store {
    /// The place of the last process, where it is known.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Notes the place of this process durably.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written.
    pub fn set_place(&mut self, place: Place) -> Result<(), StoreError> {
        if self.place.as_ref() != Some(&place) {
            self.replace(NAME, super::journal::json(&place).as_bytes())?;
            self.place = Some(place);
        }
        Ok(())
    }

    /// Reads the place. Without it, a start takes the name of its file.
    pub(super) fn read_place(&mut self) {
        let bytes = self.disk.read(NAME, MOST_BYTES).unwrap_or_default();
        self.place = serde_json::from_slice(&bytes).ok();
    }
}
