//! The `netbricks` command: the standard functions and ports.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    netbricks::main(netbricks::standard())
}
