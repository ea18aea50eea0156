//! Writes of handlers: what they take in memory, and their records in the journal.

use super::Written;
use crate::store::Record;

/// The separator of a worker's number in the journal's name of a handler.
const ON_WORKER: char = '@';

impl Written {
    /// The bytes that it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.function.len() + self.handler.len() + self.argument.len()
    }

    /// The bytes that a call would take.
    pub(crate) fn bytes_of(call: &crate::Call) -> usize {
        size_of::<Self>() + call.function.len() + call.handler.len() + call.argument.len()
    }

    /// The journal's form: a write for one worker has its number behind the handler's name.
    pub(super) fn record(&self, time: u64) -> Record {
        let handler = match self.worker {
            Some(worker) => format!("{}{ON_WORKER}{worker}", self.handler),
            None => self.handler.clone(),
        };
        let (function, argument, tenant) =
            (self.function.clone(), self.argument.clone(), self.tenant.clone());
        Record { function, handler, argument, time, tenant }
    }
}

impl From<Record> for Written {
    fn from(Record { function, handler, argument, tenant, .. }: Record) -> Self {
        let split =
            handler.rsplit_once(ON_WORKER).and_then(|(name, worker)| Some((name, worker.parse().ok()?)));
        let (handler, worker) = match split {
            Some((name, worker)) => (name.to_owned(), Some(worker)),
            None => (handler, None),
        };
        Self { function, handler, argument, worker, tenant }
    }
}
