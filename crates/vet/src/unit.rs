//! One call of the compiler, which `cargo` makes through this program.
//!
//! Vetted crates get the lints; listed ones are compiled as they are.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use serde::{Deserialize, Serialize};

/// The name under which `cargo` calls this program.
pub(crate) const NAME: &str = "netbricks-vet-rustc";

/// rustc's lints that no attribute of a vetted crate switches off.
const RUSTC_LINTS: &[&str] = &["unsafe_code", "long_running_const_eval"];
/// Clippy's, with our configuration.
const CLIPPY_LINTS: &[&str] = &[
    "clippy::disallowed_methods",
    "clippy::disallowed_types",
    "clippy::disallowed_macros",
    "clippy::exit",
    "clippy::mem_forget",
    "clippy::print_stderr",
    "clippy::print_stdout",
];

/// The task of all calls of one `cargo`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Folders of the manifests of vetted crates.
    pub(crate) vetted: Vec<PathBuf>,
    /// Those of listed crates.
    pub(crate) listed: Vec<PathBuf>,
    pub(crate) clippy_driver: PathBuf,
    /// Whether code is made, rather than looked at.
    pub(crate) build: bool,
}

/// The result of one call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) folder: PathBuf,
    /// The compiler's name of the crate.
    pub(crate) name: String,
    /// `lib` or `bin`.
    pub(crate) kind: String,
    /// The folder that paths in messages start from.
    pub(crate) directory: PathBuf,
    pub(crate) succeeded: bool,
    /// The compiler's messages, a JSON object each.
    pub(crate) messages: Vec<String>,
    /// The list of the files that the compiler read.
    pub(crate) read: Option<String>,
}

/// Calls the compiler, where this program was called by `cargo` for that.
pub fn by_name(arguments: &[OsString]) -> Option<ExitCode> {
    let (program, rest) = arguments.split_first()?;
    let program = Path::new(program);
    if program.file_name()? != NAME {
        return None;
    }
    Some(match call(program.parent()?, rest) {
        Ok(code) => code,
        Err(problem) => {
            eprint(&format!("error: vet: {problem}\n"));
            ExitCode::FAILURE
        }
    })
}

fn eprint(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn call(work: &Path, arguments: &[OsString]) -> Result<ExitCode, String> {
    let (rustc, arguments) = arguments.split_first().ok_or("cargo named no compiler")?;
    let mut command = Command::new(rustc);
    // Without a crate it is cargo's question about the compiler.
    let folder = match (std::env::var_os("CARGO_MANIFEST_DIR"), value(arguments, "--crate-name")) {
        (Some(folder), Some(name)) if name != "___" => PathBuf::from(folder),
        _ => return Err(command.args(arguments).exec().to_string()),
    };
    let plan =
        std::fs::read(work.join("plan.json")).map_err(|error| format!("the plan cannot be read: {error}"))?;
    let plan: Plan = serde_json::from_slice(&plan).map_err(|error| format!("the plan: {error}"))?;
    if plan.listed.contains(&folder) {
        return Err(command.args(arguments).exec().to_string());
    }
    let kind = value(arguments, "--crate-type").unwrap_or_default();
    let name = value(arguments, "--crate-name").unwrap_or_default();
    if !plan.vetted.contains(&folder)
        || !["lib", "rlib", "bin"].contains(&kind.as_str())
        || name == "build_script_build"
    {
        return Err(format!("`{name}` in `{}` is neither on the list nor vetted", folder.display()));
    }
    if let Some(odd) = odd(arguments) {
        return Err(format!("`{name}`: cargo passes `{odd}`, which is not known to be harmless"));
    }
    let mut command = if plan.build { command } else { Command::new(&plan.clippy_driver) };
    if plan.build {
        // Clippy sets it too: both see the same code.
        command.args(["--cfg", "clippy", "--check-cfg", "cfg(clippy)"]);
    } else {
        command.arg(rustc).env("CLIPPY_CONF_DIR", work).env_remove("CLIPPY_ARGS");
    }
    command.args(uncapped(arguments));
    let clippy = if plan.build { &[] } else { CLIPPY_LINTS };
    RUSTC_LINTS.iter().chain(clippy).for_each(|lint| _ = command.args(["-F", lint]));
    let output = command.stdin(Stdio::null()).stdout(Stdio::inherit()).stderr(Stdio::piped()).output();
    let output = output.map_err(|error| format!("the compiler cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let report = Report {
        folder,
        name: name.clone(),
        kind: if kind == "bin" { kind } else { "lib".into() },
        directory: std::env::current_dir().unwrap_or_default(),
        succeeded: output.status.success(),
        messages: said.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect(),
        read: files_read(arguments).and_then(|path| std::fs::read_to_string(path).ok()),
    };
    let file = work.join("reports").join(format!("{name}-{}.json", std::process::id()));
    let report = serde_json::to_vec(&report).map_err(|error| error.to_string())?;
    std::fs::write(file, report).map_err(|error| format!("the report cannot be written: {error}"))?;
    eprint(&said);
    Ok(if output.status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An option's value, written as `--option value` or `--option=value`.
fn value(arguments: &[OsString], option: &str) -> Option<String> {
    let mut arguments = arguments.iter().filter_map(|argument| argument.to_str());
    while let Some(argument) = arguments.next() {
        if argument == option {
            return arguments.next().map(str::to_owned);
        }
        if let Some(value) = argument.strip_prefix(option).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value.to_owned());
        }
    }
    None
}

/// The values of `-C`.
fn codegen(arguments: &[OsString]) -> impl Iterator<Item = &str> {
    let pairs = arguments.iter().zip(arguments.iter().skip(1));
    let apart = pairs.filter(|(option, _)| *option == "-C").filter_map(|(_, value)| value.to_str());
    let together = arguments
        .iter()
        .filter_map(|argument| argument.to_str()?.strip_prefix("-C"))
        .filter(|value| !value.is_empty());
    apart.chain(together)
}

/// An option that vetting does not know.
fn odd(arguments: &[OsString]) -> Option<String> {
    const CODEGEN: &[&str] = &[
        "codegen-units",
        "debug-assertions",
        "debuginfo",
        "embed-bitcode",
        "extra-filename",
        "incremental",
        "linker-plugin-lto",
        "lto",
        "metadata",
        "opt-level",
        "overflow-checks",
        "split-debuginfo",
        "strip",
        "target-cpu",
    ];
    let strange = codegen(arguments).find(|given| {
        let name = given.split('=').next().unwrap_or_default();
        !CODEGEN.contains(&name) && *given != "panic=unwind"
    });
    let unknown = ["-Z", "--test", "-l", "--sysroot", "--target"];
    let other =
        arguments.iter().filter_map(|argument| argument.to_str()).find(|argument| unknown.contains(argument));
    strange.map(|value| format!("-C {value}")).or(other.map(str::to_owned))
}

/// The arguments without `--cap-lints`, by which cargo silences lints of crates from registries.
fn uncapped(arguments: &[OsString]) -> Vec<&OsString> {
    let mut kept = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--cap-lints") => _ = arguments.next(),
            Some(text) if text.starts_with("--cap-lints=") => (),
            _ => kept.push(argument),
        }
    }
    kept
}

/// The file into which the compiler writes the names of the files that it read.
fn files_read(arguments: &[OsString]) -> Option<PathBuf> {
    let folder = value(arguments, "--out-dir")?;
    let name = value(arguments, "--crate-name")?;
    let extra =
        codegen(arguments).find_map(|given| given.strip_prefix("extra-filename=")).unwrap_or_default();
    Some(Path::new(&folder).join(format!("{name}{extra}.d")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn lints_of_registries_are_not_capped() {
        let arguments = words("--crate-name a --cap-lints allow x.rs --cap-lints=warn -C opt-level=3");
        assert_eq!(
            uncapped(&arguments),
            words("--crate-name a x.rs -C opt-level=3").iter().collect::<Vec<_>>()
        );
    }

    #[test]
    fn options_that_change_the_program_are_odd() {
        assert_eq!(odd(&words("-C opt-level=3 -C metadata=1 -Cpanic=unwind")), None);
        for odd_one in ["-C link-arg=evil.o", "-Cpanic=abort", "-C panic=abort", "--test", "-Z x", "-l evil"]
        {
            assert!(odd(&words(odd_one)).is_some(), "{odd_one}");
        }
    }

    #[test]
    fn the_list_of_files_is_beside_the_output() {
        let arguments = words("--crate-name own --out-dir /t/deps -C extra-filename=-0123");
        assert_eq!(files_read(&arguments), Some(PathBuf::from("/t/deps/own-0123.d")));
    }
}
