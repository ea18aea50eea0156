//! Short runs of the benchmarks whose workers give each other packets, and the faults that their checks find.

use netbricks_core::{DetachedContext, NoSettings};

use super::super::tests::{said, short};
use super::*;

/// [`TEXT`] with this function instead of the shuffle.
fn without_shuffle(function: &str) -> String {
    TEXT.replace("\"shuffle\"", &format!("\"{function}\""))
}

/// Runs a round of packets over a chain; returns the result of its check.
fn round_over(
    cores: &Cores,
    text: &str,
    registry: &Registry,
    packets: u64,
) -> Result<(FinalReport, u64), String> {
    let pool = said(short().pool(FRAMES))?;
    let design = said(cores.design(&pool, text, registry))?;
    said(cores.round(&design, &pool, &Placement::Unpinned, packets))
}

#[test]
fn both_pass_and_count_every_packet() {
    for cores in &Cores::ALL {
        let how = short();
        let figure = said(cores.measure_on(how, &Placement::Unpinned)).unwrap();
        assert_eq!((figure.name.as_str(), figure.workers), (cores.name, WORKERS));
        assert_eq!(figure.packets, how.length.packets * WORKERS as u64, "{}", cores.name);
    }
}

#[test]
fn buckets_move_while_packets_are_counted_and_their_order_is_looked_at() {
    let moving = Cores::ALL.iter().find(|cores| cores.moving).unwrap();
    // The scheduler decides how many packets pass between two moves, so send more and more until there was a
    // move.
    let mut moves = (0..8).map(|more| {
        let packets = 10_000 << more;
        let (report, moves) = round_over(moving, TEXT, &crate::standard(), packets).unwrap();
        assert_eq!(report.totals.sent.packets, packets * WORKERS as u64);
        moves
    });
    assert!(moves.any(|moves| moves > 1), "no bucket ever moved");
}

#[test]
fn packets_that_change_no_worker_are_no_shuffle() {
    let still = Cores::ALL.iter().find(|cores| !cores.moving).unwrap();
    let failed = round_over(still, &without_shuffle("wire"), &crate::standard(), 2_000).unwrap_err();
    assert_eq!(failed, "`shuffle-2`: 0 of 4000 packets changed workers, where about half should");
}

/// Damages a batch.
struct Spoiling(fn(&mut Batch, &mut Context));

impl Node for Spoiling {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        (self.0)(batch, cx);
    }
}

fn renumber_one(batch: &mut Batch, _: &mut Context) {
    batch.packet(7).unwrap().data_mut()[LABEL + 10] += 1;
}

fn lose_one(batch: &mut Batch, cx: &mut Context) {
    let mut packets: Vec<_> = batch.drain().collect();
    cx.drop_packet(packets.remove(7), DropReason::Denied);
    packets.into_iter().for_each(|packet| batch.push(packet).unwrap());
}

#[test]
fn a_packet_that_is_missing_or_not_the_next_of_its_flow_is_noticed() {
    // Whole bursts, so that the number of damaged packets is known.
    const BURSTS: u64 = 10;
    let (sent, spoilt) = (BURSTS * (WORKERS * BURST) as u64, BURSTS * WORKERS as u64);
    for (spoil, problem) in [
        (
            renumber_one as fn(&mut Batch, &mut Context),
            format!("{spoilt} packets were out of their flow's order"),
        ),
        (
            lose_one as fn(&mut Batch, &mut Context),
            format!("{sent} packets went in, {} came out", sent - spoilt),
        ),
    ] {
        let mut registry = crate::standard();
        registry.add("spoil", "Spoils packets.", move |_: &NoSettings, _| Ok(Box::new(Spoiling(spoil))));
        for cores in &Cores::ALL {
            let packets = BURSTS * BURST as u64;
            let failed = round_over(cores, &without_shuffle("spoil"), &registry, packets).unwrap_err();
            assert_eq!(failed, format!("`{}`: {problem}", cores.name));
        }
    }
}

#[test]
fn order_is_looked_at_by_flow_and_worker() {
    let pool = Pool::builder().frames(256).build().unwrap();
    let mut cx = DetachedContext::new(pool);
    let wrong = Arc::new(AtomicU64::new(0));
    let mut order = Order { last: last_numbers(), wrong: wrong.clone() };
    let mut passed = |flows: &mut Flows, turned: bool| {
        let mut batch = Batch::new();
        assert!(matches!(flows.poll(&mut batch, &mut cx), Poll::Busy));
        let packets = batch.len() as u64;
        if turned {
            let mut packets: Vec<_> = batch.drain().collect();
            packets.reverse();
            packets.into_iter().for_each(|packet| batch.push(packet).unwrap());
        }
        order.process(0, &mut batch, &mut cx);
        (packets, wrong.swap(0, Ordering::Relaxed))
    };
    // Packets of different flows may change places, and another worker has its own flows.
    let mut flows = [0, 1].map(|worker| Flows::new(worker, 1_000_000));
    for _ in 0..2 * FLOWS / BURST {
        for flows in &mut flows {
            assert_eq!(passed(flows, true).1, 0);
        }
    }
    // From the beginning again: each packet is a repetition.
    let (packets, wrong) = passed(&mut Flows::new(1, 1_000_000), false);
    assert!(packets > 0 && wrong == packets, "{wrong} of {packets}");
}
