//! Routes as state that changes by changes.

use std::hash::Hash;
use std::net::IpAddr;

use super::{LpmError, RouteLifetime, Routes};
use crate::flow::MAXIMUM_WORK;
use crate::shared::Changing;

/// One change of [`Routes`].
///
/// ```
/// use netbricks_tables::{Changing, LpmConfig, RouteChange, RouteLifetime, RouteOutcome, Routes};
///
/// let mut routes: Routes<u32> = Routes::new(Some(LpmConfig { prefixes: 9, groups: 1 }), None)?;
/// let lifetime = RouteLifetime { now: 0, end: Some(30_000_000_000), ..Default::default() };
/// let (prefix, len): (std::net::IpAddr, u8) = ("192.0.2.0".parse()?, 24);
/// routes.apply(&RouteChange::InsertWithLifetime { prefix, len, value: 7, lifetime });
/// let expire = |now| RouteChange::Expire { now };
/// assert_eq!(routes.apply(&expire(29_999_999_999)), RouteOutcome::Expired(0));
/// assert_eq!(routes.apply(&expire(30_000_000_000)), RouteOutcome::Expired(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteChange<V> {
    /// Gives a prefix a value, and no end.
    Insert {
        /// The prefix's address.
        prefix: IpAddr,
        /// Its length, bits.
        len: u8,
        /// The value.
        value: V,
    },
    /// Gives a prefix a value and a lifetime, also where it is there.
    InsertWithLifetime {
        /// The prefix's address.
        prefix: IpAddr,
        /// Its length, bits.
        len: u8,
        /// The value.
        value: V,
        /// Its lifetime, the present time, and the policy when the table is full.
        lifetime: RouteLifetime,
    },
    /// Takes a prefix out.
    Remove {
        /// The prefix's address.
        prefix: IpAddr,
        /// Its length, bits.
        len: u8,
    },
    /// Takes out what is over, looking at 64 prefixes at most.
    Expire {
        /// The time.
        now: u64,
    },
}

/// The result of a [`RouteChange`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteOutcome<V> {
    /// The prefix is in; the value that it had before.
    Inserted(Option<V>),
    /// The prefix is not in, and nothing has changed, except that expired prefixes may have left to make room.
    Refused(LpmError),
    /// The prefix is out; the value that it had.
    Removed(Option<V>),
    /// So many prefixes ended.
    Expired(usize),
}

impl<V: Copy + Eq + Hash + Send + 'static> Changing for Routes<V> {
    type Change = RouteChange<V>;
    type Outcome = RouteOutcome<V>;

    fn apply(&mut self, change: &RouteChange<V>) -> RouteOutcome<V> {
        let outcome =
            |inserted: Result<_, _>| inserted.map_or_else(RouteOutcome::Refused, RouteOutcome::Inserted);
        match *change {
            RouteChange::Insert { prefix, len, value } => outcome(self.insert(prefix, len, value)),
            RouteChange::InsertWithLifetime { prefix, len, value, lifetime } => {
                outcome(self.insert_with_lifetime(prefix, len, value, lifetime))
            }
            RouteChange::Remove { prefix, len } => RouteOutcome::Removed(self.remove(prefix, len)),
            RouteChange::Expire { now } => RouteOutcome::Expired(self.expire(now, MAXIMUM_WORK)),
        }
    }
}
