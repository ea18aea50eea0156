//! The library of network functions, one folder each.
//!
//! A folder has `config.rs` (settings), `mod.rs` (the chain of operators), `state.rs` where there is any, `tests.rs`
//! and `README.md`.
#![forbid(unsafe_code)]

pub mod busy;
mod count;
pub mod group_by;
pub mod http_inspect;
pub mod icmp_echo;
pub mod lpm;
pub mod macswap;
pub mod maglev;
pub mod monitor;
pub mod mss;
pub mod rewrite_stream;
pub mod shuffle;
#[cfg(test)]
mod tests;
pub mod ttl;
pub mod wire;

use netbricks_core::{Registry, compose};

/// Settings with which each function does all it can, in small tables.
fn examples(registry: &mut Registry) {
    registry
        .examples(
            "ttl",
            &[
                "answer_v4 = \"192.0.2.1\"\nanswer_v6 = \"2001:db8:ff::1\"\nanswer_rate = 1_000_000\n",
                "non_ip = \"drop\"\n",
            ],
        )
        .examples("icmp-echo", &["v4 = \"10.0.0.2\"\nv6 = \"2001:db8::2\"\n"])
        .examples("busy", &["cycles = 1\n"])
        .examples("monitor", &["capacity = 1024\nidle = \"1 s\"\n"])
        .examples("mss", &["size = 1000\nadd = true\n"])
        .examples(
            "http-inspect",
            &[
                "ports = [80, 443, 53]\nflows = 64\nmemory = 65_536\nidle = \"1 s\"\n",
                "ports = [80, 443, 53]\nflows = 64\nblock = [\"example.org\"]\n",
            ],
        )
        .examples(
            "rewrite-stream",
            &["find = \"l\"\nreplace = \"longer\"\nfrom = \"both\"\nports = [80, 443, 53]\nflows = 64\nmemory = 1_048_576\n"],
        )
        .examples("shuffle", &["key = \"flow\"\n"])
        .examples(
            "group-by",
            &[
                "groups = 7\n",
                "groups = 128\nkey = \"source\"\n",
                "groups = 2\nkey = \"vlan\"\nqueue = 65_536\n",
            ],
        )
        .examples(
            "lpm",
            &["routes = [\"0.0.0.0/0 1\", \"10.0.0.0/30 2\", \"2001:db8::/32 3\", \"2001:db8::2/128 4\"]\n"],
        )
        .examples(
            "maglev",
            &["backends = [\"a 02:00:00:00:01:01\", \"b 02:00:00:00:01:02 3\"]\ncapacity = 1024\nidle = \"1 s\"\nslots = 251\n"],
        );
}

/// Adds every function of this library.
pub fn register(registry: &mut Registry) {
    registry
        .add("wire", "Passes every packet on unchanged.", |_: &netbricks_core::NoSettings, worker| {
            compose(worker, wire::wire)
        })
        .add("macswap", "Swaps the Ethernet addresses.", |_: &netbricks_core::NoSettings, worker| {
            compose(worker, macswap::macswap)
        })
        .add(
            "ttl",
            "Decrements the IPv4 time to live or IPv6 hop limit and drops what has none left.",
            |config: &ttl::TtlConfig, worker| ttl::node(config, worker),
        )
        .add(
            "icmp-echo",
            "Answers pings to its addresses, ARP and neighbour discovery included.",
            |config: &icmp_echo::EchoConfig, worker| {
                compose(worker, |input| icmp_echo::icmp_echo(input, config, worker))
            },
        )
        .add("busy", "Spins a number of cycles for every packet.", |config: &busy::BusyConfig, worker| {
            compose(worker, |input| busy::busy(input, config))
        })
        .add("monitor", "Counts packets and bytes by flow.", |config: &monitor::MonitorConfig, worker| {
            compose(worker, |input| monitor::monitor(input, config, worker))
        })
        .add(
            "mss",
            "Lowers the maximum segment size of TCP connections to what a path carries.",
            |config: &mss::MssConfig, worker| compose(worker, |input| mss::mss(input, config, worker)),
        )
        .add(
            "http-inspect",
            "Reports the request lines and hosts of HTTP connections.",
            |config: &http_inspect::HttpInspectConfig, worker| http_inspect::node(config, worker),
        )
        .add(
            "lpm",
            "Annotates packets with their next hop, found by the longest prefix.",
            |config: &lpm::LpmSettings, worker| lpm::node(config, worker),
        )
        .add(
            "maglev",
            "Spreads flows over backends, alike on every node, and keeps them there.",
            |config: &maglev::MaglevConfig, worker| {
                compose(worker, |input| maglev::maglev(input, config, worker))
            },
        )
        .add(
            "rewrite-stream",
            "Replaces a string in TCP streams by another of any length; lengths in the stream, as HTTP's Content-Length, stay.",
            |config: &rewrite_stream::RewriteStreamConfig, worker| {
                compose(worker, |input| rewrite_stream::rewrite_stream(input, config, worker))
            },
        )
        .add("shuffle", "Gives packets to the worker that owns their flow.", shuffle::shuffle)
        .add("group-by", "Sends packets separate ways by a key, with or without queues.", group_by::group_by);
    examples(registry);
}
