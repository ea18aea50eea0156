//! A capture file, pcap or pcapng, plain or compressed: every way of reading it gives the same result.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::capture(bytes);
});
