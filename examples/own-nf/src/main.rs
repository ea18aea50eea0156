//! The `netbricks` command with one more function.
#![forbid(unsafe_code)]

mod dscp_marker;

fn main() -> std::process::ExitCode {
    let mut registry = netbricks::standard();
    registry.add("dscp-marker", "Writes a DSCP into IPv4 and IPv6 packets.", dscp_marker::node);
    netbricks::main(registry)
}
