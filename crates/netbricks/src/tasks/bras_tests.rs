//! Tests against a server in the test, and against FreeRADIUS where it is installed.
//!
//! The requests come from the real function, whose node a scripted subscriber talks to.

use std::io::Write as _;
use std::net::UdpSocket;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{DetachedContext, Node, Poll, Worker};

use super::*;

const SECRET: &str = "a-secret-of-both";
/// The concentrator's Ethernet address, and the subscriber's.
const AC: [u8; 6] = [2, 0, 0, 0, 0xac, 1];
const MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];

/// A folder of this test's files; it is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("netbricks-radius-{name}-{}", std::process::id()));
        let _gone = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    /// Writes a file that only its owner may read.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

/// The function's node, and a subscriber in front of it, as far as the password.
struct Line {
    node: Box<dyn Node>,
    cx: DetachedContext,
    pool: Pool,
    id: u16,
    news: Vec<String>,
    /// PPP packets to the subscriber: protocol and bytes.
    heard: Vec<(u16, Vec<u8>)>,
}

impl HandlerCaller for Line {
    fn read(&mut self, handler: &str, argument: &str) -> Result<Vec<String>, String> {
        self.node.call(handler, argument).map(|answer| vec![answer]).map_err(|error| error.to_string())
    }
    fn write(&mut self, handler: &str, argument: &str) -> Result<Vec<String>, String> {
        self.read(handler, argument)
    }
    fn tell(&mut self, _: News, message: &str) {
        self.news.push(message.to_owned());
    }
    fn is_ending(&self) -> bool {
        false
    }
}

fn control(code: u8, id: u8, data: &[u8]) -> Vec<u8> {
    let [high, low] = (4 + data.len() as u16).to_be_bytes();
    [&[code, id, high, low], data].concat()
}

impl Line {
    fn new(settings: &str) -> Self {
        let registry = crate::standard();
        let blueprint =
            registry.get("bras").unwrap().blueprint(settings).unwrap_or_else(|error| panic!("{error}"));
        let pool = Pool::builder().frames(512).build().unwrap();
        let node = blueprint.build(&Worker::new(0, 7, pool.clone())).unwrap();
        let mut cx = DetachedContext::new(pool.clone());
        cx.advance(1_000_000_000);
        Self { node, cx, pool, id: 0, news: Vec::new(), heard: Vec::new() }
    }

    /// Gives the node a frame of the subscriber; its answers are heard.
    fn push(&mut self, kind: u16, code: u8, id: u16, payload: &[u8]) -> Vec<Vec<u8>> {
        let [[a, b], [c, d]] = [id, payload.len() as u16].map(u16::to_be_bytes);
        let to = if code == 9 { [0xff; 6] } else { AC };
        let frame = [&to[..], &MAC, &kind.to_be_bytes(), &[0x11, code, a, b, c, d], payload].concat();
        let mut batch = Batch::new();
        assert!(batch.push(self.pool.packet(&frame).unwrap()).is_ok());
        self.node.process(0, &mut batch, &mut self.cx);
        self.hear(&mut batch)
    }

    fn ppp(&mut self, protocol: u16, packet: &[u8]) -> Vec<Vec<u8>> {
        self.push(0x8864, 0, self.id, &[&protocol.to_be_bytes(), packet].concat())
    }

    fn hear(&mut self, batch: &mut Batch) -> Vec<Vec<u8>> {
        let frames: Vec<Vec<u8>> = batch.drain().map(|packet| packet.data().to_vec()).collect();
        for frame in frames.iter().filter(|frame| frame[12..14] == [0x88, 0x64]) {
            let len = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
            self.heard.push((u16::from_be_bytes([frame[20], frame[21]]), frame[22..20 + len].to_vec()));
        }
        frames
    }

    /// Lets the node take its turn, at this time.
    fn turn(&mut self) {
        let mut batch = Batch::new();
        let now = self.cx.now() + 1_000_000;
        self.cx.advance(now);
        assert!(matches!(self.node.poll(&mut batch, &mut self.cx), Poll::Until(_)));
        self.hear(&mut batch);
    }

    /// Opens a session up to LCP, and shows a password by PAP or CHAP.
    fn dial(&mut self, protocol: u16, user: &str, password: &str) {
        let offer = self.push(0x8863, 9, 0, &[1, 1, 0, 0]);
        let cookie = offer[0].windows(4).position(|tag| tag == [1, 4, 0, 16]).unwrap();
        let tags = [&[1, 1, 0, 0][..], &offer[0][cookie..cookie + 20]].concat();
        let answers = self.push(0x8863, 0x19, 0, &tags);
        self.id = u16::from_be_bytes([answers[0][16], answers[0][17]]);
        let (_, request) = self.heard.last().unwrap().clone();
        self.ppp(0xc021, &control(1, 1, &[]));
        if request.windows(2).any(|bytes| bytes == protocol.to_be_bytes()) {
            self.ppp(0xc021, &control(2, request[1], &request[4..]));
        } else {
            let [high, low] = protocol.to_be_bytes();
            self.ppp(0xc021, &control(3, request[1], &[3, 4, high, low]));
            let (_, request) = self.heard.last().unwrap().clone();
            self.ppp(0xc021, &control(2, request[1], &request[4..]));
        }
        let proof = match protocol {
            0xc023 => {
                let fields =
                    [&[user.len() as u8], user.as_bytes(), &[password.len() as u8], password.as_bytes()];
                control(1, 5, &fields.concat())
            }
            _ => {
                let (_, challenge) = self.heard.last().unwrap().clone();
                // MD5 comes from the server's own tests of the answer: here it is computed by the crate.
                let sum = response(challenge[1], password, &challenge[5..21]);
                control(2, challenge[1], &[&[16], &sum[..], user.as_bytes()].concat())
            }
        };
        self.heard.clear();
        self.ppp(protocol, &proof);
    }

    fn verdict(&self, protocol: u16) -> Option<u8> {
        self.heard.iter().find(|(number, _)| *number == protocol).map(|(_, packet)| packet[0])
    }
}

/// The response to a challenge (RFC 1994, section 4.1).
fn response(id: u8, password: &str, challenge: &[u8]) -> [u8; 16] {
    use md5::Digest as _;
    md5::Md5::new().chain_update([id]).chain_update(password).chain_update(challenge).finalize().into()
}

fn settings(folder: &Folder, servers: &[SocketAddr], more: &str) -> String {
    let secret = folder.write("secret", &format!("{SECRET}\n"));
    let servers: Vec<String> = servers.iter().map(|server| format!("\"{server}\"")).collect();
    format!(
        "access = \"a\"\ncore = \"c\"\naddress = \"10.0.0.1\"\nmac = \"02:00:00:00:ac:01\"\ngateway = \"02:00:00:00:00:01\"\n\
         pool = [\"10.0.1.0/24\"]\nsessions = 16\nradius = [{}]\nsecret = {secret:?}\n{more}",
        servers.join(", ")
    )
}

fn client(settings: &str) -> RadiusClient {
    let config: BrasConfig = toml::from_str(settings).unwrap();
    let secret = config.radius_secret().unwrap().unwrap();
    RadiusClient::new(&config, secret)
}

/// Runs the task until something is so.
fn until(client: &mut RadiusClient, line: &mut Line, is_so: impl Fn(&Line) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so(line) {
        assert!(Instant::now() < end, "{:?} {:?}", line.news, line.heard);
        let next = client.run(line, Instant::now()).expect("it goes on");
        line.turn();
        std::thread::sleep(next.min(Duration::from_millis(5)));
    }
}

/// A server in this test: answers each Access-Request as `decide` says, and accounting always.
fn serve(decide: impl Fn(&[u8]) -> Option<(u8, Vec<u8>)> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 4_096];
        while let Ok((len, from)) = socket.recv_from(&mut bytes) {
            let request = &bytes[..len];
            let Some((code, attributes)) = decide(request) else { continue };
            let _sent = socket.send_to(&signed(request, code, &attributes), from);
        }
    });
    address
}

/// An answer, signed as RFC 2865 and RFC 2869 say.
fn signed(request: &[u8], code: u8, attributes: &[u8]) -> Vec<u8> {
    use hmac::{KeyInit as _, Mac as _};
    use md5::Digest as _;
    let mut body = [&[80, 18][..], &[0; 16], attributes].concat();
    let head = [&[code, request[1]], &((20 + body.len()) as u16).to_be_bytes()[..]].concat();
    let mut mac = hmac::Hmac::<md5::Md5>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(&[&head[..], &request[4..20], &body].concat());
    body[2..18].copy_from_slice(&mac.finalize().into_bytes());
    let sum = md5::Md5::digest([&head[..], &request[4..20], &body, SECRET.as_bytes()].concat());
    [&head[..], &sum, &body].concat()
}

/// The value of an attribute.
fn attribute(packet: &[u8], kind: u8) -> Option<Vec<u8>> {
    let mut rest = &packet[20..];
    while let [found, len, ..] = rest {
        if *found == kind {
            return Some(rest[2..usize::from(*len)].to_vec());
        }
        rest = &rest[usize::from(*len)..];
    }
    None
}

#[test]
fn a_server_lets_in_with_an_address_and_the_password_is_hidden_on_the_way() {
    let folder = Folder::new("accept");
    let server = serve(|request| {
        assert!(!request.windows(11).any(|bytes| bytes == b"open-sesame"), "it is hidden");
        assert_eq!(attribute(request, 31).unwrap(), b"02:00:00:00:01:01");
        assert!(attribute(request, 80).is_some());
        (attribute(request, 1).unwrap() == b"alice").then(|| (2, vec![8, 6, 10, 9, 0, 7]))
    });
    let settings = settings(&folder, &[server], "accounting_port = 0\n");
    let (mut client, mut line) = (client(&settings), Line::new(&settings));
    line.dial(0xc023, "alice", "open-sesame");
    assert_eq!(line.verdict(0xc023), None, "the server is not asked yet");
    until(&mut client, &mut line, |line| line.verdict(0xc023).is_some());
    assert_eq!(line.verdict(0xc023), Some(2));
    assert!(line.read("sessions", "").unwrap()[0].contains(" alice 10.9.0.7 "));
    assert!(line.news.is_empty(), "{:?}", line.news);
}

#[test]
fn request_authenticators_never_repeat_though_the_seed_does() {
    let folder = Folder::new("authenticators");
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let server = serve({
        let seen = seen.clone();
        move |request| {
            seen.lock().unwrap().push(request[4..20].to_vec());
            Some((2, Vec::new()))
        }
    });
    let settings = settings(&folder, &[server], "accounting_port = 0\n");
    for _ in 0..2 {
        // Equal seeds and clocks: the function's requests are equal.
        let (mut client, mut line) = (client(&settings), Line::new(&settings));
        line.dial(0xc023, "alice", "open-sesame");
        until(&mut client, &mut line, |line| line.verdict(0xc023).is_some());
        assert_eq!(line.verdict(0xc023), Some(2));
    }
    let seen = seen.lock().unwrap();
    assert!(seen.len() == 2 && seen[0] != seen[1], "{seen:?}");
}

#[test]
fn a_refusal_comes_through_and_an_answer_under_another_secret_is_not_believed() {
    let folder = Folder::new("reject");
    let server = serve(|_| Some((3, Vec::new())));
    let text = settings(&folder, &[server], "accounting_port = 0\n");
    let (mut client, mut line) = (client(&text), Line::new(&text));
    line.dial(0xc223, "alice", "x");
    until(&mut client, &mut line, |line| line.verdict(0xc223).is_some());
    assert_eq!(line.verdict(0xc223), Some(4));
    let forged = UdpSocket::bind("127.0.0.1:0").unwrap();
    let text = settings(&folder, &[forged.local_addr().unwrap()], "accounting_port = 0\n");
    let (mut client, mut line) = (super::tests::client(&text), Line::new(&text));
    line.dial(0xc023, "alice", "x");
    client.run(&mut line, Instant::now());
    let mut bytes = [0; 4_096];
    let (len, from) = forged.recv_from(&mut bytes).unwrap();
    let mut answer = signed(&bytes[..len], 2, &[]);
    answer[4] ^= 1;
    forged.send_to(&answer, from).unwrap();
    until(&mut client, &mut line, |line| !line.news.is_empty());
    assert!(line.news[0].contains("not signed with the secret"), "{:?}", line.news);
    assert_eq!(line.verdict(0xc023), None);
}

#[test]
fn a_server_that_never_answers_is_passed_over() {
    let folder = Folder::new("silent");
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = serve(|_| Some((2, Vec::new())));
    let more = "accounting_port = 0\nradius_timeout = \"1 s\"\nradius_tries = 2\n";
    let settings = settings(&folder, &[silent.local_addr().unwrap(), other], more);
    let (mut client, mut line) = (client(&settings), Line::new(&settings));
    line.dial(0xc023, "alice", "x");
    until(&mut client, &mut line, |line| line.verdict(0xc023).is_some());
    assert_eq!(line.verdict(0xc023), Some(2));
    assert!(line.news[0].ends_with("does not answer"), "{:?}", line.news);
    let mut bytes = [0; 4_096];
    let first = silent.recv(&mut bytes).unwrap();
    let copy = bytes[..first].to_vec();
    let second = silent.recv(&mut bytes).unwrap();
    assert_eq!(copy, bytes[..second], "it was asked twice, by the same packet");
}

#[test]
fn a_server_that_is_dead_is_asked_by_one_request_now_and_then() {
    let folder = Folder::new("dead");
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let asked = || {
        let mut bytes = [0; 4_096];
        std::iter::from_fn(|| silent.recv(&mut bytes).ok()).count()
    };
    let other = serve(|_| Some((2, Vec::new())));
    let more = "accounting_port = 0\nradius_timeout = \"100 ms\"\nradius_tries = 2\n";
    let settings = settings(&folder, &[silent.local_addr().unwrap(), other], more);
    let mut client = client(&settings);
    // The clock of the task is the test's.
    let mut now = Instant::now();
    let mut dial = |now: &mut Instant, timeouts: u32| {
        let mut line = Line::new(&settings);
        line.dial(0xc023, "alice", "x");
        for _ in 0..timeouts {
            client.run(&mut line, *now);
            *now += Duration::from_millis(100);
        }
        let end = Instant::now() + Duration::from_secs(60);
        while line.verdict(0xc023).is_none() {
            assert!(Instant::now() < end, "{:?}", line.news);
            client.run(&mut line, *now);
            line.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
        line.verdict(0xc023)
    };
    assert_eq!(dial(&mut now, 2), Some(2));
    assert_eq!(asked(), 2, "all tries");
    assert_eq!(dial(&mut now, 0), Some(2));
    assert_eq!(asked(), 0, "the next server is the first");
    now += DEAD;
    assert_eq!(dial(&mut now, 1), Some(2));
    assert_eq!(asked(), 1, "one try tells that it is still dead");
    assert_eq!(dial(&mut now, 0), Some(2));
    assert_eq!(asked(), 0);
}

/// A function with so many requests of a kind, whose handler's answers are kept.
struct Many {
    kind: &'static str,
    count: u64,
    arguments: Vec<String>,
    answers: String,
    news: Vec<String>,
}

impl HandlerCaller for Many {
    fn read(&mut self, _: &str, _: &str) -> Result<Vec<String>, String> {
        Err("nothing is read".into())
    }
    fn write(&mut self, handler: &str, argument: &str) -> Result<Vec<String>, String> {
        if handler == "answer" {
            self.answers += argument;
            return Ok(vec![String::new()]);
        }
        self.arguments.push(argument.to_owned());
        if argument == "access" && self.kind != "access" {
            return Ok(vec![String::new()]);
        }
        let code = if self.kind == "access" { 1 } else { 4 };
        let lines = (0..std::mem::take(&mut self.count))
            .map(|number| format!("{} {number:x} {number:x} {code:02x}000014{:032x}\n", self.kind, 7));
        Ok(vec![lines.collect()])
    }
    fn tell(&mut self, _: News, message: &str) {
        self.news.push(message.to_owned());
    }
    fn is_ending(&self) -> bool {
        false
    }
}

/// A task whose two servers never answer, and a function with requests for it.
fn silent_pair(name: &str, kind: &'static str, count: u64) -> (RadiusClient, Many, [UdpSocket; 2]) {
    let folder = Folder::new(name);
    let silent = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let servers = silent.each_ref().map(|socket| socket.local_addr().unwrap());
    let more = "radius_timeout = \"1 s\"\nradius_tries = 1\n";
    let client = client(&settings(&folder, &servers, more));
    let many = Many { kind, count, arguments: Vec::new(), answers: String::new(), news: Vec::new() };
    (client, many, silent)
}

#[test]
fn requests_wait_for_identifiers_and_each_is_answered_in_the_end() {
    let (mut client, mut many, _silent) = silent_pair("full", "access", 700);
    let start = Instant::now();
    client.run(&mut many, start);
    let on_their_way = |client: &RadiusClient| {
        let count = |server: &Server| server.pending.iter().flatten().count();
        client.servers[0].iter().map(count).collect::<Vec<_>>()
    };
    assert_eq!(on_their_way(&client), [256, 256], "the second server takes what the first cannot");
    assert_eq!(client.backlog[0].len(), 188);
    client.run(&mut many, start + Duration::from_secs(1));
    assert_eq!(many.answers, "", "no request was sent to both servers yet");
    // Older requests than subscribers wait for are given up.
    client.run(&mut many, start + Duration::from_secs(8));
    client.run(&mut many, start + Duration::from_secs(9));
    assert_eq!(many.answers.matches(" unanswered\n").count(), 700);
    assert_eq!((on_their_way(&client), client.backlog[0].len()), (vec![0, 0], 0));
}

#[test]
fn reports_that_no_server_takes_are_counted_and_more_are_not_taken() {
    let (mut client, mut many, _silent) = silent_pair("lost", "accounting", 3_000);
    let mut now = Instant::now();
    client.run(&mut many, now);
    assert_eq!(client.backlog[1].len(), 3_000 - 512);
    client.run(&mut many, now);
    assert_eq!(many.arguments, ["", "access"], "reports wait where they are");
    for _ in 0..40 {
        now += Duration::from_secs(1);
        client.run(&mut many, now);
    }
    assert_eq!(many.answers.matches("lost ").count(), 3_000);
    assert!(many.news.last().unwrap().contains("2048 are lost"), "{:?}", many.news);
}

#[test]
fn where_no_server_answers_the_subscriber_is_refused() {
    let folder = Folder::new("none");
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let more = "accounting_port = 0\nradius_timeout = \"100 ms\"\nradius_tries = 1\n";
    let settings = settings(&folder, &[silent.local_addr().unwrap()], more);
    let (mut client, mut line) = (client(&settings), Line::new(&settings));
    line.dial(0xc023, "alice", "x");
    until(&mut client, &mut line, |line| line.verdict(0xc023).is_some());
    assert_eq!(line.verdict(0xc023), Some(3));
}

struct Ended(Child);
impl Drop for Ended {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// FreeRADIUS with two users on this port; `None` where it is not installed.
fn free_radius(folder: &Folder, port: u16) -> Option<Ended> {
    let modules = ["/etc/freeradius/3.0", "/etc/raddb"].into_iter().find(|path| Path::new(path).exists())?;
    let users = "alice Cleartext-Password := \"open-sesame\"\n\tFramed-IP-Address = 10.9.0.7,\n\tSession-Timeout = 3600\n\
                 bob Cleartext-Password := \"x\"\n";
    let users = folder.write("users", users);
    let home = folder.0.display();
    let configuration = format!(
        "prefix = {home}\nlogdir = {home}\nrun_dir = {home}\nraddbdir = {modules}\nlibdir = /usr/lib/freeradius\n\
         log {{\n destination = stdout\n}}\nsecurity {{\n max_attributes = 200\n reject_delay = 0\n}}\n\
         client here {{\n ipaddr = 127.0.0.1\n secret = {SECRET}\n require_message_authenticator = yes\n}}\n\
         modules {{\n pap {{\n }}\n chap {{\n }}\n files {{\n  usersfile = {users}\n }}\n detail {{\n  filename = {home}/detail\n }}\n}}\n\
         server here {{\n listen {{\n  type = auth\n  ipaddr = 127.0.0.1\n  port = {port}\n }}\n \
         listen {{\n  type = acct\n  ipaddr = 127.0.0.1\n  port = {}\n }}\n \
         authorize {{\n  chap\n  files\n  pap\n }}\n \
         authenticate {{\n  Auth-Type PAP {{\n   pap\n  }}\n  Auth-Type CHAP {{\n   chap\n  }}\n }}\n \
         post-auth {{\n  update reply {{\n   Message-Authenticator := 0x00\n  }}\n  \
         Post-Auth-Type REJECT {{\n   update reply {{\n    Message-Authenticator := 0x00\n   }}\n  }}\n }}\n \
         accounting {{\n  detail\n }}\n}}\n",
        port + 1,
        users = users.display(),
    );
    folder.write("radiusd.conf", &configuration);
    let log = std::fs::File::create(folder.0.join("log")).ok()?;
    let started = Command::new("freeradius")
        .args(["-f", "-l", "stdout", "-d"])
        .arg(&folder.0)
        .stdout(log.try_clone().ok()?)
        .stderr(log)
        .stdin(Stdio::null())
        .spawn();
    started.ok().map(Ended)
}

#[test]
fn free_radius_lets_in_refuses_and_counts() {
    let folder = Folder::new("freeradius");
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port() & !1;
    let Some(mut server) = free_radius(&folder, port) else {
        eprintln!("skipped: no freeradius (Debian: freeradius)");
        return;
    };
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    // It takes a moment to begin: until then, requests are sent again.
    let more = format!("accounting_port = {}\nradius_timeout = \"500 ms\"\nradius_tries = 100\n", port + 1);
    let settings = settings(&folder, &[address], &more);
    let said = || std::fs::read_to_string(folder.0.join("log")).unwrap_or_default();
    for (protocol, user, password, verdict) in [
        (0xc023, "alice", "open-sesame", 2),
        (0xc223, "alice", "open-sesame", 3),
        (0xc023, "alice", "guess", 3),
        (0xc223, "bob", "guess", 4),
    ] {
        let (mut client, mut line) = (client(&settings), Line::new(&settings));
        line.dial(protocol, user, password);
        let end = Instant::now() + Duration::from_secs(60);
        while line.verdict(protocol).is_none() {
            assert!(server.0.try_wait().unwrap().is_none(), "it ended: {}", said());
            assert!(Instant::now() < end, "{:?} {}", line.news, said());
            let next = client.run(&mut line, Instant::now()).expect("it goes on");
            line.turn();
            std::thread::sleep(next);
        }
        assert_eq!(line.verdict(protocol), Some(verdict), "{user} {password}: {}", said());
        if verdict == 2 {
            assert!(line.read("sessions", "").unwrap()[0].contains(" alice 10.9.0.7 "));
            // IPCP opens, so that the session is reported.
            let request = line
                .heard
                .iter()
                .find(|(number, packet)| *number == 0x8021 && packet[0] == 1)
                .unwrap()
                .1
                .clone();
            line.ppp(0x8021, &control(2, request[1], &request[4..]));
            line.ppp(0x8021, &control(1, 1, &[3, 6, 10, 9, 0, 7]));
            line.push(0x8863, 0xa7, line.id, &[]);
            let detail = || std::fs::read_to_string(folder.0.join("detail")).unwrap_or_default();
            while !detail().contains("Acct-Status-Type = Stop") {
                assert!(Instant::now() < end, "{} {}", detail(), said());
                let next = client.run(&mut line, Instant::now()).expect("it goes on");
                std::thread::sleep(next);
            }
            let detail = detail();
            for expected in [
                "Acct-Status-Type = Start",
                "Framed-IP-Address = 10.9.0.7",
                "Acct-Terminate-Cause = User-Request",
            ] {
                assert!(detail.contains(expected), "{expected}: {detail}");
            }
        }
        assert!(line.news.iter().all(|news| !news.contains("believed")), "{:?}", line.news);
    }
}
