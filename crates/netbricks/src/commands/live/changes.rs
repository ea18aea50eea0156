//! The commands that change the configuration: `plan`, `apply`, `confirm`, `rollback`, `history` and `config`.

use std::path::Path;
use std::time::Duration;

use anstyle::AnsiColor;
use netbricks_control::api::{
    Applied, ApplyOptions, CarriedState, Change, ChangeKind, ConfigurationState, HistoryEntry, Plan, Source,
    StateWay, Status,
};

use super::super::file::File;
use super::arguments::{ApplyArguments, ChangeArguments, ConfigArguments, PlanArguments, RollbackArguments};
use super::handlers::read_at_most;
use super::units::{date_time, period, running_for};
use super::{Api, Failure, Output, Trouble};
use crate::diagnostic::{visible, width};
use crate::report::Align::{Left, Right};
use crate::report::{Table, counted, memory, thousands};

/// The end of a change that was only checked.
pub(super) const NOTHING_CHANGED: &str = "a dry run: nothing has changed\n";
/// The most bytes of a file from the standard input.
const MOST: u64 = 64 << 20;

pub(super) fn plan(api: &dyn Api, output: &mut Output<'_>, arguments: &PlanArguments) -> Result<(), Trouble> {
    let source = source(&arguments.file)?;
    let plan = api.plan(&source)?;
    if arguments.plain.json {
        return Ok(output.json(&plan)?);
    }
    let text = plan_text(output, &source.name, &format!("changes to generation {}", plan.generation), &plan);
    Ok(output.print(&text)?)
}

pub(super) fn apply(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &ApplyArguments,
) -> Result<(), Trouble> {
    let source = source(&arguments.file)?;
    let options = ApplyOptions {
        dry_run: arguments.dry_run,
        confirm: arguments.confirm.map(|time| Duration::from(time).as_secs_f64()),
        note: arguments.note.clone(),
        forget: arguments.forget,
    };
    let applied = api.apply(&source, &options, arguments.generation)?;
    if arguments.plain.json {
        return Ok(output.json(&applied)?);
    }
    let mut text = plan_text(output, &source.name, "changes", &applied.plan);
    if arguments.dry_run {
        text.push_str(NOTHING_CHANGED);
    } else {
        text.push_str(&applied_text(&applied));
    }
    Ok(output.print(&text)?)
}

pub(super) fn rollback(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &RollbackArguments,
) -> Result<(), Trouble> {
    let applied = api.rollback(arguments.to)?;
    if arguments.plain.json {
        return Ok(output.json(&applied)?);
    }
    let name = format!("configuration {}", applied.configuration);
    let end = match arguments.conditions.dry_run {
        true => NOTHING_CHANGED.into(),
        false => applied_text(&applied),
    };
    let text = plan_text(output, &name, "changes", &applied.plan) + &end;
    Ok(output.print(&text)?)
}

pub(super) fn confirm(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &ChangeArguments,
) -> Result<(), Trouble> {
    let status = api.confirm()?;
    let text = |status: &Status| match arguments.conditions.dry_run {
        true => NOTHING_CHANGED.into(),
        false => format!("configuration {} is confirmed\n", status.configuration),
    };
    Ok(output.show(arguments.plain.json, &status, text)?)
}

pub(super) fn history(api: &dyn Api, output: &mut Output<'_>, json: bool) -> Result<(), Trouble> {
    let history = api.history()?;
    Ok(output.show(json, &history, |history| history_text(history))?)
}

pub(super) fn config(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &ConfigArguments,
) -> Result<(), Trouble> {
    let source = match arguments.history {
        None => api.config()?,
        Some(number) => api.configuration(number)?,
    };
    if arguments.plain.json {
        return Ok(output.json(&source)?);
    }
    let end = if source.text.is_empty() || source.text.ends_with('\n') { "" } else { "\n" };
    Ok(output.print(&format!("{}{end}", source.text))?)
}

/// A file as the dataplane takes it, with an absolute directory.
fn source(path: &Path) -> Result<Source, Failure> {
    let absolute = |directory: &Path| {
        let start = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let absolute = std::path::absolute(start)
            .map_err(|error| Failure::Failed(format!("`{}`: {error}", start.display())))?;
        absolute
            .into_os_string()
            .into_string()
            .map_err(|name| Failure::Usage(format!("the directory `{}` is not UTF-8", name.display())))
    };
    if path == Path::new("-") {
        let unread = |error: &dyn std::fmt::Display| {
            Failure::Usage(format!("the standard input cannot be read: {error}"))
        };
        let bytes = read_at_most(&mut std::io::stdin().lock(), MOST).map_err(|error| unread(&error))?;
        let text = String::from_utf8(bytes).map_err(|error| unread(&error))?;
        return Ok(Source { text, name: "standard input".into(), directory: absolute(Path::new("."))? });
    }
    let File { name, text, directory, .. } = File::read(path)?;
    Ok(Source { text, name, directory: absolute(&directory)? })
}

/// A plan as a list of changes, and what they cost.
fn plan_text(output: &Output<'_>, name: &str, title: &str, plan: &Plan) -> String {
    let mut text = String::new();
    for warning in &plan.warnings {
        let warned = output.paint(AnsiColor::Yellow.on_default().bold(), "warning");
        text.push_str(&format!("{warned}: {}\n", visible(warning)));
    }
    if plan.unchanged || plan.changes.is_empty() {
        let kept = counted(plan.kept.len(), "part");
        text.push_str(&format!("{}: nothing changes, {kept} as before\n", visible(name)));
        return text;
    }
    text.push_str(&format!("{}: {title}\n\n", visible(name)));
    let column =
        |of: fn(&Change) -> &String| plan.changes.iter().map(|change| width(of(change))).max().unwrap_or(0);
    let (parts, names) = (column(|change| &change.part), column(|change| &change.name));
    for change in &plan.changes {
        let (sign, style) = match change.kind {
            ChangeKind::Added => ("+", AnsiColor::Green),
            ChangeKind::Removed => ("-", AnsiColor::Red),
            ChangeKind::Replaced | ChangeKind::Updated => ("~", AnsiColor::Yellow),
        };
        let title = format!("{sign} {:parts$} {:names$}", visible(&change.part), visible(&change.name));
        let title = output.paint(style.on_default(), &title);
        let mut detail = format!("{}  {}", kind(change.kind), visible(&change.detail));
        if let Some(bytes) = change.copied_bytes {
            detail.push_str(&format!(" (copies {} while packets wait)", memory(bytes)));
        }
        text.push_str(format!("  {title}  {detail}").trim_end());
        text.push('\n');
        states_text(&change.states, &mut text);
    }
    if !plan.kept.is_empty() {
        let kept: Vec<_> = plan.kept.iter().map(|name| visible(name)).collect();
        text.push_str(&format!("    as before: {}\n", kept.join(", ")));
    }
    text.push_str(&format!("\n{}\n", sums(plan)));
    text
}

/// The state of a function: a line for all that is handed on whole, and one for each other.
fn states_text(states: &[CarriedState], text: &mut String) {
    let entries = |state: &CarriedState| match state.entries {
        1 => "1 entry".to_owned(),
        several => format!("{} entries", thousands(several)),
    };
    let whole = states.iter().filter(|state| state.way == StateWay::Whole);
    let whole: Vec<String> =
        whole.map(|state| format!("`{}` ({})", visible(&state.name), entries(state))).collect();
    if !whole.is_empty() {
        text.push_str(&format!("      state goes on whole: {}\n", whole.join(", ")));
    }
    for state in states.iter().filter(|state| state.way != StateWay::Whole) {
        let bytes = state.bytes.map(|bytes| format!(", {}", memory(bytes))).unwrap_or_default();
        let way = match state.way {
            StateWay::Whole | StateWay::InSteps => "moves in steps",
            StateWay::Copied => "is copied while packets wait",
            StateWay::Anew => "begins again",
        };
        let name = visible(&state.name);
        text.push_str(&format!("      `{name}` ({}{bytes}) {way}", entries(state)));
        if !state.reason.is_empty() {
            text.push_str(&format!(": {}", visible(&state.reason)));
        }
        text.push('\n');
    }
}

fn kind(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "added   ",
        ChangeKind::Removed => "removed ",
        ChangeKind::Replaced => "replaced",
        ChangeKind::Updated => "updated ",
    }
}

/// `1 added, 2 replaced, 0 updated, 1 removed`, and the bytes that are copied, where they are known.
fn sums(plan: &Plan) -> String {
    let of = |kind: ChangeKind| plan.changes.iter().filter(|change| change.kind == kind).count();
    let copied: u64 = plan.changes.iter().filter_map(|change| change.copied_bytes).sum();
    let copied = match copied {
        // A plan cannot know it.
        0 => String::new(),
        bytes => format!("; {} of state are copied while packets wait", memory(bytes)),
    };
    format!(
        "{} added, {} replaced, {} updated, {} removed{copied}",
        of(ChangeKind::Added),
        of(ChangeKind::Replaced),
        of(ChangeKind::Updated),
        of(ChangeKind::Removed)
    )
}

fn applied_text(applied: &Applied) -> String {
    let Applied { configuration, generation, longest_pause_ns, .. } = applied;
    let mut text = String::new();
    for (title, list) in [("moved", &applied.moved), ("not moved", &applied.refused)] {
        for state in list {
            text.push_str(&format!("{title}: {}\n", visible(state)));
        }
    }
    text.push_str(&format!(
        "configuration {configuration} runs, generation {generation}; no worker paused longer than {}\n",
        period(*longest_pause_ns)
    ));
    if let Some(seconds) = applied.confirm_within_seconds {
        text.push_str(&format!(
            "it is rolled back in {} unless `netbricks confirm` comes before\n",
            running_for(seconds)
        ));
    }
    text
}

fn history_text(history: &[HistoryEntry]) -> String {
    let mut table = Table::new([
        ("", Left),
        ("number", Right),
        ("applied", Left),
        ("state", Left),
        ("file", Left),
        ("note", Left),
    ]);
    for entry in history {
        let state = match entry.state {
            ConfigurationState::Applied => "not confirmed",
            ConfigurationState::Confirmed => "confirmed",
            ConfigurationState::RolledBack => "rolled back",
            ConfigurationState::Failed => "failed",
        };
        table.row([
            if entry.running { "runs".into() } else { String::new() },
            entry.number.to_string(),
            date_time(entry.time_ns),
            state.to_owned(),
            entry.file.clone(),
            entry.note.clone(),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::super::canned::{Canned, ran};
    use super::*;

    const PLAN: &str = "\
warning: port `lan` has one queue for 2 workers
FILE: changes to generation 12

  - port     spare    removed   no chain uses it
  + function rate     added     `policer`
  ~ function nat      replaced  `capacity` is 200000 instead of 100000 (copies 12 MB while packets wait)
      state goes on whole: `hits` (1 entry), `log` (20 entries)
      `sessions` (120,000 entries, 12 MB) is copied while packets wait: the pool is another
      `rules` (3 entries) begins again: the file names another content than it began with
  ~ chain    lan-wan  updated   goes through `rate`, too
    as before: lan, wan, ttl

1 added, 1 replaced, 1 updated, 1 removed; 12 MB of state are copied while packets wait
";
    const APPLIED: &str = "\
moved: nat: mappings
not moved: flows: flows (the capacity is smaller)
configuration 4 runs, generation 13; no worker paused longer than 1.24 ms
";

    fn plan_of(name: &str, title: &str) -> String {
        PLAN.replace("FILE: changes to generation 12", &format!("{name}: {title}"))
    }

    /// Runs a command with a file as its first argument.
    fn with_file(
        test: &str,
        api: &Canned,
        command: &str,
        more: &[&str],
    ) -> (String, super::super::canned::Told) {
        let name = format!("netbricks-changes-{}-{test}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "# new").unwrap();
        let path = path.to_str().unwrap().to_owned();
        let words: Vec<&str> = [command, path.as_str()].into_iter().chain(more.iter().copied()).collect();
        let told = ran(api, &words);
        std::fs::remove_file(&path).unwrap();
        (path, told)
    }

    #[test]
    fn a_plan_says_what_changes_and_what_it_costs() {
        let api = Canned::default();
        let (file, told) = with_file("plan", &api, "plan", &[]);
        assert_eq!(told.out, plan_of(&file, "changes to generation 12"));
        assert_eq!((told.code, api.asked()), (0, vec!["plan # new".to_owned()]));
        let (_, told) = with_file("plan", &api, "plan", &["--json"]);
        assert_eq!(serde_json::from_str::<Plan>(&told.out).unwrap(), api.plan);
    }

    #[test]
    fn a_plan_without_changes_says_so() {
        let plan = Plan { unchanged: true, kept: vec!["lan".into()], ..Plan::default() };
        let (file, told) = with_file("same", &Canned { plan, ..Canned::default() }, "plan", &[]);
        assert_eq!(told.out, format!("{file}: nothing changes, 1 part as before\n"));
    }

    #[test]
    fn an_applied_file_shows_its_plan_and_its_cost() {
        let api = Canned::default();
        let more = ["--confirm", "60s", "--note", "more backends", "--generation", "12"];
        let (file, told) = with_file("apply", &api, "apply", &more);
        let confirm = "it is rolled back in 1 min 00 s unless `netbricks confirm` comes before\n";
        assert_eq!(told.out, format!("{}{APPLIED}{confirm}", plan_of(&file, "changes")));
        assert_eq!(
            api.asked(),
            [
                "apply # new ApplyOptions { dry_run: false, confirm: Some(60.0), note: Some(\"more backends\"), forget: false } Some(12)"
            ]
        );
        let (_, told) = with_file("apply", &api, "apply", &["--json"]);
        assert_eq!(serde_json::from_str::<Applied>(&told.out).unwrap(), api.applied);
    }

    #[test]
    fn a_dry_run_says_that_nothing_changed() {
        let (file, told) = with_file("dry", &Canned::default(), "apply", &["--dry-run"]);
        assert_eq!(told.out, format!("{}a dry run: nothing has changed\n", plan_of(&file, "changes")));
    }

    #[test]
    fn a_missing_file_is_a_usage_error() {
        let told = ran(&Canned::default(), &["apply", "no-such-file.toml"]);
        assert_eq!(told.code, 2);
        assert!(told.err.starts_with("error: there is no file `no-such-file.toml`"), "{}", told.err);
    }

    #[test]
    fn rollback_goes_where_it_is_told() {
        let api = Canned::default();
        assert_eq!(
            ran(&api, &["rollback"]).out,
            format!("{}{APPLIED}", plan_of("configuration 4", "changes"))
        );
        ran(&api, &["rollback", "--to", "2"]);
        assert_eq!(api.asked(), ["rollback None", "rollback Some(2)"]);
    }

    #[test]
    fn each_change_takes_a_generation_and_a_dry_run() {
        for words in [
            &["set", "routes.add", "10.0.0.0/8 3"][..],
            &["rollback"],
            &["confirm"],
            &["suspend"],
            &["resume"],
            &["stop"],
        ] {
            let api = Canned::default();
            let plain = ran(&api, words);
            let changed = api.asked();
            let dry = ran(&api, &[words, &["--dry-run", "--generation", "12"]].concat());
            let conditions = "ChangeOptions { dry_run: true, generation: Some(12) }".to_owned();
            assert_eq!(api.asked(), [&changed[..], &[conditions], &changed].concat(), "{words:?}");
            assert_eq!((plain.code, dry.code), (0, 0), "{words:?}");
            assert!(dry.out.ends_with("a dry run: nothing has changed\n"), "{words:?}: {}", dry.out);
            assert!(!plain.out.contains("dry run"), "{words:?}: {}", plain.out);
        }
    }

    #[test]
    fn the_history_shows_what_runs() {
        let api = Canned::default();
        assert_eq!(
            ran(&api, &["history"]).out,
            "      number  applied                   state        file       note\n\
             \u{20}          4  2026-02-03T04:09:06.007Z  rolled back  edge.toml  more backends\n\
             runs       3  2026-02-03T04:08:06.007Z  confirmed    edge.toml\n"
        );
        let told = ran(&api, &["history", "--json"]);
        assert_eq!(serde_json::from_str::<Vec<HistoryEntry>>(&told.out).unwrap(), api.history);
    }

    #[test]
    fn files_of_the_history_end_in_a_line_feed() {
        let api = Canned::default();
        assert_eq!(ran(&api, &["config"]).out, "# running\n");
        assert_eq!(ran(&api, &["config", "--history", "2"]).out, "# configuration 2\n");
        let told = ran(&api, &["config", "--json"]);
        assert_eq!(serde_json::from_str::<Source>(&told.out).unwrap().text, "# running\n");
    }

    #[test]
    fn confirming_names_the_configuration() {
        let api = Canned::default();
        assert_eq!(ran(&api, &["confirm"]).out, "configuration 3 is confirmed\n");
        let told = ran(&api, &["confirm", "--json"]);
        assert_eq!(serde_json::from_str::<Status>(&told.out).unwrap(), api.status);
    }
}
