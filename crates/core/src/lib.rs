//! Operators, drop reasons, declared state, the clock and the graph.
//!
//! Read in this order:
//!
//! - `operator`: the methods in which a function is written,
//! - `view`: the packet as a user function sees it,
//! - `state` and `consistency`: state, and how workers share it,
//! - `events`: code that the clock runs,
//! - `compose`: how a function becomes a node,
//! - `node` and `graph`: how nodes run.
//!
//! ```
//! use netbricks_core::packet::{Ip, Link};
//! use netbricks_core::{DropReason, Function, Input, Operator};
//! use netbricks_testkit::build::ethernet;
//!
//! /// Decrements the TTL and drops packets that have none left (NetBricks, Listing 1).
//! fn ttl(input: Input) -> impl Function {
//!     input
//!         .parse::<Link>()
//!         .parse::<Ip>()
//!         .transform(|packet| packet.header_mut().decrement_ttl())
//!         .filter(DropReason::TtlExpired, |packet| packet.header().ttl() != 0)
//!         .done()
//! }
//!
//! let packet = |hops| ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").ttl(hops).udp(1000, 53).payload(b"hi");
//! let report = netbricks_testkit::run(ttl, [packet(1), packet(64)]);
//! assert_eq!((report.out.len(), report.dropped(DropReason::TtlExpired)), (1, 1));
//! ```
#![forbid(unsafe_code)]

pub mod address;
mod annotation;
pub mod compose;
pub mod consistency;
pub mod context;
mod control_copy;
pub mod control_task;
pub mod counters;
pub mod declaration;
mod event_log;
pub mod events;
pub mod filter;
mod frame_function;
pub mod graph;
pub mod group;
pub mod guards;
mod handlers;
pub mod icmp;
pub mod live;
pub mod node;
pub mod observer;
pub mod operator;
pub mod operators;
mod packet_cursor;
mod queue_function;
mod random;
pub mod reason;
pub mod recorder;
pub mod registry;
pub mod sealed;
mod settings;
pub mod shuffle;
pub mod state;
mod steps;
mod stored;
pub mod tenants;
pub mod units;
pub mod view;
mod worker;
mod worker_group;

pub use address::{DestinationAddress, SourceAddress};
pub use annotation::Annotation;
pub use compose::{compose, compose_guarded, merge};
pub use context::{Context, DetachedContext};
pub use control_copy::ControlCopy;
pub use control_task::{ControlTask, HandlerCaller};
pub use counters::{Count, Drops, NodeCounters};
pub use event_log::{EVENTS, EventLog, write_json_text};
pub use events::{Event, Schedule};
pub use frame_function::{FrameFunction, Frames, compose_frames, declare_node, length_slack};
pub use graph::{Graph, GraphBuilder, GraphError, NodeId, Panic, Totals, Turn};
pub use group::{GroupConfig, Groups};
pub use live::{LiveChange, LiveSettings};
pub use node::{
    CallError, Departed, Handler, HandlerKind, HandlerSide, ImportError, Node, NodeQueue, NodeState, Output,
    Poll, Role, Section, Shape, StateImage, WriteSubject,
};
pub use operator::{Function, Input, Operator, Start};
pub use operators::LookupHooks;
pub use queue_function::{QueueFunction, compose_queue};
pub use random::Random;
pub use reason::{Class, DropReason, Edge, OnMismatch, Verdict};
pub use registry::{Blueprint, Definition, Registry};
pub use settings::{
    ConfigWarning, InvalidSetting, Key, KeyFault, Keys, NoSettings, RefusedItem, RenamedKey, Settings,
    SettingsError, check_keys, nearest, open_file, read_private_text, read_settings, read_text,
};
pub use shuffle::{PacketPart, Shuffle, ShuffleConfig, ShuffleKey, WhenFull};
pub use state::{
    Counter, Declared, Flows, Mobility, State, StateSuccession, StateTerms, Succession, TableKey, Way,
};
pub use steps::{Steps, at_once};
pub use stored::StoredFlow;
pub use view::{Enclosing, Metadata, View};
pub use worker::{BuildError, PortNames, Worker};
pub use worker_group::{SharedSlot, WorkerGroup};

pub use netbricks_buffer as buffer;
pub use netbricks_packet as packet;
pub use netbricks_tables as tables;
