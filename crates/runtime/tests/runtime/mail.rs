//! A burst of commands leaves packets their turns.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use netbricks_core::Node;
use netbricks_runtime::{Factory, FactoryError, HandlerCall, IdlePolicy, Runtime, WorkerContext};

use crate::nodes::{Counting, Sink, Source, chain, config, pool};

const CALLS: usize = 500;
/// The most commands that a worker runs before packets have another turn.
const MOST: usize = 32;

#[test]
fn packets_have_turns_between_the_commands_of_a_burst() {
    let factory = || {
        Factory::new(|context: &WorkerContext| -> Result<_, FactoryError> {
            let nodes: Vec<(&str, Box<dyn Node>)> = vec![
                ("in", Box::new(Source::new(u64::MAX))),
                ("count", Box::new(Counting::new())),
                ("out", Box::new(Sink)),
            ];
            Ok(chain("a", nodes)?.build(context.pool().clone())?)
        })
    };
    let runtime = Runtime::start(config(pool(), 1).idle(IdlePolicy::Latency), |_| factory()).unwrap();
    let control = runtime.control();
    // The worker waits in a command, until all others wait for it.
    let ((inside, began), (release, released)) = (channel(), channel::<()>());
    control
        .post_counters(0, move |_| {
            inside.send(()).unwrap();
            released.recv().unwrap();
        })
        .unwrap();
    began.recv().unwrap();
    let deadline = Instant::now() + Duration::from_secs(3_600);
    let (answers, seen) = channel();
    for number in 0..CALLS {
        let of = |text: &str| text.to_owned();
        let call = HandlerCall { graph: of("a"), node: of("count"), handler: of("seen"), argument: of("") };
        let answers = answers.clone();
        let answer = move |packets: Result<String, _>| answers.send((number, packets.unwrap())).unwrap();
        control.post_call(0, call, deadline, answer).unwrap();
    }
    release.send(()).unwrap();
    let mut by_packets: BTreeMap<u64, usize> = BTreeMap::new();
    for number in 0..CALLS {
        let (next, packets) = seen.recv().unwrap();
        assert_eq!(next, number, "commands keep their order");
        *by_packets.entry(packets.parse().unwrap()).or_default() += 1;
    }
    let most = by_packets.values().copied().max().unwrap();
    assert!(most <= MOST, "{most} commands in a row, without a packet between them");
    assert!(runtime.stop().conserved);
}
