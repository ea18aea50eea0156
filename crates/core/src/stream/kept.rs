//! What a user function keeps of each direction from one window to the next. It lies with the connection, ends with it, and moves to
//! another worker with it.

use std::marker::PhantomData;

use super::{Fate, Replacing, Window};

/// What is kept of one direction of a connection between its windows: the [`Default`] at its beginning, and nobody else's
/// while it lasts. All of it is there from the beginning, two for each connection that there may be.
///
/// ```
/// use netbricks_core::stream::Kept;
///
/// /// Lines that a sender has begun.
/// #[derive(Clone, Copy, Default)]
/// struct Lines(u32);
///
/// impl Kept for Lines {
///     fn pack(&self, to: &mut Vec<u8>) {
///         to.extend(self.0.to_be_bytes());
///     }
///     fn unpack(bytes: &[u8]) -> Option<Self> {
///         Some(Self(u32::from_be_bytes(bytes.try_into().ok()?)))
///     }
/// }
///
/// let mut bytes = Vec::new();
/// Lines(7).pack(&mut bytes);
/// assert_eq!(Lines::unpack(&bytes).map(|lines| lines.0), Some(7));
/// assert!(Lines::unpack(&bytes[1..]).is_none());
/// ```
pub trait Kept: Copy + Default + 'static {
    /// The direction moves to another worker: appends all that has to be known there.
    fn pack(&self, to: &mut Vec<u8>);
    /// What [`pack`](Self::pack) of some worker appended; `None` where it cannot have. Whatever the bytes are, it must not panic.
    /// Of what came with them nothing is taken over then.
    fn unpack(bytes: &[u8]) -> Option<Self>;
}

/// Nothing is kept.
impl Kept for () {
    fn pack(&self, _: &mut Vec<u8>) {}
    fn unpack(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(())
    }
}

/// A user function that is also lent what it keeps of the direction that it sees: that of
/// [`window_keeping`](crate::Operator::window_keeping) and
/// [`window_in_path_keeping`](crate::Operator::window_in_path_keeping).
pub struct Keeping<F, M>(F, PhantomData<fn() -> M>);

impl<F, M> Keeping<F, M> {
    /// Of this function.
    pub fn new(f: F) -> Self {
        Self(f, PhantomData)
    }
}

/// Who sees windows beside the packets' way: any function of them, and [`Keeping`].
pub trait Viewer {
    /// What it keeps of a direction.
    type Kept: Kept;
    /// Shows it a window.
    fn see(&mut self, window: &Window<'_>, kept: &mut Self::Kept);
}

impl<F: FnMut(&Window<'_>)> Viewer for F {
    type Kept = ();
    #[inline(always)]
    fn see(&mut self, window: &Window<'_>, (): &mut ()) {
        self(window);
    }
}

impl<F: FnMut(&Window<'_>, &mut M), M: Kept> Viewer for Keeping<F, M> {
    type Kept = M;
    #[inline(always)]
    fn see(&mut self, window: &Window<'_>, kept: &mut M) {
        (self.0)(window, kept);
    }
}

/// Who decides on windows in the packets' way: any function of them, and [`Keeping`].
pub trait Judge {
    /// What it keeps of a direction.
    type Kept: Kept;
    /// Asks what becomes of a window.
    fn judge(
        &mut self,
        window: &Window<'_>,
        replacing: &mut Replacing<'_, '_>,
        kept: &mut Self::Kept,
    ) -> Fate;
}

impl<F: FnMut(&Window<'_>, &mut Replacing<'_, '_>) -> Fate> Judge for F {
    type Kept = ();
    #[inline(always)]
    fn judge(&mut self, window: &Window<'_>, replacing: &mut Replacing<'_, '_>, (): &mut ()) -> Fate {
        self(window, replacing)
    }
}

impl<F, M> Judge for Keeping<F, M>
where
    F: FnMut(&Window<'_>, &mut Replacing<'_, '_>, &mut M) -> Fate,
    M: Kept,
{
    type Kept = M;
    #[inline(always)]
    fn judge(&mut self, window: &Window<'_>, replacing: &mut Replacing<'_, '_>, kept: &mut M) -> Fate {
        (self.0)(window, replacing, kept)
    }
}
