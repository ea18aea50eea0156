//! Crates in one file each: the rule and the words by which each has to be refused, then its files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One crate.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The rule that it has to break.
    pub(crate) rule: String,
    /// A part of the finding's text.
    pub(crate) says: String,
    /// Paths and contents; `-> PATH` is a symbolic link.
    files: Vec<(String, String)>,
}

impl Case {
    /// Reads one from its text.
    pub(crate) fn of(name: &str, text: &str) -> Self {
        let mut files: Vec<(String, String)> = Vec::new();
        let (mut rule, mut says) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(path) = line.strip_prefix("-- ").and_then(|line| line.strip_suffix(" --")) {
                files.push((path.to_owned(), String::new()));
            } else if let Some((_, content)) = files.last_mut() {
                *content += line;
                *content += "\n";
            } else if let Some(named) = line.strip_prefix("refused: ") {
                named.clone_into(&mut rule);
            } else if let Some(words) = line.strip_prefix("says: ") {
                words.clone_into(&mut says);
            } else {
                assert!(line.starts_with("why: "), "{name}: {line}");
            }
        }
        if !files.iter().any(|(path, _)| path == "Cargo.toml") {
            let manifest = format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2024\"\n");
            files.push(("Cargo.toml".into(), manifest));
        }
        Self { name: name.to_owned(), rule, says, files }
    }

    /// One that passes.
    pub(crate) fn harmless() -> Self {
        let text = "why: it is clean\n-- src/lib.rs --\npub fn first(bytes: &[u8]) -> Option<u8> {\n    bytes.first().copied()\n}\n";
        Self::of("harmless", text)
    }

    /// Whether it is the root of a workspace.
    pub(crate) fn has_workspace(&self) -> bool {
        self.files.iter().any(|(path, text)| path == "Cargo.toml" && text.contains("[workspace]"))
    }

    fn write(&self, folder: &Path) {
        for (path, content) in &self.files {
            let (path, link) = match path.split_once(" -> ") {
                Some((path, target)) => (path, Some(target)),
                None => (path.as_str(), None),
            };
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("it has a folder")).expect("it can be made");
            match link {
                Some(target) => std::os::unix::fs::symlink(target, path).expect("it can be made"),
                None => {
                    let content = content.replace("{repository}", &root().display().to_string());
                    fs::write(path, content).expect("it can be written");
                }
            }
        }
    }
}

/// The folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

/// All crates that have to be refused.
pub(crate) fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused-crates");
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder).expect("the cases are there").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "crate") {
            let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
            cases.push(Case::of(&name, &fs::read_to_string(&path).expect("it is text")));
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

/// Writes crates into one workspace, with settings of cargo that would run a program if they were read.
pub(crate) fn unpack(name: &str, cases: &[Case]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("refused").join(name);
    let _ = fs::remove_dir_all(&folder);
    let evil = format!("#!/bin/sh\ntouch '{}'\nexec \"$@\"\n", folder.join("ran").display());
    let configuration = "[build]\nrustc-wrapper = \"./wrapper\"\nrustflags = [\"--cap-lints\", \"allow\"]\n";
    let outside = "pub fn first(bytes: &[u8]) -> u8 {\n    unsafe { *bytes.as_ptr() }\n}\n";
    let toolchain = "[toolchain]\nchannel = \"1.0.0\"\n";
    let workspace;
    let mut shared = vec![
        ("wrapper", evil.as_str()),
        (".cargo/config.toml", configuration),
        ("rust-toolchain.toml", toolchain),
        ("outside.rs", outside),
    ];
    let mut members: Vec<Case> = cases.to_vec();
    let manifest = if let [case] = cases
        && case.has_workspace()
    {
        case.name.clone()
    } else {
        if !members
            .iter()
            .any(|case| case.name == "harmless" || case.rule.is_empty() || case.name.starts_with("listed"))
        {
            members.push(Case::harmless());
        }
        let names: Vec<String> = members.iter().map(|case| format!("\"{}\"", case.name)).collect();
        workspace = format!("[workspace]\nresolver = \"3\"\nmembers = [{}]\n", names.join(", "));
        shared.push(("Cargo.toml", &workspace));
        String::new()
    };
    for (path, text) in shared {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("it can be made");
        fs::write(path, text).expect("it can be written");
    }
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder.join("wrapper"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    members.iter().for_each(|case| case.write(&folder.join(&case.name)));
    lock(&folder.join(manifest));
    folder
}

/// Writes the Cargo.lock of a workspace, with the versions of the repository's where it names the same crates.
fn lock(folder: &Path) {
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).expect("the repository has one");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .current_dir(root())
        .output()
        .expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
