//! Ticks of a thread's engines: a timer of that thread whose signal handler only advances epochs.
//!
//! Code in a sandbox compares the epoch with its deadline in each loop and each function, and stops when the deadline is
//! reached. The timer belongs to the thread, so that a worker's ticks interrupt no other worker. An epoch is a tick of
//! the thread's CPU time: where the kernel has given the core to another thread meanwhile, the tick does not count.
//! Without such code the timer disarms itself after a few ticks.
//!
//! POSIX lets a handler call `clock_gettime` and `timer_settime` (signal-safety(7)), and Wasmtime documents
//! `Engine::increment_epoch` as signal-safe.

use std::cell::{Cell, OnceCell};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::rc::Rc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};

use wasmtime::Engine;

/// The time between two ticks (ns).
pub(crate) const TICK: u64 = 250_000;
/// Ticks without sandboxed code after which the timer is disarmed.
const IDLE_TICKS: u32 = 16;
/// The part of a tick (ns) that the thread must have run for the tick to count.
const RAN: u64 = TICK / 8 * 7;

thread_local! {
    /// The thread's ticks, for the handler. It has no destructor, so that a signal finds it at any time.
    static CURRENT: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    static TICKS: OnceCell<Rc<Ticks>> = const { OnceCell::new() };
}

/// The part of a thread's ticks that its signal handler uses.
struct Shared {
    engines: Vec<Engine>,
    timer: Cell<libc::timer_t>,
    armed: AtomicBool,
    /// Whether sandboxed code runs.
    running: AtomicBool,
    /// Ticks since sandboxed code last ran.
    idle: AtomicU32,
    /// The thread's CPU time (ns) at the last epoch.
    counted: AtomicU64,
    /// Signals that came.
    signals: AtomicU64,
}

/// The ticks of one thread's engines.
///
/// It never leaves its thread: the timer signals that thread alone.
pub(crate) struct Ticks {
    shared: Box<Shared>,
}

/// The signal of the timers: a real-time signal that nothing else in this process uses.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 9
}

impl Ticks {
    /// The ticks of this thread, with `make` for its engines where there are none yet.
    ///
    /// # Errors
    /// Those of `make`, and of the system calls that make a timer and set the handler.
    pub(crate) fn of_this_thread(make: impl FnOnce() -> io::Result<Vec<Engine>>) -> io::Result<Rc<Self>> {
        TICKS.with(|ticks| {
            if let Some(ticks) = ticks.get() {
                return Ok(Rc::clone(ticks));
            }
            let new = Rc::new(Self::start(make()?)?);
            Ok(Rc::clone(ticks.get_or_init(|| new)))
        })
    }

    fn start(engines: Vec<Engine>) -> io::Result<Self> {
        install_handler()?;
        let shared = Box::new(Shared {
            engines,
            timer: Cell::new(make_timer()?),
            armed: AtomicBool::new(false),
            running: AtomicBool::new(false),
            idle: AtomicU32::new(0),
            counted: AtomicU64::new(0),
            signals: AtomicU64::new(0),
        });
        CURRENT.set(&raw const *shared);
        Ok(Self { shared })
    }

    /// The thread's engines, in the order in which they were made.
    pub(crate) fn engines(&self) -> &[Engine] {
        &self.shared.engines
    }

    /// Signals of the timer so far.
    #[cfg(test)]
    pub(crate) fn signals(&self) -> u64 {
        self.shared.signals.load(Ordering::Relaxed)
    }

    /// Whether the timer runs.
    #[cfg(test)]
    pub(crate) fn is_armed(&self) -> bool {
        self.shared.armed.load(Ordering::Relaxed)
    }

    /// Says that sandboxed code is about to run: epochs pass as long as the guard lives, and a little longer.
    #[inline]
    pub(crate) fn begin(&self) -> Running<'_> {
        self.shared.running.store(true, Ordering::Relaxed);
        // The handler runs on this thread: it sees that code runs and does not disarm, or it has disarmed before we look.
        compiler_fence(Ordering::SeqCst);
        if !self.shared.armed.load(Ordering::Relaxed) {
            self.arm();
        }
        Running(&self.shared)
    }

    #[cold]
    fn arm(&self) {
        self.shared.counted.store(thread_time(), Ordering::Relaxed);
        self.shared.armed.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        set_timer(self.shared.timer.get(), TICK);
    }
}

/// As long as it lives, sandboxed code runs on this thread.
pub(crate) struct Running<'t>(&'t Shared);

impl Drop for Running<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.idle.store(0, Ordering::Relaxed);
        self.0.running.store(false, Ordering::Relaxed);
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        // A signal that is on its way finds nothing.
        CURRENT.set(ptr::null());
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the timer is this thread's own and is deleted once.
        unsafe { libc::timer_delete(self.shared.timer.get()) };
    }
}

fn install_handler() -> io::Result<()> {
    static ONCE: Once = Once::new();
    static FAILED: AtomicBool = AtomicBool::new(false);
    ONCE.call_once(|| FAILED.store(set_action().is_err(), Ordering::Relaxed));
    match FAILED.load(Ordering::Relaxed) {
        true => Err(io::Error::other(format!("signal {} has a handler already", signal()))),
        false => Ok(()),
    }
}

fn set_action() -> io::Result<()> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the present one to `before`.
    if unsafe { libc::sigaction(signal(), ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call filled it, and all zeros are a valid action too.
    let before = unsafe { before.assume_init() };
    if before.sa_sigaction != libc::SIG_DFL {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeros are a valid action: the default one, an empty mask, no flags.
    let mut action = unsafe { action.assume_init() };
    action.sa_sigaction = on_tick as extern "C" fn(libc::c_int) as usize;
    // System calls that the signal interrupts begin again.
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler does only what signal-safety(7) allows.
    if unsafe { libc::sigaction(signal(), &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn make_timer() -> io::Result<libc::timer_t> {
    let event = MaybeUninit::<libc::sigevent>::zeroed();
    // SAFETY: all zeros are a valid `sigevent`; its fields are set below.
    let mut event = unsafe { event.assume_init() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = signal();
    // SAFETY: it reads a number.
    event.sigev_notify_thread_id = unsafe { libc::gettid() };
    let mut timer: libc::timer_t = ptr::null_mut();
    // SAFETY: both point to values of this frame.
    if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(timer)
}

/// Has the timer expire every `period` ns; 0 disarms it.
fn set_timer(timer: libc::timer_t, period: u64) {
    let period = libc::timespec { tv_sec: 0, tv_nsec: period as libc::c_long };
    let every = libc::itimerspec { it_interval: period, it_value: period };
    // SAFETY: the timer exists until its thread's ticks are dropped, and the time is a value of this frame.
    unsafe { libc::timer_settime(timer, 0, &raw const every, ptr::null_mut()) };
}

/// The CPU time of this thread (ns).
pub(crate) fn thread_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is a value of this frame.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

extern "C" fn on_tick(_: libc::c_int) {
    let current = CURRENT.get();
    // SAFETY: it is null, or what this thread's ticks own: they are dropped on this thread, after they have set it to null.
    let Some(shared) = (unsafe { current.as_ref() }) else { return };
    // SAFETY: the address of this thread's `errno`.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it is valid as long as the thread is.
    let errno = unsafe { place.read() };
    shared.tick();
    // SAFETY: as above.
    unsafe { place.write(errno) };
}

impl Shared {
    fn tick(&self) {
        self.signals.fetch_add(1, Ordering::Relaxed);
        let runs = self.running.load(Ordering::Relaxed);
        if !runs && self.idle.fetch_add(1, Ordering::Relaxed) >= IDLE_TICKS {
            self.armed.store(false, Ordering::Relaxed);
            set_timer(self.timer.get(), 0);
            return;
        }
        let now = thread_time();
        if now.wrapping_sub(self.counted.load(Ordering::Relaxed)) < RAN {
            return;
        }
        self.counted.store(now, Ordering::Relaxed);
        self.engines.iter().for_each(Engine::increment_epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engines() -> io::Result<Vec<Engine>> {
        Ok(vec![Engine::default()])
    }

    /// Spins until `done`.
    fn spin_until(mut done: impl FnMut() -> bool) {
        while !done() {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_busy_thread_ticks_and_an_idle_one_disarms_its_timer() {
        let ticks = Ticks::of_this_thread(engines).unwrap();
        assert!(!ticks.is_armed());
        let running = ticks.begin();
        assert!(ticks.is_armed());
        spin_until(|| ticks.signals() > 3 * u64::from(IDLE_TICKS));
        assert!(ticks.is_armed(), "code that runs long is ticked all the time");
        drop(running);
        spin_until(|| !ticks.is_armed());
        let ended = ticks.signals();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_eq!(ticks.signals(), ended, "a timer that is disarmed does not tick");
    }

    #[test]
    fn a_thread_that_sleeps_gets_no_epochs() {
        let ticks = Ticks::of_this_thread(engines).unwrap();
        let _running = ticks.begin();
        let (before, began) = (ticks.shared.counted.load(Ordering::Relaxed), thread_time());
        std::thread::sleep(std::time::Duration::from_millis(3));
        // It ran less than a tick, whatever the clock on the wall says.
        if thread_time() - began < RAN / 2 {
            assert_eq!(ticks.shared.counted.load(Ordering::Relaxed), before);
        }
    }

    #[test]
    fn each_thread_has_ticks_of_its_own() {
        let here = Ticks::of_this_thread(engines).unwrap();
        let signals = here.signals();
        std::thread::spawn(|| {
            let there = Ticks::of_this_thread(engines).unwrap();
            let _running = there.begin();
            spin_until(|| there.signals() >= 4);
        })
        .join()
        .unwrap();
        assert_eq!(here.signals(), signals, "another thread's timer does not signal this one");
    }
}
