//! Headers, views, flow keys, checksums: building, reading and printing packets.
//!
//! Read in this order: `field` (the declaration of a header), `stack` (the result of a parse), then any
//! header.
#![no_std]
#![forbid(unsafe_code)]

pub mod arp;
pub mod build;
pub mod checksum;
pub mod ethernet;
pub mod field;
pub mod flow;
pub mod geneve;
pub mod gre;
pub mod gtpu;
pub mod icmpv4;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod link;
pub mod mac;
pub mod mpls;
pub mod neighbor;
#[cfg(test)]
pub(crate) mod oracle;
pub mod pppoe;
pub mod print;
pub mod protocol;
mod protocol_table;
pub mod pseudo;
pub mod quoted;
mod related;
pub mod rewrite;
#[cfg(test)]
mod robustness_tests;
#[cfg(test)]
mod slack_tests;
pub mod splice;
pub mod srv6;
pub mod stack;
pub mod tcp;
pub mod tcp_options;
pub mod udp;
mod usual;
pub mod vlan;
pub mod vxlan;

pub use arp::Arp;
pub use ethernet::{Ethernet, ethertype};
pub use flow::{FlowKey, HashKey};
pub use geneve::Geneve;
pub use gre::Gre;
pub use gtpu::Gtpu;
pub use icmpv4::Icmpv4;
pub use icmpv6::Icmpv6;
pub use ip::{Ip, IpMut, IpRef};
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use link::Link;
pub use mac::MacAddress;
pub use mpls::Mpls;
pub use pppoe::{Ppp, Pppoe};
pub use pseudo::PseudoHeader;
pub use quoted::Quoted;
pub use srv6::SegmentRouting;
pub use tcp::Tcp;
pub use tcp_options::TcpOption;
pub use udp::Udp;
pub use vlan::Vlan;
pub use vxlan::Vxlan;
