//! What functions tell each other about a packet across the nodes of a graph: typed slots of its annotation line, found by
//! name (Click's annotations).
//!
//! Between the operators of one function, and of functions fused into one loop, metadata costs less and is checked when
//! compiling: see [`Operator::map`](crate::Operator::map). An annotation is for a node that somebody else composes.

use std::any::{TypeId, type_name};
use std::marker::PhantomData;

use netbricks_tables::Encode;

use crate::registry::{BuildError, Worker};

/// Bytes that all slots of a graph share.
const LINE: usize = 64;

/// A slot for a `T`: its bytes, and before them one that says whether it was written.
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
    /// What a packet's annotation line says.
    #[inline]
    pub fn read(self, line: &[u8; LINE]) -> Option<T> {
        let (written, value) = line.get(self.at..=self.at + T::SIZE)?.split_first()?;
        (*written != 0).then(|| T::decode(value))?
    }

    /// Makes a packet's annotation line say nothing.
    #[inline]
    pub fn clear(self, line: &mut [u8; LINE]) {
        if let Some(written) = line.get_mut(self.at) {
            *written = 0;
        }
    }

    /// Writes it into a packet's annotation line.
    #[inline]
    pub fn write(self, line: &mut [u8; LINE], value: &T) {
        let slot = line.get_mut(self.at..=self.at + T::SIZE).and_then(|slot| slot.split_first_mut());
        if let Some((written, bytes)) = slot {
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
    used: usize,
}

#[derive(Debug)]
struct Slot {
    name: String,
    of: TypeId,
    type_name: &'static str,
    at: usize,
}

impl Worker {
    /// The slot of this name, in every graph of this worker: 64 bytes for all of them together, one of which each takes
    /// beside its value. A name stays taken until the worker ends, also when the graph that used it is replaced: packets on
    /// their way may still carry it. Where it cannot be (no room, or the name stands for another type), the node's building fails with
    /// that error.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link};
    /// use netbricks_core::{Drop, Function, Input, Operator, Worker};
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
    ///     input.filter(Drop::RateLimited, move |packet| packet.annotation(class) != Some(8)).done()
    /// }
    /// ```
    pub fn annotation<T: Encode + 'static>(&self, name: &str) -> Annotation<T> {
        match self.annotations.borrow_mut().slot::<T>(name) {
            Ok(at) => Annotation { at, of: PhantomData },
            Err(error) => {
                self.fail(error);
                // Beyond the line: read as never written, written to nowhere.
                Annotation { at: LINE, of: PhantomData }
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
        let (at, size) = (self.used, 1 + T::SIZE);
        if LINE - at < size {
            return Err(BuildError::new(format_args!(
                "annotation `{name}` takes {size} bytes, but of {LINE} bytes only {} are left: use fewer or smaller \
                 annotations (names stay taken until the worker ends), or fuse functions and use metadata",
                LINE - at
            )));
        }
        self.used += size;
        let (of, type_name) = (TypeId::of::<T>(), type_name::<T>());
        self.known.push(Slot { name: name.to_owned(), of, type_name, at });
        Ok(at)
    }
}
