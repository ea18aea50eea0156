//! The traffic shaper and congestion control.

use std::time::Duration;

use netbricks_testkit::build::ethernet;

use crate::harness::{each, frame, ip, with};

/// A packet of 1000 bytes with its Ethernet header.
fn packet(number: u16, ecn: u8) -> Vec<u8> {
    let header = ethernet().ipv4("10.0.0.1", "10.0.0.2").identification(number).ecn(ecn);
    frame(header.udp(1, 2).payload(&[0; 1000 - 42]))
}

#[test]
fn a_shaper_holds_traffic_to_its_rate() {
    each("traffic-shaper.click", |shaper| {
        let sent: Vec<_> = (0..150).map(|number| packet(number, 0)).collect();
        let [_, out] = shaper.send(0, sent.clone());
        assert_eq!(out.len(), 0, "a packet takes 20 ms at least");
        assert_eq!(
            [shaper.read("queue.length"), shaper.read("queue.drops")],
            ["100", "49"],
            "one more is being delayed"
        );
        let [_, out] = shaper.advance(Duration::from_millis(19));
        assert_eq!(out.len(), 0);
        // 125 packets a second.
        let [_, first] = shaper.advance(Duration::from_millis(201));
        assert!((24..=28).contains(&first.len()), "{}", first.len());
        let [_, second] = shaper.advance(Duration::from_millis(200));
        assert!((24..=26).contains(&second.len()), "{}", second.len());
        let [_, rest] = shaper.advance(Duration::from_secs(1));
        let passed: Vec<_> = [first, second, rest].concat();
        assert_eq!(passed, sent[..101], "in order and unchanged");
        assert_eq!(shaper.send(1, [packet(1, 0)]), [vec![packet(1, 0)], vec![]]);
    });
    with("traffic-shaper.click", &["DELAY=0.5", "RATE=10000000"], |shaper| {
        assert_eq!(shaper.send(0, [packet(1, 0)])[1].len(), 0);
        assert_eq!(shaper.advance(Duration::from_millis(490))[1].len(), 0);
        assert_eq!(shaper.advance(Duration::from_millis(20))[1].len(), 1);
    });
}

#[test]
fn congestion_is_told_before_the_queue_is_full() {
    each("congestion.click", |box_| {
        let mut sent = 0;
        let mut out = Vec::new();
        // Twice what the link takes, half of it from senders with ECN.
        for round in 0..250 {
            for ecn in [0, 2] {
                out.extend(box_.send(0, [packet(round, ecn)])[1].clone());
                sent += 1;
            }
            out.extend(box_.advance(Duration::from_millis(8))[1].clone());
        }
        out.extend(box_.advance(Duration::from_secs(2))[1].clone());
        let number = |text: String| text.parse::<usize>().expect("a number");
        let (marked, dropped) = (number(box_.read("marked.count")), number(box_.read("dropped.count")));
        let full = number(box_.read("queue.drops"));
        assert!(marked > 5 && dropped > 5, "marked {marked}, dropped {dropped}");
        assert_eq!((out.len() + dropped + full, number(box_.read("queue.length"))), (sent, 0));
        let with_mark = out.iter().filter(|frame| ip(frame).tos & 3 == 3).count();
        let without = out.iter().filter(|frame| ip(frame).tos & 3 == 0).count();
        assert_eq!((with_mark, without + dropped, full), (marked, 250, 0));
    });
    each("congestion.click", |idle| {
        let [_, out] = idle.send(0, [packet(1, 2), packet(2, 0)]);
        let [_, more] = idle.advance(Duration::from_millis(30));
        assert_eq!([out, more].concat(), [packet(1, 2), packet(2, 0)], "an idle link changes nothing");
    });
}
