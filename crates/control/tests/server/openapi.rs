//! The committed description of the API is the one that the program makes, and every path in it is there.

use std::path::Path;

use netbricks_control::server::document;

use crate::ask;
use crate::plane::Running;

#[test]
fn the_committed_description_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, document()).expect("the source tree can be written");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == document(),
        "openapi.json differs: renew it with `BLESS=1 cargo test -p netbricks-control openapi`, and look at its difference"
    );
}

#[test]
fn every_path_of_the_description_is_there() {
    let running = Running::new("described");
    let description: serde_json::Value = serde_json::from_str(&document()).expect("JSON");
    let paths = description["paths"].as_object().expect("paths");
    assert!(paths.len() >= 20);
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().expect("methods") {
            let path = path.replace("{function}", if path.contains("/rules") { "edge" } else { "routes" });
            let path = path.replace("{number}", "1");
            let path = path.replace("{handler}", if method == "put" { "add" } else { "table" });
            let path = path.replace("{rule}", "1");
            let path = if method == "get" { path } else { format!("{path}?dry-run") };
            let reply = ask(running.socket(), &method.to_uppercase(), &path, &[], b"");
            // Without a body, files are refused; nothing waits to be confirmed or rolled back.
            assert!(matches!(reply.status, 200 | 400 | 409), "{method} {path}: {reply:?}");
            let summary = operation["summary"].as_str().unwrap_or_default();
            assert!(summary.ends_with('.'), "{method} {path} has no summary");
        }
    }
}
