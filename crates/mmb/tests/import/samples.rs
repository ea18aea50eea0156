//! Rule sets as the tools print them, each with the translation that is expected.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use netbricks_mmb::import::{ImportOptions, Imported, iptables, nft};
use netbricks_mmb::language::parse_file;

fn options() -> ImportOptions {
    ImportOptions {
        addresses: [("eth0".to_owned(), [203, 0, 113, 1].into())].into(),
        mtu: Some(1492),
        ..ImportOptions::default()
    }
}

fn shown(imported: &Imported) -> String {
    let mut text = String::new();
    for line in &imported.lines {
        writeln!(text, "{line}").unwrap();
    }
    for skipped in &imported.skipped {
        writeln!(text, "skipped {}: {}\n    {}", skipped.line, skipped.why, skipped.text).unwrap();
    }
    for warning in &imported.warnings {
        writeln!(text, "warning: {warning}").unwrap();
    }
    text
}

/// A new sample's translation is written to `target`, to be read and copied.
#[test]
fn every_sample_has_the_expected_translation() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/samples");
    let mut wrong = String::new();
    let mut seen = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let imported = match path.extension().and_then(|end| end.to_str()).unwrap() {
            "iptables" => iptables(&text, &options()),
            "nft" => nft(&text, &options()),
            _ => continue,
        };
        let name = path.file_name().unwrap().to_str().unwrap();
        parse_file(&imported.lines.join("\n")).unwrap();
        let found = shown(&imported);
        let expected = fs::read_to_string(folder.join(format!("{name}.expected"))).unwrap_or_default();
        if found != expected {
            fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.expected")), &found)
                .unwrap();
            writeln!(wrong, "{name}:\n{found}").unwrap();
        }
        seen += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(seen > 6, "{seen} samples");
}

#[test]
fn a_chain_is_chosen_by_its_name() {
    let text = "table inet a {\n\tchain one {\n\t\ttype filter hook forward priority 0; policy accept;\n\t\ttcp dport 22 drop\n\t}\n\
        \tchain two {\n\t\ttype filter hook forward priority 5; policy accept;\n\t\ttcp dport 23 drop\n\t}\n}\n";
    let of = |chain: &str| {
        nft(text, &ImportOptions { chain: Some(chain.into()), ..ImportOptions::default() }).lines
    };
    assert_eq!(of("one"), ["add tcp-dport 22 drop # line 4"]);
    assert_eq!(of("inet a two"), ["add tcp-dport 23 drop # line 8"]);
    assert_eq!(nft(text, &ImportOptions::default()).lines.len(), 2);
}
