//! Draws the display. What has no room is left out: first columns, then the footer, the tabs and the header.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table};

use super::super::live::stats::{rates_line, seconds};
use super::super::live::status::state;
use super::super::live::units::running_for;
use super::model::{Model, Shown, Sort, Tab};
use super::tables::{Cell, Column};
use crate::diagnostic::{visible, width};
use crate::report::{counted, thousands};

/// Columns between two columns of a table.
const GAP: u16 = 2;

const HELP: &[(&str, &str)] = &[
    ("Tab → ←  1–5", "another list"),
    ("↑ ↓ PgUp PgDn", "scroll"),
    ("s S", "sort by the next or previous column"),
    ("r", "reverse the order"),
    ("/", "filter by name; Esc clears"),
    ("n", "nodes or functions"),
    ("Space", "pause"),
    ("q Ctrl-C", "quit"),
];

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model) {
    let area = frame.area();
    // The table needs two lines; then come the header, the tabs and the footer.
    let lines = |needs: u16, lines: u16| if area.height >= needs { lines } else { 0 };
    let [header, tabs, table, footer] = Layout::vertical([
        Constraint::Length(lines(5, 2)),
        Constraint::Length(lines(6, 1)),
        Constraint::Min(0),
        Constraint::Length(lines(7, 1)),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(header_text(model)), header);
    frame.render_widget(tabs_line(model.tab), tabs);
    draw_table(frame, model, table);
    frame.render_widget(footer_line(model), footer);
    if model.help {
        draw_help(frame, area);
    }
}

fn header_text(model: &Model) -> Text<'static> {
    let Some(Shown { status, change, buffers }) = &model.shown else {
        return Text::from(vec![Line::from("waiting for the first answer"), problem_line(model)]);
    };
    let mut first = vec![
        Span::from(visible(&status.graph)).bold(),
        Span::from(format!(
            "  {}, up {} · configuration {} · {}",
            state(status.state),
            running_for(status.uptime_seconds),
            status.configuration,
            counted(status.workers, "worker")
        )),
        Span::from(format!(" · {} of {} buffers free", thousands(buffers.0), thousands(buffers.1))),
    ];
    if let Some(seconds) = status.confirm_within_seconds {
        first.push(format!(" · rolled back in {} unless confirmed", running_for(seconds)).fg(Color::Yellow));
    }
    if model.paused {
        first.insert(0, Span::from(" PAUSED ").reversed());
        first.insert(1, Span::from(" "));
    }
    let second = match change {
        _ if model.problem.is_some() => problem_line(model),
        None => Line::from("waiting for the second answer"),
        Some(change) => Line::from(rates_line(change, Some(seconds(change))).trim_end().to_owned()),
    };
    Text::from(vec![Line::from(first), second])
}

fn problem_line(model: &Model) -> Line<'static> {
    match &model.problem {
        None => Line::default(),
        Some(problem) => Line::from(format!("no answer: {}", visible(problem)).fg(Color::Red)),
    }
}

fn tabs_line(open: Tab) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, tab) in Tab::ALL.into_iter().enumerate() {
        let title = format!(" {} {} ", number + 1, tab.title());
        spans.push(if tab == open { Span::from(title).reversed() } else { Span::from(title) });
    }
    Line::from(spans)
}

fn footer_line(model: &Model) -> Line<'static> {
    if model.typing {
        return Line::from(vec!["/".bold(), Span::from(visible(&model.filter)), "_".slow_blink()]);
    }
    let Sort { column, reversed } = model.sort();
    let order = column.and_then(|column| model.columns().get(column)).map_or("as it runs", |(name, _)| name);
    let reversed = if reversed { ", reversed" } else { "" };
    let filter = match model.filter.as_str() {
        "" => String::new(),
        filter => format!("filter: {}   ", visible(filter)),
    };
    Line::from(format!("{filter}order: {order}{reversed}   s sort  / filter  Space pause  ? help  q quit"))
        .style(Style::new().add_modifier(Modifier::DIM))
}

fn draw_table(frame: &mut Frame<'_>, model: &mut Model, area: Rect) {
    model.room = usize::from(area.height.saturating_sub(1));
    let Some(rows) = model.rows() else {
        return frame.render_widget(Paragraph::new("rates come with the second answer").dim(), area);
    };
    if rows.is_empty() {
        let filtered = if model.filter.is_empty() { "" } else { " that the filter lets through" };
        return frame.render_widget(Paragraph::new(format!("nothing{filtered}")).dim(), area);
    }
    model.scrolled = model.scrolled.min(rows.len().saturating_sub(model.room.max(1)));
    let columns = model.columns();
    let widths = widths(columns, &rows, area.width);
    let sorted = model.sort().column;
    let heading = |(number, (name, is_number)): (usize, &Column)| {
        let style =
            if sorted == Some(number) { Style::new().bold().underlined() } else { Style::new().bold() };
        Text::from(*name).alignment(aligned(*is_number)).style(style)
    };
    let shown = rows.iter().skip(model.scrolled).take(model.room).map(|row| {
        Row::new(
            row.iter()
                .zip(columns)
                .take(widths.len())
                .map(|(cell, (_, is_number))| Text::from(cell.text.clone()).alignment(aligned(*is_number))),
        )
    });
    let table = Table::new(shown, widths.iter().map(|width| Constraint::Length(*width)))
        .column_spacing(GAP)
        .header(Row::new(columns.iter().enumerate().take(widths.len()).map(heading)));
    frame.render_widget(table, area);
}

fn aligned(is_number: bool) -> Alignment {
    if is_number { Alignment::Right } else { Alignment::Left }
}

/// The widths of the columns that have room; the first one is always shown, however narrow.
fn widths(columns: &[Column], rows: &[Vec<Cell>], room: u16) -> Vec<u16> {
    let mut widths: Vec<u16> = Vec::new();
    let mut used = 0_u16;
    for (number, (name, is_number)) in columns.iter().enumerate() {
        let cells = rows.iter().filter_map(|row| row.get(number)).map(|cell| width(&cell.text));
        let wide = cells.chain([width(name)]).max().unwrap_or(0);
        let wide = u16::try_from(wide).unwrap_or(u16::MAX);
        let gap = if number == 0 { 0 } else { GAP };
        let left = room.saturating_sub(used).saturating_sub(gap);
        // A text is cut at the end, a number is shown whole or not at all.
        let is_last_text = number + 1 == columns.len() && !is_number && left >= 10;
        if wide > left && number > 0 && !is_last_text {
            break;
        }
        widths.push(wide.min(left));
        used = used.saturating_add(gap).saturating_add(wide.min(left));
    }
    widths
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let keys = HELP.iter().map(|(keys, _)| width(keys)).max().unwrap_or(0);
    let lines: Vec<String> =
        HELP.iter().map(|(key, text)| format!(" {key}{}  {text} ", " ".repeat(keys - width(key)))).collect();
    let wide = lines.iter().map(|line| width(line)).max().unwrap_or(0) + 2;
    let [_, middle, _] = Layout::horizontal([
        Constraint::Fill(1),
        Constraint::Max(u16::try_from(wide).unwrap_or(u16::MAX)),
        Constraint::Fill(1),
    ])
    .areas(area);
    let high = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let [_, middle, _] =
        Layout::vertical([Constraint::Fill(1), Constraint::Max(high), Constraint::Fill(1)]).areas(middle);
    frame.render_widget(Clear, middle);
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Keys ")), middle);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::tests::{press, watched};
    use super::*;

    /// The lines of a terminal of this size, without spaces at their ends.
    fn drawn(model: &mut Model, columns: u16, lines: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| -> String {
            let text: String = (0..columns).map(|x| buffer[(x, y)].symbol()).collect();
            format!("{}\n", text.trim_end())
        };
        (0..lines).map(line).collect()
    }

    #[test]
    fn functions_are_shown_first() {
        assert_eq!(
            drawn(&mut watched(), 100, 8),
            "edge  running, up 2 h 03 min · configuration 3 · 2 workers · 4,000 of 4,096 buffers free\n\
             received 3.00 kpps 1.44 Mb/s · sent 2.70 kpps 1.30 Mb/s · dropped 300 pps (10.0 %)\n\
             \u{20}1 Functions  2 Ports  3 Drops  4 Workers  5 Tables\n\
             function         in        out  cycles/packet  packets/batch    drops  held       bits\n\
             ttl       3.00 kpps  2.70 kpps            8.0           60.0  300 pps     0  1.44 Mb/s\n\
             flows     2.70 kpps  2.70 kpps           15.0           54.0    0 pps     0  1.30 Mb/s\n\
             \n\
             order: as it runs   s sort  / filter  Space pause  ? help  q quit\n"
        );
    }

    #[test]
    fn every_tab_has_its_table() {
        let mut model = watched();
        let mut table = |key: &str| {
            press(&mut model, key);
            let lines = drawn(&mut model, 120, 8);
            lines.lines().skip(3).take(3).map(|line| format!("{line}\n")).collect::<String>()
        };
        assert_eq!(
            table("2"),
            "port   received       bits       sent       bits  missed  link  driver\n\
             lan   3.00 kpps  1.44 Mb/s      0 pps      0 b/s  12 pps  up    generator\n\
             wan       0 pps      0 b/s  2.70 kpps  1.30 Mb/s   0 pps  up    null\n"
        );
        let drops = table("3");
        assert!(
            drops.starts_with("node  reason         drops   share       bits  packets that leave for it\n"),
            "{drops}"
        );
        assert!(drops.contains("\nttl   ttl-expired  290 pps  96.7 %   139 kb/s  "), "{drops}");
        assert_eq!(
            table("4"),
            "worker   core   received       sent  dropped     turns  sleeps  longest pause  receives from\n\
             0           1  3.00 kpps  2.70 kpps  300 pps  12.3 k/s    0 /s        43.0 µs  lan.0\n\
             1 ended     2      0 pps      0 pps    0 pps  9.00 k/s    0 /s        1.20 ms  lan.1\n"
        );
        assert_eq!(
            table("5"),
            "function  table  worker  entries  capacity    full  node\n\
             flows     flows  all          53       200  26.5 %\n\
             flows     flows  0             3       100  3.00 %  flows\n"
        );
    }

    #[test]
    fn small_terminals_show_what_has_room() {
        assert_eq!(
            drawn(&mut watched(), 30, 3),
            "function         in        out\nttl       3.00 kpps  2.70 kpps\nflows     2.70 kpps  2.70 kpps\n"
        );
        // No size is too small.
        for (columns, lines) in [(1, 1), (5, 2), (12, 5), (200, 1), (3, 60)] {
            for keys in ["", "?", "2", "3?", "5", "/x"] {
                let mut model = watched();
                press(&mut model, keys);
                drawn(&mut model, columns, lines);
            }
        }
    }

    #[test]
    fn the_footer_tells_filter_and_order() {
        let mut model = watched();
        press(&mut model, "/tt");
        assert!(drawn(&mut model, 80, 8).ends_with("\n/tt_\n"));
        press(&mut model, "\nsr");
        let text = drawn(&mut model, 100, 8);
        assert!(
            text.ends_with(
                "\nfilter: tt   order: function, reversed   s sort  / filter  Space pause  ? help  q quit\n"
            ),
            "{text}"
        );
        press(&mut model, "/zz\n");
        assert!(drawn(&mut model, 100, 8).contains("nothing that the filter lets through"));
    }

    #[test]
    fn a_pause_and_a_missing_answer_are_shown() {
        use netbricks_control::api::{Code, Problem};
        let mut model = watched();
        press(&mut model, " ");
        model.take(Err(Problem::new(Code::Timeout, "worker 1 did not answer")));
        let text = drawn(&mut model, 100, 8);
        assert!(text.starts_with(" PAUSED  edge  running"), "{text}");
        assert!(text.contains("\nno answer: worker 1 did not answer\n"), "{text}");
    }

    #[test]
    fn scrolling_ends_with_the_last_row() {
        let mut model = watched();
        press(&mut model, "n");
        model.press(ratatui::crossterm::event::KeyCode::End.into());
        let text = drawn(&mut model, 60, 3);
        assert!(text.contains("wan.send") && text.contains("flows") && !text.contains("ttl"), "{text}");
        assert_eq!(model.scrolled, 2);
    }

    #[test]
    fn help_lists_the_keys() {
        let mut model = watched();
        press(&mut model, "?");
        let text = drawn(&mut model, 100, 14);
        assert!(text.contains(" Keys ") && text.contains("reverse the order"), "{text}");
        press(&mut model, "x");
        assert!(!model.help);
    }
}
