//! Tests that `netbricks check` accepts the chain files in the documentation.

use std::path::Path;
use std::process::Command;

use netbricks_testkit::{captures, kinds};

/// The TOML blocks of a document that are whole chain files.
fn chain_files(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.contains("[[chain]]") && block.contains("driver"))
}

#[test]
fn shown_chain_files_are_good() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("documents");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let mut steered = 0;
    for (document, least) in [("README.md", 1), ("crates/netbricks/README.md", 2)] {
        let text = std::fs::read_to_string(root.join(document)).expect("it is there");
        let files: Vec<_> = chain_files(&text).collect();
        assert!(files.len() >= least, "{document} shows {} chain files", files.len());
        for file in files {
            steered += usize::from(file.contains("steer = ["));
            std::fs::write(directory.join("f.toml"), file).expect("the directory can be written");
            let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
                .args(["check", "f.toml", "--json"])
                .current_dir(&directory)
                .output()
                .expect("the binary was built for this test");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{document}:\n{file}\n{said}");
            let said: serde_json::Value = serde_json::from_str(&said).expect("one JSON object");
            // The only diagnostics are that this machine has no such interfaces and cores.
            let found = said["diagnostics"].as_array().expect("a list");
            assert!(found.iter().all(|found| found["machine"] == true), "{document}:\n{file}\n{said}");
        }
    }
    assert!(steered > 0, "one of them steers");
}

/// README's chain file between two hosts of one network: ARP passes, and a ping comes and goes.
#[test]
fn the_chain_file_of_the_readme_forwards_arp_and_ping_both_ways() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let text = std::fs::read_to_string(root.join("README.md")).expect("it is there");
    let mut file = chain_files(&text).next().expect("a chain file").to_owned();
    for (port, device) in [("lan", "eth1"), ("wan", "eth2")] {
        let live = format!("driver = \"af_packet\"\ndevice = \"{device}\"");
        assert!(file.contains(&live), "{file}");
        let replay = format!("driver = \"pcap\"\nread = \"{port}.pcap\"\nwrite = \"{port}-out.pcap\"");
        file = file.replace(&live, &replay);
    }
    assert!(file.contains("\"ttl\""), "{file}");
    let kind = |name: &str| kinds::every().into_iter().find(|(kind, _)| *kind == name).expect("a kind").1;
    let here = ["arp request", "echo v4", "solicitation", "echo v6", "llc"].map(kind);
    let back = ["arp reply", "udp v4"].map(kind);
    captures::write(&directory.join("lan.pcap"), &here);
    captures::write(&directory.join("wan.pcap"), &back);
    std::fs::write(directory.join("f.toml"), file).expect("the directory can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
        .args(["run", "f.toml", "--json"])
        .current_dir(&directory)
        .output()
        .expect("the binary was built for this test");
    let said = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value = serde_json::from_str(&said).expect("one JSON object");
    assert_eq!((&report["received"], &report["sent"]), (&7.into(), &7.into()), "{report}");
    let sent = captures::frames(&directory.join("wan-out.pcap"));
    // ARP, neighbour discovery and LLC pass unchanged; each ping loses a hop.
    assert_eq!(sent.len(), 5);
    let unchanged: Vec<bool> = sent.iter().zip(&here).map(|(sent, frame)| sent == frame).collect();
    assert_eq!(unchanged, [true, false, true, false, true]);
    assert_eq!((sent[1][22], sent[3][21]), (here[1][22] - 1, here[3][21] - 1));
    assert_eq!(captures::frames(&directory.join("lan-out.pcap")), back);
}

/// mmb's four published middleboxes, with made-up traffic: each ends, and accounts for every packet.
#[test]
fn the_examples_of_mmb_run_and_lose_no_packet() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mmb");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let shares =
        [("forwarder", 100..=100), ("firewall", 50..=90), ("stateful", 100..=100), ("options", 100..=100)];
    for (name, share) in shares {
        for end in ["mmb", "toml"] {
            let file = format!("mmb-{name}.{end}");
            std::fs::copy(examples.join(&file), directory.join(&file)).expect("the example is there");
        }
        let output = Command::new(env!("CARGO_BIN_EXE_netbricks"))
            .args(["run", &format!("mmb-{name}.toml"), "--json"])
            .current_dir(&directory)
            .output()
            .expect("the binary was built for this test");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {said}{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_str(&said).expect("one JSON object");
        let count = |key: &str| report[key].as_u64().expect("a count");
        assert_eq!(report["conserved"], true, "{name}: {report}");
        assert!(share.contains(&(count("sent") * 100 / count("received"))), "{name}: {report}");
    }
}
