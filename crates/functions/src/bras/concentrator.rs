//! One worker's access concentrator: its sessions, the way to the core, and what it keeps between packets.

use std::net::IpAddr;
use std::sync::Arc;

use netbricks_core::buffer::{BATCH, Batch, Packet};
use netbricks_core::icmp::IcmpErrors;
use netbricks_core::{BuildError, Context, EVENTS, Edge, Poll, State, Worker};

use super::config::BrasConfig;
use super::core_side::Gate;
use super::counts::Counts;
use super::fixed::Fixed;
use super::happening::Happening;
use super::limits::DiscoveryLimits;
use super::pool::Addresses;
use super::ppp::Shared;
use super::random::Random;
use super::requests::Requests;
use super::sessions::Sessions;
use super::time;
use crate::router::faces::Face;

/// The events that are kept for the control side.
const EVENTS_KEPT: usize = 1_024;
/// The time (ns) between two looks at what handlers ordered.
const LOOK: u64 = 50_000_000;

/// A worker's concentrator.
pub(super) struct Concentrator {
    pub(super) fixed: Arc<Fixed>,
    pub(super) sessions: State<Sessions>,
    pub(super) gate: Gate,
    /// The core side as the router's messages know an interface.
    pub(super) face: Face,
    pub(super) errors: IcmpErrors,
    pub(super) fragments: Vec<Packet>,
    /// When its next turn is (ns).
    turn: u64,
}

impl Concentrator {
    pub(super) fn new(config: &BrasConfig, worker: &Worker) -> Result<Self, BuildError> {
        let fixed = Arc::new(Fixed::new(config).map_err(BuildError::new)?);
        let seed = worker.seed() ^ (worker.index() as u64) << 32;
        // Two functions of one worker have one seed, and need numbers of their own.
        let owner = format!(
            "{:?} {:?} {:?} {} {}",
            config.access,
            config.core,
            config.name,
            config.address,
            config.station()
        );
        let is_small = worker.is_control();
        let places = if is_small { 1 } else { config.sessions };
        let fail = |error: &dyn std::fmt::Display| BuildError::new(format_args!("its tables: {error}"));
        let pool: &[_] = if is_small { &[] } else { &config.pool };
        let prefixes = config.prefixes.filter(|_| !is_small);
        let addresses =
            Addresses::new((pool, config.reserved()), (prefixes, config.prefix_length), places, seed)
                .map_err(|error| fail(&error))?;
        let shared = Shared {
            fixed: fixed.clone(),
            random: Random::new(seed, &owner, b"numbers"),
            addresses,
            requests: Requests::new(is_small),
            events: worker.event_log(EVENTS, EVENTS_KEPT, |event: &Happening, to| event.write(to)),
            counts: Counts::new(worker),
            to_access: Vec::with_capacity(BATCH),
        };
        let limits = DiscoveryLimits::new(config.discovery_rate, config.discovery_rate_each, seed);
        let cookies = Random::new(seed, &owner, b"cookies");
        let sessions = Sessions::new(shared, (limits, cookies), (worker.index(), seed), is_small)
            .map_err(|error| fail(&error))?;
        let sessions = worker.declare("sessions", sessions);
        super::handlers::declare(&sessions, worker);
        Ok(Self {
            gate: Gate::new(config.gateway),
            face: super::core_side::face(&fixed),
            errors: IcmpErrors::new(
                Some(fixed.address),
                fixed.address_v6.or(Some(fixed.link_local)),
                config.error_rate,
            ),
            fragments: Vec::new(),
            turn: 0,
            sessions,
            fixed,
        })
    }

    /// Takes a batch of the access or of the core port.
    pub(super) fn process(&mut self, input: usize, batch: &mut Batch, cx: &mut Context) {
        let now = time(cx);
        self.sessions.borrow_mut().run_timers(now, cx);
        for packet in batch.drain() {
            if input == super::ACCESS_INPUT {
                self.hear_access(packet, now, cx);
            } else {
                self.hear_core(packet, cx);
            }
        }
        self.leave(batch, cx);
        if self.next_turn(cx) < self.turn {
            cx.wake();
        }
    }

    /// Takes a turn: timers, and what handlers ordered.
    pub(super) fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let now = time(cx);
        self.sessions.borrow_mut().run_timers(now, cx);
        if self.gate.is_due(now) {
            self.ask_gateway(cx);
        }
        self.leave(batch, cx);
        self.turn = self.next_turn(cx);
        Poll::Until(self.turn)
    }

    fn next_turn(&self, cx: &Context) -> u64 {
        let due = self.sessions.borrow().next_due().unwrap_or(u64::MAX);
        let next = due.min(time(cx).saturating_add(LOOK));
        next.max(cx.now() + 1)
    }

    /// Passes frames for subscribers on, in `batch` where they fit.
    fn leave(&mut self, batch: &mut Batch, cx: &mut Context) {
        let sessions = self.sessions.clone();
        let mut sessions = sessions.borrow_mut();
        let frames = &mut sessions.shared.to_access;
        let fits = frames.len() <= BATCH && batch.is_empty();
        for packet in frames.drain(..) {
            if !fits {
                cx.emit(Edge::OUT, packet);
            } else if let Err(packet) = batch.push(packet) {
                // Not reached: there is room for all.
                cx.drop_packet(packet, netbricks_core::DropReason::QueueFull);
            }
        }
    }

    /// Whether an address is the concentrator's own.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => address == self.fixed.address,
            IpAddr::V6(address) => Some(address) == self.fixed.address_v6 || address == self.fixed.link_local,
        }
    }
}
