//! Routes as state that changes by changes.

use std::hash::Hash;
use std::net::IpAddr;

use super::{LpmError, Routes};
use crate::shared::Changing;

/// One change of [`Routes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteChange<V> {
    /// Gives a prefix a value.
    Insert {
        /// The prefix's address.
        prefix: IpAddr,
        /// Its length, bits.
        len: u8,
        /// The value.
        value: V,
    },
    /// Takes a prefix out.
    Remove {
        /// The prefix's address.
        prefix: IpAddr,
        /// Its length, bits.
        len: u8,
    },
}

impl<V: Copy + Eq + Hash + Send + 'static> Changing for Routes<V> {
    type Change = RouteChange<V>;
    /// The value that the prefix had; why it can't be put in.
    type Outcome = Result<Option<V>, LpmError>;

    fn apply(&mut self, change: &RouteChange<V>) -> Self::Outcome {
        match *change {
            RouteChange::Insert { prefix, len, value } => self.insert(prefix, len, value),
            RouteChange::Remove { prefix, len } => Ok(self.remove(prefix, len)),
        }
    }
}
