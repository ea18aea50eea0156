//! The connections of each server, counted as they come and go, and again in parts where some moved unseen.

use netbricks_core::tables::Cursor;

use super::servers::MOST;

/// Connections by number of the server; those with other numbers count together, in the last place.
#[derive(Clone)]
struct ByNumber {
    open: Vec<u64>,
    all: u64,
}

impl ByNumber {
    fn new() -> Self {
        Self { open: vec![0; MOST + 1], all: 0 }
    }
    fn more(&mut self, number: usize) {
        self.open[number.min(MOST)] += 1;
        self.all += 1;
    }
    fn less(&mut self, number: usize) {
        let open = &mut self.open[number.min(MOST)];
        if *open > 0 {
            *open -= 1;
            self.all -= 1;
        }
    }
    fn clear(&mut self) {
        self.open.fill(0);
        self.all = 0;
    }
}

/// The counts, and those of a walk through the table that has begun.
pub(super) struct Counts {
    now: ByNumber,
    /// Connections that the walk has met, and those behind it that have come and gone since.
    met: ByNumber,
    walk: Option<Cursor>,
}

impl Counts {
    pub(super) fn new() -> Self {
        Self { now: ByNumber::new(), met: ByNumber::new(), walk: None }
    }

    /// All connections that are counted.
    pub(super) fn all(&self) -> u64 {
        self.now.all
    }

    /// The connections of a server.
    pub(super) fn of(&self, number: usize) -> u64 {
        self.now.open.get(number).copied().unwrap_or(0)
    }

    /// A connection has come; `is_behind` says that the walk has been at its place.
    pub(super) fn more(&mut self, number: usize, is_behind: bool) {
        self.now.more(number);
        if is_behind && self.is_walking() {
            self.met.more(number);
        }
    }

    /// A connection has gone.
    pub(super) fn less(&mut self, number: usize, is_behind: bool) {
        self.now.less(number);
        if is_behind && self.is_walking() {
            self.met.less(number);
        }
    }

    pub(super) fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// The place of the walk; the beginning, where none has begun.
    pub(super) fn walk(&self) -> Cursor {
        self.walk.unwrap_or_default()
    }

    /// Begins to count again.
    pub(super) fn begin(&mut self) {
        self.met.clear();
        self.walk = Some(Cursor::default());
    }

    /// The walk meets a connection.
    pub(super) fn met(&mut self, number: usize) {
        self.met.more(number);
    }

    /// The walk goes on from there with the next batch.
    pub(super) fn go_on(&mut self, walk: Cursor) {
        self.walk = Some(walk);
    }

    /// The walk has met all connections.
    pub(super) fn end(&mut self) {
        std::mem::swap(&mut self.now, &mut self.met);
        self.walk = None;
    }
}
