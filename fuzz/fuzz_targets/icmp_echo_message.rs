//! The function `icmp-echo` over ICMPv6 messages with a right checksum: neighbour discovery, echoes and all
//! others.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::echo_message(bytes);
});
