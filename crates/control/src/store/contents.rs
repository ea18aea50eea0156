//! Files that configurations name, such as routes: their content as it was when the configuration was applied.
//!
//! `000042.files` lists what configuration 42 named, with the hash of each content. `content-HASH` has a content, once
//! for all configurations.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::checksum::{checked, with_checksum};
use super::{Damage, FILES, Number, Store, StoreError, journal, numbered};

/// The paths of files that a configuration names, each with the place of its content.
pub type Files = BTreeMap<String, PathBuf>;

/// The beginning of a content's name.
const CONTENT: &str = "content-";
/// The most bytes of a list of files.
const LIST: usize = 16 << 20;

/// The hash of a file's content: FNV-1a with 128 bits. It finds changes; it keeps out no attacker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Hash(String);

impl Hash {
    /// The hash and the number of bytes of a file.
    fn of_file(path: &Path) -> io::Result<(Self, u64)> {
        Self::of(netbricks_core::open_file(path)?)
    }

    fn of(mut file: impl Read) -> io::Result<(Self, u64)> {
        let mut piece = vec![0; 1 << 16];
        let (mut hash, mut bytes) = (0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, 0);
        loop {
            match file.read(&mut piece) {
                Ok(0) => return Ok((Self(format!("{hash:032x}")), bytes)),
                Ok(read) => {
                    bytes += read as u64;
                    for byte in &piece[..read] {
                        hash = (hash ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn file_name(&self) -> String {
        format!("{CONTENT}{}", self.0)
    }
}

/// A file that a configuration named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    path: String,
    hash: Hash,
    bytes: u64,
}

/// The named files of all configurations, and the contents that are kept.
#[derive(Debug, Default)]
pub(super) struct Contents {
    named: BTreeMap<Number, Vec<Named>>,
    kept: BTreeSet<Hash>,
    /// Whether a list was damaged, so that it is not known which contents are needed.
    is_damaged: bool,
}

impl Contents {
    fn sizes(&self) -> BTreeMap<&Hash, u64> {
        self.named.values().flatten().map(|named| (&named.hash, named.bytes)).collect()
    }

    /// Bytes of all contents that are kept.
    fn bytes(&self) -> u64 {
        self.sizes().iter().filter(|(hash, _)| self.kept.contains(hash)).map(|(_, bytes)| bytes).sum()
    }

    /// The contents that no configuration names.
    fn unused(&self) -> Vec<Hash> {
        if self.is_damaged {
            return Vec::new();
        }
        let sizes = self.sizes();
        self.kept.iter().filter(|hash| !sizes.contains_key(hash)).cloned().collect()
    }
}

impl Store {
    /// Keeps the content of files that a configuration names, durably. The files are given with their places.
    ///
    /// Contents have 64 MiB together. Of those beyond, the hash is kept.
    ///
    /// # Errors
    /// [`StoreError`] when there is no such configuration, or something cannot be written.
    pub fn keep_files(&mut self, number: Number, files: &Files) -> Result<(), StoreError> {
        self.about(number)?;
        let mut named = Vec::new();
        for (path, place) in files {
            // A file that cannot be read was told of by what wanted to read it.
            let Ok((hash, bytes)) = Hash::of_file(place) else { continue };
            let room = (self.limits.contents as u64).saturating_sub(self.contents.bytes());
            if !self.contents.kept.contains(&hash) && bytes <= room {
                self.keep_content(&hash, place, bytes)?;
            }
            named.push(Named { path: path.clone(), hash, bytes });
            self.contents.named.insert(number, named.clone());
        }
        if !named.is_empty() {
            let (text, _) = with_checksum(b"", &journal::json(&named));
            self.replace(&list_name(number), text.as_bytes())?;
        }
        Ok(())
    }

    fn keep_content(&mut self, hash: &Hash, place: &Path, bytes: u64) -> Result<(), StoreError> {
        let mut content = Vec::new();
        let read =
            netbricks_core::open_file(place).and_then(|file| file.take(bytes).read_to_end(&mut content));
        if read.is_ok() {
            self.replace(&hash.file_name(), &content)?;
            // Somebody may have written the file meanwhile.
            if self.is_whole(hash) {
                self.contents.kept.insert(hash.clone());
            }
        }
        Ok(())
    }

    /// Whether a content is as it was kept.
    fn is_whole(&self, hash: &Hash) -> bool {
        let content = self.disk.read(&hash.file_name(), self.limits.contents);
        content.and_then(|content| Hash::of(&content[..])).is_ok_and(|(found, _)| found == *hash)
    }

    /// The files of a configuration that have another content by now, with the places of the old one.
    ///
    /// Also answers the paths of those whose old content was not kept.
    pub fn changed_files(&self, number: Number) -> (Files, Vec<String>) {
        let (mut files, mut lost) = (Files::new(), Vec::new());
        for Named { path, hash, .. } in self.contents.named.get(&number).into_iter().flatten() {
            if Hash::of_file(Path::new(path)).is_ok_and(|(now, _)| now == *hash) {
                continue;
            }
            if self.contents.kept.contains(hash) && self.is_whole(hash) {
                files.insert(path.clone(), self.path.join(hash.file_name()));
            } else {
                lost.push(path.clone());
            }
        }
        (files, lost)
    }

    /// Whether a configuration names these files, with the content that they have.
    pub fn has_files(&self, number: Number, files: &Files) -> bool {
        let named = self.contents.named.get(&number).map_or(&[][..], Vec::as_slice);
        named.len() == files.len()
            && named.iter().all(|named| {
                let place = files.get(&named.path);
                place.is_some_and(|place| Hash::of_file(place).is_ok_and(|(hash, _)| hash == named.hash))
            })
    }

    /// Forgets the files of these configurations, and the contents that no other one names.
    pub(super) fn forget_files(&mut self, numbers: &[Number]) {
        for number in numbers {
            self.contents.named.remove(number);
        }
        for hash in self.contents.unused() {
            let name = hash.file_name();
            if let Err(error) = self.disk.remove(&name) {
                self.postpone("remove", &name, &error);
            }
            self.contents.kept.remove(&hash);
        }
    }

    /// Reads the lists of files, and finds the contents among these names.
    pub(super) fn read_files(&mut self, names: &[String]) {
        let contents = names.iter().filter(|name| is_content(name));
        let hash = |name: &String| Hash(name[CONTENT.len()..].to_owned());
        self.contents.kept = contents.map(hash).collect();
        for name in names {
            let Some(number) = numbered(name, FILES) else { continue };
            let bytes = self.disk.read(name, LIST);
            let bytes = bytes.map_err(|error| Damage::Unreadable { problem: error.to_string() });
            match bytes.and_then(|bytes| journal::content(checked(b"", &bytes)?.0)) {
                Ok(named) => _ = self.contents.named.insert(number, named),
                Err(damage) => {
                    self.contents.is_damaged = true;
                    self.skip(name, damage);
                }
            }
        }
        // A crash may have left contents of a configuration that was never written.
        self.forget_files(&[]);
    }
}

pub(super) fn list_name(number: Number) -> String {
    format!("{:06}{FILES}", number.0)
}

/// Whether a content has this name.
pub(super) fn is_content(name: &str) -> bool {
    let hash = name.strip_prefix(CONTENT);
    hash.is_some_and(|hash| hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
