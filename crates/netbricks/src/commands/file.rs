//! Reads a configuration file and looks up its names: the first step of `run`, `check` and `graph`.

use std::path::{Path, PathBuf};

use netbricks_buffer::Pool;
use netbricks_control::{Files, api};
use netbricks_core::{GraphBuilder, GraphError, ShuffleKey, Worker};
use netbricks_ports::steer::Filtering;
use netbricks_ports::{Drivers, PortError, QueueDivision};

use super::run::automatic_workers;
use super::{Application, Console, FAILURE, Failure, USAGE};
use crate::chain::{Circumstances, Design, Division, Filters, Network, Parted, Split, overcommitted};
use crate::config::{self, Plan, PlannedPort, RuntimeSettings};
use crate::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::frames;
use crate::report::{counted, memory, thousands};

/// A file's name and text.
pub(super) struct File {
    pub(super) name: String,
    pub(super) text: String,
    /// The directory that relative names in it start from.
    pub(super) directory: PathBuf,
    /// The places of files that it names, where they are others than their names say.
    pub(super) files: Files,
}

impl File {
    /// Reads it.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        Self::read_with(path, &[])
    }

    /// Reads it, with values `NAME=VALUE` for the parameters of a Click configuration.
    pub(super) fn read_with(path: &Path, parameters: &[String]) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                let hint = similar(path).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
                Failure::Usage(format!("there is no file `{name}`{hint}"))
            }
            _ => Failure::Usage(format!("`{name}` cannot be read: {error}")),
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let place = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..place].iter().filter(|byte| **byte == b'\n').count() + 1;
            Failure::Usage(format!("`{name}` is not text: line {line} is not UTF-8"))
        })?;
        let directory = path.parent().map(Path::to_owned).unwrap_or_default();
        let is_click = path.extension().is_some_and(|extension| extension == "click");
        if let Some(first) = parameters.first().filter(|_| !is_click) {
            return Err(Failure::Usage(format!(
                "`{first}` is for a Click configuration, whose name ends in `.click`: `{name}` has no parameters"
            )));
        }
        let text = if is_click { super::click::chain_file(path, parameters)? } else { text };
        Ok(Self { name, text, directory, files: Files::new() })
    }

    /// The file as the control API has it.
    pub(super) fn source(&self) -> api::Source {
        let here = if self.directory.as_os_str().is_empty() { Path::new(".") } else { &self.directory };
        let directory = std::path::absolute(here).unwrap_or_else(|_| here.to_owned());
        let directory = directory.display().to_string();
        api::Source { text: self.text.clone(), name: self.name.clone(), directory }
    }

    /// A file from a request or from the history.
    pub(super) fn of(source: &api::Source, files: &Files) -> Self {
        let api::Source { text, name, directory } = source.clone();
        Self { name, text, directory: directory.into(), files: files.clone() }
    }

    /// The files that it names, with the places of their content.
    pub(super) fn named_files(&self) -> Files {
        let api::Source { text, directory, .. } = self.source();
        config::named_files(&text, directory.as_ref(), &self.files)
    }

    /// The graph's name: the file's name without its ending.
    pub(super) fn stem(&self) -> String {
        Path::new(&self.name)
            .file_stem()
            .map_or_else(|| "chains".into(), |stem| stem.to_string_lossy().into_owned())
    }
}

/// A file with a similar name in the directory of a missing one.
fn similar(path: &Path) -> Option<String> {
    let wanted = path.file_name()?.to_str()?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let entries = std::fs::read_dir(directory.unwrap_or(Path::new("."))).ok()?;
    let names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let near = netbricks_core::nearest(wanted, names.iter().map(String::as_str))?;
    Some(directory.map_or_else(|| near.to_owned(), |parent| parent.join(near).display().to_string()))
}

/// A file's plan and network, after every check has passed.
pub(super) struct Checked<'t> {
    pub(super) source: Source<'t>,
    pub(super) plan: Plan<'t>,
    pub(super) network: Network,
    pub(super) design: Design,
    /// Shuffles that the file does not name; the network has them, too.
    pub(super) shuffles: Vec<Parted>,
    /// Shuffles put in before functions with state by another key than a flow.
    pub(super) key_shuffles: Vec<Split>,
    /// Filters of ports that steer by the graph.
    pub(super) filters: Filters,
    /// Buffers of the pool that a run has, without the large and the short ones.
    pub(super) frames: usize,
    /// Warnings only.
    pub(super) diagnostics: Diagnostics,
    /// The graph of the file, in which no port is open.
    pub(super) graph: GraphBuilder,
}

/// Packet buffers that checking needs: functions are made over a pool but take no packets from it.
const CHECK_FRAMES: usize = 64;

/// Checks all of a file that can be checked without opening a port. `Err` has all faults.
pub(super) fn check<'t>(app: &Application, file: &'t File) -> Result<Checked<'t>, Faults<'t>> {
    check_with(app, file, |_| ())
}

/// As [`check`], with the shuffles that a run would put in.
///
/// It knows these as far as they are known before ports are open.
pub(super) fn check_spread<'t>(app: &Application, file: &'t File) -> Result<Checked<'t>, Faults<'t>> {
    let mut checked = check(app, file)?;
    let workers = wanted_workers(&checked.network, &checked.plan);
    let divisions = expected(&checked.plan, &app.drivers, workers);
    overcommitted(&checked.plan, workers, checked.frames)
        .into_iter()
        .for_each(|error| checked.diagnostics.push(error));
    for (port, division) in checked.plan.ports.iter().zip(&divisions) {
        if let Err(reason) = division.rules.check_queues(division.queues) {
            let error = PortError::Steer { port: port.name.clone(), reason };
            checked.diagnostics.push(config::refusal(&error, &port.settings));
        }
    }
    let filters = filters_of(&checked, &divisions, workers, &|_| None);
    filters.faults(&checked.plan).into_iter().for_each(|fault| checked.diagnostics.push(fault));
    let divisions = filters.divisions(&divisions);
    checked.filters = filters;
    if checked.diagnostics.has_errors() {
        return Err(Faults { source: checked.source, diagnostics: checked.diagnostics });
    }
    checked
        .network
        .unmet(&checked.plan, workers)
        .into_iter()
        .for_each(|unmet| checked.diagnostics.push(unmet));
    let parted = checked.network.parted(&checked.plan, &divisions, workers);
    if checked.plan.runtime.shuffles {
        let checked = checked.with_shuffles(file, parted)?;
        let split = checked.network.split(&checked.plan, &divisions, workers);
        return checked.with_key_shuffles(file, split);
    }
    let split = checked.network.split(&checked.plan, &divisions, workers);
    split.iter().for_each(|split| checked.diagnostics.push(split.warning(&checked.plan)));
    for Parted { number, why, .. } in parted {
        let place = checked.plan.ports[number].place.clone();
        checked.diagnostics.push(Diagnostic::warning(why).at(place, "").help(WITHOUT_SHUFFLES));
    }
    Ok(checked)
}

/// The remedy where shuffles are needed and the file leaves them out.
pub(super) const WITHOUT_SHUFFLES: &str =
    "let a `shuffle` come first in the chain, or take `shuffles = false` out of `[runtime]`";

/// The filters of ports that steer by the graph, where nothing has run yet.
///
/// `open` names the mechanism of a port that is open.
pub(super) fn filters_of(
    checked: &Checked<'_>,
    divisions: &[Division],
    workers: usize,
    open: &dyn Fn(&str) -> Option<Filtering>,
) -> Filters {
    let queues: Vec<usize> = divisions.iter().map(|division| division.queues).collect();
    let shares = checked.network.deal(&checked.plan, &queues, workers);
    let fresh = Circumstances { packets: &|_| 0, open, before: &Filters::default() };
    checked.network.filters(&checked.plan, divisions, &shares, &fresh)
}

/// The number of workers that a plan asks for, before it is known which queues its ports have.
pub(super) fn wanted_workers(network: &Network, plan: &Plan<'_>) -> usize {
    let automatic = || automatic_workers(network, plan).max(plan.placed_workers());
    plan.runtime.workers.unwrap_or_else(automatic)
}

/// How the ports' queues will divide flows, if each port has a queue for each worker where it can.
pub(super) fn expected(plan: &Plan<'_>, drivers: &Drivers, workers: usize) -> Vec<Division> {
    let of = |port: &PlannedPort<'_>| {
        let configured = port.configured.as_ref();
        let queues = configured.map_or(1, |configured| configured.receive_queues(workers));
        let rules = configured.map(|configured| configured.rules().clone()).unwrap_or_default();
        let symmetric = match drivers.get(&port.driver).map(|driver| driver.division) {
            None | Some(QueueDivision::One | QueueDivision::Symmetric) => true,
            Some(QueueDivision::Asymmetric) => queues == 1,
        };
        let symmetric = symmetric || configured.is_some_and(|configured| configured.filters().is_some());
        Division { queues, symmetric: symmetric && rules.is_symmetric(), rules, steered: false }
    };
    plan.ports.iter().map(of).collect()
}

/// As [`check`], after `adjust` has applied the command line to the file's `[runtime]`.
pub(super) fn check_with<'t>(
    app: &Application,
    file: &'t File,
    adjust: impl FnOnce(&mut RuntimeSettings),
) -> Result<Checked<'t>, Faults<'t>> {
    let source = Source::new(file.name.clone(), &file.text);
    let mut diagnostics = Diagnostics::default();
    let mut document = config::parse(&file.text, &mut diagnostics);
    document.read_instead(&file.directory, &file.files);
    let mut plan = config::resolve(document, &app.registry, &app.drivers, &file.directory, &mut diagnostics);
    adjust(&mut plan.runtime);
    plan.check_placement(&mut diagnostics);
    plan.check_files(&file.directory, &mut diagnostics);
    plan.check_devices(&app.drivers, &mut diagnostics);
    if diagnostics.has_errors() {
        return Err(Faults { source, diagnostics });
    }
    Checked::of(source, plan, file, diagnostics)
}

impl<'t> Checked<'t> {
    /// Connects what a plan names.
    fn of(
        source: Source<'t>,
        mut plan: Plan<'t>,
        file: &File,
        mut diagnostics: Diagnostics,
    ) -> Result<Self, Faults<'t>> {
        let pool = match Pool::builder().frames(CHECK_FRAMES).build() {
            Ok(pool) => pool,
            Err(error) => {
                diagnostics.push(Diagnostic::error(error.to_string()));
                return Err(Faults { source, diagnostics });
            }
        };
        let network = Network::of(&plan, &pool, &mut diagnostics);
        for (tenant, room) in plan.tenants.iter_mut().zip(&network.rooms) {
            tenant.room = *room;
        }
        if diagnostics.has_errors() {
            return Err(Faults { source, diagnostics });
        }
        let design = network.design(file.stem(), &plan);
        let drivers: Vec<String> = plan.ports.iter().map(placed).collect();
        let worker = Worker::new(0, plan.runtime.seed.unwrap_or(0), pool).on_trial();
        match design.stand_in(&drivers, &worker).and_then(|graph| graph.check().map(|()| graph)) {
            Ok(graph) => Ok(Self {
                // Shuffles that are put in later change no pool: that is made before.
                frames: plan.frames(wanted_workers(&network, &plan)),
                source,
                plan,
                network,
                design,
                shuffles: Vec::new(),
                key_shuffles: Vec::new(),
                filters: Filters::default(),
                diagnostics,
                graph,
            }),
            Err(error) => {
                let diagnostic = Diagnostic::error(error.to_string());
                let function = match &error {
                    GraphError::Node { name, .. } => network.uses.iter().find(|use_| use_.name == *name),
                    _ => None,
                };
                let place = function.map(|use_| plan.functions[use_.function].place.clone());
                diagnostics.push(match place {
                    Some(place) => diagnostic.at(place, ""),
                    None => diagnostic,
                });
                Err(Faults { source, diagnostics })
            }
        }
    }

    /// Adds a shuffle behind each of these ports.
    pub(super) fn with_shuffles(self, file: &File, parted: Vec<Parted>) -> Result<Self, Faults<'t>> {
        if parted.is_empty() {
            return Ok(self);
        }
        let Self { source, mut plan, diagnostics, filters, frames, .. } = self;
        plan.put_in(&parted);
        Ok(Self { shuffles: parted, filters, frames, ..Self::of(source, plan, file, diagnostics)? })
    }

    /// Adds a shuffle before each of these functions, or a warning if the key of its state is not known.
    pub(super) fn with_key_shuffles(self, file: &File, split: Vec<Split>) -> Result<Self, Faults<'t>> {
        let Self { source, mut plan, shuffles, mut diagnostics, filters, frames, .. } = match split.is_empty()
        {
            true => return Ok(self),
            false => self,
        };
        let (put_in, unmet): (Vec<_>, Vec<_>) = split.into_iter().partition(|split| split.key.is_some());
        unmet.iter().for_each(|split| diagnostics.push(split.warning(&plan)));
        plan.put_before(&put_in);
        Ok(Self {
            shuffles,
            key_shuffles: put_in,
            filters,
            frames,
            ..Self::of(source, plan, file, diagnostics)?
        })
    }

    /// A line for each shuffle that the file does not name: its node, and why it is needed.
    pub(super) fn told_shuffles(&self) -> impl Iterator<Item = String> + '_ {
        let by_flow = self.shuffles.iter().map(|Parted { node, port, why, .. }| {
            format!(
                "  {node}  a shuffle by symmetric flow, put behind `{port}`: {why}; `shuffles = false` in `[runtime]` \
                 leaves it out\n"
            )
        });
        let by_key = self.key_shuffles.iter().map(|Split { node, before, key, why, .. }| {
            let key = key.map_or("", ShuffleKey::name);
            format!(
                "  {node}  a shuffle by {key}, put before `{before}`: {why}; `shuffles = false` in `[runtime]` leaves it \
                 out\n"
            )
        });
        by_flow.chain(by_key)
    }
}

impl Checked<'_> {
    /// The number of large frames that are reserved although the file does not ask for them, and their ports.
    pub(super) fn told_frames(&self) -> Option<String> {
        let ports = self.plan.large_ports();
        let frames = self.plan.large_frames();
        let list = ports.iter().map(|port| format!("`{port}`")).collect::<Vec<_>>().join(", ");
        (!ports.is_empty()).then(|| {
            format!(
                "  {} of 68 KiB ({}) beside {}: {list} may bring segments that are not cut, or jumbo frames; \
                 `large_frames` in `[runtime]` says how many\n",
                counted(frames, "packet buffer"),
                memory(frames::large_bytes(frames) as u64),
                thousands(self.frames as u64),
            )
        })
    }
}

/// A port's driver and the workers of its queues, for the label beside its name in a drawing.
fn placed(port: &PlannedPort<'_>) -> String {
    let numbers: Vec<String> = port.workers.iter().map(|worker| worker.get_ref().to_string()).collect();
    match numbers.as_slice() {
        [] => port.driver.clone(),
        [one] => format!("{} on worker {one}", port.driver),
        several => format!("{} on workers {}", port.driver, several.join(", ")),
    }
}

/// The faults of a file.
pub(super) struct Faults<'t> {
    pub(super) source: Source<'t>,
    pub(super) diagnostics: Diagnostics,
}

impl Faults<'_> {
    /// Shows the faults.
    pub(super) fn told(self, console: Console) -> Failure {
        console.show(&self.diagnostics, &self.source);
        self.code()
    }
    /// A usage error if the file is wrong; a failure if the machine lacks something that the file needs.
    pub(super) fn code(&self) -> Failure {
        Failure::Told(if self.diagnostics.is_machine() { FAILURE } else { USAGE })
    }
}
