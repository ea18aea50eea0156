//! `bras` between a subscriber and a server: RP-PPPoE's client finds it, negotiates by it, and the kernel's host answers.
//!
//! `client` – c0 ═ a0 – `ac` – b0 ═ s0 – `server`. RP-PPPoE's `pppoe` makes the session from user space; the test speaks PPP
//! to it as pppd would, in frames like those of HDLC (RFC 1662). Where the kernel has PPP, pppd itself takes part.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use netbricks_testkit::build::ethernet;
use netbricks_testkit::namespace::{Namespaces, eventually};

use crate::routing::{Router, folder};

const ESCAPE: u8 = 0x7d;
const FLAG: u8 = 0x7e;

/// The frame check sequence of RFC 1662, appendix C.
fn check_sequence(bytes: &[u8]) -> u16 {
    let step = |sum: u16, byte: &u8| {
        (0..8).fold(sum ^ u16::from(*byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0x8408 } else { sum >> 1 })
    };
    !bytes.iter().fold(0xffff, step)
}

/// A PPP packet as bytes of an asynchronous line.
fn framed(protocol: u16, packet: &[u8]) -> Vec<u8> {
    let mut bytes = [&[0xff, 0x03][..], &protocol.to_be_bytes(), packet].concat();
    bytes.extend(check_sequence(&bytes).to_le_bytes());
    let mut line = vec![FLAG];
    for byte in bytes {
        if byte < 0x20 || byte == ESCAPE || byte == FLAG {
            line.extend([ESCAPE, byte ^ 0x20]);
        } else {
            line.push(byte);
        }
    }
    line.push(FLAG);
    line
}

/// A client whose PPP is the test's.
struct Subscriber {
    pppoe: Child,
    /// PPP packets of the concentrator: protocol and bytes.
    heard: Receiver<(u16, Vec<u8>)>,
}

impl Subscriber {
    fn start(namespaces: &Namespaces) -> Self {
        let mut pppoe = namespaces
            .command("client", "pppoe")
            .args(["-I", "c0", "-U"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut output = pppoe.stdout.take().expect("it is piped");
        let (sender, heard) = channel();
        std::thread::spawn(move || {
            let (mut frame, mut escaped) = (Vec::new(), false);
            let mut room = [0; 4_096];
            while let Ok(count @ 1..) = output.read(&mut room) {
                for byte in &room[..count] {
                    match *byte {
                        FLAG => {
                            if frame.len() > 6 {
                                let packet = (
                                    u16::from_be_bytes([frame[2], frame[3]]),
                                    frame[4..frame.len() - 2].to_vec(),
                                );
                                let _gone = sender.send(packet);
                            }
                            frame.clear();
                        }
                        ESCAPE => escaped = true,
                        byte => frame.push(if std::mem::take(&mut escaped) { byte ^ 0x20 } else { byte }),
                    }
                }
            }
        });
        Self { pppoe, heard }
    }

    fn send(&mut self, protocol: u16, packet: &[u8]) {
        let input = self.pppoe.stdin.as_mut().expect("it is piped");
        input.write_all(&framed(protocol, packet)).and_then(|()| input.flush()).expect("the client runs");
    }

    fn request(&mut self, protocol: u16, code: u8, id: u8, data: &[u8]) {
        let [high, low] = (4 + data.len() as u16).to_be_bytes();
        self.send(protocol, &[&[code, id, high, low], data].concat());
    }

    /// Waits for a packet of this protocol and code; acknowledges requests meanwhile, and answers echoes.
    fn wait(&mut self, protocol: u16, wanted: u8) -> Vec<u8> {
        loop {
            let (number, packet) =
                self.heard.recv_timeout(Duration::from_secs(100)).expect("an answer comes");
            let is_control = matches!(number, 0xc021 | 0x8021 | 0x8057);
            match packet[0] {
                1 if is_control => self.request(number, 2, packet[1], &packet[4..]),
                9 if number == 0xc021 => self.request(0xc021, 10, packet[1], &[0; 4]),
                _ => {}
            }
            if number == protocol && packet[0] == wanted {
                return packet;
            }
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let _ended = self.pppoe.kill();
        let _waited = self.pppoe.wait();
    }
}

/// The namespaces and a running concentrator, with a user `alice` who has the address 10.0.0.77.
fn concentrator(test: &str, commands: &[&str]) -> Option<(Namespaces, Router)> {
    let namespaces = Namespaces::new(&["client", "ac", "server"], commands)?;
    namespaces.run("ac", "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    namespaces.veth(("client", "c0"), ("ac", "a0"));
    namespaces.veth(("ac", "b0"), ("server", "s0"));
    namespaces.run("server", "ip address add 10.0.0.254/24 dev s0");
    let directory = folder(test);
    let users = directory.join("users");
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&users);
    file.and_then(|mut file| file.write_all(b"alice open-sesame 10.0.0.77\n"))
        .expect("the directory can be written");
    let configuration = "[runtime]\nframes = 4096\nlarge_frames = 64\n\
         [port.a]\ndriver = \"af_packet\"\ndevice = \"a0\"\n[port.b]\ndriver = \"af_packet\"\ndevice = \"b0\"\n\
         [function.edge]\nuse = \"bras\"\naccess = \"a\"\ncore = \"b\"\naddress = \"10.0.0.1\"\ngateway = \"10.0.0.254\"\n\
         name = \"test-ac\"\nusers = \"users\"\nauthentication = [\"pap\", \"chap\"]\ndns = [\"10.0.0.254\"]\n\
         [[chain]]\nfrom = \"a\"\nthrough = [\"edge\"]\nto = \"a\"\n[[chain]]\nfrom = \"b\"\nthrough = [\"edge\"]\nto = \"b\"\n";
    let router = Router::start(&namespaces, &directory, "ac", configuration);
    Some((namespaces, router))
}

#[test]
fn rp_pppoe_finds_the_concentrator_and_carries_ip_through_it() {
    let Some((namespaces, run)) = concentrator("bras-rp-pppoe", &["pppoe"]) else { return };
    let found = namespaces.run("client", "pppoe -A -I c0");
    assert!(found.contains("Access-Concentrator: test-ac"), "{found}");
    let mut subscriber = Subscriber::start(&namespaces);
    // It waits in the pipe until discovery is done. The concentrator's own request comes before its answer.
    subscriber.request(0xc021, 1, 1, &[1, 4, 5, 0xd4]);
    subscriber.wait(0xc021, 2);
    subscriber.request(0xc023, 1, 3, b"\x05alice\x0bopen-sesame");
    subscriber.wait(0xc023, 2);
    subscriber.request(0x8021, 1, 4, &[3, 6, 0, 0, 0, 0, 129, 6, 0, 0, 0, 0]);
    let nak = subscriber.wait(0x8021, 3);
    assert_eq!(nak[4..], [3, 6, 10, 0, 0, 77, 129, 6, 10, 0, 0, 254]);
    subscriber.request(0x8021, 1, 5, &nak[4..]);
    subscriber.wait(0x8021, 2);
    assert!(run.get("edge.sessions").contains(" open alice 10.0.0.77 "), "{}", run.get("edge.sessions"));
    // The server's kernel asks by ARP where the subscriber is, and answers its ping.
    let ping = ethernet()
        .ipv4("10.0.0.77", "10.0.0.254")
        .icmp_echo_request(7, 1)
        .payload(b"through the session")
        .build();
    let ping = ping.expect("a ping");
    let answer = loop {
        subscriber.send(0x0021, &ping[14..]);
        if let Ok((0x0021, packet)) = subscriber.heard.recv_timeout(Duration::from_millis(500)) {
            break packet;
        }
    };
    assert_eq!((answer[20], &answer[12..20]), (0, &[10, 0, 0, 254, 10, 0, 0, 77][..]));
    assert!(answer.ends_with(b"through the session"));
    // The client says goodbye by a PADT when it ends.
    let id = subscriber.pppoe.id();
    assert!(
        std::process::Command::new("kill").arg(id.to_string()).status().is_ok_and(|status| status.success())
    );
    eventually("the session's end", || run.get("edge.sessions").contains("0 sessions"));
    drop(subscriber);
    let report = run.finish();
    assert_eq!(report["dropped"]["malformed"].as_u64().unwrap_or(0), 0, "{report}");
}

#[test]
fn pppd_gets_an_address_and_reaches_the_server() {
    if !Path::new("/dev/ppp").exists() {
        eprintln!("skipped: no /dev/ppp, the kernel has no PPP");
        return;
    }
    let Some((namespaces, run)) = concentrator("bras-pppd", &["pppd", "pppoe", "ping"]) else { return };
    let said = std::env::temp_dir().join(format!("netbricks-pppd-{}", std::process::id()));
    let file = || std::fs::File::create(&said).expect("the directory can be written");
    let words = [
        "pty",
        "pppoe -I c0",
        "user",
        "alice",
        "password",
        "open-sesame",
        "noauth",
        "nodetach",
        "noipdefault",
        "ipcp-accept-remote",
        "nodefaultroute",
        "mru",
        "1492",
        "mtu",
        "1492",
        "ifname",
        "ppp7",
    ];
    let mut pppd = namespaces.start("client", "pppd", &words, file(), file());
    eventually("pppd's address", || {
        assert!(pppd.is_running(), "{}", std::fs::read_to_string(&said).unwrap_or_default());
        let shown = namespaces.attempt("client", "ip address show dev ppp7");
        String::from_utf8_lossy(&shown.stdout).contains("10.0.0.77")
    });
    namespaces.run("client", "ip route add 10.0.0.0/24 dev ppp7");
    namespaces.run("client", "ping -q -c 3 -i 0.05 -W 60 10.0.0.254");
    pppd.signal("TERM");
    pppd.wait();
    eventually("the session's end", || run.get("edge.sessions").contains("0 sessions"));
    let _removed = std::fs::remove_file(said);
    run.finish();
}
