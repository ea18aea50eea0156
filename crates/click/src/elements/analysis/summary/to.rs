//! `ToIPSummaryDump`: a line (or a binary record) for each packet.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Packet};

use super::field::{Column, Field, Form};
use super::view::{Look, View};
use super::{first_timestamp, write_signed_time};
use crate::arguments::Arguments;
use crate::element::Element;
use crate::elements::analysis::output::Output;
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::language::text;
use crate::notifier::Signal;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{Raw, Word};

/// `ToIPSummaryDump(FILENAME [, FIELDS, VERBOSE, HEADER, BANNER, MULTIPACKET, BAD_PACKETS, CAREFUL_TRUNC,
/// EXTRA_LENGTH, BINARY])`: writes fields of packets to a file, a line each; `-` is the standard output.
struct ToSummary {
    filename: String,
    columns: Vec<Column>,
    banner: String,
    verbose: bool,
    bad_packets: bool,
    multipacket: bool,
    binary: bool,
    header: bool,
    look: Look,
    output: RefCell<Output>,
    line: RefCell<Vec<u8>>,
    failed: Cell<bool>,
    signal: RefCell<Signal>,
}

pub(super) fn configure(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let filename: Option<Word> = arguments.required("FILENAME");
    let fields: Option<Raw> = arguments.keyword("FIELDS");
    let contents: Option<Raw> = arguments.keyword("CONTENTS");
    let data: Option<Raw> = arguments.keyword("DATA");
    if data.is_some() {
        arguments.errors().warning("DATA is deprecated");
    }
    let verbose = arguments.keyword("VERBOSE").unwrap_or(false);
    let header = arguments.keyword("HEADER").unwrap_or(true);
    let banner: String = arguments.keyword("BANNER").unwrap_or_default();
    let multipacket = arguments.keyword("MULTIPACKET").unwrap_or(false);
    let bad_packets = arguments.keyword("BAD_PACKETS").unwrap_or(false);
    let careful = arguments.keyword("CAREFUL_TRUNC").unwrap_or(true);
    let counts_missing = arguments.keyword("EXTRA_LENGTH").unwrap_or(true);
    let binary = arguments.keyword("BINARY").unwrap_or(false);
    arguments.complete()?;
    let list = data.or(contents).or(fields).map_or_else(|| "timestamp ip_src".to_owned(), |raw| raw.0);
    let mut columns = Vec::new();
    for word in text::split_words(&list) {
        let name = String::from_utf8_lossy(&text::unquote(&word)).into_owned();
        match Column::find(&name) {
            None => arguments.error(&format!("unknown content type '{name}'")),
            Some(column) => {
                columns.push(column);
                if binary && column.form == Form::Text {
                    arguments.error(&format!("cannot use field {name} with BINARY"));
                }
            }
        }
    }
    if columns.is_empty() {
        arguments.error("no contents specified");
    }
    if !arguments.is_good() {
        return None;
    }
    let at_ip = columns.iter().any(Column::looks_at_ip);
    let counts = columns.iter().any(|column| column.field == Field::Count);
    Some(Rc::new(ToSummary {
        filename: filename?.0,
        columns,
        banner,
        verbose,
        bad_packets,
        multipacket: multipacket && !counts,
        binary,
        header,
        look: Look { careful, counts_missing, at_ip },
        output: RefCell::new(Output::closed()),
        line: RefCell::default(),
        failed: Cell::default(),
        signal: RefCell::default(),
    }))
}

impl ToSummary {
    fn head(&self, at: At<'_>) -> String {
        let mut head = format!("!IPSummaryDump {}.{}\n", super::VERSION.0, super::VERSION.1);
        if !self.banner.is_empty() {
            head.push_str(&format!("!creator {}\n", text::quote(self.banner.as_bytes(), false)));
        }
        if self.verbose {
            if let Ok(host) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
                head.push_str(&format!("!host {}\n", host.trim()));
            }
            let now = at.now();
            head.push_str(&format!("!runtime {} ({} UTC)\n", write_signed_time(now as i64), calendar(now)));
        }
        let name = |column: &Column| match column.field {
            Field::TimestampNanoseconds if !self.binary => "timestamp",
            _ => column.name,
        };
        let names: Vec<&str> = self.columns.iter().map(name).collect();
        head.push_str(&format!("!data {}\n", names.join(" ")));
        if self.binary {
            head.push_str("!binary\n");
        }
        head
    }

    fn write(&self, at: At<'_>, bytes: &[u8]) {
        let written = self.output.borrow_mut().write(bytes);
        if let Err(error) = written
            && !self.failed.replace(true)
        {
            at.chatter(&format!("{}: {}: {error}", at.declaration(), self.filename));
        }
    }

    /// Adds a packet's line or record, and the line of its fault before it.
    fn summarize(&self, packet: &mut Packet, out: &mut Vec<u8>) {
        let mut view = View::new(packet, self.look);
        let begin = out.len();
        if self.binary {
            out.extend_from_slice(&[0; 4]);
            for column in &self.columns {
                view.write_binary(column, out);
            }
            let length = (out.len() - begin) as u32;
            out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
        } else {
            for (place, column) in self.columns.iter().enumerate() {
                if place > 0 {
                    out.push(b' ');
                }
                view.write_text(column, out);
            }
            out.push(b'\n');
        }
        if self.bad_packets
            && let Some(fault) = view.fault.take()
        {
            let mut line = Vec::new();
            self.metadata(&format!("!bad {fault}\n"), &mut line);
            out.splice(begin..begin, line);
        }
    }

    /// A line that is no packet's, in the form of the dump.
    fn metadata(&self, line: &str, out: &mut Vec<u8>) {
        if self.binary {
            out.extend_from_slice(&(line.len() as u32 | 1 << 31).to_be_bytes());
        }
        out.extend_from_slice(line.as_bytes());
    }

    fn take(&self, at: At<'_>, packet: &mut Packet) {
        let mut out = self.line.take();
        out.clear();
        let extra = packet.anno_u32(place::EXTRA_PACKETS);
        if self.multipacket && extra > 0 {
            self.summarize_many(at, packet, extra, &mut out);
        } else {
            self.summarize(packet, &mut out);
        }
        self.write(at, &out);
        self.line.replace(out);
    }

    /// A line for each of the packets that a packet stands for: times and lengths are spread evenly.
    fn summarize_many(&self, at: At<'_>, packet: &mut Packet, extra: u32, out: &mut Vec<u8>) {
        let count = u64::from(extra) + 1;
        let length = packet.len() as u64;
        let missing = u64::from(packet.anno_u32(place::EXTRA_LENGTH));
        let mut total = (length + if self.look.counts_missing { missing } else { 0 }).max(count * length);
        let end = packet.timestamp() as i64;
        let first = first_timestamp(packet);
        let step = if first == 0 { 0 } else { end.wrapping_sub(first) / i64::from(extra) };
        if first != 0 {
            packet.set_timestamp(first as u64);
        }
        packet.set_anno_u32(place::EXTRA_PACKETS, 0);
        for left in (1..=count).rev() {
            let share = total / left;
            packet.set_anno_u32(place::EXTRA_LENGTH, share.saturating_sub(length) as u32);
            total -= share;
            self.summarize(packet, out);
            if out.len() > 1 << 16 {
                self.write(at, out);
                out.clear();
            }
            let time = if left == 1 { end } else { (packet.timestamp() as i64).wrapping_add(step) };
            packet.set_timestamp(time as u64);
        }
    }

    fn pass(&self, at: At<'_>, packet: Packet) {
        if at.outputs() > 0 { at.push(0, packet) } else { at.discard(packet) }
    }
}

/// Day and time of a time of day: `Tue Jul 24 17:53:30 2001`.
fn calendar(now: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = now / 1_000_000_000;
    let (days, second) = (seconds / 86400, seconds % 86400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    loop {
        let length = match month {
            1 => 28 + u64::from(is_leap(year)),
            3 | 5 | 8 | 10 => 30,
            _ => 31,
        };
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!(
        "{} {} {:2} {:02}:{:02}:{:02} {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month % 12],
        day + 1,
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

impl Element for ToSummary {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let Some(output) = Output::open(&self.filename, at, errors) else { return false };
        *self.output.borrow_mut() = output;
        if at.input_is_pull(0) {
            *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
            at.schedule(0);
        }
        if self.header {
            self.write(at, self.head(at).as_bytes());
        }
        true
    }
    fn push(&self, at: At<'_>, _: usize, mut packet: Packet) {
        self.take(at, &mut packet);
        self.pass(at, packet);
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        for mut packet in batch.drain() {
            self.take(at, &mut packet);
            self.pass(at, packet);
        }
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        match at.pull(0) {
            Some(mut packet) => {
                self.take(at, &mut packet);
                self.pass(at, packet);
                at.schedule(0);
                true
            }
            None => {
                if self.signal.borrow().is_active() {
                    at.schedule(0);
                }
                false
            }
        }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.task::<Self>(0);
        handlers.write("flush", |this: &Self, _, _| {
            let flushed = this.output.borrow_mut().flush();
            flushed.map(|()| String::new()).map_err(|error| error.to_string())
        });
    }
    fn cleanup(&self, at: At<'_>) {
        let closed = self.output.borrow_mut().close();
        if let Err(error) = closed
            && !self.failed.replace(true)
        {
            at.chatter(&format!("{}: {}: {error}", at.declaration(), self.filename));
        }
    }
}
