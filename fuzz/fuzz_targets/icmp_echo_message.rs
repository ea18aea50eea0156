//! The function `icmp-echo` over ICMPv6 messages whose checksum is right: neighbour discovery, echoes and all else.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::echo_message(bytes);
});
