//! The rules that all workers share, and handlers that change and show them while packets flow.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::cold_path;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use netbricks_core::consistency::{Access, Bounded, Contents};
use netbricks_core::sealed::{damaged, hash_text, open, seal};
use netbricks_core::tables::{Changing, Secret};
use netbricks_core::{Declared, Handler, Worker};

use super::config::SearchEngine;
use super::language::{Action, Read, Variables, read};
use super::set::RuleSet;

/// The rules of the configuration.
#[derive(Clone, Default)]
pub(super) struct First {
    pub(super) set: Option<Arc<RuleSet>>,
    pub(super) variables: Arc<Variables>,
    /// Rules that were left out, and why.
    pub(super) skipped: Arc<[String]>,
    pub(super) engine: SearchEngine,
    /// The hash of the rules as they were written.
    pub(super) origin: u64,
}

impl PartialEq for First {
    fn eq(&self, other: &Self) -> bool {
        (self.origin, self.engine) == (other.origin, other.engine)
    }
}

/// All workers' rules, under bounded inconsistency.
#[derive(Clone)]
pub(super) struct Rules {
    set: Arc<RuleSet>,
    first: First,
    skipped: Arc<[String]>,
    /// The text that a handler loaded, in the place of the configuration's rules.
    loaded: Option<Arc<str>>,
    /// The number of changes.
    version: u64,
}

/// Replaces the rules, unless another replacement came first.
#[derive(Clone)]
pub(super) struct Replace {
    base: u64,
    next: Rules,
}

/// The most rules and lines that one call lists.
const MOST_LISTED: usize = 10_000;
/// Most attempts at a change while other changes come first.
const TRIES: usize = 8;
const KEY: u64 = 0x7369_676e_6174_0001;
/// How wrong rules are called.
pub(super) const WRONG: (&str, &str) = ("a wrong rule", "wrong rules");
const FORMAT: &str = "signature-rules-1";

/// The hash of the texts of a configuration.
pub(super) fn origin(texts: &str) -> u64 {
    hash_text(texts, &Secret::from_seed(KEY))
}

/// A set of no rules.
fn empty() -> Arc<RuleSet> {
    // Without rules, nothing can be wrong.
    let set = RuleSet::new(&[], SearchEngine::Default);
    Arc::new(set.unwrap_or_else(|_| unreachable!("a set without rules is always possible")))
}

impl Changing for Rules {
    type Change = Replace;
    /// Whether the change was made; it is refused if its base is not the present version.
    type Outcome = bool;
    fn apply(&mut self, Replace { base, next }: &Replace) -> bool {
        let fits = self.version == *base && self.first == next.first;
        if fits {
            *self = next.clone();
        }
        fits
    }
}

impl Contents for Rules {
    type Config = First;
    /// Other rules in the file count more than those that a handler loaded.
    const IS_CONFIGURED: bool = true;
    fn make(first: &First) -> Result<Self, String> {
        let set = first.set.clone().unwrap_or_else(empty);
        Ok(Self { set, first: first.clone(), skipped: first.skipped.clone(), loaded: None, version: 0 })
    }
    fn least() -> Self {
        Self { set: empty(), first: First::default(), skipped: Arc::default(), loaded: None, version: 0 }
    }
}

impl Rules {
    /// The same rules replaced by those of a text.
    fn with(&self, text: &str) -> Result<Self, String> {
        let Read { rules, faults, skipped } = read(text, &self.first.variables, &mut BTreeMap::new(), "");
        if !faults.is_empty() {
            return Err(listed(WRONG.0, WRONG.1, faults.iter().map(ToString::to_string)));
        }
        let set = RuleSet::new(&rules, self.first.engine).map_err(|wrong| {
            listed(WRONG.0, WRONG.1, wrong.iter().map(|(line, problem)| format!("line {line}: {problem}")))
        })?;
        Ok(Self {
            set: Arc::new(set),
            skipped: skipped.iter().map(ToString::to_string).collect(),
            loaded: Some(text.into()),
            version: self.version + 1,
            first: self.first.clone(),
        })
    }

    /// The rules of the configuration again.
    fn restored(&self) -> Self {
        Self {
            set: self.first.set.clone().unwrap_or_else(empty),
            skipped: self.first.skipped.clone(),
            loaded: None,
            version: self.version + 1,
            first: self.first.clone(),
        }
    }
}

/// The number of faults (`one` for one of them), then the first of them, one on each line.
pub(super) fn listed(one: &str, several: &str, faults: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 20;
    let count = faults.len();
    let mut text = if count == 1 { one.to_owned() } else { format!("{count} {several}") };
    faults.take(SHOWN).for_each(|fault| text += &format!("\n{fault}"));
    if count > SHOWN {
        text += &format!("\n… and {} more", count - SHOWN);
    }
    text
}

/// The format is lines: the configuration's hash, the sids that are switched off, and the text that was loaded.
impl Declared for Rules {
    fn export(&self) -> Vec<u8> {
        let off: String = self.set.switched_off().map(|sid| format!(" {sid}")).collect();
        let kind = if self.loaded.is_some() { "loaded" } else { "configured" };
        let mut text = format!("{FORMAT} {:016x}\noff{off}\n{kind}\n", self.first.origin);
        if let Some(loaded) = &self.loaded {
            text += loaded;
            text += if loaded.ends_with('\n') { "" } else { "\n" };
        }
        seal(text, KEY)
    }

    /// Takes over changes made by handlers, unless the configuration has other rules since.
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        let damaged = || damaged("rules");
        let (origin, rest) = open(bytes, KEY, FORMAT, "rules")?;
        let mut parts = rest.splitn(3, '\n');
        let (Some(off), Some(kind)) = (parts.next(), parts.next()) else { return Err(damaged()) };
        if origin != format!("{:016x}", self.first.origin) {
            return Ok(());
        }
        let sids = off.strip_prefix("off").ok_or_else(damaged)?.split_whitespace();
        let sids: Vec<u32> = sids.map(|sid| sid.parse().map_err(|_| damaged())).collect::<Result<_, _>>()?;
        let next = match kind {
            "loaded" => self.with(parts.next().unwrap_or_default())?,
            "configured" => self.restored(),
            _ => return Err(damaged()),
        };
        for place in sids.iter().filter_map(|sid| next.set.find(*sid)) {
            next.set.switch(place, false);
        }
        *self = next;
        Ok(())
    }

    fn is_written(&self) -> bool {
        true
    }
    fn occupancy(&self) -> (u64, u64) {
        let rules = self.set.signatures.len() as u64;
        (rules, rules)
    }
}

/// The rules as one worker's packets see them: a copy that is [renewed](Current::renew) after each change.
pub(super) struct Current {
    rules: Bounded<Rules>,
    published: u64,
    set: Rc<HeldSet>,
}

/// A set of rules that one worker holds.
///
/// A packet counts only this worker's uses of it, and disturbs no other worker.
pub(super) struct HeldSet(Arc<RuleSet>);

impl Deref for HeldSet {
    type Target = RuleSet;
    #[inline]
    fn deref(&self) -> &RuleSet {
        &self.0
    }
}

impl Current {
    pub(super) fn of(rules: Bounded<Rules>) -> Self {
        let published = rules.published();
        let set = Rc::new(HeldSet(rules.read(|rules| rules.set.clone())));
        Self { rules, published, set }
    }

    #[inline]
    pub(super) fn seen(&self) -> &Rc<HeldSet> {
        &self.set
    }

    /// Renews the copy if need be; answers the set before, if it changed.
    #[inline]
    pub(super) fn renew(&mut self) -> Option<Rc<HeldSet>> {
        let published = self.rules.published();
        if published == self.published {
            return None;
        }
        cold_path();
        // Read the number first: the set that is read after it is at least as new.
        self.published = published;
        Some(std::mem::replace(&mut self.set, Rc::new(HeldSet(self.rules.read(|rules| rules.set.clone())))))
    }
}

/// Changes the rules for callers of handlers.
#[derive(Clone, Default)]
struct Changes {
    /// Replaced rules, until all packets use the next ones.
    ///
    /// They are freed here, and not by the worker whose packet leaves them last.
    replaced: Rc<RefCell<Vec<Arc<RuleSet>>>>,
}

impl Changes {
    fn make(
        &self,
        rules: &Bounded<Rules>,
        next: impl Fn(&Rules) -> Result<Rules, String>,
    ) -> Result<String, String> {
        self.replaced.borrow_mut().retain(|set| Arc::strong_count(set) > 1);
        for _ in 0..TRIES {
            let now = rules.read(Clone::clone);
            let next = next(&now)?;
            let done = format!("{} rules, {} skipped", next.set.signatures.len(), next.skipped.len());
            if rules.update(Replace { base: now.version, next }).map_err(|cannot| cannot.to_string())? {
                self.replaced.borrow_mut().push(now.set);
                return Ok(done);
            }
        }
        Err("others change the rules all the time: try again".into())
    }
}

/// The only number of an argument.
fn sid(argument: &str) -> Result<u32, String> {
    argument.trim().parse().map_err(|_| format!("expected the sid of a rule, found `{}`", argument.trim()))
}

fn unknown(sid: u32) -> String {
    format!("there is no rule with sid {sid}; `rules` lists them")
}

fn switch(rules: &Bounded<Rules>, argument: &str, on: bool) -> Result<String, String> {
    let sid = sid(argument)?;
    let set = rules.read(|rules| rules.set.clone());
    let place = set.find(sid).ok_or_else(|| unknown(sid))?;
    let changed = set.switch(place, on);
    Ok(if changed { "done" } else { "it was so before" }.into())
}

/// How many lines an argument asks for.
fn most(argument: &str) -> Result<usize, String> {
    match argument.trim() {
        "" => Ok(MOST_LISTED),
        text => text
            .parse()
            .ok()
            .filter(|most| *most <= MOST_LISTED)
            .ok_or_else(|| format!("expected a number of lines, 0 to {MOST_LISTED}, found `{text}`")),
    }
}

/// Declares the handlers.
pub(super) fn declare(rules: &Bounded<Rules>, worker: &Worker) {
    let [loaded, restored] = {
        let changes = Changes::default();
        [changes.clone(), changes]
    };
    let load =
        "Replaces all rules by those of the argument, one a line: all of them or, if one is wrong, none.";
    worker.handler_of(rules, Handler::write("load", load).argument("RULES"), move |rules, text| {
        loaded.make(rules, |now| now.with(text))
    });
    let restore = Handler::write("restore", "Takes the rules of the configuration again, all switched on.");
    worker.handler_of(rules, restore, move |rules, _| {
        let answer = restored.make(rules, |now| Ok(now.restored()));
        let set = rules.read(|rules| rules.set.clone());
        for place in 0..set.signatures.len() {
            set.switch(place, true);
        }
        answer
    });
    let disable = Handler::write("disable", "Switches a rule off, with the next packet.").argument("SID");
    worker.handler_of(rules, disable, |rules, argument| switch(rules, argument, false));
    let enable = Handler::write("enable", "Switches a rule on again.").argument("SID");
    worker.handler_of(rules, enable, |rules, argument| switch(rules, argument, true));
    let skipped = "Lines that were left out, with the column and the reason.";
    worker.handler_of(rules, Handler::read("skipped", skipped).argument("[LINES]"), |rules, argument| {
        let most = most(argument)?;
        let skipped = rules.read(|rules| rules.skipped.clone());
        Ok(skipped.iter().take(most).map(|line| format!("{line}\n")).collect())
    });
    let summary = "How many rules there are by action, and so many of them: sid, action, where it is looked for, message.";
    worker.handler_of(rules, Handler::read("rules", summary).argument("[RULES]"), |rules, argument| {
        let most = match argument.trim() {
            "" => 0,
            argument => most(argument)?,
        };
        Ok(shown(&rules.read(|rules| rules.set.clone()), most))
    });
}

/// The numbers of rules, the memory, and the first rules.
fn shown(set: &RuleSet, most: usize) -> String {
    let mut text = String::new();
    for action in Action::ALL {
        let count = set.signatures.iter().filter(|signature| signature.description.action == action).count();
        // Text takes any text.
        let _ = writeln!(text, "{} {count}", action.name());
    }
    let off = set.switched_off().count();
    let (memory, groups) = (set.memory(), set.streams.groups());
    let _ = writeln!(text, "off {off}\nengine {}\nmemory {memory} bytes\ngroups {groups}", set.engine.name());
    for (place, signature) in set.signatures.iter().enumerate().take(most) {
        let rule = &signature.description;
        let looked = match (signature.looked.streams, signature.looked.packets) {
            (true, true) => "streams and packets",
            (true, false) => "streams",
            _ => "packets",
        };
        let off = if set.is_on(place) { "" } else { " off" };
        let _ = writeln!(text, "{} {}{off} {looked} \"{}\"", rule.sid, rule.action.name(), rule.msg);
    }
    text
}
