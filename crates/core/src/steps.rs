//! Answers that a worker makes in steps, with packets between them.

use netbricks_tables::{Cursor, FlowTable, Key, MAXIMUM_WORK};

use crate::state::State;

/// An answer that is made in steps, each of which takes little time.
///
/// A call answers `None` until the answer is whole, and is not repeated after that.
pub type Steps<T> = Box<dyn FnMut() -> Option<T>>;

/// Slots of a table that one step visits.
const SLOTS: usize = 4 * MAXIMUM_WORK;

/// An answer that is ready.
pub fn at_once<T: 'static>(answer: T) -> Steps<T> {
    let mut answer = Some(answer);
    Box::new(move || answer.take())
}

/// Makes all steps, for callers without packets to attend to.
pub(crate) fn to_the_end<T>(mut steps: Steps<T>) -> T {
    loop {
        if let Some(answer) = steps() {
            return answer;
        }
    }
}

impl<K: Key, V: 'static> State<FlowTable<K, V>> {
    /// An answer from all flows of the table, some hundred slots a step.
    ///
    /// `add` takes each flow that is not over into `gathered`; `end` makes the answer. A flow that stays is met
    /// once; one that comes or goes meanwhile at most once.
    ///
    /// ```
    /// use netbricks_core::tables::FlowTableConfig;
    /// use netbricks_core::{Function, Handler, Input, Operator, Worker, compose};
    ///
    /// fn sizes(input: Input, worker: &Worker) -> impl Function {
    ///     let flows = worker.flow_table::<u64, u64>("flows", FlowTableConfig::new(100));
    ///     worker.handler_in_steps(Handler::read("sum", "The sum of all values."), move |_| {
    ///         Ok(flows.in_steps(0, |sum, _, value| *sum += *value, |sum, _| sum.to_string()))
    ///     });
    ///     input.done()
    /// }
    ///
    /// # let pool = netbricks_core::buffer::Pool::builder().frames(16).build()?;
    /// # let worker = Worker::new(0, 1, pool);
    /// let mut node = compose(&worker, |input| sizes(input, &worker))?;
    /// assert_eq!(node.call("sum", ""), Ok("0".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_steps<G: 'static, T: 'static>(
        &self,
        gathered: G,
        mut add: impl FnMut(&mut G, &K, &V) + 'static,
        end: impl FnOnce(G, &FlowTable<K, V>) -> T + 'static,
    ) -> Steps<T> {
        let (table, mut cursor) = (self.clone(), Cursor::default());
        let mut rest = Some((gathered, end));
        Box::new(move || {
            let mut table = table.borrow_mut();
            let (gathered, _) = rest.as_mut()?;
            for _ in 0..SLOTS / MAXIMUM_WORK {
                let goes_on = table.walk(&mut cursor, MAXIMUM_WORK, |key, value| {
                    add(gathered, key, value);
                    true
                });
                if !goes_on {
                    return rest.take().map(|(gathered, end)| end(gathered, &table));
                }
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use netbricks_buffer::Pool;
    use netbricks_tables::{FlowTableConfig, Table};

    use super::*;
    use crate::worker::Worker;

    #[test]
    fn a_table_is_read_some_slots_a_step_and_each_flow_once() {
        let worker = Worker::new(0, 1, Pool::builder().frames(16).build().unwrap());
        let (steps, flows) = worker
            .declaring(|| {
                let flows = worker.flow_table::<u64, u64>("flows", FlowTableConfig::new(5_000));
                flows.with(|table| {
                    for key in 0..5_000_u64 {
                        table.lookup_bulk(&[[key]], 0, |_, entry| _ = entry.or_insert_with(|| key));
                    }
                });
                let visited = Rc::new(Cell::new(0));
                let counted = visited.clone();
                let add = move |sum: &mut u64, _: &_, value: &u64| {
                    counted.set(counted.get() + 1);
                    *sum += value;
                };
                ((visited, flows.in_steps(0, add, |sum, table| (sum, table.len()))), flows)
            })
            .unwrap()
            .0;
        let (visited, mut steps) = steps;
        let mut count = 0;
        let answer = loop {
            let before = visited.get();
            let answer = steps();
            count += 1;
            assert!(visited.get() - before <= SLOTS, "a step visits {} flows", visited.get() - before);
            match answer {
                Some(answer) => break answer,
                // Packets go on between two steps.
                None => flows.with(|table| assert_eq!(table.len(), 5_000)),
            }
        };
        assert_eq!((answer, visited.get()), ((4_999 * 5_000 / 2, 5_000), 5_000));
        assert!(count >= 5_000 / SLOTS, "{count} steps");
    }
}
