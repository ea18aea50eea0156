//! A module before packets come: compiled, checked, asked what it declares, and set up once as a trial.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use netbricks_core::Random;

use crate::backend::wasmtime::Wasmtime;
use crate::backend::{Backend, Contents, Declared, Limits, Loaded, Program, Refused};
use crate::cache::Cache;
use crate::config::needs;
use crate::host::{Host, Needs, Window};
use crate::records::Records;
use crate::sys::frames::{Copies, Frames};

/// A module that can run, with its configuration.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) program: Arc<dyn Program>,
    pub(crate) needs: Needs,
    pub(crate) config: Vec<u8>,
}

/// The largest frame of the trial, which gets no packets: workers' frames are no smaller.
const TRIAL: usize = 2_048;

/// The contents and needs of a module, and the reasons for which it would be refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Inspection {
    /// Its contents, where it is a valid module.
    pub contents: Option<Contents>,
    /// The needs that it declares, where it could be asked.
    pub declared: Option<Declared>,
    /// Reasons for which it is refused; none where it is taken.
    pub problems: Vec<String>,
    /// Properties that cost more than they have to.
    pub notes: Vec<String>,
}

/// A module with its configuration, to be tried.
pub(crate) struct Trial<'m> {
    pub(crate) module: &'m [u8],
    pub(crate) config: Vec<u8>,
    pub(crate) limits: Limits,
    pub(crate) calls: u32,
    /// Frames that are mapped into its memory (`mapped`).
    pub(crate) frames: Option<usize>,
    pub(crate) cache: Option<&'m Cache>,
}

impl Trial<'_> {
    /// Compiles the module and tries it on this thread. What is found on the way is written to `found`.
    ///
    /// # Errors
    /// The reasons for which it is refused.
    pub(crate) fn run(self, found: &mut Inspection) -> Result<Prepared, Refused> {
        let Self { module, config, limits, calls, frames, cache } = self;
        let program = Wasmtime.compile(module, limits, cache)?;
        found.contents = Some(program.contents().clone());
        program.check(limits)?;
        let mapped = frames.is_some();
        let loaded = program.load(limits, mapped)?;
        let declared = declared(&*loaded)?;
        found.declared = Some(declared);
        let needs = needs(declared).map_err(Refused::new)?;
        let window = match frames {
            Some(_) => Window::without_frames(config.len()),
            None => Window::new(needs, TRIAL, config.len()),
        };
        let host = Host::new(needs, window, calls, Random::of(&[]), Rc::<RefCell<Records>>::default());
        let frames = frames.map(|frames| Frames::of(None, frames)).transpose().map_err(Refused::new)?;
        program.contents().has_room(window.room(frames.as_ref().map_or(0, |frames| frames.bytes())))?;
        let host = Box::new(match frames {
            Some(frames) => host.over(Copies::of(frames)),
            None => host,
        });
        if let Err((fault, _)) = loaded.start(host, &config) {
            return Err(Refused::new(format!("setting it up failed: {fault}")));
        }
        program.load_ahead(mapped);
        Ok(Prepared { program, needs, config })
    }
}

/// The numbers that the module declares.
///
/// # Errors
/// A fault of its start function or of the functions that declare.
fn declared(loaded: &dyn Loaded) -> Result<Declared, Refused> {
    loaded.declared().map_err(|fault| Refused::new(format!("it cannot say what it needs: {fault}")))
}
