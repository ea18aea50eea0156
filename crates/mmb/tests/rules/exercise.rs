//! The guarantees for every described packet; property tests and the fuzz target call it.

use std::cell::RefCell;

use netbricks_core::buffer::Pool;
use netbricks_core::{Node, PortNames, Worker};
use netbricks_mmb::{MmbSettings, node};

/// Rules about many fields.
const RULES: &[&str] = &[
    "add in lan tcp-dport 80 tcp-opt-mss > 1400 mod ip-ttl 9",
    "add out wan ip6-eh-routing accept",
    "add vlan-id 7 mpls-label 3 drop",
    "add ip-saddr 10.0.0.0/8 ! tcp-syn lb 0",
    "add srv6-segments-left 0 udp-payload x47 drop",
    "add arp-operation 1 accept",
];

thread_local! {
    static ASKED: RefCell<Option<Box<dyn Node>>> = const { RefCell::new(None) };
}

/// Asks about a packet as it is described.
///
/// # Panics
/// When an answer neither ends in a verdict nor is an error with a text.
pub fn explained(text: &str) {
    let line: String = text.chars().filter(|character| *character != '\n').collect();
    ASKED.with_borrow_mut(|asked| {
        let node = asked.get_or_insert_with(|| {
            let pool = Pool::builder().frames(16).build().expect("there is memory for 16 frames");
            let names = [("lan".to_owned(), 0), ("wan".to_owned(), 1)];
            let ports = PortNames { names: names.into(), egress: vec![vec![1]].into() };
            let worker = Worker::new(0, 1, pool).among(ports);
            node(&MmbSettings::of(RULES.iter().copied()), &worker).expect("these are rules")
        });
        match node.call("ask", &format!("explain {line}")) {
            Ok(told) => assert!(told.ends_with("drop\n") || told.ends_with("accept\n"), "{line:?}: {told}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}
