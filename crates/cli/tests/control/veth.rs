//! Changes under real traffic, and kills that leave no device in another state.

use std::time::Duration;

use netbricks_testkit::mutate::Random;
use netbricks_testkit::namespace::{Process, eventually};
use serde_json::Value;

use super::dataplane::STATE;
use super::segment::{Segment, finish};

/// Changes that at least happen while traffic flows.
const CHANGES: usize = 30;
/// Size of the download (bytes).
const DOWNLOAD: usize = 24_000_000;
const PINGS: usize = 300;

/// A file that joins the segment, by what changes in it.
#[derive(Clone, Copy, Default)]
struct Joined {
    ttl: bool,
    monitor: bool,
    /// Which of two files of routes.
    routes: usize,
    /// Backends beside the first; all have the server's address.
    backends: usize,
    /// A third port, on which `10.0.9.9` answers.
    spare: bool,
}

impl Joined {
    /// The file after so many changes: each differs from the one before.
    fn number(change: usize) -> Self {
        Self {
            ttl: change % 2 == 1,
            monitor: change % 4 >= 2,
            routes: change / 2 % 2,
            backends: change % 3,
            spare: change % 10 >= 5,
        }
    }

    fn text(self, server: &str) -> String {
        let Self { ttl, monitor, routes, backends, spare } = self;
        let backends: Vec<String> =
            (0..=backends).map(|number| format!("\"web{number} {server}\"")).collect();
        let hops = if ttl { "\"ttl\", " } else { "" };
        let flows = if monitor { "\"flows\", " } else { "" };
        let mut text = format!(
            "[port.left]\ndriver = \"af_packet\"\ndevice = \"b0\"\n[port.right]\ndriver = \"af_packet\"\ndevice = \"b1\"\n\
             [runtime]\nframes = 8192\nlarge_frames = 512\nworkers = 1\n\
             [function.routes]\nuse = \"lpm\"\ntable = \"routes{routes}.txt\"\n\
             [function.balance]\nuse = \"maglev\"\nbackends = [{}]\naddresses = [\"10.0.0.2\"]\n\
             [[chain]]\nfrom = \"left\"\nthrough = [{hops}{flows}\"routes\", \"balance\"]\nto = \"right\"\n\
             [[chain]]\nfrom = \"right\"\nthrough = [{hops}\"routes\"]\nto = \"left\"\n",
            backends.join(", ")
        );
        if monitor {
            text += "[function.flows]\nuse = \"monitor\"\n";
        }
        if spare {
            text += "[port.spare]\ndriver = \"af_packet\"\ndevice = \"b2\"\n[port.sink]\ndriver = \"null\"\n\
                     [function.host]\nuse = \"icmp-echo\"\nv4 = \"10.0.9.9\"\n\
                     [[chain]]\nfrom = \"spare\"\nthrough = [\"host\"]\nto = \"sink\"\n";
        }
        text
    }
}

/// Files of routes: the second one has other routes, and more of them.
fn write_routes(segment: &Segment) {
    for (file, count) in [2_000, 5_000].into_iter().enumerate() {
        let lines = (0..count).map(|n| format!("10.{}.{}.0/24 {}\n", n / 256, n % 256, n % 7 + file));
        segment.directory.write(&format!("routes{file}.txt"), &lines.collect::<String>());
    }
}

/// Applies files while a process runs, and so many at least. Returns how many were applied.
fn apply_while(segment: &Segment, process: &mut Process, first: usize) -> usize {
    let server = segment.server();
    let mut change = first;
    while change < first + CHANGES || process.is_running() {
        change += 1;
        segment.directory.write("next.toml", &Joined::number(change).text(&server));
        let applied = segment.directory.json(&["apply", "next.toml"]);
        assert_eq!(applied["configuration"], change + 1, "{applied}");
        assert_eq!(applied["plan"]["unchanged"], false, "{applied}");
        let kept = applied["plan"]["kept"].as_array().expect("a list");
        assert!(["left", "right"].iter().all(|port| kept.contains(&Value::from(*port))), "{applied}");
    }
    change
}

/// Starts a web server with one file, and returns it with the file's content.
fn serve(segment: &Segment) -> (Process, Vec<u8>) {
    let mut random = Random::new(30);
    let content: Vec<u8> =
        std::iter::repeat_with(|| random.next().to_le_bytes()).take(DOWNLOAD / 8).flatten().collect();
    std::fs::write(segment.directory.path().join("file"), &content).expect("the directory can be written");
    let folder = segment.directory.path().display().to_string();
    let arguments = ["-m", "http.server", "8080", "--bind", "10.0.0.2", "--directory", &folder];
    let server = start(segment, "server", "python3", &arguments, "web");
    eventually("the web server's start", || {
        segment.namespaces.attempt("server", "curl -sfI http://10.0.0.2:8080/file").status.success()
    });
    (server, content)
}

fn start(segment: &Segment, role: &str, program: &str, arguments: &[&str], name: &str) -> Process {
    let file = |name: String| {
        std::fs::File::create(segment.directory.path().join(name)).expect("the directory can be written")
    };
    segment.namespaces.start(role, program, arguments, file(name.into()), file(format!("{name}-errors")))
}

#[test]
fn a_transfer_and_pings_lose_nothing_while_files_are_applied() {
    let Some(segment) = Segment::new("traffic", &["ping", "curl", "python3"]) else { return };
    write_routes(&segment);
    segment.directory.write("edge.toml", &Joined::default().text(&segment.server()));
    let mut run = segment.run(&["edge.toml"]);
    segment.settle();

    let (_server, content) = serve(&segment);
    let copy = segment.directory.path().join("copy");
    let copy = copy.display().to_string();
    let line = ["-sSf", "--limit-rate", "8M", "--max-time", "600", "-o", &copy, "http://10.0.0.2:8080/file"];
    let mut transfer = start(&segment, "client", "curl", &line, "curl");
    let changes = apply_while(&segment, &mut transfer, 0);
    assert!(transfer.wait().success(), "{}", segment.directory.read("curl-errors"));
    let received = std::fs::read(&copy).expect("curl wrote it");
    assert!(received == content, "what was downloaded is not what was there");

    let count = PINGS.to_string();
    let line = ["-n", "-c", &count, "-i", "0.005", "-w", "600", "10.0.0.2"];
    let mut pings = start(&segment, "client", "ping", &line, "pings");
    let changes = apply_while(&segment, &mut pings, changes);
    assert!(pings.wait().success());
    let said = segment.directory.read("pings");
    // One more may go out before the last answer arrives.
    for number in 1..PINGS {
        let answers = said.lines().filter(|line| line.contains(&format!("icmp_seq={number} "))).count();
        assert_eq!(answers, 1, "ping {number}: {said}");
    }
    let report = finish(&mut run);
    eprintln!("{changes} changes under traffic; dropped {}", report["dropped"]);
    assert_eq!(report["dropped"], serde_json::json!({}), "{report}");
}

#[test]
fn a_port_that_comes_and_goes_live_carries_packets_and_leaves_its_device_as_it_was() {
    let Some(segment) = Segment::new("ports", &["ping"]) else { return };
    write_routes(&segment);
    let server = segment.server();
    segment.directory.write("edge.toml", &Joined::default().text(&server));
    let spare = Joined { spare: true, ..Joined::default() };
    segment.directory.write("spare.toml", &spare.text(&server));
    segment.directory.write("both.toml", &Joined { ttl: true, ..spare }.text(&server));
    let mut run = segment.run(&["edge.toml"]);
    segment.settle();
    for _ in 0..2 {
        for file in ["spare.toml", "both.toml"] {
            segment.directory.ask(&["apply", file]).well();
            assert!(!segment.is_clean("b2"));
            segment.reach("10.0.9.9");
        }
        let names = segment.directory.json(&["show", "ports"]);
        assert_eq!(names.as_array().map(Vec::len), Some(4), "{names}");
        segment.directory.ask(&["apply", "edge.toml"]).well();
        assert!(segment.is_clean("b2"));
        assert!(!segment.is_clean("b0"));
        segment.reach("10.0.0.2");
    }
    // What the port did is in the report though it has gone.
    let report = finish(&mut run);
    let spare = report["ports"].as_array().expect("a list").iter().find(|port| port["name"] == "spare");
    let spare = spare.unwrap_or_else(|| panic!("{report}"));
    assert!(spare["received"].as_u64() > Some(0) && spare["sent"].as_u64() > Some(0), "{report}");
}

/// Also in changes that open and close ports, on two drivers.
#[test]
fn kill_9_leaves_no_device_in_another_state_and_the_next_start_takes_it() {
    let Some(segment) = Segment::new("kill-devices", &["ping"]) else { return };
    for driver in ["af_packet", "af_xdp"] {
        let state = format!("{STATE}-{driver}");
        let port = |name: &str, device: &str| {
            format!("[port.{name}]\ndriver = \"{driver}\"\ndevice = \"{device}\"\n")
        };
        let joined = "[[chain]]\nfrom = \"left\"\nthrough = [\"ttl\"]\nto = \"right\"\n\
                      [[chain]]\nfrom = \"right\"\nthrough = [\"ttl\"]\nto = \"left\"\n\
                      [runtime]\nframes = 8192\nlarge_frames = 0\nworkers = 1\n";
        let edge = format!("{}{}{joined}", port("left", "b0"), port("right", "b1"));
        let spare = "[port.sink]\ndriver = \"null\"\n[[chain]]\nfrom = \"spare\"\nto = \"sink\"\n";
        segment.directory.write("edge.toml", &edge);
        segment.directory.write("spare.toml", &format!("{edge}{}{spare}", port("spare", "b2")));
        let mut random = Random::new(31);
        let mut run = segment.run(&["edge.toml", "--state", &state]);
        for file in [None, Some("spare.toml"), Some("edge.toml"), Some("spare.toml")] {
            segment.settle();
            let change = file.map(|file| segment.directory.client(&["apply", file]).spawn());
            std::thread::sleep(Duration::from_millis(random.below(30) as u64));
            run.kill();
            if let Some(client) = change {
                client.and_then(|mut client| client.wait()).expect("it was built for this test");
            }
            for device in ["b0", "b1", "b2"] {
                eventually("the end of what the run had on a device", || segment.is_clean(device));
            }
            run = segment.run(&["--state", &state]);
        }
        segment.settle();
        finish(&mut run);
    }
}
