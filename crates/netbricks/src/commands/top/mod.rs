//! `top`: rates, cycles, drops and tables on the full screen.
//!
//! A thread looks at the dataplane ([`sample`]); this one takes keys and draws the [`model`].

mod draw;
mod model;
mod sample;
mod tables;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Failure;
use super::live::{Api, TopArguments, stats};
use model::{Asked, Model};
use sample::Look;

/// The time between two looks at the keyboard.
const TICK: Duration = Duration::from_millis(50);

/// Shows the dataplane until the operator or a signal ends it.
pub(super) fn top(api: &dyn Api, arguments: &TopArguments) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "`top` draws on a terminal, and this is none: `netbricks stats --watch` writes lines".into(),
        ));
    }
    let interval = stats::interval(arguments.interval)?;
    let signals = Signals::catch()?;
    let wants_tables = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The sampler ends when `stop` is dropped, at the latest after the look that it has begun.
        let (stop, stopped) = sync_channel(0);
        let (sender, looks) = sync_channel(1);
        let wants_tables = &wants_tables;
        scope.spawn(move || sample::look_often(api, interval, wants_tables, &sender, &stopped));
        let outcome = on_terminal(|terminal| attend(terminal, &looks, wants_tables, &signals.ended));
        // From here on, a signal ends the process at once.
        signals.ended.store(true, Ordering::Relaxed);
        drop((stop, looks));
        outcome
    })
}

/// Takes keys and looks, and draws, until the operator or a signal ends it.
fn attend(
    terminal: &mut DefaultTerminal,
    looks: &Receiver<Look>,
    wants_tables: &AtomicBool,
    ended: &AtomicBool,
) -> std::io::Result<()> {
    let mut model = Model::default();
    while !ended.load(Ordering::Relaxed) {
        terminal.draw(|frame| draw::draw(frame, &mut model))?;
        if event::poll(TICK)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if model.press(key) == Asked::End {
                        break;
                    }
                    wants_tables.store(model.wants_tables(), Ordering::Relaxed);
                }
                // The next drawing takes the new size.
                _ => {}
            }
        }
        loop {
            match looks.try_recv() {
                Ok(look) => model.take(look),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }
    Ok(())
}

/// Takes over the terminal and gives it back, also after an error or a panic.
fn on_terminal(show: impl FnOnce(&mut DefaultTerminal) -> std::io::Result<()>) -> Result<(), Failure> {
    /// Gives the terminal back when it is dropped.
    struct Taken;
    impl Drop for Taken {
        fn drop(&mut self) {
            ratatui::restore();
        }
    }
    let failed = |error: std::io::Error| Failure::Failed(format!("the terminal cannot be used: {error}"));
    let taken = Taken;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let outcome = show(&mut terminal);
    drop(taken);
    outcome.map_err(failed)
}

/// Signals that end the display rather than the process, so that the terminal is given back.
struct Signals {
    ended: Arc<AtomicBool>,
    caught: Vec<SigId>,
}

impl Signals {
    fn catch() -> Result<Self, Failure> {
        let mut signals = Self { ended: Arc::default(), caught: Vec::new() };
        let failed = |error| Failure::Failed(format!("signals cannot be caught: {error}"));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The second signal ends the process if the first has no effect.
            let ended = Arc::clone(&signals.ended);
            let again = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, ended);
            signals.caught.push(again.map_err(failed)?);
            let first = signal_hook::flag::register(signal, Arc::clone(&signals.ended));
            signals.caught.push(first.map_err(failed)?);
        }
        Ok(signals)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for caught in self.caught.drain(..) {
            signal_hook::low_level::unregister(caught);
        }
    }
}
