//! A naive model of the receiver of one direction, with each policy for overlaps written separately.

use netbricks_stream::Overlap;

/// The waiting bytes, and the known ones.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    overlap: Overlap,
    /// For Linux's policy: segments that may overlap, sorted by their beginnings.
    queued: Vec<(u64, Vec<u8>)>,
    /// For the plain policies: one byte for each position.
    bytes: Vec<Option<u8>>,
    pub(crate) next: u64,
    pub(crate) end: Option<u64>,
    /// The beginning of the segments with which the end is queued.
    end_from: u64,
    /// Bytes, and gaps as their lengths.
    pub(crate) told: Vec<Result<u8, u64>>,
}

impl Model {
    pub(crate) fn new(overlap: Overlap) -> Self {
        Self {
            overlap,
            queued: Vec::new(),
            bytes: Vec::new(),
            next: 0,
            end: None,
            end_from: 0,
            told: Vec::new(),
        }
    }

    pub(crate) fn ended(&self) -> bool {
        self.end == Some(self.next)
    }

    pub(crate) fn push(&mut self, start: u64, bytes: &[u8], fin: bool) {
        if self.ended() {
            return;
        }
        let last = start + bytes.len() as u64;
        match self.overlap {
            Overlap::Linux => self.end_as_linux(start, last, fin),
            Overlap::First | Overlap::Last => {
                let in_order = start <= self.next;
                let newest = self.overlap == Overlap::Last;
                if newest && self.end.is_some_and(|end| start <= end && last > end) {
                    self.end = None;
                }
                let sooner = self.end.is_none_or(|end| (newest || in_order) && last < end);
                if fin && sooner && last >= self.next {
                    self.end = Some(last);
                    self.bytes.truncate(last as usize);
                }
            }
        }
        let end = self.end.filter(|_| self.overlap != Overlap::Linux).unwrap_or(u64::MAX);
        // Only bytes behind `next` and before the end.
        let (from, to) = (start.max(self.next), last.min(end));
        if from >= to {
            return;
        }
        let bytes = &bytes[(from - start) as usize..(to - start) as usize];
        match self.overlap {
            Overlap::Linux => self.push_as_linux(from, bytes.to_vec(), fin),
            Overlap::First | Overlap::Last => {
                self.bytes.resize(self.bytes.len().max(to as usize), None);
                for (place, byte) in self.bytes[from as usize..].iter_mut().zip(bytes) {
                    if place.is_none() || self.overlap == Overlap::Last {
                        *place = Some(*byte);
                    }
                }
                self.advance();
            }
        }
    }

    /// Takes an end, which has a place in the queue behind the bytes of its segment.
    fn end_as_linux(&mut self, seq: u64, last: u64, fin: bool) {
        let in_order = seq <= self.next;
        if let Some(end) = self.end {
            // The new segment covers the skb that has the end, or everything before the end was received,
            // with bytes at its place.
            let covered = seq < self.end_from || seq == self.end_from && last > end + 1;
            if last > end && (in_order || covered) {
                self.end = None;
            }
        }
        if !fin || last < self.next || self.end.is_some_and(|end| end < last) {
            return;
        }
        let reach = |entry: &(u64, Vec<u8>)| entry.0 + entry.1.len() as u64;
        if !in_order && self.queued.iter().any(|other| other.0 <= seq && reach(other) > last) {
            return;
        }
        let hidden = self.queued.iter().any(|other| other.0 < seq && reach(other) > seq);
        let joins = self.queued.iter().find(|other| other.0 < seq && reach(other) == seq);
        let from = joins.filter(|_| !in_order && !hidden).map_or(seq, |other| other.0);
        self.end_from = if self.end == Some(last) { self.end_from.min(from) } else { from };
        self.end = Some(last);
    }

    fn push_as_linux(&mut self, seq: u64, skb: Vec<u8>, fin: bool) {
        let end_seq = seq + skb.len() as u64;
        if seq == self.next {
            self.told.extend(skb.iter().map(|byte| Ok(*byte)));
            self.next = end_seq;
            self.advance();
            return;
        }
        let end = |entry: &(u64, Vec<u8>)| entry.0 + entry.1.len() as u64;
        // All the bits are present.
        if self.queued.iter().any(|other| other.0 <= seq && end_seq + u64::from(fin) <= end(other)) {
            return;
        }
        let joins = self.queued.iter().position(|other| other.0 < seq && end(other) == seq);
        let hidden = self.queued.iter().any(|other| other.0 < seq && end(other) > seq);
        match joins {
            // A run that no earlier run hides.
            Some(place) if !hidden => self.queued[place].1.extend(skb),
            _ => {
                let place = self.queued.iter().position(|other| other.0 >= seq).unwrap_or(self.queued.len());
                self.queued.insert(place, (seq, skb));
                // Covered segments behind it are removed, also one that begins at the same byte.
                let mut at = 0;
                self.queued.retain(|other| {
                    at += 1;
                    at - 1 <= place || end(other) > end_seq
                });
            }
        }
    }

    fn advance(&mut self) {
        match self.overlap {
            Overlap::Linux => {
                while let Some((from, bytes)) = self.queued.first().cloned()
                    && from <= self.next
                    && !self.ended()
                {
                    self.queued.remove(0);
                    let to = bytes.len().min(self.end.map_or(usize::MAX, |end| (end - from) as usize));
                    let new = bytes[..to].get((self.next - from) as usize..).unwrap_or_default();
                    self.told.extend(new.iter().map(|byte| Ok(*byte)));
                    self.next += new.len() as u64;
                }
            }
            Overlap::First | Overlap::Last => {
                while let Some(Some(byte)) = self.bytes.get(self.next as usize) {
                    self.told.push(Ok(*byte));
                    self.next += 1;
                }
            }
        }
    }

    /// The position of the first byte that waits.
    fn waiting(&self) -> Option<u64> {
        match self.overlap {
            Overlap::Linux => self.queued.first().map(|(from, _)| *from),
            Overlap::First | Overlap::Last => {
                let rest = self.bytes.get(self.next as usize..)?;
                Some(self.next + rest.iter().position(Option::is_some)? as u64)
            }
        }
    }

    fn skip_to(&mut self, position: u64) {
        let position = self.end.map_or(position, |end| position.min(end));
        if position > self.next {
            self.told.push(Err(position - self.next));
            self.next = position;
        }
        self.advance();
    }

    /// The receiver has all bytes before `position`.
    pub(crate) fn acknowledged(&mut self, position: u64) {
        while let Some(first) = self.waiting().filter(|first| *first < position && !self.ended()) {
            self.skip_to(first);
        }
        // The end has a number too.
        if let Some(end) = self.end.filter(|end| *end + 1 == position) {
            self.skip_to(end);
        }
    }

    /// No more segments come.
    pub(crate) fn flush(&mut self) {
        while let Some(first) = self.waiting().filter(|_| !self.ended()) {
            self.skip_to(first);
        }
        if let Some(end) = self.end {
            self.skip_to(end);
        }
    }
}
