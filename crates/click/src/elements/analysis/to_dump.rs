//! `ToDump`: packets into a file of tcpdump's (pcap).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::link;
use super::output::Output;
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::language::text;
use crate::notifier::Signal;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{Raw, Word};

pub(super) const CLASSES: &[Class] = &[
    // It asks sources for their link type, which they know once they are initialised.
    Class::new("ToDump", configure).ports("1/0-1").phase(Class::DEFAULT + 100),
];

/// `ToDump(FILENAME [, SNAPLEN, ENCAP, USE_ENCAP_FROM, EXTRA_LENGTH, UNBUFFERED, NANO])`: writes packets to a pcap file.
///
/// It writes at most `SNAPLEN` bytes of each (2000; all if 0). Packets pass, if there is an output.
struct ToDump {
    filename: String,
    most: usize,
    link: Cell<u32>,
    sources: Vec<usize>,
    counts_missing: bool,
    is_unbuffered: bool,
    nanoseconds: bool,
    output: RefCell<Output>,
    /// The file's header is written with the first packet, so that a file that is taken over goes on.
    is_begun: Cell<bool>,
    active: Cell<bool>,
    count: Cell<u64>,
    runs_task: bool,
    record: RefCell<Vec<u8>>,
    signal: RefCell<Signal>,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let filename: Option<Word> = arguments.required("FILENAME");
    let most: u32 = arguments.positional("SNAPLEN").unwrap_or(2000);
    let encapsulation: Option<Word> = arguments.positional("ENCAP");
    let from: Option<Raw> = arguments.keyword("USE_ENCAP_FROM");
    let counts_missing = arguments.keyword("EXTRA_LENGTH").unwrap_or(true);
    let is_unbuffered = arguments.keyword("UNBUFFERED").unwrap_or(false);
    let nanoseconds = arguments.keyword("NANO").unwrap_or(true);
    arguments.complete()?;
    let fail = |message: &str| {
        setup.errors.error(message);
        None
    };
    let mut link = link::ETHERNET;
    let mut sources = Vec::new();
    match (encapsulation, from) {
        (Some(_), Some(_)) => return fail("specify at most one of 'ENCAP' and 'USE_ENCAP_FROM'"),
        (Some(Word(name)), None) => match link::parse(&name) {
            Some(known) => link = known,
            None => return fail("bad encapsulation type"),
        },
        (None, Some(Raw(names))) => {
            for name in text::split_words(&names) {
                match setup.at.router.find(&name, setup.at.id) {
                    Some(source) => sources.push(source),
                    None => return fail(&format!("no element named '{name}'")),
                }
            }
            if sources.is_empty() {
                return fail("element names missing after 'USE_ENCAP_FROM'");
            }
        }
        (None, None) => (),
    }
    Some(Rc::new(ToDump {
        filename: filename?.0,
        most: if most == 0 { usize::MAX } else { most as usize },
        link: Cell::new(link),
        sources,
        counts_missing,
        is_unbuffered,
        nanoseconds,
        output: RefCell::new(Output::closed()),
        is_begun: Cell::default(),
        active: Cell::new(true),
        count: Cell::default(),
        runs_task: setup.at.input_is_pull(0) && setup.outputs() == 0,
        record: RefCell::default(),
        signal: RefCell::default(),
    }))
}

impl ToDump {
    fn display_name(&self) -> &str {
        if self.filename == "-" { "<stdout>" } else { &self.filename }
    }

    /// Asks the sources for their link type. `false` after an error was told.
    fn ask_sources(&self, at: At<'_>, errors: &Errors) -> bool {
        let mut names = Vec::new();
        for &source in &self.sources {
            let declaration = at.router.at(source).declaration();
            let Ok(name) = at.router.read_handler(source, "encap", "") else {
                errors.error(&format!("'{declaration}' has no 'encap' read handler"));
                return false;
            };
            names.push((declaration, name.trim().to_owned()));
        }
        let mut agreed = None;
        for (declaration, name) in &names {
            let Some(link) = link::parse(name) else {
                errors.error(&format!("'{declaration}.encap' did not return a valid encapsulation type"));
                return false;
            };
            if agreed.is_some_and(|agreed| agreed != link) {
                errors.error("source encapsulation types disagree:");
                for (declaration, name) in &names {
                    errors.error(&format!("  {declaration} has {name}"));
                }
                return false;
            }
            agreed = Some(link);
        }
        if let Some(link) = agreed {
            self.link.set(link);
        }
        true
    }

    fn write(&self, at: At<'_>, bytes: &[u8]) -> bool {
        let mut output = self.output.borrow_mut();
        let mut written = output.write(bytes);
        if self.is_unbuffered && written.is_ok() {
            written = output.flush();
        }
        drop(output);
        if let Err(error) = &written {
            self.active.set(false);
            at.chatter(&format!("ToDump({}): {}", self.display_name(), super::input::system_message(error)));
        }
        written.is_ok()
    }

    fn begin(&self, at: At<'_>) {
        if self.is_begun.replace(true) {
            return;
        }
        let magic: u32 = if self.nanoseconds { 0xA1B2_3C4D } else { 0xA1B2_C3D4 };
        let most = u32::try_from(self.most).unwrap_or(u32::MAX);
        let mut header = magic.to_ne_bytes().to_vec();
        header.extend_from_slice(&2_u16.to_ne_bytes());
        header.extend_from_slice(&4_u16.to_ne_bytes());
        for number in [0, 0, most, self.link.get()] {
            header.extend_from_slice(&number.to_ne_bytes());
        }
        let emptied = self.output.borrow_mut().empty();
        if let Err(error) = emptied {
            at.chatter(&format!("ToDump({}): {error}", self.display_name()));
        }
        self.write(at, &header);
    }

    fn take(&self, at: At<'_>, packet: &Packet) {
        if !self.active.get() {
            return;
        }
        self.begin(at);
        let time = match packet.timestamp() as i64 {
            0 => at.now() as i64,
            time => time,
        };
        let parts = time.rem_euclid(1_000_000_000) as u32;
        let missing = if self.counts_missing { packet.anno_u32(place::EXTRA_LENGTH) } else { 0 };
        let bytes = &packet.data()[..packet.len().min(self.most)];
        let mut record = self.record.take();
        record.clear();
        for number in [
            time.div_euclid(1_000_000_000) as u32,
            if self.nanoseconds { parts } else { parts / 1000 },
            bytes.len() as u32,
            (packet.len() as u32).wrapping_add(missing),
        ] {
            record.extend_from_slice(&number.to_ne_bytes());
        }
        record.extend_from_slice(bytes);
        if self.write(at, &record) {
            self.count.set(self.count.get() + 1);
        }
        self.record.replace(record);
    }
}

impl Element for ToDump {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        if !self.ask_sources(at, errors) {
            return false;
        }
        let Some(output) = Output::open_without_emptying(&self.filename, at, errors) else { return false };
        self.output.replace(output);
        if self.runs_task {
            at.schedule(0);
            *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
        }
        true
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        self.take(at, &packet);
        if at.outputs() > 0 { at.push(0, packet) } else { at.discard(packet) }
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        for packet in batch.iter() {
            self.take(at, packet);
        }
        if at.outputs() > 0 { at.push_batch(0, batch) } else { at.drop_batch(batch, DropReason::Discarded) }
    }
    fn pull(&self, at: At<'_>, _: usize) -> Option<Packet> {
        let packet = at.pull(0)?;
        self.take(at, &packet);
        Some(packet)
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        if !self.active.get() {
            return false;
        }
        let packet = at.pull(0);
        let worked = packet.is_some();
        if worked || self.signal.borrow().is_active() {
            at.schedule(0);
        }
        if let Some(packet) = packet {
            self.take(at, &packet);
            at.discard(packet);
        }
        worked
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("filename", |this: &Self, _| this.display_name().to_owned());
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.button("reset_counts", |this: &Self, _| this.count.set(0));
        if self.runs_task {
            handlers.task::<Self>(0);
        }
    }
    fn take_state(&self, _: At<'_>, before: &dyn Element) {
        let Some(before) = as_type::<Self>(before) else { return };
        let same = self.filename == before.filename
            && self.link == before.link
            && self.nanoseconds == before.nanoseconds;
        if same {
            self.output.swap(&before.output);
            self.is_begun.set(before.is_begun.replace(true));
            *before.output.borrow_mut() = Output::closed();
        }
    }
    fn cleanup(&self, at: At<'_>) {
        self.begin(at);
        let closed = self.output.borrow_mut().close();
        if let Err(error) = closed {
            at.chatter(&format!("ToDump({}): {error}", self.display_name()));
        }
    }
}
