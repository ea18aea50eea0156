//! Regular expressions of rules, as automata of a bounded size that read each byte once.
//!
//! PCRE's syntax is translated where it differs from that of `regex-syntax`. Backreferences and look-around are not
//! supported: with them, the time to match has no bound.

use regex_automata::dfa::{Automaton, OverlappingState, dense};
use regex_automata::nfa::thompson;
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::ast::ErrorKind;
use regex_syntax::hir::{Hir, HirKind, Look};
use regex_syntax::{Error, ParserBuilder};

use super::language::PcreFlags;
use super::simulation::Simulation;
use super::work;

/// A compiled regular expression.
pub(super) struct Regex {
    /// It reads each byte once; `None` where it would be too large.
    dfa: Option<dense::DFA<Vec<u32>>>,
    /// It reads each byte for each of its states, in little memory.
    nfa: thompson::NFA,
    /// Whether a match depends on the bytes before it, or on where the data begins.
    pub(super) looks_behind: bool,
    /// Whether a match depends on the byte behind it.
    pub(super) looks_ahead: bool,
    /// Whether a match depends on where the data ends.
    pub(super) looks_for_end: bool,
    /// Bytes that stand in every match, in lower case; empty where none are known.
    pub(super) required: Vec<u8>,
    source: String,
}

impl std::fmt::Debug for Regex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Regex").field(&self.source).finish()
    }
}

/// Why a regular expression was refused: the byte of its text, and the problem.
pub(super) enum Refused {
    Wrong(usize, String),
    /// It is right for PCRE, and needs what is not supported.
    Unsupported(usize, String),
}

/// The most bytes of the expression without its determinisation.
const MOST_NFA: usize = 1 << 20;
/// The most states of an expression without a deterministic automaton: so many steps may a byte take.
pub(super) const MOST_STATES: usize = 1_024;
/// The most bytes of the deterministic automaton.
const MOST_DFA: usize = 1 << 20;
/// The most bytes of memory that making it may take.
const MOST_WORK: usize = 4 << 20;
/// The deepest nesting of groups.
const DEEPEST: u32 = 64;

impl Regex {
    pub(super) fn new(pattern: &str, flags: PcreFlags) -> Result<Self, Refused> {
        let (translated, places) = translate(pattern)?;
        let mut parser = ParserBuilder::new()
            .unicode(false)
            .utf8(false)
            .nest_limit(DEEPEST)
            .case_insensitive(flags.ignore_case)
            .dot_matches_new_line(flags.dot_all)
            .multi_line(flags.multi_line)
            .ignore_whitespace(flags.extended)
            .build();
        let hir = parser.parse(&translated).map_err(|error| refused(&error, &places))?;
        let hir = if flags.dollar_end { hir } else { with_last_line_feed(&hir) };
        let hir = if flags.anchored { Hir::concat(vec![Hir::look(Look::Start), hir]) } else { hir };
        if hir.properties().minimum_len() == Some(0) && hir.properties().look_set().is_empty() {
            return Err(Refused::Wrong(
                0,
                "this regular expression matches everywhere: let it need a byte at least".into(),
            ));
        }
        let nfa = thompson::Compiler::new()
            .configure(thompson::Config::new().utf8(false).nfa_size_limit(Some(MOST_NFA)).shrink(false))
            .build_from_hir(&hir)
            .map_err(|_| explodes())?;
        let config = dense::Config::new()
            .match_kind(MatchKind::All)
            .accelerate(true)
            .dfa_size_limit(Some(MOST_DFA))
            .determinize_size_limit(Some(MOST_WORK));
        let dfa = dense::Builder::new().configure(config).build_from_nfa(&nfa).ok();
        if dfa.is_none() && nfa.states().len() > MOST_STATES {
            return Err(explodes());
        }
        let looks = hir.properties().look_set();
        let word = looks.contains_word();
        Ok(Self {
            dfa,
            nfa,
            looks_behind: word
                || [Look::Start, Look::StartLF, Look::StartCRLF].into_iter().any(|look| looks.contains(look)),
            looks_ahead: word || [Look::EndLF, Look::EndCRLF].into_iter().any(|look| looks.contains(look)),
            looks_for_end: looks.contains(Look::End),
            required: required(&hir),
            source: pattern.to_owned(),
        })
    }

    /// Bytes of memory of the automaton.
    pub(super) fn memory(&self) -> usize {
        self.nfa.memory_usage() + self.dfa.as_ref().map_or(0, dense::DFA::memory_usage)
    }

    /// As [`ends`](Self::ends), with the last place where a match with each end may begin.
    pub(super) fn spans(
        &self,
        bytes: &[u8],
        from: usize,
        simulation: &mut Simulation,
        see: impl FnMut(usize, usize) -> bool,
    ) {
        simulation.run(&self.nfa, bytes, from, see);
    }

    /// As [`spans`](Self::spans) over the bytes behind each of some places, where the expression sees a beginning.
    ///
    /// See [`Simulation::run_behind`].
    pub(super) fn ends_behind(
        &self,
        bytes: &[u8],
        from: usize,
        simulation: &mut Simulation,
        is_place: impl FnMut(usize) -> bool,
        see: impl FnMut(usize, usize) -> bool,
    ) {
        simulation.run_behind(&self.nfa, bytes, from, is_place, see);
    }

    /// Whether [`spans`](Self::spans) takes few steps for each byte.
    pub(super) fn has_few_states(&self) -> bool {
        self.nfa.states().len() <= MOST_STATES
    }

    /// Shows each end of a match that begins at `from` or behind it, in order, until `see` answers `false`.
    ///
    /// Every end counts, not only those that a search from left to right would find.
    #[inline]
    pub(super) fn ends(
        &self,
        bytes: &[u8],
        from: usize,
        simulation: &mut Simulation,
        mut see: impl FnMut(usize) -> bool,
    ) {
        let Some(dfa) = &self.dfa else {
            return self.spans(bytes, from, simulation, |_, end| see(end));
        };
        let from = from.min(bytes.len());
        let input = Input::new(bytes).range(from..).anchored(Anchored::No);
        let mut state = OverlappingState::start();
        let mut read = from;
        // It fails only for automata that may give up, and these may not.
        while dfa.try_search_overlapping_fwd(&input, &mut state).is_ok() {
            let found = state.get_match().map(|found| found.offset());
            work::spend(found.unwrap_or(bytes.len()).saturating_sub(read));
            let Some(end) = found else { return };
            read = end;
            if !see(end) {
                return;
            }
        }
    }
}

fn explodes() -> Refused {
    let problem = format!(
        "this regular expression explodes: it takes more than {} KiB as a deterministic automaton, and more than {MOST_STATES} \
         states as another one; shorten its repetitions",
        MOST_DFA >> 10
    );
    Refused::Wrong(0, problem)
}

fn refused(error: &Error, places: &[usize]) -> Refused {
    let place = |offset: usize| places.get(offset).or(places.last()).copied().unwrap_or_default();
    match error {
        Error::Parse(error) => {
            let at = place(error.span().start.offset);
            let problem = format!("in this regular expression: {}", error.kind());
            match error.kind() {
                ErrorKind::UnsupportedBackreference => Refused::Unsupported(
                    at,
                    "backreferences are not supported: the time to match them has no bound".into(),
                ),
                ErrorKind::UnsupportedLookAround => Refused::Unsupported(
                    at,
                    "look-around is not supported: the time to match it has no bound".into(),
                ),
                ErrorKind::EscapeUnrecognized | ErrorKind::FlagUnrecognized => {
                    Refused::Unsupported(at, problem)
                }
                ErrorKind::NestLimitExceeded(most) => Refused::Wrong(
                    at,
                    format!("groups are nested more than {most} deep in this regular expression"),
                ),
                _ => Refused::Wrong(at, problem),
            }
        }
        Error::Translate(error) => Refused::Wrong(
            place(error.span().start.offset),
            format!("in this regular expression: {}", error.kind()),
        ),
        _ => Refused::Wrong(0, "this regular expression cannot be read".into()),
    }
}

/// PCRE's syntax in that of `regex-syntax`, and the place of each of its bytes in the pattern.
///
/// Inside a class, PCRE takes `[`, `&` and `~` as they are. `{` that begins no repetition is a brace, and `\<` is `<`.
fn translate(pattern: &str) -> Result<(String, Vec<usize>), Refused> {
    let (mut text, mut places) =
        (String::with_capacity(pattern.len()), Vec::with_capacity(pattern.len() + 1));
    let mut class: Option<usize> = None;
    let mut chars = pattern.char_indices().peekable();
    let unsupported = |at, what: &str| Err(Refused::Unsupported(at, format!("{what} are not supported")));
    let mut repeated = false;
    while let Some((at, char)) = chars.next() {
        let rest = &pattern[at..];
        let mut piece = String::new();
        let mut is_repetition = false;
        match char {
            '\\' => match chars.next() {
                Some((_, other @ ('<' | '>'))) => piece.push(other),
                Some((_, other)) => piece.extend(['\\', other]),
                None => return Err(Refused::Wrong(at, "this regular expression ends in `\\`".into())),
            },
            '[' if class.is_none() => {
                piece.push('[');
                if chars.next_if(|(_, next)| *next == '^').is_some() {
                    piece.push('^');
                }
                if chars.next_if(|(_, next)| *next == ']').is_some() {
                    piece.push_str("\\]");
                }
                class = Some(at);
            }
            '[' if rest.starts_with("[:") && rest.contains(":]") => {
                let len = rest.find(":]").map_or(0, |len| len + 2);
                piece.push_str(&rest[..len]);
                while chars.next_if(|(next, _)| *next < at + len).is_some() {}
            }
            '[' | '&' | '~' if class.is_some() => piece.extend(['\\', char]),
            '-' if class.is_some() && rest.starts_with("--") => {
                return unsupported(at, "ranges that begin or end with `-`");
            }
            ']' if class.is_some() => {
                class = None;
                piece.push(']');
            }
            '{' if class.is_none() => {
                let len = repetition(rest);
                if len == 0 {
                    piece.push_str("\\{");
                } else {
                    piece.push_str(&rest[..len]);
                    while chars.next_if(|(next, _)| *next < at + len).is_some() {}
                    is_repetition = true;
                }
            }
            '+' if class.is_none() && repeated => return unsupported(at, "possessive repetitions"),
            '(' if class.is_none()
                && ["(?>", "(?|", "(?(", "(?&", "(?R", "(?P>", "(?P=", "(*"]
                    .iter()
                    .any(|group| rest.starts_with(group)) =>
            {
                return unsupported(at, "groups of this kind");
            }
            '*' | '+' | '?' if class.is_none() => {
                piece.push(char);
                is_repetition = !(char == '?' && repeated);
            }
            _ => piece.push(char),
        }
        repeated = is_repetition;
        places.extend(std::iter::repeat_n(at, piece.len()));
        text.push_str(&piece);
    }
    if let Some(at) = class {
        return Err(Refused::Wrong(at, "this class has no `]`".into()));
    }
    places.push(pattern.len());
    Ok((text, places))
}

/// The length of a repetition as `{3}`, `{3,}` or `{3,5}` at the beginning of a text, else 0.
fn repetition(text: &str) -> usize {
    let Some(end) = text.find('}') else { return 0 };
    let inner = &text[1..end];
    let (least, most) = inner.split_once(',').unwrap_or((inner, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !least.is_empty() && digits(least) && digits(most) { end + 1 } else { 0 }
}

/// The same expression, where the end also stands before a last line feed, as PCRE's `$` does.
fn with_last_line_feed(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Look(Look::End) => {
            let end = || Hir::look(Look::End);
            Hir::alternation(vec![end(), Hir::concat(vec![Hir::literal(*b"\n"), end()])])
        }
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(with_last_line_feed).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(with_last_line_feed).collect()),
        HirKind::Capture(capture) => with_last_line_feed(&capture.sub),
        HirKind::Repetition(repetition) => {
            Hir::repetition(repetition.with(with_last_line_feed(&repetition.sub)))
        }
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => hir.clone(),
    }
}

/// The longest bytes that stand in every match, in lower case.
fn required(hir: &Hir) -> Vec<u8> {
    let (mut run, mut best) = (Vec::new(), Vec::new());
    collect(hir, &mut run, &mut best);
    cut(&mut run, &mut best);
    best
}

fn cut(run: &mut Vec<u8>, best: &mut Vec<u8>) {
    if run.len() > best.len() {
        best.clone_from(run);
    }
    run.clear();
}

fn collect(hir: &Hir, run: &mut Vec<u8>, best: &mut Vec<u8>) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => run.extend(literal.0.to_ascii_lowercase()),
        HirKind::Class(class) => match one_letter(class) {
            Some(letter) => run.push(letter),
            None => cut(run, best),
        },
        HirKind::Concat(parts) => parts.iter().for_each(|part| collect(part, run, best)),
        HirKind::Capture(capture) => collect(&capture.sub, run, best),
        HirKind::Repetition(repetition) => {
            cut(run, best);
            if repetition.min > 0 {
                collect(&repetition.sub, run, best);
                cut(run, best);
            }
        }
        HirKind::Alternation(_) => cut(run, best),
    }
}

/// The letter that a class is, in both cases.
fn one_letter(class: &regex_syntax::hir::Class) -> Option<u8> {
    let regex_syntax::hir::Class::Bytes(bytes) = class else { return None };
    let mut letters = bytes.iter().flat_map(|range| range.start()..=range.end()).take(3);
    let (one, two, more) = (letters.next()?, letters.next()?, letters.next());
    (more.is_none() && one.eq_ignore_ascii_case(&two)).then_some(two.to_ascii_lowercase())
}
