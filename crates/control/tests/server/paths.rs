//! Every path, asked as it should be, and by those who mistype.

use netbricks_control::api::{ApplyOptions, ChangeOptions, Code, ConfigurationState, RunState};

use crate::ask;
use crate::plane::{Running, file};

#[test]
fn what_runs_can_be_read() {
    let running = Running::new("read");
    let client = running.client();
    let status = client.status().expect("status");
    assert_eq!((status.pid, status.generation, status.workers), (std::process::id(), 1, 2));
    assert_eq!(client.stats().expect("stats").ports[0].port, "lan");
    assert_eq!(client.graph().expect("graph").nodes[0].name, "in");
    assert_eq!(client.ports().expect("ports")[0].driver, "memory");
    assert_eq!(client.functions().expect("functions").len(), 3);
    assert_eq!(client.function("routes").expect("it is there").handlers.len(), 4);
    let handlers: Vec<netbricks_control::api::Handler> =
        client.get("functions/routes/handlers").expect("handlers");
    assert_eq!(handlers[1].name, "add");
    assert_eq!(client.config().expect("config").text, "# one\n");
    assert_eq!(client.configuration(1), client.config());
    assert_eq!(client.history().expect("history").len(), 1);
    assert_eq!(client.events_so_far(0).expect("events"), []);
    let text = ask(running.socket(), "GET", "/v1/config", &[("accept", "application/toml")], b"");
    assert_eq!((text.status, &*text.body), (200, "# one\n"));
}

#[test]
fn answers_that_change_with_the_generation_carry_it() {
    let running = Running::new("tags");
    for path in
        ["status", "stats", "graph", "ports", "functions", "functions/routes", "config", "history", "metrics"]
    {
        let reply = ask(running.socket(), "GET", &format!("/v1/{path}"), &[], b"");
        assert_eq!((reply.status, reply.header("etag")), (200, Some("\"1\"")), "{path}: {reply:?}");
        assert_eq!(reply.header("cache-control"), Some("no-store"));
    }
}

#[test]
fn handlers_are_read_and_written_and_writes_are_in_the_journal() {
    let running = Running::new("handlers");
    let client = running.client();
    let answers = client.write("routes", "add", "10.0.0.0/8", Some(1)).expect("it is written");
    assert_eq!((answers.answers[0].worker, &*answers.answers[0].value), (Some(1), "10"));
    assert_eq!(
        client.read("routes", "table", "?&=", None).expect("it is read").answers[0].value,
        "10.0.0.0/8?&="
    );
    // A value of a megabyte and more goes as plain text.
    let long = "ü".repeat(1 << 20);
    assert_eq!(
        client.write("routes", "add", &long, None).expect("it is written").answers[0].value,
        "2097152"
    );
    assert_eq!(client.status().expect("status").journal, 2);
    assert_eq!(client.status().expect("status").generation, 3);
    let written = running.written.lock().expect("no panic")[0].clone();
    assert_eq!((&*written.function, &*written.handler, written.worker), ("routes", "add", Some(1)));
    // What a handler refuses is in no journal.
    let refused = client.write("routes", "add", "bad", None).expect_err("refused");
    assert_eq!((refused.code, &*refused.detail), (Code::BadRequest, "`bad` is no route"));
    assert_eq!(client.status().expect("status").journal, 2);
}

#[test]
fn names_that_are_not_there_get_the_nearest() {
    let running = Running::new("nearest");
    let client = running.client();
    let help = |problem: netbricks_control::api::Problem| (problem.code, problem.help.unwrap_or_default());
    let near = |name: &str| (Code::NotFound, format!("did you mean `{name}`?"));
    assert_eq!(help(client.function("route").expect_err("none")), near("routes"));
    assert_eq!(help(client.read("routs", "table", "", None).expect_err("none")), near("routes"));
    assert_eq!(help(client.read("routes", "tabel", "", None).expect_err("none")), near("table"));
    assert_eq!(help(client.write("routes", "ad", "", None).expect_err("none")), near("add"));
    assert_eq!(help(client.get::<()>("statu").expect_err("none")), near("status"));
    // A name may hold anything.
    assert_eq!(
        client.function("a/b c?#ü%2e").expect_err("none").detail,
        "there is no function `a/b c?#ü%2e`"
    );
}

#[test]
fn handlers_of_the_other_kind_and_workers_out_of_range_are_refused() {
    let running = Running::new("kinds");
    let client = running.client();
    let problem = client.write("routes", "table", "x", None).expect_err("it is read");
    assert_eq!(
        (problem.code, problem.help.as_deref()),
        (Code::WrongKind, Some("it is called by `get` (GET)"))
    );
    let problem = client.read("routes", "add", "x", None).expect_err("it is written");
    assert_eq!(
        (problem.code, problem.help.as_deref()),
        (Code::WrongKind, Some("it is called by `set` (PUT)"))
    );
    let reply = ask(running.socket(), "PUT", "/v1/functions/routes/handlers/table", &[], b"");
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET,HEAD")));
    let reply = ask(running.socket(), "GET", "/v1/functions/routes/handlers/add", &[], b"");
    assert_eq!((reply.status, reply.header("allow")), (405, Some("PUT")));
    let problem = client.read("routes", "table", "", Some(2)).expect_err("there are two");
    assert_eq!(problem.detail, "there is no worker 2: there are 2, from 0");
    for wrong in ["deadline=0", "deadline=61", "deadline=NaN", "deadline=x", "worker=-1", "wroker=1"] {
        let path = format!("/v1/functions/routes/handlers/table?{wrong}");
        let reply = ask(running.socket(), "GET", &path, &[], b"");
        assert_eq!((reply.status, &reply.json()["code"]), (400, &"bad-request".into()), "{wrong}");
    }
}

#[test]
fn a_handler_that_does_not_answer_holds_up_nobody() {
    let running = Running::new("stuck");
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| {
            ask(running.socket(), "GET", "/v1/functions/routes/handlers/stuck?deadline=0.001", &[], b"")
        });
        for _ in 0..10 {
            assert!(running.client().status().is_ok());
        }
        assert_eq!(stuck.join().expect("no panic").status, 504);
    });
}

#[test]
fn files_are_planned_applied_confirmed_and_rolled_back() {
    let running = Running::new("apply");
    let client = running.client();
    let plan = client.plan(&file("# two\n")).expect("a plan");
    assert_eq!((plan.generation, plan.changes.len()), (1, 1));
    let dry = ApplyOptions { dry_run: true, ..ApplyOptions::default() };
    assert_eq!(client.apply(&file("# two\n"), &dry, None).expect("dry").configuration, 1);
    assert_eq!(client.config().expect("config").text, "# one\n");

    let options =
        ApplyOptions { confirm: Some(600.0), note: Some("a & b".into()), ..ApplyOptions::default() };
    let applied = client.apply(&file("# two\n"), &options, Some(1)).expect("it runs");
    assert_eq!((applied.configuration, applied.generation), (2, 2));
    assert_eq!(client.history().expect("history")[0].note, "a & b");
    let dry = ask(running.socket(), "POST", "/v1/confirm?dry-run", &[], b"");
    assert_eq!((dry.status, &dry.json()["confirmed"]), (200, &false.into()));
    assert!(client.confirm().expect("it waits").confirmed);
    assert_eq!(client.confirm().expect_err("nothing waits").code, Code::Conflict);

    let dry = ask(running.socket(), "POST", "/v1/rollback?dry-run=true", &[], b"");
    assert_eq!((dry.status, &dry.json()["configuration"]), (200, &1.into()));
    assert_eq!(client.config().expect("config").text, "# two\n");
    assert_eq!(client.rollback(None).expect("there is one").configuration, 3);
    assert_eq!(client.config().expect("config").text, "# one\n");
    let history = client.history().expect("history");
    assert_eq!((history[0].running, history[1].state), (true, ConfigurationState::RolledBack));
    let problem = client.rollback(Some(7)).expect_err("there is none");
    assert_eq!((problem.code, problem.help.as_deref()), (Code::NotFound, Some("the history has 1 to 3")));
    assert_eq!(client.configuration(7).expect_err("there is none").code, Code::NotFound);

    assert_eq!(
        client.apply(&file("fault"), &ApplyOptions::default(), None).expect_err("fault").code,
        Code::Faulty
    );
    let wrong = ApplyOptions { confirm: Some(0.5), ..ApplyOptions::default() };
    assert!(
        client
            .apply(&file(""), &wrong, None)
            .expect_err("too short")
            .detail
            .contains("expected 1 s to 1 day")
    );
}

#[test]
fn files_may_be_sent_as_text() {
    let running = Running::new("text");
    let toml = [("content-type", "application/toml")];
    let reply = ask(running.socket(), "POST", "/v1/apply?name=a.toml&directory=/etc", &toml, b"# text\n");
    assert_eq!((reply.status, reply.header("etag")), (200, Some("\"2\"")), "{reply:?}");
    let source = running.client().config().expect("config");
    assert_eq!((&*source.text, &*source.name, &*source.directory), ("# text\n", "a.toml", "/etc"));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let reply = ask(running.socket(), "POST", "/v1/plan", &form, b"x");
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("application/x-www-form-urlencoded"), "{}", reply.body);
    let reply = ask(running.socket(), "POST", "/v1/plan?directory=etc", &toml, b"x");
    assert!(reply.body.contains("expected an absolute path"), "{}", reply.body);
    assert_eq!(ask(running.socket(), "POST", "/v1/plan", &toml, b"\xff").status, 400);
}

#[test]
fn of_two_writers_at_once_one_is_first_and_the_other_is_told() {
    let running = Running::new("writers");
    let results: Vec<_> = std::thread::scope(|scope| {
        let write = |text: &'static str| {
            let running = &running;
            scope.spawn(move || running.client().apply(&file(text), &ApplyOptions::default(), Some(1)))
        };
        [write("# a\n"), write("# b\n")].into_iter().map(|writer| writer.join().expect("no panic")).collect()
    });
    let stale: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(stale.len(), 1);
    assert_eq!(stale[0].code, Code::Stale);
    assert_eq!(running.client().status().expect("status").generation, 2);
}

#[test]
fn every_change_is_bound_to_a_generation_and_can_be_tried() {
    let running = Running::new("matches");
    let put = "/v1/functions/routes/handlers/add";
    for (method, path) in [
        ("POST", "/v1/apply"),
        ("POST", "/v1/confirm"),
        ("POST", "/v1/rollback"),
        ("POST", "/v1/stop"),
        ("POST", "/v1/suspend"),
        ("POST", "/v1/resume"),
        ("PUT", put),
    ] {
        let body: &[u8] = if path == "/v1/apply" { br#"{"text":"","name":"","directory":"/"}"# } else { b"" };
        let stale = ask(running.socket(), method, path, &[("if-match", "\"9\"")], body);
        assert_eq!((stale.status, &stale.json()["code"]), (412, &"stale".into()), "{path}");
        let wrong = ask(running.socket(), method, path, &[("if-match", "\"x\"")], body);
        assert_eq!(wrong.status, 400, "{path}");
        let dry = ask(running.socket(), method, &format!("{path}?dry-run"), &[("if-match", "\"1\"")], body);
        assert!([200, 409].contains(&dry.status), "{path}: {dry:?}");
    }
    let status = running.client().status().expect("status");
    assert_eq!((status.generation, status.journal, status.state), (1, 0, RunState::Running));
}

#[test]
fn a_run_is_suspended_resumed_and_stopped() {
    let running = Running::new("run");
    let client = running.client();
    let checked = client.with_conditions(ChangeOptions { dry_run: true, generation: Some(1) });
    assert_eq!(checked.suspend().expect("it could be").state, RunState::Running);
    assert!(checked.write("routes", "add", "10.0.0.0/8", None).expect("it could be").answers.is_empty());
    let late = client.with_conditions(ChangeOptions { dry_run: false, generation: Some(7) });
    assert_eq!(late.suspend().expect_err("another generation").code, Code::Stale);
    assert_eq!(late.write("routes", "add", "x", None).expect_err("another generation").code, Code::Stale);
    assert_eq!(client.status().expect("status").state, RunState::Running);
    assert_eq!(client.suspend().expect("suspended").state, RunState::Suspended);
    assert_eq!(client.resume().expect("resumed").state, RunState::Running);
    assert_eq!(client.stop().expect("stopping").state, RunState::Stopping);
    // The director has gone; the listener says so.
    while client.status().is_ok() {}
    assert_eq!(client.status().expect_err("ending").code, Code::Ending);
}

#[test]
fn methods_that_a_path_does_not_take_are_refused() {
    let running = Running::new("methods");
    let reply = ask(running.socket(), "POST", "/v1/status", &[], b"");
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET,HEAD")));
    assert_eq!(reply.json()["title"], "Method Not Allowed");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(ask(running.socket(), "HEAD", "/v1/status", &[], b"").status, 200);
    assert_eq!(ask(running.socket(), "GET", "/", &[], b"").status, 404);
}

#[test]
fn metrics_come_in_two_forms() {
    let running = Running::new("metrics");
    let reply = ask(running.socket(), "GET", "/metrics", &[], b"");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let dropped = r#"netbricks_node_dropped_packets_total{node="a \"quoted\" node\\",reason="no-route"} 1"#;
    assert!(reply.body.lines().any(|line| line == dropped), "{}", reply.body);
    let own = r#"netbricks_routes{function="routes",table="main"} 7"#;
    assert!(reply.body.lines().any(|line| line == own), "{}", reply.body);
    let open = [("accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    let reply = ask(running.socket(), "GET", "/v1/metrics", &open, b"");
    assert!(
        reply.body.ends_with("# EOF\n") && reply.body.contains("# UNIT netbricks_uptime_seconds seconds\n")
    );
}

#[test]
fn of_eight_writers_that_expect_the_same_generation_one_writes() {
    let running = Running::new("eight-writers");
    let path = "/v1/functions/routes/handlers/add";
    for round in 1..=20 {
        let expected = format!("\"{round}\"");
        let write =
            || ask(running.socket(), "PUT", path, &[("if-match", &expected)], br#"{"value":"a"}"#).status;
        let mut statuses: Vec<u16> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8).map(|_| scope.spawn(write)).collect();
            writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
        });
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412], "round {round}");
    }
}
