use std::collections::BTreeMap;

use netbricks_core::ShuffleKey;
use netbricks_core::packet::stack::{Header, Layer, Root, Stack};
use netbricks_core::packet::{FlowKey, Ip, Link, protocol};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{kinds, run_node};

use super::*;

fn settings(groups: usize, key: ShuffleKey, queue: usize) -> GroupSettings {
    GroupSettings { groups, key, queue }
}

fn names_its_flow(frame: &[u8]) -> bool {
    let Ok(link) = Layer::<Root, Link>::parse(Root, frame) else { return true };
    let Ok(ip) = Layer::<_, Ip>::parse(link, frame) else { return true };
    let (at, facts) = ip.top();
    let header = Ip::view(&frame[at..ip.end()], facts);
    !header.is_fragment() && !matches!(header.protocol(), protocol::ICMP | protocol::ICMPV6)
}

#[test]
fn every_packet_leaves_once_and_what_belongs_together_stays_together_and_in_order() {
    let mut frames: Vec<Vec<u8>> = kinds::every().into_iter().map(|(_, frame)| frame).collect();
    for number in 0..400u16 {
        let port = 1_000 + number % 23;
        frames.push(
            ethernet()
                .ipv4("10.0.0.1", "10.0.0.2")
                .udp(port, 53)
                .payload(&number.to_be_bytes())
                .build()
                .unwrap(),
        );
    }
    for (groups, queue) in [(1, 0), (2, 0), (5, 0), (128, 0), (1, 512), (2, 512)] {
        let config = settings(groups, ShuffleKey::Flow, queue);
        let report = run_node(move |worker| group_by(&config, worker), frames.clone());
        let mut came = frames.clone();
        let mut left: Vec<_> = report.out.iter().chain(&report.replies).cloned().collect();
        let order = |frames: &[Vec<u8>]| {
            let mut flows: BTreeMap<Option<FlowKey>, Vec<Vec<u8>>> = BTreeMap::new();
            // An error or a fragment goes with a flow that its own key does not name; other tests cover
            // these.
            for frame in frames.iter().filter(|frame| names_its_flow(frame)) {
                flows.entry(FlowKey::from_frame(frame)).or_default().push(frame.clone());
            }
            flows.remove(&None);
            flows
        };
        assert_eq!(order(&left), order(&came), "{groups} groups, queues of {queue}: order within flows");
        if groups == 1 {
            assert_eq!(report.out.len(), frames.len());
        } else {
            let one =
                |frames: &[Vec<u8>]| order(frames).into_keys().collect::<std::collections::BTreeSet<_>>();
            assert!(one(&report.out).is_disjoint(&one(&report.replies)), "a flow is in one group");
            assert!(!report.out.is_empty() && !report.replies.is_empty());
        }
        left.sort();
        came.sort();
        assert_eq!(left, came);
    }
}
