//! Instances that a chain file declares: `[instance.NAME]`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use netbricks_core::read_text;
use netbricks_core::units::Bytes;

use crate::classes::Known;
use crate::language::config::{self, Source};
use crate::language::errors::Errors;

use super::commands::{MOST_PORTS, RINGS, check_owned, is_name, owner};
use super::host::Host;
use super::instance::{LARGEST, Quotas, State, told};
use crate::router::Capabilities;
use crate::value::Ether;

netbricks_core::settings! {
    /// An instance as a file declares it.
    #[derive(Clone, Debug)]
    pub struct InstanceSettings {
        /// A file with its configuration; without one it has none until `install`.
        pub file: Option<PathBuf> = unset, "path of a .click file, from the chain file's directory";
        /// Its configuration, instead of a file.
        pub text: Option<String> = unset, "a Click configuration";
        /// Values of the configuration's variables.
        pub parameters: Vec<String> = [], "list of NAME=VALUE";
        /// Virtual ports.
        pub ports: usize = 1, "whole number, 1 to 64";
        /// The MAC address of the first port; that of each further port is one more.
        pub mac: Option<String> = unset "one of the switch's", "MAC address";
        /// Packets that wait at each port.
        pub ring: usize = 256, "whole number, 64 to 2048";
        /// Packets that its elements hold before they create no more.
        pub frames: u64 = 4_096, "whole number, 1 to 4,294,967,296";
        /// Its share of the processor beside that of others.
        pub weight: u32 = 1_024, "whole number, 1 to 65,536";
        /// Memory that its elements, their tables and the packets that they hold may take.
        pub memory: Option<Bytes> = unset "no limit", "bytes, such as \"4 MB\"";
        /// The worker that runs it.
        pub worker: Option<usize> = unset "the one with the least weight", "whole number, from 0";
        /// The tenant that may configure, read and suspend it.
        pub owner: Option<String> = unset "the operator", "a tenant's name";
        /// The text of the configuration, once its file was read: a worker that builds the function reads none.
        pub(super) read: OnceLock<Arc<str>> = skipped;
    }
}

/// A new instance: its name, ports and quotas.
#[derive(Clone, Debug, Default)]
pub(super) struct Creation {
    pub name: String,
    pub ports: usize,
    pub mac: Option<Ether>,
    pub ring: usize,
    /// The worker that runs it; without one the directory chooses.
    pub worker: Option<usize>,
    pub quotas: Quotas,
    /// The tenant that may configure it; without one the operator alone.
    pub owner: Option<String>,
}

impl InstanceSettings {
    /// The instance of these settings.
    ///
    /// # Errors
    /// A value is out of its range.
    fn creation(&self, name: &str) -> Result<Creation, String> {
        if !is_name(name) {
            return Err(format!("`{name}` is no name: use 1 to 64 letters, digits, `-`, `_` and `.`"));
        }
        let within = |key: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(format!("{key} of `{name}` must be {least} to {most}, found {value}"))
        };
        within("ports", self.ports as u64, 1, MOST_PORTS as u64)?;
        within("ring", self.ring as u64, *RINGS.start() as u64, *RINGS.end() as u64)?;
        within("frames", self.frames, 1, 1 << 32)?;
        within("weight", u64::from(self.weight), 1, 65_536)?;
        let read =
            |text: &String| Ether::read(text).ok_or(format!("mac of `{name}`: `{text}` is no MAC address"));
        let memory = self.memory.map(Bytes::bytes);
        Ok(Creation {
            name: name.to_owned(),
            ports: self.ports,
            mac: self.mac.as_ref().map(read).transpose()?,
            ring: self.ring,
            worker: self.worker,
            quotas: Quotas { frames: self.frames, weight: self.weight, memory },
            owner: self.owner.as_deref().map(owner).transpose()?,
        })
    }

    /// The text of its configuration; empty where it has none.
    fn configuration(&self, name: &str) -> Result<Arc<str>, String> {
        if let Some(read) = self.read.get() {
            return Ok(Arc::clone(read));
        }
        let text = match (&self.file, &self.text) {
            (Some(_), Some(_)) => return Err(format!("`{name}` has a file and a text: give one of them")),
            (Some(path), None) => read_text(path, LARGEST as u64).map_err(|error| {
                format!("the file of `{name}` is {}, which cannot be read: {error}", path.display())
            })?,
            (None, text) => text.clone().unwrap_or_default(),
        };
        Ok(Arc::clone(self.read.get_or_init(|| text.into())))
    }

    fn parameters(&self, name: &str) -> Result<Vec<(String, String)>, String> {
        let split = |one: &String| match one.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(format!("parameters of `{name}` must be NAME=VALUE, found `{one}`")),
        };
        self.parameters.iter().map(split).collect()
    }

    /// Whether its values are in their ranges, and its configuration is in Click's language.
    ///
    /// With the capability of `files`, the configuration may include others.
    pub(super) fn check(&self, name: &str, granted: Capabilities) -> Result<(), String> {
        let Creation { owner, quotas, .. } = self.creation(name)?;
        check_owned(granted, owner.as_deref(), quotas)?;
        let (text, parameters) = (self.configuration(name)?, self.parameters(name)?);
        let errors = Errors::collected();
        let source = Source { text: &text, file: name, is_expression: false };
        let library =
            |name: &str| if granted.files { read_text(Path::new(name), LARGEST as u64).ok() } else { None };
        config::parse(&source, &parameters, &Known, &library, &errors);
        match errors.count() {
            0 => Ok(()),
            _ => Err(format!("the configuration of `{name}` is wrong:\n{}", told(&errors.lines()))),
        }
    }

    pub(super) fn start_from(&mut self, directory: &Path) {
        self.file = self.file.take().map(|file| directory.join(file));
    }
}

/// A configuration that an instance gets in a turn of its own, once the time is known.
#[derive(Clone)]
pub(super) struct Awaited {
    pub text: Arc<str>,
    pub parameters: Vec<(String, String)>,
}

impl InstanceSettings {
    /// The instance, and its configuration if it has one.
    ///
    /// # Errors
    /// A value is out of its range, or its file cannot be read.
    pub(super) fn declared(&self, name: &str) -> Result<(Creation, Option<Awaited>), String> {
        let (text, parameters) = (self.configuration(name)?, self.parameters(name)?);
        let awaited = (!text.trim().is_empty()).then_some(Awaited { text, parameters });
        Ok((self.creation(name)?, awaited))
    }
}

impl Host {
    /// Gives one declared instance its configuration. So no turn takes longer than one of them needs.
    #[cold]
    pub(super) fn install_one_declared(&mut self) {
        while let Some(number) = self.awaiting.pop_front() {
            if self.install_declared(number) {
                return;
            }
        }
    }

    /// Gives a declared instance its configuration, if it waits for it. One that is refused leaves its instance
    /// refused.
    pub(super) fn install_declared(&mut self, number: usize) -> bool {
        let instance = self.instances.get_mut(number).and_then(Option::as_mut);
        let Some((instance, awaited)) = instance.and_then(|one| one.awaited.take().map(|it| (one, it)))
        else {
            return false;
        };
        instance.state = State::Empty;
        if let Err(problem) = self.install(number, &awaited.text, &awaited.parameters)
            && let Some(instance) = self.instances[number].as_mut()
        {
            instance.state = State::Refused(problem);
        }
        // What came meanwhile waits.
        self.wake(number);
        true
    }
}
