//! Turns of tasks: `ScheduleInfo`, `StaticThreadSched`, `BalancedThreadSched`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::language::text::split_words;
use crate::router::{At, Setup};
use crate::scheduler::{DEFAULT_TICKETS, MAX_TICKETS};
use crate::value::{Fixed, write_fixed};

pub(super) const CLASSES: &[Class] = &[
    Class::new("ScheduleInfo", schedule_info).ports("0/0").phase(Class::INFO),
    Class::new("StaticThreadSched", static_thread_sched).ports("0/0"),
    Class::new("BalancedThreadSched", balanced_thread_sched).ports("0/0"),
];

/// An element that only its configuration matters of.
struct Information;
impl Element for Information {}

/// Shares of turns by compound and name.
#[derive(Default)]
struct Shares(RefCell<HashMap<String, HashMap<String, u32>>>);

impl Shares {
    /// The tickets that all definitions together give an element, before they are limited.
    fn tickets(&self, name: &str) -> u64 {
        // `a/b/c` is in the compounds `a/` and `a/b/`; definitions may mean those, or the element.
        let mut prefixes: Vec<&str> = vec![""];
        prefixes.extend(name.match_indices('/').map(|(place, _)| &name[..=place]));
        prefixes.push(name);
        let mut tickets = vec![DEFAULT_TICKETS; prefixes.len()];
        let shares = self.0.borrow();
        for scope in prefixes[..prefixes.len() - 1].iter().rev() {
            let Some(defined) = shares.get(*scope) else { continue };
            let mut found = false;
            for (prefix, tickets) in prefixes.iter().zip(&mut tickets).rev() {
                let Some(rest) = prefix.strip_prefix(scope) else { break };
                if let Some(share) = defined.get(rest) {
                    *tickets = *share;
                    found = true;
                } else if found {
                    *tickets = DEFAULT_TICKETS;
                }
            }
        }
        let others = tickets[1..].iter().filter(|tickets| **tickets != DEFAULT_TICKETS);
        others
            .fold(u64::from(tickets[0]), |product, tickets| product.saturating_mul(u64::from(*tickets)) >> 10)
    }
}

/// `ScheduleInfo(ELEMENT SHARE, ...)`: gives elements' tasks more or fewer turns: `SHARE` times as many as usual.
///
/// An element may be a compound, written with a slash at the end, whose share is a factor for what is within.
fn schedule_info(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let router = setup.at.router;
    let shares = router.shared("ScheduleInfo", Shares::default);
    let name = setup.at.name();
    let scope = name[..name.rfind('/').map_or(0, |place| place + 1)].to_owned();
    let before = setup.errors.count();
    for argument in arguments.rest() {
        let words = split_words(&argument);
        match &words[..] {
            [] => (),
            [element, share] => match Fixed::<10>::parse(share, setup.at) {
                Ok(Fixed(share)) => {
                    shares.0.borrow_mut().entry(scope.clone()).or_default().insert(element.clone(), share);
                }
                Err(_) => setup.errors.error("expected 'ELEMENTNAME PARAM'"),
            },
            _ => setup.errors.error("expected 'ELEMENTNAME PARAM'"),
        }
    }
    if setup.errors.count() > before {
        return None;
    }
    for element in 0..router.len() {
        let mut tickets = shares.tickets(router.name(element));
        if tickets > u64::from(MAX_TICKETS) {
            tickets = u64::from(MAX_TICKETS);
            let most = write_fixed(tickets, 10);
            setup.errors.warning(&format!("ScheduleInfo too high; reduced to {most}"));
        }
        if tickets != u64::from(DEFAULT_TICKETS) {
            router.tasks.set_tickets_of(element, tickets as u32);
        }
    }
    Some(Rc::new(Information))
}

/// `StaticThreadSched(ELEMENT THREAD, ...)`: notes which threads elements' tasks should run on.
///
/// A configuration runs on one thread here: handlers `home_thread` show what was asked for, and nothing else changes.
fn static_thread_sched(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let at = setup.at;
    for argument in arguments.rest() {
        let mut words = Arguments::of(split_words(&argument), at, setup.errors);
        let element: Option<String> = words.required("ELEMENT");
        let thread: Option<i32> = words.required("THREAD");
        words.complete()?;
        let (element, thread) = (element?, thread?);
        if !prefer(at, &element, thread.max(-1)) {
            // Click tells this as an error, and goes on.
            setup.errors.message(&format!("'{element}/' does not name an element"));
        }
        if thread < -1 {
            setup.errors.warning(&format!("thread preference {thread} out of range"));
        }
    }
    Some(Rc::new(Information))
}

/// Notes a preference for an element, or for all in a compound.
fn prefer(at: At<'_>, name: &str, thread: i32) -> bool {
    let router = at.router;
    if let Some(element) = router.find(name, at.id) {
        router.tasks.set_home_of(element, thread);
        return true;
    }
    let own = at.name();
    let prefix = format!("{}{name}/", &own[..own.rfind('/').map_or(0, |place| place + 1)]);
    let within: Vec<usize> =
        (0..router.len()).filter(|element| router.name(*element).starts_with(&prefix)).collect();
    for element in &within {
        router.tasks.set_home_of(*element, thread);
    }
    !name.is_empty() && !within.is_empty()
}

/// `BalancedThreadSched([INTERVAL, INCREASING])`: has no effect, as a configuration runs on one thread here.
fn balanced_thread_sched(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let _: Option<i32> = arguments.positional("INTERVAL");
    let _: Option<bool> = arguments.positional("INCREASING");
    arguments.complete()?;
    Some(Rc::new(Information))
}
