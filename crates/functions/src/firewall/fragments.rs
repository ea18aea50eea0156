//! Fragments: the first one decides, and later ones follow it by a bounded table.

use netbricks_core::tables::Encode;

pub(super) use crate::fragment::{Fragment, FragmentKey};

/// The decision about a packet's first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// The identifier of the rule that decided; 0 where it was the policy.
    pub(super) rule: u32,
    pub(super) passes: bool,
}

impl Encode for Decision {
    const SIZE: usize = 5;
    const VERSION: u16 = 1;

    fn encode(&self, to: &mut [u8]) {
        (self.rule, self.passes).encode(to);
    }
    fn decode(from: &[u8]) -> Option<Self> {
        let (rule, passes) = <(u32, bool)>::decode(from)?;
        Some(Self { rule, passes })
    }
}
