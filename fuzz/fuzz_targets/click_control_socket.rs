//! Requests to a `ControlSocket`: pieces of any size give the requests of the whole.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::click::control_socket(bytes));
