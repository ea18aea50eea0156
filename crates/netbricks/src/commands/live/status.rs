//! `status`, `suspend`, `resume` and `stop`: the state of the run, and whether packets move.

use netbricks_control::api::{Count, RunState, Status};

use super::arguments::ChangeArguments;
use super::changes::NOTHING_CHANGED;
use super::units::running_for;
use super::{Api, Output, Trouble};
use crate::diagnostic::{visible, width};
use crate::report::{counted, percent, scaled, thousands};

pub(super) fn status(api: &dyn Api, output: &mut Output<'_>, json: bool) -> Result<(), Trouble> {
    shown(output, json, api.status()?, text)
}

pub(super) fn suspend(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &ChangeArguments,
) -> Result<(), Trouble> {
    changed(output, arguments, api.suspend()?, "suspended: the sources are asked for no more packets\n")
}

pub(super) fn resume(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &ChangeArguments,
) -> Result<(), Trouble> {
    changed(output, arguments, api.resume()?, "running: the sources are asked for packets again\n")
}

pub(super) fn stop(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &ChangeArguments,
) -> Result<(), Trouble> {
    changed(output, arguments, api.stop()?, "stopping: the run drains and ends\n")
}

fn changed(
    output: &mut Output<'_>,
    arguments: &ChangeArguments,
    status: Status,
    text: &str,
) -> Result<(), Trouble> {
    let text = if arguments.conditions.dry_run { NOTHING_CHANGED } else { text };
    shown(output, arguments.plain.json, status, |_| text.into())
}

fn shown(
    output: &mut Output<'_>,
    json: bool,
    status: Status,
    text: impl FnOnce(&Status) -> String,
) -> Result<(), Trouble> {
    Ok(output.show(json, &status, text)?)
}

/// Names with their values to the right.
fn text(status: &Status) -> String {
    let Status { version, pid, file, workers, created, dropped, consumed, held, .. } = status;
    let packets =
        |count: Count| format!("{} packets, {}", thousands(count.packets), scaled(count.bytes as f64, "B"));
    let came = status.received.packets + created;
    let rows = [
        ("state", format!("{}, up {}", state(status.state), running_for(status.uptime_seconds))),
        ("file", file.clone()),
        ("configuration", configuration(status)),
        ("process", format!("{pid}, netbricks {version}, {}", counted(*workers, "worker"))),
        ("received", packets(status.received)),
        ("created", thousands(*created)),
        ("sent", packets(status.sent)),
        ("dropped", format!("{} ({})", thousands(*dropped), percent(*dropped, came))),
        ("consumed", thousands(*consumed)),
        ("held", thousands(*held)),
    ];
    let indent = rows.iter().map(|(name, _)| width(name)).max().unwrap_or(0) + 2;
    let mut out = format!("{:indent$}{}\n", "graph", visible(&status.graph));
    for (name, value) in rows {
        out.push_str(&format!("{name:indent$}{}\n", visible(&value)));
    }
    out
}

/// `running`, `suspended`, `stopping`.
pub(crate) fn state(state: RunState) -> &'static str {
    match state {
        RunState::Running => "running",
        RunState::Suspended => "suspended",
        RunState::Stopping => "stopping",
    }
}

/// The number of the configuration, and what it waits for.
fn configuration(status: &Status) -> String {
    let confirmed = match (status.confirmed, status.confirm_within_seconds) {
        (true, _) => "confirmed".to_owned(),
        (false, None) => "not confirmed".to_owned(),
        (false, Some(seconds)) => format!("rolled back in {} unless confirmed", running_for(seconds)),
    };
    let journal = match status.journal {
        0 => String::new(),
        1 => "; 1 write of a handler since".to_owned(),
        writes => format!("; {} writes of handlers since", thousands(writes)),
    };
    format!("{}, {confirmed}; generation {}{journal}", status.configuration, status.generation)
}

#[cfg(test)]
mod tests {
    use super::super::canned::{Canned, ran};
    use super::*;

    #[test]
    fn the_state_is_shown_with_its_units() {
        let api = Canned::default();
        assert_eq!(
            ran(&api, &["status"]).out,
            "graph          edge\n\
             state          running, up 2 h 03 min\n\
             file           edge.toml\n\
             configuration  3, confirmed; generation 12; 4 writes of handlers since\n\
             process        4711, netbricks 0.1.0, 2 workers\n\
             received       170,500,152 packets, 12.4 GB\n\
             created        0\n\
             sent           170,466,071 packets, 12.4 GB\n\
             dropped        34,081 (0.02 %)\n\
             consumed       0\n\
             held           0\n"
        );
    }

    #[test]
    fn a_configuration_that_waits_says_for_how_long() {
        let status =
            Status { confirmed: false, confirm_within_seconds: Some(42.9), ..Canned::default().status };
        let text = text(&status);
        assert!(text.contains("  3, rolled back in 42 s unless confirmed; generation 12"), "{text}");
    }

    #[test]
    fn changes_of_the_state_say_what_follows() {
        let api = Canned::default();
        assert_eq!(ran(&api, &["suspend"]).out, "suspended: the sources are asked for no more packets\n");
        assert_eq!(ran(&api, &["resume"]).out, "running: the sources are asked for packets again\n");
        assert_eq!(ran(&api, &["stop"]).out, "stopping: the run drains and ends\n");
        assert_eq!(api.asked(), ["suspend", "resume", "stop"]);
        for command in ["status", "suspend", "resume", "stop"] {
            let told = ran(&api, &[command, "--json"]);
            assert_eq!(serde_json::from_str::<Status>(&told.out).unwrap(), api.status);
        }
    }
}
