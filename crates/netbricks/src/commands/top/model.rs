//! The state of the display: the last looks, and what the operator wants to see of them.

use netbricks_control::api::{Stats, Status};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::live::show;
use super::super::live::stats::{seconds, since};
use super::sample::{Look, Sample};
use super::tables::{self, Cell, Column, Key};

/// The longest filter.
const FILTER: usize = 64;

/// The contents of a tab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tab {
    #[default]
    Functions,
    Ports,
    Drops,
    Workers,
    Tables,
}

impl Tab {
    /// All of them, from left to right.
    pub(super) const ALL: [Self; 5] =
        [Self::Functions, Self::Ports, Self::Drops, Self::Workers, Self::Tables];

    /// Its title.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Functions => "Functions",
            Self::Ports => "Ports",
            Self::Drops => "Drops",
            Self::Workers => "Workers",
            Self::Tables => "Tables",
        }
    }

    fn number(self) -> usize {
        Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0)
    }

    fn moved(self, by: usize) -> Self {
        Self::ALL[(self.number() + by) % Self::ALL.len()]
    }
}

/// Whether the display goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Nothing,
    End,
}

/// The order of a tab's rows: that of the dataplane, or by a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sort {
    pub(super) column: Option<usize>,
    pub(super) reversed: bool,
}

/// The shown answers, which stay while the display is paused.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) status: Status,
    /// The change between two looks; none before the second.
    pub(super) change: Option<Stats>,
    /// Free buffers and all buffers.
    pub(super) buffers: (u64, u64),
}

/// The state of the display.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) tab: Tab,
    sorts: [Sort; 5],
    /// Nodes rather than functions.
    pub(super) nodes: bool,
    pub(super) filter: String,
    /// The operator is typing the filter.
    pub(super) typing: bool,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// Rows that are scrolled away.
    pub(super) scrolled: usize,
    /// Rows that had room at the last drawing.
    pub(super) room: usize,
    last: Option<Stats>,
    pub(super) shown: Option<Shown>,
    /// Asked for at the last look with this tab open.
    tables: Option<Vec<show::Table>>,
    /// Why the last look failed.
    pub(super) problem: Option<String>,
}

impl Model {
    /// Takes a look.
    pub(super) fn take(&mut self, look: Look) {
        let sample = match look {
            Ok(sample) => sample,
            Err(problem) => {
                self.problem = Some(problem.detail);
                return;
            }
        };
        let Sample { status, stats, tables } = sample;
        self.problem = None;
        let last = self.last.replace(stats.clone());
        if self.paused {
            return;
        }
        self.tables = tables.or_else(|| self.tables.take());
        self.shown = Some(Shown {
            status,
            buffers: (stats.free_buffers, stats.buffers),
            change: last.map(|last| since(&stats, &last)),
        });
    }

    /// Whether the functions' tables are to be asked for.
    pub(super) fn wants_tables(&self) -> bool {
        self.tab == Tab::Tables
    }

    /// The order of the open tab.
    pub(super) fn sort(&self) -> Sort {
        self.sorts[self.tab.number()]
    }

    /// The columns of the open tab.
    pub(super) fn columns(&self) -> &'static [Column] {
        tables::columns(self.tab)
    }

    /// The rows of the open tab, filtered and sorted. `None` before the second look.
    pub(super) fn rows(&self) -> Option<Vec<Vec<Cell>>> {
        let change = self.shown.as_ref().and_then(|shown| shown.change.as_ref());
        let mut rows = match self.tab {
            Tab::Tables => tables::occupancy(self.tables.as_deref()?),
            tab => {
                let change = change?;
                let seconds = seconds(change);
                match tab {
                    Tab::Functions => tables::functions(change, seconds, self.nodes),
                    Tab::Ports => tables::ports(change, seconds),
                    Tab::Drops => tables::drops(change, seconds),
                    _ => tables::workers(change, seconds),
                }
            }
        };
        let wanted = self.filter.to_lowercase();
        let matches =
            |cell: &Cell| matches!(&cell.key, Key::Text(_)) && cell.text.to_lowercase().contains(&wanted);
        rows.retain(|row| wanted.is_empty() || row.iter().any(matches));
        let Sort { column, reversed } = self.sort();
        if let Some(column) = column {
            rows.sort_by(|a, b| a[column].key.order(&b[column].key));
        }
        if reversed {
            rows.reverse();
        }
        Some(rows)
    }

    /// Takes a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Asked {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if matches!(key.code, KeyCode::Char('c')) { Asked::End } else { Asked::Nothing };
        }
        if self.typing {
            self.type_filter(key.code);
            return Asked::Nothing;
        }
        if std::mem::take(&mut self.help) {
            return if key.code == KeyCode::Char('q') { Asked::End } else { Asked::Nothing };
        }
        match key.code {
            KeyCode::Char('q') => return Asked::End,
            KeyCode::Char('?') => self.help = true,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('n') if self.tab == Tab::Functions => self.nodes = !self.nodes,
            KeyCode::Char('s') => self.sort_by_next(1),
            KeyCode::Char('S') => self.sort_by_next(self.columns().len()),
            KeyCode::Char('r') => {
                let sort = &mut self.sorts[self.tab.number()];
                sort.reversed = !sort.reversed;
            }
            KeyCode::Tab | KeyCode::Right => self.open(self.tab.moved(1)),
            KeyCode::BackTab | KeyCode::Left => self.open(self.tab.moved(Tab::ALL.len() - 1)),
            KeyCode::Char(digit @ '1'..='5') => {
                self.open(Tab::ALL[usize::from(u8::try_from(digit).unwrap_or(b'1') - b'1')]);
            }
            KeyCode::Down => self.scrolled += 1,
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageDown => self.scrolled += self.room.max(1),
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(self.room.max(1)),
            KeyCode::Home => self.scrolled = 0,
            // The drawing goes back to the last page.
            KeyCode::End => self.scrolled = usize::MAX / 2,
            _ => {}
        }
        Asked::Nothing
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char(c) if self.filter.len() < FILTER => self.filter.push(c),
            _ => {}
        }
        self.scrolled = 0;
    }

    /// Sorts by the column that stands so many to the right; behind the last one comes the dataplane's order.
    fn sort_by_next(&mut self, by: usize) {
        let columns = self.columns().len();
        let sort = &mut self.sorts[self.tab.number()];
        let place = sort.column.map_or(columns, |column| column);
        let next = (place + by) % (columns + 1);
        sort.column = (next < columns).then_some(next);
    }

    fn open(&mut self, tab: Tab) {
        self.tab = tab;
        self.scrolled = 0;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::live::canned::{Canned, stats_after};
    use super::*;

    /// A model after two looks, one second apart.
    pub(in super::super) fn watched() -> Model {
        let api = Canned { stats: vec![stats_after(1), stats_after(2)], ..Canned::default() };
        let mut model = Model::default();
        for _ in 0..2 {
            model.take(Sample::take(&api, true));
        }
        model
    }

    pub(in super::super) fn press(model: &mut Model, keys: &str) {
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\t' => KeyCode::Tab,
                key => KeyCode::Char(key),
            };
            assert_eq!(model.press(code.into()), Asked::Nothing);
        }
    }

    fn first_column(model: &Model) -> Vec<String> {
        let rows = model.rows().expect("two looks were taken");
        rows.into_iter().map(|row| row[0].text.clone()).collect()
    }

    #[test]
    fn rates_need_two_looks() {
        let mut model = Model::default();
        assert_eq!(model.rows(), None);
        model.take(Sample::take(&Canned::default(), false));
        assert_eq!(model.rows(), None);
        assert_eq!(first_column(&watched()), ["ttl", "flows"]);
    }

    #[test]
    fn keys_sort_and_reverse() {
        let mut model = watched();
        press(&mut model, "s");
        assert_eq!(first_column(&model), ["flows", "ttl"]);
        press(&mut model, "s");
        assert_eq!(
            (model.sort().column, first_column(&model)),
            (Some(1), vec!["ttl".into(), "flows".into()])
        );
        press(&mut model, "ss");
        // The most cycles come first.
        assert_eq!(first_column(&model), ["flows", "ttl"]);
        press(&mut model, "r");
        assert_eq!(first_column(&model), ["ttl", "flows"]);
        press(&mut model, "SSSS");
        assert_eq!(model.sort().column, None);
        // Every tab has its own order.
        press(&mut model, "\t");
        assert_eq!(model.sort(), Sort::default());
    }

    #[test]
    fn the_filter_looks_at_names() {
        let mut model = watched();
        press(&mut model, "/TT\n");
        assert_eq!(first_column(&model), ["ttl"]);
        press(&mut model, "/l");
        assert_eq!((model.filter.as_str(), model.typing), ("TTl", true));
        model.press(KeyCode::Esc.into());
        assert_eq!(first_column(&model).len(), 2);
        // While typing, letters are no commands.
        press(&mut model, "/q");
        assert_eq!(model.filter, "q");
    }

    #[test]
    fn a_pause_keeps_what_is_shown() {
        let mut model = watched();
        press(&mut model, " ");
        let before = model.rows();
        let api = Canned { stats: vec![stats_after(9)], ..Canned::default() };
        model.take(Sample::take(&api, false));
        assert_eq!(model.rows(), before);
        press(&mut model, " ");
        let api = Canned { stats: vec![stats_after(10)], ..Canned::default() };
        model.take(Sample::take(&api, false));
        // The change since the last look, not since the pause began.
        assert_eq!(model.rows(), before);
    }

    #[test]
    fn nodes_are_shown_on_demand() {
        let mut model = watched();
        press(&mut model, "n");
        assert_eq!(first_column(&model), ["lan.receive", "ttl", "flows", "wan.send"]);
    }

    #[test]
    fn tabs_go_round() {
        let mut model = watched();
        for tab in [Tab::Ports, Tab::Drops, Tab::Workers, Tab::Tables, Tab::Functions] {
            press(&mut model, "\t");
            assert_eq!(model.tab, tab);
        }
        model.press(KeyCode::Left.into());
        assert!(model.wants_tables());
        press(&mut model, "3");
        assert_eq!(model.tab, Tab::Drops);
        assert_eq!(model.press(KeyCode::Char('q').into()), Asked::End);
        assert_eq!(model.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Asked::End);
    }

    #[test]
    fn a_failed_look_is_told_and_keeps_the_last_one() {
        use netbricks_control::api::{Code, Problem};
        let mut model = watched();
        model.take(Err(Problem::new(Code::Timeout, "worker 1 did not answer")));
        assert_eq!(model.problem.as_deref(), Some("worker 1 did not answer"));
        assert!(model.rows().is_some());
    }
}
