//! The Unix socket at which a port listens for its peer.

use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use netbricks_core::InvalidSetting;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::port::PortError;

/// Peers that may wait to be accepted.
const BACKLOG: i32 = 16;
/// Time until the next attempt to accept a peer, where the system lacks what that takes.
const PAUSE: Duration = Duration::from_millis(10);
/// The most bytes of a socket's path (unix(7)).
const LONGEST_PATH: usize = 107;

/// Refuses the setting `socket` if no socket can have this path.
pub(crate) fn check_path(socket: &Path) -> Result<(), InvalidSetting> {
    let len = socket.as_os_str().len();
    if (1..=LONGEST_PATH).contains(&len) {
        return Ok(());
    }
    Err(InvalidSetting {
        key: "socket",
        problem: format!("must have 1 to {LONGEST_PATH} bytes, found {len}"),
    })
}

/// The socket's path, which a relative one continues from the file's directory.
pub(crate) fn socket_path(port: &str, socket: &Path, directory: &Path) -> Result<PathBuf, PortError> {
    let path = directory.join(socket);
    let len = path.as_os_str().len();
    if len <= LONGEST_PATH {
        return Ok(path);
    }
    Err(PortError::Setting {
        port: port.into(),
        key: "socket",
        problem: format!(
            "must have at most {LONGEST_PATH} bytes with the directory of the file, found {len}: {}",
            path.display()
        ),
    })
}

pub(crate) fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(path)?)
}

/// A socket of this type that does not block.
pub(crate) fn socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

/// A socket that listens. Its file goes away with it, if it is still this socket's.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    file: (u64, u64),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.file) {
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Listens at a path, for peers of the same user. The socket of a process that was killed is replaced.
    pub(crate) fn bind(path: &Path, kind: SocketType) -> io::Result<Self> {
        let address = address(path)?;
        remove_stale(path, &address, kind)?;
        let socket = socket(kind)?;
        rustix::net::bind(&socket, &address)?;
        // No peer can connect before `listen`, so none connects before the mode is right.
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let file = std::fs::symlink_metadata(path)?;
        let listener = Self { socket, path: path.to_owned(), file: (file.dev(), file.ino()) };
        rustix::net::listen(&listener.socket, BACKLOG)?;
        Ok(listener)
    }

    /// As [`bind`](Self::bind), with the error of a port.
    pub(crate) fn open(port: &str, path: &Path, kind: SocketType) -> Result<Self, PortError> {
        Self::bind(path, kind).map_err(|error| PortError::File {
            port: port.into(),
            path: path.display().to_string(),
            problem: format!("cannot listen: {error}"),
        })
    }

    /// The next peer, if one waits. Its socket is closed by execve(2), and has these flags.
    pub(crate) fn accept(&self, flags: SocketFlags) -> Option<OwnedFd> {
        match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | flags) {
            Ok(socket) => Some(socket),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => None,
            Err(_) => {
                // Such as no descriptor left: the peer goes on waiting, and the socket stays readable.
                std::thread::sleep(PAUSE);
                None
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Removes a socket on which no process listens.
fn remove_stale(path: &Path, address: &SocketAddrUnix, kind: SocketType) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "a file that is no socket is there: remove it, or choose another path",
            ));
        }
        Ok(_) => {}
    }
    match rustix::net::connect(socket(kind)?, address) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        Err(Errno::NOENT) => Ok(()),
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Err(io::Error::new(
            ErrorKind::AddrInUse,
            "another port or process listens there: give each port a path of its own",
        )),
        Err(error) => Err(error.into()),
    }
}
