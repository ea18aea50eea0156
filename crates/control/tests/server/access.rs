//! Permissions, and where a dataplane does not listen.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use netbricks_control::api::{Answers, Code, Problem};
use netbricks_control::server::Limits;
use netbricks_control::{
    Address, Client, Events, Grant, Grants, ListenConfig, ListenError, Listener, Tokens, Waiting,
};

use crate::plane::Running;
use crate::{ask, exchange, place, request};

const READ: &str = "read-0123456789abcdef";
const ADMIN: &str = "admin-0123456789abcdef";

fn tokens() -> Tokens {
    Tokens { read_only: Some(READ.into()), admin: Some(ADMIN.into()), open: false }
}

/// No token, on an address that is open to this machine.
fn open() -> Tokens {
    Tokens { open: true, ..Tokens::default() }
}

fn client(running: &Running, token: Option<&str>) -> Client {
    Client::new(Address::Tcp { address: running.tcp(), token: token.map(Into::into) })
}

fn start(config: ListenConfig) -> Result<Listener, ListenError> {
    Listener::start(config, Waiting::new().0, Events::new(), None)
}

#[test]
fn tokens_say_who_may_read_and_who_may_write() {
    let running = Running::with("tokens", Limits::default(), Some(tokens()));
    for wrong in
        [None, Some("wrong"), Some(""), Some("admin-0123456789abcdee"), Some("read-0123456789abcdefg")]
    {
        let problem = client(&running, wrong).status().expect_err("a wrong token");
        assert_eq!(problem.code, Code::Unauthorized, "{wrong:?}");
    }
    assert!(client(&running, Some(READ)).status().is_ok());
    let problem = client(&running, Some(READ)).suspend().expect_err("it may only read");
    assert_eq!((problem.code, problem.help.as_deref()), (Code::Forbidden, Some("use the admin token")));
    assert_eq!(
        client(&running, Some(READ)).write("routes", "add", "x", None).expect_err("it may only read").code,
        Code::Forbidden
    );
    assert!(client(&running, Some(ADMIN)).write("routes", "add", "x", None).is_ok());
    // Packets of others are not for everyone who may read counters.
    let code =
        |token| client(&running, Some(token)).trace("tcp", None, None).err().map(|problem| problem.code);
    assert_eq!((code(READ), code(ADMIN)), (Some(Code::Forbidden), Some(Code::BadRequest)));
    let problem = client(&running, Some(READ)).capture("", None, None, None).err().expect("it may only read");
    assert!(problem.detail.contains("shows packets"), "{problem}");
    // Over the Unix socket, the kernel has checked already.
    assert!(running.client().suspend().is_ok());
    let stream = TcpStream::connect(running.tcp()).expect("it listens");
    let reply = exchange(stream, &request("GET", "/metrics", &[("authorization", "Basic eDp5")], b""));
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")));
}

#[test]
fn a_tenant_sees_what_is_its_own_and_nothing_else() {
    const TENANT: &str = "acme-0123456789abcdef";
    let grants = Grants::default();
    let grant = |token: &str| Grant { tenant: "acme".into(), users: Vec::new(), token: Some(token.into()) };
    grants.set(vec![grant(TENANT)]);
    let running = Running::granting("tenant", Limits::default(), Some(tokens()), grants.clone());
    let tenant = client(&running, Some(TENANT));
    assert_eq!(tenant.tenants().expect("its own").len(), 0, "the fake dataplane has no tenants");
    // The dataplane has functions, a node and a port; none of them is the tenant's.
    let functions = tenant.functions().expect("those with handlers for tenants");
    let [guests] = functions.as_slice() else { panic!("{functions:?}") };
    let names: Vec<&str> = guests.handlers.iter().map(|handler| &*handler.name).collect();
    assert_eq!((&*guests.name, names, guests.nodes.len()), ("guests", vec!["list", "install"], 0));
    let stats = tenant.stats().expect("its own");
    assert_eq!((stats.nodes.len(), stats.ports.len(), stats.workers.len()), (0, 0, 0));
    assert_eq!(tenant.graph().expect("its own").nodes.len(), 0);
    let refused =
        |result: Result<(), Problem>| assert_eq!(result.expect_err("not its own").code, Code::Forbidden);
    refused(tenant.status().map(drop));
    refused(tenant.suspend().map(drop));
    refused(tenant.function("routes").map(drop));
    refused(tenant.read("routes", "table", "", None).map(drop));
    refused(tenant.write("routes", "add", "x", None).map(drop));
    refused(tenant.function("acmee:routes").map(drop));
    refused(tenant.trace("tcp", None, None).map(drop));
    refused(tenant.trace("tcp", Some("routes"), None).map(drop));
    refused(tenant.capture("", Some("corp:f"), None, None).map(drop));
    // Of another function it calls the handlers that say so, and the function learns for whom.
    let value = |answers: Answers| answers.answers[0].value.clone();
    let listed = tenant.read("guests", "list", "a b", None).expect("it may");
    assert_eq!(value(listed), "tenant-read: acme list a b");
    let installed = tenant.write("guests", "install", "x\ny", None).expect("it may");
    assert_eq!(value(installed), "tenant-write: acme install x\ny");
    for handler in ["create", "list", "tenant-write"] {
        refused(tenant.write("guests", handler, "corp list", None).map(drop));
    }
    for handler in ["install", "tenant-read", "none"] {
        refused(tenant.read("guests", handler, "corp list", None).map(drop));
    }
    refused(tenant.function("guests").map(drop));
    refused(tenant.read("corp:guests", "list", "", None).map(drop));
    // Its own function is not there, which is another answer than that it may not ask.
    let none = tenant.function("acme:f").expect_err("there is none");
    assert_eq!((none.code, none.help), (Code::NotFound, None), "it learns no names of others");
    assert_eq!(tenant.write("acme:f", "add", "x", None).expect_err("there is none").code, Code::NotFound);
    assert_eq!(tenant.trace("tcp", Some("acme:f"), None).err().expect("no packets").code, Code::BadRequest);
    for path in [
        "trace?filter=&at=acme:f&at=corp:f",
        "trace?filter=&%61t=corp:f",
        "stats?every=1",
        "metrics",
        "../metrics",
    ] {
        let stream = TcpStream::connect(running.tcp()).expect("it listens");
        let token = format!("Bearer {TENANT}");
        let reply =
            exchange(stream, &request("GET", &format!("/v1/{path}"), &[("authorization", &token)], b""));
        assert_eq!(reply.status, 403, "{path}: {reply:?}");
    }
    assert!(client(&running, Some(ADMIN)).status().is_ok(), "the operator is no tenant");
    grants.set(vec![grant("acme-another-0123456789")]);
    assert_eq!(tenant.tenants().expect_err("its token has changed").code, Code::Unauthorized);
    assert!(grant("short").check().is_err());
}

/// Reads a stream until this text; `false` where it ends, or does not come.
fn reads_until(stream: &mut TcpStream, text: &str) -> bool {
    let (mut read, mut piece) = (Vec::new(), [0; 1_024]);
    loop {
        if String::from_utf8_lossy(&read).contains(text) {
            return true;
        }
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => read.extend_from_slice(&piece[..count]),
            _ => return false,
        }
    }
}

fn begin(running: &Running, path: &str, token: Option<&str>) -> TcpStream {
    let mut stream = TcpStream::connect(running.tcp()).expect("it listens");
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("a socket");
    let token = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<(&str, &str)> = token.iter().map(|token| ("authorization", token.as_str())).collect();
    stream.write_all(&request("GET", path, &headers, b"")).expect("it reads");
    stream
}

#[test]
fn streams_end_with_the_credentials_that_began_them() {
    const OLD: &str = "acme-0123456789abcdef";
    const CORP: &str = "corp-0123456789abcdef";
    let grant = |tenant: &str, token: &str| Grant {
        tenant: tenant.into(),
        users: Vec::new(),
        token: Some(token.into()),
    };
    let capture = "/v1/capture?filter=&at=acme:captured";
    for after in [
        vec![],
        vec![grant("acme", "acme-another-0123456789")],
        vec![grant("corp", OLD), grant("acme", "acme-another-0123456789")],
    ] {
        let grants = Grants::default();
        grants.set(vec![grant("acme", OLD)]);
        let running = Running::granting("revoked", Limits::default(), Some(tokens()), grants.clone());
        let mut revoked = begin(&running, capture, Some(OLD));
        let mut operators = begin(&running, capture, Some(ADMIN));
        assert!(reads_until(&mut revoked, "begun") && reads_until(&mut operators, "begun"));
        // A change of others' credentials ends nothing.
        grants.set(vec![grant("corp", CORP), grant("acme", OLD)]);
        let mut second = begin(&running, capture, Some(OLD));
        assert!(reads_until(&mut second, "begun"));
        revoked.set_nonblocking(true).expect("a socket");
        assert!(!reads_until(&mut revoked, "ended"));
        revoked.set_nonblocking(false).expect("a socket");
        grants.set(after.clone());
        assert!(reads_until(&mut revoked, "ended") && reads_until(&mut second, "ended"), "{after:?}");
        operators.set_nonblocking(true).expect("a socket");
        assert!(!reads_until(&mut operators, "ended"));
    }
    // Without tenants, counters and events need no token on this machine.
    let grants = Grants::default();
    let running = Running::granting("open", Limits::default(), Some(open()), grants.clone());
    let mut open = ["/v1/events?follow=true", "/v1/stats?every=3600"].map(|path| begin(&running, path, None));
    assert!(reads_until(&mut open[0], ":\n\n") && reads_until(&mut open[1], "event: stats"));
    grants.set(vec![grant("acme", OLD)]);
    for stream in &mut open {
        assert!(reads_until(stream, "0\r\n\r\n"), "it ends");
    }
}

#[test]
fn a_tenant_has_its_part_of_the_connections() {
    const TENANT: &str = "acme-0123456789abcdef";
    let grants = Grants::default();
    let grant = |tenant: &str, token: &str| Grant {
        tenant: tenant.into(),
        users: Vec::new(),
        token: Some(token.into()),
    };
    grants.set(vec![grant("acme", TENANT), grant("corp", "corp-0123456789abcdef")]);
    let limits = Limits { tenant_connections: 2, ..Limits::default() };
    let running = Running::granting("seats", limits, Some(tokens()), grants);
    let capture = "/v1/capture?filter=&at=acme:captured";
    let mut held: Vec<TcpStream> = (0..2).map(|_| begin(&running, capture, Some(TENANT))).collect();
    held.iter_mut().for_each(|stream| assert!(reads_until(stream, "begun")));
    let busy = client(&running, Some(TENANT)).tenants().expect_err("it has two");
    assert_eq!((busy.code, busy.detail.as_str()), (Code::Busy, "tenant `acme` has 2 connections already"));
    assert!(client(&running, Some("corp-0123456789abcdef")).tenants().is_ok());
    assert!(client(&running, Some(ADMIN)).status().is_ok());
    drop(held);
    while client(&running, Some(TENANT)).tenants().is_err() {
        std::thread::yield_now();
    }
}

/// One tenant that sends as much as it can takes no memory of the operator's, nor that of another tenant.
#[test]
fn a_tenants_bodies_are_small_and_take_memory_of_its_own() {
    const TENANT: &str = "acme-0123456789abcdef";
    let grants = Grants::default();
    let grant = |tenant: &str, token: &str| Grant {
        tenant: tenant.into(),
        users: Vec::new(),
        token: Some(token.into()),
    };
    grants.set(vec![grant("acme", TENANT), grant("corp", "corp-0123456789abcdef")]);
    let limits =
        Limits { memory: 4 << 20, tenant_body: 100_000, tenant_memory: (8 * 200) << 10, ..Limits::default() };
    let limits = Limits { upload: std::time::Duration::from_secs(600), ..limits };
    let running = Running::granting("bodies", limits, Some(tokens()), grants);
    let write = |token: &str, function: &str, bytes: usize| {
        let value = "x".repeat(bytes);
        client(&running, Some(token))
            .write(function, "add", &value, None)
            .map_err(|problem| problem.code)
            .err()
    };
    assert_eq!(write(TENANT, "acme:f", 100_001), Some(Code::TooLarge));
    assert_eq!(write(ADMIN, "routes", 500_000), None);
    // It takes up to 200,000 bytes of the tenant's 200 KiB, and the last byte does not come.
    let token = format!("Bearer {TENANT}");
    let head = [("authorization", &*token), ("content-type", "text/plain"), ("content-length", "100000")];
    let path = "/v1/functions/acme:f/handlers/add";
    let mut held = TcpStream::connect(running.tcp()).expect("it listens");
    held.write_all(&request("PUT", path, &head, b"")).expect("it reads");
    held.write_all(&[b'x'; 99_999]).expect("it reads");
    let whole = [("authorization", &*token), ("content-type", "text/plain")];
    let another = || {
        let stream = TcpStream::connect(running.tcp()).expect("it listens");
        exchange(stream, &request("PUT", path, &whole, &[b'x'; 90_000])).status
    };
    while another() != 503 {
        std::thread::yield_now();
    }
    // There is no such function, which is known once the body is read.
    assert_eq!(write("corp-0123456789abcdef", "corp:f", 90_000), Some(Code::NotFound));
    assert_eq!(write(ADMIN, "routes", 500_000), None);
    drop(held);
}

#[test]
fn some_connections_are_the_operators_alone() {
    // Any client over TCP may be a tenant.
    let limits =
        Limits { connections: 16, tcp_connections: 16, operator_connections: 8, ..Limits::default() };
    let running = Running::with("reserved", limits, Some(tokens()));
    let held: Vec<TcpStream> =
        (0..16).map(|_| TcpStream::connect(running.tcp()).expect("it listens")).collect();
    for _ in 0..10 {
        assert!(running.client().status().is_ok(), "an eighth is left");
    }
    let refused = begin(&running, "/v1/status", Some(ADMIN));
    assert_eq!(crate::read_reply(&mut &refused).status, 503);
    drop(held);
}

#[test]
fn loopback_without_a_token_may_only_read_and_only_by_its_name() {
    let running = Running::with("loopback", Limits::default(), Some(open()));
    assert!(client(&running, None).status().is_ok());
    assert_eq!(client(&running, None).suspend().expect_err("it may only read").code, Code::Forbidden);
    let stream = TcpStream::connect(running.tcp()).expect("it listens");
    let rebound = b"GET /v1/status HTTP/1.1\r\nhost: example.org\r\nconnection: close\r\n\r\n";
    assert_eq!(exchange(stream, rebound).status, 403);
}

#[test]
fn a_socket_can_be_for_reading_only() {
    let socket = place("read-only");
    let (tasks, _waiting) = Waiting::new();
    let config = ListenConfig { unix: Some(socket.clone()), unix_read_only: true, ..ListenConfig::default() };
    let _listener = Listener::start(config, tasks, Events::new(), None).expect("it listens");
    assert_eq!(ask(&socket, "POST", "/v1/stop", &[], b"").status, 403);
}

#[test]
fn ports_for_strangers_need_a_token_that_cannot_be_guessed() {
    let listen = |address: &str, tokens: Tokens| {
        let address = address.parse().expect("an address");
        start(ListenConfig { tcp: Some((address, tokens)), ..ListenConfig::default() })
    };
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "127.0.0.1:0", "[::1]:0"] {
        assert!(matches!(listen(address, Tokens::default()), Err(ListenError::NoToken(_))), "{address}");
    }
    assert!(matches!(listen("0.0.0.0:0", open()), Err(ListenError::NoToken(_))), "this machine alone");
    assert!(listen("127.0.0.1:0", open()).is_ok());
    assert!(listen("0.0.0.0:0", tokens()).is_ok());
    let only = |token: &str| Tokens { admin: Some(token.into()), ..Tokens::default() };
    for weak in ["", "short", "0123456789abcde\n", "ünicode-0123456789"] {
        assert!(matches!(listen("127.0.0.1:0", only(weak)), Err(ListenError::Token { .. })), "{weak}");
    }
    let same = Tokens { read_only: Some(ADMIN.into()), ..tokens() };
    assert!(matches!(listen("127.0.0.1:0", same), Err(ListenError::SameTokens)));
    let holder = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = holder.local_addr().expect("bound").to_string();
    assert!(matches!(listen(&taken, tokens()), Err(ListenError::Tcp { .. })));
}

/// Not a test: the process that the next test starts.
#[test]
fn holds_a_socket_while_its_input_is_open() {
    if let Some(path) = std::env::var_os("NB_TEST_HOLD") {
        let _listener =
            start(ListenConfig { unix: Some(path.into()), ..ListenConfig::default() }).expect("free");
        println!("\nholding");
        let _end = std::io::stdin().read_line(&mut String::new());
    }
}

#[test]
fn a_socket_in_use_names_the_process_that_uses_it() {
    use std::io::BufRead;
    let socket = place("other-process");
    let mut other = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "access::holds_a_socket_while_its_input_is_open", "--nocapture"])
        .env("NB_TEST_HOLD", &socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let output = std::io::BufReader::new(other.stdout.take().expect("piped"));
    assert!(output.lines().map_while(Result::ok).any(|line| line == "holding"));

    let listen = || start(ListenConfig { unix: Some(socket.clone()), ..ListenConfig::default() });
    let error = listen().expect_err("it is in use").to_string();
    assert!(error.contains(&format!("is in use by process {} (`", other.id())), "{error}");
    assert!(error.contains("--nocapture"), "{error}");
    // After a kill the socket is left over, and replaced.
    other.kill().expect("it runs");
    other.wait().expect("it ends");
    assert!(socket.exists());
    drop(listen().expect("nobody listens any more"));
    assert!(!socket.exists());
}

#[test]
fn clients_say_what_does_not_listen_and_what_does() {
    let running = Running::new("beside");
    let missing = running.socket().with_file_name("other.sock");
    let problem = Client::new(Address::Unix(missing.clone())).status().expect_err("nothing listens");
    assert_eq!(problem.code, Code::Unreachable);
    assert_eq!(problem.detail, format!("there is no socket `{}`", missing.display()));
    assert!(problem.help.expect("help").contains("test.sock"));
    let alone = place("alone");
    let problem = Client::new(Address::Unix(alone)).status().expect_err("nothing listens");
    assert_eq!(problem.help.as_deref(), Some("is it running? start it with `netbricks run FILE`"));
}

#[test]
fn a_user_who_is_no_tenant_any_more_does_not_become_the_operator() {
    const USER: u32 = 54_321;
    let grants = Grants::default();
    let running = Running::granting("peers", Limits::default(), None, grants.clone());
    let folder = running.socket().parent().expect("a folder").to_owned();
    for path in [folder.as_path(), running.socket()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("it is ours");
    }
    // As another user, which root alone can be.
    let asked = |path: &str| {
        let output = Command::new("setpriv")
            .args([
                &format!("--reuid={USER}"),
                "--clear-groups",
                "curl",
                "-s",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
            ])
            .arg("--unix-socket")
            .arg(running.socket())
            .arg(format!("http://localhost/v1/{path}"))
            .stderr(Stdio::null())
            .output();
        output
            .ok()
            .filter(|output| output.status.success())
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(before) = asked("status") else {
        eprintln!("skipped: asking as another user needs root, setpriv and curl");
        return;
    };
    assert_eq!(before, "200", "without tenants, the socket's permissions decide");
    let grant = |users: &[u32]| Grant { tenant: "acme".into(), users: users.to_vec(), token: None };
    grants.set(vec![grant(&[USER])]);
    assert_eq!((asked("tenants").as_deref(), asked("status").as_deref()), (Some("200"), Some("403")));
    for left in [vec![grant(&[])], Vec::new()] {
        grants.set(left);
        assert_eq!((asked("tenants").as_deref(), asked("status").as_deref()), (Some("403"), Some("403")));
    }
    assert!(running.client().status().is_ok(), "the user of the dataplane goes on");
}
