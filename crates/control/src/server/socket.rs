//! Opening sockets, also in the place of one that is left over, never of one in use.

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// The longest wait for another process that opens a socket in the same directory.
const PATIENCE: Duration = Duration::from_secs(2);

/// A reason not to listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process listens on the socket.
    #[error(
        "`{}` is in use by {holder}; stop that process, or give another path in `[control] socket`",
        path.display()
    )]
    InUse {
        /// The socket.
        path: PathBuf,
        /// The process, where the kernel tells it: `process 17 (netbricks run a.toml)`.
        holder: String,
    },
    /// The path is there, and is no socket.
    #[error("`{}` is there, and is no socket; give another path in `[control] socket`", .0.display())]
    NoSocket(PathBuf),
    /// The socket cannot be opened.
    #[error("cannot listen on `{}`: {error}; `[control] socket` gives another path", path.display())]
    Unix {
        /// The socket.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// The TCP port cannot be opened.
    #[error("cannot listen on {address}: {error}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The reason.
        error: std::io::Error,
    },
    /// The TCP port would be open to everyone who reaches it.
    #[error(
        "{0} has no token, so that everyone who reaches it could connect: give it a token, or use the Unix socket"
    )]
    NoToken(SocketAddr),
    /// A token can be guessed or cannot be sent.
    #[error("the {which} token has {characters} characters: expected {} to {} visible ASCII characters", super::access::TOKEN.start(), super::access::TOKEN.end())]
    Token {
        /// `read-only` or `admin`.
        which: &'static str,
        /// Its length.
        characters: usize,
    },
    /// Both tokens are the same.
    #[error("the read-only token and the admin token are the same: give two different ones")]
    SameTokens,
    /// The thread cannot start.
    #[error("the thread that listens cannot start: {0}")]
    Thread(std::io::Error),
    /// The thread cannot run on these cores.
    #[error("the thread that listens cannot run on cores {0:?}: {1}")]
    Cores(Vec<usize>, std::io::Error),
}

/// A socket of this process in the file system. Dropping it removes the file, if it is still this socket.
#[derive(Debug)]
pub(super) struct Bound {
    path: PathBuf,
    /// The file's device, inode and time of change: an inode alone may be used again.
    file: (u64, u64, i64, i64),
}

fn identity(file: &Metadata) -> (u64, u64, i64, i64) {
    (file.dev(), file.ino(), file.ctime(), file.ctime_nsec())
}

impl Bound {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|file| identity(&file) == self.file) {
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

pub(super) fn bind_tcp(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let open = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    open().map_err(|error| ListenError::Tcp { address, error })
}

/// Opens a socket with mode 0660, below a directory that is made with mode 0750.
pub(super) fn bind_unix(path: &Path) -> Result<(Bound, UnixListener), ListenError> {
    let failed = |error: std::io::Error| ListenError::Unix { path: path.to_owned(), error };
    let directory = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o750).create(directory).map_err(failed)?;
    // Two processes that find the same socket left over must not both replace it.
    let _lock = lock(directory);
    remove_stale(path)?;

    let address = SocketAddrUnix::new(path).map_err(|error| match error {
        Errno::NAMETOOLONG => {
            failed(std::io::Error::new(ErrorKind::InvalidInput, "the path of a socket has at most 107 bytes"))
        }
        error => failed(error.into()),
    })?;
    let open = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &address)?;
        // Nobody can connect before `listen`, so nobody connects before the mode is right.
        std::fs::set_permissions(path, Permissions::from_mode(0o660))?;
        let bound = Bound { path: path.to_owned(), file: identity(&std::fs::symlink_metadata(path)?) };
        rustix::net::listen(&socket, BACKLOG)?;
        Ok((bound, UnixListener::from(socket)))
    };
    open().map_err(failed)
}

/// A lock on the directory. A directory that cannot be locked in time is used without.
fn lock(directory: &Path) -> Option<File> {
    let directory = File::open(directory).ok()?;
    let until = Instant::now() + PATIENCE;
    while directory.try_lock().is_err() {
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(directory)
}

/// Removes a socket that no process listens on.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let failed = |error: std::io::Error| ListenError::Unix { path: path.to_owned(), error };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(file) if !file.file_type().is_socket() => return Err(ListenError::NoSocket(path.to_owned())),
        Ok(_) => {}
    }
    let until = Instant::now() + PATIENCE;
    let found = loop {
        match holder(path) {
            // The kernel still takes it apart, as after `kill -9`.
            Ok(holder) if holder.command.is_empty() && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            found => break found,
        }
    };
    match found {
        Ok(holder) => Err(ListenError::InUse { path: path.to_owned(), holder: holder.to_string() }),
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(failed),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(failed(error.into())),
    }
}

/// Removes the socket of a process that was killed. Other files and sockets in use stay.
pub fn remove_dead_socket(path: &Path) {
    // A socket that cannot be removed is in nobody's way: clients leave it out.
    let _stays = remove_stale(path);
}

/// A process that listens on a socket.
struct Holder {
    /// `None` where it does not accept connections.
    process: Option<i32>,
    /// Its command line; empty where it is ending or hidden.
    command: String,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.process, &*self.command) {
            (None, command) => f.write_str(command),
            (Some(process), "") => write!(f, "process {process}"),
            (Some(process), command) => write!(f, "process {process} (`{command}`)"),
        }
    }
}

/// The process that listens on a socket.
fn holder(path: &Path) -> Result<Holder, Errno> {
    // Without NONBLOCK, a full backlog would have this wait.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => {}
        Err(Errno::AGAIN) => {
            return Ok(Holder {
                process: None,
                command: "a process that does not accept connections".into(),
            });
        }
        Err(error) => return Err(error),
    }
    let pid = rustix::net::sockopt::socket_peercred(&socket)?.pid.as_raw_nonzero();
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = command
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    Ok(Holder { process: Some(pid.get()), command: words.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("nb-socket-{}-{name}", std::process::id()));
        let _old = std::fs::remove_dir_all(&directory);
        directory.join("a.sock")
    }

    #[test]
    fn sockets_are_for_their_owner_and_group_and_go_with_their_process() {
        let path = place("modes");
        let (bound, listener) = bind_unix(&path).expect("a new directory");
        let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().expect("a directory"))), (0o660, 0o750));
        drop((bound, listener));
        assert!(!path.exists());
    }

    #[test]
    fn sockets_that_are_left_over_are_replaced() {
        let path = place("stale");
        let (bound, listener) = bind_unix(&path).expect("a new directory");
        drop(listener);
        // The clock of files is coarse: a new file may have the same inode and time at first.
        let (again, _listener) = loop {
            let new = bind_unix(&path).expect("nobody listens any more");
            if new.0.file != bound.file {
                break new;
            }
        };
        // The old one does not take the new one's file with it.
        drop(bound);
        assert!(path.exists());
        drop(again);
        assert!(!path.exists());
    }

    #[test]
    fn sockets_in_use_and_other_files_are_left_alone() {
        let path = place("used");
        let (_bound, _listener) = bind_unix(&path).expect("a new directory");
        let error = bind_unix(&path).expect_err("it is in use").to_string();
        assert!(error.contains(&format!("is in use by process {}", std::process::id())), "{error}");
        let file = path.with_file_name("b.sock");
        std::fs::write(&file, "text").expect("a writable directory");
        assert!(matches!(bind_unix(&file), Err(ListenError::NoSocket(_))));
        let long = path.with_file_name("x".repeat(120));
        assert!(bind_unix(&long).expect_err("too long").to_string().contains("107 bytes"));
    }
}
