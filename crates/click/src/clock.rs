//! Time as a configuration sees it: the machine's, the graph's, or simulated.

use std::cell::Cell;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where simulated time begins unless a configuration says otherwise (ns since 1970), as in Click.
pub const SIMULATION_BEGINS: u64 = 1_000_000_000 * 1_000_000_000;

/// A clock.
pub struct Clock {
    kind: Kind,
}

enum Kind {
    /// The machine's, with an offset and a speed that `timewarp` sets.
    Machine { start: Instant, warp: Cell<Warp> },
    /// Stands still until it is set: simulated time, or the time of a graph.
    Set { now: Cell<u64>, jumps: bool },
}

#[derive(Clone, Copy)]
struct Warp {
    /// Time at which the present speed began, real and warped (ns).
    real: [u64; 2],
    warped: [u64; 2],
    speed: f64,
    /// Whether waiting for a timer jumps to its expiry.
    jumps: bool,
}

impl Clock {
    /// The machine's clock.
    pub fn machine() -> Self {
        let warp = Warp { real: [0; 2], warped: [0; 2], speed: 1.0, jumps: false };
        Self { kind: Kind::Machine { start: Instant::now(), warp: Cell::new(warp) } }
    }
    /// A clock that hardly moves while packets do, and jumps to the next timer when all is idle.
    pub fn simulated(begin: u64) -> Self {
        Self { kind: Kind::Set { now: Cell::new(begin), jumps: true } }
    }
    /// A clock that is set from outside.
    pub fn set_from_outside(begin: u64) -> Self {
        Self { kind: Kind::Set { now: Cell::new(begin), jumps: false } }
    }

    fn real(start: Instant) -> [u64; 2] {
        let day = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_nanos() as u64);
        [day, start.elapsed().as_nanos() as u64 + 1]
    }

    fn read(&self, which: usize) -> u64 {
        match &self.kind {
            Kind::Machine { start, warp } => {
                let (real, warp) = (Self::real(*start)[which], warp.get());
                if warp.speed == 1.0 {
                    return real.wrapping_sub(warp.real[which]).wrapping_add(warp.warped[which]);
                }
                let passed = real.saturating_sub(warp.real[which]) as f64 * warp.speed;
                warp.warped[which] + passed as u64
            }
            Kind::Set { now, jumps } => {
                let read = now.get();
                // As in Click, simulated time moves on by a nanosecond whenever it is read. So no two events have the
                // same time, and a configuration that waits busily does not wait forever.
                now.set(read.saturating_add(u64::from(*jumps)));
                read
            }
        }
    }

    /// The time of day (ns since 1970).
    pub fn now(&self) -> u64 {
        self.read(0)
    }
    /// Steady time, for timers (ns).
    pub fn steady(&self) -> u64 {
        self.read(1)
    }
    /// Whether waiting jumps to the next timer instead.
    pub fn jumps(&self) -> bool {
        match &self.kind {
            Kind::Machine { warp, .. } => warp.get().jumps,
            Kind::Set { jumps, .. } => *jumps,
        }
    }
    /// Whether time is simulated.
    pub fn is_simulated(&self) -> bool {
        matches!(self.kind, Kind::Set { jumps: true, .. })
    }
    /// Whether the time is a graph's, which alone moves it.
    pub fn is_set_from_outside(&self) -> bool {
        matches!(self.kind, Kind::Set { jumps: false, .. })
    }
    /// How much faster than real time the clock runs.
    pub fn speed(&self) -> f64 {
        match &self.kind {
            Kind::Machine { warp, .. } => warp.get().speed,
            Kind::Set { .. } => 1.0,
        }
    }
    /// Moves on to a steady time, if that lies ahead.
    pub fn jump(&self, to: u64) {
        match &self.kind {
            Kind::Machine { start, warp } => {
                let ahead = to.saturating_sub(self.steady());
                if ahead > 0 {
                    let warped = [self.now() + ahead, to];
                    warp.set(Warp { real: Self::real(*start), warped, ..warp.get() });
                }
            }
            Kind::Set { now, .. } => now.set(now.get().max(to)),
        }
    }
    /// Sets the time of a clock that does not run by itself.
    pub fn set(&self, time: u64) {
        if let Kind::Set { now, .. } = &self.kind {
            now.set(time);
        }
    }
    /// Has the clock run at another speed from now on; `jumps` if waiting takes no time.
    pub fn warp(&self, speed: f64, jumps: bool) {
        if let Kind::Machine { start, warp } = &self.kind {
            let warped = [self.now(), self.steady()];
            warp.set(Warp { real: Self::real(*start), warped, speed, jumps });
        }
    }
    /// Real time until a steady time (ns).
    pub fn wait_until(&self, time: u64) -> u64 {
        let ahead = time.saturating_sub(self.steady());
        let speed = self.speed();
        if speed > 0.0 && speed != 1.0 { (ahead as f64 / speed) as u64 } else { ahead }
    }
}
