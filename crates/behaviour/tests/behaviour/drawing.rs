//! The graph as DOT and as JSON.

use netbricks_core::{Edge, GraphBuilder, merge};

use crate::harness::{Feed, Sink, split};

fn graph() -> GraphBuilder {
    let mut graph = GraphBuilder::new("edge \"one\"");
    let source = graph.add("lan", Box::new(Feed::default())).unwrap();
    let splits = graph.add("fire wall", split(2, |_| true).boxed()).unwrap();
    let meets = graph.add("meet", merge(2)).unwrap();
    let sink = graph.add("wan", Box::new(Sink::default())).unwrap();
    graph.connect(source, Edge::OUT, splits, 0).unwrap();
    graph.connect(splits, Edge::OUT, meets, 0).unwrap();
    graph.connect(splits, Edge(2), meets, 1).unwrap();
    graph.connect(meets, Edge::OUT, sink, 0).unwrap();
    graph.own(splits, 7);
    graph
}

#[test]
fn as_dot() {
    let expected = r#"digraph "edge \"one\"" {
  rankdir=LR;
  "lan" [shape=box, label="lan\nfeed"];
  "fire wall" [shape=ellipse, label="fire wall"];
  "meet" [shape=ellipse, label="meet\nmerge"];
  "wan" [shape=box, label="wan\nsink"];
  "lan" -> "fire wall";
  "fire wall" -> "meet";
  "fire wall" -> "meet" [label="edge 2", style=dashed];
  "meet" -> "wan";
}
"#;
    assert_eq!(graph().describe().dot(), expected);
    // The running graph equals the drawn one.
    let graph = graph();
    let before = graph.describe();
    assert_eq!(graph.build(crate::harness::pool()).unwrap().describe(), before);
}

#[test]
fn as_json() {
    let found = serde_json::to_value(graph().describe()).unwrap();
    let expected = serde_json::json!({
        "name": "edge \"one\"",
        "nodes": [
            {"name": "lan", "kind": "feed", "role": "receive", "owner": 0},
            {"name": "fire wall", "kind": "function", "role": "function", "owner": 7},
            {"name": "meet", "kind": "merge", "role": "function", "owner": 0},
            {"name": "wan", "kind": "sink", "role": "transmit", "owner": 0}
        ],
        "edges": [
            {"from": "lan", "output": "out", "to": "fire wall", "input": 0},
            {"from": "fire wall", "output": "out", "to": "meet", "input": 0},
            {"from": "fire wall", "output": "edge 2", "to": "meet", "input": 1},
            {"from": "meet", "output": "out", "to": "wan", "input": 0}
        ]
    });
    assert_eq!(found, expected);
}
