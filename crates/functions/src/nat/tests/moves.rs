//! Sessions that move between workers, and to another configuration.

use netbricks_core::{Blueprint, Worker};
use netbricks_testkit::mutate::Random;

use super::*;
use crate::shuffle::two_workers::Two;

fn blueprint(more: &str) -> Blueprint {
    let config = config(more);
    Blueprint::new(move |worker| node(&config, worker))
}

/// Sends a frame, which one of the workers translates; answers it and the worker.
fn one(two: &mut Two, frame: Vec<u8>) -> (usize, Vec<u8>) {
    let mut sent = two.exchange(vec![frame], 6);
    // While its part moves, a packet waits.
    for _ in 0..500 {
        if sent.is_empty() {
            sent = two.exchange(Vec::new(), 1);
        }
    }
    assert_eq!(sent.len(), 1, "one in, one out");
    sent.remove(0)
}

/// Sessions keep their ports while their parts move back and forth, and no port is given out twice.
#[test]
fn sessions_survive_moves_of_their_parts() {
    for more in ["parts = 16\ncapacity = 1024", "parts = 16\ncapacity = 1024\nblock = 100"] {
        let (mut two, mut random) = (Two::parted(&blueprint(more)), Random::new(7));
        let mut ports: Vec<Vec<u16>> = vec![Vec::new(); 40];
        let (mut workers, mut moves) = ([0; 2], 0);
        for round in 0..12u16 {
            for (host, known) in ports.iter_mut().enumerate() {
                let from = format!("10.0.0.{}", host + 1);
                // Another mapping each round, and the first of them again.
                let (worker, out) = one(&mut two, udp(&from, 4_000 + round, SERVER, 53));
                workers[worker] += 1;
                known.push(source_port(&out));
                let (_, out) = one(&mut two, udp(&from, 4_000, SERVER, 53));
                assert_eq!(source_port(&out), known[0], "{from} in round {round}");
                let at = random.below(known.len());
                let (_, back) = one(&mut two, udp(SERVER, 53, POOL, known[at]));
                assert_eq!(shown(&back), format!("{SERVER}:53 > {from}:{}", 4_000 + at), "round {round}");
            }
            let first = random.below(4_096);
            let last = first + random.below(4_096 - first);
            if two.graphs[0].call("shuffle", "moving", "").unwrap() == "0" {
                let moved = format!("{first}-{last} {}", random.below(2));
                moves += usize::from(two.graphs[0].call("shuffle", "move", &moved).unwrap() != "0");
            }
        }
        while two.graphs[0].call("shuffle", "moving", "").unwrap() != "0" {
            two.exchange(Vec::new(), 1);
        }
        assert!(workers[0] > 20 && workers[1] > 20 && moves > 4, "{workers:?}, {moves} moves");
        let mut all: Vec<u16> = ports.into_iter().flatten().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "no port twice");
        for graph in &mut two.graphs {
            assert_eq!(graph.call("shuffle", "refused", "").unwrap(), "0");
            assert!(graph.call("function", "counters", "").unwrap().contains("sessions_not_admitted 0"));
        }
    }
}

/// Mappings by PCP without a packet keep their ports, nonces and filters while their parts move.
#[test]
fn mappings_by_pcp_survive_moves_of_their_parts() {
    let settings = "pcp = \"10.0.0.254\"\nparts = 16\ncapacity = 1024";
    let (mut two, mut random) = (Two::parted(&blueprint(settings)), Random::new(7));
    let host = |number: usize| format!("10.0.0.{}", number + 1);
    for number in 0..40 {
        let request = super::pcp::request_of(&host(number), 4_000, 3_600);
        two.exchange(vec![request], 6);
    }
    let list = |two: &mut Two| {
        let texts = two.graphs.iter_mut().map(|graph| graph.call("function", "pcp", "").unwrap());
        let mut lines: Vec<String> =
            texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        lines.sort_unstable();
        lines
    };
    // Without the seconds, which pass.
    let names = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    let first = names(&list(&mut two));
    assert_eq!(first.len(), 40);
    let mut moves = 0;
    for round in 0..8 {
        let from = random.below(4_096);
        let last = from + random.below(4_096 - from);
        if two.graphs[0].call("shuffle", "moving", "").unwrap() == "0" {
            let moved = format!("{from}-{last} {}", random.below(2));
            moves += usize::from(two.graphs[0].call("shuffle", "move", &moved).unwrap() != "0");
        }
        for line in &first {
            let words: Vec<&str> = line.split(' ').collect();
            let port = words[3].rsplit_once(':').unwrap().1.parse().unwrap();
            let (_, back) = one(&mut two, udp(SERVER, 53, POOL, port));
            assert_eq!(shown(&back), format!("{SERVER}:53 > {}", words[2]), "round {round}");
        }
        while two.graphs[0].call("shuffle", "moving", "").unwrap() != "0" {
            two.exchange(Vec::new(), 1);
        }
    }
    assert!(moves > 2, "{moves} moves");
    assert_eq!(names(&list(&mut two)), first);
    // They are prolonged where they are, and ended.
    for number in 0..40 {
        let request = super::pcp::request_of(&host(number), 4_000, 0);
        two.exchange(vec![request], 6);
    }
    assert_eq!(list(&mut two), Vec::<String>::new());
    for graph in &mut two.graphs {
        let counters = graph.call("function", "counters", "").unwrap();
        assert!(
            counters.contains("sessions_not_admitted 0") && counters.contains("pcp_refused 0"),
            "{counters}"
        );
    }
}

#[test]
fn an_export_is_taken_in_as_a_whole_or_not_at_all() {
    let pool = netbricks_core::buffer::Pool::builder().frames(64).build().unwrap();
    let worker = Worker::new(0, 1, pool);
    let mut test = nat("static = [\"tcp 203.0.113.7:80 -> 10.0.0.5:8080\"]");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    through(&mut test, ping(INSIDE, SERVER, 7));
    let mut from = blueprint("block = 64").build(&worker).unwrap();
    drop(test);
    // A node that nothing feeds has no sessions: its image is taken in, and changed bytes are not.
    let images = from.export();
    let (name, image) = images.iter().find(|(name, _)| name == "translations").unwrap();
    let mut to = blueprint("").build(&worker).unwrap();
    assert_eq!(to.import(name, image, 5), Ok(()));
    for at in 0..image.len() {
        let mut changed = image.clone();
        changed[at] ^= 1;
        assert!(to.import(name, &changed, 5).is_err(), "byte {at}");
    }
    assert!(port > 0);
}
