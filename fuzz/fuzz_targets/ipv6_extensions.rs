//! IPv6 extension headers in a packet that is otherwise whole, against a naive walk.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::ipv6_extensions(bytes));
