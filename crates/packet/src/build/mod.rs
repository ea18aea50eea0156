//! Whole valid packets, layer by layer: `ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(b"hi")`.
//!
//! Tests and the traffic generator use it. A layer is there as a method only where the header may follow the one
//! before. Every length, next-header number and checksum is written last, so none can be wrong.
//!
//! ```
//! use netbricks_packet::build::ethernet;
//!
//! let packet = ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(1000, 53).payload(b"hi").build()?;
//! assert_eq!(packet.len(), 14 + 4 + 20 + 8 + 2);
//!
//! // A literal that is no address is an error that names it, when the packet is built.
//! let wrong = ethernet().ipv4("10.0.0.256", "10.0.0.2").build().unwrap_err();
//! assert_eq!(wrong.to_string(), "`10.0.0.256` is not an IPv4 address");
//! # Ok::<(), netbricks_packet::build::BuildError>(())
//! ```
//!
//! UDP straight after Ethernet does not compile:
//! ```compile_fail,E0277
//! netbricks_packet::build::ethernet().udp(1000, 53);
//! ```

extern crate alloc;

mod address;
mod finish;
mod icmp;
mod link;
mod network;
mod transport;
mod tunnel;

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::protocol_table::{Listed, Options, Protocol};

pub use address::{AddressKind, IntoAddress, Text};
pub use link::{DESTINATION, SOURCE, ethernet};
pub use network::{ipv4, ipv6};

/// Bytes that all headers together may take.
const ROOM: usize = 512;
/// Headers that a packet may have.
const LAYERS: usize = 24;

/// A packet under construction. Its innermost header so far is `H`.
///
/// It holds its headers itself, so that [`write`](Builder::write) needs no memory. The payload is borrowed.
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` or `write`"]
pub struct Builder<'p, H> {
    headers: [u8; ROOM],
    size: usize,
    layers: [Placed; LAYERS],
    count: usize,
    payload: &'p [u8],
    pad_to: usize,
    error: Option<BuildError>,
    innermost: PhantomData<fn() -> H>,
}

/// The innermost header of a packet that has its payload: nothing can come after it.
#[derive(Clone, Copy, Debug)]
pub enum Payload {}

/// The place of a header among the headers' bytes, and the fields that are not filled in yet.
#[derive(Clone, Copy, Debug)]
struct Placed {
    protocol: Protocol,
    at: usize,
    /// Bytes of options so far, padding not counted (IPv4, TCP).
    options: usize,
    /// UDP's checksum stays 0, which means "no checksum" over IPv4 (RFC 768).
    unchecked: bool,
}

/// Why a packet could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// A literal is not an address of the kind that the method takes.
    Address {
        /// The literal, shortened if it is too long.
        text: Text,
        /// The kind of address expected.
        kind: AddressKind,
    },
    /// A length field cannot state so much.
    TooLong {
        /// The header's name.
        header: &'static str,
        /// Bytes that it would have to state.
        bytes: usize,
        /// Bytes that it can.
        most: usize,
    },
    /// More headers, or bytes of headers, than a builder holds.
    TooManyHeaders {
        /// Bytes of headers that fit.
        room: usize,
        /// Headers that fit.
        layers: usize,
    },
    /// More options than the header's length field can state.
    TooManyOptions {
        /// The header's name.
        header: &'static str,
        /// Bytes of options asked for.
        bytes: usize,
        /// Bytes that fit.
        most: usize,
    },
    /// The buffer to write to is too short.
    TooShort {
        /// Bytes that the packet takes.
        needed: usize,
        /// Bytes that the buffer has.
        found: usize,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { text, kind } => write!(f, "`{text}` is not {kind}"),
            Self::TooLong { header, bytes, most } => {
                write!(
                    f,
                    "{header}: {bytes} bytes are more than its length field can state ({most}); shorten the payload"
                )
            }
            Self::TooManyHeaders { room, layers } => {
                write!(
                    f,
                    "the headers take more than {room} bytes or are more than {layers}; put the inner packet into the payload"
                )
            }
            Self::TooManyOptions { header, bytes, most } => {
                write!(f, "{header}: {bytes} bytes of options, and {most} fit")
            }
            Self::TooShort { needed, found } => {
                write!(f, "the packet takes {needed} bytes, and the buffer has {found}")
            }
        }
    }
}

impl core::error::Error for BuildError {}

impl<'p, H> Builder<'p, H> {
    /// Nothing yet.
    fn empty() -> Self {
        let nothing = Placed { protocol: Protocol::Ethernet, at: 0, options: 0, unchecked: false };
        Self {
            headers: [0; ROOM],
            size: 0,
            layers: [nothing; LAYERS],
            count: 0,
            payload: &[],
            pad_to: 0,
            error: None,
            innermost: PhantomData,
        }
    }

    /// Ends the packet with these bytes. Without it the packet ends with its last header.
    pub fn payload<'q>(self, payload: &'q [u8]) -> Builder<'q, Payload> {
        let Self { headers, size, layers, count, pad_to, error, .. } = self;
        Builder { headers, size, layers, count, payload, pad_to, error, innermost: PhantomData }
    }

    /// Pads the frame with zeros to `bytes`. Ethernet requires 60, without its checksum.
    ///
    /// Padding is not payload: no length counts it.
    pub fn pad_to(mut self, bytes: usize) -> Self {
        self.pad_to = bytes;
        self
    }

    /// Bytes of the frame, padding included.
    pub fn size(&self) -> usize {
        (self.size + self.payload.len()).max(self.pad_to)
    }

    /// Makes the packet in new memory.
    ///
    /// # Errors
    /// [`BuildError`] tells which address, length or option could not be written.
    pub fn build(&self) -> Result<Vec<u8>, BuildError> {
        let mut frame = alloc::vec![0; self.size()];
        self.write(&mut frame)?;
        Ok(frame)
    }

    /// Writes the packet to the front of `out` and answers how many bytes it took. Allocates nothing.
    ///
    /// # Errors
    /// As [`build`](Builder::build), and [`BuildError::TooShort`] where `out` is.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, BuildError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let (size, found) = (self.size(), out.len());
        let Some(frame) = out.get_mut(..size) else {
            return Err(BuildError::TooShort { needed: size, found });
        };
        let packet = self.size + self.payload.len();
        let (headers, rest) = frame.split_at_mut(self.size);
        headers.copy_from_slice(&self.headers[..self.size]);
        let (payload, padding) = rest.split_at_mut(packet - self.size);
        payload.copy_from_slice(self.payload);
        padding.fill(0);
        finish::finish(&mut frame[..packet], self.size, &self.layers[..self.count])?;
        Ok(size)
    }

    /// The first error stays: later errors may follow from it.
    fn fail(&mut self, error: BuildError) {
        self.error.get_or_insert(error);
    }

    /// Appends bytes to the headers. Bytes that do not fit are an error and not appended.
    fn append(&mut self, bytes: &[u8]) {
        match self.headers.get_mut(self.size..self.size + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.size += bytes.len();
            }
            None => self.fail(BuildError::TooManyHeaders { room: ROOM, layers: LAYERS }),
        }
    }

    /// Appends a header. The header before it, if there is one, announces it by `number`.
    ///
    /// After an error, no header is appended, so every noted header is complete.
    fn push<N: Listed>(mut self, number: u16, header: &[u8]) -> Builder<'p, N> {
        if self.count == LAYERS || self.size + header.len() > ROOM {
            self.fail(BuildError::TooManyHeaders { room: ROOM, layers: LAYERS });
        }
        if self.error.is_none() {
            if let Some(outer) = self.layers[..self.count].last() {
                outer.protocol.announce(&mut self.headers[outer.at..self.size], number);
            }
            self.layers[self.count] =
                Placed { protocol: N::PROTOCOL, at: self.size, options: 0, unchecked: false };
            self.count += 1;
            self.append(header);
        }
        let Self { headers, size, layers, count, payload, pad_to, error, .. } = self;
        Builder { headers, size, layers, count, payload, pad_to, error, innermost: PhantomData }
    }

    /// Notes an address that could not be read, and goes on with a harmless one.
    fn read<A: From<[u8; N]>, const N: usize>(&mut self, address: Result<A, BuildError>) -> A {
        address.unwrap_or_else(|error| {
            self.fail(error);
            A::from([0; N])
        })
    }

    /// The notes on the innermost header.
    fn placed(&mut self) -> &mut Placed {
        &mut self.layers[self.count.saturating_sub(1)]
    }

    /// Where the innermost header begins.
    fn at(&self) -> usize {
        self.layers[self.count.saturating_sub(1)].at
    }

    /// Changes the fixed part of the innermost header, which the caller knows to be a `T`.
    ///
    /// Does nothing after an error that left the header out.
    fn with<T>(mut self, change: impl FnOnce(&mut T)) -> Self
    where
        T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned,
    {
        let (at, size) = (self.at(), self.size);
        if let Some(header) = self.headers.get_mut(at..size)
            && let Ok((header, _)) = T::mut_from_prefix(header)
        {
            change(header);
        }
        self
    }

    /// Appends an option to the innermost header, which is IPv4 or TCP.
    ///
    /// Zeros (end of options) pad its options to a multiple of four. Gives the header's length.
    fn append_option(&mut self, option: &[u8]) -> usize {
        let Placed { protocol, at, options: before, .. } = *self.placed();
        let Some(Options { fixed, most, .. }) = protocol.options() else { return 0 };
        let bytes = before + option.len();
        if bytes > most {
            self.fail(BuildError::TooManyOptions { header: protocol.name(), bytes, most });
            return fixed + before.next_multiple_of(4);
        }
        if self.error.is_none() {
            self.size = at + fixed + before;
            self.append(option);
            self.append(&[0; 3][..bytes.next_multiple_of(4) - bytes]);
            self.placed().options = bytes;
        }
        fixed + bytes.next_multiple_of(4)
    }
}

impl<H> fmt::Debug for Builder<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("layers", &self.layers.get(..self.count))
            .field("payload", &self.payload.len())
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<H> TryFrom<Builder<'_, H>> for Vec<u8> {
    type Error = BuildError;
    fn try_from(packet: Builder<'_, H>) -> Result<Self, BuildError> {
        packet.build()
    }
}
