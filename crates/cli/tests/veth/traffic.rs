//! `ping`, `curl` and `iperf3` through `ttl` and `monitor`, with the host's own stacks at both ends.

use netbricks_testkit::mutate::Random;
use netbricks_testkit::namespace::{Process, eventually, has};
use serde_json::Value;

use super::fixture::{Driver, Segment, assert_all_answered, ten_pings};

const COMMANDS: [&str; 3] = ["ping", "curl", "iperf3"];
/// Size of the download (bytes).
const DOWNLOAD: usize = 50_000_000;

/// Pings both ways with both versions of IP: no ping is lost, and answers have taken one hop.
fn ping(segment: &Segment) {
    for (role, address) in
        [("client", "10.0.0.2"), ("client", "fd00::2"), ("server", "10.0.0.1"), ("server", "fd00::1")]
    {
        assert_all_answered(&segment.namespaces.run(role, &ten_pings(address)), 63);
    }
    // With the largest size that the link takes, and in fragments.
    for bytes in [1472, 4000] {
        for address in ["10.0.0.2", "fd00::2"] {
            let line = ten_pings(&format!("-s {bytes} {address}"));
            assert_all_answered(&segment.namespaces.run("client", &line), 63);
        }
    }
}

/// Starts a real web server: nginx if it is installed, else Python's.
fn serve(segment: &Segment) -> Process {
    let folder = segment.directory.display().to_string();
    let (program, arguments) = if has("nginx") {
        let configuration = format!(
            "user root;\nworker_processes 1;\ndaemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/nginx.log;\n\
             events {{ worker_connections 64; }}\nhttp {{ access_log off; sendfile on;\n\
             server {{ listen 8080; listen [::]:8080; root {folder}; }} }}\n"
        );
        std::fs::write(segment.directory.join("nginx.conf"), configuration)
            .expect("the directory can be written");
        let file = format!("{folder}/nginx.conf");
        (
            "nginx",
            vec![
                "-p".to_owned(),
                folder.clone(),
                "-e".into(),
                format!("{folder}/nginx.log"),
                "-c".into(),
                file,
            ],
        )
    } else {
        (
            "python3",
            ["-m", "http.server", "8080", "--bind", "::", "--directory", &folder].map(str::to_owned).into(),
        )
    };
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    segment.namespaces.start("server", program, &words, segment.file("web"), segment.file("web-errors"))
}

/// Downloads a file over both versions of IP and compares every byte.
fn download(segment: &Segment) -> Vec<String> {
    let mut random = Random::new(50);
    let content: Vec<u8> =
        std::iter::repeat_with(|| random.next().to_le_bytes()).take(DOWNLOAD / 8).flatten().collect();
    std::fs::write(segment.directory.join("file"), &content).expect("the directory can be written");
    let server = serve(segment);
    eventually("the web server's start", || {
        segment.namespaces.attempt("server", "curl -sfI http://127.0.0.1:8080/file").status.success()
    });
    let copy = segment.directory.join("copy");
    let rates = ["10.0.0.2", "[fd00::2]"].map(|address| {
        let rate = segment.namespaces.run(
            "client",
            &format!(
                "curl -sSf --max-time 120 -w %{{speed_download}} -o {} http://{address}:8080/file",
                copy.display()
            ),
        );
        let received = std::fs::read(&copy).expect("curl wrote it");
        std::fs::remove_file(&copy).expect("it was just read");
        assert!(received == content, "{address}: what was downloaded is not what was there");
        format!("{:.0} MB/s", rate.trim().parse::<f64>().unwrap_or_default() / 1e6)
    });
    drop(server);
    std::fs::remove_file(segment.directory.join("file")).expect("it was written above");
    rates.into()
}

/// A few seconds of TCP in each direction. Returns both rates.
fn stream(segment: &Segment) -> Vec<String> {
    let _server = segment.namespaces.start(
        "server",
        "iperf3",
        &["-s"],
        segment.file("iperf"),
        segment.file("iperf-errors"),
    );
    [("10.0.0.2", ""), ("10.0.0.2", " -R"), ("fd00::2", " -R")]
        .map(|(address, direction)| {
            let line = format!("iperf3 -J -t 2 --connect-timeout 60000 -c {address}{direction}");
            let mut report = Value::Null;
            eventually("a measurement by iperf3", || {
                let output = segment.namespaces.attempt("client", &line);
                report = serde_json::from_slice(&output.stdout).unwrap_or_default();
                // Retry until the server listens and is done with the test before; with -J the exit status is
                // 0 in either case.
                output.status.success() && report.get("error").is_none()
            });
            let received = &report["end"]["sum_received"];
            let bytes = received["bytes"].as_f64().unwrap_or_default();
            assert!(bytes > 1e6, "{line}: {report}");
            format!("{:.2} Gb/s", received["bits_per_second"].as_f64().unwrap_or_default() / 1e9)
        })
        .into()
}

fn carries_everything(driver: Driver) {
    let Some(segment) = Segment::new("traffic", driver, &COMMANDS) else { return };
    let run = segment.start(&segment.chains(""), &[]);
    segment.settle();
    ping(&segment);
    let downloads = download(&segment);
    let streams = stream(&segment);
    let report = run.finish();
    eprintln!("{}: curl {}, iperf3 {}", driver.name(), downloads.join(" and "), streams.join(" and "));
    eprintln!("{}: dropped {}, warnings {}", driver.name(), report["dropped"], report["warnings"]);

    let number = |value: &Value| value.as_u64().expect("a number");
    let sent_bytes: u64 =
        report["ports"].as_array().expect("a list").iter().map(|port| number(&port["sent_bytes"])).sum();
    let mean = sent_bytes / number(&report["sent"]);
    if driver == Driver::AfXdp {
        assert!(mean <= 1514, "no packet is longer than the link takes: {report}");
    } else {
        // Segments that the kernel has not cut passed whole.
        assert!(mean > 3000, "the mean packet has {mean} bytes: {report}");
    }
    // `monitor` saw the download as one flow each way.
    let largest = report["sections"][0]["rows"].as_array().expect("a list");
    assert!(!largest.is_empty(), "{report}");
    // Nothing is left after the run.
    for device in driver.devices() {
        assert!(
            segment.is_clean(device),
            "{device}: {}",
            segment.namespaces.run("middle", "ip -d link show")
        );
    }
}

#[test]
fn af_packet_carries_everything_with_the_hosts_offloads_on() {
    carries_everything(Driver::AfPacket);
}

#[test]
fn af_xdp_carries_everything_with_the_far_ends_offloads_off() {
    carries_everything(Driver::AfXdp);
}

#[test]
fn tap_carries_everything_with_the_hosts_offloads_on() {
    carries_everything(Driver::Tap);
}
