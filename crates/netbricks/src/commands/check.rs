//! `check`: checks everything that can be checked without running.

use netbricks_runtime::allowed_cores;

use super::file::{self, Checked, File};
use super::{Application, Console, Failure, FileArguments, concluded};
use crate::diagnostic::{Diagnostic, Level};
use crate::report::counted;

pub(super) fn check(app: &Application, console: Console, arguments: &FileArguments) -> Result<(), Failure> {
    let file = File::read_with(&arguments.file, &arguments.parameters)?;
    match file::check_spread(app, &file) {
        Ok(mut checked) => {
            let Checked { plan, diagnostics, .. } = &mut checked;
            plan.look_around(&allowed_cores(), diagnostics);
            if let Some(unattested) = plan.unattested(&file.directory) {
                diagnostics.push(Diagnostic { level: Level::Warning, ..unattested });
            }
            let plan = &checked.plan;
            // Shuffles that were put in stand last.
            let named = plan.functions.len() - checked.shuffles.len() - checked.key_shuffles.len();
            if arguments.json {
                return console.json(&serde_json::json!({
                    "file": file.name,
                    "ok": true,
                    "ports": plan.ports.iter().map(|port| &port.name).collect::<Vec<_>>(),
                    "functions": plan.functions.iter().take(named).map(|function| &function.name).collect::<Vec<_>>(),
                    "shuffles": checked.shuffles,
                    "frames": checked.frames,
                    "large_frames": plan.large_frames(),
                    "key_shuffles": checked.key_shuffles,
                    "filters": checked.filters,
                    "chains": plan.chains.iter().map(|chain| &chain.name).collect::<Vec<_>>(),
                    "diagnostics": checked.diagnostics.json(&checked.source),
                }));
            }
            console.tell(&checked.diagnostics.render(&checked.source, console.color));
            console.print(&format!(
                "{}  {} · {} · {}   good\n",
                file.name,
                counted(plan.ports.len(), "port"),
                counted(plan.chains.len(), "chain"),
                counted(named, "function")
            ))?;
            checked.told_shuffles().try_for_each(|line| console.print(&line))?;
            checked.filters.told().iter().try_for_each(|line| console.print(line))?;
            checked.told_frames().map_or(Ok(()), |line| console.print(&line))
        }
        Err(faults) if arguments.json => {
            let written = console.json(&serde_json::json!({
                "file": file.name,
                "ok": false,
                "diagnostics": faults.diagnostics.json(&faults.source),
            }));
            concluded(Err(faults.code()), written)
        }
        Err(faults) => Err(faults.told(console)),
    }
}
