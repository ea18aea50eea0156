//! The command on real traffic between its own network namespaces, on every live driver.
//!
//! The tests need root; without it, each test prints that it was skipped.

mod answers;
mod blocking;
mod checking;
mod fixture;
mod idle;
mod leaving;
mod privileges;
mod rewriting;
mod sizes;
mod steering;
mod traffic;
