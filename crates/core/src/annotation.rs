//! Annotations: data about a packet that nodes of a graph pass to later nodes (Click's annotations).
//!
//! Annotations are typed slots beside the packet's metadata, found by name. Between the operators of one
//! function, and of functions fused into one loop, metadata costs less and is checked when compiling: see
//! [`Operator::map`](crate::Operator::map). An annotation is for functions that other authors put into their
//! own nodes.

use std::any::{TypeId, type_name};
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use netbricks_buffer::{Annotations, Packet};
use netbricks_tables::Encode;

use crate::worker::{BuildError, Worker};

const NEAR: usize = Annotations::NEAR;
/// Bytes that all slots of a graph share: the near ones come first.
const ALL: usize = NEAR + Annotations::FAR;

/// A slot for a `T`: a byte that says whether it was written, and then the value's bytes.
pub struct Annotation<T> {
    at: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Annotation<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Annotation<T> {}

impl<T: Encode> Annotation<T> {
    /// The annotation of a packet, for code that has the whole packet and not just a view.
    #[inline]
    pub fn of(self, packet: &Packet) -> Option<T> {
        self.decode(packet.near_annotations(), packet.far_annotations())
    }

    #[inline]
    pub(crate) fn read(self, annotations: &Annotations<'_>) -> Option<T> {
        self.decode(annotations.near(), annotations.far())
    }

    /// Whether the slot lies entirely among the near bytes.
    ///
    /// The condition is written so that one comparison also checks the bounds.
    #[inline(always)]
    fn is_near(self) -> bool {
        T::SIZE < NEAR && self.at < NEAR - T::SIZE
    }

    /// The slot's place among the far bytes, if it lies there; otherwise a place behind all of them.
    #[inline(always)]
    fn far(self) -> RangeInclusive<usize> {
        let first = self.at.wrapping_sub(NEAR);
        first..=first.saturating_add(T::SIZE)
    }

    #[inline]
    fn decode(self, near: &[u8; NEAR], far: &[u8; Annotations::FAR]) -> Option<T> {
        let slot = match self.is_near() {
            true => near.get(self.at..=self.at + T::SIZE),
            false => far.get(self.far()),
        };
        let (written, value) = slot?.split_first()?;
        (*written != 0).then(|| T::decode(value))?
    }

    /// The slot's place on a packet, for writing. The second cache line is touched only for slots that lie
    /// there.
    #[inline]
    fn place<'l>(self, annotations: &'l mut Annotations<'_>) -> Option<(&'l mut u8, &'l mut [u8])> {
        let slot = match self.is_near() {
            true => annotations.near_mut().get_mut(self.at..=self.at + T::SIZE),
            false => annotations.far_mut().get_mut(self.far()),
        };
        slot?.split_first_mut()
    }

    /// Removes the annotation from a packet.
    #[inline]
    pub(crate) fn clear(self, annotations: &mut Annotations<'_>) {
        if let Some((written, _)) = self.place(annotations) {
            *written = 0;
        }
    }

    /// Writes the annotation to a packet.
    #[inline]
    pub(crate) fn write(self, annotations: &mut Annotations<'_>, value: &T) {
        if let Some((written, bytes)) = self.place(annotations) {
            *written = 1;
            value.encode(bytes);
        }
    }
}

impl<T> std::fmt::Debug for Annotation<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Annotation<{}> at byte {}", type_name::<T>(), self.at)
    }
}

/// The slots of a worker's graphs, by name.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    known: Vec<Slot>,
    used_near: usize,
    used_far: usize,
}

#[derive(Debug)]
struct Slot {
    name: String,
    of: TypeId,
    type_name: &'static str,
    at: usize,
}

impl Worker {
    /// The slot of this name, in every graph of this worker.
    ///
    /// A packet has 56 bytes for all slots. 8 bytes are in the cache line of its other metadata, and small
    /// slots get them while there is room. 48 bytes are in a line of their own, which costs more to reach.
    /// Each slot takes one byte besides its value, and lies in one piece. A name stays taken until the worker
    /// ends, even when the graph that used it is replaced: packets on their way may still carry the
    /// annotation. Where there is no room, or the name has another type, the building of the node fails with
    /// that error.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link};
    /// use netbricks_core::{DropReason, Function, Input, Operator, Worker};
    ///
    /// fn classify(input: Input, worker: &Worker) -> impl Function {
    ///     let class = worker.annotation::<u8>("class");
    ///     input.parse::<Link>().parse::<Ip>().transform(move |packet| {
    ///         let dscp = packet.header().dscp();
    ///         packet.annotate(class, dscp);
    ///     }).done()
    /// }
    /// fn police(input: Input, worker: &Worker) -> impl Function {
    ///     let class = worker.annotation::<u8>("class");
    ///     input.filter(DropReason::RateLimited, move |packet| packet.annotation(class) != Some(8)).done()
    /// }
    /// ```
    pub fn annotation<T: Encode + 'static>(&self, name: &str) -> Annotation<T> {
        match self.annotations.borrow_mut().slot::<T>(name) {
            Ok(at) => Annotation { at, of: PhantomData },
            Err(error) => {
                self.fail(error);
                // A place behind all slots: it reads as never written, and writes do nothing.
                Annotation { at: ALL, of: PhantomData }
            }
        }
    }
}

impl Slots {
    fn slot<T: Encode + 'static>(&mut self, name: &str) -> Result<usize, BuildError> {
        if let Some(slot) = self.known.iter().find(|slot| slot.name == name) {
            if slot.of == TypeId::of::<T>() {
                return Ok(slot.at);
            }
            return Err(BuildError::new(format_args!(
                "annotation `{name}` is a `{}` here, but a `{}` for a function that this worker was given before: give one \
                 of them another name",
                type_name::<T>(),
                slot.type_name
            )));
        }
        let size = 1 + T::SIZE;
        let at = if size <= NEAR - self.used_near {
            self.used_near += size;
            self.used_near - size
        } else if size <= Annotations::FAR - self.used_far {
            self.used_far += size;
            NEAR + self.used_far - size
        } else {
            return Err(BuildError::new(format_args!(
                "annotation `{name}` takes {size} bytes in one piece, but of {ALL} bytes only a piece of {} is left: use fewer \
                 or smaller annotations (names stay taken until the worker ends), or fuse functions and use metadata",
                (NEAR - self.used_near).max(Annotations::FAR - self.used_far)
            )));
        };
        let (of, type_name) = (TypeId::of::<T>(), type_name::<T>());
        self.known.push(Slot { name: name.to_owned(), of, type_name, at });
        Ok(at)
    }
}
