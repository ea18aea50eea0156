//! Rule sets of ClassBench (Taylor and Turner, INFOCOM 2005), if there are any.
//!
//! They lie in `NETBRICKS_CLASSBENCH`, or in `../shared/classbench` beside the checkout, compressed by gzip.

use std::path::{Path, PathBuf};
use std::process::Command;

use netbricks_tables::classifier::{Condition, Entry, Field, Layout, Test};

/// The fields of a rule, and the layout that they make.
pub(crate) struct FiveTuple {
    pub(crate) layout: Layout,
    pub(crate) source: Field,
    pub(crate) destination: Field,
    pub(crate) source_port: Field,
    pub(crate) destination_port: Field,
    pub(crate) protocol: Field,
    pub(crate) flags: Field,
}

impl FiveTuple {
    pub(crate) fn new() -> Self {
        let mut layout = Layout::new();
        let [source, destination, source_port, destination_port, protocol, flags] =
            [32, 32, 16, 16, 8, 16].map(|bits| layout.field(bits));
        Self { layout, source, destination, source_port, destination_port, protocol, flags }
    }
}

/// A rule, as a line of a set says it.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Address and length, of source and destination.
    pub(crate) prefixes: [(u32, u32); 2],
    /// Least and greatest port, of source and destination.
    pub(crate) ports: [(u16, u16); 2],
    /// Value and mask of protocol and flags.
    pub(crate) masked: [(u16, u16); 2],
}

impl Rule {
    fn parse(line: &str) -> Option<Self> {
        let parts: Vec<&str> = line.trim_start_matches('@').split_whitespace().collect();
        let prefix = |at: usize| {
            let (address, len) = parts.get(at)?.split_once('/')?;
            let bytes = address
                .split('.')
                .try_fold(0, |all: u32, byte| Some(all << 8 | byte.parse::<u32>().ok()?))?;
            Some((bytes, len.parse().ok()?))
        };
        let port = |at: usize| Some((parts.get(at)?.parse().ok()?, parts.get(at + 2)?.parse().ok()?));
        let hex = |text: &str| u16::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        let masked = |at: usize| {
            let (value, mask) = parts.get(at)?.split_once('/')?;
            Some((hex(value)?, hex(mask)?))
        };
        Some(Self {
            prefixes: [prefix(0)?, prefix(1)?],
            ports: [port(2)?, port(5)?],
            masked: [masked(8)?, masked(9)?],
        })
    }

    /// The rule as an entry of number and order `number`.
    pub(crate) fn entry(&self, number: u32, fields: &FiveTuple) -> Entry {
        let mask = |len: u32| u128::from(u32::MAX.checked_shl(32 - len).unwrap_or(0));
        let prefix = |(value, len): (u32, u32)| Test::Masked { value: value.into(), mask: mask(len) };
        let range = |(low, high): (u16, u16)| Test::Range { low: low.into(), high: high.into() };
        let masked = |(value, mask): (u16, u16)| Test::Masked { value: value.into(), mask: mask.into() };
        let tests = [
            (fields.source, prefix(self.prefixes[0])),
            (fields.destination, prefix(self.prefixes[1])),
            (fields.source_port, range(self.ports[0])),
            (fields.destination_port, range(self.ports[1])),
            (fields.protocol, masked(self.masked[0])),
            (fields.flags, masked(self.masked[1])),
        ];
        let conditions = tests.map(|(field, test)| Condition { field, test, negated: false }).into();
        Entry { rule: number, order: number.into(), last: false, conditions }
    }

    /// A header that the rule matches; `random` gives numbers below 2³².
    pub(crate) fn header(&self, random: &mut impl FnMut() -> u32) -> [u32; 6] {
        let address =
            |(value, len): (u32, u32), random: u32| value | u32::MAX.checked_shr(len).unwrap_or(0) & random;
        let port = |(low, high): (u16, u16), random: u32| {
            u32::from(low) + random % (u32::from(high) - u32::from(low) + 1)
        };
        let masked = |(value, mask): (u16, u16), bits: u32, random: u32| {
            u32::from(value) | u32::from(!mask) & random & bits
        };
        [
            address(self.prefixes[0], random()),
            address(self.prefixes[1], random()),
            port(self.ports[0], random()),
            port(self.ports[1], random()),
            masked(self.masked[0], 0xff, random()),
            masked(self.masked[1], 0xffff, random()),
        ]
    }
}

/// The rules of a set, or `None` without the set.
pub(crate) fn rules(name: &str) -> Option<Vec<Rule>> {
    let folder = std::env::var_os("NETBRICKS_CLASSBENCH").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/classbench"),
        PathBuf::from,
    );
    let packed = folder.join(name).with_extension("gz");
    let unpacked = Command::new("gzip").arg("-dc").arg(packed).output().ok()?;
    let text = String::from_utf8(unpacked.stdout).ok()?;
    let rules: Vec<Rule> = text.lines().filter_map(Rule::parse).collect();
    (!rules.is_empty()).then_some(rules)
}
