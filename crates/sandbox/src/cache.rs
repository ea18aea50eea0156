//! Native code from earlier runs, in a private folder.
//!
//! Native code from a file is trusted like this program, so that a file counts only if this program wrote it. The folder
//! belongs to the user who runs it and is closed to others. Each file has a code (HMAC-SHA-256) over its name and contents,
//! by a key that lies in the folder. A file from elsewhere, or one that is damaged, is as good as none.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Bytes of the key and of a code.
const CODE: usize = 32;
/// Bytes of native code at most.
const MOST: u64 = 1 << 30;

/// A folder of native code.
pub(crate) struct Cache {
    folder: PathBuf,
    key: [u8; CODE],
}

/// The name of a module's code: by the module's bytes, and by all that the compiler's result depends on.
pub(crate) struct Entry(String);

impl Entry {
    pub(crate) fn of(module: &[u8], compiler: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        compiler.hash(&mut hasher);
        let module: String = Sha256::digest(module).iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("{module}-{:016x}", hasher.finish()))
    }
}

impl Cache {
    /// Opens the folder, and makes it where it is not there.
    ///
    /// # Errors
    /// Where others can write to it, or it cannot be used.
    pub(crate) fn open(folder: &Path) -> Result<Self, String> {
        let shown = folder.display();
        let failed = |error: std::io::Error| format!("names {shown}, which cannot be used: {error}");
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        private(&fs::metadata(folder).map_err(failed)?)
            .map_err(|problem| format!("names {shown}, which {problem}"))?;
        let path = folder.join("key");
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut file) => {
                let mut key = [0; CODE];
                File::open("/dev/urandom")
                    .and_then(|mut random| random.read_exact(&mut key))
                    .map_err(failed)?;
                file.write_all(&key).and_then(|()| file.sync_all()).map_err(failed)?;
                Ok(Self { folder: folder.into(), key })
            }
            Err(_) => {
                let mut file = File::open(&path).map_err(failed)?;
                private(&file.metadata().map_err(failed)?)
                    .map_err(|problem| format!("names {shown}, whose file `key` {problem}"))?;
                let mut key = [0; CODE];
                file.read_exact(&mut key).map_err(|_| {
                    format!("names {shown}, whose file `key` has less than {CODE} bytes: remove that file")
                })?;
                Ok(Self { folder: folder.into(), key })
            }
        }
    }

    fn code(&self, entry: &Entry, contents: &[u8]) -> [u8; CODE] {
        hmac(&self.key, [entry.0.as_bytes(), contents])
    }

    /// The native code of this name, where this program has written it here.
    pub(crate) fn get(&self, entry: &Entry) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.folder.join(&entry.0)).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
        let (code, contents) = bytes.split_first_chunk::<CODE>()?;
        (self.code(entry, contents) == *code).then(|| contents.to_vec())
    }

    /// Keeps native code. Where it cannot be written, the next run compiles again.
    pub(crate) fn put(&self, entry: &Entry, contents: &[u8]) {
        let code = self.code(entry, contents);
        let unfinished = self.folder.join(format!("{}.{}", entry.0, std::process::id()));
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            file.write_all(&code)?;
            file.write_all(contents)?;
            fs::rename(&unfinished, self.folder.join(&entry.0))
        };
        if write().is_err() {
            let _ = fs::remove_file(&unfinished);
        }
    }
}

/// HMAC-SHA-256 (RFC 2104, section 2) of parts that follow each other, by a key of at most 64 bytes.
fn hmac<const PARTS: usize>(key: &[u8], parts: [&[u8]; PARTS]) -> [u8; CODE] {
    let keyed = |pad: u8| {
        let mut block = [pad; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        Sha256::new_with_prefix(block)
    };
    let mut inner = keyed(0x36);
    parts.into_iter().for_each(|part| inner.update(part));
    keyed(0x5c).chain_update(inner.finalize()).finalize().into()
}

/// Checks that a file or folder is this user's, and that no other user can write to it.
fn private(found: &fs::Metadata) -> Result<(), String> {
    let user = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    if found.uid() != user {
        return Err(format!(
            "belongs to user {}, expected {user}: native code is loaded from there",
            found.uid()
        ));
    }
    if found.mode() & 0o022 != 0 {
        let mode = found.mode() & 0o777;
        return Err(format!(
            "others can write to (mode {mode:o}): native code is loaded from there; `chmod go-w` it"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("netbricks-cache-{}-{name}", std::process::id())))
        }
    }
    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_code_is_that_of_the_standard() {
        // RFC 4231, test case 2.
        let code = hmac(b"Jefe", [b"what do ya want ", b"for nothing?"]);
        assert_eq!(code[..8], [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e]);
    }

    #[test]
    fn only_what_was_put_there_comes_out() {
        let folder = Folder::new("whole");
        let cache = Cache::open(&folder.0).unwrap();
        let (entry, other) = (Entry::of(b"module", 1), Entry::of(b"module", 2));
        assert_eq!(cache.get(&entry), None);
        cache.put(&entry, b"native");
        assert_eq!(cache.get(&entry).as_deref(), Some(&b"native"[..]));
        assert_eq!(
            Cache::open(&folder.0).unwrap().get(&entry).as_deref(),
            Some(&b"native"[..]),
            "in another run"
        );
        // Under another name, with a bit changed, cut short, or made by somebody else it is nothing.
        let path = folder.0.join(&entry.0);
        let whole = fs::read(&path).unwrap();
        fs::copy(&path, folder.0.join(&other.0)).unwrap();
        assert_eq!(cache.get(&other), None);
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(cache.get(&entry), None, "byte {place}");
            fs::write(&path, &whole[..place]).unwrap();
            assert_eq!(cache.get(&entry), None, "{place} bytes");
        }
        let elsewhere = Folder::new("elsewhere");
        let foreign = Cache::open(&elsewhere.0).unwrap();
        foreign.put(&entry, b"evil");
        fs::copy(elsewhere.0.join(&entry.0), &path).unwrap();
        assert_eq!(cache.get(&entry), None);
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let folder = Folder::new("open");
        fs::create_dir(&folder.0).unwrap();
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
        let problem = Cache::open(&folder.0).err().unwrap();
        assert!(problem.contains("others can write to (mode 777)"), "{problem}");
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
        drop(Cache::open(&folder.0).unwrap());
        fs::set_permissions(folder.0.join("key"), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(Cache::open(&folder.0).err().unwrap().contains("whose file `key` others can write to"));
    }
}
