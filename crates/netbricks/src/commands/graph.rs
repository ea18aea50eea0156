//! `graph`: draws the graph that a file's chains make.

use std::io::Write;
use std::process::{Command, Stdio};

use netbricks_control::api;
use netbricks_core::graph::{DescribedEdge, DescribedNode, Description};

use super::file::{self, File};
use super::live::Api;
use super::{Application, Console, Failure, Format, GraphArguments, live};

pub(super) fn graph(app: &Application, console: Console, arguments: &GraphArguments) -> Result<(), Failure> {
    let Some(path) = arguments.file.as_deref().filter(|_| !arguments.live) else {
        let client = live::connect(&arguments.connection)?;
        return running(&client, console, arguments);
    };
    if arguments.connection.is_given() {
        return Err(Failure::Usage(
            "`--socket` and `--token-file` ask a running dataplane: give `--live` and no file, or leave them out"
                .into(),
        ));
    }
    let format = format(arguments)?;
    let file = File::read(path)?;
    let checked = file::check_spread(app, &file).map_err(|faults| faults.told(console))?;
    console.tell(&checked.diagnostics.render(&checked.source, console.color));
    let mut description = checked.graph.describe();
    for node in &mut description.nodes {
        // A function in several chains has a node in each: `seen.shuffle@lan-wan`.
        let named = |shuffle: &str| node.name.split('@').next() == Some(shuffle);
        if checked.shuffles.iter().any(|shuffle| shuffle.node == node.name)
            || checked.key_shuffles.iter().any(|shuffle| named(&shuffle.node))
        {
            node.kind = "shuffle, put in".into();
        }
    }
    match format {
        Format::Json => console.json(&description),
        Format::Text => {
            console.print(&text(&description))?;
            checked.told_shuffles().try_for_each(|line| console.print(&line))
        }
        Format::Dot => console.print(&description.dot()),
        Format::Svg => console.print(&svg(&description.dot())?),
    }
}

/// Draws the graph that runs.
pub(super) fn running(api: &dyn Api, console: Console, arguments: &GraphArguments) -> Result<(), Failure> {
    let format = format(arguments)?;
    let graph = api.graph().map_err(|problem| live::told(console, &problem, format == Format::Json))?;
    match format {
        Format::Json => console.json(&graph),
        Format::Text => console.print(&text(&described(graph))),
        Format::Dot => console.print(&described(graph).dot()),
        Format::Svg => console.print(&svg(&described(graph).dot())?),
    }
}

/// The way to draw it: `--json` is another name of `--format json`.
fn format(arguments: &GraphArguments) -> Result<Format, Failure> {
    let drawing = match (arguments.json, arguments.format) {
        (false, format) => return Ok(format),
        (true, Format::Text | Format::Json) => return Ok(Format::Json),
        (true, Format::Dot) => "dot",
        (true, Format::Svg) => "svg",
    };
    Err(Failure::Usage(format!(
        "`--json` and `--format {drawing}` ask for two different things: leave one of them out"
    )))
}

/// The graph that runs, in the form in which a file's graph is drawn.
fn described(graph: api::Graph) -> Description {
    let node =
        |node: api::Node| DescribedNode { name: node.name, kind: node.kind, role: node.role, owner: 0 };
    let edge =
        |edge: api::Edge| DescribedEdge { from: edge.from, output: edge.output, to: edge.to, input: 0 };
    Description {
        name: graph.name,
        nodes: graph.nodes.into_iter().map(node).collect(),
        edges: graph.edges.into_iter().map(edge).collect(),
    }
}

/// The drawing, made by Graphviz.
fn svg(dot: &str) -> Result<String, Failure> {
    let cannot =
        |problem: &dyn std::fmt::Display| Failure::Failed(format!("Graphviz's `dot` failed: {problem}"));
    let mut child = match Command::new("dot")
        .arg("-Tsvg")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
    {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Failure::Failed(
                "SVG needs Graphviz, and there is no `dot` here: install it (Debian: apt-get install graphviz), or \
                 use --format text"
                    .into(),
            ));
        }
        Err(error) => return Err(cannot(&error)),
    };
    if let Some(mut input) = child.stdin.take() {
        // `dot` reads all of its input before it writes, so there is no deadlock. If it ends early, its exit
        // code tells.
        let _ = input.write_all(dot.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| cannot(&error))?;
    if !output.status.success() {
        return Err(cannot(&output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| cannot(&error))
}

/// A line for each way through the graph; a part that was already drawn is only named.
fn text(graph: &Description) -> String {
    let next = |from: &str| graph.edges.iter().find(|edge| edge.from == from && edge.output == "out");
    let mut drawn: Vec<&str> = Vec::new();
    let mut out = String::new();
    let follow = |start: &str, line: &mut String, drawn: &mut Vec<_>| {
        let mut here = next(start);
        while let Some(edge) = here {
            line.push_str(" ──▶ ");
            line.push_str(&edge.to);
            if drawn.contains(&edge.to.as_str()) {
                break;
            }
            if let Some(node) = graph.nodes.iter().find(|node| node.name == edge.to) {
                drawn.push(node.name.as_str());
            }
            here = next(&edge.to);
        }
    };
    for node in graph.nodes.iter().filter(|node| node.role == "receive") {
        let mut line = format!("{} ({})", node.name, node.kind);
        follow(&node.name, &mut line, &mut drawn);
        out.push_str(&line);
        out.push('\n');
    }
    let replies: Vec<_> = graph.edges.iter().filter(|edge| edge.output == "reply").collect();
    for edge in graph.edges.iter().filter(|edge| !["out", "reply"].contains(&edge.output.as_str())) {
        let mut line = format!("{} ──{}──▶ {}", edge.from, edge.output, edge.to);
        if !drawn.contains(&edge.to.as_str()) {
            follow(&edge.to, &mut line, &mut drawn);
        }
        out.push_str(&line);
        out.push('\n');
    }
    // Nearly every function may answer, so there is one line for each place that answers go to.
    let mut targets: Vec<&str> = replies.iter().map(|edge| edge.to.as_str()).collect();
    targets.sort_unstable();
    targets.dedup();
    for target in targets {
        let from: Vec<&str> =
            replies.iter().filter(|edge| edge.to == target).map(|edge| edge.from.as_str()).collect();
        out.push_str(&format!("answers of {} ──▶ {target}\n", from.join(", ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use netbricks_core::graph::{DescribedEdge, DescribedNode};

    use super::*;

    #[test]
    fn every_edge_is_drawn_once() {
        let node = |name: &str, role: &str| DescribedNode {
            name: name.into(),
            kind: "function".into(),
            role: role.into(),
            owner: 0,
        };
        let edge = |from: &str, output: &str, to: &str| DescribedEdge {
            from: from.into(),
            output: output.into(),
            to: to.into(),
            input: 0,
        };
        let graph = Description {
            name: "g".into(),
            nodes: vec![node("lan", "receive"), node("ttl", "function"), node("wan.send", "transmit")],
            edges: vec![
                edge("lan", "out", "ttl"),
                edge("ttl", "out", "wan.send"),
                edge("ttl", "reply", "lan.send"),
            ],
        };
        assert_eq!(text(&graph), "lan (function) ──▶ ttl ──▶ wan.send\nanswers of ttl ──▶ lan.send\n");
    }
}
