//! Memory for tables that is made ready ahead, and given back later, by a thread that moves no packets.
//!
//! To map and touch the memory of a table takes milliseconds. A thread that must not stop takes it from the
//! stock, and leaves what it drops to the thread that calls [`give_back`].

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::{MemoryError, Region};

/// Regions in stock and regions to give back.
struct Stock {
    ready: Vec<Region>,
    dropped: Vec<Region>,
}

static STOCK: Mutex<Stock> = Mutex::new(Stock { ready: Vec::new(), dropped: Vec::new() });
/// Whether dropped regions wait for [`give_back`]. Off, they are unmapped at once.
static LATER: AtomicBool = AtomicBool::new(false);
/// Whether the stock has regions, so that no lock is taken where it has none.
static STOCKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The sizes that this thread asks for, while it finds out what a table takes.
    static NOTED: RefCell<Option<Vec<usize>>> = const { RefCell::new(None) };
}

fn stock() -> MutexGuard<'static, Stock> {
    // No code of others runs under the lock.
    STOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A region of this size from the stock.
pub(crate) fn take(bytes: usize) -> Option<Region> {
    NOTED.with_borrow_mut(|noted| noted.as_mut().map(|noted| noted.push(bytes)));
    if !STOCKED.load(Ordering::Relaxed) {
        return None;
    }
    let mut stock = stock();
    let place = stock.ready.iter().position(|region| region.bytes() == bytes)?;
    let region = stock.ready.swap_remove(place);
    STOCKED.store(!stock.ready.is_empty(), Ordering::Relaxed);
    Some(region)
}

/// Takes a region that is not needed any more.
pub(crate) fn drop_region(region: Region) {
    if LATER.load(Ordering::Relaxed) {
        stock().dropped.push(region);
    }
}

/// Runs `make`, and answers the sizes in bytes of the large arrays that it made, with its result.
pub fn sizes_of<T>(make: impl FnOnce() -> T) -> (T, Vec<usize>) {
    /// Ends the notes also where `make` panics.
    struct Noting(Option<Vec<usize>>);
    impl Drop for Noting {
        fn drop(&mut self) {
            NOTED.set(self.0.take());
        }
    }
    let before = Noting(NOTED.replace(Some(Vec::new())));
    let made = make();
    let noted = NOTED.take().unwrap_or_default();
    drop(before);
    (made, noted)
}

/// Makes regions of these sizes ready, each `copies` times.
///
/// # Errors
/// [`MemoryError`]; the stock then has what it had.
pub fn stock_up(sizes: &[usize], copies: usize) -> Result<(), MemoryError> {
    let mut made = Vec::with_capacity(sizes.len() * copies);
    for bytes in sizes.iter().flat_map(|bytes| std::iter::repeat_n(*bytes, copies)) {
        made.push(Region::zeroed(bytes)?);
    }
    let mut stock = stock();
    stock.ready.append(&mut made);
    STOCKED.store(!stock.ready.is_empty(), Ordering::Relaxed);
    Ok(())
}

/// Whether memory that is dropped from now on waits for [`give_back`].
pub fn give_back_later(later: bool) {
    LATER.store(later, Ordering::Relaxed);
    if !later {
        give_back();
    }
}

/// Gives memory back that was dropped, and what is left of the stock. Answers how many bytes that was.
pub fn give_back() -> usize {
    let (ready, dropped) = {
        let mut stock = stock();
        STOCKED.store(false, Ordering::Relaxed);
        (std::mem::take(&mut stock.ready), std::mem::take(&mut stock.dropped))
    };
    // Unmapped without the lock: a thread that must not stop may want it.
    ready.into_iter().chain(dropped).map(Region::unmap).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HugeArray;

    #[test]
    fn what_was_made_ready_is_used_and_what_is_dropped_waits() {
        // A size of its own: other tests run at the same time.
        const LEN: usize = 7 * (2 << 20) / 8;
        let (array, sizes) = sizes_of(|| HugeArray::<u64>::zeroed(LEN).unwrap());
        assert_eq!(sizes, [LEN * 8]);
        drop(array);
        stock_up(&sizes, 2).unwrap();
        let ready = || stock().ready.iter().filter(|region| region.bytes() == LEN * 8).count();
        assert_eq!(ready(), 2);
        let mut array = HugeArray::<u64>::zeroed(LEN).unwrap();
        assert_eq!(ready(), 1);
        assert!(array.iter().all(|word| *word == 0));
        array.fill(1);
        give_back_later(true);
        drop(array);
        let waits = || stock().dropped.iter().any(|region| region.bytes() == LEN * 8);
        assert!(waits());
        give_back_later(false);
        assert!(!waits() && ready() == 0);
        let (sizes, noted) = sizes_of(|| sizes_of(|| drop(HugeArray::<u64>::zeroed(1))).1);
        assert_eq!((sizes.len(), noted.len()), (1, 0));
    }
}
