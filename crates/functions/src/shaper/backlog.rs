//! The queue with the most bytes, found at once: a heap of all queues that knows the place of each.

/// The bytes of all queues, the most first; of those with equal bytes, the one with the lowest number.
pub(super) struct Backlog {
    /// The numbers of the queues, as a binary heap.
    heap: Vec<u32>,
    /// By queue: its place in the heap, and its weight.
    places: Vec<u32>,
    weights: Vec<u64>,
    /// Queues that changed their places so far.
    #[cfg(test)]
    pub(super) moved: u64,
}

impl Backlog {
    /// Of so many empty queues.
    pub(super) fn of(queues: usize) -> Self {
        Self {
            heap: (0..queues as u32).collect(),
            places: (0..queues as u32).collect(),
            weights: vec![0; queues],
            #[cfg(test)]
            moved: 0,
        }
    }

    /// The queue with the most bytes; `None` if no queue has packets.
    pub(super) fn fattest(&self) -> Option<usize> {
        let first = *self.heap.first()? as usize;
        (self.weights[first] > 0).then_some(first)
    }

    /// Notes the packets and bytes of a queue. The work grows with the logarithm of the number of queues.
    pub(super) fn set(&mut self, queue: usize, packets: u32, bytes: u64) {
        // A queue of packets without bytes comes before an empty one.
        let weight = bytes << 1 | u64::from(packets > 0);
        self.weights[queue] = weight;
        let at = self.rise(self.places[queue] as usize);
        self.sink(at);
    }

    fn is_before(&self, one: u32, other: u32) -> bool {
        let (first, second) = (self.weights[one as usize], self.weights[other as usize]);
        first > second || first == second && one < other
    }

    fn exchange(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for at in [one, other] {
            self.places[self.heap[at] as usize] = at as u32;
        }
        #[cfg(test)]
        {
            self.moved += 1;
        }
    }

    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 {
            let above = (at - 1) / 2;
            if !self.is_before(self.heap[at], self.heap[above]) {
                break;
            }
            self.exchange(at, above);
            at = above;
        }
        at
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let mut best = at;
            for below in [2 * at + 1, 2 * at + 2] {
                if below < self.heap.len() && self.is_before(self.heap[below], self.heap[best]) {
                    best = below;
                }
            }
            if best == at {
                return;
            }
            self.exchange(at, best);
            at = best;
        }
    }
}

#[cfg(test)]
mod tests {
    use netbricks_testkit::mutate::Random;

    use super::*;

    #[test]
    fn the_fattest_is_that_of_a_scan_in_few_steps() {
        let mut random = Random::new(6);
        for queues in [1, 2, 3, 10, 1_024] {
            let mut backlog = Backlog::of(queues);
            let mut bytes = vec![0u64; queues];
            assert_eq!(backlog.fattest(), None);
            for _ in 0..4_000 {
                let queue = random.below(queues);
                // Few sizes, so that many are equal.
                bytes[queue] = random.below(6) as u64 * 100;
                let before = backlog.moved;
                backlog.set(queue, u32::from(bytes[queue] > 0), bytes[queue]);
                assert!(backlog.moved - before <= queues.ilog2().into());
                let most = bytes.iter().max().copied().filter(|most| *most > 0);
                assert_eq!(backlog.fattest(), most.and_then(|most| bytes.iter().position(|b| *b == most)));
            }
        }
    }

    #[test]
    fn a_queue_of_packets_without_bytes_is_no_empty_one() {
        let mut backlog = Backlog::of(3);
        backlog.set(2, 1, 0);
        assert_eq!(backlog.fattest(), Some(2));
    }
}
