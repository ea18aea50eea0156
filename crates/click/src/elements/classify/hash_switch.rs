//! `HashSwitch`: outputs by a hash of some bytes.

use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::sorter::Sorter;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] =
    &[Class::new("HashSwitch", hash_switch).ports("1/1-").processing("h/h").creates_nothing()];

/// `HashSwitch(OFFSET, LENGTH)`: the sum of some bytes chooses the output, and packets without them take the first.
struct HashSwitch {
    offset: usize,
    length: usize,
    sorter: Sorter,
}

fn hash_switch(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let offset: Option<i32> = arguments.required("OFFSET");
    let length: Option<i32> = arguments.required("LENGTH");
    arguments.complete()?;
    let (offset, length) = (offset?, length?);
    if length == 0 {
        setup.errors.error("length must be > 0");
        return None;
    }
    let natural = |number: i32| usize::try_from(number).unwrap_or(usize::MAX);
    Some(Rc::new(HashSwitch { offset: natural(offset), length: natural(length), sorter: Sorter::default() }))
}

impl HashSwitch {
    fn output(&self, packet: &Packet, outputs: usize) -> usize {
        let bytes = packet.data().get(self.offset..).and_then(|bytes| bytes.get(..self.length));
        let sum: usize = bytes.unwrap_or_default().iter().map(|byte| usize::from(*byte)).sum();
        match outputs {
            2 | 4 | 8 => (sum ^ sum >> 4) & (outputs - 1),
            _ => sum.checked_rem(outputs).unwrap_or(0),
        }
    }
}

impl Element for HashSwitch {
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        let output = self.output(&packet, at.outputs());
        at.push(output, packet);
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        let outputs = at.outputs();
        self.sorter.pass(at, batch, DropReason::Unconnected, |batch, to| {
            to.clear();
            to.extend(batch.iter().map(|packet| self.output(packet, outputs) as u32));
        });
    }
}
