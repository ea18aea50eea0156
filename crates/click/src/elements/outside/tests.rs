//! Elements that open sockets, with clients of their own. What is expected was seen from Click itself.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::drive::{self, NoSignals};
use crate::testing::{Run, build, build_outside};

/// The longest that a test waits for an answer: only a fault makes it wait so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a configuration until a client has stopped it. What the client returned.
fn serve<T: Send + 'static>(run: &Run, client: impl FnOnce() -> T + Send + 'static) -> T {
    assert_eq!(run.errors, [""; 0]);
    let router = run.router.as_ref().expect("it was built");
    let client: JoinHandle<T> = std::thread::spawn(client);
    let last = drive::run(Rc::clone(router), &mut NoSignals);
    let answer = client.join().expect("the client");
    last.cleanup();
    answer
}

fn connect(port: &str) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port.parse().expect("a port"))).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Sends requests, closes, and reads all answers.
fn talk(port: &str, requests: &str) -> String {
    let mut stream = connect(port);
    stream.write_all(requests.as_bytes()).expect("requests are sent");
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).expect("answers come");
    String::from_utf8_lossy(&answers).replace("\r\n", "\n")
}

const STOP: &str = "write stop\nquit\n";

fn control(options: &str, requests: &str) -> String {
    let run = build_outside(&format!(
        "cs::ControlSocket(TCP, 0, LOCALHOST true{options});
         Idle -> s::Switch(0) -> Idle; s[1] -> Idle; sc::Script(TYPE PASSIVE); DriverManager(wait 30s, stop)"
    ));
    let (port, requests) = (run.read("cs.port"), format!("{requests}{STOP}"));
    let answers = serve(&run, move || talk(&port, &requests));
    let answers = answers.strip_prefix("Click::ControlSocket/1.3\n").expect("a greeting");
    match answers.strip_suffix("200 Write handler 'stop' OK\n200 Goodbye!\n") {
        Some(answers) => answers.to_owned(),
        None => answers.to_owned(),
    }
}

#[test]
fn requests_have_clicks_answers() {
    for (request, answer) in [
        ("read", "500 Wrong number of arguments\n"),
        ("read foo", "511 No handler named 'foo'\n"),
        ("read foo.bar", "510 No element named 'foo'\n"),
        ("read s.foo", "511 No handler named 's.foo'\n"),
        ("  READ   s.switch  ", "200 Read handler 's.switch' OK\nDATA 1\n0"),
        ("get 3.switch", "200 Read handler '3.switch' OK\nDATA 1\n0"),
        ("read 2.switch", "511 No handler named '2.switch'\n"),
        ("read 99.name", "510 No element named '99'\n"),
        ("checkread s.switch", "200 Read handler 's.switch' OK\n"),
        ("checkwrite s.switch", "200 Write handler 's.switch' OK\n"),
        ("checkwrite s.name", "511 Handler 's.name' not writable\n"),
        ("checkread s.foo", "511 No handler named 's.foo'\n"),
        ("write s.name foo", "530 Handler 's.name' read-only\n"),
        (
            "write s.switch 1\nread s.switch",
            "200 Write handler 's.switch' OK\n200 Read handler 's.switch' OK\nDATA 1\n1",
        ),
        ("write s.switch x", "520-Write handler 's.switch' error:\n520 Switch output must be integer\n"),
        ("writedata s.switch 1\n1", "200 Write handler 's.switch' OK\n"),
        (
            "readdata s.name 4\nabcd",
            "590-Read handler 's.name' error:\n590 read handler 's.name' does not take parameters\n",
        ),
        ("readuntil sc.add\n1 2\n", "200 Read handler 'sc.add' OK\nDATA 1\n3"),
        ("llrpc s#zz", "500 Syntax error in LLRPC name 's#zz'\n"),
        ("llrpc x#4004C005", "510 No element named 'x'\n"),
        ("llrpc s#80044006", "522 LLRPC 's#80044006' requires 4 bytes input data\n"),
        ("llrpc s#00000000", "501 Cannot call LLRPC 's#00000000' remotely\n"),
        ("llrpc s#4004C009", "522 LLRPC 's#4004C009' error: Invalid argument\n"),
        ("llrpc s#4004C005", "200 LLRPC 's#4004C005' OK\nDATA 4\n\0\0\0\0"),
        ("read \u{1}f", "511 No handler named '^Af'\n"),
        ("fly", "501 Command 'FLY' unimplemented\n"),
        ("quit now", "500 Bad command syntax\n200 Goodbye!\n"),
    ] {
        // A line's end after data of a length is an empty line, which means nothing. After `quit`, another
        // connection stops the configuration.
        if request.starts_with("quit") {
            let run = build_outside("cs::ControlSocket(TCP, 0); DriverManager(wait 30s, stop)");
            let (port, line) = (run.read("cs.port"), format!("{request}\n"));
            let answers = serve(&run, move || {
                let answers = talk(&port, &line);
                talk(&port, STOP);
                answers
            });
            assert_eq!(answers, format!("Click::ControlSocket/1.3\n{answer}"), "{request}");
        } else {
            assert_eq!(control("", &format!("{request}\n")), answer, "{request}");
        }
    }
}

#[test]
fn private_handlers_are_hidden_and_a_read_only_socket_writes_nothing() {
    assert_eq!(control("", "read sc.cat /etc/hostname\n"), "511 No handler named 'sc.cat'\n");
    let run = build_outside("cs::ControlSocket(TCP, 0, READONLY true); DriverManager(wait 5s, stop)");
    let port = run.read("cs.port");
    let answers = serve(&run, move || talk(&port, "write stop\ncheckwrite stop\nllrpc cs#4004C005\nquit\n"));
    assert_eq!(
        answers,
        "Click::ControlSocket/1.3\n530 Permission denied for 'stop'\n530 Permission denied for 'stop'\n\
         530 Permission denied for 'cs#4004C005'\n200 Goodbye!\n"
    );
}

#[test]
fn a_client_that_reads_late_gets_all_answers() {
    let requests = "read s.config\n".repeat(20_000);
    let run = build_outside(
        "cs::ControlSocket(TCP, 0); Idle -> s::Switch(0) -> Idle; s[1] -> Idle; DriverManager(wait 60s, stop)",
    );
    let port = run.read("cs.port");
    let answers = serve(&run, move || {
        let mut stream = connect(&port);
        let mut writer = stream.try_clone().expect("a copy");
        let sends = std::thread::spawn(move || writer.write_all((requests + STOP).as_bytes()));
        std::thread::sleep(Duration::from_millis(200));
        let mut answers = String::new();
        stream.read_to_string(&mut answers).expect("answers come");
        sends.join().expect("the writer").expect("requests are sent");
        answers
    });
    assert_eq!(answers.matches("200 Read handler 's.config' OK\r\nDATA 1\r\n0").count(), 20_000);
    assert!(answers.ends_with("200 Goodbye!\r\n"));
}

#[test]
fn requests_without_end_close_the_connection() {
    let run = build_outside("cs::ControlSocket(TCP, 0); DriverManager(wait 60s, stop)");
    let port = run.read("cs.port");
    let answers = serve(&run, move || {
        let mut stream = connect(&port);
        // The server may close while bytes are on their way.
        let _ = stream.write_all(b"writedata stop 2000000000\nx");
        let mut answers = Vec::new();
        let _ = stream.read_to_end(&mut answers);
        talk(&port, STOP);
        String::from_utf8_lossy(&answers).into_owned()
    });
    assert_eq!(answers, "Click::ControlSocket/1.3\r\n521 Data too large\r\n");
}

#[test]
fn connections_outlive_the_configuration() {
    let run = build_outside(
        "cs::ControlSocket(TCP, 41950+); Idle -> s::Switch(0) -> Idle; s[1] -> Idle; DriverManager(wait 30s, stop)",
    );
    let port = run.read("cs.port");
    let answers = serve(&run, move || {
        talk(
            &port,
            "write hotconfig Pofd\n\
             write hotconfig cs::ControlSocket(TCP, 41950+); Idle -> s::Switch(1) -> Idle; s[1] -> Idle; \
             DriverManager(wait 30s, stop)\nread s.config\nread cs.port\nwrite stop\nquit\n",
        )
    });
    let mut lines = answers.lines();
    assert_eq!(lines.next(), Some("Click::ControlSocket/1.3"));
    assert_eq!(lines.next(), Some("520-Write handler 'hotconfig' error:"));
    assert!(lines.next().is_some_and(|line| line.starts_with("520 ") && line.contains("undeclared element")));
    assert_eq!(lines.next(), Some("200 Write handler 'hotconfig' OK"));
    assert_eq!(lines.next(), Some("200 Read handler 's.config' OK"));
    assert_eq!(lines.next(), Some("DATA 1"));
    assert_eq!(lines.next(), Some("1200 Read handler 'cs.port' OK"));
}

#[test]
fn sockets_need_the_capability() {
    for class in [
        "ControlSocket(TCP, 0)",
        "ChatterSocket(TCP, 0)",
        "McastSocket(233.252.0.1, 9)",
        "Socket(UDP, 1.2.3.4, 9)",
    ] {
        let text = match class.split('(').next() {
            Some("McastSocket" | "Socket") => format!("{class} -> Discard"),
            _ => class.to_owned(),
        };
        let errors = build(&text).errors;
        let name = class.split('(').next().unwrap_or_default();
        let wanted = format!("  {name}: this instance may not open sockets (capability sockets)");
        assert_eq!(errors.get(1), Some(&wanted), "{errors:?}");
    }
}

#[test]
fn sockets_that_cannot_be_told() {
    for (text, wanted) in [
        ("ControlSocket(FOO, 1)", "  unknown socket type 'FOO'"),
        ("ControlSocket(TCP, foo)", "  PORT requires TCP port"),
        ("ControlSocket(UNIX)", "  FILENAME: required argument missing"),
        ("ControlSocket(UNIX, /nowhere/at/all)", "  bind: No such file or directory"),
    ] {
        let errors = build_outside(text).errors;
        assert_eq!(errors.get(1).map(String::as_str), Some(wanted), "{errors:?}");
    }
}

#[test]
fn a_port_that_is_taken_is_tried_again() {
    let taken = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = taken.local_addr().expect("its number").port();
    let run =
        build_outside(&format!("cs::ControlSocket(TCP, {port}, RETRIES 1); DriverManager(wait 30s, stop)"));
    assert_eq!(run.errors[1], "  warning: bind: Address already in use (1 try left)");
    let router = run.router.as_ref().expect("it was built");
    drop(taken);
    let client = std::thread::spawn(move || {
        for _ in 0..1000 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return talk(&port.to_string(), STOP);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        String::new()
    });
    drive::run(Rc::clone(router), &mut NoSignals).cleanup();
    assert!(client.join().expect("the client").ends_with("Goodbye!\n"));
}

#[test]
fn chatter_reaches_clients() {
    let folder = std::env::temp_dir().join(format!("click-chatter-{}", std::process::id()));
    let path = folder.display().to_string();
    let run = build_outside(&format!(
        "ChatterSocket(UNIX, \"{path}\"); InfiniteSource(DATA \\<01>, ACTIVE false, LIMIT 1) -> Print(p) -> Discard;
         i::InfiniteSource(DATA \\<02>, ACTIVE false, LIMIT 1) -> Print(q) -> Discard;
         cs::ControlSocket(TCP, 0); DriverManager(wait 30s, stop)"
    ));
    let port = run.read("cs.port");
    let client_path = path.clone();
    let heard = serve(&run, move || {
        let mut stream = UnixStream::connect(client_path).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut greeting = [0; 26];
        stream.read_exact(&mut greeting).expect("a greeting");
        talk(&port, "write i.active true\nquit\n");
        let mut line = [0; 13];
        stream.read_exact(&mut line).expect("a line");
        talk(&port, STOP);
        String::from_utf8_lossy(&[&greeting[..], &line].concat()).into_owned()
    });
    assert_eq!(heard, "Click::ChatterSocket/1.0\r\nq:    1 | 02\n");
    assert!(!folder.exists());
}

#[test]
fn packets_pass_tcp_sockets_both_ways() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("its number").port();
    drop(free);
    let run = build_outside(&format!(
        "server::Socket(TCP, 127.0.0.1, {port}) -> Print(server, CONTENTS ASCII) -> server;
         InfiniteSource(DATA hello, LIMIT 1) -> client::Socket(TCP, 127.0.0.1, {port}, CLIENT true)
            -> Print(client, CONTENTS ASCII) -> c::Counter(COUNT_CALL 1 stop) -> Discard;
         DriverManager(wait 30s, stop)"
    ));
    serve(&run, || ());
    assert_eq!(run.said(), ["server:    5 |  hello", "client:    5 |  hello"]);
}

#[test]
fn datagrams_pass_udp_sockets_and_servers_answer_the_last_client() {
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let free = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("its number").port();
    drop(free);
    let run = build_outside(&format!(
        "s::Socket(UDP, 127.0.0.1, {port}, SNAPLEN 4) -> c::Counter(COUNT_CALL 2 stop) -> Queue -> s;
         DriverManager(wait 30s, stop, wait 0.2s)"
    ));
    let answers = serve(&run, move || {
        let mut answers = Vec::new();
        for text in ["abcdefgh", "xy"] {
            client.send_to(text.as_bytes(), ("127.0.0.1", port)).expect("a datagram");
            if text == "abcdefgh" {
                let mut bytes = [0; 100];
                let count = client.recv(&mut bytes).expect("an answer");
                answers.push(String::from_utf8_lossy(&bytes[..count]).into_owned());
            }
        }
        answers
    });
    assert_eq!(answers, ["abcd"]);
}
