//! Where a run can be asked and changed: its socket, its tokens, and the directory of its state.

use std::path::{Path, PathBuf};

use netbricks_control::store::Store;
use netbricks_control::{
    Events, Grants, ListenConfig, ListenError, Listener, Tasks, Tokens, changed_files, default_socket,
    source_of,
};
use netbricks_core::read_text;

use super::arguments::ControlArguments;
use super::file::File;
use super::{Console, Failure};
use crate::config::ControlSettings;
use crate::diagnostic::Level;

/// The control side of a run, before it begins.
pub(super) struct ControlSide {
    pub(super) store: Option<Store>,
    socket: Option<PathBuf>,
    /// Whether the operator named the socket, or else asked for control.
    wanted: bool,
    tcp: Option<(std::net::SocketAddr, Tokens)>,
}

/// The file that a start without one runs: the confirmed configuration of the state directory.
pub(super) fn restored(console: Console, arguments: &ControlArguments) -> Result<(File, Store), Failure> {
    let Some(directory) = &arguments.state else {
        return Err(Failure::Usage(
            "no file to run: name one, or the directory of an earlier run's configurations with `--state DIR`".into(),
        ));
    };
    let store = open(directory)?;
    let Some(saved) = store.confirmed() else {
        return Err(Failure::Failed(format!(
            "`{}` has no configuration yet: start once with a file",
            directory.display()
        )));
    };
    let (files, warnings) = changed_files(&store, saved.number);
    warnings.iter().for_each(|warning| console.complain(Level::Warning, warning));
    Ok((File::of(&source_of(saved), &files), store))
}

fn open(directory: &Path) -> Result<Store, Failure> {
    Store::open(directory).map_err(|error| Failure::Failed(error.to_string()))
}

impl ControlSide {
    /// Combines the command line and the file; a store that is open already is used.
    pub(super) fn new(
        settings: &ControlSettings,
        arguments: &ControlArguments,
        store: Option<Store>,
        name: &str,
        directory: &Path,
        live: bool,
    ) -> Result<Self, Failure> {
        let named = |path: &PathBuf| directory.join(path);
        let by_file = settings.enabled.unwrap_or_else(|| settings.is_given());
        // The command line stands before the file.
        let wanted = arguments.socket.is_some() || by_file;
        let by_default = live && settings.enabled.is_none();
        let enabled = (wanted || by_default) && !arguments.no_control;
        let state = arguments.state.clone().or_else(|| settings.state.as_ref().map(named));
        let store = match (store, state) {
            (Some(store), _) => Some(store),
            (None, Some(state)) => Some(open(&state)?),
            (None, None) => None,
        };
        let socket = arguments.socket.clone().or_else(|| settings.socket.as_ref().map(named));
        let tcp = match settings.listen.filter(|_| enabled) {
            None => None,
            Some(address) => {
                let token = |path: &Option<PathBuf>| {
                    path.as_ref().map(|path| token(&named(path))).transpose().map_err(Failure::Failed)
                };
                let tokens = Tokens {
                    admin: token(&settings.token_file)?,
                    read_only: token(&settings.read_token_file)?,
                    open: settings.listen_open == Some(true),
                };
                Some((address, tokens))
            }
        };
        let socket = enabled.then(|| socket.unwrap_or_else(|| default_socket(name)));
        Ok(Self { store, socket, wanted, tcp })
    }

    /// Begins to listen. A default socket is left out where it cannot be opened.
    pub(super) fn listen(
        &self,
        console: Console,
        tasks: &Tasks,
        events: &Events,
        grants: &Grants,
        cores: Option<Vec<usize>>,
    ) -> Result<Option<Listener>, Failure> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let start = |path: PathBuf| {
            let (tcp, grants) = (self.tcp.clone(), grants.clone());
            let config = ListenConfig { unix: Some(path), tcp, grants, ..ListenConfig::default() };
            Listener::start(config, tasks.clone(), events.clone(), cores.clone())
        };
        let started = match start(socket.clone()) {
            // Another run of a file of this name.
            Err(ListenError::InUse { .. }) if !self.wanted => {
                start(socket.with_extension(format!("{}.sock", std::process::id())))
            }
            started => started,
        };
        match started {
            Ok(listener) => Ok(Some(listener)),
            Err(error) if self.wanted => Err(Failure::Failed(error.to_string())),
            Err(error) => {
                console.complain(Level::Warning, &format!("this run cannot be asked or changed: {error}"));
                Ok(None)
            }
        }
    }
}

/// The most bytes of a token's file.
const LARGEST: u64 = 1 << 20;

/// The token in a file of one line.
pub(super) fn token(path: &Path) -> Result<String, String> {
    let text = read_text(path, LARGEST)
        .map_err(|error| format!("the token file `{}` cannot be read: {error}", path.display()))?;
    Ok(text.trim_end().to_owned())
}
