//! `HandlerAggregate`: one handler for those of several elements.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::{Answer, Handlers};
use crate::language::errors::Errors;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] =
    &[Class::new("HandlerAggregate", handler_aggregate).ports("0/0").processing("a/a").flow("x/y")];

/// `HandlerAggregate(ELEMENT a, ELEMENT b, ...)`: reading a handler of any name yields the sum of that of all elements.
///
/// Where the name has `avg` in it, it is their mean. A write goes to all elements, in their order, up to the first that
/// refuses it. The class is FastClick's.
struct HandlerAggregate {
    names: Vec<String>,
    elements: OnceCell<Vec<usize>>,
}

fn handler_aggregate(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let all = arguments.rest();
    let name = |argument: &String| match argument.split_once(char::is_whitespace) {
        Some(("ELEMENT", name)) => name.trim().to_owned(),
        _ => argument.trim().to_owned(),
    };
    let names: Vec<String> = all.iter().map(name).collect();
    if names.is_empty() {
        arguments.error("ELEMENT: required argument missing");
        return None;
    }
    arguments.complete()?;
    Some(Rc::new(HandlerAggregate { names, elements: OnceCell::new() }))
}

/// A number as text, without a point where it is whole.
fn shown(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 9e15 { format!("{number:.0}") } else { number.to_string() }
}

impl HandlerAggregate {
    fn read(&self, at: At<'_>, elements: &[usize], name: &str, parameter: &str) -> Answer {
        let mut whole = Some(0_i128);
        let mut sum = 0.0;
        for element in elements {
            let value = at.router.read_handler(*element, name, parameter)?;
            let value = value.trim();
            let wrong =
                || format!("{}.{name}: expected a number, found `{value:.40}`", at.router.name(*element));
            whole = whole.zip(value.parse::<i64>().ok()).map(|(sum, number)| sum + i128::from(number));
            sum += value.parse::<f64>().map_err(|_| wrong())?;
        }
        Ok(match whole {
            _ if name.contains("avg") => shown(sum / elements.len() as f64),
            Some(whole) => whole.to_string(),
            None => shown(sum),
        })
    }
}

impl Element for HandlerAggregate {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        let before = errors.count();
        let find = |name: &String| {
            let found = at.router.find(name, at.id).filter(|found| *found != at.id);
            if found.is_none() {
                errors.error(&format!("ELEMENT: no other element is named '{name}'"));
            }
            found
        };
        let _ = self.elements.set(self.names.iter().filter_map(find).collect());
        errors.count() == before
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.star(|this: &Self, at, name, value, writes| {
            let elements = this.elements.get().ok_or("the configuration has not started")?;
            if !writes {
                return this.read(at, elements, name, value);
            }
            for element in elements {
                at.router.write_handler(*element, name, value)?;
            }
            Ok(String::new())
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{build, run};

    #[test]
    fn handlers_of_several_elements_are_added_up() {
        let run = run("InfiniteSource(LIMIT 7) -> a :: Counter -> Discard; InfiniteSource(LIMIT 4) -> b :: Counter -> Discard;
             all :: HandlerAggregate(ELEMENT a, ELEMENT b)
             Script(TYPE PASSIVE, export avg_x 1)");
        assert_eq!(run.errors, Vec::<String>::new());
        assert_eq!(run.read("all.count"), "11");
        assert_eq!(
            run.read("all.byte_count"),
            run.read("a.byte_count").parse::<u64>().map_or(String::new(), |bytes| {
                (bytes + run.read("b.byte_count").parse::<u64>().unwrap_or(0)).to_string()
            })
        );
        assert_eq!(run.read("all.class"), "HandlerAggregate", "its own come first");
        assert_eq!(run.write("all.reset"), "");
        assert_eq!((run.read("all.count"), run.read("a.count")), ("0".into(), "0".into()));
    }

    #[test]
    fn means_and_texts() {
        let run = run("a :: Script(TYPE PASSIVE, export avg 3, export text x, export half 0.5);
             b :: Script(TYPE PASSIVE, export avg 4, export text y, export half 2);
             all :: HandlerAggregate(ELEMENT a, ELEMENT b)");
        assert_eq!((run.read("all.avg"), run.read("all.half")), ("3.5".into(), "2.5".into()));
        assert_eq!(run.read("all.text"), "a.text: expected a number, found `x`");
    }

    #[test]
    fn elements_that_are_not_there_are_refused() {
        let run = build("x :: HandlerAggregate(ELEMENT nothing)");
        assert!(run.errors.iter().any(|line| line.contains("ELEMENT: no other element is named 'nothing'")));
        let run = build("x :: HandlerAggregate(ELEMENT x)");
        assert!(
            run.errors.iter().any(|line| line.contains("no other element is named 'x'")),
            "{:?}",
            run.errors
        );
        let run = build("x :: HandlerAggregate");
        assert!(run.errors.iter().any(|line| line.contains("ELEMENT: required argument missing")));
    }
}
