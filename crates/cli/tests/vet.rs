//! `netbricks vet` as a command, and `run` where the file asks for an attestation.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use netbricks_vet::{Attestation, Binary, Vetted, hash};

fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vet-command").join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(directory.join("crate/src")).expect("the target directory can be written");
    directory
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).expect("the file can be written");
}

fn netbricks(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(arguments)
        .args(["--color", "never"])
        .current_dir(directory)
        .env_remove("RUST_BACKTRACE")
        .output()
        .expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with a crate of this source, and an empty list.
fn with_crate(name: &str, source: &str) -> PathBuf {
    let directory = scratch(name);
    let named = "name = \"tiny\"\nversion = \"1.0.0\"\n";
    write(&directory, "crate/Cargo.toml", &format!("[package]\n{named}edition = \"2024\"\n[workspace]\n"));
    write(&directory, "crate/Cargo.lock", &format!("version = 4\n\n[[package]]\n{named}"));
    write(&directory, "crate/src/lib.rs", source);
    write(&directory, "vet.toml", "");
    directory
}

const VET: [&str; 5] = ["vet", "crate", "--target-dir", "../made", "--offline"];

#[test]
fn a_clean_crate_passes() {
    let directory =
        with_crate("clean", "pub fn first(bytes: &[u8]) -> Option<u8> {\n    bytes.first().copied()\n}\n");
    let output = netbricks(&directory, &VET);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(
        said.starts_with("tiny 1.0.0  clean\n1 crate vetted, 0 refused; 0 on the list; rustc "),
        "{said}"
    );
    let output = netbricks(&directory, &[&VET[..], &["--attest", "a.json"]].concat());
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("an attestation is about one program") && said.contains("add a `main.rs`"),
        "{said}"
    );
}

#[test]
fn a_refused_crate_is_explained_at_its_place() {
    let directory = with_crate("refused", "pub fn end() {\n    std::process::abort()\n}\n");
    let output = netbricks(&directory, &VET);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(
        said.starts_with(
            "tiny 1.0.0  REFUSED, 2 findings\n  src/lib.rs:2:5: standard-library: `std::process::abort`"
        ),
        "{said}"
    );
    let output = netbricks(&directory, &[&VET[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let finding = &said["crates"][0]["findings"][0];
    assert_eq!((said["clean"].as_bool(), finding["line"].as_u64()), (Some(false), Some(2)));
    assert_eq!(
        (finding["rule"].as_str(), finding["file"].as_str()),
        (Some("standard-library"), Some("src/lib.rs"))
    );
}

#[test]
fn wrong_requests_say_what_is_needed() {
    let directory = with_crate("wrong", "");
    let said = |arguments: &[&str]| {
        let output = netbricks(&directory, arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
        text(&output.stderr)
    };
    assert!(said(&["vet", "crate", "--list", "none.toml"]).contains("docs/vet.md says how to write one"));
    assert!(
        said(&["vet", "nothing", "--target-dir", "../made", "--list", "crate/Cargo.toml"])
            .contains("unknown field")
    );
    write(&directory, "bad.toml", "[[crate]]\nname = \"a\"\nversion = \"1.0.0\"\n");
    assert!(said(&["vet", "crate", "--list", "bad.toml"]).contains("one of `checksum`, `commit` and `hash`"));
    write(&directory, "bad.toml", "[[use]]\ncrate = \"a-b\"\npaths = [\"std::fs\"]\n");
    assert!(said(&["vet", "crate", "--list", "bad.toml"]).contains("does not begin with `a_b`"));
    std::fs::remove_file(directory.join("crate/Cargo.lock")).expect("it is there");
    let output = netbricks(&directory, &VET);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("cannot be resolved from its Cargo.lock"),
        "{}",
        text(&output.stderr)
    );
}

const GRAPH: &str = "[runtime]\nattestation = \"a.json\"\n\n[port.in]\ndriver = \"generator\"\npackets = 100\n[port.out]\ndriver = \"null\"\n\
                     [[chain]]\nfrom = \"in\"\nto = \"out\"\n";

#[test]
fn run_refuses_a_program_that_is_not_attested() {
    let directory = scratch("attested");
    write(&directory, "f.toml", GRAPH);
    let run = || netbricks(&directory, &["run", "f.toml", "--json", "--no-control"]);
    let output = run();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("the attestation `a.json` cannot be read") && said.contains("f.toml:2:15"),
        "{said}"
    );
    write(&directory, "a.json", "{}");
    assert!(text(&run().stderr).contains("`a.json` is no attestation of this version"));

    let found = hash::of_file(Path::new(env!("CARGO_BIN_EXE_netbricks"))).expect("it can be read");
    let attested = |sha256: &str| Attestation {
        attestation: Attestation::FORMAT,
        name: "tiny".into(),
        version: "1.0.0".into(),
        binary: Binary { name: "tiny".into(), sha256: sha256.into(), bytes: 1 },
        rustc: "rustc 1.95.0".into(),
        host: String::new(),
        target_cpu: None,
        features: Vec::new(),
        netbricks: String::new(),
        lock_sha256: String::new(),
        list_sha256: hash::of_bytes(b"# the list\n"),
        vetted: vec![Vetted {
            name: "tiny".into(),
            version: "1.0.0".into(),
            sha256: hash::of_bytes(b"tiny"),
        }],
        listed: Vec::new(),
    };
    let write_it = |attestation: &Attestation| {
        write(&directory, "a.json", &serde_json::to_string(attestation).expect("it is JSON"));
    };
    let attest = |sha256: &str| write_it(&attested(sha256));
    let expected = hash::of_bytes(b"another program");
    attest(&expected);
    let output = run();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains(&expected) && said.contains(&found) && said.contains("vet CRATE --attest FILE"),
        "{said}"
    );
    let checked = netbricks(&directory, &["check", "f.toml"]);
    assert_eq!(checked.status.code(), Some(0));
    assert!(
        text(&checked.stderr).starts_with("warning: `a.json` attests `tiny`"),
        "{}",
        text(&checked.stderr)
    );
    attest(&found);
    let output = run();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["sent"], 100);

    // The right hash alone says nothing of where the program came from.
    let empty = [
        ("rustc", Attestation { rustc: String::new(), ..attested(&found) }),
        ("vetted", Attestation { vetted: Vec::new(), ..attested(&found) }),
    ];
    for (key, attestation) in empty {
        write_it(&attestation);
        let output = run();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("`a.json` attests nothing: its `{key}` is empty")), "{said}");
    }

    attest(&found);
    write(&directory, "f.toml", &GRAPH.replace("[runtime]", "[runtime]\nattestation_list = \"vet.toml\""));
    assert!(text(&run().stderr).contains("the list `vet.toml` cannot be read"), "{}", text(&run().stderr));
    write(&directory, "vet.toml", "# another list\n");
    let output = run();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let other = hash::of_bytes(b"# another list\n");
    assert!(said.contains(&other) && said.contains("f.toml:2:20"), "{said}");
    write(&directory, "vet.toml", "# the list\n");
    assert_eq!(run().status.code(), Some(0));
}
