//! Elements that get another configuration while they run, and handlers that are arguments of a configuration.

use crate::arguments::Arguments;
use crate::handler::{Answer, Handler, Handlers};
use crate::language::errors::Errors;
use crate::language::text;
use crate::router::{At, Router, Setup};

impl Router {
    /// Gives an element another configuration while it runs.
    ///
    /// # Errors
    /// The configuration has faults, or the element's class cannot change while it runs.
    pub fn reconfigure(&self, id: usize, configuration: &str) -> Answer {
        let Some(class) = self.class_of(id) else { return Err("no such element".into()) };
        let (at, errors) = (self.at(id), Errors::collected());
        let mut arguments = Arguments::new(configuration, at, &errors);
        let made = (class.configure)(&mut arguments, &Setup { at, errors: &errors });
        match made {
            Some(fresh) if errors.count() == 0 => {
                if !self.element(id).reconfigure(at, fresh.as_ref()) {
                    return Err(format!("cannot reconfigure {} live", at.declaration()));
                }
                self.set_configuration_of(id, configuration);
                if errors.warnings() > 0 {
                    at.chatter(&format!("While reconfiguring '{}':", at.declaration()));
                    for line in errors.lines() {
                        at.chatter(&format!("  {line}"));
                    }
                }
                Ok(String::new())
            }
            _ => Err(errors.lines().join("\n")),
        }
    }
}

/// Whether an argument has no keyword before it.
fn is_plain(argument: &str) -> bool {
    text::keyword(argument).is_none_or(|(_, value)| value.is_empty())
}

/// Where an argument stands in a configuration.
struct Setting {
    /// Its place among the arguments, if it may be given by position.
    position: Option<usize>,
    keyword: String,
}

impl Setting {
    /// The argument's text and its number among the arguments.
    fn find(&self, arguments: &[String]) -> Option<(usize, String)> {
        for (number, argument) in arguments.iter().enumerate().rev() {
            if let Some((keyword, value)) = text::keyword(argument)
                && keyword == self.keyword
                && !value.is_empty()
            {
                return Some((number, value.to_owned()));
            }
        }
        let position = self.position?;
        let argument = arguments.get(position)?;
        is_plain(argument).then(|| (position, argument.clone()))
    }

    /// The arguments as the element's `config` handler tells them.
    fn arguments(at: At<'_>) -> Vec<String> {
        let shown = at.router.read_handler(at.id, "config", "");
        text::split_arguments(&shown.unwrap_or_else(|_| at.router.configuration_of(at.id)))
    }

    fn read(&self, at: At<'_>) -> String {
        let arguments = Self::arguments(at);
        self.find(&arguments).map_or(String::new(), |(_, value)| value)
    }

    fn write(&self, at: At<'_>, value: &str) -> Answer {
        let mut arguments = Self::arguments(at);
        let by_keyword = format!("{} {value}", self.keyword);
        match self.find(&arguments) {
            Some((number, _)) if is_plain(&arguments[number]) => {
                value.clone_into(&mut arguments[number]);
            }
            Some((number, _)) => {
                arguments.remove(number);
                arguments.push(by_keyword);
            }
            None => arguments.push(by_keyword),
        }
        at.router.reconfigure(at.id, &text::join_arguments(&arguments))
    }
}

impl Handlers {
    /// Has a handler read an argument of the element's configuration, as it was written.
    pub fn argument(&mut self, name: &str, position: Option<usize>, keyword: &str) -> &mut Handler {
        let setting = Setting { position, keyword: keyword.to_owned() };
        self.any_read(name, move |at, _| Ok(setting.read(at)))
    }

    /// Has a handler change an argument of the element's configuration while the element runs.
    pub fn change_argument(&mut self, name: &str, position: Option<usize>, keyword: &str) -> &mut Handler {
        let setting = Setting { position, keyword: keyword.to_owned() };
        self.any_write(name, move |at, value| setting.write(at, value.trim()))
    }

    /// Has the handler `config` change the whole configuration while the element runs.
    pub(crate) fn change_configuration(&mut self) {
        self.any_read("config", |at, _| Ok(at.router.configuration_of(at.id))).calm = true;
        self.change_config();
    }

    /// The same, for an element that says by itself how its configuration reads.
    pub fn change_config(&mut self) -> &mut Handler {
        self.any_write("config", |at, value| at.router.reconfigure(at.id, value.trim()))
    }
}
