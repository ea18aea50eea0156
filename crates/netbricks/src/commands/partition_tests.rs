//! Tests of state by a key other than a flow, on several workers.
//!
//! The state is the same as on one worker, or a warning at the function's line says that it is not.

use std::net::IpAddr;
use std::sync::Arc;

use netbricks_buffer::Batch;
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::{Ip, Link};
use netbricks_core::tables::FlowTableConfig;
use netbricks_core::{
    Context, DestinationAddress, DropReason, Function, Input, Metadata, NoSettings, Operator, Poll,
    SourceAddress, TableKey, Worker, compose,
};
use netbricks_ports::{
    Capabilities, Counters, Drivers, OpenContext, Port, PortDriver, PortError, QueueDivision, ReceiveQueue,
    TransmitQueue,
};

use super::file::{self, File};
use super::run::{How, execute};
use super::{Application, Console, RunLimits};
use crate::report::Summary;

/// Packets of each entry that may pass.
const ALLOWED: u64 = 10;

/// Lets the first packets of each key pass.
fn allowance<K: TableKey>(
    input: Input,
    worker: &Worker,
    key: fn(IpAddr, IpAddr) -> K,
) -> impl Function + use<K> {
    let seen = worker.flow_table::<K, u64>("seen", FlowTableConfig::new(4_096));
    input
        .parse::<Link>()
        .parse::<Ip>()
        .lookup(
            &seen,
            move |packet| key(packet.header().source(), packet.header().destination()),
            |_, entry| {
                entry.or_insert_with(|| 0).map_or(u64::MAX, |seen| {
                    *seen += 1;
                    *seen
                })
            },
        )
        .filter(DropReason::RateLimited, |packet| *packet.get::<u64>() <= ALLOWED)
        .done()
}

struct DividedDriver;

impl PortDriver for DividedDriver {
    type Settings = NoSettings;
    const NAME: &'static str = "divided";
    const SUMMARY: &'static str = "Divides flows over its queues.";
    const DIVISION: QueueDivision = QueueDivision::Symmetric;
    fn open(&self, name: &str, _: &NoSettings, cx: &OpenContext) -> Result<Box<dyn Port>, PortError> {
        let queues = cx.queues.max(1);
        Ok(Box::new(Divided(name.into(), queues, (0..queues).map(|_| Arc::default()).collect())))
    }
}

fn application() -> Application {
    let mut registry = crate::standard();
    registry.add("by-source", "Lets some packets of each sender pass.", |_: &NoSettings, worker| {
        compose(worker, |input| allowance(input, worker, |source, _| SourceAddress(source)))
    });
    registry.add("by-destination", "The same of each destination.", |_: &NoSettings, worker| {
        compose(worker, |input| allowance(input, worker, |_, to| DestinationAddress(to)))
    });
    registry.add("by-address", "The same of an address.", |_: &NoSettings, worker| {
        compose(worker, |input| allowance(input, worker, |source, _| source))
    });
    registry.add("by-number", "The same of a number.", |_: &NoSettings, worker| {
        compose(worker, |input| allowance(input, worker, |source, _| u64::from(source.is_ipv4())))
    });
    let mut drivers = Drivers::standard();
    drivers.add(DividedDriver);
    Application::new(registry, drivers)
}

const FLOWS: u16 = 96;
const PACKETS: u64 = 20 * FLOWS as u64;

/// Brings flows between a few addresses. Flows of one address come by all queues, as a device divides them.
struct Divided(String, usize, Vec<Arc<Counters>>);

impl Port for Divided {
    fn driver(&self) -> &'static str {
        "divided"
    }
    fn name(&self) -> &str {
        &self.0
    }
    fn mtu(&self) -> usize {
        1_500
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { receive_queues: self.1, symmetric_rss: true, ..Capabilities::default() }
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        self.2.clone()
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        let mine =
            (0..20 * FLOWS).map(|packet| packet % FLOWS).filter(|flow| usize::from(*flow) % self.1 == queue);
        let frame = |flow: u16| {
            let (source, destination) = (format!("10.0.0.{}", flow % 5), format!("192.0.2.{}", flow / 5 % 3));
            ethernet().ipv4(source.as_str(), destination.as_str()).udp(1_000 + flow, 53).build().unwrap()
        };
        Ok(Box::new(Frames(mine.map(frame).collect::<Vec<_>>().into_iter())))
    }
    fn take_transmit(&mut self, _: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        panic!("nothing is sent here")
    }
}

struct Frames(std::vec::IntoIter<Vec<u8>>);

impl ReceiveQueue for Frames {
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        for _ in 0..cx.burst() {
            let Some(frame) = self.0.next() else { return Poll::Done };
            assert!(batch.push(cx.pool().packet(&frame).unwrap()).is_ok());
        }
        Poll::Busy
    }
}

fn text(functions: &str, through: &str, runtime: &str) -> String {
    format!(
        "[port.lan]\ndriver = \"divided\"\n[port.wan]\ndriver = \"null\"\n{functions}\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [{through}]\nto = \"wan\"\n[runtime]\n{runtime}\n"
    )
}

fn file(text: &str) -> File {
    File {
        name: "f.toml".into(),
        text: text.into(),
        directory: std::path::PathBuf::new(),
        files: Default::default(),
    }
}

fn run(text: &str) -> Summary {
    let (app, file) = (application(), file(text));
    let console = Console { color: false, live: false };
    let checked = file::check(&app, &file).ok().unwrap();
    let limits = RunLimits { duration: None, quiet: true, unannounced: true };
    let summary = execute(&app, console, &file, checked, &How::plain(&limits, true), None).ok().unwrap();
    assert!(summary.succeeded() && summary.received == PACKETS, "{summary:?}");
    summary
}

/// The shuffles that `check` puts in for a file, and its warnings.
fn check(text: &str) -> (Vec<String>, String) {
    let (app, file) = (application(), file(text));
    let checked = file::check_spread(&app, &file).ok().unwrap();
    (checked.told_shuffles().collect(), checked.diagnostics.render(&checked.source, false))
}

#[test]
fn state_by_an_address_is_whole_on_several_workers() {
    for function in ["by-source", "by-destination"] {
        let through = format!("\"{function}\"");
        let alone = run(&text("", &through, "workers = 1")).sent;
        let entries = if function == "by-source" { 5 } else { 3 };
        assert_eq!(alone, entries * ALLOWED);
        for workers in [2, 3] {
            let summary = run(&text("", &through, &format!("workers = {workers}")));
            assert_eq!(summary.sent, alone, "{function} on {workers} workers");
            let node = summary.nodes.iter().find(|node| node.name == format!("{function}.shuffle"));
            assert!(node.is_some_and(|node| node.kind == "shuffle" && node.handoff_out > 0));
            assert_eq!(summary.warnings.iter().filter(|said| said.contains("keeps state by")).count(), 0);
        }
        let (told, _) = check(&text("", &through, "workers = 2"));
        let key = function.trim_start_matches("by-");
        let said =
            format!("a shuffle by {key}, put before `{function}`: `{function}` keeps state by {key} address");
        assert!(told.len() == 1 && told[0].contains(&said), "{told:?}");
    }
}

#[test]
fn where_the_files_own_shuffle_has_the_right_key_none_is_put_in() {
    let named = |key: &str| format!("[function.named]\nuse = \"shuffle\"\nkey = \"{key}\"");
    for (function, key) in [("by-source", "source"), ("by-address", "destination"), ("by-number", "vlan")] {
        let text = text(&named(key), &format!("\"named\", \"{function}\""), "workers = 2");
        assert_eq!(check(&text), (vec![], String::new()), "{function} behind a shuffle by {key}");
    }
    // Behind a shuffle by another key, a shuffle is put in.
    let text = text(&named("symmetric-flow"), "\"named\", \"by-source\"", "workers = 2");
    let (told, shown) = check(&text);
    assert!(told.len() == 1 && told[0].contains("`named` sorts its packets by `symmetric-flow`"), "{told:?}");
    assert_eq!(shown, "");
    assert_eq!(run(&text).sent, run(&text.replace("workers = 2", "workers = 1")).sent);
}

#[test]
fn where_no_shuffle_can_be_put_in_a_warning_stands_at_the_functions_line() {
    for (function, words, help) in [
        ("by-address", "keeps state by address", "`key = \"source\"` or `key = \"destination\"`"),
        ("by-number", "keeps state by number", "`workers = 1`"),
    ] {
        let through = format!("\"{function}\"");
        let two = text("", &through, "workers = 2");
        let (told, shown) = check(&two);
        assert!(told.is_empty(), "{told:?}");
        for part in [
            words,
            help,
            "warning: ",
            &format!("through = [{through}]"),
            "several workers would each have a part",
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        let summary = run(&two);
        assert!(summary.warnings.iter().any(|said| said.contains(words)), "{:?}", summary.warnings);
        assert_eq!(check(&text("", &through, "workers = 1")), (vec![], String::new()), "one worker has all");
    }
    // The same holds where the file forbids shuffles.
    let (told, shown) = check(&text("", "\"by-source\"", "workers = 2\nshuffles = false"));
    assert!(
        told.is_empty() && shown.contains("let a `shuffle` with `key = \"source\"` come before it"),
        "{shown}"
    );
}

/// Answers of a translated connection have no address in common with its first packets.
#[test]
fn translations_of_mmb_are_on_one_worker() {
    let rule = "add-stateful ip-saddr 10.0.0.0/24 map ip-saddr 203.0.113.5 shuffle udp-sport";
    let mmb = |rule: &str| format!("[function.edge]\nuse = \"mmb\"\nlines = [\"{rule}\"]");
    let two = text(&mmb(rule), "\"edge\"", "workers = 2");
    let (told, shown) = check(&two);
    assert!(told.len() == 1 && told[0].contains("put before `edge`"), "{told:?}");
    assert_eq!(shown, "");
    let summary = run(&two);
    assert_eq!(summary.sent, PACKETS);
    // The packets of the other worker's queue are given to the one.
    let node = summary.nodes.iter().find(|node| node.name == "edge.shuffle");
    assert!(node.is_some_and(|node| node.handoff_out >= PACKETS / 2), "{:?}", summary.nodes);
    // Without translations, the device's own division is right.
    let plain = text(&mmb("add-stateful ip-saddr 10.0.0.0/24 accept"), "\"edge\"", "workers = 2");
    assert_eq!(check(&plain), (vec![], String::new()));
}
