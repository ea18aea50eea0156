//! `Message` and `Error`: what a configuration says of itself, and a configuration that must not run.

use std::rc::Rc;

use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::language::errors::Errors;
use crate::router::{At, Setup};
use crate::value::Word;

pub(super) const CLASSES: &[Class] = &[
    Class::new("Message", message).ports("0/0").processing("a/a").flow("x/y"),
    Class::new("Error", error).ports("-/-").processing("a/a").flow("x/x"),
];

/// `Message(TEXT, [MESSAGE | WARNING | ERROR])`: says a text when the configuration is read.
struct Message;

fn message(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let text: Option<String> = arguments.required("MESSAGE");
    let kind: Option<Word> = arguments.positional("TYPE");
    arguments.complete()?;
    let text = text?;
    match kind.as_ref().map_or("MESSAGE", |word| &word.0) {
        "MESSAGE" => setup.errors.message(&text),
        "WARNING" => setup.errors.warning(&text),
        "ERROR" => setup.errors.error(&text),
        _ => setup.errors.error("unrecognized message type"),
    }
    Some(Rc::new(Message))
}

impl Element for Message {}

/// `Error`: cannot be initialised, so that a configuration with it does not run.
struct Error;

fn error(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.rest();
    Some(Rc::new(Error))
}

impl Element for Error {
    fn initialize(&self, _: At<'_>, _: &Errors) -> bool {
        false
    }
}
