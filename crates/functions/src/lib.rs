//! The library of network functions, one folder each.
//!
//! A folder has `config.rs` (settings), `mod.rs` (the chain of operators), `state.rs` where there is any, `tests.rs`
//! and `README.md`.
#![forbid(unsafe_code)]

pub mod array_access;
pub mod bras;
pub mod busy;
pub mod classify;
mod closing;
mod count;
pub mod firewall;
mod fragment;
pub mod group_by;
pub mod http_inspect;
pub mod icmp_echo;
#[cfg(test)]
mod live_tests;
pub mod load_balancer;
pub mod lpm;
pub mod macswap;
pub mod maglev;
pub mod monitor;
pub mod mss;
pub mod nat;
pub mod policer;
pub mod rewrite_stream;
pub mod router;
pub mod shaper;
pub mod shuffle;
pub mod signature;
mod snapshot;
#[cfg(test)]
mod tests;
pub mod tokens;
pub mod ttl;
pub mod wire;

use netbricks_core::guards::Guards;
use netbricks_core::{Registry, compose, compose_guarded};

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
        .examples("array-access", &["accesses = 16\n"])
        .examples("busy", &["cycles = 1\n"])
        .examples(
            "classify",
            &["rules = [\"arp -> out\", \"to 10.0.0.2 -> first\", \"ipv6, from 2001:db8::/32 -> second\", \"icmp -> drop\"]\n"],
        )
        .examples(
            "bras",
            &[
                "access = \"access\"\ncore = \"core\"\naddress = \"10.0.0.254\"\ngateway = \"02:00:00:00:00:01\"\npool = [\"10.0.0.0/24\"]\nauthentication = []\nsessions = 64\nmac = \"02:00:00:00:00:02\"\n",
                "access = \"access\"\ncore = \"core\"\naddress = \"10.0.0.254\"\ngateway = \"10.0.0.1\"\naddress_v6 = \"2001:db8::fe\"\nprefixes = \"2001:db8::/56\"\nauthentication = []\nsessions = 8\nper_mac = 2\nmru = 1_500\n",
            ],
        )
        .examples(
            "firewall",
            &[
                "lines = [\"deny udp to any port 7\", \"policy allow\"]\nconnections = 1024\nopening = 256\npick_up = true\n",
                "lines = [\"set @home {10.0.0.0/8, 2001:db8::/32}\", \"allow from @home name out\", \"reject tcp log\", \"count udp\"]\nconnections = 64\nopening = 32\nanswer_v4 = \"192.0.2.1\"\nanswer_v6 = \"2001:db8:ff::1\"\nanswer_rate = 1_000_000\n",
                "lines = [\"tracking explicit\", \"allow state established,related\", \"allow tcp to any port {80, 443} state new\", \"policy reject\"]\nengine = \"linear\"\nfragments = \"drop\"\nnon_ip = \"drop\"\n",
            ],
        )
        .examples(
            "monitor",
            &[
                "capacity = 1024\nidle = \"1 s\"\n",
                "details = true\ncapacity = 64\ntop = 3\n",
                "collector = \"192.0.2.1:4739\"\ncapacity = 64\nidle = \"1 ms\"\nexport_queue = 100\n",
            ],
        )
        .examples(
            "policer",
            &[
                "cir = \"8 Mbit/s\"\ncbs = 4_000\nebs = 4_000\nby = \"source\"\ngreen = \"af11\"\nyellow = \"af12\"\nred = \"mark\"\nclass = 1\n",
                "meter = \"rfc2698\"\ncir = \"1 kpps\"\npir = \"2 kpps\"\nby = \"flow\"\ncapacity = 64\nfull = \"drop\"\nyellow = \"mark\"\n",
                "meter = \"rfc4115\"\ncir = \"1 Mbit/s\"\neir = \"1 Mbit/s\"\nby = \"subscriber\"\nsubscribers = [\"10.0.0.0/31\", \"2001:db8::/126\"]\ncolour_aware = true\ncount = \"frame\"\n",
            ],
        );
    more_examples(registry);
}

/// As [`examples`], of the functions from `mss` on.
fn more_examples(registry: &mut Registry) {
    registry
        .examples("mss", &["size = 1000\nadd = true\n"])
        .examples(
            "nat",
            &[
                "inside = [\"10.0.0.1/32\"]\npool = [\"203.0.113.7\"]\ncapacity = 256\nfragments = 64\nfragments_held = 32\n",
                "inside = [\"10.0.0.1/32\"]\npool = [\"203.0.113.0/30\"]\ncapacity = 64\nblock = 512\nfiltering = \"address-dependent\"\nstatic = [\"10.0.0.2 -> 10.0.0.1\"]\nothers = \"pass\"\n",
            ],
        )
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
        .examples(
            "signature",
            &[
                "rules = ['alert ip any any -> any any (content:\"a\"; sid:1;)', 'alert tcp any any -> any any (content:\"GET\"; \
                 content:\"HTTP\"; distance:1; sid:2;)', 'alert tcp any any -> any any (pcre:\"/[a-z]{3,20}\\d/\"; sid:3;)']\nflows = 64\n",
                "rules = ['drop udp any any -> any 53 (content:\"l\"; sid:1;)', 'drop tcp any any -> any any (content:\"evil\"; \
                 sid:2;)']\nflows = 64\nmemory = 65_536\nidle = \"1 s\"\nevents = 4\n",
                "rules = ['drop tcp any any -> any any (content:\"evil\"; sid:2;)']\nflows = 64\ninline = true\n",
            ],
        )
        .examples(
            "shaper",
            &[
                "rate = \"1 Gbit/s\"\nburst = \"64 MB\"\n",
                "rate = \"1 Mbit/s\"\ndiscipline = \"codel\"\nqueue = 8\nqueue_bytes = \"32 KiB\"\n",
                "rate = \"100 kpps\"\ndiscipline = \"fq-codel\"\nflows = 7\nby = \"source\"\noverhead = 24\n",
                "rate = \"10 Mbit/s\"\ndiscipline = \"fq\"\nqueue = 8\n",
            ],
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
            "load-balancer",
            &[
                "servers = [\"a 02:00:00:00:01:01\", \"b 02:00:00:00:01:02 3\"]\naddresses = [\"10.0.0.2\", \"2001:db8::2\"]\npolicy = \"least-connections\"\ncapacity = 1024\nidle = \"1 s\"\nslots = 251\n",
                "servers = [\"a 10.1.0.1:8080\", \"b [2001:db8:1::1]:8080\"]\naddresses = [\"10.0.0.2\", \"2001:db8::2\"]\nport = 53\nmode = \"nat\"\npolicy = \"round-robin\"\ncapacity = 64\nslots = 251\n",
                "servers = [\"a 10.1.0.1\", \"b 2001:db8:1::1\"]\naddresses = [\"10.0.0.2\", \"2001:db8::2\"]\nmode = \"ipip\"\ntunnel_v4 = \"192.0.2.1\"\ntunnel_v6 = \"2001:db8:ff::1\"\nslots = 251\n",
                "servers = [\"a 10.1.0.1\", \"b 2001:db8:1::1\"]\naddresses = [\"10.0.0.2\", \"2001:db8::2\"]\nmode = \"gue\"\ntunnel_v4 = \"192.0.2.1\"\ntunnel_v6 = \"2001:db8:ff::1\"\nslots = 251\n",
            ],
        )
        .examples(
            "lpm",
            &["routes = [\"0.0.0.0/0 1\", \"10.0.0.0/30 2\", \"2001:db8::/32 3\", \"2001:db8::2/128 4\"]\n"],
        )
        .examples(
            "router",
            &[
                "interfaces = [\"lan 10.0.0.254/24 2001:db8::fe/64 mac 02:00:00:00:00:02\"]\n\
                 routes = [\"default via 10.0.0.2\", \"default6 via 2001:db8::2\"]\n\
                 neighbours = [\"lan 10.0.0.1 02:00:00:00:01:01\", \"lan 10.0.0.2 02:00:00:00:01:02\", \
                 \"lan 2001:db8::1 02:00:00:00:01:01\", \"lan 2001:db8::2 02:00:00:00:01:02\"]\n",
                "interfaces = [\"lan 10.0.0.254/24 2001:db8::fe/64 mac 02:00:00:00:00:02 mtu 1280\", \"lan 10.7.0.1/24 vlan 7\", \"wan 192.0.2.1/24\"]\n\
                 routes = [\"default via 192.0.2.2 via 192.0.2.3\"]\nhost = \"tap\"\ncapacity = 64\nquestions = 4\nheld = 8\nheld_each = 2\n",
            ],
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
            compose_guarded(worker, Guards::of_passing, wire::wire)
        })
        .add("macswap", "Swaps the Ethernet addresses.", |_: &netbricks_core::NoSettings, worker| {
            compose_guarded(worker, Guards::of_passing, macswap::macswap)
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
        .add(
            "array-access",
            "Updates cells of an array that a packet's UDP source port names.",
            |config: &array_access::ArrayAccessConfig, worker| {
                compose_guarded(worker, Guards::of_passing, |input| {
                    array_access::array_access(input, config, worker)
                })
            },
        )
        .add("busy", "Spins a number of cycles for every packet.", |config: &busy::BusyConfig, worker| {
            compose_guarded(worker, Guards::of_passing, |input| busy::busy(input, config))
        })
        .add(
            "monitor",
            "Counts packets and bytes by flow, and reports flows to an IPFIX collector.",
            |config: &monitor::MonitorConfig, worker| monitor::node(config, worker),
        )
        .add(
            "mss",
            "Lowers the maximum segment size of TCP connections to what a path carries.",
            |config: &mss::MssConfig, worker| {
                compose_guarded(worker, Guards::of_passing, |input| mss::mss(input, config, worker))
            },
        )
        .add(
            "policer",
            "Meters packets by RFC 2697, 2698 or 4115, and drops or marks them by their colour.",
            |config: &policer::PolicerConfig, worker| policer::node(config, worker),
        );
    stateful(registry);
    registry
        .live::<lpm::LpmSettings>("lpm")
        .live::<load_balancer::LoadBalancerConfig>("load-balancer")
        .live::<maglev::MaglevConfig>("maglev")
        .live::<router::RouterConfig>("router");
    examples(registry);
}

/// Adds the functions over connections, routes and queues.
fn stateful(registry: &mut Registry) {
    registry
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
            "load-balancer",
            "Spreads the connections of a service over servers: by policy, with health checks, directly or in tunnels.",
            |config: &load_balancer::LoadBalancerConfig, worker| load_balancer::node(config, worker),
        )
        .add(
            "maglev",
            "Spreads flows over backends, alike on every node, and keeps them there.",
            |config: &maglev::MaglevConfig, worker| {
                compose(worker, |input| maglev::maglev(input, config, worker))
            },
        )
        .add(
            "nat",
            "Translates addresses and ports between an inside and an outside.",
            |config: &nat::NatConfig, worker| nat::node(config, worker),
        )
        .add(
            "rewrite-stream",
            "Replaces a string in TCP streams by another of any length; lengths in the stream, as HTTP's Content-Length, stay.",
            |config: &rewrite_stream::RewriteStreamConfig, worker| {
                compose(worker, |input| rewrite_stream::rewrite_stream(input, config, worker))
            },
        )
        .add(
            "bras",
            "Ends PPPoE sessions: discovery, PPP, passwords by file or RADIUS, addresses, limits.",
            |config: &bras::BrasConfig, worker| bras::node(config, worker),
        )
        .add(
            "firewall",
            "Allows, denies and rejects packets by ordered rules, and follows connections.",
            |config: &firewall::FirewallConfig, worker| firewall::node(config, worker),
        )
        .add(
            "router",
            "Routes between interfaces: next hops, ARP and neighbour discovery, ICMP errors, several paths by flow.",
            |config: &router::RouterConfig, worker| router::node(config, worker),
        )
        .add(
            "signature",
            "Looks for signatures in packets and TCP streams, raises alerts and drops.",
            |config: &signature::SignatureConfig, worker| {
                signature::node(config, worker)
            },
        )
        .add(
            "shaper",
            "Lets packets leave at a rate, in order or in turn by flow, and keeps their delay low.",
            |config: &shaper::ShaperConfig, worker| shaper::node(config, worker),
        )
        .add("classify", "Sends packets separate ways by header fields.", classify::node)
        .add("shuffle", "Gives packets to the worker that owns their flow.", shuffle::shuffle)
        .add("group-by", "Sends packets separate ways by a key, with or without queues.", group_by::group_by);
}
