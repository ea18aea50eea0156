//! The capture-filter language of tcpdump, pcap-filter(7): compiled once, then asked of every frame.
//!
//! A filter accepts exactly the frames that `tcpdump -r FILE 'text'` of libpcap 1.10 prints. Like tcpdump's
//! programs, it reads only bytes that the frame has: a load beyond its end rejects the frame as a whole.
//!
//! It differs from tcpdump where tcpdump's answer depends on the machine or on chance:
//!
//! - Names of hosts, networks and Ethernet stations are errors, because nothing is looked up. So is
//!   `gateway`, which needs them.
//! - Names of ports and protocols come from tables in this module, not from `/etc`.
//! - Words for link layers other than Ethernet, and `inbound`, `outbound` and `ifindex`, are errors.
//! - `byte N & M` and `byte N | M`, which tcpdump compiles to a test of an undefined number, are errors.
//! - `protochain` follows at most 256 headers; tcpdump can loop forever.
//! - Where `geneve` did not hold, as in `geneve or ip`, what follows looks from the frame's first byte on.
//!   tcpdump looks at an undefined place.
//! - A divisor such as `tcp[0:2]`, whose index is 0, is allowed. tcpdump takes it for a division by 0.
//! - The tests run from left to right, as by `tcpdump -O`. tcpdump's optimiser reorders and removes tests,
//!   so that it accepts some frames that end within the bytes of a test.
//!
//! Other peculiarities of tcpdump are kept. `5 % 2 * 3` is `5 % (2 * 3)`; `ip6 protochain 6` takes the length
//! of an authentication header for a place; `1 + ip[8]` reads from frames of any protocol; `port` in IPv6 does
//! not skip extension headers.
//!
//! Read in the order in which a text passes: `lexer`, `parser`, `qualifier` with the primitives in `addresses`,
//! `ports` and `layers`, `arithmetic`, `generator`, `program`.

mod addresses;
mod arithmetic;
mod error;
mod generator;
mod layers;
mod lexer;
mod names;
mod parser;
mod ports;
mod program;
mod protocol;
mod qualifier;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use self::error::Fault;
pub use self::error::FilterError;
use self::program::Operation;

/// Bytes that a filter's text has at most.
const MOST_TEXT: usize = 4096;

/// A compiled filter in the language of pcap-filter(7), for Ethernet frames.
///
/// A clone shares the program. `Display` gives the text.
///
/// ```
/// use netbricks_core::filter::Filter;
/// use netbricks_testkit::build::ethernet;
///
/// let filter = Filter::parse("udp port 53 or 123")?;
/// let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(b"hi").build()?;
/// assert!(filter.matches(&frame, frame.len()));
/// assert_eq!(filter.to_string(), "udp port 53 or 123");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Filter {
    text: Arc<str>,
    program: Arc<[Operation]>,
}

impl Filter {
    /// Compiles a text of at most 4096 bytes; a text without words accepts every frame.
    ///
    /// # Errors
    /// The text is no filter, or selects what Ethernet frames do not have. The error has the place.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > MOST_TEXT {
            let fault = Fault::new(format!("a text of at most {MOST_TEXT} bytes"), "shorten the filter");
            return Err(FilterError {
                found: format!("{} bytes", text.len()),
                ..fault.at(text, text.len()..text.len())
            });
        }
        let program = parser::compile(text)?;
        Ok(Self { text: text.into(), program: program.into() })
    }

    /// Whether the filter accepts an Ethernet frame, given from its destination address on.
    ///
    /// `wire_len` is the frame's length in bytes on the wire, which `len`, `less` and `greater` compare; it is
    /// more than `frame` has where a capture cut the frame. The call allocates nothing and never panics. It
    /// runs each of the at most 16,384 operations of the program at most once.
    pub fn matches(&self, frame: &[u8], wire_len: usize) -> bool {
        program::accepts(&self.program, frame, wire_len)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Self::parse(text)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("text", &self.text).field("operations", &self.program.len()).finish()
    }
}
