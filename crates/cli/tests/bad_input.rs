//! Each file under `tests/bad` is wrong in one way, and the `.stderr` file beside it has the expected message.
//!
//! `BLESS=1` writes the messages again: read the difference before committing it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn netbricks(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(arguments)
        .current_dir(directory)
        .env_remove("RUST_BACKTRACE")
        .output()
        .expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn bad() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad")
}

/// A fresh directory for one test.
fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

fn entries(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .expect("it is there")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn every_bad_file_is_explained_at_its_place() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    let files: Vec<_> = entries(&bad()).into_iter().filter(|name| name.ends_with(".toml")).collect();
    assert!(files.len() > 10, "the cases are there");
    for file in files {
        for command in ["check", "run"] {
            let output = netbricks(&bad(), &[command, &file, "--color", "never"]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{file}: {said}");
            assert_eq!(text(&output.stdout), "", "{file}");
            let golden = bad().join(file.replace(".toml", ".stderr"));
            if bless {
                std::fs::write(&golden, &said).expect("the golden file can be written");
            }
            let expected = std::fs::read_to_string(&golden).unwrap_or_default();
            if said != expected {
                wrong.push(format!("{command} {file}, expected:\n{expected}\nfound:\n{said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn check_tells_programs_the_same_places() {
    let output = netbricks(&bad(), &["check", "missing_function.toml", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(said["ok"], false);
    let place = &said["diagnostics"][0]["places"][0];
    assert_eq!((place["line"].as_u64(), place["column"].as_u64()), (Some(13), Some(19)));
    assert_eq!(place["label"], "did you mean `flows`?");
}

#[test]
fn unused_settings_are_warnings() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let output = netbricks(&directory, &["check", "unused.toml", "--color", "never"]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stderr);
    assert_eq!(said.matches("warning: ").count(), 2, "{said}");
    assert!(said.contains("unused.toml:8:7") && said.contains("unused.toml:11:11"), "{said}");
}

#[test]
fn two_backends_at_one_address_are_a_warning() {
    let directory = scratch("one-address");
    write(
        &directory,
        "f.toml",
        "[port.lan]\ndriver = \"generator\"\n[port.wan]\ndriver = \"null\"\n[function.balance]\nuse = \"maglev\"\n\
         backends = [\"web-1 02:00:00:00:00:01\", \"web-2 02:00:00:00:00:01\"]\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [\"balance\"]\nto = \"wan\"\n",
    );
    let output = netbricks(&directory, &["check", "f.toml", "--color", "never"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.starts_with(
            "warning: `backends` of function `balance`: backend `web-2` has the Ethernet address"
        )
    );
    assert!(said.contains("of `web-1`") && said.contains("f.toml:7:40"), "{said}");
}

#[test]
fn a_file_that_is_not_there_has_a_neighbour() {
    let output = netbricks(&bad(), &["run", "missing_prt.toml", "--color", "never"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "error: there is no file `missing_prt.toml`; did you mean `missing_port.toml`?\n"
    );
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).expect("the test's directory can be written");
}

#[test]
fn a_missing_capture_is_a_failure_and_leaves_nothing() {
    let directory = scratch("missing-capture");
    write(
        &directory,
        "f.toml",
        "[port.lan]\ndriver = \"pcap\"\nread = \"not-there.pcap\"\n[port.wan]\ndriver = \"pcap\"\nwrite = \"out.pcap\"\n\
         [[chain]]\nfrom = \"lan\"\nto = \"wan\"\n",
    );
    let output = netbricks(&directory, &["run", "f.toml", "--color", "never"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("f.toml:3:8") && said.contains("not-there.pcap"), "{said}");
    assert_eq!(entries(&directory), ["f.toml"]);
}

/// Under every name: else the port that is closed last would replace the other's file. A device takes both.
#[test]
fn a_link_to_a_file_that_another_port_writes_is_that_file() {
    let directory = scratch("links");
    std::os::unix::fs::symlink("out.pcap", directory.join("link.pcap")).expect("a link can be made");
    for (second, code) in [("link.pcap", 2), ("other.pcap", 0)] {
        let chains = format!(
            "[port.lan]\ndriver = \"generator\"\npackets = 5\n[port.a]\ndriver = \"pcap\"\nwrite = \"out.pcap\"\n\
             [port.b]\ndriver = \"pcap\"\nwrite = \"{second}\"\n\
             [function.two]\nuse = \"group-by\"\ngroups = 2\n\
             [[chain]]\nfrom = \"lan\"\nthrough = [\"two\"]\nto = \"a\"\n[[chain]]\nfrom = \"two.1\"\nto = \"b\"\n"
        );
        write(&directory, "two.toml", &chains);
        let output = netbricks(&directory, &["check", "two.toml"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.contains("names the same file as another"), code == 2, "{said}");
        write(&directory, "two.toml", &chains.replace("out.pcap", "/dev/null").replace(second, "/dev/null"));
        assert_eq!(netbricks(&directory, &["check", "two.toml"]).status.code(), Some(0));
    }
}

#[test]
fn a_truncated_capture_is_a_failure_after_what_it_has() {
    let directory = scratch("truncated-capture");
    let made = netbricks(&directory, &["generate", "whole.pcap", "--packets", "1000", "--quiet"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let bytes = std::fs::read(directory.join("whole.pcap")).expect("it was just written");
    std::fs::write(directory.join("cut.pcap"), &bytes[..bytes.len() - 7])
        .expect("the directory can be written");
    write(
        &directory,
        "f.toml",
        "[port.lan]\ndriver = \"pcap\"\nread = \"cut.pcap\"\n[port.wan]\ndriver = \"null\"\n\
         [[chain]]\nfrom = \"lan\"\nto = \"wan\"\n",
    );
    let output = netbricks(&directory, &["run", "f.toml", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["received"], 999, "all that was whole was delivered");
    assert_eq!(report["conserved"], true);
    let failure = report["failures"][0].as_str().unwrap_or_default();
    // Each record has a header of 16 bytes and a frame of 60.
    let place = format!("cut.pcap: record 1000 at byte {}", bytes.len() - 76);
    assert!(failure.contains(&place), "{failure}");
}

#[test]
fn a_missing_interface_is_named_with_its_place() {
    let directory = scratch("missing-interface");
    write(
        &directory,
        "f.toml",
        "[port.lan]\ndriver = \"af_packet\"\ndevice = \"no-such-if0\"\n[port.wan]\ndriver = \"null\"\n\
         [[chain]]\nfrom = \"lan\"\nto = \"wan\"\n",
    );
    let output = netbricks(&directory, &["run", "f.toml", "--color", "never"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
    assert!(said.contains("no network interface `no-such-if0`") && said.contains("f.toml:3:10"), "{said}");
}

/// A file may be checked on one machine and run on another.
#[test]
fn check_warns_of_what_this_machine_lacks_where_run_fails() {
    let directory = scratch("other-machine");
    write(
        &directory,
        "f.toml",
        "[port.lan]\ndriver = \"af_packet\"\ndevice = \"no-such-if0\"\n[port.wan]\ndriver = \"af_xdp\"\ndevice = \"lp\"\n\
         [port.out]\ndriver = \"pcap\"\nwrite = \"out.pcap\"\n[[chain]]\nfrom = \"lan\"\nto = \"out\"\n\
         [[chain]]\nfrom = \"wan\"\nto = \"out\"\n[runtime]\ncores = [1_022, 1_023]\n",
    );
    let output = netbricks(&directory, &["check", "f.toml", "--color", "never"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let stdout = text(&output.stdout);
    assert!(stdout.contains("good\n  512 packet buffers of 68 KiB"), "{stdout}");
    for (what, place) in [
        ("port `lan`: there is no network interface `no-such-if0`", "f.toml:3:10"),
        ("port `wan`: there is no network interface `lp`", "f.toml:6:10"),
        ("`cores` names core 1022, which is not there or not for this process", "f.toml:17:10"),
        ("`cores` names core 1023, which is not there or not for this process", "f.toml:17:17"),
    ] {
        let (_, rest) =
            said.split_once(&format!("warning: {what}\n")).unwrap_or_else(|| panic!("{what}: {said}"));
        assert!(rest.trim_start().starts_with(place), "{what}: {said}");
    }
    assert!(said.contains("did you mean `lo`?"), "{said}");

    let output = netbricks(&directory, &["check", "f.toml", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(told["ok"], true);
    let found = told["diagnostics"].as_array().expect("a list");
    assert_eq!(found.len(), 4, "{told}");
    for diagnostic in found {
        assert_eq!(
            (&diagnostic["level"], &diagnostic["machine"]),
            (&"warning".into(), &true.into()),
            "{told}"
        );
        assert!(diagnostic["places"][0]["column"].as_u64() >= Some(10), "{told}");
    }

    // A run opens nothing before it knows the cores of its workers.
    let output = netbricks(&directory, &["run", "f.toml", "--color", "never"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!((said.matches("error: ").count(), said.matches("f.toml:17:").count()), (2, 2), "{said}");
    assert_eq!(entries(&directory), ["f.toml"]);

    // More workers than cores are an error of the command line.
    let output = netbricks(&directory, &["run", "f.toml", "--workers", "3", "--color", "never"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("3 workers need 3 cores, and `cores` names 2\n   f.toml:17:9"), "{said}");

    let file = std::fs::read_to_string(directory.join("f.toml")).expect("it was just written");
    write(&directory, "f.toml", &file.replace("[1_022, 1_023]", "\"1022-1023\""));
    let said = text(&netbricks(&directory, &["run", "f.toml", "--color", "never"]).stderr);
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
    assert!(
        said.contains("`cores` names cores 1022–1023, which are not") && said.contains("f.toml:17:9"),
        "{said}"
    );
}

#[test]
fn no_permission_names_the_capability() {
    let directory = scratch("no-permission");
    write(
        &directory,
        "f.toml",
        "[port.lan]\ndriver = \"af_packet\"\ndevice = \"lo\"\n[port.wan]\ndriver = \"null\"\n\
         [[chain]]\nfrom = \"lan\"\nto = \"wan\"\n",
    );
    // Without capabilities, even root may not open the port; other users have no capabilities.
    let output = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_netbricks"), "run", "f.toml"])
        .args(["--duration", "1s", "--color", "never"])
        .current_dir(&directory)
        .output();
    let Ok(output) = output else {
        eprintln!("skipped: there is no setpriv here");
        return;
    };
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("CAP_NET_RAW"), "{said}");
}

#[test]
fn wrong_flags_are_usage() {
    for arguments in [
        &["run"] as &[&str],
        &["run", "f.toml", "--workers", "0"],
        &["run", "f.toml", "--duration", "10 parsecs"],
        &["run", "f.toml", "--idle", "lazy"],
        &["fly"],
        &["functions", "tll"],
        &["ports", "af_paket"],
        &["generate", "out.pcap"],
    ] {
        let output = netbricks(&bad(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
    // A word that begins with a dash is a value where one is expected, and the error is about the value.
    let said = |arguments: &[&str]| text(&netbricks(&bad(), arguments).stderr);
    assert!(said(&["run", "f.toml", "--duration", "-5s"]).contains("invalid value '-5s'"));
    assert!(said(&["run", "f.toml", "--workers", "-1"]).contains("invalid value '-1'"));
    let renamed = said(&["generate", "out.pcap", "--packets", "9", "--hold", "64"]);
    assert!(renamed.contains("`limit`"), "{renamed}");
    assert!(text(&netbricks(&bad(), &["functions", "tll"]).stderr).contains("did you mean `ttl`?"));
    assert!(text(&netbricks(&bad(), &["ports", "af_paket"]).stderr).contains("did you mean `af_packet`?"));
}
