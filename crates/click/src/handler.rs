//! Handlers: values of an element that are read and written by name, such as `counter.count`.

use std::cell::Cell;
use std::rc::Rc;

use crate::element::{Element, as_type};
use crate::router::At;

/// The result of a handler's call: a text, or the error's.
pub type Answer = Result<String, String>;

type Call = Rc<dyn Fn(&dyn Element, At<'_>, &str) -> Answer>;
/// A call of a handler of any name: with the name, and whether it is written.
type StarCall = Rc<dyn Fn(&dyn Element, At<'_>, &str, &str, bool) -> Answer>;

/// A handler of an element.
#[derive(Clone)]
pub struct Handler {
    /// Its name.
    pub name: String,
    read: Option<Call>,
    write: Option<Call>,
    /// Whether reading takes a parameter.
    pub read_parameter: bool,
    /// Whether its value is shown as it is, without a line's end.
    pub raw: bool,
    /// Whether only elements of the same configuration may read it.
    pub private_read: bool,
    /// Whether only elements of the same configuration may write it.
    pub private_write: bool,
    /// Whether it is a button: written without a value.
    pub button: bool,
    /// Whether it is a check box.
    pub checkbox: bool,
    /// Whether reading has no effect and costs little, so that a viewer may poll it.
    pub calm: bool,
    /// Whether reading is dear.
    pub expensive: bool,
    /// Whether few ask for it.
    pub uncommon: bool,
    /// Whether it stands only for the sake of older programs.
    pub deprecated: bool,
}

impl Handler {
    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            read: None,
            write: None,
            read_parameter: false,
            raw: false,
            private_read: false,
            private_write: false,
            button: false,
            checkbox: false,
            calm: false,
            expensive: false,
            uncommon: false,
            deprecated: false,
        }
    }

    /// Whether it can be read at all.
    pub fn is_readable(&self) -> bool {
        self.read.is_some()
    }
    /// Whether it can be written at all.
    pub fn is_writable(&self) -> bool {
        self.write.is_some()
    }
    /// Whether others than elements may read it.
    pub fn is_visibly_readable(&self) -> bool {
        self.read.is_some() && !self.private_read
    }
    /// Whether others than elements may write it.
    pub fn is_visibly_writable(&self) -> bool {
        self.write.is_some() && !self.private_write
    }

    /// Reads it.
    ///
    /// # Errors
    /// The handler's own, or that it cannot be read.
    pub fn read(&self, element: &dyn Element, at: At<'_>, parameter: &str) -> Answer {
        match &self.read {
            Some(read) => read(element, at, parameter),
            None => Err(format!("no '{}' read handler", self.name)),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// The handler's own, or that it cannot be written.
    pub fn write(&self, element: &dyn Element, at: At<'_>, value: &str) -> Answer {
        match &self.write {
            Some(write) => write(element, at, value),
            None => Err(format!("no '{}' write handler", self.name)),
        }
    }
}

/// A number that [`Handlers::number`] reads and writes.
pub trait Number: crate::arguments::Argument + ToString + Copy + 'static {
    /// Click's words for a text that is no such number.
    const EXPECTED: &'static str;
}

impl Number for u8 {
    const EXPECTED: &'static str = "expected uint8_t";
}
impl Number for u16 {
    const EXPECTED: &'static str = "expected uint16_t";
}
impl Number for i32 {
    const EXPECTED: &'static str = "expected integer";
}
impl Number for u32 {
    const EXPECTED: &'static str = "expected integer";
}
impl Number for i64 {
    const EXPECTED: &'static str = "expected integer";
}
impl Number for u64 {
    const EXPECTED: &'static str = "expected integer";
}

/// The handlers of an element, as it declares them.
#[derive(Default)]
pub struct Handlers {
    list: Vec<Handler>,
    star: Option<StarCall>,
}

impl Handlers {
    fn entry(&mut self, name: &str) -> &mut Handler {
        let place = self.list.iter().position(|handler| handler.name == name).unwrap_or_else(|| {
            self.list.push(Handler::named(name));
            self.list.len() - 1
        });
        &mut self.list[place]
    }

    /// A value that can be read.
    pub fn read<E: Element, T: ToString>(
        &mut self,
        name: &str,
        read: impl Fn(&E, At<'_>) -> T + 'static,
    ) -> &mut Handler {
        let handler = self.entry(name);
        handler.read = Some(Rc::new(move |element, at, _| match as_type::<E>(element) {
            Some(element) => Ok(read(element, at).to_string()),
            None => Err("the element is of another class".into()),
        }));
        handler
    }

    /// A value that is read with a parameter.
    pub fn ask<E: Element>(
        &mut self,
        name: &str,
        read: impl Fn(&E, At<'_>, &str) -> Answer + 'static,
    ) -> &mut Handler {
        let handler = self.entry(name);
        handler.read_parameter = true;
        handler.read = Some(Rc::new(move |element, at, parameter| match as_type::<E>(element) {
            Some(element) => read(element, at, parameter),
            None => Err("the element is of another class".into()),
        }));
        handler
    }

    /// A value that can be written; the answer's text is for the caller.
    pub fn write<E: Element>(
        &mut self,
        name: &str,
        write: impl Fn(&E, At<'_>, &str) -> Answer + 'static,
    ) -> &mut Handler {
        let handler = self.entry(name);
        handler.write = Some(Rc::new(move |element, at, value| match as_type::<E>(element) {
            Some(element) => write(element, at, value),
            None => Err("the element is of another class".into()),
        }));
        handler
    }

    /// A value that can be read, of any element.
    pub(crate) fn any_read(
        &mut self,
        name: &str,
        read: impl Fn(At<'_>, &str) -> Answer + 'static,
    ) -> &mut Handler {
        let handler = self.entry(name);
        handler.read = Some(Rc::new(move |_, at, parameter| read(at, parameter)));
        handler
    }

    /// A value that can be written, of any element.
    pub(crate) fn any_write(
        &mut self,
        name: &str,
        write: impl Fn(At<'_>, &str) -> Answer + 'static,
    ) -> &mut Handler {
        let handler = self.entry(name);
        handler.write = Some(Rc::new(move |_, at, value| write(at, value)));
        handler
    }

    /// A button: `write` runs whenever it is written.
    pub fn button<E: Element>(&mut self, name: &str, press: impl Fn(&E, At<'_>) + 'static) -> &mut Handler {
        let handler = self.write(name, move |element: &E, at, _| {
            press(element, at);
            Ok(String::new())
        });
        handler.button = true;
        handler
    }

    /// A truth value in a cell, that can be read and written.
    pub fn flag<E: Element>(&mut self, name: &str, cell: fn(&E) -> &Cell<bool>) -> &mut Handler {
        self.read(name, move |element: &E, _| cell(element).get());
        let handler = self.write(name, move |element: &E, _, value| {
            cell(element).set(crate::value::boolean(value.trim()).ok_or("expected boolean")?);
            Ok(String::new())
        });
        handler.checkbox = true;
        handler
    }

    /// A number in a cell, that can be read and written.
    pub fn number<E: Element, N: Number>(&mut self, name: &str, cell: fn(&E) -> &Cell<N>) -> &mut Handler {
        self.read(name, move |element: &E, _| cell(element).get());
        self.write(name, move |element: &E, at, value| {
            cell(element).set(N::parse(value.trim(), at).map_err(|_| N::EXPECTED)?);
            Ok(String::new())
        })
    }

    /// Handlers of a task: `scheduled`, `tickets` and `home_thread`.
    pub fn task<E: Element>(&mut self, task: usize) {
        self.read("scheduled", move |_: &E, at| at.router.tasks.is_scheduled((at.id, task)));
        self.read("tickets", move |_: &E, at| at.router.tasks.tickets((at.id, task)));
        self.write("tickets", move |_: &E, at, value| {
            let tickets: i32 = value.trim().parse().map_err(|_| "syntax error")?;
            at.router.tasks.set_tickets((at.id, task), tickets.max(1).unsigned_abs());
            Ok(String::new())
        });
        self.read("home_thread", |_: &E, at| at.router.tasks.home_of(at.id));
    }

    /// Answers calls of handlers of all other names: with the name, the value, and whether it is written.
    pub fn star<E: Element>(&mut self, call: impl Fn(&E, At<'_>, &str, &str, bool) -> Answer + 'static) {
        self.star = Some(Rc::new(move |element, at, name, value, writes| match as_type::<E>(element) {
            Some(element) => call(element, at, name, value, writes),
            None => Err("the element is of another class".into()),
        }));
    }

    /// The handler of a name that only [`star`](Self::star) answers.
    pub fn any_name(&self, name: &str) -> Option<Handler> {
        let call = self.star.as_ref()?;
        let answers = |writes| -> Call {
            let (call, name) = (Rc::clone(call), name.to_owned());
            Rc::new(move |element, at, value| call(element, at, &name, value, writes))
        };
        let mut handler = Handler::named(name);
        handler.read = Some(answers(false));
        handler.write = Some(answers(true));
        handler.read_parameter = true;
        Some(handler)
    }

    /// Declares that reading any of them has no effect and costs little.
    pub(crate) fn all_calm(&mut self) {
        self.list.iter_mut().for_each(|handler| handler.calm = true);
    }

    /// The handler of a name.
    pub fn find(&self, name: &str) -> Option<&Handler> {
        self.list.iter().find(|handler| handler.name == name)
    }

    /// All, in the order of their declaration.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Handler> {
        self.list.iter()
    }
}
