//! Completion: what a word can go on with, from the tree of commands and from the names of what runs.
//!
//! The shell asks here at every Tab. The scripts of other shells call `netbricks complete-live`.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use clap::{Arg, ValueHint};
use netbricks_control::api::{Function, Problem};
use netbricks_mmb::complete::complete;
use netbricks_mmb::language::Context;

use super::{Api, Connection, connect};

/// The time that a Tab may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// The kind of word that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// One of these, each with a summary.
    One(Vec<Candidate>),
    /// A file.
    File,
    /// A name of what runs.
    Live(Live),
    /// Anything.
    Anything,
}

/// The kinds of names that only a running dataplane knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Live {
    /// Handlers that only ask.
    ReadHandlers,
    /// Handlers that change state.
    WriteHandlers,
    Functions,
    Ports,
    Nodes,
    Workers,
    Configurations,
}

/// A word, and a sentence about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) word: String,
    pub(crate) summary: String,
}

impl Candidate {
    fn new(word: impl Into<String>, summary: impl Into<String>) -> Self {
        Self { word: word.into(), summary: summary.into() }
    }
}

/// The names of what runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) functions: Vec<Function>,
    pub(crate) ports: Vec<Candidate>,
    pub(crate) nodes: Vec<Candidate>,
    pub(crate) workers: Vec<Candidate>,
    pub(crate) configurations: Vec<Candidate>,
}

impl Names {
    /// All names of what runs now.
    pub(crate) fn all(api: &dyn Api) -> Result<Self, Problem> {
        let mut names = Self::default();
        for kind in [Live::Functions, Live::Ports, Live::Nodes, Live::Workers, Live::Configurations] {
            names.ask(api, kind)?;
        }
        Ok(names)
    }

    /// Asks for the names of one kind.
    fn ask(&mut self, api: &dyn Api, kind: Live) -> Result<(), Problem> {
        match kind {
            Live::ReadHandlers | Live::WriteHandlers | Live::Functions => self.functions = api.functions()?,
            Live::Ports => {
                let port = |port: netbricks_control::api::Port| Candidate::new(port.name, port.driver);
                self.ports = api.ports()?.into_iter().map(port).collect();
            }
            Live::Nodes => {
                let node = |node: netbricks_control::api::Node| Candidate::new(node.name, node.kind);
                self.nodes = api.graph()?.nodes.into_iter().map(node).collect();
            }
            Live::Workers => {
                let worker = |number: usize| Candidate::new(number.to_string(), "");
                self.workers = (0..api.status()?.workers).map(worker).collect();
            }
            Live::Configurations => {
                let entry = |entry: netbricks_control::api::HistoryEntry| {
                    Candidate::new(entry.number.to_string(), format!("{} {}", entry.file, entry.note))
                };
                self.configurations = api.history()?.into_iter().map(entry).collect();
            }
        }
        Ok(())
    }

    /// The names of a kind.
    pub(crate) fn of(&self, kind: Live) -> Vec<Candidate> {
        let handlers = |writes: bool| {
            let of = move |function: &Function| {
                let handlers = function.handlers.iter().filter(move |handler| handler.writes == writes);
                let name = function.name.clone();
                handlers
                    .map(move |handler| {
                        Candidate::new(format!("{name}.{}", handler.name), handler.summary.clone())
                    })
                    .collect::<Vec<_>>()
            };
            self.functions.iter().flat_map(of).collect()
        };
        match kind {
            Live::ReadHandlers => handlers(false),
            Live::WriteHandlers => handlers(true),
            Live::Functions => {
                let function =
                    |function: &Function| Candidate::new(&function.name, function.definition.clone());
                self.functions.iter().map(function).collect()
            }
            Live::Ports => self.ports.clone(),
            Live::Nodes => self.nodes.clone(),
            Live::Workers => self.workers.clone(),
            Live::Configurations => self.configurations.clone(),
        }
    }
}

/// The kind of the last word, which may be empty. The tree must have been [built](clap::Command::build).
pub(crate) fn wanted<S: AsRef<str>>(tree: &clap::Command, words: &[S]) -> Wanted {
    let Some((last, before)) = words.split_last() else { return subcommands(tree) };
    let last = last.as_ref();
    let mut command = tree;
    let mut placed: Vec<&str> = Vec::new();
    // The option whose value comes next.
    let mut open: Option<&Arg> = None;
    for word in before.iter().map(AsRef::as_ref) {
        if open.is_some() {
            // Bash makes `=` a word of its own.
            open = open.filter(|_| word == "=");
        } else if let Some(option) = option(command, word) {
            open = Some(option).filter(|option| takes_value(option) && !word.contains('='));
        } else if let Some(next) = command.find_subcommand(word).filter(|_| placed.is_empty()) {
            command = next;
        } else if !word.starts_with('-') || word == "-" {
            placed.push(word);
        }
    }
    if let Some(option) = open {
        return values(command, option, &placed);
    }
    if last.starts_with('-') {
        return options(command);
    }
    if command.has_subcommands() {
        return subcommands(command);
    }
    if command.get_name() == "mmb" {
        return rule_words(&placed, last);
    }
    let mut positionals: Vec<&Arg> = command.get_positionals().collect();
    positionals.sort_by_key(|argument| argument.get_index());
    match positionals.get(placed.len()) {
        Some(argument) => values(command, argument, &placed),
        None => Wanted::Anything,
    }
}

/// The words of `mmb`: those of its rule language, by its parser.
fn rule_words(placed: &[&str], last: &str) -> Wanted {
    let languages = || {
        let language = |name| Candidate::new(name, "the language of the rules to translate");
        Wanted::One(["iptables", "nft"].map(language).into())
    };
    match placed {
        ["import"] => return languages(),
        ["import", _] | ["test"] => return Wanted::File,
        ["import" | "test", ..] => return Wanted::Anything,
        _ => {}
    }
    let line = placed.iter().flat_map(|word| [word, " "]).collect::<String>() + last;
    let mut candidates: Vec<Candidate> = complete(&line, line.len(), &Context::default())
        .into_iter()
        .map(|candidate| {
            // A word of the shell may have several of the language: `{80,443}`.
            let mut starts = last.char_indices().map(|(at, _)| at);
            let start = starts.find(|at| candidate.text.starts_with(&last[*at..])).unwrap_or(last.len());
            Candidate::new(format!("{}{}", &last[..start], candidate.text), candidate.summary)
        })
        .collect();
    if placed.is_empty() {
        candidates.push(Candidate::new("import", "translates rules of iptables or nft"));
    }
    Wanted::One(candidates)
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

/// The option that a word is: `--to`, `--to=3`, `-c`.
fn option<'c>(command: &'c clap::Command, word: &str) -> Option<&'c Arg> {
    let long = word.strip_prefix("--").map(|name| name.split('=').next().unwrap_or_default());
    let short = word.strip_prefix('-').filter(|_| long.is_none()).and_then(|name| name.chars().next());
    command.get_opts().chain(command.get_arguments()).find(|option| {
        (long.is_some() && option.get_long() == long) || (short.is_some() && option.get_short() == short)
    })
}

fn options(command: &clap::Command) -> Wanted {
    let visible = command.get_arguments().filter(|option| !option.is_hide_set());
    let long = visible.filter_map(|option| {
        let summary = option.get_help().map(ToString::to_string).unwrap_or_default();
        Some(Candidate::new(format!("--{}", option.get_long()?), summary))
    });
    Wanted::One(long.collect())
}

fn subcommands(command: &clap::Command) -> Wanted {
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
    let candidate = |command: &clap::Command| {
        Candidate::new(command.get_name(), command.get_about().map(ToString::to_string).unwrap_or_default())
    };
    Wanted::One(visible.map(candidate).collect())
}

/// The values of an argument.
fn values(command: &clap::Command, argument: &Arg, placed: &[&str]) -> Wanted {
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        let candidate = |value: clap::builder::PossibleValue| {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            Candidate::new(value.get_name(), help)
        };
        return Wanted::One(
            possible.into_iter().filter(|value| !value.is_hide_set()).map(candidate).collect(),
        );
    }
    if let Some(kind) = live(command.get_name(), argument.get_id().as_str(), placed) {
        return Wanted::Live(kind);
    }
    match argument.get_value_hint() {
        ValueHint::FilePath | ValueHint::AnyPath => Wanted::File,
        _ => Wanted::Anything,
    }
}

/// The kind of names that an argument of a command takes.
fn live(command: &str, argument: &str, placed: &[&str]) -> Option<Live> {
    Some(match (command, argument) {
        ("get", "handler") => Live::ReadHandlers,
        ("set", "handler") => Live::WriteHandlers,
        ("get" | "set", "worker") => Live::Workers,
        ("mmb", "function") => Live::Functions,
        ("trace" | "capture", "at") => Live::Nodes,
        ("rollback", "to") | ("config", "history") => Live::Configurations,
        ("show", "name") => match *placed.first()? {
            "ports" => Live::Ports,
            "workers" => Live::Workers,
            "drops" => Live::Nodes,
            _ => Live::Functions,
        },
        _ => return None,
    })
}

/// The words of a line, which are quoted as in a POSIX shell. `None` where a quote is open.
pub(crate) fn shell_words(line: &str) -> Option<Vec<String>> {
    shlex::split(line)
}

/// The names with which the last of these words can go on.
///
/// Each one is a line, with its summary behind a tab.
/// Nothing is said about errors: the operator is typing.
pub(crate) fn completions(tree: &clap::Command, words: &[String]) -> String {
    let mut tree = tree.clone();
    tree.build();
    let last = words.last().map_or("", String::as_str);
    let kind = match wanted(&tree, words) {
        Wanted::Live(kind) => kind,
        // Not every shell's script has the values of arguments without a name, such as those of `show`.
        Wanted::One(values) if words.len() > 1 && !last.starts_with('-') => return lines(&values, last),
        _ => return String::new(),
    };
    let connection = connection_of(words);
    let (sender, answer) = sync_channel(1);
    // A dataplane that does not answer must not keep the operator waiting; the process ends either way.
    std::thread::spawn(move || {
        let mut names = Names::default();
        let asked = connect(&connection).is_ok_and(|client| names.ask(&client, kind).is_ok());
        let _gone = sender.send(asked.then(|| names.of(kind)));
    });
    let names = answer.recv_timeout(PATIENCE).ok().flatten().unwrap_or_default();
    lines(&names, last)
}

fn lines(names: &[Candidate], prefix: &str) -> String {
    let line = |name: &Candidate| {
        let word = crate::diagnostic::visible(&name.word);
        format!("{word}\t{}\n", crate::diagnostic::visible(&name.summary))
    };
    names.iter().filter(|name| name.word.starts_with(prefix)).map(line).collect()
}

/// The dataplane that an unfinished command line names.
fn connection_of(words: &[String]) -> Connection {
    let value = |name: &str| {
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            match word.strip_prefix(name) {
                Some("") => return rest.find(|word| *word != "=").cloned(),
                Some(value) if value.starts_with('=') => return Some(value[1..].to_owned()),
                _ => {}
            }
        }
        None
    };
    Connection { socket: value("--socket"), token_file: value("--token-file").map(Into::into) }
}

/// A shell's completion script, with the names of what runs for the shells that can ask for them.
pub(crate) fn completion_script(shell: clap_complete::Shell, tree: &mut clap::Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, tree, "netbricks", &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        clap_complete::Shell::Bash => format!("{script}{BASH}"),
        // The script ends by running or binding its function: here it is another one.
        clap_complete::Shell::Zsh => {
            let end = script.rfind("\nif [ \"$funcstack[1]\"").unwrap_or(script.len());
            format!("{}{ZSH}", &script[..end])
        }
        clap_complete::Shell::Fish => format!("{script}{FISH}"),
        _ => script.into_owned(),
    }
}

const BASH: &str = r#"
# Names of the running dataplane take the place of what the command line itself offers.
_netbricks_live() {
    _netbricks "$@"
    local IFS=$'\n'
    local names=($("$1" complete-live -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if ((${#names[@]})); then
        COMPREPLY=("${names[@]%%$'\t'*}")
    fi
}
complete -F _netbricks_live -o bashdefault -o default netbricks
"#;

const ZSH: &str = r#"
# Names of the running dataplane take the place of what the command line itself offers.
_netbricks_live() {
    local -a names
    names=(${(f)"$(${words[1]} complete-live -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( ${#names} )); then
        names=(${names/$'\t'/:})
        _describe -t names 'name' names
    else
        _netbricks "$@"
    fi
}
compdef _netbricks_live netbricks
if [ "$funcstack[1]" = "_netbricks" ]; then
    _netbricks_live "$@"
fi
"#;

const FISH: &str = r"
# Names of the running dataplane.
function __netbricks_live
    set -l words (commandline -opc)
    $words[1] complete-live -- $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c netbricks -n '__fish_seen_subcommand_from get set show' -f -a '(__netbricks_live)'
complete -c netbricks -n '__fish_seen_subcommand_from get set' -l worker -x -a '(__netbricks_live)'
complete -c netbricks -n '__fish_seen_subcommand_from rollback' -l to -x -a '(__netbricks_live)'
complete -c netbricks -n '__fish_seen_subcommand_from config' -l history -x -a '(__netbricks_live)'
";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::super::arguments::CommandLine;
    use super::super::canned::Canned;
    use super::*;

    fn kind(line: &str) -> Wanted {
        let mut tree = CommandLine::command();
        tree.build();
        let words: Vec<&str> = line.split(' ').collect();
        wanted(&tree, &words)
    }

    fn words(wanted: &Wanted) -> Vec<&str> {
        match wanted {
            Wanted::One(candidates) => candidates.iter().map(|candidate| candidate.word.as_str()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_argument_has_its_kind_of_names() {
        let cases = [
            ("get ", Live::ReadHandlers),
            ("get --json fl", Live::ReadHandlers),
            ("get --socket /run/a.sock ", Live::ReadHandlers),
            ("set ", Live::WriteHandlers),
            ("get flows.top --worker ", Live::Workers),
            ("get flows.top --worker = ", Live::Workers),
            ("rollback --to ", Live::Configurations),
            ("config --history ", Live::Configurations),
            ("show ports ", Live::Ports),
            ("show handlers ", Live::Functions),
            ("show drops --color never ", Live::Nodes),
        ];
        for (line, expected) in cases {
            assert_eq!(kind(line), Wanted::Live(expected), "{line}");
        }
        for line in ["apply ", "plan --json ", "check ", "status --socket "] {
            assert_eq!(kind(line), Wanted::File, "{line}");
        }
        assert_eq!(kind("get flows.top 10 "), Wanted::Anything);
        assert_eq!(kind("apply --note "), Wanted::Anything);
    }

    #[test]
    fn commands_options_and_values_come_from_the_tree() {
        assert!(words(&kind("")).contains(&"status"));
        assert!(!words(&kind("")).contains(&"complete-live"));
        let options = kind("apply --");
        for option in ["--confirm", "--dry-run", "--json", "--socket", "--color"] {
            assert!(words(&options).contains(&option), "{options:?}");
        }
        assert_eq!(words(&kind("show ")), ["ports", "workers", "functions", "tables", "drops", "handlers"]);
        assert_eq!(words(&kind("status --color ")), ["auto", "always", "never"]);
    }

    #[test]
    fn words_of_rules_come_from_the_parser_of_their_language() {
        let offered = |line: &str| -> Vec<String> {
            let (kind, last) = (kind(line), line.rsplit(' ').next().unwrap_or_default().to_owned());
            let fits = words(&kind).into_iter().filter(|word| word.starts_with(&last));
            let mut offered: Vec<String> = fits.map(str::to_owned).collect();
            offered.sort_unstable();
            offered
        };
        assert_eq!(offered("mmb add-"), ["add-stateful", "add-stateless"]);
        assert_eq!(offered("mmb --function edge fl"), ["flush"]);
        assert_eq!(offered("mmb im"), ["import"]);
        let ports = offered("mmb add ip-saddr 10.0.0.1 tcp-dp");
        assert_eq!(ports, ["tcp-dport"]);
        assert!(offered("mmb add tcp-dport 80 ").contains(&"drop".to_owned()));
        assert!(offered("mmb add tcp-dport 80 mod tcp-opt-").contains(&"tcp-opt-mss".to_owned()));
        assert_eq!(offered("mmb policy "), ["accept", "drop"]);
        assert_eq!(offered("mmb import "), ["iptables", "nft"]);
        assert_eq!((kind("mmb import nft "), kind("mmb test ")), (Wanted::File, Wanted::File));
        assert_eq!(kind("mmb --function "), Wanted::Live(Live::Functions));
    }

    #[test]
    fn names_of_what_runs_are_offered_by_their_beginning() {
        let names = Names::all(&Canned::default()).unwrap();
        let shown = |kind: Live, prefix: &str| lines(&names.of(kind), prefix);
        assert_eq!(
            shown(Live::ReadHandlers, "flows.flows.o"),
            "flows.flows.occupancy\tEntries and capacity of `flows`.\n"
        );
        assert_eq!(shown(Live::WriteHandlers, ""), "flows.clear\tForgets all flows.\n");
        assert_eq!(shown(Live::Ports, "w"), "wan\tnull\n");
        assert_eq!(shown(Live::Nodes, "lan"), "lan.receive\treceive\n");
        assert_eq!(shown(Live::Workers, ""), "0\t\n1\t\n");
        assert_eq!(shown(Live::Configurations, "4"), "4\tedge.toml more backends\n");
    }

    #[test]
    fn values_that_the_tree_knows_need_no_dataplane() {
        let asked = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            completions(&CommandLine::command(), &words)
        };
        assert_eq!(asked(&["show", "t"]), "tables\tTables with their entries and capacity\n");
        assert_eq!(asked(&["stat"]) + &asked(&["apply", "--dry"]), "");
    }

    #[test]
    fn the_dataplane_is_the_one_that_the_line_names() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            connection_of(&words).socket
        };
        assert_eq!(of("get --socket /run/a.sock x"), Some("/run/a.sock".into()));
        assert_eq!(of("get --socket=/run/a.sock x"), Some("/run/a.sock".into()));
        assert_eq!(of("get --socket = /run/a.sock x"), Some("/run/a.sock".into()));
        assert_eq!(of("get x"), None);
    }

    #[test]
    fn scripts_ask_for_the_names_of_what_runs() {
        use clap_complete::Shell::{Bash, Elvish, Fish, Zsh};
        for (shell, asks) in [(Bash, true), (Zsh, true), (Fish, true), (Elvish, false)] {
            let script = completion_script(shell, &mut CommandLine::command());
            assert_eq!(script.contains("complete-live --"), asks, "{shell}");
        }
        let zsh = completion_script(Zsh, &mut CommandLine::command());
        assert_eq!(zsh.matches("compdef _netbricks").count(), 1, "the function without names is not bound");
    }
}
