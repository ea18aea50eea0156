//! Settings of `http-inspect`.

use netbricks_core::units::{Duration, list_from_text, port_numbers};
use netbricks_core::{InvalidSetting, Settings};
use serde::de::Deserializer;

netbricks_core::settings! {
    /// Settings of `http-inspect`.
    #[derive(Clone, Debug)]
    pub struct HttpInspectConfig {
        /// Ports on which servers speak HTTP.
        pub ports: Vec<u16> = [80], "list of port numbers from 1 to 65535, 1 to 16 of them", read by port_numbers;
        /// Connections that each worker follows at a time.
        ///
        /// With more, the connection that was silent longest is given up; if hosts are blocked, a new
        /// connection finds no place.
        pub flows: usize = 4_096, "whole number, connections";
        /// After this time of silence a connection is over.
        pub idle: Duration = "120 s", "duration: a number and ns, us, ms, s, min, h or d";
        /// Memory of each worker for segments that are out of order, with at most 65,536 for a connection.
        ///
        /// If it is full, gaps are given up.
        pub memory: usize = 4_194_304, "whole number, bytes";
        /// Hosts that it counts separately; requests to all others are counted together.
        pub hosts: usize = 64, "whole number, hosts";
        /// How many of each worker's latest requests the report shows.
        pub latest: usize = 32, "whole number, requests";
        /// Hosts, with all names below them, to which connections are cut before their server sees the request.
        pub block: Vec<String> = [], "list of host names, 0 to 1,024 of them", read by hosts;
    }
}

const MOST_FLOWS: usize = 1 << 20;
const MOST_PORTS: usize = 16;
const MOST_SHOWN: usize = 1_024;
/// The most memory of one connection (bytes), and so the least in all.
pub(super) const FLOW_MEMORY: usize = 64 << 10;
/// The most memory (bytes) of one direction for unacknowledged data where connections are cut.
///
/// It must hold the bytes that are sent in one round trip.
pub(super) const PATH_MEMORY: usize = 1 << 20;
const MEMORY: std::ops::RangeInclusive<usize> = FLOW_MEMORY..=1 << 32;
const IDLE: std::ops::RangeInclusive<Duration> =
    Duration::from_nanoseconds(1_000_000)..=Duration::from_nanoseconds(86_400_000_000_000);

/// The most bytes of a blocked host; the parser keeps this many bytes of a request's host.
const LONGEST: usize = 128;

/// A name or an IPv4 address, without the dot at its end.
fn is_host(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.len() <= LONGEST && name.split('.').all(label)
}

/// Reads a list of hosts; an error points at the wrong item.
fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    list_from_text(deserializer, |name| {
        if is_host(name) { Ok(name.to_owned()) } else { Err(format!("expected {HOST}, found `{name}`")) }
    })
}

const HOST: &str = "the name of a host such as `example.org`, without port, path or `*` (names below one are blocked with it), \
     of 128 bytes at most";

impl Settings for HttpInspectConfig {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem| Err(InvalidSetting { key, problem });
        if self.ports.is_empty() || self.ports.len() > MOST_PORTS || self.ports.contains(&0) {
            let problem = format!("must be 1 to {MOST_PORTS} ports from 1 to 65535, found {:?}", self.ports);
            return refused("ports", problem);
        }
        if self.flows == 0 || self.flows > MOST_FLOWS {
            let problem = format!("must be 1 to 1,048,576 connections, found {}", self.flows);
            return refused("flows", problem);
        }
        if !IDLE.contains(&self.idle) {
            return refused("idle", format!("must be \"1 ms\" to \"1 d\", found \"{}\"", self.idle));
        }
        if !MEMORY.contains(&self.memory) {
            return refused(
                "memory",
                format!("must be 65,536 to 4,294,967,296 bytes, found {}", self.memory),
            );
        }
        for (key, number) in [("hosts", self.hosts), ("latest", self.latest)] {
            if number == 0 || number > MOST_SHOWN {
                return refused(key, format!("must be 1 to 1,024, found {number}"));
            }
        }
        if self.block.len() > MOST_SHOWN {
            return refused("block", format!("must be 0 to 1,024 hosts, found {}", self.block.len()));
        }
        if let Some(name) = self.block.iter().find(|name| !is_host(name)) {
            return refused("block", format!("must hold {HOST}, found `{name}`"));
        }
        Ok(())
    }
}
