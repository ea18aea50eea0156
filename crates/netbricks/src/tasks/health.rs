//! Health checks of `load-balancer`'s servers: a connection, a page, or an echo.
//!
//! Each check has a thread of its own for at most its timeout. So a server that never answers holds up no other.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use netbricks_core::control_task::News;
use netbricks_core::packet::checksum;
use netbricks_core::{ControlTask, HandlerCaller};
use netbricks_functions::load_balancer::{Health, LoadBalancerConfig, Server};
use rustix::net::{AddressFamily, SocketType, ipproto, socket};

/// The time between two looks at answers.
const LOOK: Duration = Duration::from_millis(20);
/// The time between two looks at which servers there are.
const LIST: Duration = Duration::from_millis(500);
/// The bytes of an answer's first line that are read.
const STATUS: usize = 64;

/// The checks of one function's servers.
pub(super) struct HealthChecks {
    config: LoadBalancerConfig,
    kind: Health,
    servers: BTreeMap<String, Checked>,
    listed: Option<Instant>,
    answers: (Sender<Answer>, Receiver<Answer>),
    /// Tells the echo requests of this process from those of others.
    sequence: u16,
}

/// A server, and its last checks.
struct Checked {
    server: Server,
    is_down: bool,
    /// Checks in a row that say otherwise.
    contrary: u32,
    next: Instant,
    is_running: bool,
}

struct Answer {
    name: String,
    well: Result<(), String>,
}

impl HealthChecks {
    pub(super) fn new(kind: Health, config: &LoadBalancerConfig) -> Self {
        let (servers, answers) = (BTreeMap::new(), channel());
        Self { config: config.clone(), kind, servers, listed: None, answers, sequence: 0 }
    }

    /// Learns which servers there are, also those that were added since, and which count as down.
    fn list(&mut self, handlers: &mut dyn HandlerCaller, now: Instant) {
        if self.listed.is_some_and(|listed| now.duration_since(listed) < LIST) {
            return;
        }
        let Ok(answers) = handlers.read("servers", "") else { return };
        self.listed = Some(now);
        let mut before = std::mem::take(&mut self.servers);
        for line in answers.iter().flat_map(|answer| answer.lines()) {
            let Some((server, state)) = line.rsplit_once(' ') else { continue };
            let Ok(server) = server.parse::<Server>() else { continue };
            let known = before.remove(&server.name).filter(|known| known.server.address == server.address);
            let is_down = state == "down";
            let checked = match known {
                // An operator may have said something else meanwhile.
                Some(known) if known.is_down == is_down => Checked { server: server.clone(), ..known },
                _ => Checked { server: server.clone(), is_down, contrary: 0, next: now, is_running: false },
            };
            self.servers.insert(server.name, checked);
        }
    }

    /// Begins the checks that are due.
    fn begin(&mut self, now: Instant) {
        let timeout = Duration::from_nanos(self.config.health_timeout.nanoseconds());
        let interval = Duration::from_nanos(self.config.health_interval.nanoseconds());
        for (name, checked) in
            self.servers.iter_mut().filter(|(_, checked)| !checked.is_running && checked.next <= now)
        {
            checked.next = now + interval;
            let Some(address) = checked.server.address else { continue };
            let port = self.config.checked_port(&checked.server);
            self.sequence = self.sequence.wrapping_add(1);
            let (kind, path, sequence) = (self.kind, self.config.health_path.clone(), self.sequence);
            let (name, answers) = (name.clone(), self.answers.0.clone());
            let begun = std::thread::Builder::new().name(format!("check {name}")).spawn(move || {
                let well = check(kind, address, port, &path, sequence, timeout);
                // Nothing waits for it any more where the task has ended.
                let _gone = answers.send(Answer { name, well });
            });
            checked.is_running = begun.is_ok();
        }
    }

    /// Counts answers, and says which servers are down and which are well again.
    fn end(&mut self, handlers: &mut dyn HandlerCaller) {
        while let Ok(Answer { name, well }) = self.answers.1.try_recv() {
            let Some(checked) = self.servers.get_mut(&name) else { continue };
            checked.is_running = false;
            if well.is_ok() != checked.is_down {
                checked.contrary = 0;
                continue;
            }
            checked.contrary += 1;
            let needed = if checked.is_down { self.config.rise } else { self.config.fall };
            if checked.contrary < needed {
                continue;
            }
            let state = if well.is_ok() { "up" } else { "down" };
            if handlers.write("health", &format!("{name} {state}")).is_err() {
                // It is asked again after the next check.
                continue;
            }
            (checked.is_down, checked.contrary) = (!checked.is_down, 0);
            match well {
                Ok(()) => handlers.tell(News::Info, &format!("server `{name}` is up")),
                Err(why) => handlers.tell(News::Warning, &format!("server `{name}` is down: {why}")),
            }
        }
    }
}

impl ControlTask for HealthChecks {
    fn run(&mut self, handlers: &mut dyn HandlerCaller, now: Instant) -> Option<Duration> {
        self.list(handlers, now);
        self.begin(now);
        self.end(handlers);
        Some(LOOK)
    }
}

/// Checks a server; the error says what was wrong.
fn check(
    kind: Health,
    address: IpAddr,
    port: Option<u16>,
    path: &str,
    sequence: u16,
    timeout: Duration,
) -> Result<(), String> {
    let place = || Ok::<_, String>(SocketAddr::new(address, port.ok_or("it has no port")?));
    let until = Instant::now() + timeout;
    let tried = match kind {
        Health::Tcp => TcpStream::connect_timeout(&place()?, timeout).map(drop),
        Health::Http => return page(place()?, path, until),
        Health::Icmp => echo(address, sequence, until),
    };
    tried.map_err(|error| error.to_string())
}

fn left(until: Instant) -> std::io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(std::io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Asks for a page.
fn page(place: SocketAddr, path: &str, until: Instant) -> Result<(), String> {
    let ask = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&place, left(until)?)?;
        stream.set_write_timeout(Some(left(until)?))?;
        stream.write_all(
            format!("GET {path} HTTP/1.0\r\nHost: {place}\r\nConnection: close\r\n\r\n").as_bytes(),
        )?;
        let mut line = Vec::new();
        let mut bytes = [0; STATUS];
        // An answer may come byte by byte: the time for all of it is one.
        while line.len() < STATUS && !line.contains(&b'\n') {
            stream.set_read_timeout(Some(left(until)?))?;
            match stream.read(&mut bytes)? {
                0 => break,
                count => line.extend(&bytes[..count]),
            }
        }
        Ok(line)
    };
    let line = ask().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&line);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    let (version, status) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match status.as_bytes().first() {
        Some(b'2' | b'3') if version.starts_with("HTTP/") && status.len() == 3 => Ok(()),
        _ => Err(format!("its answer is `{}`", text.lines().next().unwrap_or_default().escape_default())),
    }
}

/// Sends an echo request and waits for the answer.
fn echo(address: IpAddr, sequence: u16, until: Instant) -> std::io::Result<()> {
    let (family, protocol) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    // A datagram socket needs a group that the system allows (net.ipv4.ping_group_range), a raw one privileges.
    let descriptor: OwnedFd = socket(family, SocketType::DGRAM, Some(protocol))
        .or_else(|_| socket(family, SocketType::RAW, Some(protocol)))?;
    let socket = UdpSocket::from(descriptor);
    socket.connect(SocketAddr::new(address, 0))?;
    let kinds: [u8; 2] = if address.is_ipv4() { [8, 0] } else { [128, 129] };
    let mark = std::process::id().to_be_bytes();
    let mut request = vec![kinds[0], 0, 0, 0, mark[2], mark[3]];
    request.extend(sequence.to_be_bytes());
    request.extend([&b"netbricks"[..], &mark].concat());
    if address.is_ipv4() {
        // The kernel sums ICMPv6 itself, which has a pseudo-header.
        let sum = checksum::internet(&request);
        request[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    socket.send(&request)?;
    let mut answer = [0; 1_500];
    loop {
        socket.set_read_timeout(Some(left(until)?))?;
        let count = socket.recv(&mut answer)?;
        let mut message = &answer[..count];
        // A raw socket shows the IPv4 header.
        if address.is_ipv4() && message.first().is_some_and(|first| first >> 4 == 4) {
            let length = usize::from(message[0] & 15) * 4;
            message = message.get(length..).unwrap_or_default();
        }
        if message.first() == Some(&kinds[1]) && message.get(6..) == request.get(6..) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Handlers of a balancer, as far as checks use them.
    struct Fake {
        servers: BTreeMap<String, (String, bool)>,
        news: Vec<String>,
    }

    impl HandlerCaller for Fake {
        fn read(&mut self, handler: &str, _: &str) -> Result<Vec<String>, String> {
            assert_eq!(handler, "servers");
            let line = |(server, is_down): &(String, bool)| {
                format!("{server} {}\n", if *is_down { "down" } else { "up" })
            };
            Ok(vec![self.servers.values().map(line).collect()])
        }
        fn write(&mut self, handler: &str, argument: &str) -> Result<Vec<String>, String> {
            assert_eq!(handler, "health");
            let (name, state) = argument.split_once(' ').expect("a name and a state");
            self.servers.get_mut(name).expect("a server").1 = state == "down";
            Ok(vec!["done".into()])
        }
        fn tell(&mut self, _: News, message: &str) {
            self.news.push(message.to_owned());
        }
        fn is_ending(&self) -> bool {
            false
        }
    }

    fn checks(health: &str, servers: &[(&str, SocketAddr)]) -> (HealthChecks, Fake) {
        let list: Vec<String> = servers.iter().map(|(name, place)| format!("\"{name} {place}\"")).collect();
        let text = format!(
            "servers = [{}]\naddresses = [\"192.0.2.1\"]\nport = 80\nmode = \"nat\"\nhealth = \"{health}\"\nfall = 2\nrise = 1\n\
             health_interval = \"5 ms\"\nhealth_timeout = \"2 s\"\n",
            list.join(", ")
        );
        let config: LoadBalancerConfig = toml::from_str(&text).expect("settings");
        let servers =
            servers.iter().map(|(name, place)| ((*name).to_owned(), (format!("{name} {place} 1"), false)));
        let fake = Fake { servers: servers.collect(), news: Vec::new() };
        (HealthChecks::new(config.health.expect("given"), &config), fake)
    }

    /// Runs the checks until the servers are in these states.
    fn until(checks: &mut HealthChecks, fake: &mut Fake, down: &[bool]) {
        let end = Instant::now() + Duration::from_secs(60);
        while fake.servers.values().map(|(_, is_down)| *is_down).ne(down.iter().copied()) {
            assert!(Instant::now() < end, "{:?} {:?}", fake.servers, fake.news);
            let next = checks.run(fake, Instant::now()).expect("it goes on");
            std::thread::sleep(next.min(Duration::from_millis(5)));
        }
    }

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = listener.local_addr().expect("it is bound");
        (listener, place)
    }

    #[test]
    fn a_port_that_closes_is_down_and_up_again_when_it_opens() {
        let ((first, one), (second, other)) = (listener(), listener());
        let (mut checks, mut fake) = checks("tcp", &[("a", one), ("b", other)]);
        until(&mut checks, &mut fake, &[false, false]);
        drop(second);
        until(&mut checks, &mut fake, &[false, true]);
        assert!(fake.news[0].starts_with("server `b` is down: "), "{:?}", fake.news);
        let _again = TcpListener::bind(other).expect("the port is free again");
        until(&mut checks, &mut fake, &[false, false]);
        assert_eq!(fake.news[1..], ["server `b` is up"]);
        drop(first);
    }

    #[test]
    fn a_page_must_be_well_and_a_server_that_never_answers_holds_up_no_other() {
        let ((good, one), (silent, other)) = (listener(), listener());
        let is_well = Arc::new(AtomicBool::new(true));
        let told = is_well.clone();
        std::thread::spawn(move || {
            for stream in good.incoming().flatten() {
                let mut stream = stream;
                let mut request = [0; 500];
                let count = stream.read(&mut request).unwrap_or(0);
                assert!(request[..count].starts_with(b"GET / HTTP/1.0\r\n"));
                let status = if told.load(Ordering::SeqCst) { "204 No Content" } else { "503 Busy" };
                let _sent = stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes());
            }
        });
        let (mut checks, mut fake) = checks("http", &[("a", one), ("b", other)]);
        // The silent one takes connections, by its kernel, and says nothing.
        until(&mut checks, &mut fake, &[false, true]);
        is_well.store(false, Ordering::SeqCst);
        until(&mut checks, &mut fake, &[true, true]);
        assert!(fake.news.iter().any(|news| news.contains("503")), "{:?}", fake.news);
        is_well.store(true, Ordering::SeqCst);
        until(&mut checks, &mut fake, &[false, true]);
        drop(silent);
    }

    #[test]
    fn an_echo_is_answered_here_and_nowhere_else() {
        let until = || Instant::now() + Duration::from_secs(20);
        match echo(Ipv4Addr::LOCALHOST.into(), 7, until()) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: no ICMP socket without privileges");
                return;
            }
            answered => answered.expect("the loopback interface answers"),
        }
        // Where there is IPv6 at all.
        if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            echo(Ipv6Addr::LOCALHOST.into(), 8, until()).expect("the loopback interface answers");
        }
        // No host has an address of TEST-NET-1.
        let short = Instant::now() + Duration::from_millis(50);
        assert!(echo(Ipv4Addr::new(192, 0, 2, 77).into(), 9, short).is_err());
    }
}
