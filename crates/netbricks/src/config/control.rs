//! `[control]`: where a run can be asked and changed, and what of it outlives the process.

use std::net::SocketAddr;
use std::path::PathBuf;

use netbricks_core::{InvalidSetting, Key, Keys, Settings};

netbricks_core::settings! {
    /// The settings in `[control]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ControlSettings {
        /// Whether the run can be asked and changed.
        pub enabled: Option<bool> = unset "true where a port is live or this table has another key", "true or false";
        /// The Unix socket on which the run listens.
        pub socket: Option<PathBuf> = unset "FILE.sock in `$XDG_RUNTIME_DIR/netbricks` or `/run/netbricks`", "path";
        /// The address on which it listens for HTTP as well; it needs a token, or `listen_open`.
        pub listen: Option<SocketAddr> = unset "none", "address and port, such as \"127.0.0.1:9180\"";
        /// The file with the token of clients that may change the run.
        pub token_file: Option<PathBuf> = unset "none", "path of a file with one line";
        /// The file with the token of clients that may only ask.
        pub read_token_file: Option<PathBuf> = unset "none", "path of a file with one line";
        /// Whether every user of this machine may ask at `listen` without a token, which is then a loopback address.
        pub listen_open: Option<bool> = unset "false", "true or false";
        /// The directory that keeps configurations and what was changed live, for the next start.
        pub state: Option<PathBuf> = unset "none: nothing outlives the process", "path of a directory";
    }
}

impl ControlSettings {
    /// Its keys.
    pub fn keys() -> &'static [Key] {
        Self::KEYS
    }

    /// Whether the operator asked for anything here.
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }
}

impl Settings for ControlSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        let with_token = self.token_file.is_some() || self.read_token_file.is_some();
        match self.listen {
            Some(address) if !address.ip().is_loopback() && !with_token => Err(InvalidSetting {
                key: "listen",
                problem: format!(
                    "{address} is open to other machines, and there is no token: add `token_file` or `read_token_file`"
                ),
            }),
            Some(address) if !with_token && self.listen_open != Some(true) => Err(InvalidSetting {
                key: "listen",
                problem: format!(
                    "{address} is open to every user of this machine, and there is no token: add `token_file` or \
                     `read_token_file`, or `listen_open = true` to let them read"
                ),
            }),
            None if self.listen_open.is_some() => Err(InvalidSetting {
                key: "listen_open",
                problem: "is for `listen`, which is not there".into(),
            }),
            None if with_token => Err(InvalidSetting {
                key: if self.token_file.is_some() { "token_file" } else { "read_token_file" },
                problem: "is for `listen`, which is not there: on the Unix socket its permissions decide"
                    .into(),
            }),
            _ => Ok(()),
        }
    }
}
