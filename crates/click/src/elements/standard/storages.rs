//! Finds storages such as queues near an element.

use std::collections::HashSet;

use crate::notifier::Notice;
use crate::router::{At, Setup};
use crate::value::Raw;

/// The nearest storages on all paths from an element's port 0.
///
/// With [`Notice::Full`] they are those downstream of its output, with [`Notice::Empty`] those upstream of its input.
pub(super) fn nearest(at: At<'_>, towards: Notice) -> Vec<usize> {
    let router = at.router;
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut near = vec![(at.id, 0)];
    while !near.is_empty() {
        let mut far = Vec::new();
        for (element, port) in near {
            let next = match towards {
                Notice::Empty => router.sources(element, port),
                Notice::Full => router.targets(element, port),
            };
            for (element, port) in next {
                if !seen.insert((element, port)) {
                    continue;
                }
                if router.element(element).storage().is_some() {
                    if !found.contains(&element) {
                        found.push(element);
                    }
                    continue;
                }
                let beyond = router.connected_ports(element, port, towards == Notice::Empty);
                far.extend(beyond.into_iter().map(|port| (element, port)));
            }
        }
        near = far;
    }
    found
}

/// The elements that `QUEUES` names, if it names any. `None` after an error that it tells.
pub(super) fn of_argument(queues: Option<&Raw>, setup: &Setup<'_>) -> Option<Option<Vec<usize>>> {
    let Some(queues) = queues else { return Some(None) };
    match named(&queues.0, setup.at) {
        Ok(queues) => Some(Some(queues).filter(|queues| !queues.is_empty())),
        Err(name) => {
            setup.errors.error(&format!("no element named '{name}'"));
            None
        }
    }
}

/// The elements that an argument names, separated by spaces: with the first name that is none.
pub(super) fn named(text: &str, at: At<'_>) -> Result<Vec<usize>, String> {
    crate::language::text::split_words(text)
        .iter()
        .map(|name| at.router.find(name, at.id).ok_or_else(|| name.clone()))
        .collect()
}
