//! `Print`: says each packet's bytes.

use std::cell::Cell;
use std::fmt::Write as _;
use std::rc::Rc;

use netbricks_core::buffer::Packet;

use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Word, boolean, write_time};

pub(super) const CLASSES: &[Class] = &[Class::new("Print", print).live()];

/// `Print([LABEL, MAXLENGTH, CONTENTS, TIMESTAMP, PRINTANNO, HEADROOM, ACTIVE])`: says a line for each packet.
///
/// The line has the label, the packet's length and its first `MAXLENGTH` bytes (24; all if negative).
struct Print {
    settings: Cell<Settings>,
    label: std::cell::RefCell<String>,
    active: Cell<bool>,
}

#[derive(Clone, Copy)]
struct Settings {
    length: i32,
    contents: Contents,
    timestamp: bool,
    annotations: bool,
    headroom: bool,
}

/// The form in which bytes are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Nothing,
    Hex,
    Ascii,
}

fn print(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let label: String = arguments.positional("LABEL").unwrap_or_default();
    let mut length: i32 = arguments.positional("MAXLENGTH").unwrap_or(24);
    for old in ["LENGTH", "NBYTES"] {
        length = arguments.deprecated(old).unwrap_or(length);
    }
    let contents = arguments.keyword("CONTENTS").unwrap_or_else(|| Word("HEX".into())).0;
    let timestamp = arguments.keyword("TIMESTAMP").unwrap_or(false);
    let annotations = arguments.keyword("PRINTANNO").unwrap_or(false);
    let active = arguments.keyword("ACTIVE").unwrap_or(true);
    let headroom = arguments.keyword("HEADROOM").unwrap_or(false);
    arguments.complete()?;
    let upper = contents.to_ascii_uppercase();
    let contents = match (boolean(&contents), upper.as_str()) {
        (Some(false), _) | (_, "NONE") => Contents::Nothing,
        (Some(true), _) | (_, "HEX") => Contents::Hex,
        (_, "ASCII") => Contents::Ascii,
        _ => {
            let message = format!("bad contents value '{upper}'; should be 'NONE', 'HEX', or 'ASCII'");
            setup.errors.error(&message);
            return None;
        }
    };
    let settings = Settings { length, contents, timestamp, annotations, headroom };
    Some(Rc::new(Print { settings: Cell::new(settings), label: label.into(), active: Cell::new(active) }))
}

impl Print {
    fn line(&self, packet: &Packet) -> String {
        let settings = self.settings.get();
        let mut line = self.label.borrow().clone();
        let mut separator = if line.is_empty() { "" } else { ": " };
        if settings.timestamp {
            let _ = write!(line, "{separator}{}", write_time(packet.timestamp()));
            separator = ": ";
        }
        let _ = write!(line, "{separator}{:4}", packet.len());
        if settings.headroom {
            let _ = write!(line, " (h{} t{})", packet.headroom(), packet.tailroom());
        }
        if settings.annotations {
            line.push_str(" | ");
            for byte in packet.anno() {
                let _ = write!(line, "{byte:02x}");
            }
        }
        let length = usize::try_from(settings.length).unwrap_or(usize::MAX).min(packet.len());
        if settings.contents != Contents::Nothing && length > 0 {
            line.push_str(" | ");
            for (place, byte) in packet.data()[..length].iter().enumerate() {
                if settings.contents == Contents::Hex {
                    let space = if place % 4 == 0 && place > 0 { " " } else { "" };
                    let _ = write!(line, "{space}{byte:02x}");
                } else {
                    let space = if place % 8 == 0 { " " } else { "" };
                    let shown = if (32..=126).contains(byte) { *byte as char } else { '.' };
                    let _ = write!(line, "{space}{shown}");
                }
            }
        }
        line
    }
}

impl Element for Print {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        if self.active.get() {
            at.chatter(&self.line(&packet));
        }
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.flag("active", |this: &Self| &this.active).calm = true;
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.settings.set(fresh.settings.get());
        self.label.replace(fresh.label.take());
        self.active.set(fresh.active.get());
        true
    }
}
