//! Instances that a chain file declares: `[instance.NAME]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use netbricks_core::units::Bytes;
use netbricks_core::{BuildError, read_text};

use crate::classes::Known;
use crate::language::config::{self, Source};
use crate::language::errors::Errors;

use super::commands::{MOST_PORTS, RINGS, is_name};
use super::host::Host;
use super::instance::{LARGEST, Quotas, told};
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
    pub quotas: Quotas,
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
            quotas: Quotas { frames: self.frames, weight: self.weight, memory },
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
    /// With `files`, the configuration may include others.
    pub(super) fn check(&self, name: &str, files: bool) -> Result<(), String> {
        self.creation(name)?;
        let (text, parameters) = (self.configuration(name)?, self.parameters(name)?);
        let errors = Errors::collected();
        let source = Source { text: &text, file: name, is_expression: false };
        let library = |name: &str| if files { std::fs::read_to_string(name).ok() } else { None };
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

/// A configuration that an instance gets with the first turn, when the time is known.
pub(super) struct Awaited {
    name: String,
    text: Arc<str>,
    parameters: Vec<(String, String)>,
}

impl Host {
    /// Creates the instances of a file.
    ///
    /// # Errors
    /// Two have the same MAC address, there are too many, or a file has changed since it was checked.
    pub(super) fn declare(
        &mut self,
        declared: &BTreeMap<String, InstanceSettings>,
    ) -> Result<(), BuildError> {
        for (name, settings) in declared {
            let refused = |problem: String| BuildError::new(format_args!("instance `{name}`: {problem}"));
            let creation = settings.creation(name).map_err(refused)?;
            self.create(creation).map_err(refused)?;
            let text = settings.configuration(name).map_err(refused)?;
            let parameters = settings.parameters(name).map_err(refused)?;
            if !text.trim().is_empty() {
                self.awaited.push(Awaited { name: name.clone(), text, parameters });
            }
        }
        Ok(())
    }

    /// Gives declared instances their configurations. One that is refused leaves its instance failed.
    #[cold]
    pub(super) fn install_declared(&mut self) {
        for Awaited { name, text, parameters } in std::mem::take(&mut self.awaited) {
            let Some(number) = self.place(&name) else { continue };
            if let Err(problem) = self.install(number, &text, &parameters)
                && let Some(instance) = self.instances[number].as_mut()
            {
                instance.state = super::instance::State::Refused(problem);
            }
        }
    }
}
