//! Functions whose rules name ports: they know where packets go, also after the ports around them have changed.

use netbricks_control::api;

use super::super::file::{self, File};
use super::super::run::{How, execute};
use super::super::{Application, Console, RunLimits};
use super::tests::{lost_nothing, while_running};
use crate::report::Summary;

/// Packets that come by each port.
const PACKETS: u64 = 500;

/// Two made-up sources and two ports that packets go to, with these functions and chains.
fn two_ways(functions: &str, chains: &str) -> String {
    let source = |name: &str| {
        format!("[port.{name}]\ndriver = \"generator\"\npackets = {PACKETS}\nclock = \"own\"\nflows = 8\n")
    };
    let sink = |name: &str| format!("[port.{name}]\ndriver = \"null\"\n");
    let ports = [source("lan"), source("wan"), sink("left"), sink("right")].concat();
    format!("{ports}{functions}\n{chains}\n[runtime]\nframes = 4096\nseed = 1\nworkers = 1\n")
}

const BOTH: &str = "[[chain]]\nfrom = \"lan\"\nthrough = [\"edge\"]\nto = \"right\"\n\
                    [[chain]]\nfrom = \"wan\"\nthrough = [\"edge\"]\nto = \"left\"\n";

fn mmb(lines: &[&str]) -> String {
    format!("[function.edge]\nuse = \"mmb\"\nlines = {lines:?}\n")
}

fn firewall(rules: &[&str]) -> String {
    format!("[function.edge]\nuse = \"firewall\"\nlines = {rules:?}\n")
}

fn application() -> Application {
    Application::new(crate::standard(), crate::Drivers::standard())
}

fn file(text: &str) -> File {
    File {
        name: "edge.toml".into(),
        text: text.into(),
        directory: std::path::PathBuf::new(),
        files: Default::default(),
    }
}

/// Packets that each of these ports sent.
fn sent(text: &str, ports: [&str; 2]) -> [u64; 2] {
    let (app, file) = (application(), file(text));
    let checked = file::check(&app, &file).unwrap_or_else(|faults| panic!("{}", shown(&faults)));
    let limits = RunLimits { duration: None, quiet: true, unannounced: true };
    let console = Console { color: false, live: false };
    let summary = execute(&app, console, &file, checked, &How::plain(&limits, true), None).ok().unwrap();
    assert!(summary.conserved && summary.received == 2 * PACKETS, "{summary:?}");
    ports.map(|port| arrived(&summary, &format!("{port}.send")))
}

fn arrived(summary: &Summary, node: &str) -> u64 {
    summary.nodes.iter().find(|known| known.name == node).map_or(0, |node| node.arrived)
}

fn shown(faults: &file::Faults<'_>) -> String {
    faults.diagnostics.render(&faults.source, false)
}

/// The faults of a file.
fn refused(text: &str) -> String {
    match file::check(&application(), &file(text)) {
        Ok(_) => panic!("the file is taken:\n{text}"),
        Err(faults) => shown(&faults),
    }
}

#[test]
fn a_function_in_both_directions_knows_where_packets_of_each_go() {
    let ports = ["left", "right"];
    for (rule, left, right) in [
        ("out right drop", PACKETS, 0),
        ("out left drop", 0, PACKETS),
        ("out != right drop", 0, PACKETS),
        ("out {left, right} drop", 0, 0),
        ("in lan out right drop", PACKETS, 0),
        ("in lan out left drop", PACKETS, PACKETS),
    ] {
        let text = two_ways(&mmb(&[&format!("add {rule}")]), BOTH);
        assert_eq!(sent(&text, ports), [left, right], "{rule}");
    }
    for (rule, left, right) in [
        ("deny out right", PACKETS, 0),
        ("deny in lan out left", PACKETS, PACKETS),
        ("deny out not right", 0, PACKETS),
    ] {
        let text = two_ways(&firewall(&["tracking off", "policy allow", rule]), BOTH);
        assert_eq!(sent(&text, ports), [left, right], "{rule}");
    }
}

#[test]
fn behind_what_chooses_the_port_the_way_out_is_known() {
    // All packets come by one port; the first `mmb` divides them, and the second stands before each port.
    let chains = "[[chain]]\nfrom = \"lan\"\nthrough = [\"split\", \"edge\"]\nto = \"left\"\n\
                  [[chain]]\nfrom = \"split.1\"\nthrough = [\"edge\"]\nto = \"right\"\n\
                  [[chain]]\nfrom = \"wan\"\nto = \"left\"\n";
    let split = "[function.split]\nuse = \"mmb\"\noutputs = 2\nlines = [\"add all lb 0 1\"]\n";
    let all = two_ways(&format!("{split}{}", mmb(&["add all accept"])), chains);
    let [left, right] = sent(&all, ["left", "right"]);
    assert!(left > PACKETS && right > 0 && left + right == 2 * PACKETS, "{left} {right}");
    let no_right = two_ways(&format!("{split}{}", mmb(&["add out right drop"])), chains);
    assert_eq!(sent(&no_right, ["left", "right"]), [left, 0]);
    // Where both ways out lead to one port, it is known.
    let one = "[[chain]]\nfrom = \"lan\"\nthrough = [\"edge\"]\nto = \"left\"\n\
               [[chain]]\nfrom = \"edge.1\"\nto = \"left\"\n\
               [[chain]]\nfrom = \"wan\"\nto = \"right\"\n";
    let lines = mmb(&["add out left drop"]).replace("lines", "outputs = 2\nlines");
    assert_eq!(sent(&two_ways(&lines, one), ["left", "right"]), [0, PACKETS]);
}

#[test]
fn a_rule_about_a_way_out_that_is_not_known_is_refused_at_its_place() {
    let chains = "[[chain]]\nfrom = \"lan\"\nthrough = [\"edge\"]\nto = \"left\"\n\
                  [[chain]]\nfrom = \"edge.1\"\nto = \"right\"\n";
    let lines = ["add all accept", "add tcp-dport 80 ! out left drop"];
    let text = two_ways(&mmb(&lines).replace("lines", "outputs = 2\nlines"), chains);
    let shown = refused(&text);
    let told = "line 2, column 20: `out` is not known here, as its packets may leave by left or right: put the \
                function into a chain for each port, behind what chooses one";
    assert!(shown.contains(told), "{shown}");
    // The same for the firewall, before a function with two ways out.
    let chains = "[[chain]]\nfrom = \"lan\"\nthrough = [\"edge\", \"split\"]\nto = \"left\"\n\
                  [[chain]]\nfrom = \"split.1\"\nto = \"right\"\n";
    let split = "[function.split]\nuse = \"mmb\"\noutputs = 2\n";
    let rules = firewall(&["tracking off", "policy allow", "deny out left"]);
    let shown = refused(&two_ways(&format!("{split}{rules}"), chains));
    assert!(shown.contains("line 3") && shown.contains("its packets may leave by left or right"), "{shown}");
}

/// An endless source into a port that is named first or not, by a function with these settings.
fn live(to: &str, others: &str, settings: &str) -> String {
    format!(
        "[port.lan]\ndriver = \"generator\"\nclock = \"real\"\nflows = 64\n[port.wan]\ndriver = \"null\"\n{others}\n\
         [function.edge]\nuse = \"mmb\"\n{settings}\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [\"edge\"]\nto = \"{to}\"\n[runtime]\nframes = 4096\nseed = 1\n"
    )
}

/// A port more, and a chain to this port beside the other.
fn beside(to: &str) -> String {
    format!(
        "[port.aaa]\ndriver = \"null\"\n[port.bbb]\ndriver = \"generator\"\nclock = \"real\"\npackets = 10\n\
         [[chain]]\nfrom = \"bbb\"\nto = \"{to}\"\n"
    )
}

#[test]
fn rules_that_were_typed_go_on_among_other_ports_and_name_them() {
    let lines = "lines = [\"add name first all accept\"]";
    let begin = live("wan", "", lines);
    let (with, there) = (live("wan", &beside("aaa"), lines), live("aaa", &beside("wan"), lines));
    let summary = while_running(&begin, move |asking| {
        let run = |lines: &str| asking.call("edge", "run", lines, true).map(|_| ());
        let lines = |of: &str| asking.call("edge", of, "", false).unwrap().answers[0].value.clone();
        let counted = |name: &str| {
            let list: serde_json::Value = serde_json::from_str(&lines("list")).unwrap();
            let rules = list["rules"].as_array().unwrap().clone();
            let rule = rules.iter().find(|rule| rule["name"] == name).unwrap();
            rule["packets"].as_u64().unwrap()
        };
        run("add at 1 name leaves out wan mod ip-ttl 9").unwrap();
        run("add at 2 name comes in lan mod ip-ttl 8\ndisable wan").unwrap();
        let told = run("add in aaa drop").unwrap_err().detail;
        assert!(told.contains("there is no interface `aaa`"), "{told}");
        asking.let_packets_pass();
        assert!(counted("leaves") > 0 && counted("comes") > 0);
        let before = lines("lines");

        let applied = asking.apply(&with).unwrap();
        let edge = applied.plan.changes.iter().find(|change| change.name == "edge").unwrap();
        assert_eq!(edge.kind, api::ChangeKind::Replaced);
        assert!(edge.detail.contains("the ports around it are others"), "{}", edge.detail);
        assert_eq!(applied.refused, Vec::<String>::new());
        run("add name new in aaa drop").unwrap();
        assert_eq!(lines("lines"), format!("{before}add name new in aaa drop\n"));
        let (leaves, comes) = (counted("leaves"), counted("comes"));
        assert!(leaves > 0 && comes > 0, "their counts go on");
        asking.let_packets_pass();
        assert!(counted("leaves") > leaves && counted("comes") > comes);

        // Its packets leave by another port.
        asking.apply(&there).unwrap();
        let leaves = counted("leaves");
        asking.let_packets_pass();
        assert_eq!(counted("leaves"), leaves);
        run("replace leaves out aaa mod ip-ttl 9").unwrap();
        asking.let_packets_pass();
        assert!(counted("leaves") > 0);
    });
    lost_nothing(&summary);
}

#[test]
fn rules_that_were_typed_go_on_with_more_room() {
    let settings =
        |capacity: usize| format!("capacity = {capacity}\nlines = [\"add name first all accept\"]");
    let begin = live("wan", "", &settings(2));
    let (larger, smaller) = (live("wan", "", &settings(4)), live("wan", "", &settings(1)));
    let summary = while_running(&begin, move |asking| {
        let run = |lines: &str| {
            asking.call("edge", "run", lines, true).map(|_| ()).map_err(|problem| problem.detail)
        };
        let lines = || asking.call("edge", "lines", "", false).unwrap().answers[0].value.clone();
        run("add at 1 name typed in lan mod ip-ttl 9").unwrap();
        assert!(run("add all drop").unwrap_err().contains("there is room for 2 conditions"));
        assert_eq!(asking.apply(&larger).unwrap().refused, Vec::<String>::new());
        let both = "add name typed in lan mod ip-ttl 9\nadd name first all accept\n";
        assert_eq!(lines(), both);
        run("add name more udp-dport {1, 2} drop").unwrap();
        asking.let_packets_pass();
        let list: serde_json::Value =
            serde_json::from_str(&asking.call("edge", "list", "", false).unwrap().answers[0].value).unwrap();
        assert!(list["rules"][0]["packets"].as_u64().unwrap() > 0, "{list}");
        // What does not fit is told, and the file's rules are there.
        let refused = asking.apply(&smaller).unwrap().refused;
        assert!(refused.iter().any(|told| told.contains("the rules have 4 conditions")), "{refused:?}");
        assert_eq!(lines(), "add name first all accept\n");
    });
    lost_nothing(&summary);
}
