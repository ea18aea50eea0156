//! Settings of `classify`: rules such as `"to 10.1.0.0/16 -> first"`.

use std::fmt;
use std::str::FromStr;

use netbricks_core::guards::{Filter, NoFilter};
use netbricks_core::units::list_from_text;
use netbricks_core::{GroupConfig, InvalidSetting, Settings};
use serde::de::Deserializer;

/// The most rules: each packet may be compared with all of them.
const MOST: usize = 256;

netbricks_core::settings! {
    /// Settings of `classify`.
    #[derive(Clone, Debug)]
    pub struct ClassifySettings {
        /// Rules, of which the first that matches decides; packets that none matches go on.
        pub rules: Vec<Rule> = [], "list of \"CONDITIONS -> WAY\"; a way is out, drop or a name", read by rules;
    }
}

/// Where the packets of a rule go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// On, as packets that no rule matches.
    Out,
    /// They are dropped as `denied`.
    Drop,
    /// By the way out of this name.
    Named(String),
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its packets.
    pub filter: Filter,
    /// Where they go.
    pub way: Way,
}

/// The fault of a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It does not have the form of a rule.
    #[error("expected \"CONDITIONS -> WAY\" as in \"to 10.1.0.0/16 -> first\", found {0:?}")]
    Form(String),
    /// Its conditions are wrong.
    #[error(transparent)]
    Filter(#[from] NoFilter),
    /// Its way is wrong.
    #[error(
        "expected `out`, `drop` or the name of a way out, of letters, digits, `-` and `_`, found {0:?}; other functions have a way `reply`"
    )]
    Way(String),
}

impl FromStr for Rule {
    type Err = RuleError;
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (filter, way) = text.split_once("->").ok_or_else(|| RuleError::Form(text.into()))?;
        let way = way.trim();
        let is_name = !way.is_empty()
            && way.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
        let way = match way {
            "out" => Way::Out,
            "drop" => Way::Drop,
            name if is_name && name != "reply" => Way::Named(name.into()),
            _ => return Err(RuleError::Way(way.into())),
        };
        Ok(Self { filter: filter.parse()?, way })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match &self.way {
            Way::Out => "out",
            Way::Drop => "drop",
            Way::Named(name) => name,
        };
        write!(f, "{} -> {way}", self.filter)
    }
}

/// The names of ways out, in the order in which rules first name them.
pub(super) fn names(rules: &[Rule]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for rule in rules {
        match &rule.way {
            Way::Named(name) if !names.contains(name) => names.push(name.clone()),
            _ => {}
        }
    }
    names
}

/// Reads rules; an error points at the rule that no packet could come to.
fn rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Rule>, D::Error> {
    let mut before: Vec<Rule> = Vec::new();
    list_from_text(deserializer, |text| {
        let rule: Rule = text.parse().map_err(|error: RuleError| error.to_string())?;
        if before.len() == MOST {
            return Err(format!("is one rule too many: a packet may be compared with {MOST} at most"));
        }
        if let Some(by) = before.iter().position(|other| other.filter.covers(&rule.filter)) {
            return Err(format!(
                "no packet comes to \"{rule}\": rule {}, \"{}\", takes all of its packets; put it before that one, or take it out",
                by + 1,
                before[by]
            ));
        }
        before.push(rule.clone());
        Ok(rule)
    })
}

impl Settings for ClassifySettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refused = |problem| Err(InvalidSetting { key: "rules", problem });
        if self.rules.is_empty() {
            return refused("must hold at least one rule, as \"to 10.1.0.0/16 -> first\"".into());
        }
        // The first group of all is `out`.
        let (found, most) = (names(&self.rules).len(), GroupConfig::MOST - 1);
        if found > most {
            return refused(format!("must name at most {most} ways out, found {found}"));
        }
        Ok(())
    }
}
