//! Keys in a table: whole beside their value, or in a near and a far part.
//!
//! Two parts are for keys of which most are shorter than they could be. Short ones have only the near part.

use crate::memory::Zeroable;

/// Splits keys and joins them.
///
/// A [`FlowTable`](crate::FlowTable) keeps the near part beside the value. If its slots get smaller by that, the far
/// parts lie in an array of their own. A lookup of a short key does not touch that array, so more of its data fits the
/// caches.
///
/// ```
/// use netbricks_tables::{Key, Parts, Secret, hash_words};
///
/// /// A name of up to 24 bytes, most of them of 8 or less: its length, and its bytes before zeros.
/// #[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// struct Name(u64, [u64; 3]);
///
/// impl Key for Name {
///     type Parts = FirstWord;
///     fn hash(&self, secret: &Secret) -> u64 {
///         hash_words(&[self.0, self.1[0], self.1[1], self.1[2]], secret)
///     }
/// }
///
/// struct FirstWord;
/// impl Parts<Name> for FirstWord {
///     type Near = (u64, u64);
///     type Far = [u64; 2];
///     fn split(Name(len, [first, rest @ ..]): &Name) -> (Self::Near, Option<Self::Far>) {
///         ((*len, *first), (*len > 8).then_some(*rest))
///     }
///     fn join((len, first): Self::Near, far: impl FnOnce() -> Self::Far) -> Name {
///         let [second, third] = if len > 8 { far() } else { [0; 2] };
///         Name(len, [first, second, third])
///     }
/// }
/// let long = Name(9, [0x6974_732d_6e61_6d65, 0x21, 0]);
/// let (near, far) = FirstWord::split(&long);
/// assert_eq!(FirstWord::join(near, || far.unwrap()), long);
/// ```
///
/// The same key always has the same parts, the same parts give the same key, and two keys are equal exactly if their
/// parts are: tables compare parts. An implementation that breaks this gets wrong answers: flows that are not found, or
/// another key's. It never gets memory that is not the table's.
pub trait Parts<K>: 'static {
    /// The part beside the value. Keys with equal near parts either all have a far part or none.
    type Near: Copy + Eq + Send + Sync + 'static;
    /// The part that only long keys have: unsigned integers, or arrays or triples of them.
    type Far: Copy + Eq + Send + Sync + Zeroable + 'static;

    /// Takes a key apart.
    fn split(key: &K) -> (Self::Near, Option<Self::Far>);

    /// Joins a key.
    ///
    /// Call `far` where [`split`](Self::split) gave a far part with this near one; else its answer may be any.
    fn join(near: Self::Near, far: impl FnOnce() -> Self::Far) -> K;
}

/// Keys that stay in one piece.
#[derive(Clone, Copy, Debug)]
pub struct Whole;

impl<K: Copy + Eq + Send + Sync + 'static> Parts<K> for Whole {
    type Near = K;
    type Far = ();
    #[inline(always)]
    fn split(key: &K) -> (K, Option<()>) {
        (*key, None)
    }
    #[inline(always)]
    fn join(near: K, _: impl FnOnce()) -> K {
        near
    }
}
