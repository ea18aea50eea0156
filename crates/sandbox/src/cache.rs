//! Native code from earlier runs, in a private folder.
//!
//! Native code from a file is trusted like this program, so that a file counts only if this program wrote it. The folder
//! belongs to the user who runs it and is closed to others. Each file has a code (HMAC-SHA-256) over its name and contents,
//! by a key that lies in the folder. A file from elsewhere, or one that is damaged, is as good as none.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

/// Bytes of the key and of a code.
const CODE: usize = 32;
/// Bytes that a folder keeps at most: code that was not used for longest goes first.
const MOST: u64 = 512 << 20;

/// A folder of native code.
pub(crate) struct Cache {
    folder: PathBuf,
    key: [u8; CODE],
    most: u64,
}

/// A name for a file that nothing else writes meanwhile, which is then given its own.
fn unfinished(folder: &Path, name: &str) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("{name}.{}-{number}", std::process::id()))
}

/// Gives a file a second name: [`fs::hard_link`], but in tests.
type Link = fn(&Path, &Path) -> std::io::Result<()>;

/// Writes a key, unless another start has written one meanwhile.
///
/// The file has all of it as soon as it has its name, where the file system has hard links.
fn make_key(folder: &Path, path: &Path, link: Link) -> std::io::Result<()> {
    let unfinished = unfinished(folder, "key");
    let write = || {
        let mut key = [0; CODE];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        write_new(&unfinished, &key)?;
        match link(&unfinished, path) {
            Err(error) if has_no_links(&error) => write_new(path, &key),
            linked => linked,
        }
    };
    let written = write();
    let _ = fs::remove_file(&unfinished);
    match written {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.exists() => Ok(()),
        written => written,
    }
}

/// Writes a file that is not there yet; one that cannot be written whole is removed.
fn write_new(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(contents).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

/// Whether this is the answer of a file system without hard links, such as FAT and some in user space.
fn has_no_links(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS))
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
        if !path.exists() {
            make_key(folder, &path, |from, to| fs::hard_link(from, to)).map_err(failed)?;
        }
        let mut file = File::open(&path).map_err(failed)?;
        private(&file.metadata().map_err(failed)?)
            .map_err(|problem| format!("names {shown}, whose file `key` {problem}"))?;
        let mut key = [0; CODE];
        file.read_exact(&mut key).map_err(|_| {
            format!("names {shown}, whose file `key` has less than {CODE} bytes: remove that file")
        })?;
        Ok(Self { folder: folder.into(), key, most: MOST })
    }

    fn code(&self, entry: &Entry, contents: &[u8]) -> [u8; CODE] {
        hmac(&self.key, [entry.0.as_bytes(), contents])
    }

    /// The native code of this name, where this program has written it here.
    pub(crate) fn get(&self, entry: &Entry) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.folder.join(&entry.0)).ok()?;
        (&file).take(MOST).read_to_end(&mut bytes).ok()?;
        let (code, contents) = bytes.split_first_chunk::<CODE>()?;
        let found = (self.code(entry, contents) == *code).then(|| contents.to_vec());
        if found.is_some() {
            // Where the time of its last use cannot be kept, it goes sooner.
            let _ = file.set_modified(SystemTime::now());
        }
        found
    }

    /// Keeps native code, and removes what was not used for longest where the folder has too much.
    ///
    /// Where it cannot be written, the next run compiles again.
    pub(crate) fn put(&self, entry: &Entry, contents: &[u8]) {
        let code = self.code(entry, contents);
        let unfinished = unfinished(&self.folder, &entry.0);
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
        self.remove_unused(&entry.0);
    }

    /// Removes native code, but for that of one name, until no more than may stay is left.
    ///
    /// What a run that ended has left unfinished counts too. Other files of the folder are left alone.
    fn remove_unused(&self, but: &str) {
        let Ok(listed) = fs::read_dir(&self.folder) else { return };
        let files = listed.filter_map(|file| {
            let file = file.ok()?;
            let found = file.metadata().ok()?;
            let name = file.file_name().into_string().ok()?;
            let is_ours = found.is_file() && is_entry(&name);
            is_ours.then_some((found.modified().ok()?, name, found.len()))
        });
        let mut files: Vec<(SystemTime, String, u64)> = files.collect();
        let mut kept: u64 = files.iter().map(|(.., bytes)| bytes).sum();
        files.sort();
        for (_, name, bytes) in files.iter().filter(|(_, name, _)| name != but) {
            if kept <= self.most {
                break;
            }
            if fs::remove_file(self.folder.join(name)).is_ok() {
                kept -= bytes;
            }
        }
    }
}

/// Whether a file has the name of native code, perhaps unfinished: the hashes of a module and of its compiler.
fn is_entry(name: &str) -> bool {
    let name = name.split_once('.').map_or(name, |(name, _)| name);
    let is_hash =
        |text: &str, digits| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.split_once('-').is_some_and(|(module, compiler)| is_hash(module, 2 * CODE) && is_hash(compiler, 16))
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
    #[test]
    fn code_that_was_not_used_for_longest_goes_first() {
        let folder = Folder::new("bound");
        let mut cache = Cache::open(&folder.0).unwrap();
        cache.most = 3 * (100 + CODE as u64);
        let entries: Vec<Entry> = (0..6).map(|number: u8| Entry::of(&[number], 1)).collect();
        let used = |entry: &Entry, second: u64| {
            let file = File::open(folder.0.join(&entry.0)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second)).unwrap();
        };
        fs::write(folder.0.join("note"), [0; 4_096]).unwrap();
        for (second, entry) in entries[..3].iter().enumerate() {
            cache.put(entry, &[1; 100]);
            used(entry, second as u64);
        }
        // The first is used again, now.
        assert!(cache.get(&entries[0]).is_some());
        cache.put(&entries[3], &[1; 100]);
        let kept = |entry: &Entry| cache.get(entry).is_some();
        assert_eq!(entries.iter().map(kept).collect::<Vec<_>>(), [true, false, true, true, false, false]);
        // What is left of a write that never ended goes as well, and code that alone is too much stays for this run.
        let rest = folder.0.join(format!("{}.1-1", entries[4].0));
        fs::write(&rest, [0; 100 + CODE]).unwrap();
        cache.put(&entries[5], &[1; 1_000]);
        assert!(!rest.exists() && folder.0.join("note").exists() && folder.0.join("key").exists());
        let kept = |entry: &Entry| cache.get(entry).is_some();
        assert_eq!(entries.iter().map(kept).collect::<Vec<_>>(), [false, false, false, false, false, true]);
    }

    #[test]
    fn a_file_system_without_hard_links_has_a_key_too() {
        const LINKS: [(Link, bool); 4] = [
            (|_, _| Err(std::io::Error::from_raw_os_error(libc::EPERM)), true),
            (|_, _| Err(std::io::Error::from_raw_os_error(libc::EOPNOTSUPP)), true),
            (|_, _| Err(std::io::Error::from_raw_os_error(libc::ENOSYS)), true),
            (|_, _| Err(std::io::Error::from_raw_os_error(libc::EIO)), false),
        ];
        for (number, (link, has_key)) in LINKS.into_iter().enumerate() {
            let folder = Folder::new(&format!("links-{number}"));
            fs::create_dir(&folder.0).unwrap();
            let path = folder.0.join("key");
            assert_eq!(make_key(&folder.0, &path, link).is_ok(), has_key);
            assert_eq!(fs::read_dir(&folder.0).unwrap().count(), usize::from(has_key), "the key alone");
            if has_key {
                let key = fs::read(&path).unwrap();
                assert_eq!((key.len(), fs::metadata(&path).unwrap().mode() & 0o777), (CODE, 0o600));
                // A start that comes later leaves it.
                make_key(&folder.0, &path, link).unwrap();
                assert_eq!(fs::read(&path).unwrap(), key);
                assert_eq!(Cache::open(&folder.0).unwrap().key[..], key);
            }
        }
    }

    #[test]
    fn starts_at_once_have_the_same_whole_key() {
        for round in 0..20 {
            let folder = Folder::new(&format!("at-once-{round}"));
            let barrier = std::sync::Barrier::new(8);
            let open = || {
                barrier.wait();
                Cache::open(&folder.0).map(|cache| cache.key)
            };
            let keys: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(keys.iter().all(|key| key.is_ok() && *key == keys[0]), "{keys:?}");
            assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "the key alone");
        }
    }
}
