//! Chains with jumps, to one list of rules without.

use std::collections::BTreeSet;

use super::condition::Conditions;
use super::{Action, Chain, Imported, Language, Nat, Place, Rule, Table};

/// The most rules that jumps may make of a text.
const MOST: usize = 65_536;
/// How deep chains jump to chains.
const DEEPEST: usize = 16;
/// The most parts of packets that a chain still sees, after some returned.
const MOST_PARTS: usize = 64;

/// A rule that stands for itself.
#[derive(Clone, Debug)]
pub(super) struct Flat {
    pub(super) conditions: Conditions,
    pub(super) action: FlatAction,
    pub(super) place: Place,
    pub(super) comment: Option<String>,
    pub(super) log: Option<String>,
}

/// The fate of its packets.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FlatAction {
    Accept,
    Drop,
    Reject(&'static str),
    /// Its packets are logged, and meet the rules behind it.
    Log,
    Change(String),
    Nat(Nat),
}

/// Flattens the base chains of a table.
pub(super) struct Flattening<'a> {
    pub(super) table: &'a Table,
    pub(super) imported: &'a mut Imported,
    /// Chains that packets can come to.
    pub(super) reached: BTreeSet<String>,
    pub(super) flats: Vec<Flat>,
    /// Whether the policy of the base chain drops.
    pub(super) drops: bool,
    pub(super) target: Language,
}

impl Flattening<'_> {
    /// Flattens a base chain.
    ///
    /// Behind a chain that is not the last, packets that it accepts go on to the next.
    pub(super) fn base(&mut self, chain: &Chain, is_last: bool) {
        let all = vec![Conditions::of(self.table.version)];
        self.drops = chain.drops;
        let (_, rest) = self.chain(chain, all, 0, is_last);
        if chain.drops && !is_last {
            for conditions in rest {
                let (action, place) = (FlatAction::Drop, chain.place.clone());
                self.flats.push(Flat { conditions, action, place, comment: None, log: None });
            }
        }
    }

    /// Flattens a chain for packets that fulfil one of these conditions.
    ///
    /// The answer has the packets that do not come back to the caller, and those that reach the end of the chain.
    fn chain(
        &mut self,
        chain: &Chain,
        mut under: Vec<Conditions>,
        depth: usize,
        is_last: bool,
    ) -> (Vec<Conditions>, Vec<Conditions>) {
        self.reached.insert(chain.name.clone());
        let mut gone = Vec::new();
        for (at, rule) in chain.rules.iter().enumerate() {
            if under.is_empty() {
                break;
            }
            for warning in &rule.warnings {
                self.imported.warn(format!("line {}: {warning}", rule.place.line));
            }
            if let Some(why) = &rule.problem {
                self.without_translation(rule, why);
                continue;
            }
            let mut leaves = Vec::new();
            for (case, action) in &rule.cases {
                let met: Vec<Conditions> = under.iter().filter_map(|under| under.and(case)).collect();
                if !met.is_empty() {
                    leaves.extend(self.act(rule, action, met, (depth, is_last), &mut gone));
                }
            }
            for leaving in leaves {
                let rest: Option<Vec<Vec<Conditions>>> =
                    under.iter().map(|part| part.without(&leaving)).collect();
                match rest.map(|parts| parts.concat()) {
                    Some(parts) if parts.len() <= MOST_PARTS => under = parts,
                    _ => {
                        self.cut(chain, at + 1, &rule.place);
                        return (gone, Vec::new());
                    }
                }
            }
        }
        (gone, under)
    }

    /// Does what a rule says.
    ///
    /// The answer has packets that leave the chain, so that later rules do not see them.
    fn act(
        &mut self,
        rule: &Rule,
        action: &Action,
        met: Vec<Conditions>,
        (depth, is_last): (usize, bool),
        gone: &mut Vec<Conditions>,
    ) -> Vec<Conditions> {
        match action {
            Action::Nothing => {
                if rule.log.is_some() && self.target == Language::Firewall {
                    self.add(rule, &FlatAction::Log, met);
                }
                Vec::new()
            }
            Action::Reject(how) if self.target == Language::Firewall => {
                self.add(rule, &FlatAction::Reject(how), met);
                Vec::new()
            }
            Action::Return if depth == 0 && is_last => {
                let action = if self.drops { FlatAction::Drop } else { FlatAction::Accept };
                self.add(rule, &action, met);
                Vec::new()
            }
            Action::Return => {
                if depth == 0 && self.drops {
                    self.add(rule, &FlatAction::Drop, met.clone());
                }
                met
            }
            Action::Accept if !is_last => {
                gone.extend(met.iter().cloned());
                met
            }
            Action::Accept => {
                self.add(rule, &FlatAction::Accept, met);
                Vec::new()
            }
            Action::Drop | Action::Reject(_) => {
                self.add(rule, &FlatAction::Drop, met);
                Vec::new()
            }
            Action::Change(changes) => {
                for (more, targets) in changes {
                    let met = met.iter().filter_map(|met| met.and(more)).collect();
                    self.add(rule, &FlatAction::Change(targets.clone()), met);
                }
                Vec::new()
            }
            Action::Nat(nat) => {
                self.add(rule, &FlatAction::Nat(nat.clone()), met);
                Vec::new()
            }
            Action::Jump(name) | Action::Goto(name) => {
                let table = self.table;
                let Some(chain) = table.chains.iter().find(|chain| chain.name == *name) else {
                    let why = format!("there is no chain `{name}`");
                    self.without_translation(rule, &why);
                    return Vec::new();
                };
                if depth == DEEPEST || self.flats.len() >= MOST {
                    let why =
                        format!("jumps are deeper than {DEEPEST} chains, or make more than {MOST} rules");
                    self.without_translation(rule, &why);
                    return Vec::new();
                }
                let (mut left, _) = self.chain(chain, met.clone(), depth + 1, is_last);
                gone.extend(left.iter().cloned());
                if matches!(action, Action::Goto(_)) {
                    if depth == 0 && is_last {
                        self.act(rule, &Action::Return, met, (0, true), gone);
                    } else {
                        left.extend(met);
                    }
                }
                left
            }
        }
    }

    fn add(&mut self, rule: &Rule, action: &FlatAction, met: Vec<Conditions>) {
        if self.flats.len() >= MOST {
            let why = format!("jumps make more than {MOST} rules");
            self.without_translation(rule, &why);
            return;
        }
        for conditions in met {
            self.flats.push(Flat {
                conditions,
                action: action.clone(),
                place: rule.place.clone(),
                comment: rule.comment.clone(),
                log: rule.log.clone(),
            });
        }
    }

    /// Lists a rule without a translation, and warns where it decides about packets.
    fn without_translation(&mut self, rule: &Rule, why: &str) {
        self.imported.skip(&rule.place, why);
        let decides = |wanted: &Action| rule.cases.iter().any(|(_, action)| action == wanted);
        let rejects = rule.cases.iter().any(|(_, action)| matches!(action, Action::Reject(_)));
        if decides(&Action::Drop) || rejects {
            self.imported.hole(&rule.place, "packets that it drops meet the rules behind it");
        } else if decides(&Action::Accept) {
            self.imported.hole(&rule.place, "packets that it accepts meet the rules behind it");
        } else if rule
            .cases
            .iter()
            .any(|(_, action)| matches!(action, Action::Return | Action::Jump(_) | Action::Goto(_)))
        {
            self.imported.hole(&rule.place, "its packets take another way through the chains");
        } else if rule.cases.iter().any(|(_, action)| matches!(action, Action::Change(_) | Action::Nat(_))) {
            self.imported
                .warn(format!("line {}: packets are not changed: {}", rule.place.line, rule.place.text));
        }
    }

    /// Leaves out the rest of a chain, as it cannot be said which packets see it.
    fn cut(&mut self, chain: &Chain, from: usize, by: &Place) {
        let why = format!("mmb has no words for the packets that are left behind line {}", by.line);
        for rule in chain.rules.get(from..).unwrap_or_default() {
            self.without_translation(rule, &why);
        }
    }
}
