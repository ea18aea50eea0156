//! Port drivers by name: from a port's table in the configuration to an open port.
//!
//! A table is read once. The settings that all ports have in common (wrappers, capture, checksum policy, MTU, seed) are
//! separated from the driver's own, and say how the open port is wrapped.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use netbricks_core::{Key, Keys, RenamedKey, Settings, SettingsError, check_keys, read_settings};
use toml::Spanned;
use toml::de::DeTable;

use crate::driver::{Demands, Directions, OpenContext, PortDriver, QueueDivision};
use crate::port::{Port, PortError};
use crate::steer::{FilterSupport, Fixed, Rules, Steer};
use crate::wrap::{self, Common};

/// A port that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its settings are wrong.
    #[error("{0}")]
    Settings(#[from] SettingsError),
    /// The device or file is not usable.
    #[error("{0}")]
    Port(#[from] PortError),
}

/// A port's own settings with its driver, which [`PortDriver`] answers for.
trait DriverSettings: Send + Sync {
    fn open(&self, port: &str, cx: &OpenContext) -> Result<Box<dyn Port>, PortError>;
    fn check(&self, port: &str, directory: &Path) -> Result<(), PortError>;
    fn directions(&self) -> Directions;
    fn fits(&self, port: &str, largest: usize) -> Result<(), PortError>;
    fn lacks(&self, port: &str, demands: &Demands) -> Vec<PortError>;
    fn brings_large_packets(&self, small: usize) -> bool;
    fn receive_queues(&self, wanted: usize) -> usize;
}

struct Read<D: PortDriver> {
    driver: Arc<D>,
    settings: D::Settings,
}

impl<D: PortDriver> DriverSettings for Read<D> {
    fn open(&self, port: &str, cx: &OpenContext) -> Result<Box<dyn Port>, PortError> {
        self.driver.open(port, &self.settings, cx)
    }
    fn check(&self, port: &str, directory: &Path) -> Result<(), PortError> {
        self.driver.check(port, &self.settings, directory)
    }
    fn directions(&self) -> Directions {
        self.driver.directions(&self.settings)
    }
    fn fits(&self, port: &str, largest: usize) -> Result<(), PortError> {
        self.driver.fits(port, &self.settings, largest)
    }
    fn lacks(&self, port: &str, demands: &Demands) -> Vec<PortError> {
        self.driver.lacks(port, &self.settings, demands)
    }
    fn brings_large_packets(&self, small: usize) -> bool {
        self.driver.brings_large_packets(&self.settings, small)
    }
    fn receive_queues(&self, wanted: usize) -> usize {
        match D::DIVISION {
            QueueDivision::One => 1,
            QueueDivision::Symmetric | QueueDivision::Asymmetric => {
                self.driver.receive_queues(&self.settings, wanted)
            }
        }
    }
}

/// A port whose settings were read. It is not open yet.
pub struct ConfiguredPort {
    name: String,
    driver: &'static str,
    fixed: Option<Fixed>,
    filters: Option<FilterSupport>,
    common: Common,
    own: Box<dyn DriverSettings>,
}

impl fmt::Debug for ConfiguredPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfiguredPort")
            .field("name", &self.name)
            .field("driver", &self.driver)
            .field("common", &self.common)
            .finish_non_exhaustive()
    }
}

impl ConfiguredPort {
    /// The port's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens the port.
    ///
    /// # Errors
    /// [`PortError`] when the device or file is not usable, or the rules cannot be followed.
    pub fn open(&self, cx: &OpenContext) -> Result<Box<dyn Port>, PortError> {
        self.check_rules()?;
        let (name, common) = (&self.name, &self.common);
        let seed = common.seed.unwrap_or_else(|| seed_of(cx.seed, name));
        let cx = OpenContext { seed, filters: common.steer == Steer::Graph, ..cx.clone() };
        let mut port = self.own.open(name, &cx)?;
        if let Steer::Rules(rules) = &common.steer
            && !rules.is_empty()
        {
            port.steer(rules).map_err(|reason| PortError::Steer { port: name.clone(), reason })?;
        }
        wrap::wrap(port, common, &cx)
    }

    /// The errors that can be found without opening the port. Relative file names start from `directory`.
    ///
    /// They are about rules that no port of the driver can follow, and files that are not there.
    pub fn check(&self, directory: &Path) -> Vec<PortError> {
        let found = [self.check_rules(), self.own.check(&self.name, directory)];
        found.into_iter().filter_map(Result::err).collect()
    }

    /// The rules by which the port steers, where the file has some.
    pub fn rules(&self) -> Rules {
        match &self.common.steer {
            Steer::Rules(rules) => rules.clone(),
            Steer::Graph => Rules::default(),
        }
    }

    /// How the port takes filters of the graph, where it is to have them.
    pub fn filters(&self) -> Option<FilterSupport> {
        self.filters.filter(|_| self.common.steer == Steer::Graph)
    }

    /// The directions in which packets go through the port, as far as its driver knows without opening it.
    pub fn directions(&self) -> Directions {
        self.own.directions()
    }

    /// Checks that the port works with packet buffers of at most `largest` bytes.
    ///
    /// # Errors
    /// [`PortError`] when the port makes larger packets.
    pub fn fits(&self, largest: usize) -> Result<(), PortError> {
        self.own.fits(&self.name, largest)
    }

    /// Errors that this machine would cause now, where a packet buffer holds at most `largest` bytes.
    ///
    /// It needs no capability and opens nothing. Another machine may be different.
    pub fn lacks(&self, largest: usize) -> Vec<PortError> {
        let filters = self.common.steer == Steer::Graph;
        self.own.lacks(&self.name, &Demands { largest, filters })
    }

    /// Whether the port may bring packets of more than `small` bytes, so that the pool needs large frames.
    pub fn brings_large_packets(&self, small: usize) -> bool {
        self.own.brings_large_packets(small)
    }

    /// The number of receive queues where `wanted` are asked for, as far as its driver knows without opening the port.
    pub fn receive_queues(&self, wanted: usize) -> usize {
        self.own.receive_queues(wanted)
    }

    /// Refuses rules if no port of the driver can follow any.
    fn check_rules(&self) -> Result<(), PortError> {
        let fixed = match &self.common.steer {
            Steer::Graph if self.filters.is_none() => Some(self.fixed.unwrap_or(Fixed::Driver)),
            Steer::Rules(rules) if !rules.is_empty() => self.fixed,
            _ => None,
        };
        let refused = |fixed: Fixed| Err(PortError::Steer { port: self.name.clone(), reason: fixed.into() });
        fixed.map_or(Ok(()), refused)
    }
}

type ReadSettings =
    dyn Fn(Spanned<DeTable<'_>>) -> Result<Box<dyn DriverSettings>, SettingsError> + Send + Sync;

/// A [`PortDriver`] that is available by name.
pub struct Driver {
    /// The driver's name in the configuration: `"af_packet"`.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The keys of its settings, in addition to [`COMMON_KEYS`](crate::COMMON_KEYS).
    pub keys: &'static [Key],
    /// Whether its ports work only over a pool [for a device](netbricks_buffer::PoolBuilder::for_device).
    pub device_frames: bool,
    /// How receive queues divide the flows of its ports, as far as that is known before a port is opened.
    pub division: QueueDivision,
    /// The reason why none of its ports can steer, if that is known before a port is opened.
    pub fixed: Option<Fixed>,
    /// How its ports take filters of the graph, where they do.
    pub filters: Option<FilterSupport>,
    renamed: &'static [RenamedKey],
    read: Box<ReadSettings>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("name", &self.name).field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Driver {
    fn new<D: PortDriver>(driver: D) -> Self {
        let driver = Arc::new(driver);
        Self {
            name: D::NAME,
            summary: D::SUMMARY,
            keys: D::Settings::KEYS,
            device_frames: D::DEVICE_FRAMES,
            division: D::DIVISION,
            fixed: D::FIXED,
            filters: D::FILTERS,
            renamed: D::Settings::RENAMED,
            read: Box::new(move |table| {
                let settings: D::Settings = read_settings(table, None)?;
                Ok(Box::new(Read { driver: Arc::clone(&driver), settings }))
            }),
        }
    }

    /// Reads and checks the settings of port `name`: a table with places in the file, without the key `driver`.
    ///
    /// # Errors
    /// [`SettingsError`] with the place of a wrong type, an unknown key or a refused value.
    pub fn read(&self, name: &str, table: Spanned<DeTable<'_>>) -> Result<ConfiguredPort, SettingsError> {
        // Of both kinds at once: an unknown key may be meant for either.
        check_keys(&table, self.keys.iter().chain(Common::KEYS), self.renamed.iter().chain(Common::RENAMED))?;
        let (span, mut common, mut own) = (table.span(), DeTable::new(), DeTable::new());
        for (key, value) in table.into_inner() {
            let is_common = Common::KEYS.iter().any(|known| known.name == key.get_ref().as_ref());
            if is_common { &mut common } else { &mut own }.insert(key, value);
        }
        Ok(ConfiguredPort {
            name: name.into(),
            driver: self.name,
            fixed: self.fixed,
            filters: self.filters,
            common: read_settings(Spanned::new(span.clone(), common), None)?,
            own: (self.read)(Spanned::new(span, own))?,
        })
    }

    /// Reads the settings of port `name`, and opens it.
    ///
    /// # Errors
    /// [`OpenError::Settings`] as [`read`](Self::read); [`OpenError::Port`] as [`ConfiguredPort::open`].
    pub fn open(
        &self,
        name: &str,
        table: Spanned<DeTable<'_>>,
        cx: &OpenContext,
    ) -> Result<Box<dyn Port>, OpenError> {
        Ok(self.read(name, table)?.open(cx)?)
    }
}

/// Derives each port's own seed from the run's seed.
fn seed_of(seed: u64, name: &str) -> u64 {
    // FNV-1a: stable, and no attacker chooses the names.
    name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Drivers by name.
#[derive(Debug, Default)]
pub struct Drivers(BTreeMap<&'static str, Driver>);

impl Drivers {
    /// An empty list of drivers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a driver. It replaces a driver of the same name.
    pub fn add(&mut self, driver: impl PortDriver) -> &mut Self {
        let driver = Driver::new(driver);
        self.0.insert(driver.name, driver);
        self
    }

    /// All drivers, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Driver> {
        self.0.values()
    }

    /// The driver of this name.
    pub fn get(&self, name: &str) -> Option<&Driver> {
        self.0.get(name)
    }
}

#[cfg(test)]
mod tests;
