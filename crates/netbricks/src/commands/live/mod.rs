//! The commands that ask and change a running dataplane: clients of its control API.
//!
//! [`execute`] runs one of them over an [`Api`], for the command line and for the shell alike.

mod arguments;
#[cfg(test)]
pub(super) mod canned;
mod capture;
mod changes;
mod completion;
mod connect;
mod events;
mod handlers;
mod instances;
pub(super) mod mmb;
mod output;
pub(super) mod show;
pub(super) mod stats;
pub(super) mod status;
mod tenants;
mod trace;
pub(super) mod units;
mod waiting;

use netbricks_control::api::{
    Answers, Applied, ApplyOptions, ChangeOptions, Code, Event, Function, Graph, HistoryEntry, Plan, Port,
    Problem, Source, Stats, Status, TenantStats, TraceRecord,
};

pub(crate) use arguments::{Connection, LiveCommand, MmbArguments, ShellArguments, TopArguments};
pub(super) use completion::{Names, Wanted, completion_script, completions, shell_words, wanted};
pub(super) use connect::connect;
pub(super) use output::Output;

use super::arguments::Color;
use super::{Console, FAILURE, Failure, USAGE, top};
use crate::diagnostic::Diagnostic;

/// The requests of the control API that the commands make.
pub(crate) trait Api: Sync {
    /// The state of the run.
    fn status(&self) -> Result<Status, Problem>;
    /// The counters.
    fn stats(&self) -> Result<Stats, Problem>;
    /// The tenants.
    fn tenants(&self) -> Result<Vec<TenantStats>, Problem>;
    /// The graph.
    fn graph(&self) -> Result<Graph, Problem>;
    /// The ports.
    fn ports(&self) -> Result<Vec<Port>, Problem>;
    /// The functions with their handlers.
    fn functions(&self) -> Result<Vec<Function>, Problem>;
    /// Calls a handler that only asks.
    fn read(
        &self,
        function: &str,
        handler: &str,
        argument: &str,
        worker: Option<usize>,
    ) -> Result<Answers, Problem>;
    /// Calls a handler that changes state.
    fn write(
        &self,
        function: &str,
        handler: &str,
        value: &str,
        worker: Option<usize>,
    ) -> Result<Answers, Problem>;
    /// The file that runs.
    fn config(&self) -> Result<Source, Problem>;
    /// The file of a configuration of the history.
    fn configuration(&self, number: u64) -> Result<Source, Problem>;
    /// The changes that a file would make. Nothing changes.
    fn plan(&self, source: &Source) -> Result<Plan, Problem>;
    /// Makes a file run, if the generation is still `expected`.
    fn apply(
        &self,
        source: &Source,
        options: &ApplyOptions,
        expected: Option<u64>,
    ) -> Result<Applied, Problem>;
    /// The same dataplane, each change of which but `apply` has these conditions.
    fn with_conditions(&self, change: ChangeOptions) -> Box<dyn Api>;
    /// Confirms the running configuration.
    fn confirm(&self) -> Result<Status, Problem>;
    /// Goes back to a configuration, or to the last confirmed one.
    fn rollback(&self, to: Option<u64>) -> Result<Applied, Problem>;
    /// The configurations that ran, newest first.
    fn history(&self) -> Result<Vec<HistoryEntry>, Problem>;
    /// Stops asking the sources.
    fn suspend(&self) -> Result<Status, Problem>;
    /// Asks the sources again.
    fn resume(&self) -> Result<Status, Problem>;
    /// Drains and ends the run.
    fn stop(&self) -> Result<Status, Problem>;
    /// The kept events from this number on.
    fn events_so_far(&self, from: u64) -> Result<Vec<Event>, Problem>;
    /// The kept events from this number on, and then each one as it comes.
    fn events(&self, from: u64) -> Result<EventList, Problem>;
    /// The next packets that match, from node to node.
    fn trace(&self, filter: &str, at: Option<&str>, count: Option<u64>) -> Result<TraceList, Problem>;
    /// The next packets that match, as pieces of a capture.
    fn capture(
        &self,
        filter: &str,
        at: Option<&str>,
        count: Option<u64>,
        snaplen: Option<usize>,
    ) -> Result<CaptureList, Problem>;
}

/// Packets as they are traced.
pub(crate) type TraceList = Box<dyn Iterator<Item = Result<TraceRecord, Problem>> + Send>;
/// Pieces of a capture as they arrive.
pub(crate) type CaptureList = Box<dyn Iterator<Item = Result<Vec<u8>, Problem>> + Send>;

/// Events as they arrive.
pub(crate) type EventList = Box<dyn Iterator<Item = Result<Event, Problem>> + Send>;

/// A command's end that is no success.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The dataplane's answer is a problem, which has not been told yet.
    Problem(Problem),
    /// Anything else.
    Failure(Failure),
}

impl From<Problem> for Trouble {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}
impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// The rules of a running function, as the lines that make them.
pub(super) fn mmb_lines(console: Console, arguments: &MmbArguments) -> Result<String, Failure> {
    let client = connect(&arguments.plain.connection)?;
    mmb::lines(&client, arguments).map_err(|trouble| match trouble {
        Trouble::Failure(failure) => failure,
        Trouble::Problem(problem) => told(console, &problem, arguments.plain.json),
    })
}

/// Runs a command against the dataplane that it names.
pub(super) fn run(console: Console, color: Color, command: &LiveCommand) -> Result<(), Failure> {
    let client = connect(command.connection())?;
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let mut output = Output::new(&mut out, &mut err, console, color);
    execute(&client, &mut output, command)
}

/// Runs a command, and tells the problem if it ends in one.
pub(super) fn execute(api: &dyn Api, output: &mut Output<'_>, command: &LiveCommand) -> Result<(), Failure> {
    let json = command.json();
    let change = command.change();
    let conditional = change.is_given().then(|| api.with_conditions(change.options()));
    let api = conditional.as_deref().unwrap_or(api);
    let done = match command {
        LiveCommand::Status(_) => status::status(api, output, json),
        LiveCommand::Show(arguments) => show::show(api, output, arguments),
        LiveCommand::Get(arguments) => handlers::get(api, output, arguments),
        LiveCommand::Set(arguments) => handlers::set(api, output, arguments),
        LiveCommand::Mmb(arguments) => mmb::mmb(api, output, arguments),
        LiveCommand::Instances(arguments) => instances::instances(api, output, arguments),
        LiveCommand::Tenants(arguments) => tenants::tenants(api, output, arguments),
        LiveCommand::Stats(arguments) => stats::stats(api, output, arguments),
        LiveCommand::Top(arguments) => top::top(api, arguments).map_err(Trouble::from),
        LiveCommand::Events(arguments) => events::events(api, output, arguments),
        LiveCommand::Trace(arguments) => trace::trace(api, output, arguments),
        LiveCommand::Capture(arguments) => capture::capture(api, output, arguments),
        LiveCommand::Plan(arguments) => changes::plan(api, output, arguments),
        LiveCommand::Apply(arguments) => changes::apply(api, output, arguments),
        LiveCommand::Confirm(arguments) => changes::confirm(api, output, arguments),
        LiveCommand::Rollback(arguments) => changes::rollback(api, output, arguments),
        LiveCommand::History(_) => changes::history(api, output, json),
        LiveCommand::Config(arguments) => changes::config(api, output, arguments),
        LiveCommand::Suspend(arguments) => status::suspend(api, output, arguments),
        LiveCommand::Resume(arguments) => status::resume(api, output, arguments),
        LiveCommand::Stop(arguments) => status::stop(api, output, arguments),
        LiveCommand::Shell(_) => {
            Err(Failure::Usage("the shell cannot run itself: this is one already".into()).into())
        }
    };
    finished(output, json, done)
}

/// Tells the problem in which a command ended, if it did.
pub(super) fn finished(
    output: &mut Output<'_>,
    json: bool,
    done: Result<(), Trouble>,
) -> Result<(), Failure> {
    match done {
        Ok(()) => Ok(()),
        Err(Trouble::Failure(failure)) => Err(failure),
        Err(Trouble::Problem(problem)) => {
            output.tell(&problem_text(&problem, output.colored_errors()));
            if json {
                output.json(&problem)?;
            }
            Err(Failure::Told(problem_code(&problem)))
        }
    }
}

/// Tells a problem on the console. With `json`, standard output gets it too.
pub(super) fn told(console: Console, problem: &Problem, json: bool) -> Failure {
    console.tell(&problem_text(problem, console.color));
    let written = if json { console.json(problem) } else { Ok(()) };
    written.err().unwrap_or(Failure::Told(problem_code(problem)))
}

/// A problem for people: the faults of a file as `check` shows them, everything else as one error.
fn problem_text(problem: &Problem, color: bool) -> String {
    match &problem.rendered {
        Some(rendered) => rendered.clone(),
        None => {
            let mut error = Diagnostic::error(problem.detail.clone());
            error.help.clone_from(&problem.help);
            crate::diagnostic::Source::new("", "").render(&error, color)
        }
    }
}

fn problem_code(problem: &Problem) -> u8 {
    match problem.code {
        Code::Faulty => USAGE,
        _ => FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::canned::{Canned, ran};
    use super::*;

    #[test]
    fn the_faults_of_a_file_are_shown_as_check_shows_them() {
        let rendered = "error: function `flow` is not defined\n  edge.toml:1:1\n1 | x\n  | ^\n";
        let mut problem = Problem::new(Code::Faulty, "the file has 1 fault");
        problem.rendered = Some(rendered.to_owned());
        let api = Canned { refusal: Some(problem.clone()), ..Canned::default() };
        let directory = std::env::temp_dir().join(format!("netbricks-live-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("edge.toml");
        std::fs::write(&file, "x = 1\n").unwrap();
        let file = file.to_str().unwrap();

        let told = ran(&api, &["plan", file]);
        assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (2, "", rendered));
        let told = ran(&api, &["apply", file, "--json"]);
        assert_eq!((told.code, told.err.as_str()), (2, rendered));
        assert_eq!(serde_json::from_str::<Problem>(&told.out).unwrap(), problem);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn other_problems_are_one_error_with_the_remedy() {
        let problem =
            Problem::new(Code::Conflict, "nothing waits to be confirmed").help("apply a file first");
        let api = Canned { refusal: Some(problem), ..Canned::default() };
        let told = ran(&api, &["confirm"]);
        assert_eq!(told.code, 1);
        assert_eq!(told.err, "error: nothing waits to be confirmed\n = apply a file first\n");
    }
}
