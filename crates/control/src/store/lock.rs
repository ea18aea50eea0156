//! The lock of a state directory, which the kernel releases when its process ends.
//!
//! The file stays: a process that removed it could leave two others with a lock each, on the old and on a new file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock, major, minor};

use super::error::{Holder, StoreError};

/// The lock file's name.
pub(super) const NAME: &str = "lock";

/// The longest wait for a process that is ending: the kernel still takes its memory apart after `kill -9`.
const PATIENCE: Duration = Duration::from_secs(2);

/// The right to change a state directory.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, or says which process has had it for two seconds.
    pub(super) fn take(directory: &Path) -> Result<Lock, StoreError> {
        let path = directory.join(NAME);
        let failed =
            |operation| move |source| StoreError::of_file(operation, directory.join(NAME), directory, source);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o640)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(&path)
            .map_err(failed("open"))?;
        let until = Instant::now() + PATIENCE;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(StoreError::Held { path: directory.into(), holder: holder(&file) });
                }
                Err(error) => return Err(failed("lock")(error.into())),
            }
        }
        // The number is for error messages only, so that a full disk does not keep anything from starting.
        let _ = name_this_process(&file);
        Ok(Lock { _file: file })
    }
}

fn name_this_process(file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0)
}

/// The process that has the lock: by the kernel's list, else by the file, which it writes a moment later.
fn holder(file: &File) -> Holder {
    let process = in_kernel(file).or_else(|| in_file(file));
    let command = process.and_then(|process| std::fs::read_to_string(format!("/proc/{process}/comm")).ok());
    Holder { process, command: command.map(|name| name.trim_end().escape_debug().to_string()) }
}

/// Finds the file in `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 4242 fe:01:1234 0 EOF`.
fn in_kernel(file: &File) -> Option<u32> {
    let about = file.metadata().ok()?;
    let place = format!("{:02x}:{:02x}:{}", major(about.dev()), minor(about.dev()), about.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        match fields[..] {
            // A process of another namespace is shown as 0 or below.
            [_, "FLOCK", _, "WRITE", process, at, ..] if at == place => {
                process.parse().ok().filter(|&process| process > 0)
            }
            _ => None,
        }
    })
}

fn in_file(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_given_back_in_a_moment_is_waited_for() {
        let directory = std::env::temp_dir().join(format!("nb-lock-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let first = Lock::take(&directory).unwrap();
        let (begins, begun) = std::sync::mpsc::channel();
        let other = directory.clone();
        let second = std::thread::spawn(move || {
            begins.send(()).unwrap();
            Lock::take(&other).map(drop)
        });
        begun.recv().unwrap();
        // Time for the other thread to find the lock taken.
        std::thread::sleep(Duration::from_millis(100));
        drop(first);
        second.join().unwrap().unwrap();
        std::fs::remove_dir_all(directory).unwrap();
    }
}
