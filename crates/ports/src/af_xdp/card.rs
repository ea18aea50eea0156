//! Filters of the graph as rules of the network card, as `ethtool -N` sets them.
//!
//! They are hints: the XDP maps hold the same rules and decide, at whichever queue of the card a packet arrives.

use std::io;

use crate::interface::Interface;
use crate::port::Link;
use crate::steer::ntuple::{self, SPECIFICATION, specification};
use crate::steer::{Rule, Rules};

/// Rules for a card that does not say how many its table takes.
const UNKNOWN: u32 = 1_024;

/// The table of a card.
pub(super) trait Table {
    /// The device's name.
    fn device(&self) -> &str;
    /// Puts a rule in, at the place that it names.
    fn insert(&self, rule: &[u8; SPECIFICATION]) -> io::Result<()>;
    /// Takes the rule at this place out.
    fn delete(&self, place: u32) -> io::Result<()>;
}

impl Table for Interface {
    fn device(&self) -> &str {
        self.name()
    }
    fn insert(&self, rule: &[u8; SPECIFICATION]) -> io::Result<()> {
        self.insert_classification_rule(rule)
    }
    fn delete(&self, place: u32) -> io::Result<()> {
        // If the device is gone, so are its rules. Another one may have its name by now.
        if self.link() == Link::Gone { Ok(()) } else { self.delete_classification_rule(place) }
    }
}

/// The rules of a card, which are taken out when this is dropped.
///
/// A process that is killed leaves them: `ethtool -n DEVICE` lists them.
#[derive(Debug)]
pub(super) struct Card<T: Table = Interface> {
    table: T,
    /// Rules that it takes.
    most: usize,
    /// Our rules, by their place.
    rules: Vec<Option<Rule>>,
}

impl Card {
    /// The card's table, if it takes rules; otherwise the reason why not.
    pub(super) fn of(device: &str) -> Result<Self, String> {
        let interface = Interface::find("", device).map_err(|error| error.to_string())?;
        let (count, size) = interface
            .classification_rules()
            .map_err(|error| format!("{device} takes no rules of `ethtool -N`: {error}"))?;
        if count > 0 {
            return Err(format!("{device} has {count} rules already, see `ethtool -n {device}`"));
        }
        Self::over(interface, size)
    }
}

impl<T: Table> Card<T> {
    /// A table of this size (0 if it is not known), after it took a rule and gave it back.
    fn over(table: T, size: u32) -> Result<Self, String> {
        let most = if size == 0 { UNKNOWN } else { size };
        let mut card = Self { table, most: most as usize, rules: Vec::new() };
        let device = card.table.device().to_owned();
        // Some drivers have a table and refuse every rule, for example until `ethtool -K DEVICE ntuple on`.
        card.put(0, &ntuple::probe())
            .map_err(|error| format!("{device} refuses rules of `ethtool -N`: {error}"))?;
        card.take(0).map_err(|error| format!("{device} does not take a rule out again: {error}"))?;
        Ok(card)
    }

    /// Replaces the rules, as many of the first ones as the table takes. Equal ones stay in their place.
    ///
    /// `Err` has the reason why the card cannot have them. Some of the rules may be in it then.
    pub(super) fn set(&mut self, rules: &Rules) -> Result<(), String> {
        let wanted: Vec<Rule> = rules.iter().take(self.most).copied().collect();
        let device = self.table.device().to_owned();
        for place in 0..wanted.len().max(self.rules.len()) {
            let (has, wanted) = (self.rules.get(place).copied().flatten(), wanted.get(place));
            if has.as_ref() == wanted {
                continue;
            }
            if has.is_some() {
                self.take(place).map_err(|error| format!("{device} keeps a rule of its own: {error}"))?;
            }
            if let Some(rule) = wanted {
                let refused = |error| format!("`{}`: {error}", ntuple::arguments(&device, rule));
                self.put(place, rule).map_err(refused)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, place: usize, rule: &Rule) -> io::Result<()> {
        // Cards look at lower places first.
        let bytes = specification(rule, place as u32)
            .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "no flow type has its fields"))?;
        self.table.insert(&bytes)?;
        if self.rules.len() <= place {
            self.rules.resize(place + 1, None);
        }
        self.rules[place] = Some(*rule);
        Ok(())
    }

    fn take(&mut self, place: usize) -> io::Result<()> {
        self.table.delete(place as u32)?;
        self.rules[place] = None;
        Ok(())
    }
}

impl<T: Table> Drop for Card<T> {
    fn drop(&mut self) {
        for place in 0..self.rules.len() {
            if self.rules[place].is_some() {
                // A rule that stays is a hint that is out of date.
                let _ = self.take(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use super::*;
    use crate::steer::Filter;

    /// A table in memory, which counts its changes and refuses rules for one queue.
    #[derive(Default)]
    struct Fake {
        rules: RefCell<BTreeMap<u32, u64>>,
        changes: Cell<usize>,
        refused: Cell<Option<u64>>,
    }

    impl Table for Rc<Fake> {
        fn device(&self) -> &str {
            "eth0"
        }
        fn insert(&self, rule: &[u8; SPECIFICATION]) -> io::Result<()> {
            let queue = u64::from_ne_bytes(*rule[152..].first_chunk().unwrap());
            let place = u32::from_ne_bytes(*rule[160..].first_chunk().unwrap());
            if self.refused.get() == Some(queue) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            self.changes.set(self.changes.get() + 1);
            assert!(self.rules.borrow_mut().insert(place, queue).is_none(), "a place is emptied first");
            Ok(())
        }
        fn delete(&self, place: u32) -> io::Result<()> {
            self.changes.set(self.changes.get() + 1);
            self.rules.borrow_mut().remove(&place).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
        }
    }

    fn rules(queues: &[(u8, u16)]) -> Rules {
        let rule = |(network, queue): &(u8, u16)| {
            let prefix = format!("10.{network}.0.0/16").parse().unwrap();
            Rule { filter: Filter::ANY.to(prefix).checked().unwrap(), queue: *queue }
        };
        Rules::derived(queues.iter().map(rule).collect())
    }

    #[test]
    fn rules_that_stay_are_not_touched() {
        let table = Rc::new(Fake::default());
        let mut card = Card::over(Rc::clone(&table), 3).unwrap();
        card.set(&rules(&[(1, 1), (2, 2), (3, 3), (4, 4)])).unwrap();
        assert_eq!(*table.rules.borrow(), [(0, 1), (1, 2), (2, 3)].into(), "as many as it takes");
        table.changes.set(0);
        card.set(&rules(&[(1, 1), (2, 5), (3, 3)])).unwrap();
        assert_eq!(table.changes.get(), 2, "one goes and one comes");
        card.set(&rules(&[(1, 1)])).unwrap();
        assert_eq!(*table.rules.borrow(), [(0, 1)].into());
        card.set(&rules(&[(1, 1), (2, 2)])).unwrap();
        drop(card);
        assert!(table.rules.borrow().is_empty(), "nothing is left");
    }

    #[test]
    fn a_card_that_refuses_a_rule_is_left_clean() {
        let table = Rc::new(Fake::default());
        let mut card = Card::over(Rc::clone(&table), 8).unwrap();
        card.set(&rules(&[(1, 1), (2, 2)])).unwrap();
        table.refused.set(Some(9));
        let why = card.set(&rules(&[(3, 3), (4, 9), (5, 5)])).unwrap_err();
        assert!(why.starts_with("`ethtool -N eth0 flow-type ip4 dst-ip 10.4.0.0"), "{why}");
        drop(card);
        assert!(table.rules.borrow().is_empty());
    }

    #[test]
    fn a_table_of_unknown_size_is_tried() {
        assert_eq!(Card::over(Rc::new(Fake::default()), 0).unwrap().most, UNKNOWN as usize);
    }
}
