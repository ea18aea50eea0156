//! Handlers of a configuration as a whole, and those that every element has.

use std::fmt::Write as _;
use std::rc::Rc;

use crate::handler::Handlers;
use crate::handler_call::ROOT;
use crate::language::text;
use crate::router::At;

thread_local! {
    static GLOBAL: Rc<Handlers> = Rc::new(declare_global());
    static COMMON: Rc<Handlers> = Rc::new(declare_common());
}

/// Handlers of a configuration.
pub(crate) fn handlers() -> Rc<Handlers> {
    GLOBAL.with(Rc::clone)
}

/// Handlers that every element has.
pub(crate) fn common() -> Rc<Handlers> {
    COMMON.with(Rc::clone)
}

fn declare_global() -> Handlers {
    let mut handlers = Handlers::default();
    handlers.any_read("version", |_, _| Ok(env!("CARGO_PKG_VERSION").to_owned()));
    handlers.any_read("list", |at, _| {
        let mut list = format!("{}\n", at.router.len());
        for id in 0..at.router.len() {
            let _ = writeln!(list, "{}", at.router.name(id));
        }
        Ok(list)
    });
    handlers.any_read("classes", |_, _| {
        let mut names: Vec<&str> = crate::classes::all().map(|class| class.name).collect();
        names.sort_unstable();
        Ok(names.iter().map(|name| format!("{name}\n")).collect())
    });
    handlers.any_read("config", |at, _| Ok(at.router.configuration().to_click()));
    handlers.any_read("flatconfig", |at, _| Ok(at.router.configuration().to_click()));
    handlers.any_read("requirements", |at, _| {
        Ok(at.router.configuration().requirements.iter().map(|(_, name)| format!("{name}\n")).collect())
    });
    handlers.any_read("packages", |_, _| Ok(String::new()));
    handlers.any_read("handlers", |at, _| Ok(at.router.list_handlers(ROOT)));
    handlers.any_read("threads", |_, _| Ok("1".into()));
    handlers.any_write("stop", |at, value| {
        // As in Click, what is no number means once: `stop true`.
        let count: Option<i32> = text::split_words(value).first().and_then(|word| word.parse().ok());
        at.router.adjust_run_count(count.unwrap_or(1).saturating_neg());
        Ok(String::new())
    });
    handlers.any_read("timewarp", |at, _| {
        let clock = &at.router.surroundings().clock;
        Ok(if clock.is_simulated() {
            "simulation".into()
        } else if clock.jumps() {
            "nowait".into()
        } else if clock.speed() == 1.0 {
            "none".into()
        } else {
            clock.speed().to_string()
        })
    });
    handlers.any_write("timewarp", |at, value| {
        let clock = &at.router.surroundings().clock;
        match value.trim() {
            "nowait" => clock.warp(1.0, true),
            "none" => clock.warp(1.0, false),
            speed => match speed.parse::<f64>() {
                Ok(speed) if speed > 0.0 && speed.is_finite() => clock.warp(speed, false),
                _ => return Err("expected double".into()),
            },
        }
        Ok(String::new())
    });
    handlers
        .any_write("hotconfig", |at, value| {
            if !at.router.surroundings().reconfigures {
                return Err("the configuration may not be replaced: start with -R".into());
            }
            let errors = crate::language::errors::Errors::collected();
            let source =
                crate::language::config::Source { text: value, file: "hotconfig", is_expression: true };
            match crate::build::replace(&source, at.router, &errors) {
                Some(router) => {
                    at.router.replace_with(router);
                    Ok(String::new())
                }
                None => Err(errors.lines().join("\n")),
            }
        })
        .raw = true;
    handlers
}

fn declare_common() -> Handlers {
    let mut handlers = Handlers::default();
    handlers.any_read("name", |at, _| Ok(at.name().to_owned()));
    handlers.any_read("class", |at, _| Ok(at.class().to_owned()));
    handlers.any_read("config", |at, _| Ok(at.router.configuration_of(at.id)));
    handlers.any_read("ports", |at, _| Ok(ports(at)));
    handlers.any_read("handlers", |at, _| Ok(at.router.list_handlers(at.id)));
    handlers.all_calm();
    handlers
}

/// Ports of an element, their kinds and their neighbours.
fn ports(at: At<'_>) -> String {
    let mut shown = String::new();
    let kind = |push: bool| if push { "push" } else { "pull" };
    let count = |count: usize, name: &str| format!("{count} {name}{}\n", if count == 1 { "" } else { "s" });
    shown.push_str(&count(at.inputs(), "input"));
    for input in 0..at.inputs() {
        let sources: Vec<String> = at
            .router
            .sources(at.id, input)
            .iter()
            .map(|(id, port)| format!("{} [{port}]", at.router.name(*id)))
            .collect();
        let _ = writeln!(shown, "{}~\t-\t{}", kind(at.input_is_push(input)), sources.join(", "));
    }
    shown.push_str(&count(at.outputs(), "output"));
    for output in 0..at.outputs() {
        let targets: Vec<String> = at
            .router
            .targets(at.id, output)
            .iter()
            .map(|(id, port)| format!("[{port}] {}", at.router.name(*id)))
            .collect();
        let _ = writeln!(shown, "{}~\t-\t{}", kind(at.output_is_push(output)), targets.join(", "));
    }
    shown
}
