//! A plan's demands on the machine that it runs on: workers, cores, interfaces.

use std::path::Path;

use netbricks_vet::{Attestation, Unattested};

use super::plan::{Plan, refusal};
use super::runtime::MOST_WORKERS;
use crate::diagnostic::{Diagnostic, Diagnostics, Level};
use crate::frames;
use crate::report::cores;

impl Plan<'_> {
    /// The number of workers that the ports' placement needs: the largest worker number plus one.
    pub fn placed_workers(&self) -> usize {
        let numbers = self.ports.iter().flat_map(|port| &port.workers);
        numbers.map(|worker| worker.get_ref() + 1).max().unwrap_or(0)
    }

    /// Reports queues that are placed on a worker that does not exist, and workers without a core.
    pub(crate) fn check_placement(&self, diagnostics: &mut Diagnostics) {
        let needed = self.runtime.workers.unwrap_or_else(|| self.placed_workers());
        if let Some(list) = &self.runtime.cores
            && let listed = list.get_ref().numbers()
            && listed.len() < needed
        {
            let message = format!("{needed} workers need {needed} cores, and `cores` names {}", listed.len());
            diagnostics.push(Diagnostic::error(message).at(list.span(), "name one for each worker"));
        }
        let workers = self.runtime.workers.unwrap_or(MOST_WORKERS);
        for port in &self.ports {
            for worker in port.workers.iter().filter(|worker| *worker.get_ref() >= workers) {
                let label = match (self.runtime.workers, workers) {
                    (None, _) => format!("at most {workers} workers are possible"),
                    (Some(_), 1) => "there is 1 worker, number 0".to_owned(),
                    (Some(_), _) => format!("there are {workers} workers, from 0"),
                };
                diagnostics.push(
                    Diagnostic::error(format!(
                        "port `{}` has a queue on worker {}, which does not exist",
                        port.name,
                        worker.get_ref()
                    ))
                    .at(worker.span(), label),
                );
            }
        }
    }

    /// The errors where workers are to run on cores that are not `allowed`.
    pub(crate) fn forbidden_cores(&self, allowed: &[usize]) -> Vec<Diagnostic> {
        let forbidden = self.runtime.forbidden_cores(allowed).into_iter().map(|(place, found)| {
            let which = if let [_] = found.as_slice() { "is" } else { "are" };
            let message =
                format!("`cores` names {}, which {which} not there or not for this process", cores(&found));
            let error = Diagnostic::error(message).at(place, format!("it may use {}", cores(allowed)));
            Diagnostic { machine: true, ..error }
        });
        forbidden.collect()
    }

    /// The error where the file asks for an attestation, and it is not about this program.
    ///
    /// Relative names start from `directory`.
    pub(crate) fn unattested(&self, directory: &Path) -> Option<Diagnostic> {
        let named = self.runtime.attestation.as_ref()?;
        let list = self.runtime.attestation_list.as_ref();
        let in_list = list.map(|list| directory.join(list.get_ref()));
        let problem = Attestation::check_self(&directory.join(named.get_ref()), in_list.as_deref()).err()?;
        let label = match &problem {
            Unattested::Other { .. } => "this program is not the one that was vetted",
            Unattested::Program(_) => "this program cannot be compared",
            Unattested::Unreadable { .. } | Unattested::Invalid { .. } | Unattested::Empty { .. } => {
                "nothing is known of this program"
            }
            Unattested::List { .. } | Unattested::OtherList { .. } => {
                "the list that the program was vetted by"
            }
        };
        let place = match (&problem, list) {
            (Unattested::List { .. } | Unattested::OtherList { .. }, Some(list)) => list.span(),
            _ => named.span(),
        };
        let help =
            "run the program that `netbricks vet CRATE --attest FILE` built, or vet and build it again";
        let error = Diagnostic::error(problem.to_string()).at(place, label).help(help);
        Some(Diagnostic { machine: true, ..error })
    }

    /// Reports the interfaces and cores that this machine lacks, as far as that can be seen without
    /// permissions.
    ///
    /// They are warnings: the file may be right for another machine.
    pub(crate) fn look_around(&self, allowed: &[usize], diagnostics: &mut Diagnostics) {
        let largest = frames::largest_packet(self.large_frames());
        let lacking = self.ports.iter().flat_map(|port| {
            let lacks = port.configured.as_ref().map(|configured| configured.lacks(largest));
            lacks.into_iter().flatten().map(|error| refusal(&error, &port.settings))
        });
        for found in lacking.chain(self.forbidden_cores(allowed)) {
            let warning = Diagnostic { level: Level::Warning, machine: true, ..found };
            diagnostics.push(warning.help("so it is on this machine: a file for another one may be right"));
        }
    }
}
