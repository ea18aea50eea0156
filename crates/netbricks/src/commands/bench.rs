//! `bench`: measures graphs that are built exactly as `run` builds them.

use super::{Console, Failure};
use crate::bench::{BenchError, CONTROL, MMB_LIVE};

/// The arguments of `bench`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BenchArguments {
    /// The benchmarks to run; `--list` names all of them
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub(crate) names: Vec<String>,
    /// Print one JSON object a line; of `--list` one array
    #[arg(long)]
    pub(crate) json: bool,
    /// Run on this core, and where more than one is needed on others beside it
    #[arg(long, value_name = "N")]
    pub(crate) core: Option<usize>,
    /// Rounds to take the median of, at least 7
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Packets that each worker brings in a round, of what needs two cores, at least 500000
    #[arg(long, value_name = "N")]
    pub(crate) packets: Option<u64>,
    /// Put short packets into frames of 512 bytes, as where no device (`af_xdp`) fills frames
    #[arg(long)]
    pub(crate) short_frames: bool,
    /// List what can be measured
    #[arg(long)]
    pub(crate) list: bool,
}

pub(super) fn bench(console: Console, arguments: &BenchArguments) -> Result<(), Failure> {
    let is_whole = |name: &String| [CONTROL, MMB_LIVE].contains(&&name[..]);
    let (whole, graphs): (Vec<String>, Vec<String>) = arguments.names.iter().cloned().partition(is_whole);
    if arguments.list || !graphs.is_empty() {
        crate::bench::command(console, &BenchArguments { names: graphs, ..arguments.clone() })?;
    }
    if arguments.list {
        return Ok(());
    }
    if whole.iter().any(|name| name == CONTROL) {
        super::bench_control::bench_control(console, arguments)?;
    }
    if whole.iter().any(|name| name == MMB_LIVE) {
        super::bench_rules::bench_rules(console, arguments)?;
    }
    Ok(())
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Usage(text) => Self::Usage(text),
            BenchError::Failed(text) => Self::Failed(text),
        }
    }
}
