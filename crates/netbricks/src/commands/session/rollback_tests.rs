//! The findings of control tasks go on through a rollback, though no handler of an operator wrote them.

use std::time::{Duration, Instant};

use netbricks_control::api::Problem;
use netbricks_control::{Call, Director};

use super::tests::{Asking, chain, while_running};

/// The answer of a handler that the control side answers at once, within a task of the director.
fn at_once(director: &mut Director<'_>, function: &str, handler: &str) -> String {
    let (function, handler) = (function.to_owned(), handler.to_owned());
    let deadline = Instant::now() + Duration::from_secs(60);
    let call = Call { function, handler, argument: String::new(), write: false, worker: None, deadline };
    let (sender, answer) = std::sync::mpsc::channel();
    director.call(call, Box::new(move |answers| drop(sender.send(answers))));
    answer.try_recv().unwrap().unwrap().answers[0].value.clone()
}

/// Rolls back, and asks before any control task has done anything.
fn roll_back(asking: &Asking, function: &'static str, handler: &'static str) -> Result<String, Problem> {
    asking.ask(move |director| {
        let back = director.rollback(None)?;
        assert!(!back.plan.kept.iter().any(|kept| kept == function), "it is made again: {back:?}");
        Ok(at_once(director, function, handler))
    })
}

#[test]
fn a_server_that_is_down_stays_so_through_a_rollback_and_a_change_of_the_servers() {
    // Nothing listens there: the first check fails, and the next comes tomorrow.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
    let file = move |through: &str, more: &str| {
        let function = format!(
            "[function.lb]\nuse = \"load-balancer\"\naddresses = [\"192.0.2.80\"]\nhealth = \"tcp\"\nfall = 1\n\
             health_interval = \"1 h\"\nservers = [\"a {free} 02:00:00:00:00:01\"{more}]"
        );
        chain(&format!("{through}\"lb\""), &function)
    };
    let (first, second) = (file("", ""), file("\"ttl\", ", ""));
    let other = file("", ", \"b 192.0.2.9:1 02:00:00:00:00:02\"");
    let down = format!("a {free} 02:00:00:00:00:01 1 down\n");
    while_running(&first, move |asking| {
        let servers = || asking.call("lb", "servers", "", false).unwrap().answers[0].value.clone();
        while servers() != down {
            std::thread::yield_now();
        }
        asking.apply(&second).unwrap();
        assert_eq!(servers(), down);
        asking.write("lb", "add", "c 02:00:00:00:00:03");
        assert_eq!(roll_back(asking, "lb", "servers").unwrap(), down);
        // Other servers in the file are no reason to send packets to one that is down.
        let listed = asking.ask(move |director| {
            let (source, options) = (super::tests::source(&other), Default::default());
            director.apply(source, options, None, 0).unwrap();
            at_once(director, "lb", "servers")
        });
        assert!(listed.starts_with(&down), "{listed}");
    });
}

#[test]
fn a_router_keeps_the_routes_of_the_kernel_through_a_rollback() {
    // No one has routes in that table, so that only this test says what they are.
    let file = |through: &str| {
        let router =
            "[function.rt]\nuse = \"router\"\ninterfaces = [\"near 192.0.2.1/24\"]\nkernel = \"7391\"";
        let ports = "[port.near]\ndriver = \"memory\"\npeer = \"far\"\n[port.far]\ndriver = \"memory\"\npeer = \"near\"\n\
                     [[chain]]\nfrom = \"near\"\nthrough = [\"rt\"]\nto = \"near\"\n[[chain]]\nfrom = \"far\"\nto = \"out\"";
        chain(through, &format!("{router}\n{ports}"))
    };
    let (first, second) = (file(""), file("\"ttl\""));
    while_running(&first, move |asking| {
        let follows = |asking: &Asking| {
            let events = asking.ask(|director| director.events());
            events.since(0).iter().filter(|event| event.message.contains("follows table 7391")).count()
        };
        while follows(asking) == 0 {
            std::thread::yield_now();
        }
        // As the task writes it: it is in no journal.
        asking.call("rt", "kernel", "+ 198.51.100.0/24 via 192.0.2.9", true).unwrap();
        asking.apply(&second).unwrap();
        asking.write("rt", "add", "203.0.113.0/24 via 192.0.2.7");
        let routes = roll_back(asking, "rt", "routes").unwrap();
        assert!(routes.contains("static 0\nkernel 1"), "{routes}");
        // The task that begins finds it there, and that the kernel does not have it.
        while asking.call("rt", "routes", "", false).unwrap().answers[0].value.contains("kernel 1") {
            std::thread::yield_now();
        }
    });
}
