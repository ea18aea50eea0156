//! Rules, findings with their places, and a verdict for each crate.

use std::fmt;
use std::path::Path;

use serde::Serialize;

/// The kinds of things for which a crate is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// `unsafe` stands in the source, or a macro makes it.
    Unsafe,
    /// A build script that is not on the list would run before the lints do.
    BuildScript,
    /// A procedural macro that is not on the list would run inside the compiler.
    ProceduralMacro,
    /// A listed crate is not the one that the list names.
    Hash,
    /// A listed crate, or a part of it, is not for functions to name.
    Unoffered,
    /// A path of the standard library is not among those that functions may name.
    StandardLibrary,
    /// A call, type or macro reaches more than packets and declared state.
    Reach,
    /// A macro is neither the crate's own nor one that is known.
    Macro,
    /// An attribute is not among those that are known.
    Attribute,
    /// A static could change, and so be state that nothing declares.
    Static,
    /// Foreign functions, symbols and assembly lie outside the language.
    ForeignCode,
    /// A source file lies outside the crate, or the compiler reads one that is in no module.
    OutsideFile,
    /// The compiler reads a variable of the environment.
    Environment,
    /// A condition would part the code that is vetted from the code that runs.
    Condition,
    /// The manifest asks for something that is not known to be harmless.
    Manifest,
    /// An attribute would switch off a lint that vetting needs.
    LintSwitchedOff,
    /// The compiler or the parser refuses the source.
    Uncompilable,
    /// A target was not compiled, so nothing is known of it.
    Unseen,
    /// A crate that this one uses is refused.
    Dependency,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 19] = [
        Self::Unsafe,
        Self::BuildScript,
        Self::ProceduralMacro,
        Self::Hash,
        Self::Unoffered,
        Self::StandardLibrary,
        Self::Reach,
        Self::Macro,
        Self::Attribute,
        Self::Static,
        Self::ForeignCode,
        Self::OutsideFile,
        Self::Environment,
        Self::Condition,
        Self::Manifest,
        Self::LintSwitchedOff,
        Self::Uncompilable,
        Self::Unseen,
        Self::Dependency,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unsafe => "unsafe",
            Self::BuildScript => "build-script",
            Self::ProceduralMacro => "procedural-macro",
            Self::Hash => "hash",
            Self::Unoffered => "unoffered",
            Self::StandardLibrary => "standard-library",
            Self::Reach => "reach",
            Self::Macro => "macro",
            Self::Attribute => "attribute",
            Self::Static => "static",
            Self::ForeignCode => "foreign-code",
            Self::OutsideFile => "outside-file",
            Self::Environment => "environment",
            Self::Condition => "condition",
            Self::Manifest => "manifest",
            Self::LintSwitchedOff => "lint-switched-off",
            Self::Uncompilable => "uncompilable",
            Self::Unseen => "unseen",
            Self::Dependency => "dependency",
        }
    }

    /// The way to mend it.
    pub fn help(self) -> &'static str {
        match self {
            Self::Unsafe => "write it in safe Rust, or run it in the sandbox (level 2)",
            Self::BuildScript | Self::ProceduralMacro => {
                "do without it, or let the operator read it and add the crate to vet.toml as a [[crate]]"
            }
            Self::Hash => {
                "find out who changed it; if the operator has read the change, write the new hash into vet.toml"
            }
            Self::Unoffered => "use what a [[use]] of vet.toml offers, or ask the operator for a [[use]]",
            Self::StandardLibrary | Self::Reach => {
                "functions work on packets and declared state; time, randomness and settings come from the worker"
            }
            Self::Macro => "write the code out, or ask the operator for the macro in a [[use]] of vet.toml",
            Self::Attribute => "leave it out, or ask the operator for it in a [[use]] of vet.toml",
            Self::Static => "declare state through the worker, or make it a `const`",
            Self::ForeignCode => "write it in safe Rust, or run it in the sandbox (level 2)",
            Self::OutsideFile => {
                "put the source into a module of the crate, and other content into a `const`"
            }
            Self::Environment => "take it from the settings",
            Self::Condition => "use conditions on features, targets and `test` only",
            Self::Manifest => "leave it out",
            Self::LintSwitchedOff => "remove the attribute",
            Self::Uncompilable => "see the compiler's message",
            Self::Unseen => "make it compile with the features that are vetted",
            Self::Dependency => "mend or replace that crate",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One thing that is refused, and its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The file, from the crate's folder where it is inside.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// The rule that it breaks.
    pub rule: Rule,
    /// The thing that was found.
    pub text: String,
}

impl Finding {
    pub(crate) fn new(rule: Rule, file: &Path, place: (usize, usize), text: impl Into<String>) -> Self {
        Self { file: file.display().to_string(), line: place.0, column: place.1, rule, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}: {}", self.file, self.line, self.column, self.rule, self.text)
    }
}

/// A crate that was vetted.
#[derive(Clone, Debug, Serialize)]
pub struct CrateVerdict {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The folder of its manifest.
    pub folder: String,
    /// SHA-256 over its files.
    pub sha256: String,
    /// Whether it was asked for, rather than used by one that was.
    pub selected: bool,
    /// Whether it may run.
    pub clean: bool,
    /// The findings, by place.
    pub findings: Vec<Finding>,
}

/// A crate that the list vouches for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct ListedCrate {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its checksum in the registry, its commit, or the SHA-256 over its files.
    pub identity: String,
}

/// The result of vetting.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Whether every crate is clean.
    pub clean: bool,
    /// The crates that were vetted: first those that were asked for.
    pub crates: Vec<CrateVerdict>,
    /// The crates that the list vouches for.
    pub listed: Vec<ListedCrate>,
    /// The compiler, as it names itself.
    pub rustc: String,
}

impl Verdict {
    /// The verdict as text, a block for each crate that is refused and a line for each that is not.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for vetted in &self.crates {
            let CrateVerdict { name, version, findings, .. } = vetted;
            if vetted.clean {
                text += &format!("{name} {version}  clean\n");
                continue;
            }
            text += &format!("{name} {version}  REFUSED, {}\n", counted(findings.len(), "finding"));
            for finding in findings {
                // Names of files and texts are the author's: one line each, without what a terminal acts on.
                let shown: String = finding.to_string().chars().map(shown).collect();
                text += &format!("  {shown}\n");
            }
            let mut rules: Vec<Rule> = findings.iter().map(|finding| finding.rule).collect();
            rules.sort_unstable();
            rules.dedup();
            for rule in rules {
                text += &format!("  = {rule}: {}\n", rule.help());
            }
        }
        let refused = self.crates.iter().filter(|vetted| !vetted.clean).count();
        text += &format!(
            "{} vetted, {refused} refused; {} on the list; {}\n",
            counted(self.crates.len(), "crate"),
            self.listed.len(),
            self.rustc
        );
        text
    }
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn shown(c: char) -> char {
    let turns = matches!(c, '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || turns { '\u{FFFD}' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authors_names_do_nothing_to_a_terminal() {
        let finding =
            Finding::new(Rule::Unsafe, Path::new("src/\x1b[2J\n.rs"), (1, 2), "an `unsafe` block\u{202e}");
        let vetted = CrateVerdict {
            name: "evil".into(),
            version: "1.0.0".into(),
            folder: String::new(),
            sha256: String::new(),
            selected: true,
            clean: false,
            findings: vec![finding],
        };
        let verdict =
            Verdict { clean: false, crates: vec![vetted], listed: Vec::new(), rustc: "rustc".into() };
        let text = verdict.text();
        assert!(
            text.contains("  src/\u{FFFD}[2J\u{FFFD}.rs:1:2: unsafe: an `unsafe` block\u{FFFD}\n"),
            "{text}"
        );
    }
}
