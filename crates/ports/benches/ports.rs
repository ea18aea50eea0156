//! The cost of ports without a device: generator, captures, queues in memory. `cargo bench -p
//! netbricks-ports`
//!
//! Quote the figures of `netbricks bench`, which builds its graphs as `run` does.

use std::io::Cursor;
use std::path::PathBuf;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use netbricks_buffer::{Batch, Pool, WorkerSlot};
use netbricks_core::DetachedContext;
use netbricks_ports::memory::Memory;
use netbricks_ports::pcap::{Format, Precision, Reader, Step, Writer};
use netbricks_ports::{Drivers, OpenContext, Port};
use toml::de::DeTable;

const BURST: usize = 32;

fn main() {
    divan::main();
}

fn pool() -> Pool {
    Pool::builder().frames(1_024).build().expect("a small pool fits into memory")
}

/// Settings of a generator that gives packets as fast as possible.
#[derive(Clone, Copy, Debug)]
enum Traffic {
    UdpUniform,
    Imix,
    TcpConversations,
}

impl Traffic {
    fn settings(self) -> &'static str {
        match self {
            Self::UdpUniform => "clock = 'real'\nprotocol = 'udp'",
            Self::Imix => "clock = 'real'\nprotocol = 'udp'\nframe_sizes = 'imix'",
            Self::TcpConversations => "clock = 'real'\nprotocol = 'tcp'\nconversation = true",
        }
    }
}

/// A full batch, made and freed again: the burst of a context outside a graph.
#[divan::bench(args = [Traffic::UdpUniform, Traffic::Imix, Traffic::TcpConversations])]
fn generator(bencher: Bencher, traffic: Traffic) {
    let _slot = WorkerSlot::claim().ok();
    let pool = pool();
    let cx =
        OpenContext { pool: pool.clone(), queues: 1, seed: 1, directory: PathBuf::new(), filters: false };
    let table = DeTable::parse(traffic.settings()).expect("the settings are TOML");
    let drivers = Drivers::standard();
    let driver = drivers.get("generator").expect("it is a standard driver");
    let mut port = driver.open("generator", table, &cx).expect("the settings do");
    let mut queue = port.take_receive(0).expect("there is a first queue");
    let (mut batch, mut cx) = (Batch::new(), DetachedContext::new(pool));
    bencher.counter(ItemsCount::new(cx.burst())).bench_local(|| {
        queue.receive(&mut batch, &mut cx);
        assert_eq!(batch.len(), cx.burst());
        batch.clear();
    });
}

/// A burst from one port to its peer, and no other work.
#[divan::bench]
fn memory_there_and_back(bencher: Bencher) {
    let _slot = WorkerSlot::claim().ok();
    let pool = pool();
    let (mut here, mut there) = Memory::pair(("here", "there"), 1, 1_024);
    let queues = |port: &mut Memory| {
        let receive = port.take_receive(0).expect("there is a first queue");
        (receive, port.take_transmit(0).expect("there is a first queue"))
    };
    let ((mut here_receive, mut here_transmit), (mut there_receive, mut there_transmit)) =
        (queues(&mut here), queues(&mut there));
    let (mut batch, mut cx) = (Batch::new(), DetachedContext::new(pool.clone()));
    assert_eq!(pool.allocate_written_into(&mut batch, BURST, &[0; 60]), BURST);
    bencher.counter(ItemsCount::new(2 * BURST)).bench_local(|| {
        here_transmit.transmit(&mut batch, &mut cx);
        there_receive.receive(&mut batch, &mut cx);
        there_transmit.transmit(&mut batch, &mut cx);
        here_receive.receive(&mut batch, &mut cx);
        assert_eq!(batch.len(), BURST);
    });
}

const RECORDS: usize = 1_000;
const FORMATS: [Format; 2] = [Format::Pcap, Format::Pcapng];

/// Times (ns) and frames of a capture: small, medium and large ones in turn.
fn records() -> Vec<(u64, Vec<u8>)> {
    let record = |number: usize| (number as u64 * 1_000, vec![number as u8; [60, 566, 1_514][number % 3]]);
    (0..RECORDS).map(record).collect()
}

/// A capture's file, removed when this is dropped.
struct Capture(PathBuf);

impl Capture {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("netbricks-bench-{name}-{}", std::process::id())))
    }
    fn write(&self, format: Format, records: &[(u64, Vec<u8>)]) {
        let writer = Writer::create(&self.0, format, Precision::Nanoseconds, 65_535, "lan");
        let mut writer = writer.expect("there is a directory for temporary files");
        for (time, frame) in records {
            writer.write(*time, frame, None).expect("there is room in it");
        }
        writer.finish().expect("there is room in it");
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // If no file was written, there is none to remove.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn bytes(records: &[(u64, Vec<u8>)]) -> BytesCount {
    BytesCount::new(records.iter().map(|(_, frame)| frame.len()).sum::<usize>())
}

/// A whole capture, from its temporary name to its own.
#[divan::bench(args = FORMATS)]
fn pcap_write(bencher: Bencher, format: Format) {
    let (capture, records) = (Capture::new("write"), records());
    bencher
        .counter(ItemsCount::new(RECORDS))
        .counter(bytes(&records))
        .bench_local(|| capture.write(format, &records));
}

/// A whole capture that is in memory.
#[divan::bench(args = FORMATS)]
fn pcap_read(bencher: Bencher, format: Format) {
    let (capture, records) = (Capture::new("read"), records());
    capture.write(format, &records);
    let file = std::fs::read(&capture.0).expect("it was written just now");
    bencher
        .counter(ItemsCount::new(RECORDS))
        .counter(bytes(&records))
        .with_inputs(|| Cursor::new(file.clone()))
        .bench_local_values(|file| {
            let mut reader = Reader::new(file).expect("it is a capture");
            let mut read = 0;
            let seen = |record: netbricks_ports::pcap::Record<'_>| divan::black_box(record.data).len() >= 60;
            while reader.next(seen).expect("it is whole") != Step::End {
                read += 1;
            }
            assert_eq!(read, RECORDS);
        });
}
