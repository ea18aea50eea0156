//! Functions that panic before anything runs: an error names the function, and the process never ends.

use netbricks_buffer::Batch;
use netbricks_core::{Context, NoSettings, Node, NodeState, Section, Shape, StateImage};
use netbricks_ports::Drivers;

use super::Application;
use super::file::{self, File};

/// Panics in the call that it is given by name.
struct Fussy(&'static str);

impl Fussy {
    fn at(&self, place: &str) {
        assert!(self.0 != place, "no {place} today");
    }
}

impl Node for Fussy {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn shape(&self) -> Shape {
        self.at("shape");
        Shape::default()
    }
    fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
        ask(self);
    }
}

impl NodeState for Fussy {
    fn export(&self) -> Vec<StateImage> {
        self.at("export");
        self.at("anything");
        Vec::new()
    }
    fn report(&self) -> Vec<Section> {
        self.at("report");
        Vec::new()
    }
    fn follows(&self, _: netbricks_core::ShuffleKey) -> Vec<String> {
        self.at("follows");
        Vec::new()
    }
}

impl Drop for Fussy {
    fn drop(&mut self) {
        self.at("drop");
        self.at("anything");
    }
}

#[test]
fn a_function_that_panics_before_the_run_is_named_and_does_not_end_the_process() {
    for (at, action) in [
        ("making", "making it"),
        ("shape", "asking what it is"),
        ("export", "asking what it is"),
        ("report", "asking what it is"),
        ("follows", "asking what it is"),
        ("drop", "dropping it"),
        // The first panic is reported; the second one, in its drop, is contained as well.
        ("anything", "asking what it is"),
    ] {
        let mut registry = crate::standard();
        registry.add("fussy", "Panics.", move |_: &NoSettings, _| {
            assert!(at != "making", "no making today");
            Ok(Box::new(Fussy(at)))
        });
        let app = Application::new(registry, Drivers::standard());
        let text = "[port.lan]\ndriver = \"generator\"\n[port.wan]\ndriver = \"null\"\n\
                    [[chain]]\nfrom = \"lan\"\nthrough = [\"ttl\", \"fussy\"]\nto = \"wan\"\n";
        let file = File {
            name: "f.toml".into(),
            text: text.into(),
            directory: std::path::PathBuf::new(),
            files: Default::default(),
        };
        let Err(faults) = file::check_spread(&app, &file) else { panic!("it is good, with `{at}`") };
        let shown = faults.diagnostics.render(&faults.source, false);
        let expected = format!("function `fussy` cannot be made: {action} panicked: no {at} today");
        assert!(shown.contains(&expected) && shown.contains("f.toml:7:19"), "{shown}");
    }
}
