//! Writes a Differentiated Services code point (RFC 2474) into IPv4 and IPv6 packets: all, or those of one
//! protocol.

use netbricks::prelude::*;

settings! {
    /// Settings of `dscp-marker`.
    #[derive(Clone, Debug)]
    pub struct Config {
        /// The code point that is written; 46 is expedited forwarding (RFC 3246).
        pub dscp: u8 = required, "whole number, 0 to 63";
        /// Only packets of this protocol are marked; 17 is UDP.
        pub protocol: Option<u8> = unset "all", "whole number, an IP protocol";
    }
}

impl Settings for Config {
    fn check(&self) -> Result<(), InvalidSetting> {
        match self.dscp {
            0..=63 => Ok(()),
            dscp => Err(InvalidSetting { key: "dscp", problem: format!("must be 0 to 63, found {dscp}") }),
        }
    }
}

/// Marks packets; packets that are not IP pass unchanged.
pub fn dscp_marker(input: Input, config: &Config, worker: &Worker) -> impl Function {
    let Config { dscp, protocol } = *config;
    let marked = worker.counter("marked");
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .transform(move |packet| {
            if protocol.is_none_or(|wanted| wanted == packet.header().protocol()) {
                packet.header_mut().set_dscp(dscp);
                marked.add(1);
            }
        })
        .done()
}

/// The function as a node of a graph.
pub fn node(config: &Config, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    compose(worker, |input| dscp_marker(input, config, worker))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The DSCP of a frame, from the beginning of its IP header (RFC 791, RFC 8200).
    fn dscp_of(frame: &[u8]) -> u8 {
        match frame[14] >> 4 {
            4 => frame[15] >> 2,
            _ => (frame[14] << 2 | frame[15] >> 6) & 0x3f,
        }
    }

    fn marked(config: Config, frame: Vec<u8>) -> Vec<u8> {
        let run = netbricks_testkit::run_node(move |worker| node(&config, worker), [frame]);
        run.out.into_iter().next().expect("nothing is dropped here")
    }

    #[test]
    fn both_versions_are_marked_with_a_right_checksum() {
        let v4 = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(b"hi").build().unwrap();
        let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1000, 53).payload(b"hi").build().unwrap();
        for frame in [v4, v6] {
            let out = marked(Config { dscp: 46, protocol: None }, frame.clone());
            assert_eq!(dscp_of(&out), 46);
            if out[14] >> 4 == 4 {
                let sum: u32 =
                    out[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
                assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the header's checksum (RFC 1071)");
            }
        }
    }

    #[test]
    fn other_protocols_and_other_packets_pass_untouched() {
        let udp = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(b"hi").build().unwrap();
        let arp = vec![0xff; 60];
        for frame in [udp, arp] {
            assert_eq!(marked(Config { dscp: 46, protocol: Some(6) }, frame.clone()), frame);
        }
    }

    #[test]
    fn a_code_point_has_six_bits() {
        assert!(Config { dscp: 63, protocol: None }.check().is_ok());
        assert_eq!(Config { dscp: 64, protocol: None }.check().unwrap_err().key, "dscp");
    }
}
