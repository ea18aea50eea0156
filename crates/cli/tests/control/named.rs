//! Files that a configuration names: their content comes back with it.

use netbricks_testkit::namespace::eventually;

use super::dataplane::{Directory, FILE, STATE};

fn lookup(directory: &Directory) -> String {
    directory.ask(&["get", "routes.lookup", "10.1.1.1"]).well()
}

/// A directory whose configuration names a file with this route.
fn with_routes(test: &str, route: &str) -> Directory {
    let directory = Directory::new(test);
    directory.write("edge.toml", &FILE.replace("routes = [\"0.0.0.0/0 1\"]", "table = \"routes.txt\""));
    directory.write("routes.txt", route);
    directory
}

#[test]
fn a_rollback_and_a_start_bring_back_the_content_of_named_files() {
    let directory = with_routes("named", "0.0.0.0/0 1\n");
    let mut run = directory.run(&["edge.toml", "--state", STATE]);
    assert_eq!(lookup(&directory), "1\n");
    directory.write("routes.txt", "0.0.0.0/0 2\n");
    directory.ask(&["apply", "edge.toml", "--confirm", "5s"]).well();
    assert_eq!(lookup(&directory), "2\n");
    eventually("the rollback", || directory.json(&["status"])["configuration"] == 3);
    assert_eq!(lookup(&directory), "1\n");
    // Within the time to confirm, a start goes back, too.
    directory.ask(&["apply", "edge.toml", "--confirm", "1h"]).well();
    assert_eq!(lookup(&directory), "2\n");
    run.kill();
    let mut run = directory.run(&["--state", STATE]);
    assert_eq!(lookup(&directory), "1\n");
    run.kill();
    std::fs::remove_file(directory.path().join("routes.txt")).expect("it is there");
    let mut run = directory.run(&["--state", STATE]);
    assert_eq!(lookup(&directory), "1\n");
    assert_eq!(directory.json(&["status"])["configuration"], 3);
    run.kill();
    // The same file with other routes is another configuration.
    directory.write("routes.txt", "0.0.0.0/0 3\n");
    let _run = directory.run(&["edge.toml", "--state", STATE]);
    assert_eq!(lookup(&directory), "3\n");
    assert_eq!(directory.json(&["status"])["configuration"], 5);
}
