//! Chain files that the documentation shows are ones that `netbricks check` accepts.

use std::path::Path;
use std::process::Command;

/// The TOML of a document that is a whole chain file.
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
            // Only that this machine has no such interfaces and cores may be said of them.
            let found = said["diagnostics"].as_array().expect("a list");
            assert!(found.iter().all(|found| found["machine"] == true), "{document}:\n{file}\n{said}");
        }
    }
    assert!(steered > 0, "one of them steers");
}
