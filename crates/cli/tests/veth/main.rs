//! The command on real traffic: between network namespaces of the test's own, on every port driver for live traffic.
//! Needs root; elsewhere each test says that it was skipped.

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
