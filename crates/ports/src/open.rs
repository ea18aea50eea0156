//! Port drivers by name: from a port's table in the configuration to an open port.
//!
//! The common settings say how the port is wrapped.
//!
//! Each driver's own settings are a type that implements [`Settings`]. The settings that all ports have in
//! common (wrappers, capture, checksum policy, MTU, seed) are taken off the table before the driver sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use netbricks_buffer::Pool;
use netbricks_core::{Key, Settings, SettingsError, nearest, read_settings};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::port::{Port, PortError};
use crate::steer::{Fixed, Rules};
use crate::wrap::{self, Common};

/// The environment in which a driver opens a port.
#[derive(Clone, Debug)]
pub struct OpenContext {
    /// The pool of the port's packets.
    pub pool: Pool,
    /// Wanted queues: one a worker. A port may have fewer; its [`Capabilities`](crate::Capabilities) say how
    /// many.
    pub queues: usize,
    /// The seed of all randomness in the port.
    pub seed: u64,
    /// The directory to which relative file names refer: that of the configuration file.
    pub directory: PathBuf,
}

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

type Open =
    dyn Fn(&str, Spanned<DeTable<'_>>, &OpenContext) -> Result<Box<dyn Port>, OpenError> + Send + Sync;
type CountQueues = dyn Fn(Spanned<DeTable<'_>>, usize) -> Option<usize> + Send + Sync;
type Direct = dyn Fn(Spanned<DeTable<'_>>) -> Option<Directions> + Send + Sync;
type Fits = dyn Fn(&str, Spanned<DeTable<'_>>, usize) -> Result<(), OpenError> + Send + Sync;
type Look = dyn Fn(&str, Spanned<DeTable<'_>>, usize) -> Vec<PortError> + Send + Sync;
type IsLarge = dyn Fn(Spanned<DeTable<'_>>, usize) -> Option<bool> + Send + Sync;
type Check = dyn Fn(&str, Spanned<DeTable<'_>>, &Path) -> Result<(), OpenError> + Send + Sync;

/// How the receive queues of a driver's ports divide flows.
///
/// For an open port, [`Capabilities`](crate::Capabilities) give the definite answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueDivision {
    /// There is one queue.
    #[default]
    One,
    /// Up to one queue for each worker, and both directions of a flow arrive on the same queue.
    Symmetric,
    /// Up to one queue for each worker, and the directions of a flow may arrive on different queues.
    Asymmetric,
}

/// The directions in which packets go through a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directions {
    /// Packets can come in.
    pub receives: bool,
    /// Packets can leave.
    pub transmits: bool,
}

impl Directions {
    /// In and out.
    pub const BOTH: Self = Self { receives: true, transmits: true };
}

/// A kind of port, known by its name.
pub struct Driver {
    /// The driver's name in the configuration: `"af_packet"`.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The keys of its settings, in addition to [`COMMON_KEYS`](crate::COMMON_KEYS).
    pub keys: &'static [Key],
    /// Whether its ports work only over a pool that was built [`aligned`](netbricks_buffer::PoolBuilder::aligned).
    pub aligned_frames: bool,
    /// How receive queues divide the flows of its ports, as far as that is known before a port is opened.
    pub division: QueueDivision,
    /// The reason why none of its ports can steer, if that is known before a port is opened.
    pub fixed: Option<Fixed>,
    queues: Option<Box<CountQueues>>,
    direct: Option<Box<Direct>>,
    fits: Option<Box<Fits>>,
    look: Option<Box<Look>>,
    large: Option<Box<IsLarge>>,
    open: Box<Open>,
    check: Box<Check>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("name", &self.name).field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Driver {
    /// Opens port `name`.
    ///
    /// `settings` is a table with places in the file, without the key `driver`.
    ///
    /// # Errors
    /// [`OpenError::Settings`] with the place of a wrong type, an unknown key or a refused value;
    /// [`OpenError::Port`] when the device or file is not usable.
    pub fn open(
        &self,
        name: &str,
        settings: Spanned<DeTable<'_>>,
        cx: &OpenContext,
    ) -> Result<Box<dyn Port>, OpenError> {
        let (common, own) = self.split(settings)?;
        self.check_rules(name, &common.steer)?;
        let seed = common.seed.unwrap_or_else(|| seed_of(cx.seed, name));
        let cx = OpenContext { seed, ..cx.clone() };
        let mut port = (self.open)(name, own, &cx).map_err(|error| self.suggest(error))?;
        if !common.steer.is_empty() {
            port.steer(&common.steer).map_err(|reason| PortError::Steer { port: name.into(), reason })?;
        }
        Ok(wrap::wrap(port, &common, &cx)?)
    }

    /// Checks everything that needs no open port: types, keys, values, and whether files to be read exist.
    ///
    /// File names are relative to `directory`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn check(
        &self,
        name: &str,
        settings: Spanned<DeTable<'_>>,
        directory: &Path,
    ) -> Result<(), OpenError> {
        let (common, own) = self.split(settings)?;
        self.check_rules(name, &common.steer)?;
        (self.check)(name, own, directory).map_err(|error| self.suggest(error))
    }

    /// The rules by which a port with these settings steers; none if the settings are wrong.
    pub fn rules(&self, settings: Spanned<DeTable<'_>>) -> Rules {
        self.split(settings).map(|(common, _)| common.steer).unwrap_or_default()
    }

    /// The directions in which packets go through a port with these settings.
    ///
    /// [`Directions::BOTH`] also if the settings are wrong, or if the answer is not known before the port is
    /// opened.
    pub fn directions(&self, settings: Spanned<DeTable<'_>>) -> Directions {
        let known = |direct: &Direct| direct(self.split(settings).ok()?.1);
        self.direct.as_deref().and_then(known).unwrap_or(Directions::BOTH)
    }

    /// Checks whether a port with these settings accepts packet buffers of at most `largest` bytes.
    ///
    /// Checks only what is known before the port is opened.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn fits(&self, name: &str, settings: Spanned<DeTable<'_>>, largest: usize) -> Result<(), OpenError> {
        let own = self.split(settings)?.1;
        self.fits.as_deref().map_or(Ok(()), |fits| fits(name, own, largest))
    }

    /// Lists what a port with these settings lacks on this machine now.
    ///
    /// That is an interface that does not exist or is switched off, or that may bring packets larger than the
    /// `largest` bytes of a packet buffer. Uses only requests that need no capability, and opens nothing.
    /// Another machine may lack other things.
    pub fn lacks(&self, name: &str, settings: Spanned<DeTable<'_>>, largest: usize) -> Vec<PortError> {
        let found = |look: &Look| Some(look(name, self.split(settings).ok()?.1, largest));
        self.look.as_deref().and_then(found).unwrap_or_default()
    }

    /// Whether a port with these settings may bring packets of more than `small` bytes.
    ///
    /// The pool then needs large frames.
    ///
    /// Such packets are segments that the kernel has not cut, or jumbo frames.
    pub fn brings_large_packets(&self, settings: Spanned<DeTable<'_>>, small: usize) -> bool {
        let known = |large: &IsLarge| large(self.split(settings).ok()?.1, small);
        self.large.as_deref().and_then(known).unwrap_or(false)
    }

    /// The number of receive queues of a port with these settings when `wanted` are requested.
    ///
    /// Answers as far as that is known before the port is opened.
    pub fn receive_queues(&self, settings: Spanned<DeTable<'_>>, wanted: usize) -> usize {
        let written = settings.get_ref().get("queues").and_then(|queues| match queues.get_ref() {
            DeValue::Integer(queues) => usize::from_str_radix(queues.as_str(), queues.radix()).ok(),
            _ => None,
        });
        let wanted = written.unwrap_or(wanted);
        let count = |queues: &CountQueues| queues(self.split(settings).ok()?.1, wanted);
        match (self.division, &self.queues) {
            (QueueDivision::One, _) => 1,
            (_, None) => wanted,
            (_, Some(queues)) => count(queues.as_ref()).unwrap_or(wanted),
        }
    }

    /// Refuses rules if no port of the driver can follow any.
    fn check_rules(&self, port: &str, rules: &Rules) -> Result<(), PortError> {
        match self.fixed {
            Some(fixed) if !rules.is_empty() => {
                Err(PortError::Steer { port: port.into(), reason: fixed.into() })
            }
            _ => Ok(()),
        }
    }

    /// Separates the settings that all ports share from the driver's own.
    fn split<'t>(&self, settings: Spanned<DeTable<'t>>) -> Result<(Common, Spanned<DeTable<'t>>), OpenError> {
        let span = settings.span();
        let (mut shared, mut own) = (DeTable::new(), DeTable::new());
        for (key, value) in settings.into_inner() {
            let name = key.get_ref().as_ref();
            let renamed = || Common::RENAMED.iter().any(|renamed| renamed.old == name);
            let is_shared = Common::KEYS.iter().any(|known| known.name == name)
                || renamed() && !self.keys.iter().any(|own| own.name == name);
            if is_shared { &mut shared } else { &mut own }.insert(key, value);
        }
        let common = read_settings(Spanned::new(span.clone(), shared), None)
            .map_err(|error| self.suggest(error.into()))?;
        Ok((common, Spanned::new(span, own)))
    }

    /// Adds the name that was probably meant to the error for an unknown key.
    fn suggest(&self, mut error: OpenError) -> OpenError {
        if let OpenError::Settings(error) = &mut error
            && error.message.starts_with("unknown field")
            && let Some(found) = error.message.split('`').nth(1)
        {
            let known = self.keys.iter().chain(Common::KEYS).map(|key| key.name);
            error.suggestion = nearest(found, known).map(ToOwned::to_owned);
        }
        error
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
    pub fn add<S: Settings>(
        &mut self,
        name: &'static str,
        summary: &'static str,
        open: impl Fn(&str, S, &OpenContext) -> Result<Box<dyn Port>, PortError> + Send + Sync + 'static,
    ) -> &mut Self {
        self.add_checked(name, summary, |_, _: &S, _| Ok(()), open)
    }

    /// Adds a driver that can check more of its settings without opening a port.
    ///
    /// `check` gets the port's name, the settings, and the directory to which relative file names refer.
    pub fn add_checked<S: Settings>(
        &mut self,
        name: &'static str,
        summary: &'static str,
        check: impl Fn(&str, &S, &Path) -> Result<(), PortError> + Send + Sync + 'static,
        open: impl Fn(&str, S, &OpenContext) -> Result<Box<dyn Port>, PortError> + Send + Sync + 'static,
    ) -> &mut Self {
        let driver = Driver {
            name,
            summary,
            keys: S::KEYS,
            aligned_frames: false,
            division: QueueDivision::One,
            fixed: None,
            queues: None,
            direct: None,
            fits: None,
            look: None,
            large: None,
            open: Box::new(move |port, table, cx| Ok(open(port, read_settings(table, None)?, cx)?)),
            check: Box::new(move |port, table, directory| {
                Ok(check(port, &read_settings(table, None)?, directory)?)
            }),
        };
        self.0.insert(name, driver);
        self
    }

    /// Says that the driver's ports need a pool that was built
    /// [`aligned`](netbricks_buffer::PoolBuilder::aligned).
    ///
    /// No effect where there is no such driver.
    pub fn want_aligned_frames(&mut self, name: &str) -> &mut Self {
        if let Some(driver) = self.0.get_mut(name) {
            driver.aligned_frames = true;
        }
        self
    }

    /// Says how the queues of the driver's ports divide flows. No effect where there is no such driver.
    pub fn divide(&mut self, name: &str, division: QueueDivision) -> &mut Self {
        if let Some(driver) = self.0.get_mut(name) {
            driver.division = division;
        }
        self
    }

    /// Says how many receive queues a port of the driver has, from its settings and the wanted number.
    ///
    /// No effect where there is no such driver, or where its ports have one queue.
    pub fn limit_queues<S: Settings>(
        &mut self,
        name: &str,
        queues: impl Fn(&S, usize) -> usize + Send + Sync + 'static,
    ) -> &mut Self {
        if let Some(driver) = self.0.get_mut(name) {
            driver.queues =
                Some(Box::new(move |table, wanted| Some(queues(&read_settings(table, None).ok()?, wanted))));
        }
        self
    }

    /// Says in which directions packets go through a port of the driver, from its settings.
    ///
    /// No effect where there is no such driver.
    pub fn limit_directions<S: Settings>(
        &mut self,
        name: &str,
        directions: impl Fn(&S) -> Directions + Send + Sync + 'static,
    ) -> &mut Self {
        if let Some(driver) = self.0.get_mut(name) {
            driver.direct = Some(Box::new(move |table| Some(directions(&read_settings(table, None).ok()?))));
        }
        self
    }

    /// Says whether a port of the driver accepts packet buffers of at most so many bytes, from its settings.
    ///
    /// `fits` gets the port's name too. No effect where there is no such driver.
    pub fn limit_packets<S: Settings>(
        &mut self,
        name: &str,
        fits: impl Fn(&str, &S, usize) -> Result<(), PortError> + Send + Sync + 'static,
    ) -> &mut Self {
        if let Some(driver) = self.0.get_mut(name) {
            driver.fits = Some(Box::new(move |port, table, largest| {
                Ok(fits(port, &read_settings(table, None)?, largest)?)
            }));
        }
        self
    }

    /// Has a port's settings compared with this machine before the port is opened.
    ///
    /// `look` gets the port's name, its settings and the bytes of the largest packet that a buffer takes, and
    /// answers what is lacking. No effect where there is no such driver.
    pub fn look_first<S: Settings>(
        &mut self,
        name: &str,
        look: impl Fn(&str, &S, usize) -> Vec<PortError> + Send + Sync + 'static,
    ) -> &mut Self {
        if let Some(driver) = self.0.get_mut(name) {
            driver.look = Some(Box::new(move |port, table, largest| {
                read_settings(table, None).map_or(Vec::new(), |own| look(port, &own, largest))
            }));
        }
        self
    }

    /// Says whether a port of the driver may bring packets of more than so many bytes, from its settings.
    ///
    /// The pool needs large frames for such packets. No effect where there is no such driver.
    pub fn expect_large_packets<S: Settings>(
        &mut self,
        name: &str,
        large: impl Fn(&S, usize) -> bool + Send + Sync + 'static,
    ) -> &mut Self {
        if let Some(driver) = self.0.get_mut(name) {
            driver.large =
                Some(Box::new(move |table, small| Some(large(&read_settings(table, None).ok()?, small))));
        }
        self
    }

    /// Says that no port of the driver can steer, and why. No effect where there is no such driver.
    pub fn fix(&mut self, name: &str, fixed: Fixed) -> &mut Self {
        if let Some(driver) = self.0.get_mut(name) {
            driver.fixed = Some(fixed);
        }
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

    /// The drivers of this crate.
    pub fn standard() -> Self {
        let mut drivers = Self::new();
        crate::af_packet::register(&mut drivers);
        crate::af_xdp::register(&mut drivers);
        crate::tap::register(&mut drivers);
        crate::memory::register(&mut drivers);
        crate::null::register(&mut drivers);
        crate::pcap::register(&mut drivers);
        crate::generator::register(&mut drivers);
        for name in ["af_packet", "generator"] {
            drivers.divide(name, QueueDivision::Symmetric);
        }
        for name in ["af_xdp", "tap", "memory", "null"] {
            drivers.divide(name, QueueDivision::Asymmetric);
        }
        let fixed = [("af_xdp", Fixed::NetworkCard), ("null", Fixed::Silent), ("pcap", Fixed::OneQueue)];
        for (name, fixed) in fixed {
            drivers.fix(name, fixed);
        }
        drivers
    }
}
