//! The prefetch step for addresses, before they are resolved.
//!
//! Many addresses walk down the trie side by side, a cell at a time, so that they wait for memory together.

use super::trie::Trie;
use super::{Address, Lpm};
use crate::table::BULK;

/// A hint about an address before its lookup in an [`Lpm`]; the default holds nothing, and costs the whole way.
#[derive(Clone, Copy, Debug)]
pub struct LpmTicket<A>(pub(super) Option<Found<A>>);

/// The address, the number found for it, and the table's edition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<A> {
    pub(super) address: A,
    /// The table's edition: no other table has the same number, and it changes with every change.
    edition: u64,
    number: u32,
}

impl<A> Default for LpmTicket<A> {
    fn default() -> Self {
        Self(None)
    }
}

/// An address on its way.
struct Walk<'k, A> {
    address: A,
    ticket: &'k mut LpmTicket<A>,
    /// The cell that was asked for.
    cell: usize,
    level: u8,
}

impl<A: Address, V: 'static> Lpm<A, V> {
    /// Finds the numbers of all these addresses.
    #[inline]
    pub(super) fn walk<'k>(&self, mut keys: impl Iterator<Item = (A, &'k mut LpmTicket<A>)>) {
        loop {
            let mut walks = [const { None }; BULK];
            let mut walking = 0;
            for (place, (address, ticket)) in walks.iter_mut().zip(keys.by_ref()) {
                *place = Some(Walk { address, ticket, cell: address.root(), level: 0 });
                walking += 1;
            }
            let last = walking < BULK;
            let mut left = walking;
            while left > 0 {
                for place in &mut walks[..walking] {
                    if let Some(walk) = place
                        && let Some(number) = walk.step(&self.trie)
                    {
                        let (address, edition) = (walk.address, self.edition);
                        *walk.ticket = LpmTicket(Some(Found { address, edition, number }));
                        *place = None;
                        left -= 1;
                    }
                }
            }
            if last {
                return;
            }
        }
    }

    /// Asks for the second cell on the way of `address`, if it goes there, where many do.
    #[inline(always)]
    pub(super) fn ask_for_second(&self, address: A) {
        if self.trie.is_deep() {
            let _ = self.trie.step(address.root(), address, 0);
        }
    }

    /// The number of the value that decides for `address`, which `ticket` may know.
    #[inline(always)]
    pub(super) fn number(&self, address: A, ticket: LpmTicket<A>) -> usize {
        self.number_of_ticket(&address, &ticket).unwrap_or_else(|| self.trie.find(address))
    }

    /// As [`number`](Self::number), where `ticket` knows it.
    #[inline(always)]
    pub(super) fn number_of_ticket(&self, address: &A, ticket: &LpmTicket<A>) -> Option<usize> {
        let found = ticket.0.filter(|found| found.edition == self.edition && found.address == *address)?;
        Some(found.number as usize)
    }
}

impl<A: Address> Walk<'_, A> {
    /// Reads the cell, and prefetches the next one unless it has the answer: the number of a value, or 0.
    #[inline(always)]
    fn step(&mut self, trie: &Trie<A>) -> Option<u32> {
        match trie.step(self.cell, self.address, self.level) {
            Ok(number) => Some(number),
            Err(next) => {
                (self.cell, self.level) = (next, self.level + 1);
                None
            }
        }
    }
}
