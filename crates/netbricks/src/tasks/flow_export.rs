//! Sends the flow records of `monitor` to a collector, by IPFIX over UDP (RFC 7011, section 10.3).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use netbricks_core::control_task::News;
use netbricks_core::{ControlTask, HandlerCaller};
use netbricks_functions::monitor::MonitorConfig;
use netbricks_functions::monitor::ipfix::{Exporter, FlowRecord, read_line};

/// The time between two looks at the records that wait.
const LOOK: Duration = Duration::from_millis(200);
/// The time after which a socket that could not be opened is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The exporting process of one function.
pub(super) struct FlowExport {
    collector: SocketAddr,
    exporter: Exporter,
    /// How often the templates are sent again, and when they were sent last.
    refresh: Duration,
    sent: Option<Instant>,
    socket: Option<UdpSocket>,
    /// Whether the operator was told that the collector cannot be reached.
    told: bool,
}

impl FlowExport {
    pub(super) fn new(collector: SocketAddr, config: &MonitorConfig) -> Self {
        let refresh = Duration::from_nanos(config.templates.nanoseconds());
        let exporter = Exporter::new(config.domain);
        Self { collector, exporter, refresh, sent: None, socket: None, told: false }
    }

    /// Opens the socket. So only replies from the collector reach it, and errors about it are known.
    fn open(&self) -> std::io::Result<UdpSocket> {
        let here: SocketAddr = match self.collector {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(here)?;
        socket.connect(self.collector)?;
        Ok(socket)
    }

    /// Sends a message; tells once where that fails, and once where it works again.
    ///
    /// A datagram that was refused on its way back is sent again: the error was about the one before.
    fn send(&mut self, message: &[u8], handlers: &mut dyn HandlerCaller) {
        let Some(socket) = &self.socket else { return };
        let sent = socket.send(message).or_else(|_| socket.send(message));
        match sent {
            Ok(_) if self.told => {
                self.told = false;
                let now = format!("the collector at {} is reached again", self.collector);
                handlers.tell(News::Info, &now);
            }
            Err(error) if !self.told => {
                self.told = true;
                let lost = format!("flow records do not reach the collector at {}: {error}", self.collector);
                handlers.tell(News::Warning, &lost);
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// The records of all workers' answers, and how many were lost in all.
fn read(answers: &[String]) -> (Vec<FlowRecord>, u64) {
    let mut lost = 0;
    let mut records = Vec::new();
    for answer in answers {
        let mut lines = answer.lines();
        lost += lines.next().and_then(|line| line.parse().ok()).unwrap_or(0);
        records.extend(lines.filter_map(read_line));
    }
    (records, lost)
}

impl ControlTask for FlowExport {
    fn run(&mut self, handlers: &mut dyn HandlerCaller, now: Instant) -> Option<Duration> {
        if self.socket.is_none() {
            match self.open() {
                Ok(socket) => self.socket = Some(socket),
                Err(error) => {
                    if !std::mem::replace(&mut self.told, true) {
                        let problem = format!("no socket to the collector at {}: {error}", self.collector);
                        handlers.tell(News::Warning, &problem);
                    }
                    return Some(AGAIN);
                }
            }
        }
        // Where no answer came, the records still wait, or this task is to end.
        let Ok(answers) = handlers.write("take_records", "") else { return Some(AGAIN) };
        let (records, lost) = read(&answers);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as u32);
        if self.sent.is_none_or(|sent| now.duration_since(sent) >= self.refresh) {
            self.sent = Some(now);
            let message = self.exporter.templates(time, lost);
            self.send(&message, handlers);
        }
        for message in self.exporter.messages(time, &records) {
            self.send(&message, handlers);
        }
        // More wait where some came.
        Some(if records.is_empty() { LOOK } else { Duration::ZERO })
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::commands::{chain, while_running};

    /// A collector in this test, which waits for messages.
    fn collector() -> (UdpSocket, u16) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let port = socket.local_addr().unwrap().port();
        (socket, port)
    }

    fn monitored(port: u16, more: &str) -> String {
        let table = format!(
            "[function.flows]\nuse = \"monitor\"\ncollector = \"127.0.0.1:{port}\"\nactive = \"50 ms\"\ntemplates = \"100 ms\"\ndomain = 77\n{more}"
        );
        chain("\"flows\"", &table)
    }

    fn number(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    /// The sets of a message, each with its number.
    fn sets(message: &[u8]) -> Vec<(u16, &[u8])> {
        assert_eq!((number(&message[..2]), number(&message[2..4])), (10, message.len() as u64));
        assert_eq!(number(&message[12..16]), 77, "the observation domain");
        let mut rest = &message[16..];
        let mut sets = Vec::new();
        while !rest.is_empty() {
            let length = number(&rest[2..4]) as usize;
            sets.push((number(&rest[..2]) as u16, &rest[4..length]));
            rest = &rest[length..];
        }
        sets
    }

    #[test]
    fn a_collector_gets_templates_again_and_again_and_records_in_sequence() {
        let (socket, port) = collector();
        while_running(&monitored(port, ""), move |_| {
            let (mut templates, mut expected, mut flows) = (0, None, std::collections::BTreeMap::new());
            let mut packets = 0;
            while templates < 3 || flows.len() < 64 {
                let mut message = [0; 2_000];
                let length = socket.recv(&mut message).expect("a message comes in time");
                assert!(length <= 1_400);
                let message = &message[..length];
                let sequence = number(&message[8..12]);
                assert_eq!(sequence, expected.unwrap_or(0), "records are counted");
                let mut records = 0;
                for (set, bytes) in sets(message) {
                    match set {
                        2 => {
                            templates += 1;
                            assert_eq!(number(&bytes[..4]), 256 << 16 | 14);
                        }
                        3 => assert_eq!(number(&bytes[..6]), 258 << 32 | 2 << 16 | 1),
                        258 => records += 1,
                        256 => {
                            assert!(templates > 0, "a template comes first");
                            assert_eq!(bytes.len() % 52, 0);
                            for record in bytes.chunks(52) {
                                records += 1;
                                *flows.entry(record[..14].to_vec()).or_insert(0) += number(&record[24..32]);
                                packets += number(&record[24..32]);
                            }
                        }
                        other => panic!("set {other}"),
                    }
                }
                expected = Some(sequence + records);
            }
            assert!(packets > 64, "{packets}");
        });
    }

    struct Ended(Child);
    impl Drop for Ended {
        fn drop(&mut self) {
            let _ended = self.0.kill();
            let _waited = self.0.wait();
        }
    }

    fn is_installed(command: &str) -> bool {
        Command::new(command).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    }

    fn folder() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("netbricks-nfcapd-{}", std::process::id()));
        let _gone = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// The flows that nfdump reads in a folder: source, destination, protocol, packets, bytes and flags.
    fn dumped(folder: &Path) -> Vec<Vec<String>> {
        let format = "fmt:%sa,%da,%sp,%dp,%pr,%pkt,%byt,%flg,%tos";
        let output =
            Command::new("nfdump").args(["-q", "-N", "-R"]).arg(folder).args(["-o", format]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let cells = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect();
        text.lines().filter(|line| line.contains(',')).map(cells).collect()
    }

    #[test]
    fn nfdump_reads_what_the_monitor_sends() {
        if !is_installed("nfcapd") || !is_installed("nfdump") {
            eprintln!("skipped: no nfcapd (Debian: nfdump)");
            return;
        }
        let folder = folder();
        // A free port, which the collector takes a moment later.
        let port = collector().1;
        let capture = Command::new("nfcapd")
            .args(["-b", "127.0.0.1", "-p", &port.to_string(), "-t", "2", "-w"])
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut capture = Ended(capture.unwrap());
        let seen = folder.clone();
        while_running(&monitored(port, ""), move |asking| {
            // It writes a file every two seconds; the first is complete when the second begins.
            let until = Instant::now() + Duration::from_secs(60);
            while dumped(&seen).len() < 64 && Instant::now() < until {
                asking.let_packets_pass();
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let _stopped = Command::new("kill").arg(capture.0.id().to_string()).status();
        let _waited = capture.0.wait();
        let flows = dumped(&folder);
        let _gone = std::fs::remove_dir_all(&folder);
        let pairs: std::collections::BTreeSet<_> = flows.iter().map(|flow| flow[..5].to_vec()).collect();
        assert_eq!(pairs.len(), 64, "the generator's flows: {:?}", flows.first());
        for flow in &flows {
            let [packets, bytes] = [5, 6].map(|cell| flow[cell].parse::<u64>().unwrap());
            assert!(packets > 0 && bytes >= packets * 28, "{flow:?}");
            // With -N, numbers are plain.
            assert!(["17", "UDP"].contains(&flow[4].as_str()), "{flow:?}");
        }
    }
}
