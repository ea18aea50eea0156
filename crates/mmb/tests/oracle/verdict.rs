//! The verdict of rules on a frame, and the effect of commands on rules, for the oracle alone.

use netbricks_mmb::rule::{Command, Mode, Rule, Selector, Target};

use crate::matching::{Sets, means};
use crate::places::Places;
use crate::rewriting::Rewrite;
use crate::tracking::{Connections, Seen};

/// The fate of a frame.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    Dropped,
    /// It leaves by this output. At these places are wrong checksums of which 0 and 0xffff are the same.
    Leaves(u8, Vec<u8>, Vec<usize>),
}

impl Fate {
    /// Whether this frame left by this output, or none did.
    pub(crate) fn is(&self, found: Option<(u8, &[u8])>) -> bool {
        match (self, found) {
            (Self::Dropped, None) => true,
            (Self::Leaves(output, frame, either), Some((by, found))) => {
                let mut found = found.to_vec();
                for at in either {
                    if found
                        .get(*at..)
                        .is_some_and(|rest| rest.starts_with(&[0, 0]) || rest.starts_with(&[0xff, 0xff]))
                    {
                        found[*at..at + 2].copy_from_slice(&frame[*at..at + 2]);
                    }
                }
                by == *output && found == *frame
            }
            _ => false,
        }
    }
    /// The output by which it leaves.
    pub(crate) fn output(&self) -> Option<u8> {
        match self {
            Self::Leaves(output, ..) => Some(*output),
            Self::Dropped => None,
        }
    }
}

/// A rule with its name, and a number that no other rule has or had.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: Option<String>,
    pub(crate) rule: Rule,
    pub(crate) id: u64,
}

/// The rules, as the commands so far have made them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) mode: Mode,
    pub(crate) drops: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) sets: Sets,
    pub(crate) connections: Connections,
    /// Seconds.
    pub(crate) now: u64,
    made: u64,
}

impl Rules {
    fn find(&self, selector: &Selector) -> usize {
        let without = |rule: &Rule| Rule { comment: None, ..rule.clone() };
        let found = match selector {
            Selector::Number(number) => Some(number - 1),
            Selector::Name(name) => self.rows.iter().position(|row| row.name.as_ref() == Some(name)),
            Selector::Same(rule) => self.rows.iter().position(|row| without(&row.rule) == without(rule)),
        };
        found.expect("the command names a rule that is there")
    }

    fn insert(&mut self, place: usize, name: Option<String>, rule: Rule) {
        self.made += 1;
        self.rows.insert(place, Row { name, rule, id: self.made });
    }

    /// Does what a command says.
    pub(crate) fn command(&mut self, command: Command) {
        match command {
            Command::Add { at, name, rule } => {
                self.insert(at.map_or(self.rows.len(), |at| at - 1), name, rule);
            }
            Command::Delete(selector) => {
                self.rows.remove(self.find(&selector));
            }
            Command::Replace(selector, rule) => {
                let place = self.find(&selector);
                let name = self.rows.remove(place).name;
                self.insert(place, name, rule);
            }
            Command::Move(selector, is_before, other) => {
                let (from, other) = (self.find(&selector), self.find(&other));
                let other = self.rows[other].id;
                let row = self.rows.remove(from);
                let other = self.rows.iter().position(|row| row.id == other).expect("the other rule");
                self.rows.insert(if is_before { other } else { other + 1 }, row);
            }
            Command::Define(name, values) => {
                self.sets.insert(name, values);
            }
            Command::Extend(name, values) => self.sets.get_mut(&name).expect("the set").extend(values),
            Command::Shrink(name, values) => {
                self.sets.get_mut(&name).expect("the set").retain(|value| !values.contains(value));
            }
            Command::Mode(mode) => self.mode = mode,
            Command::PolicyDrop(drops) => self.drops = drops,
            Command::Flush => self.rows.clear(),
            other => panic!("no change: {other:?}"),
        }
    }

    /// The fate of a frame, by which connections begin and go on.
    pub(crate) fn fate(&mut self, frame: &[u8]) -> Fate {
        let places = Places::of(frame);
        let mut packet = Seen::of(frame, &places);
        if !self.rows.is_empty() || self.drops {
            self.connections.assign(&mut packet, self.now);
        }
        let live: Vec<u64> = self.rows.iter().filter(|row| row.rule.is_stateful).map(|row| row.id).collect();
        let mut known = match live.is_empty() {
            true => None,
            false => self.connections.meet(&packet, &live, self.now),
        };
        let is_met = known.is_some();
        let mut rewrite = Rewrite::of(frame, &places);
        let (mut is_dropped, mut is_accepted, mut output) = (false, false, 0);
        for row in &self.rows {
            let is_of = is_met && known.as_ref().is_some_and(|rules: &Vec<u64>| rules.contains(&row.id));
            if !is_of && !means(&row.rule, &self.sets, frame, &places) {
                continue;
            }
            if row.rule.is_stateful {
                known = self.connections.begin(&packet, row.id, &live, self.now).or(known);
            }
            for target in &row.rule.targets {
                match target {
                    Target::Drop(_) => is_dropped = true,
                    Target::Accept => is_accepted = true,
                    Target::Balance(outputs) => output = outputs[0],
                    other => rewrite.target(other, &row.rule.targets),
                }
            }
            if self.mode == Mode::Ordered && (is_dropped || is_accepted) {
                break;
            }
        }
        match !is_accepted && (is_dropped || self.drops) {
            true => Fate::Dropped,
            false => {
                rewrite.finish();
                Fate::Leaves(output, rewrite.frame, rewrite.either)
            }
        }
    }
}
