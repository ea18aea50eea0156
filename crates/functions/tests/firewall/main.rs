//! The rule language of `firewall`, and the translations into it, over samples and random texts.

#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use netbricks_functions::firewall::parse_rules;
use netbricks_mmb::import::{ImportOptions, Language, iptables, nft};
use netbricks_testkit::mutate::Random;

fn options() -> ImportOptions {
    ImportOptions { target: Language::Firewall, mtu: Some(1492), ..ImportOptions::default() }
}

/// A new sample's translation is written to `target`, to be read and copied.
#[test]
fn samples_have_the_expected_translation() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/firewall/samples");
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mmb/tests/import/samples");
    let mut wrong = String::new();
    let mut seen = 0;
    for entry in fs::read_dir(&samples).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let imported = match path.extension().and_then(|end| end.to_str()).unwrap() {
            "iptables" => iptables(&text, &options()),
            "nft" => nft(&text, &options()),
            _ => continue,
        };
        let mut found = imported.lines.join("\n") + "\n";
        parse_rules(&found).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for skipped in &imported.skipped {
            writeln!(found, "skipped {}: {}\n    {}", skipped.line, skipped.why, skipped.text).unwrap();
        }
        for warning in &imported.warnings {
            writeln!(found, "warning: {warning}").unwrap();
        }
        let name = format!("{}.expected", path.file_name().unwrap().to_str().unwrap());
        if found != fs::read_to_string(here.join(&name)).unwrap_or_default() {
            fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name), &found).unwrap();
            writeln!(wrong, "{name}:\n{found}").unwrap();
        }
        seen += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(seen > 6, "{seen} samples");
}

#[test]
fn answers_states_and_the_log_are_translated() {
    let saved = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
                 -A FORWARD -j LOG --log-prefix \"in: \"\n\
                 -A FORWARD -p tcp -m tcp --dport 113 -j REJECT --reject-with tcp-reset\n\
                 -A FORWARD -s 10.0.0.0/8 -i lan -p tcp -m tcp --dport 443 -m conntrack --ctstate NEW -j ACCEPT\n\
                 -A FORWARD -m limit --limit 1/sec -j ACCEPT\nCOMMIT\n";
    let imported = iptables(saved, &options());
    assert_eq!(
        imported.lines,
        [
            "tracking explicit",
            "policy allow",
            "allow ip4 state established,related # line 3",
            "count ip4 log \"in:\" # line 4",
            "reject with reset ip4 tcp to any port 113 # line 5",
            "allow ip4 tcp from 10.0.0.0/8 to any port 443 in \"lan\" state new # line 6",
            "deny ip4 # line 2: policy of FORWARD",
        ]
    );
    assert_eq!(imported.skipped.len(), 1);
    let listed = "table inet t {\n\tset web {\n\t\ttype ipv4_addr\n\t\telements = { 192.0.2.1, 192.0.2.9 }\n\t}\n\tset later {\n\
                  \t\ttype ipv4_addr\n\t}\n\tchain f {\n\t\ttype filter hook forward priority filter; policy drop;\n\
                  \t\tct state invalid log prefix \"bad \" counter packets 0 bytes 0 drop\n\
                  \t\tip daddr @web tcp dport { 80, 443 } accept\n\t\tip saddr @later drop\n\
                  \t\tmeta l4proto udp reject with icmpx admin-prohibited\n\t\treject\n\t}\n}\n";
    let imported = nft(listed, &options());
    assert_eq!(
        imported.lines,
        [
            "tracking explicit",
            "policy allow",
            "set @web {192.0.2.1, 192.0.2.9}",
            "set @later {}",
            "deny state invalid log \"bad\" # line 11",
            "allow ip4 tcp to @web port {80, 443} # line 12",
            "deny ip4 from @later # line 13",
            "reject with prohibited udp # line 14",
            "reject with port # line 15",
            "deny # line 10: policy of f",
        ]
    );
    assert!(imported.skipped.is_empty(), "{:?}", imported.skipped);
    parse_rules(&imported.lines.join("\n")).unwrap();
}

#[test]
fn mutated_texts_keep_the_guarantees() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mmb/tests/import/samples");
    let mut texts: Vec<String> = fs::read_dir(&samples)
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok())
        .collect();
    texts.push(
        "set @a {10.0.0.0/8, 2001:db8::/32}\nallow tcp from @a port 1-5 to not 192.0.2.1 in lan flags syn/syn,ack state new log \"x\"\n\
         reject with host icmp6 type not {128, 1-3} code 0 comment \"# y\"\ncount ip4 proto {6, 17} where ip-ttl < 5 ! tcp-opt-mss\n"
            .into(),
    );
    let mut random = Random::new(11);
    for _ in 0..600 {
        let text = &texts[random.below(texts.len())];
        let mut bytes = text.clone().into_bytes();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[at] = b" {}\"#,-/@0aZ\n"[random.below(13)],
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b" {}\"#,-/!\n"[random.below(10)]),
                _ => {
                    let end = (at + random.below(30)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
            }
        }
        exercise::rules(&String::from_utf8_lossy(&bytes));
    }
}
