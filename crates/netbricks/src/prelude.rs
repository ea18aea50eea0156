//! Everything that a network function and its node need: `use netbricks::prelude::*`.
//!
//! ```
//! use netbricks::prelude::*;
//!
//! /// Decrements the TTL and drops packets that have none left (NetBricks, Listing 1).
//! pub fn ttl(input: Input) -> impl Function {
//!     input
//!         .parse::<Link>()
//!         .parse::<Ip>()
//!         .transform(|packet| packet.header_mut().decrement_ttl())
//!         .filter(DropReason::TtlExpired, |packet| packet.header().ttl() != 0)
//!         .done()
//! }
//!
//! let packet = ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(1000, 53).payload(b"hi");
//! let report = netbricks_testkit::run(ttl, [packet]);
//! assert_eq!(report.dropped(DropReason::TtlExpired), 1);
//! ```
//!
//! With settings and state, as a node that a registry can make:
//! ```
//! use netbricks::prelude::*;
//!
//! settings! {
//!     /// What an operator may write.
//!     pub struct Config {
//!         /// Packets that each flow may send.
//!         packets: u64 = required, "whole number, packets";
//!     }
//! }
//!
//! impl Settings for Config {
//!     fn check(&self) -> Result<(), InvalidSetting> {
//!         match self.packets {
//!             0 => Err(InvalidSetting { key: "packets", problem: "must be 1 or more, found 0".into() }),
//!             _ => Ok(()),
//!         }
//!     }
//! }
//!
//! /// Lets the first packets of each flow pass.
//! pub fn quota(input: Input, config: &Config, worker: &Worker) -> impl Function {
//!     let allowed = config.packets;
//!     let flows = worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(65_536));
//!     input
//!         .parse::<Link>()
//!         .parse::<Ip>()
//!         .lookup(&flows, |packet| packet.flow_key(), |_, entry| match entry {
//!             Entry::Found(mut seen) => {
//!                 *seen.get_mut() += 1;
//!                 *seen.get_mut()
//!             }
//!             Entry::Vacant(vacant) => *vacant.insert(1),
//!             Entry::Full => u64::MAX,
//!         })
//!         .filter(DropReason::RateLimited, move |packet| *packet.get::<u64>() <= allowed)
//!         .done()
//! }
//!
//! let mut registry = netbricks::standard();
//! registry.add("quota", "Lets the first packets of each flow pass.", |config: &Config, worker: &Worker| {
//!     compose(worker, |input| quota(input, config, worker))
//! });
//!
//! let packet = || ethernet().ipv6("2001:db8::1", "2001:db8::2").tcp(1000, 443).build().unwrap();
//! let report = netbricks_testkit::run_configured(quota, Config { packets: 2 }, [packet(), packet(), packet()]);
//! assert_eq!((report.out.len(), report.dropped(DropReason::RateLimited)), (2, 1));
//! ```

//! A function of the byte streams that packets carry, window by window:
//! ```
//! use netbricks::prelude::*;
//!
//! /// Counts the gaps in what connections carry.
//! pub fn torn(input: Input, worker: &Worker) -> impl Function {
//!     let torn = worker.counter("torn");
//!     input
//!         .parse::<Link>().or(Verdict::PASS)
//!         .parse::<Ip>().or(Verdict::PASS)
//!         .parse::<Tcp>().or(Verdict::PASS)
//!         .window(worker, "streams", WindowConfig::new(4_096, 4_096, 60_000_000_000), move |window| {
//!             if matches!(window.why, Why::Gap) {
//!                 torn.add(1);
//!             }
//!         })
//!         .done()
//! }
//!
//! let packet = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1000, 80).payload(b"hi").build().unwrap();
//! assert_eq!(netbricks_testkit::run_with(torn, [packet.clone()]).out, [packet]);
//! ```

// A function: its input, its operators, and how it becomes a node.
pub use netbricks_core::{Function, Handler, Input, NoSettings, Operator, Worker, compose, merge};

// The fate of a packet.
pub use netbricks_core::{DropReason, Edge, Verdict};

// ICMP errors: `errors.answer(packet, IcmpError::TimeExceeded)`, with their rate limit and the packets that
// must not be answered.
pub use netbricks_core::icmp::{IcmpError, IcmpErrors, ProblemCode, Unreachable};

// Headers to parse, and the types of their fields.
pub use netbricks_core::packet::{
    Arp, Ethernet, Geneve, Gre, Gtpu, Icmpv4, Icmpv6, Ip, Ipv4, Ipv6, Link, MacAddress, Mpls, Ppp, Pppoe,
    Quoted, SegmentRouting, Tcp, TcpOption, Udp, Vlan, Vxlan, ethertype, protocol,
};

// The views that a user function gets, and their methods.
pub use netbricks_core::view::{Enclosing, IpRewrite, Metadata, Sees, View};

// The frame that `resize` lends, and its error.
pub use netbricks_core::operators::{Replacement, ResizeError};

// Work at a time rather than for a packet: `worker.invoke_every("flush", 1_000_000_000, |event| …)`.
pub use netbricks_core::Event;

// Declared state.
pub use netbricks_core::packet::FlowKey;
pub use netbricks_core::tables::{Encode, Entry, FlowTableConfig, Full};
pub use netbricks_core::{Counter, DestinationAddress, Flows, LookupHooks, SourceAddress, State};

// State that workers share, under a consistency chosen by type: `worker.state::<CounterArray, _>("seen", Strict, 256)`.
pub use netbricks_core::consistency::{Access, BoundedInconsistency, Consistency, NoExternalAccess, Strict};
pub use netbricks_core::tables::{
    Changing, CounterArray, CounterChange, CounterOutcome, FlowTable, KeyedCounterArray, MapChange,
    MapOutcome, RecentItem, RingLog, RouteChange, RouteLifetime, RouteOutcome, Routes, RoutesFull,
};

// TCP byte streams: windows over a copy of the stream or inline, and rewritten streams. More is in
// `netbricks::stream`.
pub use netbricks_stream::{
    Fate, InlineWindowConfig, PacketizeConfig, Replace, StreamConfig, StreamOperator, StreamWorker, Why,
    Window, WindowConfig,
};

// Other cores, and groups: `pipeline.shuffle(ShuffleConfig { key: ShuffleKey::Flow, ..Default::default() })`.
pub use netbricks_core::{GroupConfig, Groups, ShuffleConfig, ShuffleKey, WhenFull};

// Settings, and the registry of a binary's functions.
pub use netbricks_core::{Blueprint, BuildError, InvalidSetting, Key, Keys, Registry, Settings, settings};

// Nodes written by hand, where operators do not suffice.
pub use netbricks_core::buffer::{Batch, Packet};
pub use netbricks_core::node::{Output, Poll, Role, Section, SectionMerge};
pub use netbricks_core::{Context, Node};

// Whole valid packets, for tests: `ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53)`.
pub use netbricks_core::packet::build::{ethernet, ipv4, ipv6};
