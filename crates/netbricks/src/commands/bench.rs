//! `bench`: measuring graphs that are built exactly as `run` builds them.

use super::Failure;

/// What `bench` is asked.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BenchArguments {
    /// What to measure; `--list` names what there is
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub(crate) names: Vec<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Run on this core
    #[arg(long, value_name = "N")]
    pub(crate) core: Option<usize>,
    /// Rounds to take the median of, at least 7
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Put packets of any length into frames of 2 KiB, as where a device (`af_xdp`) fills them
    #[arg(long)]
    pub(crate) device_frames: bool,
    /// List what can be measured
    #[arg(long)]
    pub(crate) list: bool,
}

pub(super) fn bench(arguments: &BenchArguments) -> Result<(), Failure> {
    match crate::bench::command(arguments) {
        Ok(()) => Ok(()),
        Err(crate::bench::BenchError::Usage(text)) => Err(Failure::Usage(text)),
        Err(crate::bench::BenchError::Failed(text)) => Err(Failure::Failed(text)),
    }
}
