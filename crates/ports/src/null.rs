//! A port that never receives and takes all packets: the end of a benchmark or of unwanted traffic.

use std::sync::Arc;

use netbricks_buffer::Batch;
use netbricks_core::{Context, NoSettings, Poll};

use crate::driver::{OpenContext, PortDriver, QueueDivision};
use crate::node::count_sent;
use crate::port::{Capabilities, Counters, Port, PortError, ReceiveQueue, TransmitQueue};
use crate::steer::Fixed;
use crate::taken::Taken;

/// A port without arrivals, which frees the packets that are sent.
#[derive(Debug)]
pub struct Null {
    name: String,
    counters: Vec<Arc<Counters>>,
    taken: Taken,
}

impl Null {
    /// A port with this many queues in each direction.
    pub fn new(name: &str, queues: usize) -> Self {
        let counters = (0..queues).map(|_| Arc::default()).collect();
        Self { name: name.into(), counters, taken: Taken::new(queues, queues) }
    }
}

/// The driver `null`.
pub(crate) struct NullDriver;

impl PortDriver for NullDriver {
    type Settings = NoSettings;
    const NAME: &'static str = "null";
    const SUMMARY: &'static str =
        "Takes everything and gives nothing: what is sent here is counted and freed.";
    const DIVISION: QueueDivision = QueueDivision::Asymmetric;
    const FIXED: Option<Fixed> = Some(Fixed::Silent);

    fn open(&self, port: &str, _: &NoSettings, cx: &OpenContext) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Null::new(port, cx.queues.max(1))))
    }
}

impl Port for Null {
    fn driver(&self) -> &'static str {
        "null"
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn mtu(&self) -> usize {
        65_535
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            receive_queues: self.counters.len(),
            transmit_queues: self.counters.len(),
            checksum_offload: true,
            segmentation_offload: true,
            ..Capabilities::default()
        }
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        self.counters.clone()
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        self.taken.receive(&self.name, queue)?;
        Ok(Box::new(Silence))
    }
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        self.taken.transmit(&self.name, queue)?;
        Ok(Box::new(Sink(self.counters[queue].clone())))
    }
}

/// A receive queue without arrivals.
struct Silence;

impl ReceiveQueue for Silence {
    fn receive(&mut self, _batch: &mut Batch, _cx: &mut Context) -> Poll {
        Poll::Done
    }
}

/// A transmit queue that frees its packets.
struct Sink(Arc<Counters>);

impl TransmitQueue for Sink {
    fn is_patient(&self) -> bool {
        true
    }
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        count_sent(&self.0, batch, cx);
        batch.clear();
    }
}
