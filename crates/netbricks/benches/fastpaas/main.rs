//! The figures of FastPaas (Zhang et al., "Memory and Performance Isolation for a Multi-tenant Function-based Dataplane").
//!
//! `cargo bench -p netbricks --bench fastpaas -- COMMAND`, where COMMAND is one of those below. The scripts in
//! `bench/fastpaas` compile the modules and draw the figures; its README describes the columns of each command's CSV.

mod batches;
mod chains;
mod endless;
mod modes;
mod quiet;
mod rust;
mod traffic;
mod veth;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: fastpaas COMMAND [OPTION]...
  modes                 ns a packet of each function in each mode (Figures 5 and 6)
  chains                chains of 1 to 4 LPM (Figure 1)
  batches               tenants in a batch (Figure 2)
  endless               the time until an endless loop is ended
  quiet                 the latency of a quiet tenant beside 7 that hog
  forward IN OUT MODE   a policer between two interfaces (Figure 7), for SECONDS
  flood DEVICE          floods an interface with packets of many flows, for SECONDS
options:
  --modules FOLDER      the compiled modules (bench/fastpaas/c/Makefile)
  --cores LIST          the cores to run on, such as 0,1 (default: all, the last first)
  --scale PERCENT       of the packets and rounds of a full run (default 100)
  --seconds SECONDS     for `forward` and `flood` (default 5)
  --capture FILE        for `batches`: packets of this capture in place of the seeded trace
  --prefixes FILE       for `batches`: lines `PREFIX/LENGTH AS`";

/// The arguments of a command.
pub(crate) struct Options {
    words: Vec<String>,
    modules: Option<PathBuf>,
    cores: Vec<usize>,
    scale: usize,
    seconds: u64,
    capture: Option<PathBuf>,
    prefixes: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut cores = netbricks_runtime::allowed_cores();
        cores.reverse();
        let mut options = Self {
            words: Vec::new(),
            modules: None,
            cores,
            scale: 100,
            seconds: 5,
            capture: None,
            prefixes: None,
        };
        // `cargo bench` adds an option of its own.
        let mut arguments = arguments.filter(|argument| argument != "--bench");
        while let Some(argument) = arguments.next() {
            if !argument.starts_with("--") {
                options.words.push(argument);
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("`{argument}` needs a value"))?;
            let number = || {
                value.parse::<usize>().map_err(|_| format!("`{argument}` needs a number, found `{value}`"))
            };
            match argument.as_str() {
                "--modules" => options.modules = Some(value.into()),
                "--capture" => options.capture = Some(value.into()),
                "--prefixes" => options.prefixes = Some(value.into()),
                "--scale" => options.scale = number()?.clamp(1, 10_000),
                "--seconds" => options.seconds = number()? as u64,
                "--cores" => {
                    let cores = value.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>();
                    options.cores = cores.map_err(|_| format!("`--cores` needs numbers, found `{value}`"))?;
                }
                _ => return Err(format!("there is no option `{argument}`")),
            }
        }
        Ok(options)
    }

    /// This part of a full run's number, and at least one.
    fn part(&self, full: usize) -> usize {
        (full * self.scale / 100).max(1)
    }

    fn modules(&self) -> Result<PathBuf, String> {
        self.modules.clone().ok_or_else(|| "name the folder of the compiled modules by `--modules`".into())
    }
}

fn command(options: &Options) -> Result<String, String> {
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    match words[..] {
        ["modes"] => {
            let plan = modes::Plan {
                modules: options.modules()?,
                functions: modes::FUNCTIONS.to_vec(),
                bursts: modes::BURSTS.to_vec(),
                routes: 16_000,
                rounds: options.part(31),
                passes: 96,
                core: options.cores.first().copied(),
            };
            modes::run(&plan).map(|rows| modes::csv(&rows))
        }
        ["chains"] => {
            let plan = chains::Plan {
                modules: Some(options.modules()?),
                cores: options.cores.clone(),
                lengths: vec![1, 2, 3, 4],
                routes: 16_000,
                rounds: options.part(5),
                packets: options.part(3_000_000) as u64,
            };
            chains::run(&plan).map(|rows| chains::csv(&rows))
        }
        ["batches"] => {
            let trace = match (&options.capture, &options.prefixes) {
                (None, None) => batches::seeded(options.part(1_000_000)),
                (Some(capture), Some(prefixes)) => batches::captured(capture, prefixes)?,
                _ => return Err("`--capture` and `--prefixes` need each other".into()),
            };
            batches::run(&trace).map(|rows| batches::csv(&rows))
        }
        ["endless"] => {
            let core = options.cores.first().copied();
            endless::run(&options.modules()?, options.part(500), core).map(|times| times.csv())
        }
        ["quiet"] => {
            let plan = quiet::Plan {
                modules: options.modules()?,
                seconds: options.part(300) as f64 / 100.0,
                rounds: options.part(5),
                core: options.cores.first().copied(),
            };
            quiet::run(&plan).map(|rows| quiet::csv(&rows))
        }
        ["forward", from, to, mode] => veth::forward(
            &options.modules()?,
            [from, to],
            mode,
            options.seconds,
            options.cores.first().copied(),
        ),
        ["flood", device] => veth::flood(device, options.seconds, options.cores.first().copied()),
        _ => Err(USAGE.into()),
    }
}

fn main() -> ExitCode {
    let options = Options::parse(std::env::args().skip(1));
    // `cargo test --benches` runs this without a command.
    if options.as_ref().is_ok_and(|options| options.words.is_empty()) {
        eprintln!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match options.and_then(|options| command(&options)) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("fastpaas: {problem}");
            ExitCode::FAILURE
        }
    }
}
