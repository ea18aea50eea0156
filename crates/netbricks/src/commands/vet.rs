//! `vet`: refuses function crates that reach too far, and attests what was built of those that do not.

use std::path::{Path, PathBuf};

use netbricks_vet::{Attestation, Error, Features, List, Request, Verdict, Vetting};

use super::{Console, FAILURE, Failure, concluded};

/// The arguments of `vet`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct VetArguments {
    /// The folder of the crate or workspace
    #[arg(value_name = "CRATE", value_hint = clap::ValueHint::DirPath)]
    pub(crate) path: PathBuf,
    /// The operator's list of allowed crates; without it, `vet.toml` in the current folder
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) list: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Build the crate's program after a clean verdict, and write here of what it was built
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) attest: Option<PathBuf>,
    /// Where the built program goes; without it, beside the attestation
    #[arg(long, value_name = "FILE", requires = "attest", value_hint = clap::ValueHint::FilePath)]
    pub(crate) binary: Option<PathBuf>,
    /// Print list entries for the dependencies that no list names, to read them and add them
    #[arg(long, conflicts_with_all = ["json", "attest"])]
    pub(crate) missing: bool,
    /// Features that are vetted and built
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) features: Vec<String>,
    /// Vet and build all features
    #[arg(long)]
    pub(crate) all_features: bool,
    /// Leave out the default features
    #[arg(long)]
    pub(crate) no_default_features: bool,
    /// The processor to build for, such as `native`
    #[arg(long, value_name = "CPU")]
    pub(crate) target_cpu: Option<String>,
    /// Where cargo keeps what it makes, never inside the crate; else `netbricks/vet` in the user's cache
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) target_dir: Option<PathBuf>,
    /// Fetch nothing
    #[arg(long)]
    pub(crate) offline: bool,
    /// The longest that cargo may take
    #[arg(long, value_name = "TIME", default_value = "30 min")]
    pub(crate) time_limit: netbricks_core::units::Duration,
}

pub(super) fn vet(console: Console, arguments: &VetArguments) -> Result<(), Failure> {
    let path = arguments.list.clone().unwrap_or_else(|| "vet.toml".into());
    let list = List::read(&path).map_err(|error| match &error {
        Error::Unreadable { path: missing, .. } if *missing == path => Failure::Usage(format!(
            "{error}: `--list` names the operator's list of allowed crates; docs/vet.md says how to write one"
        )),
        _ => Failure::Usage(error.to_string()),
    })?;
    let request = Request {
        path: arguments.path.clone(),
        features: Features {
            named: arguments.features.clone(),
            all: arguments.all_features,
            without_default: arguments.no_default_features,
            target_cpu: arguments.target_cpu.clone(),
            offline: arguments.offline,
        },
        target: target(arguments)?,
        program: std::env::current_exe()
            .map_err(|error| Failure::Failed(format!("this program cannot be found: {error}")))?,
        list_was_named: arguments.list.is_some(),
        limit: arguments.time_limit.into(),
    };
    let vetting = Vetting::new(&request, &list).map_err(failure)?;
    if arguments.missing {
        return console.print(&vetting.missing().map_err(failure)?);
    }
    let program = arguments.attest.as_ref().map(|_| vetting.program_name()).transpose().map_err(failure)?;
    let verdict = vetting.verdict().map_err(failure)?;
    let attested = match (&arguments.attest, program) {
        (Some(file), Some(name)) if verdict.clean => {
            let binary = arguments.binary.clone().unwrap_or_else(|| file.with_file_name(name));
            let attestation = vetting.attest(&verdict, &binary).map_err(failure)?;
            write(file, &attestation)?;
            Some((file, binary, attestation))
        }
        _ => None,
    };
    let written = if arguments.json {
        console.json(&serde_json::json!({
            "clean": verdict.clean,
            "crates": verdict.crates,
            "listed": verdict.listed,
            "rustc": verdict.rustc,
            "attestation": attested.as_ref().map(|(_, _, attestation)| attestation),
        }))
    } else {
        console.print(&text(&verdict, attested.as_ref()))
    };
    let outcome = if verdict.clean { Ok(()) } else { Err(Failure::Told(FAILURE)) };
    concluded(outcome, written)
}

fn text(verdict: &Verdict, attested: Option<&(&PathBuf, PathBuf, Attestation)>) -> String {
    let mut text = verdict.text();
    if let Some((file, binary, attestation)) = attested {
        text += &format!(
            "built {}, SHA-256 {}\nattested in {}: `attestation` in `[runtime]` has `run` compare them\n",
            binary.display(),
            attestation.binary.sha256,
            file.display()
        );
    }
    text
}

fn write(file: &Path, attestation: &Attestation) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(attestation).map_err(|error| Failure::Failed(error.to_string()))?;
    std::fs::write(file, text + "\n")
        .map_err(|error| Failure::Failed(format!("`{}` cannot be written: {error}", file.display())))
}

/// The folder of what cargo makes: the operator's own, for the crate could bring one that looks fresh.
fn target(arguments: &VetArguments) -> Result<PathBuf, Failure> {
    if let Some(target) = &arguments.target_dir {
        return Ok(target.clone());
    }
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or_else(|| Failure::Usage("there is no `HOME`: say `--target-dir`".into()))?;
    Ok(cache.join("netbricks/vet"))
}

/// Wrong requests are usage errors; the rest are failures.
fn failure(error: Error) -> Failure {
    match error {
        Error::NoCrate { .. } | Error::Inside { .. } | Error::NoProgram { .. } | Error::List { .. } => {
            Failure::Usage(error.to_string())
        }
        error => Failure::Failed(error.to_string()),
    }
}
