//! From a configuration's text to one that runs.

use std::path::Path;
use std::rc::Rc;

use netbricks_core::read_text;

use crate::classes::{self, Known};
use crate::element::Class;
use crate::language::config::{self, Configuration, Source};
use crate::language::errors::Errors;
use crate::language::ports::{self, Processing, Shape};
use crate::node::LARGEST;
use crate::router::{Ports, Router, Surroundings};

/// Names of elements that the program adds to a configuration begin so.
pub(crate) const PROGRAM: &str = "click_driver@@";

/// Reads a configuration, and makes and starts its elements. `None` after errors were told.
pub fn build(
    source: &Source<'_>,
    parameters: &[(String, String)],
    surroundings: Surroundings,
    errors: &Errors,
) -> Option<Rc<Router>> {
    start(read(source, parameters, &surroundings, errors)?, surroundings, errors)
}

fn read(
    source: &Source<'_>,
    parameters: &[(String, String)],
    surroundings: &Surroundings,
    errors: &Errors,
) -> Option<Configuration> {
    let before = errors.count();
    let files = surroundings.capabilities.files;
    let library = |name: &str| if files { read_text(Path::new(name), LARGEST).ok() } else { None };
    let most = surroundings.most_text;
    let configuration = config::parse_within(source, parameters, &Known, &library, most, errors);
    (errors.count() == before).then_some(configuration)
}

/// The text of a configuration without variables and compound elements, whose ports are right.
///
/// `None` after errors were told. To build that text takes no more than its length says.
pub(crate) fn flattened(
    source: &Source<'_>,
    parameters: &[(String, String)],
    surroundings: &Surroundings,
    errors: &Errors,
) -> Option<String> {
    let configuration = read(source, parameters, surroundings, errors)?;
    let text = configuration.to_expanded_text();
    assemble(configuration, surroundings.clone(), errors)?;
    Some(text)
}

/// The same for a configuration that is to replace one that runs. `None` after errors were told.
///
/// Elements that belong to the program, not to the configuration's text, go over: control sockets of its options.
pub fn replace(source: &Source<'_>, before: &Router, errors: &Errors) -> Option<Rc<Router>> {
    let surroundings = before.surroundings().clone();
    let mut configuration = read(source, &[], &surroundings, errors)?;
    let running = before.configuration();
    for declaration in &running.elements {
        let of_program = declaration.name.starts_with(PROGRAM);
        if of_program && !configuration.elements.iter().any(|other| other.name == declaration.name) {
            configuration.elements.push(declaration.clone());
        }
    }
    let router = assemble(configuration, surroundings, errors)?;
    router.set_predecessor(&running);
    router.start(errors).then_some(router)
}

/// Makes and starts the elements of a configuration. `None` after errors were told.
pub fn start(
    configuration: Configuration,
    surroundings: Surroundings,
    errors: &Errors,
) -> Option<Rc<Router>> {
    let router = assemble(configuration, surroundings, errors)?;
    router.start(errors).then_some(router)
}

/// Makes and configures the elements of a configuration, without an effect outside of it.
///
/// `None` after errors were told.
pub(crate) fn configured(
    configuration: Configuration,
    surroundings: Surroundings,
    errors: &Errors,
) -> Option<Rc<Router>> {
    let router = assemble(configuration, surroundings, errors)?;
    router.configure(errors).then_some(router)
}

/// Whether a name that a configuration requires is that of an element, or of something that this program has.
pub(crate) fn provides(name: &str) -> bool {
    matches!(name, "userlevel" | "umultithread" | "ip6" | "ipsec" | "int64" | "analysis")
        || classes::find(name).is_some()
}

/// Says why a required package is not there.
fn why_missing(name: &str) -> &'static str {
    match name {
        "linuxmodule" | "bsdmodule" => {
            "  it is Click in the kernel: configurations run in this process, which has no kernel module"
        }
        "ns" => "  it is Click in the simulator ns-2: `--simtime` simulates time here",
        _ => "  packages of elements written in C++ are not loaded: all elements are part of this program",
    }
}

fn assemble(configuration: Configuration, surroundings: Surroundings, errors: &Errors) -> Option<Rc<Router>> {
    let before = errors.count();
    if configuration.elements.len() > surroundings.most_elements {
        let (count, most) = (configuration.elements.len(), surroundings.most_elements);
        errors.error(&format!("the configuration has {count} elements: there can be {most}"));
        return None;
    }
    for (kind, name) in &configuration.requirements {
        if kind == "package" && !provides(name) {
            errors.error(&format!("requirement '{name}' not available"));
            errors.message(why_missing(name));
        }
    }
    let mut known: Vec<&'static Class> = Vec::with_capacity(configuration.elements.len());
    for declaration in &configuration.elements {
        match classes::find(&declaration.class) {
            Some(class) => known.push(class),
            None => {
                errors.error_at(
                    &declaration.landmark,
                    &format!("unknown element class '{}'", declaration.class),
                );
            }
        }
    }
    if errors.count() > before {
        return None;
    }
    let shape = |id: usize| {
        let class = known[id];
        Shape { ports: class.ports, processing: class.processing, flow: class.flow }
    };
    let resolved = ports::check_ports(&configuration, &shape, errors);
    if errors.count() > before {
        errors.error("Router could not be initialized!");
        return None;
    }
    let is_push = |kinds: &Vec<Processing>| kinds.iter().map(|kind| *kind == Processing::Push).collect();
    let ports = resolved
        .inputs
        .iter()
        .zip(&resolved.outputs)
        .map(|(inputs, outputs)| Ports { input_push: is_push(inputs), output_push: is_push(outputs) })
        .collect();
    Some(Rc::new(Router::assemble(configuration, known, ports, surroundings)))
}

#[cfg(test)]
mod tests {
    use crate::testing::build;

    #[test]
    fn packages_that_are_not_there_are_refused_with_the_reason() {
        for (requirement, name, reason) in [
            ("require(package \"foo\");", "foo", "packages of elements written in C++ are not loaded"),
            ("require(linuxmodule);", "linuxmodule", "it is Click in the kernel"),
            ("require(compact_config, foo);", "foo", "packages of elements written in C++ are not loaded"),
        ] {
            let run = build(&format!("{requirement} Idle -> Discard"));
            assert!(run.router.is_none(), "{requirement}");
            assert_eq!(run.errors.first(), Some(&format!("requirement '{name}' not available")));
            assert!(run.errors.get(1).is_some_and(|line| line.contains(reason)), "{:?}", run.errors);
        }
        let run = build("require(compact_config, package userlevel, IPFilter, ip6); Idle -> Discard");
        assert_eq!((run.router.is_some(), run.errors), (true, Vec::new()));
    }
}
