//! The command on real traffic between its own network namespaces, on every live driver.
//!
//! The tests need root; without it, each test prints that it was skipped.

mod answers;
mod balancing;
mod blocking;
mod bras;
mod checking;
mod filters;
mod firewall;
mod fixture;
mod idle;
mod instances;
mod leaving;
mod middlebox;
mod middlebox_verdicts;
mod nat;
mod nft;
mod nft_packets;
mod privileges;
mod rewriting;
mod routing;
mod routing_daemon;
mod sizes;
mod steering;
mod traffic;
