mod options;
mod written;

use std::io::Cursor;

use netbricks_core::DropReason;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::*;
use crate::testing::*;

type Packets = Vec<(u64, Vec<u8>)>;

/// Packets of many lengths, with times in whole microseconds, several a millisecond.
fn sample(count: usize) -> Packets {
    (0..count)
        .map(|i| {
            (
                1_700_000_000_000_000_000 + i as u64 * 123_000,
                (0..14 + i % 200).map(|b| (b * i) as u8).collect(),
            )
        })
        .collect()
}

fn write(path: &Path, packets: &Packets, precision: Precision) {
    let mut writer = Writer::create(path, Format::of(path), precision, 65_535, "lan").unwrap();
    for (time, frame) in packets {
        writer.write(*time, frame, None).unwrap();
    }
    writer.finish().unwrap();
}

fn read(mut reader: Reader) -> (Packets, Option<ReadError>) {
    let mut packets = Packets::new();
    loop {
        match reader.next(|record| {
            packets.push((record.time, record.data.to_vec()));
            true
        }) {
            Ok(Step::End) => return (packets, None),
            Ok(_) => {}
            Err(error) => return (packets, Some(error)),
        }
    }
}

#[test]
fn written_packets_read_back_in_every_format() {
    let directory = Directory::new("formats");
    let packets = sample(3_000);
    for name in ["a.pcap", "a.pcapng", "a.pcap.gz", "a.pcapng.gz"] {
        for precision in [Precision::Microseconds, Precision::Nanoseconds] {
            let path = directory.0.join(name);
            write(&path, &packets, precision);
            let (back, error) = read(Reader::new(File::open(&path).unwrap()).unwrap());
            assert_eq!(error, None);
            assert!(back == packets, "{name}");
        }
    }
    let reader = Reader::new(File::open(directory.0.join("a.pcapng")).unwrap()).unwrap();
    assert_eq!(reader.interfaces().collect::<Vec<_>>(), [Some("lan")]);
}

/// A pcap file in the given byte order, written here byte by byte.
fn legacy(big: bool, nanoseconds: bool, link: u32, records: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut file = word(if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }).to_vec();
    file.extend([half(2), half(4)].concat());
    file.extend([word(0), word(0), word(65_535), word(link)].concat());
    for (seconds, fraction, data) in records {
        file.extend(
            [word(*seconds), word(*fraction), word(data.len() as u32), word(data.len() as u32 + 7)].concat(),
        );
        file.extend(*data);
    }
    file
}

#[test]
fn both_byte_orders_and_precisions_are_read() {
    for big in [false, true] {
        for (nanoseconds, unit) in [(false, 1_000), (true, 1)] {
            let file = legacy(big, nanoseconds, 1, &[(5, 999_999, b"frame one"), (6, 7, b"two")]);
            let (packets, error) = read(Reader::new(Cursor::new(file)).unwrap());
            assert_eq!(error, None);
            let times: Vec<_> = packets.iter().map(|(time, _)| *time).collect();
            assert_eq!(times, [5_000_000_000 + 999_999 * unit, 6_000_000_000 + 7 * unit]);
            assert_eq!(packets[0].1, b"frame one");
        }
    }
}

#[test]
fn a_link_type_that_is_no_ethernet_is_an_error_that_names_it() {
    let error = Reader::new(Cursor::new(legacy(false, false, 105, &[]))).unwrap_err().to_string();
    assert!(error.contains("link type 105 (IEEE 802.11)"), "{error}");
    let error = Reader::new(Cursor::new(b"not a capture at all, but long enough".to_vec())).unwrap_err();
    assert!(error.to_string().contains("not a capture"), "{error}");
    assert!(Reader::new(Cursor::new(Vec::new())).unwrap_err().to_string().contains("empty"));
}

/// Damages, cuts and repeats parts of valid captures.
///
/// No read panics or goes on for ever, and an error is the same when asked again.
#[test]
fn hostile_captures_never_panic() {
    let directory = Directory::new("hostile");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut seeds = vec![legacy(true, false, 113, &[(1, 2, &[0; 40]), (3, 4, &[1; 60])])];
    for name in ["a.pcap", "a.pcapng", "a.pcapng.gz"] {
        write(&directory.0.join(name), &sample(20), Precision::Nanoseconds);
        seeds.push(std::fs::read(directory.0.join(name)).unwrap());
    }
    for round in 0..40_000 {
        let mut bytes = seeds[round % seeds.len()].clone();
        for _ in 0..1 + random.next_u32() % 4 {
            let at = random.next_u32() as usize % bytes.len();
            match random.next_u32() % 4 {
                0 => bytes[at] ^= 1 << (random.next_u32() % 8),
                1 => bytes[at] = [0, 0xff, 0x7f, 0x80][random.next_u32() as usize % 4],
                2 => bytes.truncate(at.max(1)),
                _ => {
                    let end = (at + 4).min(bytes.len());
                    bytes[at..end].fill(0xff);
                }
            }
        }
        let Ok(mut reader) = Reader::new(Cursor::new(bytes)) else { continue };
        for _ in 0..200 {
            match reader.next(|record| record.data.len() < 1 << 24) {
                Ok(Step::Taken) => {}
                Ok(_) => break,
                Err(error) => {
                    assert_eq!(reader.next(|_| true), Err(error));
                    break;
                }
            }
        }
    }
}

#[test]
fn a_replay_gives_the_same_packets_and_times_at_every_batch_size() {
    let (pool, directory) = (pool(), Directory::new("replay"));
    let packets = sample(2_000);
    write(&directory.0.join("in.pcapng"), &packets, Precision::Nanoseconds);
    for burst in BURSTS {
        let cx = context(&pool, &directory);
        let mut from = open("pcap", "read = 'in.pcapng'", &cx).unwrap();
        let mut to = open("pcap", "write = 'out.pcap'", &cx).unwrap();
        let totals = forward(from.as_mut(), to.as_mut(), &pool, burst);
        assert_eq!((totals.received.packets, totals.sent.packets), (2_000, 2_000));
        assert!(from.failure().is_none() && to.failure().is_none());
        assert!(!directory.files().contains(&"out.pcap".into()), "not before it is whole");
        to.close().unwrap();
        let (back, error) = read(Reader::new(File::open(directory.0.join("out.pcap")).unwrap()).unwrap());
        assert!(error.is_none() && back == packets, "burst {burst}");
        std::fs::remove_file(directory.0.join("out.pcap")).unwrap();
        assert_eq!(pool.available(), pool.capacity());
    }
}

#[test]
fn rounds_follow_each_other_in_time() {
    let (pool, directory) = (pool(), Directory::new("loop"));
    let packets = sample(50);
    write(&directory.0.join("in.pcap"), &packets, Precision::Nanoseconds);
    let cx = context(&pool, &directory);
    let mut from = open("pcap", "read = 'in.pcap'\nloop = 3", &cx).unwrap();
    let (mut to, far) = collector(&pool);
    forward(from.as_mut(), &mut to, &pool, 32);
    let got = collected(&far);
    assert_eq!(got.len(), 150);
    assert!(got.is_sorted_by_key(|(time, _)| *time));
    assert_eq!(got[50].0 - got[49].0, 1_000_000);
    assert_eq!(got[100].0 - got[50].0, got[50].0 - got[0].0);
    assert!(got[50..100].iter().map(|(_, frame)| frame).eq(packets.iter().map(|(_, frame)| frame)));
}

#[test]
fn a_capture_that_is_cut_off_delivers_what_came_before_and_says_where() {
    let (pool, directory) = (pool(), Directory::new("cut"));
    for name in ["in.pcap", "in.pcapng"] {
        let path = directory.0.join(name);
        write(&path, &sample(10), Precision::Nanoseconds);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        let cx = context(&pool, &directory);
        let mut from = open("pcap", &format!("read = '{name}'"), &cx).unwrap();
        let (mut to, far) = collector(&pool);
        forward(from.as_mut(), &mut to, &pool, 32);
        assert_eq!(collected(&far).len(), 9);
        let failure = from.failure().unwrap().to_string();
        assert!(failure.contains("record 10 at byte") && failure.contains("cut off"), "{failure}");
    }
}

#[test]
fn packets_that_a_snap_length_cut_are_counted_and_short_headers_are_malformed() {
    let (pool, directory) = (pool(), Directory::new("snap"));
    std::fs::write(directory.0.join("cut.pcap"), legacy(false, false, 1, &[(1, 0, &[0; 60])])).unwrap();
    std::fs::write(directory.0.join("sll.pcap"), legacy(false, false, 113, &[(1, 0, &[0; 15])])).unwrap();
    let cx = context(&pool, &directory);
    let mut from = open("pcap", "read = 'cut.pcap'", &cx).unwrap();
    let (mut to, _far) = collector(&pool);
    forward(from.as_mut(), &mut to, &pool, 32);
    assert_eq!(from.counters()[0].cut.load(std::sync::atomic::Ordering::Relaxed), 1);
    let mut from = open("pcap", "read = 'sll.pcap'", &cx).unwrap();
    let (mut to, _far) = collector(&pool);
    let totals = forward(from.as_mut(), &mut to, &pool, 32);
    assert_eq!(totals.drops.of(DropReason::Malformed).packets, 1);
}

#[test]
fn a_port_that_is_not_closed_leaves_no_file() {
    let (pool, directory) = (pool(), Directory::new("unclosed"));
    let cx = context(&pool, &directory);
    let port = open("pcap", "write = 'out.pcapng'", &cx).unwrap();
    assert_eq!(directory.files().len(), 1);
    std::mem::drop(port);
    assert!(directory.files().is_empty());
    let error = open("pcap", "write = 'nowhere/out.pcapng'", &cx).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("there is no directory"), "{error}");
    let error = open("pcap", "read = 'missing.pcap'", &cx).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("missing.pcap: cannot be read"), "{error}");
}

/// A capture must not replace a device such as `/dev/null` by a rename.
///
/// A pipe without a writer must not block the reader.
#[test]
fn targets_that_are_no_files_stay_as_they_are() {
    let (pool, directory) = (pool(), Directory::new("targets"));
    let cx = context(&pool, &directory);
    let at = |name: &str| directory.0.join(name);
    std::fs::create_dir(at("folder")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(pipe.success());
    for (name, kind) in [("folder", "a directory"), ("socket", "a socket"), ("pipe", "a pipe")] {
        for key in ["read", "write"] {
            let error = open("pcap", &format!("{key} = '{name}'"), &cx).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(&format!("it is {kind}, and a file is expected")), "{error}");
        }
    }
    // A device is written to directly. Here the way is a link, the only thing that a rename could replace.
    for device in ["null", "full"] {
        std::os::unix::fs::symlink(format!("/dev/{device}"), at(device)).unwrap();
    }
    let packets = sample(3);
    write(&at("null"), &packets, Precision::Nanoseconds);
    let mut full = Writer::create(&at("full"), Format::Pcap, Precision::Nanoseconds, 65_535, "lan").unwrap();
    full.write(0, &packets[2].1, None).unwrap();
    assert_eq!(full.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    for device in ["null", "full"] {
        assert!(std::fs::symlink_metadata(at(device)).unwrap().is_symlink());
    }
    // A link leads to the file.
    std::fs::write(at("old.pcap"), "").unwrap();
    std::os::unix::fs::symlink("old.pcap", at("link.pcap")).unwrap();
    write(&at("link.pcap"), &packets, Precision::Nanoseconds);
    assert!(std::fs::symlink_metadata(at("link.pcap")).unwrap().is_symlink());
    let (found, error) = read(Reader::new(File::open(at("old.pcap")).unwrap()).unwrap());
    assert_eq!((found, error), (packets.clone(), None));
    // A link may also lead to a file that does not exist yet; its format follows from the name that was
    // given.
    std::os::unix::fs::symlink("folder/new", at("new.pcap.gz")).unwrap();
    write(&at("new.pcap.gz"), &packets, Precision::Nanoseconds);
    assert!(std::fs::symlink_metadata(at("new.pcap.gz")).unwrap().is_symlink());
    assert_eq!(std::fs::read(at("folder/new")).unwrap()[..2], [0x1f, 0x8b]);
}

/// Paced by the graph's clock, which the test sets: each packet comes when it is due.
#[test]
fn a_paced_replay_keeps_the_distances_of_the_capture() {
    let (pool, directory) = (pool(), Directory::new("paced"));
    let packets = sample(200);
    write(&directory.0.join("in.pcap"), &packets, Precision::Nanoseconds);
    let cx = context(&pool, &directory);
    for (replay, times) in [("'real-time'", 1.0), ("4", 4.0), ("0.5", 0.5)] {
        for burst in BURSTS {
            let mut from = open("pcap", &format!("read = 'in.pcap'\nreplay = {replay}"), &cx).unwrap();
            assert!(!from.capabilities().drives_clock);
            let (mut to, far) = collector(&pool);
            let mut graph = joined(from.as_mut(), &mut to, &pool, burst);
            // The clock's own start does not matter.
            const START: u64 = 77_000_000_000;
            let (mut now, mut done) = (START, false);
            let mut arrived = Vec::new();
            while !done {
                loop {
                    match graph.turn(now) {
                        netbricks_core::Turn::Moved(_) => {}
                        netbricks_core::Turn::Idle(_) => break,
                        netbricks_core::Turn::Done => {
                            done = true;
                            break;
                        }
                    }
                }
                arrived.extend(collected(&far).into_iter().map(|(_, frame)| (now, frame)));
                now += 50_000;
            }
            assert_eq!(arrived.len(), packets.len());
            for ((at, frame), (captured, original)) in arrived.iter().zip(&packets) {
                let due = START + ((captured - packets[0].0) as f64 / times) as u64;
                assert!((due..due + 50_000).contains(at), "{replay}: due {due}, came {at}");
                assert_eq!(frame, original);
            }
        }
    }
}

/// A pcapng block: type, length, body, length.
fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = word(body.len() as u32 + 12);
    [&word(kind)[..], &len, &body, &len].concat()
}

/// Simple Packet Blocks (type 3) and obsolete Packet Blocks (type 2), in both byte orders.
///
/// The test writes them byte by byte (draft-ietf-opsawg-pcapng, sections 4.1, 4.2, 4.4 and appendix A).
#[test]
fn simple_and_obsolete_packet_blocks_are_read() {
    for big in [false, true] {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let section = [&word(0x1a2b_3c4d)[..], &half(1), &half(0), &[0xff; 8]].concat();
        let interface = |link: u16| [&half(link)[..], &half(0), &word(0)].concat();
        let simple = [&word(5)[..], b"plain"].concat();
        let obsolete = |interface: u16, captured: u32| {
            let numbers = [&half(interface)[..], &half(9)].concat();
            [&numbers[..], &word(0), &word(3_000_000), &word(captured), &word(70), b"older"].concat()
        };
        let head = [
            block(big, 0x0a0d_0d0a, &section),
            block(big, 1, &interface(1)),
            block(big, 1, &interface(101)),
            block(big, 0x0bad, b"unknown, passed over"),
        ]
        .concat();
        let file = [&head[..], &block(big, 3, &simple), &block(big, 2, &obsolete(1, 5))].concat();
        let mut reader = Reader::new(Cursor::new(file)).unwrap();
        let mut seen = Vec::new();
        while reader
            .next(|record| {
                seen.push((
                    record.time,
                    record.link,
                    record.interface,
                    record.data.to_vec(),
                    record.original_len,
                ));
                true
            })
            .unwrap()
            != Step::End
        {}
        assert_eq!(
            seen,
            [
                (0, Some(LinkType::Ethernet), 0, b"plain".to_vec(), 5),
                (3_000_000_000, Some(LinkType::RawIp), 1, b"older".to_vec(), 70),
            ]
        );
        for (wrong, expected) in [
            (block(big, 2, &obsolete(1, 50)), "claims more than it holds"),
            (block(big, 2, &obsolete(2, 5)), "of interface 2, but its section describes 2"),
            (block(big, 2, b"short"), "fewer than 20 bytes"),
        ] {
            let file = [&head[..], &block(big, 3, &simple), &wrong].concat();
            let (packets, error) = read(Reader::new(Cursor::new(file)).unwrap());
            assert_eq!(packets.len(), 1);
            let error = error.unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

/// Real captures, if there are any: all files below `NETBRICKS_CAPTURES`, or `../shared/captures` beside the
/// checkout.
fn captures() -> Vec<PathBuf> {
    let root = std::env::var_os("NETBRICKS_CAPTURES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures"),
        PathBuf::from,
    );
    let (mut folders, mut files) = (vec![root], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.extension().and_then(|end| end.to_str()) {
                _ if path.is_dir() => folders.push(path),
                Some("pcap" | "pcapng" | "cap" | "gz") => files.push(path),
                _ => {}
            }
        }
    }
    files
}

/// The answer of `capinfos`: the number of packets, and whether it could read to the end.
///
/// `None` where it is not installed.
fn counted(path: &Path) -> Option<(usize, bool)> {
    let output =
        std::process::Command::new("capinfos").args(["-c", "-M", "-T", "-r"]).arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let count = text.split_whitespace().last()?.parse().ok()?;
    Some((count, output.status.success()))
}

#[test]
fn real_captures_are_read_to_the_last_packet() {
    let files = captures();
    if files.is_empty() {
        eprintln!("skipped: no captures; NETBRICKS_CAPTURES names their folder");
    }
    let pool = pool();
    for path in files {
        let reader = match Reader::new(File::open(&path).unwrap()) {
            Ok(reader) => reader,
            // The only error that is allowed in a capture that other programs read.
            Err(error) => {
                assert!(error.problem.contains("link type"), "{}: {error}", path.display());
                continue;
            }
        };
        let (packets, error) = read(reader);
        match counted(&path) {
            Some((count, true)) => {
                assert_eq!((packets.len(), &error), (count, &None), "{}", path.display());
            }
            _ => eprintln!("{}: not compared: capinfos is missing or cannot read it", path.display()),
        }
        // Also through a graph: all packets arrive or are counted, the same at every batch size.
        let directory = Directory::new("real-captures");
        let cx =
            crate::OpenContext { directory: path.parent().unwrap().into(), ..context(&pool, &directory) };
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut first = None;
        for burst in BURSTS {
            let mut from = open("pcap", &format!("read = '{name}'"), &cx).unwrap();
            let to_cx = context(&pool, &directory);
            let mut to = open("pcap", "write = 'out.pcapng'", &to_cx).unwrap();
            let totals = forward(from.as_mut(), to.as_mut(), &pool, burst);
            assert_eq!(totals.received.packets, packets.len() as u64, "{name}");
            assert_eq!(from.failure().is_some(), error.is_some());
            to.close().unwrap();
            let (out, _) = read(Reader::new(File::open(directory.0.join("out.pcapng")).unwrap()).unwrap());
            assert_eq!(out.len() as u64, totals.sent.packets);
            let frames: Vec<_> = out.into_iter().map(|(_, frame)| frame).collect();
            assert!(first.get_or_insert_with(|| frames.clone()) == &frames, "{name}, burst {burst}");
        }
    }
}

#[test]
fn the_declared_snap_length_is_the_longest() {
    assert_eq!(PcapSettings::default().snap_length, write::SNAP_LENGTH);
}
