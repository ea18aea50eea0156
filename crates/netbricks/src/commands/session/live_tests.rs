//! Changes and clients beside a run under load: what they ask of workers, and what handlers changed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use netbricks_control::api::{Applied, ChangeKind, Code, Problem, Source};
use netbricks_control::{Address, Client};
use netbricks_core::buffer::Batch;
use netbricks_core::{
    BuildError, Context, Function, Input, NoSettings, Node, Operator, Section, Worker, compose,
};

use super::super::arguments::ControlArguments;
use super::tests::{Asking, FLOWS, chain, lost_nothing, while_controlled, while_running, while_running_with};

/// Reports that workers were asked for: a function is also asked for one where a file is checked.
static TOLD: AtomicUsize = AtomicUsize::new(0);

fn tells(input: Input, worker: &Worker) -> impl Function + use<> {
    worker.report(|| {
        let is_worker = std::thread::current().name() == Some("netbricks-0");
        TOLD.fetch_add(usize::from(is_worker), Ordering::Relaxed);
        Section::default()
    });
    input.done()
}

fn source(text: &str) -> Source {
    Source { text: text.into(), name: "edge.toml".into(), directory: "/nowhere".into() }
}

#[test]
fn plans_and_changes_ask_no_node_for_its_report() {
    let mut registry = crate::standard();
    registry.add::<NoSettings>("tells", "Counts its reports.", |_, worker| {
        compose(worker, |input| tells(input, worker))
    });
    let text = |top: u32| chain("\"flows\", \"tells\"", &format!("{FLOWS}\ntop = {top}"));
    let (first, second) = (text(10), text(5));
    let summary = while_running_with(registry, &first.clone(), move |asking| {
        asking.let_packets_pass();
        let same = source(&first);
        assert!(asking.ask(move |director| director.plan(&same)).unwrap().unchanged);
        asking.apply(&second).unwrap();
        asking.apply(&first).unwrap();
        assert_eq!(TOLD.load(Ordering::Relaxed), 0);
    });
    lost_nothing(&summary);
    assert!(TOLD.load(Ordering::Relaxed) > 0, "the summary has it");
}

#[test]
fn routes_and_weights_that_handlers_changed_stay_when_the_file_changes_theirs() {
    let text = |routes: &str| {
        let lb =
            "[function.lb]\nuse = \"maglev\"\nbackends = [\"a 02:00:00:00:00:01\", \"b 02:00:00:00:00:02\"]";
        let fib = format!("[function.fib]\nuse = \"lpm\"\nroutes = [\"0.0.0.0/0 1\"{routes}]");
        chain("\"fib\", \"lb\"", &format!("{lb}\n{fib}"))
    };
    let (first, second) = (text(""), text(", \"198.51.100.0/24 3\""));
    let summary = while_running(&first, move |asking| {
        let lookup =
            |address: &str| asking.call("fib", "lookup", address, false).unwrap().answers[0].value.clone();
        for next_hop in 1..=9 {
            asking.write("fib", "add", &format!("192.0.2.0/24 {next_hop}"));
        }
        asking.write("lb", "weight", "b 5");
        let applied = asking.apply(&second).unwrap();
        assert_eq!(applied.plan.warnings, Vec::<String>::new());
        assert_eq!([lookup("192.0.2.1"), lookup("198.51.100.1")], ["9", "3"]);
        let backends = asking.call("lb", "backends", "", false).unwrap().answers[0].value.clone();
        assert!(backends.contains("02:00:00:00:00:02 5 "), "{backends}");
        let options = netbricks_control::api::ApplyOptions { forget: true, ..Default::default() };
        let file = source(&second);
        asking.ask(move |director| director.apply(file, options, None, 0)).unwrap();
        assert_eq!([lookup("192.0.2.1"), lookup("198.51.100.1")], ["1", "3"]);
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
}

/// A balancer and routes with these entries, behind what goes through `first`.
fn live(first: &str, backends: &[&str], routes: &[&str]) -> String {
    let tables = format!(
        "[function.balance]\nuse = \"maglev\"\nbackends = {backends:?}\n\
         [function.fib]\nuse = \"lpm\"\ncount = true\nroutes = {routes:?}"
    );
    chain(&format!("{first}\"fib\", \"balance\""), &tables) + "workers = 2\n"
}

fn changes(applied: &Applied) -> Vec<(ChangeKind, &str, &str)> {
    let changes = applied.plan.changes.iter();
    let mut changes: Vec<_> =
        changes.map(|change| (change.kind, &change.name[..], &change.detail[..])).collect();
    changes.sort_by_key(|(_, name, _)| *name);
    changes
}

fn answer(asking: &Asking, function: &str, handler: &str, argument: &str) -> String {
    asking.call(function, handler, argument, false).unwrap().answers[0].value.clone()
}

const A: &str = "a 02:00:00:00:00:01 1";
const B: &str = "b 02:00:00:00:00:02 1";

#[test]
fn routes_and_backends_of_a_file_are_written_while_their_functions_go_on() {
    let first = live("", &[A, B], &["0.0.0.0/0 1", "203.0.113.0/24 2"]);
    let second =
        live("", &[A, "b 02:00:00:00:00:02 5", "c 02:00:00:00:00:03"], &["0.0.0.0/0 1", "198.51.100.0/24 3"]);
    let third = live("", &[A], &["0.0.0.0/0 1", "192.0.2.0/24 4"]);
    let summary = while_running(&first, move |asking| {
        let hops = |asking: &Asking| {
            ["192.0.2.1", "198.51.100.1", "203.0.113.1"].map(|of| answer(asking, "fib", "lookup", of))
        };
        asking.let_packets_pass();
        asking.write("fib", "add", "192.0.2.0/24 9");
        assert_eq!(hops(asking), ["9", "1", "2"]);
        let text = asking.ask(|director| director.running_source().text);
        let routes = r#"routes = ["0.0.0.0/0 1", "203.0.113.0/24 2", "192.0.2.0/24 9"]"#;
        assert!(text.contains(routes) && !text.contains('#'), "{text}");
        let applied = asking.apply(&second).unwrap();
        let updated = [
            (ChangeKind::Updated, "balance", "in place: 1 backend added, 1 changed"),
            (ChangeKind::Updated, "fib", "in place: 1 route added, 1 removed"),
        ];
        assert_eq!(changes(&applied), updated);
        assert_eq!((applied.moved.len(), applied.plan.warnings.len()), (0, 0), "{applied:?}");
        assert_eq!(hops(asking), ["9", "3", "1"]);
        assert!(answer(asking, "balance", "backends", "").contains("b 02:00:00:00:00:02 5 takes"));
        asking.let_packets_pass();
        let same = source(&second);
        assert!(asking.ask(move |director| director.plan(&same)).unwrap().unchanged);
        // What handlers have written stands before the file.
        let applied = asking.apply(&third).unwrap();
        let updated = [
            (ChangeKind::Updated, "balance", "in place: 2 backends removed"),
            (ChangeKind::Updated, "fib", "in place: 1 route removed"),
        ];
        assert_eq!(changes(&applied), updated);
        assert_eq!(hops(asking), ["9", "1", "1"]);
        // The way back to the first configuration.
        let back = asking.ask(|director| director.rollback(Some(2))).unwrap();
        assert_eq!(changes(&back)[0].2, "in place: 2 backends added");
        assert_eq!(hops(asking), ["9", "3", "1"]);
        let back = asking.ask(|director| director.rollback(Some(1))).unwrap();
        assert_eq!(
            changes(&back)[0],
            (ChangeKind::Updated, "balance", "in place: 1 backend changed, 1 removed")
        );
        assert!(!answer(asking, "balance", "backends", "").contains("c 02"));
        // Where it is not known what a write of a changed backend means together with others, the function is made again.
        asking.write("balance", "forget", "");
        asking.write("balance", "weight", "b 7");
        let applied = asking.apply(&second).unwrap();
        assert_eq!(changes(&applied)[0].0, ChangeKind::Replaced);
        assert!(answer(asking, "balance", "backends", "").contains("b 02:00:00:00:00:02 7 takes"));
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
    for name in ["balance", "fib"] {
        let node = summary.nodes.iter().find(|node| node.name == name).unwrap();
        assert_eq!(node.arrived, summary.received);
    }
}

#[test]
fn a_change_that_fails_leaves_routes_and_backends_as_they_were() {
    let mut registry = crate::standard();
    registry.add::<NoSettings>("fails", "Is made on no worker.", |_, worker| {
        match std::thread::current().name() {
            Some("netbricks-1") => Err(BuildError::new("planted")),
            _ => compose(worker, |input| input.done()),
        }
    });
    let first = live("", &[A, B], &["0.0.0.0/0 1", "203.0.113.0/24 2"]);
    let second = live("", &[A], &["0.0.0.0/0 1", "198.51.100.0/24 3"]);
    let failing = second.replace("[function.fib]", "[function.bad]\nuse = \"fails\"\n[function.fib]");
    let failing = failing.replace("through = [", "through = [\"bad\", ");
    let summary = while_running_with(registry, &first, move |asking| {
        let state = |asking: &Asking| {
            [answer(asking, "fib", "routes", "9"), answer(asking, "balance", "backends", "")]
        };
        let before = state(asking);
        let refused = asking.apply(&failing).unwrap_err();
        assert!(refused.detail.contains("planted"), "{refused:?}");
        assert_eq!(state(asking), before);
        // A route that the file takes out is not there any more, which no journal says.
        asking.call("fib", "withdraw", "203.0.113.0/24", true).unwrap();
        let before = state(asking);
        let refused = asking.apply(&second).unwrap_err();
        assert!(refused.detail.contains("there is no route for 203.0.113.0/24"), "{refused:?}");
        assert_eq!(state(asking), before);
        asking.call("fib", "add", "203.0.113.0/24 2", true).unwrap();
        assert_eq!(changes(&asking.apply(&second).unwrap()).len(), 2);
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
}

/// Sends bytes, and answers the first line of what comes back.
fn send(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A server that refuses need not read all of it.
    let _refused = stream.write_all(bytes);
    let mut piece = [0; 64];
    let read = stream.read(&mut piece).unwrap_or(0);
    String::from_utf8_lossy(&piece[..read]).lines().next().unwrap_or_default().to_owned()
}

/// Writes numbers into packets one after the other, or checks that they come so.
struct Numbers {
    next: u64,
    checks: bool,
    /// Packets that were checked, and those whose number was not the next.
    counts: Arc<[AtomicU64; 2]>,
}

impl Node for Numbers {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        batch.each_packet(|_, packet| {
            let data = packet.data_mut();
            let place = data.len() - 8..data.len();
            if self.checks {
                let is_next = data[place] == self.next.to_be_bytes();
                self.counts[0].fetch_add(1, Ordering::Relaxed);
                self.counts[1].fetch_add(u64::from(!is_next), Ordering::Relaxed);
            } else {
                data[place].copy_from_slice(&self.next.to_be_bytes());
            }
            self.next += 1;
        });
    }
}

/// All functions, and two of which one numbers packets and the other checks that none is lost between them.
fn numbering(counts: &Arc<[AtomicU64; 2]>) -> netbricks_core::Registry {
    let mut registry = crate::standard();
    for (name, checks) in [("number", false), ("continuous", true)] {
        let counts = counts.clone();
        registry.add::<NoSettings>(name, "Follows numbers in packets.", move |_, _| {
            Ok(Box::new(Numbers { next: 0, checks, counts: counts.clone() }))
        });
    }
    registry
}

fn head(method: &str, path: &str, rest: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{rest}\r\n")
}

/// Pours a body without an end into a request until it is refused; answers how many bytes went before.
fn pour(socket: &Path) -> usize {
    let mut stream = UnixStream::connect(socket).unwrap();
    let rest = "content-type: application/json\r\ntransfer-encoding: chunked\r\n";
    let _refused = stream.write_all(head("POST", "/v1/apply", rest).as_bytes());
    let mut chunk = b"100000\r\n".to_vec();
    chunk.resize(chunk.len() + (1 << 20), b' ');
    chunk.extend(b"\r\n");
    (0..1_024).take_while(|_| stream.write_all(&chunk).is_ok()).count() << 20
}

/// One after the other, each with its own fault.
fn misbehave(socket: &Path, port: u16) {
    let json = "content-type: application/json\r\ncontent-length: 1\r\n";
    let giga = "content-type: application/json\r\ncontent-length: 1073741824\r\n";
    for _ in 0..20 {
        for (request, status) in [
            (head("POST", "/v1/apply", json) + "{", " 400 "),
            (head("POST", "/v1/apply", giga), " 413 "),
            (head("GET", "/v1/nothing", ""), " 404 "),
            (head("DELETE", "/v1/status", ""), " 405 "),
            ("\0\0\r\n\r\n".into(), " 400 "),
        ] {
            let answer = send(socket, request.as_bytes());
            assert!(answer.contains(status), "{request:?}: {answer}");
        }
        for token in ["", "authorization: Bearer 0123456789abcdef\r\n"] {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(head("POST", "/v1/stop", token).as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(" 401 "), "{token:?}: {answer}");
        }
    }
    assert!(pour(socket) < 1 << 30, "a body of a gigabyte is not read to its end");
    for _ in 0..2_000 {
        // Where more wait than may, one is refused at once.
        drop(UnixStream::connect(socket));
    }
}

#[test]
fn clients_that_misbehave_harm_no_packet() {
    let name = |what: &str| std::env::temp_dir().join(format!("nb-hostile-{}.{what}", std::process::id()));
    let (socket, token) = (name("sock"), name("token"));
    std::fs::write(&token, "fedcba9876543210fedcba9876543210\n").unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
    let control = ControlArguments { socket: Some(socket.clone()), state: None, no_control: false };
    let file = move |rest: &str| {
        let listens = format!("[control]\nlisten = \"{free}\"\ntoken_file = \"{}\"", token.display());
        chain("\"number\", \"flows\", \"continuous\"", &format!("{FLOWS}{rest}\n{listens}"))
            + "workers = 2\nshuffles = false\n"
    };
    let (text, counts) = (file(""), Arc::default());
    let summary = while_controlled(numbering(&counts), &text, Some(&control), move |asking| {
        asking.let_packets_pass();
        misbehave(&socket, free.port());
        // They ask for counters without end, and read none.
        let silent: Vec<UnixStream> = (0..300)
            .filter_map(|_| {
                let mut stream = UnixStream::connect(&socket).ok()?;
                stream.write_all(head("GET", "/v1/stats?every=1", "").as_bytes()).ok()?;
                Some(stream)
            })
            .collect();
        asking.let_packets_pass();
        assert!(asking.call("flows", "flows.occupancy", "", false).is_ok());
        drop(silent);
        // Of two writers that know the same generation, one is told.
        let client = || Client::new(Address::Unix(socket.clone()));
        let generation = loop {
            // Those that went are noticed one by one.
            if let Ok(status) = client().status() {
                break status.generation;
            }
        };
        let files = ["\ntop = 3", "\ntop = 4"].map(|rest| source(&file(rest)));
        let options = netbricks_control::api::ApplyOptions::default();
        let apply = |file: &Source| loop {
            match client().apply(file, &options, Some(generation)) {
                // The other clients' places are not all free yet.
                Err(Problem { code: Code::Busy | Code::Unreachable, .. }) => std::thread::yield_now(),
                made => break made,
            }
        };
        let made = std::thread::scope(|scope| {
            let threads = files.each_ref().map(|file| scope.spawn(move || apply(file)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1, "{made:?}");
        let refused = made.into_iter().find_map(Result::err).unwrap();
        assert_eq!(refused.code, Code::Stale, "{refused:?}");
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
    let counts = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [summary.received, 0], "packets in all, and those whose number was not the next");
}
