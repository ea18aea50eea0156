//! Where a dataplane listens, and which dataplanes listen on this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::api::{Code, Problem};

/// The environment variable with the token for TCP.
const TOKEN: &str = "NETBRICKS_TOKEN";
/// The environment variable with the name of a file that has the token.
const TOKEN_FILE: &str = "NETBRICKS_TOKEN_FILE";
/// The most bytes that a token's file may have.
const MOST_TOKEN: u64 = 4_096;
/// The directory of services' sockets.
const SERVICES: &str = "/run/netbricks";

/// The address of a running dataplane.
///
/// As text it is a path, `unix:PATH`, or `http://ADDRESS:PORT`. The token for the last comes from the environment:
/// from `NETBRICKS_TOKEN`, or from the file that `NETBRICKS_TOKEN_FILE` names.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp {
        /// The address and port.
        address: SocketAddr,
        /// The bearer token.
        token: Option<String>,
    },
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp { address, .. } => write!(f, "http://{address}"),
        }
    }
}

// A token must not reach a log.
impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Address({self})")
    }
}

impl FromStr for Address {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong = |detail: String| {
            Problem::new(Code::BadRequest, detail).help(
                "expected a path, `unix:PATH`, or `http://ADDRESS:PORT`, such as `http://127.0.0.1:9090`",
            )
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(PathBuf::from(path.strip_prefix("//").unwrap_or(path))));
        }
        if text.starts_with("https:") {
            return Err(wrong(format!("`{text}`: a dataplane does not speak TLS")));
        }
        let Some(place) = text.strip_prefix("http://") else {
            return match text {
                "" => Err(wrong("the address is empty".into())),
                path => Ok(Self::Unix(PathBuf::from(path))),
            };
        };
        let place = place.trim_end_matches('/');
        let local = place.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        let address = match local {
            Some(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            None => place.parse().map_err(|_| wrong(format!("`{place}` is no IP address with a port")))?,
        };
        Ok(Self::Tcp { address, token: token_of_environment()? })
    }
}

/// The token that the environment gives.
fn token_of_environment() -> Result<Option<String>, Problem> {
    if let Ok(token) = std::env::var(TOKEN) {
        return Ok(Some(token));
    }
    match std::env::var_os(TOKEN_FILE) {
        None => Ok(None),
        Some(path) => read_token(Path::new(&path)).map(Some),
    }
}

/// The token in a file: its text without white space around it.
///
/// # Errors
/// [`Code::Machine`] where the file cannot be read, is empty, or has more than 4,096 bytes.
pub fn read_token(path: &Path) -> Result<String, Problem> {
    let wrong =
        |what: String| Problem::new(Code::Machine, format!("token file `{}`: {what}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
    if size > MOST_TOKEN {
        return Err(wrong(format!("{size} bytes; a token has at most {MOST_TOKEN}")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    match text.trim() {
        "" => Err(wrong("it is empty".into())),
        token => Ok(token.to_owned()),
    }
}

/// The socket of the graph of this name where no other is configured.
///
/// It lies in `$XDG_RUNTIME_DIR/netbricks`, or in `/run/netbricks` where that variable is not set.
pub fn default_socket(name: &str) -> PathBuf {
    let name: String = name.chars().map(|c| if matches!(c, '/' | '\0') { '_' } else { c }).collect();
    let directory = user_directory().unwrap_or_else(|| PathBuf::from(SERVICES));
    directory.join(format!("{name}.sock"))
}

fn user_directory() -> Option<PathBuf> {
    let directory = std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty())?;
    Some(Path::new(&directory).join("netbricks"))
}

/// The directories in which clients look for sockets.
pub(super) fn directories() -> Vec<PathBuf> {
    user_directory().into_iter().chain([PathBuf::from(SERVICES)]).collect()
}

/// The sockets in a directory that a process listens on, by name.
pub(super) fn listening(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
        // A socket that this user may not open is listened on all the same.
        .filter(|path| {
            UnixStream::connect(path)
                .map_or_else(|e| e.kind() == std::io::ErrorKind::PermissionDenied, |_| true)
        })
        .collect();
    found.sort();
    found
}

/// The only socket that a process listens on below these directories.
pub(super) fn only(directories: &[PathBuf]) -> Result<PathBuf, Problem> {
    let mut found: Vec<PathBuf> = directories.iter().flat_map(|directory| listening(directory)).collect();
    let list =
        |paths: &[PathBuf]| paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
    if found.len() > 1 {
        return Err(Problem::new(Code::Unreachable, format!("several dataplanes run: {}", list(&found)))
            .help("say which one with `--socket PATH`"));
    }
    found.pop().ok_or_else(|| {
        Problem::new(Code::Unreachable, format!("no dataplane listens in {}", list(directories)))
            .help("is it running? start it with `netbricks run FILE`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths_or_urls() {
        let unix = |text: &str| Address::Unix(PathBuf::from(text));
        assert_eq!("/run/a.sock".parse(), Ok(unix("/run/a.sock")));
        assert_eq!("unix:/run/a.sock".parse(), Ok(unix("/run/a.sock")));
        assert_eq!("unix:///run/a.sock".parse(), Ok(unix("/run/a.sock")));
        assert_eq!("a.sock".parse(), Ok(unix("a.sock")));
        for (text, expected) in [
            ("http://127.0.0.1:9090", "127.0.0.1:9090"),
            ("http://localhost:1/", "127.0.0.1:1"),
            ("http://[::1]:80", "[::1]:80"),
        ] {
            let Ok(Address::Tcp { address, .. }) = text.parse() else { panic!("{text}") };
            assert_eq!(address.to_string(), expected);
        }
        for wrong in ["", "http://", "http://example.org", "https://127.0.0.1:1", "http://127.0.0.1"] {
            assert!(Address::from_str(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tokens_are_not_printed() {
        let address = Address::Tcp { address: ([127, 0, 0, 1], 1).into(), token: Some("secret".into()) };
        assert_eq!(format!("{address:?} {address}"), "Address(http://127.0.0.1:1) http://127.0.0.1:1");
    }

    #[test]
    fn names_of_graphs_stay_in_the_directory_of_sockets() {
        let socket = default_socket("../etc/x");
        assert_eq!(socket.file_name().and_then(|name| name.to_str()), Some(".._etc_x.sock"));
    }
}
