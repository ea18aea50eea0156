//! Checks of a graph before any packet moves: every error names both ends of the edge concerned.

use netbricks_core::{
    BuildError, Edge, GraphBuilder, GraphError, Node, Shuffle, ShuffleConfig, compose, merge,
};

use crate::harness::{Feed, Sink, act, blueprint, nothing, pool, split, worker};

fn sink() -> Box<dyn Node> {
    Box::new(Sink::default())
}

#[test]
fn two_nodes_of_one_name() {
    let mut graph = GraphBuilder::new("g");
    graph.add("a", sink()).unwrap();
    let error = graph.add("a", sink()).unwrap_err();
    assert_eq!(error, GraphError::NameTaken { name: "a".into() });
    assert_eq!(error.to_string(), "two nodes are named `a`: rename one");
}

#[test]
fn a_way_out_that_is_not_there() {
    let mut graph = GraphBuilder::new("g");
    let (from, to) =
        (graph.add("from", split(3, |_| true).boxed()).unwrap(), graph.add("to", sink()).unwrap());
    let error = graph.connect(from, Edge(9), to, 0).unwrap_err();
    assert_eq!(error.to_string(), "`from` has no way out 9 (to `to`); it has `out`, `edge 3`");
    let error = graph.connect(to, Edge::OUT, from, 0).unwrap_err();
    assert_eq!(error.to_string(), "`to` has no way out 0 (to `from`); it has none");
}

#[test]
fn an_input_that_is_not_there() {
    let mut graph = GraphBuilder::new("g");
    let (from, to) = (graph.add("from", nothing().boxed()).unwrap(), graph.add("to", merge(2)).unwrap());
    let error = graph.connect(from, Edge::OUT, to, 2).unwrap_err();
    assert_eq!(error.to_string(), "`to` has no input 2 (from `from`): it has 2");
    assert!(!graph.is_connected(from, Edge::OUT), "a refused edge is not made");
    graph.connect(from, Edge::OUT, to, 1).unwrap();
    assert!(graph.is_connected(from, Edge::OUT));
}

#[test]
fn an_edge_that_is_connected_twice() {
    let mut graph = GraphBuilder::new("g");
    let from = graph.add("from", nothing().boxed()).unwrap();
    let (first, second) = (graph.add("first", sink()).unwrap(), graph.add("second", sink()).unwrap());
    graph.connect(from, Edge::OUT, first, 0).unwrap();
    let error = graph.connect(from, Edge::OUT, second, 0).unwrap_err();
    let text = "`from` `out` is connected twice: to `first` and to `second`; insert a node that splits";
    assert_eq!(error.to_string(), text);
}

#[test]
fn an_edge_that_leads_nowhere() {
    let mut graph = GraphBuilder::new("g");
    let (source, node) = (
        graph.add("source", Box::new(Feed::default())).unwrap(),
        graph.add("node", nothing().boxed()).unwrap(),
    );
    graph.connect(source, Edge::OUT, node, 0).unwrap();
    let error = graph.build(pool()).err().unwrap();
    assert_eq!(error.to_string(), "`node` `out` is not connected: packets would have nowhere to go");
}

#[test]
fn a_node_to_which_nothing_leads() {
    let mut graph = GraphBuilder::new("g");
    let (source, to) =
        (graph.add("source", Box::new(Feed::default())).unwrap(), graph.add("to", sink()).unwrap());
    graph.connect(source, Edge::OUT, to, 0).unwrap();
    graph.check().unwrap();
    let lonely = graph.add("lonely", nothing().boxed()).unwrap();
    graph.connect(lonely, Edge::OUT, to, 0).unwrap();
    let error = graph.check().unwrap_err();
    assert_eq!(error.to_string(), "nothing leads to `lonely`: connect an edge to it, or take it out");
}

#[test]
fn a_node_that_cannot_be_made() {
    let pool = pool();
    let mut graph = GraphBuilder::new("g");
    let refuses = blueprint(|_| Err(BuildError::new("needs two addresses, found one")));
    let error = graph.add_function("nat", &refuses, &worker(&pool)).unwrap_err();
    assert_eq!(error.to_string(), "`nat`: needs two addresses, found one");
    // State that cannot be made is such an error, not a panic.
    let greedy = blueprint(|worker| {
        compose(worker, |input| {
            use netbricks_core::{Operator, tables::FlowTableConfig};
            let _ = worker.flow_table::<u64, u64>("flows", FlowTableConfig::new(0));
            input.done()
        })
    });
    let error = graph.add_function("greedy", &greedy, &worker(&pool)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`greedy`: table `flows`: a flow table's capacity is 0 flows: give it 1 or more"
    );
    assert_eq!(graph.find("greedy"), None);
}

#[test]
fn ways_out_of_a_function_are_those_that_its_operators_name() {
    use netbricks_core::packet::{Ip, Link};
    use netbricks_core::{Input, Operator};
    fn ways(input: Input) -> impl netbricks_core::Function {
        input
            .parse::<Link>()
            .or(Edge(7))
            .parse::<Ip>()
            .branch(|_| true, |a| a.divert(Edge(3), |_| true), |b| b.divert(Edge(4), |_| true))
            .divert(Edge(3), |_| false)
            .send(Edge(9))
    }
    let worker = worker(&pool());
    let outputs = compose(&worker, ways).unwrap().shape().outputs;
    let edges: Vec<_> = outputs.iter().map(|o| (o.edge.0, o.name.as_str(), o.optional)).collect();
    assert_eq!(
        edges,
        [
            (0, "out", false),
            (1, "reply", true),
            (7, "7", false),
            (3, "3", false),
            (4, "4", false),
            (9, "9", false)
        ]
    );
    assert_eq!(act(|_, _, _| {}).inputs(3).boxed().shape().inputs, 3);
}

/// Once its rings were full it would wait for itself, and no worker would take packets any more.
#[test]
fn a_shuffle_that_packets_come_back_to() {
    let worker = worker(&pool());
    let build = |back: &str| {
        let mut graph = GraphBuilder::new("g");
        let shuffle = || Shuffle::new(ShuffleConfig::default()).node(&worker).unwrap();
        for (name, node) in [
            ("source", Box::new(Feed::default()) as Box<dyn Node>),
            ("by-flow", shuffle()),
            ("decapsulate", split(3, |_| true).boxed()),
            ("by-source", shuffle()),
            ("last", split(3, |_| true).boxed()),
            ("end", merge(2)),
            ("to", sink()),
        ] {
            graph.add(name, node).unwrap();
        }
        let edges = [
            ("source", 0, "by-flow", 0),
            ("by-flow", 0, "decapsulate", 0),
            ("decapsulate", 0, "by-source", 0),
            ("decapsulate", 3, "end", 0),
            ("by-source", 0, "last", 0),
            ("last", 3, back, usize::from(back == "end")),
            ("last", 0, "to", 0),
            ("end", 0, "to", 0),
        ];
        for (from, edge, to, input) in edges {
            let [from, to] = [from, to].map(|name| graph.find(name).unwrap());
            graph.connect(from, Edge(edge), to, input).unwrap();
        }
        graph.build(pool()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(build("end"), Ok(()), "ways that meet are no cycle");
    // A cycle without a shuffle ends by its number of rounds.
    assert_eq!(build("last"), Ok(()));
    assert_eq!(
        build("by-flow").unwrap_err(),
        "packets come back to a shuffle by `by-flow` to `decapsulate` to `by-source` to `last` to `by-flow`: with full \
         rings it would wait for itself; cut one of these edges, or lead it to another shuffle"
    );
    let alone = build("by-source").unwrap_err();
    assert!(alone.contains("by `by-source` to `last` to `by-source`:"), "{alone}");
}
