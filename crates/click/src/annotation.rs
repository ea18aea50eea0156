//! Annotations by their names and places: what arguments such as `ANNO` and `AGGREGATE_ANNO` mean.

use crate::arguments::{Argument, Parsed, Problem};
use crate::names::Named;
use crate::packet::place;
use crate::router::At;

/// Annotations that have names without a configuration's doing: name, place and size (bytes).
const KNOWN: &[(&str, usize, usize)] = &[
    ("AGGREGATE", place::AGGREGATE, 4),
    ("DST_IP", place::DST_IP, 4),
    ("DST_IP6", place::DST_IP6, 16),
    ("EXTRA_LENGTH", place::EXTRA_LENGTH, 4),
    ("EXTRA_PACKETS", place::EXTRA_PACKETS, 4),
    ("FIRST_TIMESTAMP", place::FIRST_TIMESTAMP, 8),
    ("FIX_IP_SRC", place::FIX_IP_SRC, 1),
    ("FWD_RATE", 20, 4),
    ("GRID_ROUTE_CB", 27, 1),
    ("ICMP_PARAMPROB", place::ICMP_PARAMETER_PROBLEM, 1),
    ("IPREASSEMBLER", place::IP_REASSEMBLER, 4),
    ("IPSEC_SA_DATA_REFERENCE", 40, 8),
    ("IPSEC_SPI", place::IPSEC_SPI, 4),
    ("MISC_IP", place::MISC_IP, 4),
    ("PACKET_NUMBER", place::PACKET_NUMBER, 4),
    ("PAINT", place::PAINT, 1),
    ("PERFCTR", place::PERFORMANCE_COUNTER, 8),
    ("REV_RATE", 24, 4),
    ("SEQUENCE_NUMBER", place::SEQUENCE_NUMBER, 4),
    ("VLAN", place::VLAN_TCI, 2),
    ("VLAN_TCI", place::VLAN_TCI, 2),
    ("WIFI_EXTRA", 16, 24),
];

/// An annotation: where it lies and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Bytes from the first annotation byte.
    pub place: usize,
    /// Bytes, or 0 where the name says none.
    pub size: usize,
}

impl Annotation {
    /// Whether a name is an annotation's without a configuration's doing.
    pub fn is_known(name: &str) -> bool {
        KNOWN.iter().any(|(known, _, _)| *known == name)
    }

    /// The annotation that a name or a number means to an element.
    pub fn find(text: &str, at: At<'_>) -> Option<Self> {
        let text = text.trim();
        if let Some(&[place, size]) = at.names().find(at, Named::Annotation, text).as_deref() {
            return Some(Self { place: place.into(), size: size.into() });
        }
        if let Some((_, place, size)) = KNOWN.iter().find(|(name, _, _)| *name == text) {
            return Some(Self { place: *place, size: *size });
        }
        let number = u32::try_from(crate::value::integer(text)?).ok()?;
        Some(Self { place: (number & 0xFFFF) as usize, size: (number >> 16) as usize })
    }
}

impl Argument for Annotation {
    /// An annotation of any size that begins within the annotations.
    fn parse(text: &str, at: At<'_>) -> Parsed<Self> {
        Self::find(text, at).filter(|found| found.place < place::SIZE).ok_or(Problem::Syntax)
    }
}

/// The place of an annotation of `SIZE` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<const SIZE: usize>(pub usize);

impl<const SIZE: usize> Argument for Place<SIZE> {
    fn parse(text: &str, at: At<'_>) -> Parsed<Self> {
        Annotation::find(text, at)
            .filter(|found| found.size == 0 || found.size == SIZE)
            .filter(|found| found.place + SIZE <= place::SIZE)
            .map(|found| Self(found.place))
            .ok_or(Problem::Syntax)
    }
}
