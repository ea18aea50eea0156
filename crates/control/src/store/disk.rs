//! The file operations of the store, few enough that tests can stop after each.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::error::StoreError;
use super::lock::Lock;

/// Files of one directory, by name.
pub(super) trait Disk: Send {
    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;
    /// A file's bytes. More than `limit` are [`io::ErrorKind::FileTooLarge`].
    fn read(&self, name: &str, limit: usize) -> io::Result<Vec<u8>>;
    /// Creates or empties a file, writes it, and waits until its bytes are durable. Its name may not be yet.
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Writes bytes at a place in a file that exists, and waits until they are durable.
    fn write_at(&mut self, name: &str, place: usize, bytes: &[u8]) -> io::Result<()>;
    /// Cuts a file to a length, durably.
    fn cut(&mut self, name: &str, length: usize) -> io::Result<()>;
    /// Gives a file another name, in place of the file that has it.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Waits until all names are durable.
    fn sync_names(&mut self) -> io::Result<()>;
}

/// A directory of the operating system, with its lock.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Of the directory itself, to make names durable.
    handle: File,
    _lock: Lock,
}

impl Directory {
    /// Creates the directory where it is missing, and takes its lock. The path is absolute.
    pub(super) fn open(path: &Path) -> Result<Directory, StoreError> {
        let failed = |operation| move |source| StoreError::of_file(operation, path.into(), path, source);
        let missing: Vec<_> = path.ancestors().take_while(|above| !above.is_dir()).collect();
        DirBuilder::new().recursive(true).mode(0o750).create(path).map_err(failed("create"))?;
        let handle = File::open(path).map_err(failed("open"))?;
        // A new directory's name lies in the one above; without it, all that is written could be lost.
        for above in missing.iter().filter_map(|created| created.parent()) {
            File::open(above).and_then(|above| above.sync_all()).map_err(failed("create"))?;
        }
        let lock = Lock::take(path)?;
        Ok(Directory { path: path.into(), handle, _lock: lock })
    }

    /// The permissions, where others than the owner may write.
    pub(super) fn exposed(&self) -> Option<u32> {
        let mode = self.handle.metadata().ok()?.mode() & 0o7777;
        (mode & 0o022 != 0).then_some(mode)
    }

    fn opened(&self, name: &str, options: &mut OpenOptions) -> io::Result<File> {
        // Neither a symbolic link nor a pipe that somebody put there leads elsewhere or stops the process.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let path = self.path.join(name);
        let file = options.mode(0o640).custom_flags(flags.bits().cast_signed()).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok(file)
    }
}

impl Disk for Directory {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // No file of the store has another name than UTF-8.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn read(&self, name: &str, limit: usize) -> io::Result<Vec<u8>> {
        let file = self.opened(name, OpenOptions::new().read(true))?;
        let mut bytes = Vec::new();
        file.take((limit as u64).saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() > limit {
            let problem = format!("expected at most {limit} bytes, and it is longer");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        Ok(bytes)
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.opened(name, OpenOptions::new().write(true).create(true).truncate(true))?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn write_at(&mut self, name: &str, place: usize, bytes: &[u8]) -> io::Result<()> {
        let file = self.opened(name, OpenOptions::new().write(true))?;
        file.write_all_at(bytes, place as u64)?;
        file.sync_data()
    }

    fn cut(&mut self, name: &str, length: usize) -> io::Result<()> {
        let file = self.opened(name, OpenOptions::new().write(true))?;
        file.set_len(length as u64)?;
        file.sync_all()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.handle.sync_all()
    }
}
