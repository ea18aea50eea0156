//! Every capture, compared with a naive search in the packets and streams that another function collects.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use netbricks_core::packet::{FlowKey, Ip, Link, Tcp, Udp};
use netbricks_core::view::IpRewrite;
use netbricks_core::{Function, Input, Operator, Verdict, Worker};
use netbricks_stream::{End, StreamOperator, Why, WindowConfig};
use netbricks_testkit::captures;
use netbricks_testkit::mutate::Random;
use netbricks_testkit::{run_configured, run_with};

use super::{by_each_engine, matches};
use crate::signature::{HISTORY, SignatureConfig, signature};

/// All that came, packet by packet.
#[derive(Default)]
struct Collected {
    packets: usize,
    /// Payloads of UDP with the packet's number.
    datagrams: Vec<(usize, Vec<u8>)>,
    /// Bytes of each direction, in runs without gaps, each with the packets that completed it.
    runs: Vec<Run>,
    /// The run that each direction has now.
    open: BTreeMap<(u32, bool), usize>,
}

#[derive(Default)]
struct Run {
    /// The connection's number, and whether its client sends.
    direction: (u32, bool),
    bytes: Vec<u8>,
    /// The packet with which so many bytes were known.
    ends: Vec<(usize, usize)>,
}

thread_local! {
    /// All that came to each function that collects.
    static COLLECTED: RefCell<Vec<Rc<RefCell<Collected>>>> = const { RefCell::new(Vec::new()) };
}

fn collect(input: Input, worker: &Worker) -> impl Function + use<> {
    let to = Rc::<RefCell<Collected>>::default();
    COLLECTED.with_borrow_mut(|all| all.push(to.clone()));
    let windows = WindowConfig {
        memory: 0,
        ..WindowConfig::new(4_096, 4_096, SignatureConfig::default().idle.nanoseconds())
    };
    let windows = WindowConfig {
        streams: netbricks_stream::StreamConfig {
            flows: FLOWS,
            flow_memory: 64 << 10,
            memory: 4 << 20,
            ..windows.streams
        },
        ..windows
    };
    let (counted, udp_to, tcp_to) = (to.clone(), to.clone(), to.clone());
    input
        .inspect(move |_| counted.borrow_mut().packets += 1)
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .branch(
            |packet| packet.header().protocol() == 17 && !packet.header().is_later_fragment(),
            move |udp| {
                udp.parse::<Udp>()
                    .or(Verdict::PASS)
                    .inspect(move |packet| {
                        let mut to = udp_to.borrow_mut();
                        let number = to.packets;
                        to.datagrams.push((number, packet.payload().to_vec()));
                        let _flow: FlowKey = packet.flow_key();
                    })
                    .forget()
            },
            move |tcp| {
                tcp.parse::<Tcp>()
                    .or(Verdict::PASS)
                    .window(worker, "streams", windows, move |window| {
                        let mut to = tcp_to.borrow_mut();
                        let Collected { packets, runs, open, .. } = &mut *to;
                        let direction = (window.connection, window.side as usize == 0);
                        if window.gap > 0 {
                            open.remove(&direction);
                        }
                        if !window.fresh().is_empty() {
                            let at = *open.entry(direction).or_insert_with(|| {
                                runs.push(Run { direction, ..Run::default() });
                                runs.len() - 1
                            });
                            runs[at].bytes.extend_from_slice(window.fresh());
                            let known = runs[at].bytes.len();
                            runs[at].ends.push((*packets, known));
                        }
                        if let Why::End(end) = window.why
                            && end != End::Moved
                        {
                            open.remove(&direction);
                        }
                    })
                    .forget()
            },
        )
        .done()
}

const FLOWS: usize = 4_096;
/// Frames of each capture.
const FRAMES: usize = 1_000;

/// All that a capture's packets carry, up to the end of all streams.
fn collected(frames: &[Vec<u8>]) -> Collected {
    run_with(collect, frames.iter().cloned());
    // The first run takes the packets one by one, so that it knows with which the bytes came.
    let first = COLLECTED.take().into_iter().find(|all| all.borrow().packets > 0);
    first.map(|first| first.take()).unwrap_or_default()
}

/// Words of what the capture carries, and words that are not in it.
fn words(of: &Collected, random: &mut Random) -> Vec<(Vec<u8>, bool)> {
    let bytes: Vec<&[u8]> = of
        .runs
        .iter()
        .map(|run| &run.bytes[..])
        .chain(of.datagrams.iter().map(|(_, bytes)| &bytes[..]))
        .collect();
    let mut words = Vec::new();
    for _ in 0..50 {
        let bytes = bytes[random.below(bytes.len())];
        if bytes.len() < 3 {
            continue;
        }
        let len = 2 + random.below(12.min(bytes.len() - 2));
        let at = random.below(bytes.len() - len + 1);
        let mut word = bytes[at..at + len].to_vec();
        if random.below(4) == 0 {
            let at = random.below(len);
            word[at] ^= 1;
        }
        words.push((word, random.below(2) == 0));
    }
    words
}

fn stands(word: &[u8], nocase: bool, bytes: &[u8], from: usize) -> bool {
    bytes
        .windows(word.len())
        .skip(from)
        .any(|part| if nocase { part.eq_ignore_ascii_case(word) } else { part == word })
}

#[test]
fn all_captures_match_as_a_naive_search_says() {
    let files = captures::files();
    if files.is_empty() {
        eprintln!("skipped: no captures (set NETBRICKS_CAPTURES)");
    }
    let mut random = Random::new(34);
    let (mut found, mut tried) = (0, 0);
    for file in &files {
        let frames: Vec<_> =
            captures::frames(file).into_iter().filter(|frame| frame.len() <= 65_535).take(FRAMES).collect();
        let collected = collected(&frames);
        if collected.runs.iter().all(|run| run.bytes.is_empty()) && collected.datagrams.is_empty() {
            continue;
        }
        let words = words(&collected, &mut random);
        let rules: Vec<String> = (1..)
            .zip(&words)
            .flat_map(|(sid, (word, nocase))| {
                let hex: String = word.iter().map(|byte| format!("{byte:02x}")).collect();
                let nocase = if *nocase { "nocase; " } else { "" };
                let rule = |protocol, sid| {
                    format!("alert {protocol} any any -> any any (content:\"|{hex}|\"; {nocase}sid:{sid};)")
                };
                [rule("tcp-stream", sid), rule("udp", 10_000 + sid)]
            })
            .collect();
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let mut config = SignatureConfig::of(rules.iter().copied());
        (config.top, config.flows) = (10_000, FLOWS);
        let report = by_each_engine(&config, |config| {
            run_configured(signature::<HISTORY>, config, frames.iter().cloned())
        });
        let mut expected = BTreeMap::new();
        for (sid, (word, nocase)) in (1u32..).zip(&words) {
            let packets =
                collected.datagrams.iter().filter(|(_, bytes)| stands(word, *nocase, bytes, 0)).count();
            // Each packet counts once for a direction, however often its bytes hold the word. Others may end with it.
            let mut told = BTreeSet::new();
            for run in &collected.runs {
                let mut known = 0;
                for (packet, end) in &run.ends {
                    if stands(word, *nocase, &run.bytes[..*end], (known + 1usize).saturating_sub(word.len()))
                    {
                        told.insert((run.direction, *packet));
                    }
                    known = *end;
                }
            }
            for (sid, count) in [(sid, told.len()), (10_000 + sid, packets)] {
                if count > 0 {
                    expected.insert(sid, count as u64);
                }
            }
        }
        found += expected.len();
        tried += rules.len();
        assert_eq!(matches(&report), expected, "{}", file.display());
    }
    assert!(files.is_empty() || found > 500, "{found} of {tried} rules matched in {} captures", files.len());
}
