//! The rules of a function as a resource over its handlers.

use netbricks_control::Tokens;
use netbricks_control::server::Limits;

use crate::plane::Running;
use crate::{ask, exchange, request};

const RULES: &str = "/v1/functions/edge/rules";
const TEXT: [(&str, &str); 1] = [("content-type", "text/plain")];

#[test]
fn rules_are_listed_changed_replaced_and_deleted() {
    let running = Running::new("rules");
    let socket = running.socket();
    let reply = ask(socket, "POST", RULES, &TEXT, b"add tcp-dport 23 drop\nadd all accept");
    assert_eq!((reply.status, reply.json()["answer"].as_str()), (200, Some("2 rules\n")), "{reply:?}");
    let reply = ask(socket, "POST", RULES, &[], br#"{"value": "add udp-dport 53 accept"}"#);
    assert_eq!((reply.status, reply.json()["answer"].as_str()), (200, Some("3 rules\n")), "{reply:?}");
    let reply = ask(socket, "GET", RULES, &[], b"");
    let rules = reply.json();
    assert_eq!((reply.status, reply.header("etag")), (200, Some("\"3\"")), "two writes: {reply:?}");
    assert_eq!(
        (&rules["mode"], &rules["rules"][0]["rule"]),
        (&"ordered".into(), &"add tcp-dport 23 drop".into())
    );
    assert_eq!((&rules["rules"][2]["number"], &rules["rules"][2]["packets"]), (&3.into(), &7.into()));
    let reply = ask(socket, "PUT", RULES, &TEXT, b"add all drop");
    assert_eq!((reply.status, reply.json()["answer"].as_str()), (200, Some("1 rules\n")), "{reply:?}");
    let reply = ask(socket, "GET", RULES, &[("accept", "text/plain")], b"");
    assert_eq!((reply.status, &*reply.body), (200, "add all drop"));
    // The function makes a deletion of it.
    let reply = ask(socket, "DELETE", &format!("{RULES}/telnet"), &[], b"");
    assert_eq!(reply.status, 200, "{reply:?}");
    let reply = ask(socket, "GET", RULES, &[("accept", "text/plain")], b"");
    assert_eq!(&*reply.body, "add all drop\ndelete telnet");
    let written = running.written.lock().expect("no panic");
    let handlers: Vec<&str> = written.iter().map(|write| &*write.handler).collect();
    assert_eq!(handlers, ["run", "run", "replace", "run"]);
}

#[test]
fn changes_are_tried_without_being_made() {
    let running = Running::new("rules-dry");
    let socket = running.socket();
    for (method, path, expected) in [
        ("POST", RULES.to_owned(), "check: add all drop"),
        ("PUT", RULES.to_owned(), "check-replace: add all drop"),
        ("DELETE", format!("{RULES}/3"), "check: delete 3"),
    ] {
        let body: &[u8] = if method == "DELETE" { b"" } else { b"add all drop" };
        let reply = ask(socket, method, &format!("{path}?dry-run"), &TEXT, body);
        assert_eq!((reply.status, reply.json()["answer"].as_str()), (200, Some(expected)), "{reply:?}");
    }
    assert_eq!(ask(socket, "POST", &format!("{RULES}?dry-run"), &TEXT, b"wrong").status, 400);
    let reply = ask(socket, "GET", RULES, &[], b"");
    assert_eq!(
        (reply.header("etag"), reply.json()["rules"].as_array().map(Vec::len)),
        (Some("\"1\""), Some(0))
    );
    assert!(running.written.lock().expect("no panic").is_empty());
}

#[test]
fn a_change_of_rules_that_others_changed_meanwhile_is_refused() {
    let running = Running::new("rules-stale");
    let socket = running.socket();
    let first = [TEXT[0], ("if-match", "\"1\"")];
    assert_eq!(ask(socket, "POST", RULES, &first, b"add all drop").status, 200);
    for (method, path) in
        [("POST", RULES.to_owned()), ("PUT", RULES.to_owned()), ("DELETE", format!("{RULES}/1"))]
    {
        for dry_run in ["", "?dry-run"] {
            let reply = ask(socket, method, &format!("{path}{dry_run}"), &first, b"add all drop");
            assert_eq!(reply.status, 412, "{method} {reply:?}");
        }
    }
    let second = [TEXT[0], ("if-match", "\"2\"")];
    assert_eq!(ask(socket, "PUT", RULES, &second, b"add all accept").status, 200);
}

#[test]
fn packets_are_explained_and_expectations_tested() {
    let running = Running::new("rules-ask");
    let socket = running.socket();
    let answer = |path: &str| {
        let reply = ask(socket, "GET", &format!("{RULES}/{path}"), &[], b"");
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["answer"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(answer("explain?packet=tcp-dport%2023"), "ask: explain tcp-dport 23");
    assert_eq!(
        answer("test?expect=tcp-dport%2023%20drop%0A%0Audp-dport+53+accept"),
        "ask: expect tcp-dport 23 drop\n\nexpect udp-dport 53 accept\n"
    );
}

#[test]
fn wrong_requests_are_told_apart() {
    let running = Running::new("rules-wrong");
    let socket = running.socket();
    for (method, path, headers, body, status, part) in [
        ("GET", "/v1/functions/routes/rules", &[][..], "", 404, "has no rules"),
        ("POST", "/v1/functions/routes/rules", &TEXT[..], "add all drop", 404, "has no rules"),
        ("GET", "/v1/functions/egde/rules", &[], "", 404, "edge"),
        ("POST", RULES, &TEXT, "wrong", 400, "line 1: wrong"),
        ("POST", RULES, &[], "add all drop", 400, ""),
        ("DELETE", "/v1/functions/edge/rules/1%0Aflush", &[], "", 400, "neither the number nor the name"),
        ("DELETE", "/v1/functions/edge/rules/=%20all", &[], "", 400, "neither the number nor the name"),
        ("GET", "/v1/functions/edge/rules/explain", &[], "", 400, "packet"),
        ("GET", "/v1/functions/edge/rules/explain?packet=a%0Aflush", &[], "", 400, "no line"),
        ("DELETE", RULES, &[], "", 405, "does not take DELETE"),
    ] {
        let reply = ask(socket, method, path, headers, body.as_bytes());
        assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        assert!(reply.body.contains(part), "{method} {path}: {reply:?}");
    }
    assert!(running.written.lock().expect("no panic").is_empty());
}

#[test]
fn who_may_only_read_asks_about_rules_and_changes_none() {
    let read = "read-0123456789abcdef";
    let tokens =
        Tokens { read_only: Some(read.into()), admin: Some("admin-0123456789abcdef".into()), open: false };
    let running = Running::with("rules-read", Limits::default(), Some(tokens));
    let bearer = format!("Bearer {read}");
    let status = |method: &str, path: &str| {
        let stream = std::net::TcpStream::connect(running.tcp()).expect("it listens");
        exchange(stream, &request(method, path, &[TEXT[0], ("authorization", &bearer)], b"")).status
    };
    let explain = format!("{RULES}/explain?packet=all");
    assert_eq!([status("GET", RULES), status("GET", &explain)], [200, 200]);
    let one = format!("{RULES}/1");
    for (method, path) in [("POST", RULES), ("PUT", RULES), ("DELETE", &*one)] {
        assert_eq!(status(method, path), 403, "{method} {path}");
        assert_eq!(status(method, &format!("{path}?dry-run")), 403, "{method} {path}");
    }
}
