//! The director over a dataplane without packets.

use super::*;
use crate::api::{Count, HandlerAnswer};

/// A dataplane that does what it is told at once.
struct Plane {
    source: Source,
    /// When the last change was done.
    done: Option<Instant>,
}

fn file(text: &str) -> Source {
    Source { text: text.into(), name: "test.toml".into(), directory: "/".into() }
}

impl Plane {
    fn new() -> Self {
        Self { source: file("one"), done: None }
    }
}

impl Dataplane for Plane {
    fn status(&self) -> Status {
        Status {
            version: String::new(),
            pid: 0,
            file: String::new(),
            graph: String::new(),
            state: RunState::Running,
            uptime_seconds: 0.0,
            generation: 0,
            configuration: 0,
            confirmed: true,
            confirm_within_seconds: None,
            journal: 0,
            workers: 1,
            received: Count::default(),
            sent: Count::default(),
            created: 0,
            dropped: 0,
            consumed: 0,
            held: 0,
        }
    }
    fn state(&self) -> RunState {
        RunState::Running
    }
    fn stats(&mut self, answer: Answer<Stats>) {
        answer(Ok(Stats::default()));
    }
    fn graph(&self) -> Graph {
        Graph { name: String::new(), nodes: Vec::new(), edges: Vec::new() }
    }
    fn ports(&self) -> Vec<Port> {
        Vec::new()
    }
    fn functions(&self) -> Vec<Function> {
        Vec::new()
    }
    fn call(&mut self, call: Call, answer: Answer<Answers>) {
        let one = HandlerAnswer { worker: None, node: call.function.clone(), value: call.argument };
        answer(Ok(Answers { function: call.function, handler: call.handler, answers: vec![one] }));
    }
    fn plan(&mut self, _: &Source) -> Result<Plan, Problem> {
        Ok(Plan::default())
    }
    fn apply(&mut self, source: &Source) -> Result<Applied, Problem> {
        self.source = source.clone();
        self.done = Some(Instant::now());
        Ok(Applied::default())
    }
    fn source(&self) -> Source {
        self.source.clone()
    }
    fn stop(&mut self) {}
    fn suspend(&mut self) -> Result<(), Problem> {
        Ok(())
    }
    fn resume(&mut self) -> Result<(), Problem> {
        Ok(())
    }
    fn observe(&mut self, _: &ObserveRequest) -> Result<Observing, Problem> {
        Err(Problem::new(Code::BadRequest, "no packets"))
    }
}

fn records() -> Records {
    Records::new(file("one"), 1, Events::new(), None).unwrap()
}

#[test]
fn the_time_to_confirm_begins_when_the_change_is_done() {
    let (mut plane, mut records) = (Plane::new(), records());
    let options = ApplyOptions { confirm: Some(60.0), ..ApplyOptions::default() };
    Director::new(&mut plane, &mut records).apply(file("two"), options, None, 2).unwrap();
    let (until, done) = (records.deadline().unwrap(), plane.done.unwrap());
    assert!(until >= done + Duration::from_secs(60));
}
