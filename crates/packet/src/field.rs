//! The field table: one declaration from which accessors, printing, differences, filters and completion follow.
//!
//! [`header!`](crate::header) declares a header's fixed part once; everything else reads its [`Field`]s.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::mac::MacAddress;

/// One field of a header's fixed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its RFC name in snake case: `"time_to_live"`.
    pub name: &'static str,
    /// First bit, counted from the header's first bit, most significant first (as RFC diagrams do).
    pub bit: u16,
    /// Width in bits, 1 to 128.
    pub bits: u16,
    /// Which checksums a change of it must be carried into.
    pub covered: Covered,
    /// How people read it.
    pub show: Show,
}

/// Which checksums cover a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covered {
    /// None.
    No,
    /// The header's own (IPv4's header checksum, or the TCP, UDP, ICMP one that covers header and payload).
    Own,
    /// The next header's pseudo-header (IPv6 addresses).
    Pseudo,
    /// Both (IPv4 addresses).
    Both,
}

/// How a field is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// A decimal number.
    Dec,
    /// A hexadecimal number, as wide as the field.
    Hex,
    /// A flag: named when it is set.
    Flag,
    /// A MAC address.
    Mac,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// An EtherType, by name where it has one.
    EtherType,
    /// An IP protocol number, by name where it has one.
    Protocol,
}

impl Field {
    /// Reads the field's bits from a header's bytes, as one big-endian number; `None` if the bytes are too few.
    pub fn read(&self, header: &[u8]) -> Option<u128> {
        let (first, last) = (self.bit as usize / 8, (self.bit + self.bits).div_ceil(8) as usize);
        let bytes = header.get(first..last)?;
        // A 128-bit field that is not byte-aligned would need 17 bytes; no header has one.
        let value = bytes.iter().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
        let spare = (last * 8) as u32 - u32::from(self.bit + self.bits);
        Some(value >> spare & (u128::MAX >> (128 - u32::from(self.bits))))
    }

    /// Writes the field's bits, the low ones of `value`; `None` if the bytes are too few.
    ///
    /// Its neighbours stay. Carries nothing into checksums: see [`covered`](Field::covered).
    pub fn write(&self, header: &mut [u8], value: u128) -> Option<()> {
        let (first, last) = (self.bit as usize / 8, (self.bit + self.bits).div_ceil(8) as usize);
        let bytes = header.get_mut(first..last)?;
        let spare = (last * 8) as u32 - u32::from(self.bit + self.bits);
        let mask = (u128::MAX >> (128 - u32::from(self.bits))) << spare;
        let value = value << spare & mask;
        let count = bytes.len();
        for (i, byte) in bytes.iter_mut().enumerate() {
            let shift = 8 * (count - 1 - i);
            *byte = *byte & !(mask >> shift) as u8 | (value >> shift) as u8;
        }
        Some(())
    }
}

/// A type that a field can be read as.
pub trait Value: Copy {
    /// Reads `bits` bits from bit `bit` on. `header` is long enough: the header's type says so.
    fn get(header: &[u8], bit: usize, bits: usize) -> Self;
    /// Writes them.
    fn set(self, header: &mut [u8], bit: usize, bits: usize);
}

/// Whole numbers: every argument is a constant after inlining.
///
/// Byte-aligned ones compile to one load and a byte swap, the rest to a load, shift and mask.
macro_rules! number {
    ($($type:ty)*) => {$(
        impl Value for $type {
            #[inline(always)]
            fn get(header: &[u8], bit: usize, bits: usize) -> Self {
                const BYTES: usize = size_of::<$type>();
                let at = bit / 8;
                if bit % 8 == 0 && bits == BYTES * 8 {
                    let mut raw = [0; BYTES];
                    raw.copy_from_slice(&header[at..at + BYTES]);
                    return <$type>::from_be_bytes(raw);
                }
                let last = (bit + bits).div_ceil(8);
                let mut value = 0u64;
                for byte in &header[at..last] {
                    value = value << 8 | u64::from(*byte);
                }
                (value >> (last * 8 - bit - bits) & (u64::MAX >> (64 - bits))) as $type
            }
            #[inline(always)]
            fn set(self, header: &mut [u8], bit: usize, bits: usize) {
                const BYTES: usize = size_of::<$type>();
                let at = bit / 8;
                if bit % 8 == 0 && bits == BYTES * 8 {
                    header[at..at + BYTES].copy_from_slice(&self.to_be_bytes());
                    return;
                }
                let last = (bit + bits).div_ceil(8);
                let spare = last * 8 - bit - bits;
                let mask = (u64::MAX >> (64 - bits)) << spare;
                let value = (self as u64) << spare & mask;
                for i in at..last {
                    let shift = 8 * (last - 1 - i);
                    header[i] = header[i] & !(mask >> shift) as u8 | (value >> shift) as u8;
                }
            }
        }
    )*};
}
number!(u8 u16 u32 u64);

impl Value for bool {
    #[inline(always)]
    fn get(header: &[u8], bit: usize, _: usize) -> Self {
        header[bit / 8] & 0x80 >> (bit % 8) != 0
    }
    #[inline(always)]
    fn set(self, header: &mut [u8], bit: usize, _: usize) {
        let mask = 0x80 >> (bit % 8);
        header[bit / 8] = if self { header[bit / 8] | mask } else { header[bit / 8] & !mask };
    }
}

macro_rules! octets {
    ($($type:ty, $count:literal;)*) => {$(
        impl Value for $type {
            #[inline(always)]
            fn get(header: &[u8], bit: usize, _: usize) -> Self {
                let mut raw = [0u8; $count];
                raw.copy_from_slice(&header[bit / 8..bit / 8 + $count]);
                Self::from(raw)
            }
            #[inline(always)]
            fn set(self, header: &mut [u8], bit: usize, _: usize) {
                header[bit / 8..bit / 8 + $count].copy_from_slice(&self.octets());
            }
        }
    )*};
}
octets! { MacAddress, 6; Ipv4Addr, 4; Ipv6Addr, 16; }

/// Declares a header's fixed part: its bytes, its field table and an accessor a field, all from one list.
///
/// ```text
/// header! {
///     /// What it is, RFC section, and the RFC's diagram.
///     pub struct Udp, "udp", 8 bytes {
///         /// Doc of the field.
///         source_port, set_source_port: u16 = 0, 16, Own, Dec, kept;
///         …
///     }
/// }
/// ```
/// A field is: name, setter's name, type = first bit, bits, [`Covered`], [`Show`], and `plain` or `kept`. A `plain` field
/// has a public setter. A `kept` one has a setter only inside this crate, because other bytes depend on it: lengths,
/// addresses and ports under a checksum, announcements.
#[macro_export]
macro_rules! header {
    (
        $(#[$doc:meta])*
        pub struct $name:ident, $short:literal, $size:literal bytes {
            $( $(#[$field_doc:meta])* $field:ident, $setter:ident: $type:ty = $bit:literal, $bits:literal, $covered:ident, $show:ident, $kind:ident; )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout, zerocopy::Unaligned)]
        #[repr(transparent)]
        pub struct $name([u8; $size]);

        impl $name {
            /// Bytes of the fixed part.
            pub const SIZE: usize = $size;
            /// The short name that tools print.
            pub const SHORT: &'static str = $short;
            /// The field table, in the order of the bytes.
            pub const TABLE: &'static [$crate::field::Field] = &[
                $( $crate::field::Field { name: stringify!($field), bit: $bit, bits: $bits, covered: $crate::field::Covered::$covered, show: $crate::field::Show::$show } ),*
            ];
            $(
                $(#[$field_doc])*
                #[inline(always)]
                pub fn $field(&self) -> $type {
                    <$type as $crate::field::Value>::get(&self.0, $bit, $bits)
                }
                $crate::header!(@setter $kind, $field, $setter, $type, $bit, $bits);
            )*
            /// The fixed part as it is on the wire.
            #[inline(always)]
            pub fn octets(&self) -> [u8; $size] {
                self.0
            }
        }

        // Not every kept field is written by this crate; naming the setter counts as its use.
        $( const _: fn(&mut $name, $type) = $name::$setter; )*

        const _: () = {
            let mut i = 0;
            while i < $name::TABLE.len() {
                let field = $name::TABLE[i];
                assert!(field.bits > 0 && field.bit as usize + field.bits as usize <= $size * 8, "a field lies outside its header");
                if i > 0 {
                    let before = $name::TABLE[i - 1];
                    assert!(before.bit + before.bits <= field.bit, "fields overlap or are out of order");
                }
                i += 1;
            }
        };
    };
    (@setter plain, $field:ident, $setter:ident, $type:ty, $bit:literal, $bits:literal) => {
        #[doc = concat!("Writes `", stringify!($field), "`.")]
        #[inline(always)]
        pub fn $setter(&mut self, value: $type) {
            <$type as $crate::field::Value>::set(value, &mut self.0, $bit, $bits);
        }
    };
    (@setter kept, $field:ident, $setter:ident, $type:ty, $bit:literal, $bits:literal) => {
        #[inline(always)]
        pub(crate) fn $setter(&mut self, value: $type) {
            <$type as $crate::field::Value>::set(value, &mut self.0, $bit, $bits);
        }
    };
}

/// `Display` and `Debug` of headers, from their field tables.
macro_rules! display {
    ($($name:ident)+) => {$(
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let fields = $crate::print::Fields { name: Self::SHORT, table: Self::TABLE, bytes: &self.0 };
                core::fmt::Display::fmt(&fields, f)
            }
        }
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    )+};
}
pub(crate) use display;
