//! Questions about packets: `explain`, `expect`, and the sentence of a trace.

use netbricks_core::buffer::Pool;
use netbricks_core::{Node, PortNames, Worker};
use netbricks_mmb::field::FieldId;
use netbricks_mmb::language::parse_command;
use netbricks_mmb::{MmbSettings, node};
use netbricks_testkit::build::ethernet;
use proptest::prelude::*;

/// A node among the ports `lan`, `wan` and `dmz`, with a way to `wan` and one to `lan`.
fn built(lines: &[&str]) -> Result<Box<dyn Node>, String> {
    let pool = Pool::builder().frames(16).build().map_err(|error| error.to_string())?;
    let names = ["lan", "wan", "dmz"].into_iter().zip(0..).map(|(name, number)| (name.to_owned(), number));
    let ports = PortNames { names: names.collect(), egress: vec![vec![1], vec![0]].into() };
    let worker = Worker::new(0, 1, pool).among(ports);
    node(&MmbSettings::of(lines.iter().copied()), &worker).map_err(|error| error.to_string())
}

fn asked(node: &mut Box<dyn Node>, question: &str) -> Result<String, String> {
    node.call("ask", question).map_err(|error| error.to_string())
}

#[test]
fn questions_name_the_ports_of_a_packet() {
    let mut node = built(&["add in lan tcp-dport 80 drop", "add out wan udp-dport 53 drop"]).unwrap();
    for (question, told) in [
        ("explain in lan tcp-dport 80", "rule 1 matches: in lan tcp-dport 80 drop\ndrop\n"),
        (
            "explain in wan tcp-dport 80",
            "rule 1 would match but for `in lan`: in lan tcp-dport 80 drop\naccept\n",
        ),
        ("explain tcp-dport 80", "rule 1 would match but for `in lan`: in lan tcp-dport 80 drop\naccept\n"),
        ("explain udp-dport 53 out wan", "rule 2 matches: out wan udp-dport 53 drop\ndrop\n"),
        ("expect in lan tcp-dport 80 drop", ""),
        ("expect in dmz tcp-dport 80 accept", ""),
        ("expect out lan udp-dport 53 accept", ""),
    ] {
        assert_eq!(asked(&mut node, question).as_deref(), Ok(told), "{question}");
    }
    let refused = asked(&mut node, "explain in nosuch tcp-dport 80").unwrap_err();
    assert!(refused.contains("there is no interface `nosuch`"), "{refused}");
    let wrong = asked(&mut node, "expect in lan tcp-dport 80 accept").unwrap_err();
    assert!(wrong.contains("expected accept, found drop"), "{wrong}");
    // A file is checked before its ports are known; then it is loaded among them.
    let lines = ["add in lan drop", "expect in wan tcp-dport 80 accept", "expect in lan tcp-dport 80 drop"];
    let pool = Pool::builder().frames(16).build().unwrap();
    let settings = MmbSettings::of(lines);
    assert!(node_of(&settings, pool).is_ok() && built(&lines).is_ok());
    let refused = built(&["add in lan drop", "expect in lan tcp-dport 80 accept"]).err().unwrap();
    assert!(refused.contains("line 2: expected accept, found drop"), "{refused}");
}

#[test]
fn rules_leave_a_disabled_interface_alone_in_answers_too() {
    let mut node = built(&["policy drop", "add in lan tcp-dport 23 drop"]).unwrap();
    node.call("run", "disable lan").unwrap();
    let told = asked(&mut node, "explain in lan tcp-dport 23").unwrap();
    assert_eq!(told, "rules leave packets from lan alone, until `enable lan`\naccept\n");
    assert_eq!(asked(&mut node, "expect in lan tcp-dport 23 accept").as_deref(), Ok(""));
    assert_eq!(asked(&mut node, "expect in wan tcp-dport 23 drop").as_deref(), Ok(""));
}

#[test]
fn tables_are_shown_by_their_fields() {
    let lines = [
        "add ip-saddr 10.0.0.0/8 tcp-dport 80 drop",
        "add tcp-opt-mss drop",
        "add ip6-saddr 2001:db8::/32 accept",
        "add all drop",
    ];
    let mut node = built(&lines).unwrap();
    let told = asked(&mut node, "show tables verbose").unwrap();
    let rows: Vec<&str> =
        told.lines().skip(1).map(|line| line.trim_start().split_once("  ").unwrap().1).collect();
    assert!(rows.iter().any(|row| row.contains("ip-saddr/8 ") && row.contains("tcp-dport")), "{told}");
    assert!(rows.iter().any(|row| row.contains("ip6-saddr/32")), "{told}");
    assert!(rows.contains(&"any packet"), "{told}");
}

fn node_of(settings: &MmbSettings, pool: Pool) -> Result<Box<dyn Node>, String> {
    node(settings, &Worker::new(0, 1, pool)).map_err(|error| error.to_string())
}

#[test]
fn a_trace_says_where_a_rule_depends_on_the_ports() {
    let mut node = built(&["add in lan tcp-dport 80 mod ip-ttl 9", "add tcp-dport 80 drop"]).unwrap();
    let frame = ethernet().ipv4("10.0.0.1", "192.0.2.7").tcp(1, 80).build().unwrap();
    let mut why = String::new();
    node.with_state(&mut |state| state.explain(&frame, &mut why).unwrap());
    assert_eq!(
        why,
        "rule 1 matches where its ports are the packet's: in lan tcp-dport 80 mod ip-ttl 9; \
         rule 2 matches: tcp-dport 80 drop"
    );
}

/// A field with a value, as a description and as a match.
fn described(field: FieldId) -> Option<String> {
    let name = &field.info().name;
    let values = ["", " 1", " 10.0.0.1", " 2001:db8::1", " 02:00:00:00:00:01", " x47"];
    let texts = values.into_iter().map(|value| format!("{name}{value}"));
    let mut both = texts.filter(|text| {
        parse_command(&format!("explain {text}")).is_ok()
            && parse_command(&format!("add {text} drop")).is_ok()
    });
    both.next()
}

#[test]
fn a_described_packet_has_all_that_is_described_or_is_refused() {
    let (mut made, mut refused) = (0, Vec::new());
    for field in FieldId::all() {
        let Some(text) = described(field).filter(|_| !["in", "out"].contains(&&*field.info().name)) else {
            continue;
        };
        let mut node =
            built(&[&format!("add {text} drop")]).unwrap_or_else(|error| panic!("{text}: {error}"));
        match asked(&mut node, &format!("explain {text}")) {
            Ok(told) => {
                assert!(told.starts_with("rule 1 matches"), "{text}: {told}");
                made += 1;
            }
            Err(told) => {
                assert!(told.contains("by `hex`") || told.contains("does not have"), "{text}: {told}");
                refused.push(field.info().name.clone());
            }
        }
    }
    // With the value 1 these say something else of the packet than it is, or their headers have no usual content.
    let known = "net-proto vlan-ethertype inner-vlan-ethertype pppoe-code pppoe-length ip-ver ip-ihl ip-len ip6-ver ip6-len \
        ip6-eh-fragment ip6-eh-esp ip6-eh-ah ip6-eh-mobility ip6-eh-hip ip6-eh-shim6 tcp-offset tcp-opt \
        srv6-header-extension-length srv6-routing-type srv6-last-entry";
    assert_eq!(refused, known.split_whitespace().collect::<Vec<_>>());
    assert!(made > 120, "{made}");
}

#[test]
fn layers_below_ip_are_described_with_it() {
    let mut node =
        built(&["add mpls-label 3 tcp-dport 80 drop", "add pppoe-session-id 9 vlan-id 7 udp-dport 53 drop"])
            .unwrap();
    for question in ["explain mpls-label 3 tcp-dport 80", "explain vlan-id 7 pppoe-session-id 9 udp-dport 53"]
    {
        let told = asked(&mut node, question).unwrap();
        assert!(told.contains(" matches: ") && told.ends_with("drop\n"), "{question}: {told}");
    }
    let refused = asked(&mut node, "explain mpls-label 3 pppoe-session-id 9").unwrap_err();
    assert!(refused.contains("MPLS and PPPoE in one packet"), "{refused}");
    let refused = asked(&mut node, "explain tcp-dport 80 ip-proto 17").unwrap_err();
    assert!(refused.contains("by `hex`"), "{refused}");
}

proptest! {
    #[test]
    fn no_description_breaks_the_answers(text in "[ -~]{0,80}") {
        super::exercise::explained(&text);
    }
    #[test]
    fn no_fields_break_the_answers(
        fields in prop::collection::vec((any::<prop::sample::Index>(), "[0-9]{1,5}|10\\.0\\.0\\.[0-9]|x[0-9a-f]{2,40}|"), 1..6)
    ) {
        let names: Vec<&str> = FieldId::names().map(|(name, _)| name).collect();
        let parts = fields.iter().map(|(at, value)| format!("{} {value}", at.get(&names)));
        super::exercise::explained(&parts.collect::<Vec<_>>().join(" "));
    }
}
