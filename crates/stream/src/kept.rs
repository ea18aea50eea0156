//! State that a user function keeps of each direction from one window to the next.
//!
//! It is stored with the connection, ends with it, and moves to another worker with it.

use std::marker::PhantomData;

use super::{Fate, Replacing, Window};

/// State of one direction of a connection between its windows.
///
/// It is the [`Default`] at the direction's beginning, and belongs to this direction until its end. All
/// memory is allocated at the start: two states for each possible connection.
///
/// ```
/// use netbricks_stream::Kept;
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
    /// The direction moves to another worker: appends the state that the other worker needs.
    fn pack(&self, to: &mut Vec<u8>);
    /// Reads the bytes that [`pack`](Self::pack) of some worker appended; `None` where they are malformed.
    ///
    /// It must not panic on any bytes. Where it answers `None`, no connection of the same migration is taken
    /// over.
    fn unpack(bytes: &[u8]) -> Option<Self>;
}

/// Keeps nothing.
impl Kept for () {
    fn pack(&self, _: &mut Vec<u8>) {}
    fn unpack(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(())
    }
}

/// A user function that also gets the state that it keeps of the direction.
///
/// It is used by [`window_keeping`](crate::StreamOperator::window_keeping) and
/// [`window_in_path_keeping`](crate::StreamOperator::window_in_path_keeping).
pub struct Keeping<F, M>(F, PhantomData<fn() -> M>);

impl<F, M> Keeping<F, M> {
    /// Wraps this function.
    pub fn new(f: F) -> Self {
        Self(f, PhantomData)
    }
}

/// Sees windows beside the packets' path. It is implemented for functions of a window, and for [`Keeping`].
pub trait WindowObserver {
    /// State that it keeps of a direction.
    type Kept: Kept;
    /// Shows a window to it.
    fn see(&mut self, window: &Window<'_>, kept: &mut Self::Kept);
}

impl<F: FnMut(&Window<'_>)> WindowObserver for F {
    type Kept = ();
    #[inline(always)]
    fn see(&mut self, window: &Window<'_>, (): &mut ()) {
        self(window);
    }
}

impl<F: FnMut(&Window<'_>, &mut M), M: Kept> WindowObserver for Keeping<F, M> {
    type Kept = M;
    #[inline(always)]
    fn see(&mut self, window: &Window<'_>, kept: &mut M) {
        (self.0)(window, kept);
    }
}

/// Decides on windows in the packets' path. It is implemented for functions of a window, and for [`Keeping`].
pub trait WindowDecider {
    /// State that it keeps of a direction.
    type Kept: Kept;
    /// Asks for the decision on a window.
    fn decide(
        &mut self,
        window: &Window<'_>,
        replacing: &mut Replacing<'_, '_>,
        kept: &mut Self::Kept,
    ) -> Fate;
}

impl<F: FnMut(&Window<'_>, &mut Replacing<'_, '_>) -> Fate> WindowDecider for F {
    type Kept = ();
    #[inline(always)]
    fn decide(&mut self, window: &Window<'_>, replacing: &mut Replacing<'_, '_>, (): &mut ()) -> Fate {
        self(window, replacing)
    }
}

impl<F, M> WindowDecider for Keeping<F, M>
where
    F: FnMut(&Window<'_>, &mut Replacing<'_, '_>, &mut M) -> Fate,
    M: Kept,
{
    type Kept = M;
    #[inline(always)]
    fn decide(&mut self, window: &Window<'_>, replacing: &mut Replacing<'_, '_>, kept: &mut M) -> Fate {
        (self.0)(window, replacing, kept)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use netbricks_core::packet::{FlowKey, Tcp, checksum};

    use super::*;
    use crate::inline_window::InlineWindowParts;
    use crate::window::WindowParts;
    use crate::{
        End, InlineWindow, InlineWindowConfig, Rewriter, Segment, Side, Source, StreamConfig, Why,
        WindowConfig, WindowError, Windows,
    };
    use netbricks_core::state::Declared;

    /// The number of bytes that were seen. It is at most 99, so that there are malformed images.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Count(u8);

    impl Kept for Count {
        fn pack(&self, to: &mut Vec<u8>) {
            to.push(self.0);
        }
        fn unpack(bytes: &[u8]) -> Option<Self> {
            match bytes {
                [count @ 0..=99] => Some(Self(*count)),
                _ => None,
            }
        }
    }

    type Shown = Rc<RefCell<Vec<(u16, u8, Option<End>)>>>;

    /// The flow from port 1000 to port 80, and the opposite one.
    fn flows() -> [FlowKey; 2] {
        let [client, server] = [1, 2].map(|host| std::net::IpAddr::from([10, 0, 0, host]));
        [FlowKey::new(client, server, 1_000, 80, 6), FlowKey::new(server, client, 80, 1_000, 6)]
    }

    fn counting() -> (Shown, Windows<Tcp, impl WindowObserver<Kept = Count>>) {
        let shown = Shown::default();
        let f = {
            let shown = shown.clone();
            move |window: &Window<'_>, count: &mut Count| {
                count.0 += window.fresh().len() as u8;
                let end = if let Why::End(end) = window.why { Some(end) } else { None };
                shown.borrow_mut().push((window.flow.source_port(), count.0, end));
            }
        };
        let config = WindowConfig { memory: 0, ..WindowConfig::new(64, 64, 1_000) };
        (shown, Windows::over(WindowParts::new(config).unwrap(), Keeping::new(f)))
    }

    fn segment(number: u64, bytes: &[u8]) -> Segment<'_> {
        Segment { number, bytes, ..Segment::default() }
    }

    #[test]
    fn it_is_of_one_direction_moves_with_it_and_ends_with_it() {
        let ((shown, mut one), (elsewhere, mut two)) = (counting(), counting());
        let [up, down] = flows();
        one.push(up, segment(100, b"abc"), 0);
        one.push(down, segment(500, b"x"), 0);
        one.push(up, segment(103, b"de"), 0);
        let of = |shown: &Shown| std::mem::take(&mut *shown.borrow_mut());
        assert_eq!(of(&shown), [(1_000, 3, None), (80, 1, None), (1_000, 5, None)]);
        let image = one.take_where(|_| true);
        two.import(&image, 1).unwrap();
        let gone = two.take_where(|_| true);
        // Here again, in the same place, before the function is told that they left.
        one.import(&gone, 1).unwrap();
        one.push(up, segment(105, b"fgh"), 1);
        let mut moved = of(&shown);
        assert_eq!(moved.pop(), Some((1_000, 8, None)));
        moved.sort_by_key(|shown| shown.0);
        assert_eq!(moved, [(80, 1, Some(End::Moved)), (1_000, 5, Some(End::Moved))]);
        let image = one.take_where(|_| true);
        two.import(&image, 1).unwrap();
        two.push(down, segment(501, b"yz"), 1);
        two.push(up, segment(108, b"i"), 1);
        two.finish();
        let mut here: Vec<_> =
            of(&elsewhere).into_iter().filter(|(.., end)| *end != Some(End::Moved)).collect();
        here[2..].sort_by_key(|shown| shown.0);
        let drained = Some(End::Drained);
        assert_eq!(here, [(80, 3, None), (1_000, 9, None), (80, 3, drained), (1_000, 9, drained)]);
        two.push(up, segment(100, b"a"), 2);
        assert_eq!(of(&elsewhere), [(1_000, 1, None)], "nothing is left of who had its number");
    }

    #[test]
    fn an_image_with_impossible_kept_state_is_refused_whole() {
        let ((_, mut one), (_, mut two)) = (counting(), counting());
        one.push(flows()[0], segment(100, &[7; 33]), 0);
        let image = one.take_where(|_| true);
        // The state of both directions: a byte each behind its length.
        let kept = [0, 0, 0, 1, 33, 0, 0, 0, 1, 0];
        let swapped = [0, 0, 0, 1, 0, 0, 0, 0, 1, 33];
        let at = image.windows(10).position(|bytes| bytes == kept || bytes == swapped).unwrap();
        let with = |at: usize, byte: u8| {
            let mut image = image[..image.len() - 2].to_vec();
            image[at] = byte;
            let sum = checksum::internet(&image);
            image.extend(sum.to_be_bytes());
            image
        };
        for (at, byte) in [(at, 255), (at + 3, 0), (at + 3, 2), (at + 4, 100), (at + 9, 255)] {
            assert!(two.import(&with(at, byte), 0).is_err(), "{byte} at {at}");
            assert_eq!(two.streams().len(), 0);
        }
        assert_eq!(two.import(&with(at + 4, 99), 0), Ok(()));
    }

    /// The size is larger than any address space.
    #[test]
    fn memory_that_cannot_be_had_for_what_is_kept_is_an_error() {
        #[derive(Clone, Copy)]
        struct Large([u8; 64 << 20]);
        impl Default for Large {
            fn default() -> Self {
                Self([0; 64 << 20])
            }
        }
        impl Kept for Large {
            fn pack(&self, to: &mut Vec<u8>) {
                to.extend(self.0);
            }
            fn unpack(_: &[u8]) -> Option<Self> {
                None
            }
        }
        let config = WindowConfig::new(64, 64, 1_000);
        let streams = StreamConfig { flows: 1 << 20, ..config.streams };
        let error = WindowParts::<Tcp, Large>::new(WindowConfig { streams, ..config }).err();
        assert!(matches!(error, Some(WindowError::NoMemory(_))), "{error:?}");
    }

    #[test]
    fn kept_state_goes_with_held_bytes() {
        let inline_window = || {
            let f = |_: &Window<'_>, _: &mut Replacing<'_, '_>, _: &mut Count| Fate::Hold;
            InlineWindow::over(InlineWindowParts::new(InlineWindowConfig::SMALLEST).unwrap(), Keeping::new(f))
        };
        let source = Source { connection: 0, side: Side::Client, flow: flows()[0], now: 0 };
        let (mut one, mut two, mut image) = (inline_window(), inline_window(), Vec::new());
        let mut held = two.unpack(&source, 7..7, &packed(9)).unwrap();
        one.pack(&source, &mut held, &mut image);
        assert_eq!(image, packed(9));
        assert!(two.accepts(Side::Client, 7..7, &packed(99)));
        assert!(!two.accepts(Side::Client, 7..7, &packed(100)), "what is kept cannot be");
        assert!(!two.accepts(Side::Client, 7..8, &packed(9)), "a byte is missing");
        for at in 1..image.len() {
            assert!(!two.accepts(Side::Client, 7..7, &image[..at]), "{at} bytes");
        }
    }

    /// A direction that holds nothing.
    fn packed(count: u8) -> Vec<u8> {
        let mut image = vec![0; 1 + 4 + 8 + 8];
        image.extend([0, 0, 0, 1, count]);
        image
    }
}
