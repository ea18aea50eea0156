//! No text breaks the importers, and their lines are commands.

use proptest::prelude::*;

use crate::exercise::import;

/// Words of both formats, from which texts are made.
const WORDS: &[&str] = &[
    "-A",
    "FORWARD",
    "-s",
    "10.0.0.0/8",
    "!",
    "-p",
    "tcp",
    "udp",
    "icmp",
    "--dport",
    "80",
    "1:65535",
    "-j",
    "ACCEPT",
    "DROP",
    "RETURN",
    "web",
    "-g",
    "-m",
    "--ctstate",
    "NEW",
    "RELATED,ESTABLISHED",
    "*filter",
    ":FORWARD DROP [0:0]",
    ":web - [0:0]",
    "-A web",
    "-A FORWARD",
    "COMMIT",
    "\n",
    "\n",
    "\n",
    "\"a text",
    "\"",
    "#",
    "{",
    "}",
    "table inet f {",
    "chain c {",
    "type filter hook forward priority 0; policy drop;",
    "ip",
    "saddr",
    "@s",
    "daddr",
    "dport",
    "flags",
    "syn",
    "/",
    "&",
    "(",
    ")",
    "|",
    ",",
    "==",
    "!=",
    "<",
    "vmap",
    ":",
    "accept",
    "drop",
    "jump c",
    "goto d",
    "ct",
    "state",
    "established",
    "new",
    "set s {",
    "elements = {",
    "type ipv4_addr",
    "counter packets 1 bytes 2",
    "log",
    "prefix",
    "comment",
    "limit rate",
    "meta",
    "l4proto",
    "iifname",
    "oifname",
    "\"eth0\"",
    "--tcp-flags",
    "SYN,RST",
    "ALL",
    "NONE",
    "TCPMSS",
    "--set-mss",
    "1400",
    "SNAT",
    "--to-source",
    "masquerade",
    "snat to",
    "MASQUERADE",
    "-o eth0",
    "-i",
    "eth0",
    "--ports",
    "1,2",
    "option",
    "maxseg",
    "size",
    "set",
    "rt mtu",
    "exists",
    "2001:db8::/32",
    "x",
    "é",
    "-",
    "0x2",
    "continue",
    "icmpv6",
    "type",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn no_text_of_known_words_breaks_them(words in prop::collection::vec(0..WORDS.len(), 0..120)) {
        let words: Vec<&str> = words.into_iter().map(|at| WORDS[at]).collect();
        import(&words.join(" "));
        let body = words.join(" ");
        import(&format!("*filter\n:FORWARD DROP [0:0]\n:web - [0:0]\n-A FORWARD {body}"));
        import(&format!("table inet f {{\nchain c {{\ntype filter hook forward priority 0; policy drop;\n{body}"));
    }

    #[test]
    fn no_random_text_breaks_them(text in "(?s).{0,300}") {
        import(&text);
    }

    #[test]
    fn no_mutation_of_a_sample_breaks_them(
        sample in 0..3usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..3u8, 0..WORDS.len()), 1..20),
    ) {
        let sample = [
            include_str!("samples/office.iptables"),
            include_str!("samples/router.nft"),
            include_str!("samples/everything.nft"),
        ][sample];
        let mut characters: Vec<char> = sample.chars().collect();
        for (at, kind, word) in edits {
            let at = at.index(characters.len().max(1)).min(characters.len().saturating_sub(1));
            match kind {
                0 if !characters.is_empty() => {
                    characters.remove(at);
                }
                1 => characters.splice(at..at, WORDS[word].chars()).for_each(drop),
                _ => characters.truncate(characters.len() - characters.len() / 50),
            }
        }
        import(&characters.into_iter().collect::<String>());
    }
}

#[test]
fn chains_that_jump_to_each_other_end() {
    let mut text = String::from("*filter\n:FORWARD ACCEPT [0:0]\n:a - [0:0]\n:b - [0:0]\n-A FORWARD -j a\n");
    for _ in 0..8 {
        text += "-A a -j b\n-A b -j a\n-A b -p tcp -j RETURN\n-A a -p udp --dport 53 -j ACCEPT\n";
    }
    import(&text);
}

#[test]
fn many_rules_take_no_long_time() {
    let mut text = String::from(
        "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m state --state RELATED,ESTABLISHED -j ACCEPT\n",
    );
    for at in 0..3_000 {
        let verdict = if at % 3 == 0 { "DROP" } else { "ACCEPT" };
        text += &format!(
            "-A FORWARD -s 10.{}.{}.0/24 -p tcp -m tcp --dport {at} -j {verdict}\n",
            at / 250,
            at % 250
        );
    }
    let imported = netbricks_mmb::import::iptables(&text, &Default::default());
    assert!(imported.lines.len() >= 3_000);
}
