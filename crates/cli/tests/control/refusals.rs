//! Requests that are refused: what each error says, and its exit code.

use std::net::TcpListener;

use serde_json::Value;

use super::dataplane::{Directory, FILE, Told};

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn names_and_values_that_do_not_exist_are_told_with_the_nearest() {
    let directory = Directory::new("unknown");
    let _run = directory.run(&["edge.toml"]);
    for (line, expected) in [
        ("get balance.bakends", "did you mean `backends`?"),
        ("get balanc.backends", "did you mean `balance`?"),
        ("show functions balanc", "did you mean `balance`?"),
        ("get balance.add", "call it with `netbricks set balance.add`"),
        ("set balance.backends", "call it with `netbricks get balance.backends`"),
        ("get balance.connections --worker 7", "there is no worker 7: there are 1, from 0"),
        ("set routes.add 10.0.0.0/33 1", "10.0.0.0/33"),
        ("config --history 9", "there is no configuration 9"),
        ("confirm", "nothing waits to be confirmed"),
        ("rollback", "there is no earlier configuration"),
        ("rollback --to 9", "there is no configuration 9"),
    ] {
        let said = directory.ask(&words(line)).failed(1);
        assert!(said.starts_with("error: ") && said.contains(expected), "{line}: {said}");
        let told = directory.ask(&words(&format!("{line} --json")));
        let problem: Value = serde_json::from_str(&told.out).expect("one JSON value");
        assert!(problem["code"].is_string() && problem["detail"].is_string(), "{line}: {problem}");
    }
    // None of these was a change.
    let status = directory.json(&["status"]);
    assert_eq!((&status["generation"], &status["journal"]), (&1.into(), &0.into()), "{status}");
}

#[test]
fn a_faulty_file_changes_nothing_and_has_its_line_and_column() {
    let directory = Directory::new("faulty");
    let _run = directory.run(&["edge.toml"]);
    directory.write("faulty.toml", &FILE.replace("0.0.0.0/0 1", "0.0.0.0/0 one"));
    directory.write("unknown.toml", &FILE.replace("use = \"maglev\"", "use = \"magle\""));
    for (file, line, column, hint) in
        [("faulty.toml", 10, 11, "0.0.0.0/0 one"), ("unknown.toml", 12, 7, "maglev")]
    {
        for command in ["plan", "apply"] {
            let said = directory.ask(&[command, file]).failed(2);
            assert!(said.contains(&format!("{file}:{line}:{column}")) && said.contains(hint), "{said}");
            let told = directory.ask(&[command, file, "--json"]);
            assert_eq!(told.code, Some(2));
            let problem: Value = serde_json::from_str(&told.out).expect("one JSON value");
            let place = &problem["places"][0];
            assert_eq!((&problem["code"], &place["line"]), (&"faulty".into(), &line.into()), "{problem}");
            assert_eq!(place["column"], column, "{problem}");
        }
    }
    directory.write("restart.toml", &FILE.replace("frames = 512", "frames = 1024"));
    let said = directory.ask(&["apply", "restart.toml"]).failed(1);
    assert!(said.contains("`frames` in `[runtime]` cannot change"), "{said}");
    assert_eq!(directory.config(), FILE);
}

#[test]
fn no_command_answers_where_nothing_runs() {
    let directory = Directory::new("nobody");
    let said = directory.ask(&["status"]).failed(1);
    assert!(said.contains("there is no socket") && said.contains("netbricks run"), "{said}");
    // A run that was killed leaves its socket, on which nobody listens.
    directory.run(&["edge.toml"]).kill();
    let said = directory.ask(&["status"]).failed(1);
    assert!(said.contains("no process listens") || said.contains("refused"), "{said}");
}

#[test]
fn a_token_that_may_only_read_does_not_write() {
    let directory = Directory::new("tokens");
    let (admin, reader) = ("admin-0123456789abcdef", "reader-0123456789abcdef");
    directory.write("admin.token", &format!("{admin}\n"));
    directory.write("read.token", &format!("{reader}\n"));
    directory.write("wrong.token", "wrong-0123456789abcdef\n");
    // Free for a moment at least.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("a free port");
    let control = format!(
        "{FILE}[control]\nlisten = \"{address}\"\ntoken_file = \"admin.token\"\nread_token_file = \"read.token\"\n"
    );
    directory.write("edge.toml", &control);
    let _run = directory.run(&["edge.toml"]);
    let ask = |line: &str, token: Option<&str>| {
        let mut words = words(line);
        let url = format!("http://{address}");
        words.extend(["--socket", &url]);
        words.extend(token.iter().flat_map(|token| ["--token-file", token]));
        Told::of(&mut directory.netbricks(&words))
    };
    ask("status", Some("read.token")).well();
    ask("get balance.backends", Some("read.token")).well();
    for line in ["set balance.drain web1", "apply edge.toml", "rollback", "suspend", "stop"] {
        let said = ask(line, Some("read.token")).failed(1);
        assert!(said.contains("read"), "{line}: {said}");
    }
    for token in [None, Some("wrong.token")] {
        for line in ["status", "stop"] {
            let said = ask(line, token).failed(1);
            assert!(said.contains("token"), "{line}: {said}");
        }
    }
    let backends = ask("get balance.backends", Some("admin.token")).well();
    assert!(!backends.contains("drain"), "{backends}");
    ask("set balance.drain web1", Some("admin.token")).well();
    assert!(ask("get balance.backends", Some("read.token")).well().contains("drain"));
}

/// Such as a token that is guessed, or a port that everyone could reach.
#[test]
fn a_run_does_not_start_where_everyone_could_change_it() {
    let directory = Directory::new("open");
    for (keys, code, expected) in [
        ("listen = \"0.0.0.0:9180\"\n", 2, "is open to other machines, and there is no token"),
        ("listen = \"127.0.0.1:9180\"\n", 2, "is open to every user of this machine, and there is no token"),
        ("listen = \"0.0.0.0:9180\"\nlisten_open = true\n", 2, "is open to other machines"),
        ("listen_open = true\n", 2, "is for `listen`, which is not there"),
        ("listen = \"127.0.0.1:9180\"\ntoken_file = \"short.token\"\n", 1, "token has 5 characters"),
        ("listen = \"127.0.0.1:9180\"\ntoken_file = \"none.token\"\n", 1, "none.token"),
    ] {
        directory.write("short.token", "short\n");
        directory.write("open.toml", &format!("{FILE}[control]\nsocket = \"s.sock\"\n{keys}"));
        let said = Told::of(&mut directory.netbricks(&["run", "open.toml"])).failed(code);
        assert!(said.contains(expected), "{said}");
    }
}
