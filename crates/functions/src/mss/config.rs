//! Settings of `mss`.

use netbricks_core::{InvalidSetting, Settings};

netbricks_core::settings! {
    /// Settings of `mss`: either `size` or `mtu`.
    #[derive(Clone, Debug)]
    pub struct MssConfig {
        /// Larger segment sizes are lowered to this; either it or `mtu` must be given.
        pub size: Option<u16> = unset, "whole number, bytes of payload";
        /// The size is this less 40 bytes with IPv4, less 60 with IPv6.
        pub mtu: Option<u16> = unset, "whole number, bytes of an IP packet";
        /// Whether segments that state no size are given one: 536 bytes with IPv4, 1220 with IPv6, or less.
        pub add: bool = false, "true or false";
    }
}

/// Bytes of the headers without options, of IPv4 and of IPv6, each with TCP's.
const HEADERS: [u16; 2] = [40, 60];
/// The least that Linux accepts (`tcp_min_snd_mss`): with less, the overhead of packets is too large.
const LEAST: u16 = 48;
/// The least MTU, so that IPv6 segments have the least size, too.
const LEAST_MTU: u16 = LEAST + HEADERS[1];

impl MssConfig {
    /// The largest segments of IPv4 and of IPv6.
    pub(super) fn sizes(&self) -> [u16; 2] {
        HEADERS.map(|headers| match (self.size, self.mtu) {
            (Some(size), _) => size,
            (None, Some(mtu)) => mtu.saturating_sub(headers),
            (None, None) => u16::MAX,
        })
    }
}

impl Settings for MssConfig {
    fn check(&self) -> Result<(), InvalidSetting> {
        let (key, problem) = match (self.size, self.mtu) {
            (Some(size), None) if size < LEAST => {
                ("size", format!("must be {LEAST} to 65,535 bytes, found {size}"))
            }
            (None, Some(mtu)) if mtu < LEAST_MTU => {
                ("mtu", format!("must be {LEAST_MTU} to 65,535 bytes, found {mtu}"))
            }
            (Some(_), Some(_)) => ("mtu", "says what `size` says already: leave one of them out".into()),
            (None, None) => ("size", "must be given, or `mtu` in its place, found neither".into()),
            _ => return Ok(()),
        };
        Err(InvalidSetting { key, problem })
    }
}
