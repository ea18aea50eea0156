//! The assignment of workers to cores.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The way in which workers get cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// A core for each worker, from those that the process may use.
    ///
    /// The first core is left to the system while there are enough. More workers than cores share them.
    #[default]
    Automatic,
    /// Worker `n` on the `n`th of these cores.
    Cores(Vec<usize>),
    /// Wherever the system puts them.
    Unpinned,
}

/// A placement that is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Fewer cores than workers.
    #[error("{workers} workers need {workers} cores, the list names {}: {listed:?}", listed.len())]
    TooFew {
        /// How many workers there are.
        workers: usize,
        /// The listed cores.
        listed: Vec<usize>,
    },
    /// A core that the process may not use, or that is not there.
    #[error("core {core} is not one that this process may use; these are: {allowed:?}")]
    NotAllowed {
        /// The core in the list.
        core: usize,
        /// The cores that the process may use.
        allowed: Vec<usize>,
    },
    /// A core for two workers.
    #[error("core {core} is listed twice: two workers on one core only take turns")]
    Twice {
        /// The core.
        core: usize,
    },
}

impl Placement {
    /// The core of each of `workers` workers, where the process may use the cores `allowed`.
    ///
    /// # Errors
    /// [`PlacementError`] when a list of cores does not suffice.
    pub fn assign(&self, workers: usize, allowed: &[usize]) -> Result<Vec<Option<usize>>, PlacementError> {
        match self {
            Self::Unpinned => Ok(vec![None; workers]),
            Self::Automatic if allowed.is_empty() => Ok(vec![None; workers]),
            Self::Automatic => {
                // The system's own work (interrupts, the control side) prefers the first core.
                let (first, others) = allowed.split_at(1);
                let order: Vec<usize> = match workers < allowed.len() {
                    true => others.to_vec(),
                    false => others.iter().chain(first).copied().collect(),
                };
                Ok((0..workers).map(|worker| Some(order[worker % order.len()])).collect())
            }
            Self::Cores(cores) => {
                if cores.len() < workers {
                    return Err(PlacementError::TooFew { workers, listed: cores.clone() });
                }
                let cores = &cores[..workers];
                for (i, core) in cores.iter().copied().enumerate() {
                    if !allowed.contains(&core) {
                        return Err(PlacementError::NotAllowed { core, allowed: allowed.to_vec() });
                    }
                    if cores[..i].contains(&core) {
                        return Err(PlacementError::Twice { core });
                    }
                }
                Ok(cores.iter().copied().map(Some).collect())
            }
        }
    }
}

/// The cores that this process may use, in the order of their numbers.
pub fn allowed_cores() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Binds the calling thread to a core.
///
/// # Errors
/// The kernel's error: there is no such core, or the process may not run there.
pub fn pin_this_thread(core: usize) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(std::io::Error::from(rustix::io::Errno::INVAL));
    }
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_core_is_left_free_while_there_are_enough() {
        for cores in 1..6usize {
            let allowed: Vec<usize> = (0..cores).map(|core| core * 2).collect();
            for workers in 1..9usize {
                let assigned = Placement::Automatic.assign(workers, &allowed).unwrap();
                assert_eq!(assigned.len(), workers);
                let uses = |core| assigned.iter().filter(|assigned| **assigned == Some(core)).count();
                assert_eq!(uses(0) == 0, workers < cores, "{workers} workers on {cores} cores");
                // Evenly: no core has two workers while another core has none.
                let loads: Vec<_> =
                    allowed.iter().map(|core| uses(*core)).skip(usize::from(workers < cores)).collect();
                assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn lists_are_checked() {
        let assign = |cores: &[usize], workers| Placement::Cores(cores.to_vec()).assign(workers, &[0, 1, 2]);
        assert_eq!(assign(&[2, 0, 1], 2), Ok(vec![Some(2), Some(0)]));
        assert!(matches!(assign(&[2], 2), Err(PlacementError::TooFew { workers: 2, .. })));
        assert!(matches!(assign(&[2, 3], 2), Err(PlacementError::NotAllowed { core: 3, .. })));
        assert!(matches!(assign(&[2, 2], 2), Err(PlacementError::Twice { core: 2 })));
    }

    #[test]
    fn a_pinned_thread_runs_where_it_was_put() {
        let Some(core) = allowed_cores().last().copied() else { return };
        std::thread::spawn(move || {
            pin_this_thread(core).unwrap();
            assert_eq!(rustix::thread::sched_getcpu(), core);
            assert_eq!(allowed_cores(), [core]);
        })
        .join()
        .unwrap();
    }
}
