//! The queues of a port that were handed out: each goes to one worker, once.

use crate::port::PortError;

/// The queues that were handed out.
#[derive(Debug)]
pub(crate) struct Taken {
    receive: Vec<bool>,
    transmit: Vec<bool>,
}

impl Taken {
    pub(crate) fn new(receive: usize, transmit: usize) -> Self {
        Self { receive: vec![false; receive], transmit: vec![false; transmit] }
    }
    /// Whether a receive queue was handed out.
    pub(crate) fn is_any(&self) -> bool {
        self.receive.contains(&true)
    }
    /// Marks receive queue `queue` as handed out.
    pub(crate) fn receive(&mut self, port: &str, queue: usize) -> Result<(), PortError> {
        mark(&mut self.receive, port, "receive", queue)
    }
    /// Marks transmit queue `queue` as handed out.
    pub(crate) fn transmit(&mut self, port: &str, queue: usize) -> Result<(), PortError> {
        mark(&mut self.transmit, port, "transmit", queue)
    }
}

fn mark(taken: &mut [bool], port: &str, direction: &'static str, queue: usize) -> Result<(), PortError> {
    let problem = match taken.get_mut(queue) {
        Some(taken) if !*taken => {
            *taken = true;
            return Ok(());
        }
        Some(_) => "was taken already".to_owned(),
        None => match taken.len() {
            0 => format!("does not exist: the port has no {direction} queues"),
            count => format!("does not exist: there are {count}"),
        },
    };
    Err(PortError::Queue { port: port.into(), direction, queue, problem })
}
