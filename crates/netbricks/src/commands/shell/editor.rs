//! The line editor of the shell: prompt, history, completion.

use std::borrow::Cow;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use reedline::{
    ColumnarMenu, Completer, CompletionResult, Emacs, FileBackedHistory, KeyCode, KeyModifiers, MenuBuilder,
    Prompt, PromptEditMode, PromptHistorySearch, PromptHistorySearchStatus, Reedline, ReedlineEvent,
    ReedlineMenu, Signal, Span, Suggestion, default_emacs_keybindings,
};

use super::super::Failure;
use super::super::live::{Api, Names, Wanted, wanted};
use super::highlight::Colors;
use super::words::{quoted, typed};

/// Lines that the history keeps.
const KEPT: usize = 1_000;
/// Files that are offered at most.
const FILES: usize = 500;
const MENU: &str = "words";

/// The editor.
pub(super) struct Editor {
    editor: Reedline,
    names: Arc<Mutex<Names>>,
    /// The generation that the names are of.
    generation: Option<u64>,
    warning: Option<String>,
}

impl Editor {
    /// An editor for the commands of this tree.
    pub(super) fn new(tree: &clap::Command, color: bool) -> Self {
        let mut tree = tree.clone();
        tree.build();
        let names = Arc::new(Mutex::new(Names::default()));
        let mut keys = default_emacs_keybindings();
        keys.add_binding(
            KeyModifiers::NONE,
            KeyCode::Tab,
            ReedlineEvent::UntilFound(vec![ReedlineEvent::Menu(MENU.into()), ReedlineEvent::MenuNext]),
        );
        let mut editor = Reedline::create()
            .with_completer(Box::new(Words { tree: tree.clone(), names: Arc::clone(&names) }))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(ColumnarMenu::default().with_name(MENU))))
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_ansi_colors(color);
        if color {
            editor = editor.with_highlighter(Box::new(Colors { tree, names: Arc::clone(&names) }));
        }
        let mut warning = None;
        match history() {
            Ok(None) => {}
            Ok(Some(history)) => editor = editor.with_history(Box::new(history)),
            Err(problem) => warning = Some(format!("no history is kept: {problem}")),
        }
        Self { editor, names, generation: None, warning }
    }

    /// A warning for the operator before the first line.
    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Asks for the names of what runs if there is another generation.
    ///
    /// Without an answer the old ones stay.
    pub(super) fn know(&mut self, api: &dyn Api, generation: u64) {
        if self.generation == Some(generation) {
            return;
        }
        if let Ok(names) = Names::all(api) {
            *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
            self.generation = Some(generation);
        }
    }

    /// The next line. `None` at Ctrl-D; Ctrl-C gives an empty line.
    pub(super) fn read(&mut self, prompt: String) -> Result<Option<String>, Failure> {
        let signal = self.editor.read_line(&Before(prompt));
        match signal.map_err(|error| Failure::Failed(format!("the terminal cannot be read: {error}")))? {
            Signal::Success(line) => {
                // Other shells of this user see the line at once. Where it cannot be written, the warning has said so.
                let _ = self.editor.sync_history();
                Ok(Some(line))
            }
            Signal::CtrlD => Ok(None),
            _ => Ok(Some(String::new())),
        }
    }
}

/// The history of all shells of this user. `None` where the environment names no place for it.
fn history() -> Result<Option<FileBackedHistory>, String> {
    let directory = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = directory("XDG_STATE_HOME").or_else(|| Some(directory("HOME")?.join(".local/state")));
    let Some(directory) = state.map(|state| state.join("netbricks")) else { return Ok(None) };
    history_in(&directory).map(Some)
}

/// A history in this directory. Values of handlers may be secrets, so only this user can read it.
fn history_in(directory: &Path) -> Result<FileBackedHistory, String> {
    let file = directory.join("history");
    let failed = |error: &dyn std::fmt::Display| format!("`{}`: {error}", file.display());
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| failed(&error))?;
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&file)
        .map_err(|error| failed(&error))?;
    FileBackedHistory::with_file(KEPT, file.clone()).map_err(|error| failed(&error))
}

/// The text before a line.
struct Before(String);

impl Prompt for Before {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.0)
    }
    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("> ")
    }
    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("| ")
    }
    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let failing = match search.status {
            PromptHistorySearchStatus::Passing => "",
            PromptHistorySearchStatus::Failing => "nothing: ",
        };
        Cow::Owned(format!(" ({failing}search `{}`) ", search.term))
    }
}

/// The words that a line can go on with.
struct Words {
    tree: clap::Command,
    names: Arc<Mutex<Names>>,
}

impl Completer for Words {
    fn complete(&mut self, line: &str, cursor: usize) -> CompletionResult {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        CompletionResult::fresh(suggestions(line, cursor, &self.tree, &names))
    }
}

fn suggestions(line: &str, cursor: usize, tree: &clap::Command, names: &Names) -> Vec<Suggestion> {
    let (words, start) = typed(line, cursor);
    let last = words.last().map_or("", String::as_str);
    let suggestion = |word: &str, description: Option<String>, goes_on: bool| Suggestion {
        value: quoted(word),
        description,
        span: Span::new(start, cursor.max(start)),
        append_whitespace: !goes_on,
        ..Suggestion::default()
    };
    // `set F.H @FILE` and `mmb @FILE` take a file, too.
    let (sign, path) = match last.strip_prefix('@') {
        Some(path) if words[0] == "set" || words[0] == "mmb" && words.len() == 2 => ("@", Some(path)),
        _ => ("", None),
    };
    let candidates = match (wanted(tree, &words), path) {
        (_, Some(_)) | (Wanted::File, None) => {
            return files(path.unwrap_or(last))
                .iter()
                .map(|file| suggestion(&format!("{sign}{file}"), None, file.ends_with('/')))
                .collect();
        }
        (Wanted::One(candidates), None) => candidates,
        (Wanted::Live(kind), None) => names.of(kind),
        (Wanted::Anything, None) => return Vec::new(),
    };
    candidates
        .into_iter()
        .filter(|candidate| candidate.word.starts_with(last))
        .map(|candidate| suggestion(&candidate.word, Some(candidate.summary), false))
        .collect()
}

/// The files whose names begin so, sorted; a directory ends in `/`.
fn files(prefix: &str) -> Vec<String> {
    let split = prefix.rfind('/').map_or(0, |slash| slash + 1);
    let (directory, beginning) = prefix.split_at(split);
    let place = if directory.is_empty() { Path::new(".") } else { Path::new(directory) };
    let Ok(entries) = std::fs::read_dir(place) else { return Vec::new() };
    let file = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let hidden = name.starts_with('.') && !beginning.starts_with('.');
        let end = if entry.path().is_dir() { "/" } else { "" };
        (name.starts_with(beginning) && !hidden).then(|| format!("{directory}{name}{end}"))
    };
    let mut files: Vec<String> = entries.flatten().filter_map(file).take(FILES).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use reedline::{History, HistoryItem};

    use super::super::super::arguments::CommandLine;
    use super::super::super::live::canned::Canned;
    use super::*;

    fn offered(line: &str) -> Vec<String> {
        let mut tree = CommandLine::command();
        tree.build();
        let names = Names::all(&Canned::default()).unwrap();
        let shown = suggestions(line, line.len(), &tree, &names);
        shown.into_iter().map(|s| format!("{}{}", &line[..s.span.start], s.value)).collect()
    }

    #[test]
    fn commands_handlers_ports_and_files_are_offered() {
        assert_eq!(offered("stat"), ["status", "stats"]);
        assert_eq!(offered("get flows.f"), ["get flows.flows.occupancy", "get flows.flows.top"]);
        assert_eq!(offered("set f"), ["set flows.clear"]);
        assert_eq!(offered("show ports w"), ["show ports wan"]);
        assert_eq!(offered("apply --dr"), ["apply --dry-run"]);
        assert_eq!(offered("get flows.flows.top 1"), [""; 0]);
        assert_eq!(offered("mmb add tcp-dport 80 dr"), ["mmb add tcp-dport 80 drop"]);
        assert_eq!(offered("mmb del"), ["mmb delete", "mmb del"]);
    }

    #[test]
    fn names_of_files_with_spaces_are_quoted() {
        let directory = std::env::temp_dir().join(format!("netbricks-files-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("sub")).unwrap();
        std::fs::write(directory.join("my file.toml"), "").unwrap();
        let place = directory.to_str().unwrap();
        assert_eq!(offered(&format!("apply {place}/m")), [format!("apply '{place}/my file.toml'")]);
        assert_eq!(offered(&format!("apply {place}/s")), [format!("apply {place}/sub/")]);
        assert_eq!(offered(&format!("set a.b @{place}/s")), [format!("set a.b @{place}/sub/")]);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_history_is_bounded_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("netbricks-history-{}", std::process::id()));
        let mut history = history_in(&directory).unwrap();
        for number in 0..KEPT + 10 {
            history.save(HistoryItem::from_command_line(format!("get f.{number}"))).unwrap();
        }
        history.sync().unwrap();
        drop(history);
        let file = directory.join("history");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), KEPT);
        assert_eq!(text.lines().last(), Some(format!("get f.{}", KEPT + 9).as_str()));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
