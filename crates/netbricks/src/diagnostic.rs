//! Faults of a configuration file, and how they are shown.
//!
//! A fault is shown with its place, its line, carets under it, and the name that was probably meant.

use std::fmt::Write as _;
use std::ops::Range;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthChar;

/// How severe a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The file cannot be used.
    Error,
    /// The file can be used, but it probably does not say what its author meant.
    Warning,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
    fn style(self) -> Style {
        match self {
            Self::Error => AnsiColor::Red.on_default().bold(),
            Self::Warning => AnsiColor::Yellow.on_default().bold(),
        }
    }
}

/// A place in the file, and a text about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Bytes of the file.
    pub span: Range<usize>,
    /// The text beside the carets; may be empty.
    pub text: String,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub level: Level,
    /// The fault, in one sentence without a full stop.
    ///
    /// Further lines list details, for example faults of another file.
    pub message: String,
    /// The places: first that of the fault, then those that it conflicts with.
    pub labels: Vec<Label>,
    /// How to mend the fault, if no label says it.
    pub help: Option<String>,
    /// Whether the file is right and only this machine lacks something that it asks for.
    ///
    /// Such a fault is a failure and not wrong usage. If nothing is run, it is a warning.
    pub machine: bool,
}

impl Diagnostic {
    /// An error without a place yet.
    pub fn error(message: impl Into<String>) -> Self {
        Self { level: Level::Error, message: message.into(), labels: Vec::new(), help: None, machine: false }
    }
    /// A warning without a place yet.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { level: Level::Warning, ..Self::error(message) }
    }
    /// Adds a place.
    #[must_use]
    pub fn at(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }
    /// Adds a place, with the nearest of the known names as a proposal, or all names if none is near.
    #[must_use]
    pub fn meant<'a>(
        self,
        span: Range<usize>,
        found: &str,
        known: impl IntoIterator<Item = &'a str, IntoIter: Clone>,
    ) -> Self {
        let known = known.into_iter();
        match netbricks_core::nearest(found, known.clone()) {
            Some(name) => self.at(span, format!("did you mean `{name}`?")),
            None => {
                let list = known.map(|name| format!("`{name}`")).collect::<Vec<_>>();
                let help = match list.len() {
                    0 => None,
                    1..=24 => Some(format!(
                        "there {} {}",
                        if list.len() == 1 { "is" } else { "are" },
                        list.join(", ")
                    )),
                    n => Some(format!("there are {} and {} more", list[..24].join(", "), n - 24)),
                };
                let mut diagnostic = self.at(span, "");
                diagnostic.help = help;
                diagnostic
            }
        }
    }
    /// Adds how to mend the fault.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
    /// The fault's position in the file, for sorting; faults of the whole file come last.
    pub fn place(&self) -> usize {
        self.labels.first().map_or(usize::MAX, |label| label.span.start)
    }
}

/// A file's name and text, and where its lines begin.
#[derive(Debug)]
pub struct Source<'t> {
    name: String,
    text: &'t str,
    starts: Vec<usize>,
}

/// A line and column, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Position {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

/// Columns of the terminal that a source line may take; of longer lines, the part around the fault is shown.
const WIDTH: usize = 120;
const TAB: usize = 4;

impl<'t> Source<'t> {
    /// A file of this name and text.
    pub fn new(name: impl Into<String>, text: &'t str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { name: name.into(), text, starts }
    }
    /// Its name, as the operator gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The line and column of a byte. A byte past the end, or inside a character, is moved back.
    pub fn position(&self, byte: usize) -> Position {
        let byte = floor(self.text, byte);
        let line = self.starts.partition_point(|start| *start <= byte);
        let start = self.starts[line - 1];
        Position { line, column: self.text[start..byte].chars().count() + 1 }
    }

    fn line(&self, line: usize) -> &'t str {
        let start = self.starts[line - 1];
        let end = self.starts.get(line).map_or(self.text.len(), |next| next - 1);
        self.text[start..end].trim_end_matches('\r')
    }

    /// The fault as text for people, ending in a line feed. `color` adds terminal colours.
    pub fn render(&self, diagnostic: &Diagnostic, color: bool) -> String {
        let paint = |style: Style, text: &str| {
            if color { format!("{style}{text}{style:#}") } else { text.to_owned() }
        };
        let quiet = AnsiColor::Blue.on_default().bold();
        let level = diagnostic.level.style();
        let last = diagnostic.labels.iter().map(|label| self.position(label.span.start).line).max();
        let gutter = last.map_or(0, |line| line.to_string().len()) + 1;
        let mut lines = diagnostic.message.split('\n').map(visible);
        let mut out =
            format!("{}: {}\n", paint(level, diagnostic.level.name()), lines.next().unwrap_or_default());
        lines.for_each(|line| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{:gutter$}{line}", "");
        });
        for (i, label) in diagnostic.labels.iter().enumerate() {
            let Position { line, column } = self.position(label.span.start);
            let excerpt = self.excerpt(&label.span);
            let _ = writeln!(out, "{:gutter$}{}:{line}:{column}", "", self.name);
            let number = paint(quiet, &format!("{line:<gutter$}|"));
            let _ = writeln!(out, "{number} {}", excerpt.line);
            let carets = paint(if i == 0 { level } else { quiet }, &"^".repeat(excerpt.carets));
            let bar = paint(quiet, &format!("{:gutter$}|", ""));
            let under =
                format!("{bar} {:indent$}{carets} {}", "", visible(&label.text), indent = excerpt.indent);
            let _ = writeln!(out, "{}", under.trim_end());
        }
        if diagnostic.labels.is_empty() && !self.name.is_empty() {
            let _ = writeln!(out, "{:gutter$}{}", "", self.name);
        }
        if let Some(help) = &diagnostic.help {
            let _ = writeln!(out, "{:gutter$}{} {}", "", paint(quiet, "="), visible(help));
        }
        out
    }

    /// The fault in one line: `edge.toml:3:1: the port …`.
    pub fn line_of(&self, diagnostic: &Diagnostic) -> String {
        let mut line = match diagnostic.labels.first() {
            Some(label) => {
                let Position { line, column } = self.position(label.span.start);
                format!("{}:{line}:{column}: ", self.name)
            }
            None => String::new(),
        };
        line.push_str(&visible(&diagnostic.message.replace('\n', "; ")));
        for more in diagnostic.labels.first().map(|label| &label.text).into_iter().chain(&diagnostic.help) {
            if !more.is_empty() {
                line.push_str("; ");
                line.push_str(&visible(more));
            }
        }
        line
    }

    /// The fault as JSON, for programs.
    pub fn json(&self, diagnostic: &Diagnostic) -> serde_json::Value {
        let places: Vec<_> = diagnostic
            .labels
            .iter()
            .map(|label| {
                let Position { line, column } = self.position(label.span.start);
                let end = self.position(label.span.end);
                serde_json::json!({
                    "file": self.name, "line": line, "column": column,
                    "end_line": end.line, "end_column": end.column, "label": label.text,
                })
            })
            .collect();
        serde_json::json!({
            "level": diagnostic.level, "message": diagnostic.message, "places": places, "help": diagnostic.help,
            "machine": diagnostic.machine,
        })
    }

    fn excerpt(&self, span: &Range<usize>) -> Excerpt {
        let Position { line, .. } = self.position(span.start);
        let text = self.line(line);
        let start = self.starts[line - 1];
        let from = floor(self.text, span.start).saturating_sub(start).min(text.len());
        let to = floor(self.text, span.end.max(span.start)).saturating_sub(start).clamp(from, text.len());
        let (before, marked, after) = (shown(&text[..from]), shown(&text[from..to]), shown(&text[to..]));
        let carets = width(&marked).clamp(1, WIDTH);
        if width(&before) + width(&marked) + width(&after) <= WIDTH {
            return Excerpt { indent: width(&before), carets, line: format!("{before}{marked}{after}") };
        }
        // In a long line, show some text before the fault, the fault, and as much after it as fits.
        let kept =
            before.char_indices().rev().map(|(at, _)| at).find(|at| width(&before[*at..]) >= WIDTH / 3);
        let before = match kept {
            Some(at) if at > 0 => format!("…{}", &before[at..]),
            _ => before,
        };
        let (mut line, mut columns) = (before.clone(), width(&before));
        for c in marked.chars().chain(after.chars()) {
            columns += c.width().unwrap_or(0);
            if columns >= WIDTH {
                line.push('…');
                break;
            }
            line.push(c);
        }
        let indent = width(&before);
        Excerpt { indent, carets: carets.min(WIDTH.saturating_sub(indent).max(1)), line }
    }
}

struct Excerpt {
    line: String,
    /// Terminal columns before the carets.
    indent: usize,
    carets: usize,
}

fn floor(text: &str, byte: usize) -> usize {
    let mut byte = byte.min(text.len());
    while !text.is_char_boundary(byte) {
        byte -= 1;
    }
    byte
}

pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// A source line as it is shown: tabs become spaces, and control characters become a replacement sign.
fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.extend(std::iter::repeat_n(' ', TAB)),
            c if acts(c) => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}

/// A message that may contain text of the file: in one line, and without control characters.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(|c| if acts(c) { '\u{FFFD}' } else { c }).collect()
}

/// Whether a terminal acts on a character: controls, and those that turn the direction of the text that follows.
fn acts(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// The faults found in one file.
#[derive(Debug, Default)]
pub struct Diagnostics {
    found: Vec<Diagnostic>,
    /// Whether there may be more faults than were found.
    left_out: bool,
}

/// Most faults that are shown at once: after mending twenty, an operator runs the check again.
pub const SHOWN: usize = 20;

impl Diagnostics {
    /// Adds a fault, unless the same one is there already.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if !self.found.contains(&diagnostic) {
            self.found.push(diagnostic);
        }
    }
    /// Records that not every fault was looked for.
    pub(crate) fn leave_out(&mut self) {
        self.left_out = true;
    }
    /// Whether the file cannot be used.
    pub fn has_errors(&self) -> bool {
        self.found.iter().any(|diagnostic| diagnostic.level == Level::Error)
    }
    /// Whether all errors are the machine's: a missing file, interface or permission.
    pub fn is_machine(&self) -> bool {
        self.has_errors()
            && self.found.iter().all(|diagnostic| diagnostic.machine || diagnostic.level != Level::Error)
    }
    /// Whether there are no faults.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
    /// All faults: errors first, then in the order of the file.
    pub fn sorted(&self) -> Vec<&Diagnostic> {
        let mut sorted: Vec<_> = self.found.iter().collect();
        sorted.sort_by_key(|diagnostic| (diagnostic.level, diagnostic.place()));
        sorted.dedup();
        sorted
    }
    /// The first [`SHOWN`] faults as text, with blank lines between, and the number of further ones.
    pub fn render(&self, source: &Source<'_>, color: bool) -> String {
        let sorted = self.sorted();
        let mut parts: Vec<_> =
            sorted.iter().take(SHOWN).map(|diagnostic| source.render(diagnostic, color)).collect();
        if sorted.len() > SHOWN {
            let least = if self.left_out { "at least " } else { "" };
            parts.push(format!("… and {least}{} more\n", sorted.len() - SHOWN));
        }
        parts.join("\n")
    }
    /// All faults, a line each.
    pub fn lines(&self, source: &Source<'_>) -> Vec<String> {
        self.sorted().into_iter().map(|diagnostic| source.line_of(diagnostic)).collect()
    }
    /// All faults as JSON, for programs.
    pub fn json(&self, source: &Source<'_>) -> serde_json::Value {
        self.sorted().into_iter().map(|diagnostic| source.json(diagnostic)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_fault_of_the_north_star() {
        let text = format!("{}through = [\"ttl\", \"flow\"]\n", "\n".repeat(15));
        let at = text.find("\"flow\"").expect("it is there");
        let fault =
            Diagnostic::error("function `flow` is not defined").meant(at..at + 6, "flow", ["ttl", "flows"]);
        assert_eq!(
            Source::new("edge.toml", &text).render(&fault, false),
            "error: function `flow` is not defined\n   edge.toml:16:19\n16 | through = [\"ttl\", \"flow\"]\n   \
             |                   ^^^^^^ did you mean `flows`?\n"
        );
    }

    #[test]
    fn tabs_and_wide_characters_keep_the_carets_in_place() {
        let text = "\tname = \"端口\" # bad";
        let at = text.find('#').expect("it is there");
        let shown = Source::new("f", text).render(&Diagnostic::error("x").at(at..at + 5, ""), false);
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[1], "  f:1:14");
        let column = |line: &str, c: char| width(&line[..line.find(c).expect("it is there")]);
        assert_eq!(column(lines[2], '#'), column(lines[3], '^'));
    }

    #[test]
    fn a_file_cannot_steer_the_terminal() {
        let text = "a = \"\u{1b}[2J\"";
        let shown =
            Source::new("f", text).render(&Diagnostic::error("bad \u{1b}[2J").at(4..9, "\u{7}"), false);
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    }

    proptest! {
        #[test]
        fn any_span_of_any_text_is_shown(text in ".{0,40}(\n.{0,300}){0,4}", a in 0usize..1400, b in 0usize..1400) {
            let source = Source::new("f", &text);
            let shown = source.render(&Diagnostic::error("x").at(a..b, "here"), true);
            prop_assert!(shown.lines().all(|line| width(line) < WIDTH + 60));
            let plain = source.render(&Diagnostic::error("x").at(a..b, "here"), false);
            let carets = plain.lines().nth(3).expect("four lines");
            prop_assert!(carets.contains('^') && carets.ends_with("here"));
        }
    }
}
