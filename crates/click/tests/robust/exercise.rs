//! The guarantees for all configurations, packets and requests; property tests and the fuzz targets call it.

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_click::build::build;
use netbricks_click::classes::{self, Known};
use netbricks_click::clock::{Clock, SIMULATION_BEGINS};
use netbricks_click::drive::{self, Round};
use netbricks_click::handler_call::{HandlerCall, ROOT};
use netbricks_click::language::{Configuration, Errors, Source, parse, parse_for_text, text};
use netbricks_click::requests_of;
use netbricks_click::router::{Capabilities, Router, Surroundings};
use netbricks_core::Random;
use netbricks_core::buffer::Pool;

/// Rounds of the driver that a configuration gets.
const ROUNDS: usize = 200;
/// Bytes of a client that are kept at most.
const MOST_KEPT: usize = 2 << 20;

fn flat(text: &str, errors: &Errors) -> Configuration {
    let source = Source { text, file: "config", is_expression: false };
    parse(&source, &[], &Known, &|_| None, errors)
}

/// Parses and flattens any text.
///
/// # Panics
/// When the flat text of a right configuration is wrong, or flattens to another one.
pub fn language(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let source = Source { text: &text, file: "config", is_expression: false };
    // Variables may get other values than in the driver, as in the original: any text will do.
    let expands = bytes.len().is_multiple_of(2);
    parse_for_text(&source, &[], &Known, &|_| None, expands, &Errors::collected()).to_flat_text();
    let errors = Errors::collected();
    let first = flat(&text, &errors);
    let shown = first.to_click();
    if errors.count() > 0 {
        return;
    }
    let again = Errors::collected();
    let second = flat(&shown, &again);
    assert_eq!(again.count(), 0, "{shown}\n{:?}", again.lines());
    let elements = |one: &Configuration| {
        let each = one.elements.iter();
        each.map(|element| (element.name.clone(), element.class.clone())).collect::<Vec<_>>()
    };
    assert_eq!(elements(&first), elements(&second), "{shown}");
    assert_eq!(first.connections.len(), second.connections.len(), "{shown}");
}

/// Words that a byte of at least 128 beyond the classes stands for.
const WORDS: &[&str] = &[
    " -> ",
    " :: ",
    ", ",
    "[0]",
    "[1]",
    " -> Discard;",
    " -> Queue -> ",
    "InfiniteSource(LIMIT 5) -> ",
    "InfiniteSource(DATA \\<",
    ">, LIMIT 3) -> ",
    "RatedSource(RATE 1000) -> ",
    "Idle -> ",
    " -> Unqueue -> ",
    "elementclass A { input -> ",
    " -> output; } ",
    "Script(",
    "UDPIPEncap(1.0.0.1, 5, 2.0.0.2, 6)",
    "EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2)",
];

/// The text that bytes stand for: those of at least 128 are classes and other words.
pub fn written(bytes: &[u8]) -> String {
    let names: Vec<&str> = classes::all().map(|class| class.name).collect();
    let mut text = String::new();
    let mut bytes = bytes.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            0..=127 => text.push(char::from(byte)),
            128..=191 => text.push_str(WORDS[usize::from(byte) % WORDS.len()]),
            _ => {
                let low = bytes.next().copied().unwrap_or(0);
                text.push_str(names[(usize::from(byte & 63) << 8 | usize::from(low)) % names.len()]);
            }
        }
    }
    text
}

/// A configuration that reaches nothing outside of it, in simulated time.
fn router(text: &str) -> Option<Rc<Router>> {
    let pool = Pool::builder().frames(256).frame_size(2048).large(4, 66 * 1024).build();
    let surroundings = Surroundings {
        pool: pool.expect("memory for packets"),
        clock: Rc::new(Clock::simulated(SIMULATION_BEGINS)),
        capabilities: Capabilities::default(),
        chatter: Rc::new(|_| ()),
        seed: 1,
        secrets: Rc::new(RefCell::new(Random::of(&[b"click secrets"]))),
        reconfigures: false,
        exact: None,
        most_elements: usize::MAX,
        most_memory: usize::MAX,
        most_text: 1 << 26,
        most_automata: usize::MAX,
        most_work: u64::MAX,
        keeps_dropped: false,
    };
    build(&Source { text, file: "config", is_expression: true }, &[], surroundings, &Errors::collected())
}

fn go(router: &Router) {
    for _ in 0..ROUNDS {
        match drive::round(router, 16) {
            Round::Busy => (),
            Round::Until(time) => router.surroundings().clock.jump(time),
            Round::Idle | Round::Stopped => return,
        }
    }
}

/// Builds and runs a configuration, and reads all of its handlers.
pub fn configuration(text: &str) {
    let Some(router) = router(text) else { return };
    go(&router);
    for id in 0..router.len() {
        for line in router.list_handlers(id).lines() {
            let name = line.split('\t').next().unwrap_or("");
            let full = format!("{}.{name}", router.name(id));
            if let Ok(call) = HandlerCall::parse(&full, router.at(ROOT)) {
                let _ = call.read(&router);
            }
        }
    }
    router.cleanup();
}

/// Elements that decide by an expression, and what stands before and behind it.
const DECIDING: &[(&str, &str, &str)] = &[
    ("IPClassifier", "", ", -"),
    ("IPFilter", "allow ", ", drop all"),
    ("IPFilter", "", ""),
    ("Classifier", "", ", -"),
    ("IPClassifier", "", ""),
];

/// Builds an element from an expression, and has it decide about a packet.
///
/// The first byte chooses the class. The expression ends at the first zero byte, where the packet begins.
///
/// # Panics
/// When a packet leaves twice, or leaves an element for which it has no way out.
pub fn filter(bytes: &[u8]) {
    let Some((&class, rest)) = bytes.split_first() else { return };
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let (expression, packet) = rest.split_at(end);
    let packet = packet.get(1..).unwrap_or_default();
    let (class, before, behind) = DECIDING[usize::from(class) % DECIDING.len()];
    let config = format!("{before}{}{behind}", String::from_utf8_lossy(expression));
    let outputs = text::split_arguments(&config).len();
    let counters: String =
        (0..outputs).map(|output| format!("f[{output}] -> c{output} :: Counter -> Discard;\n")).collect();
    let checked = if class == "Classifier" { "" } else { "CheckIPHeader -> " };
    for mark in ["MarkIPHeader(0) -> ", checked] {
        let text = format!("i :: Counter; Idle -> i -> {mark}f :: {class}({config});\n{counters}");
        let made = if class == "IPFilter" {
            text.replace(&counters, "f -> c0 :: Counter -> Discard;\n")
        } else {
            text
        };
        let Some(router) = router(&made) else { continue };
        let Some(first) = router.find("i", ROOT) else { continue };
        let at = router.at(first);
        if let Some(packet) = at.packet(&packet[..packet.len().min(1500)]) {
            router.element(first).push(at, 0, packet);
        }
        let left: u64 = (0..outputs)
            .filter_map(|output| HandlerCall::parse(&format!("c{output}.count"), router.at(ROOT)).ok())
            .filter_map(|call| call.read(&router).ok())
            .filter_map(|count| count.trim().parse::<u64>().ok())
            .sum();
        assert!(left <= 1, "{left} packets left: {made}");
    }
}

/// Cuts a client's bytes into requests: whole, and in pieces whose size the first byte gives.
///
/// # Panics
/// When the pieces give other requests, or more is kept than the bound.
pub fn control_socket(bytes: &[u8]) {
    let Some((&size, bytes)) = bytes.split_first() else { return };
    let (whole, _) = requests_of(bytes, bytes.len());
    let (pieces, kept) = requests_of(bytes, usize::from(size) + 1);
    assert_eq!(whole, pieces);
    assert!(whole.len() <= bytes.len() + 1 && kept <= MOST_KEPT);
}
