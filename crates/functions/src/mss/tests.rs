use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::packet::build::Builder;
use netbricks_core::packet::{Ipv4, Ipv6, Tcp, tcp};
use netbricks_core::{DetachedContext, Node, Settings, Worker, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;
use netbricks_testkit::{checksums, kinds, run_configured};

use super::{MssConfig, mss};

fn size(size: u16, add: bool) -> MssConfig {
    MssConfig { size: Some(size), mtu: None, add }
}

/// A segment, from which another can be made with other options.
#[derive(Clone, Debug)]
struct Sketch {
    link: usize,
    v6: bool,
    extended: bool,
    flags: u8,
    /// Kind and data of each option.
    options: Vec<(u8, Vec<u8>)>,
    payload: Vec<u8>,
}

const MSS: u8 = 2;

impl Sketch {
    fn any(random: &mut Random) -> Self {
        use tcp::flags::{ACK, PSH, RST, SYN};
        let mut options: Vec<_> = (0..random.below(6))
            .map(|_| match random.below(6) {
                0 => (1, vec![]),
                1 => (3, vec![7]),
                2 => (4, vec![]),
                3 => (8, random.next().to_be_bytes().to_vec()),
                4 => (34, vec![9; random.below(9)]),
                _ => (254, vec![1; random.below(27)]),
            })
            .collect();
        if random.below(3) > 0 {
            let stated = random.next() as u16 >> random.below(8);
            options.insert(random.below(options.len() + 1), (MSS, stated.to_be_bytes().to_vec()));
        }
        while bytes(&options) > 40 {
            options.pop();
        }
        Self {
            link: random.below(4),
            v6: random.below(2) == 0,
            extended: random.below(2) == 0,
            flags: [SYN, SYN, SYN | ACK, ACK, ACK | PSH, SYN | RST][random.below(6)],
            options,
            payload: vec![b'x'; [0, 0, 1, 30, 333][random.below(5)]],
        }
    }
    fn build(&self) -> Vec<u8> {
        let finish = |tcp: Builder<'static, Tcp>| {
            let tcp = tcp.sequence(7).flags(self.flags);
            let tcp = self.options.iter().fold(tcp, |tcp, (kind, data)| tcp.option(*kind, data));
            tcp.payload(&self.payload).build().unwrap()
        };
        if self.v6 {
            let (from, to) = ("2001:db8::1", "2001:db8::2");
            let ip: Builder<'static, Ipv6> = match self.link {
                0 => ethernet().ipv6(from, to),
                1 => ethernet().vlan(7).ipv6(from, to),
                2 => ethernet().qinq(7, 8).ipv6(from, to),
                _ => ethernet().pppoe(9).ipv6(from, to),
            };
            return finish(if self.extended { ip.hop_by_hop(&[5, 2, 0, 0]).tcp(1, 2) } else { ip.tcp(1, 2) });
        }
        let (from, to) = ("10.0.0.1", "10.0.0.2");
        let ip: Builder<'static, Ipv4> = match self.link {
            0 => ethernet().ipv4(from, to),
            1 => ethernet().vlan(7).ipv4(from, to),
            2 => ethernet().qinq(7, 8).ipv4(from, to),
            _ => ethernet().pppoe(9).ipv4(from, to),
        };
        finish(if self.extended { ip.router_alert().tcp(1, 2) } else { ip.tcp(1, 2) })
    }
    fn opens(&self) -> bool {
        self.flags & tcp::flags::SYN != 0 && self.flags & tcp::flags::RST == 0
    }
    fn stated(&mut self) -> Option<&mut Vec<u8>> {
        self.options.iter_mut().find(|(kind, _)| *kind == MSS).map(|(_, data)| data)
    }
}

fn bytes(options: &[(u8, Vec<u8>)]) -> usize {
    options.iter().map(|(kind, data)| if *kind == 1 { 1 } else { 2 + data.len() }).sum()
}

/// The function as a node, with its counters: lowered, added, passed.
struct Rig {
    node: Box<dyn Node>,
    pool: Pool,
}

impl Rig {
    fn new(config: MssConfig) -> Self {
        let pool = Pool::builder().frames(64).build().unwrap();
        let worker = Worker::new(0, 1, pool.clone());
        let node = compose(&worker, |input| mss(input, &config, &worker)).unwrap();
        Self { node, pool }
    }
    fn pass(&mut self, frame: &[u8]) -> Vec<u8> {
        let (mut batch, mut cx) = (Batch::new(), DetachedContext::new(self.pool.clone()));
        batch.push(self.pool.packet(frame).unwrap()).unwrap();
        self.node.process(0, &mut batch, &mut cx);
        batch.get(0).unwrap().data().to_vec()
    }
    fn counts(&mut self) -> [u64; 3] {
        ["lowered", "added", "passed"].map(|name| {
            let said = self.node.call(&format!("{name}.occupancy"), "").unwrap();
            said.split(' ').next().unwrap().parse().unwrap()
        })
    }
}

/// The output is a segment that its sender would have built, had it known the limit.
#[test]
fn a_segment_is_as_if_its_sender_had_known() {
    let mut random = Random::new(9_293);
    let mut happened = [0; 4];
    for _ in 0..40 {
        let (limit, add) = (48 + random.below(3_000) as u16, random.below(2) == 0);
        let (mut frames, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            let before = Sketch::any(&mut random);
            let mut after = before.clone();
            match after.stated() {
                _ if !before.opens() => {}
                Some(data) if u16::from_be_bytes([data[0], data[1]]) > limit => {
                    *data = limit.to_be_bytes().to_vec();
                    happened[0] += 1;
                }
                None if add => {
                    let least = limit.min(if before.v6 { 1_220 } else { 536 });
                    if bytes(&before.options) <= 36 {
                        after.options.insert(0, (MSS, least.to_be_bytes().to_vec()));
                        happened[1] += 1;
                    } else {
                        happened[2] += 1;
                    }
                }
                _ => happened[3] += 1,
            }
            frames.push(before.build());
            expected.push(after.build());
        }
        let report = run_configured(mss, size(limit, add), frames);
        assert_eq!((report.panics.len(), report.totals.drops.total().packets), (0, 0));
        for (out, expected) in report.out.iter().zip(&expected) {
            assert_eq!(out, expected, "{limit} {add}");
            assert_eq!(checksums::wrong(out), Vec::<String>::new());
        }
    }
    assert!(happened.iter().all(|times| *times > 5), "{happened:?}");
}

#[test]
fn packets_that_cannot_be_changed_pass_and_are_counted() {
    let mut rig = Rig::new(size(1_000, true));
    let v4 = || ethernet().ipv4("10.0.0.1", "10.0.0.2");
    let full = v4().tcp(1, 2).syn().option(34, &[7; 38]).build().unwrap();
    let fragment =
        v4().fragment(0, true).tcp(1, 2).syn().maximum_segment_size(1_460).payload(&[0; 8]).build().unwrap();
    let fragment6 = ethernet()
        .ipv6("2001:db8::1", "2001:db8::2")
        .fragment(0, true, 7)
        .tcp(1, 2)
        .syn()
        .maximum_segment_size(1_460)
        .payload(&[0; 8])
        .build()
        .unwrap();
    let mut lies = v4().tcp(1, 2).syn().option(3, &[7]).build().unwrap();
    lies[55] = 200;
    for (count, frame) in [full, fragment, fragment6, lies].into_iter().enumerate() {
        assert_eq!(rig.pass(&frame), frame);
        assert_eq!(rig.counts(), [0, 0, count as u64 + 1]);
    }
    // The size stands before the option with a wrong length, so it is found.
    let mut said = v4().tcp(1, 2).syn().maximum_segment_size(900).option(3, &[7]).build().unwrap();
    said[59] = 200;
    assert_eq!((rig.pass(&said), rig.counts()), (said, [0, 0, 4]));
    let large = v4().tcp(1, 2).syn().maximum_segment_size(1_001).build().unwrap();
    let small = v4().tcp(1, 2).syn().maximum_segment_size(1_000).build().unwrap();
    assert_eq!((rig.pass(&large), rig.counts()), (small.clone(), [1, 0, 4]));
    assert_eq!((rig.pass(&small), rig.counts()), (small, [1, 0, 4]));
    assert_eq!(rig.pass(&v4().tcp(1, 2).syn().build().unwrap()).len(), 58);
    assert_eq!(rig.counts(), [1, 1, 4]);
}

/// Of several sizes, Linux takes the last and others the first.
#[test]
fn a_second_size_is_lowered_too() {
    let frame = |first, second| {
        let tcp = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2).syn().maximum_segment_size(first);
        tcp.sack_permitted().maximum_segment_size(second).build().unwrap()
    };
    let mut rig = Rig::new(size(1_300, false));
    assert_eq!(rig.pass(&frame(1_000, 1_460)), frame(1_000, 1_300));
    assert_eq!(rig.pass(&frame(9_000, 1_460)), frame(1_300, 1_300));
    assert_eq!(rig.counts(), [2, 0, 0]);
}

#[test]
fn a_size_from_the_mtu_leaves_room_for_each_versions_headers() {
    let mut rig = Rig::new(MssConfig { size: None, mtu: Some(1_492), add: false });
    let v4 = |stated| {
        ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2).syn().maximum_segment_size(stated).build().unwrap()
    };
    let v6 = |stated| {
        let ip = ethernet().ipv6("2001:db8::1", "2001:db8::2");
        ip.tcp(1, 2).syn().maximum_segment_size(stated).build().unwrap()
    };
    assert_eq!((rig.pass(&v4(1_460)), rig.pass(&v6(1_440))), (v4(1_452), v6(1_432)));
}

#[test]
fn other_packets_of_every_kind_pass_untouched() {
    for (name, frame) in kinds::every() {
        let report = run_configured(mss, size(1_300, true), [frame.clone()]);
        match name {
            "runt" => assert_eq!(report.out.len(), 0),
            "tcp v4" => assert_eq!(report.out[0][56..58], 1_300u16.to_be_bytes(), "lowered"),
            "qinq" => assert_eq!(report.out[0].len(), frame.len() + 4, "added"),
            _ => assert_eq!(report.out, [frame], "{name}"),
        }
    }
}

#[test]
fn settings_that_do_not_do_are_named() {
    let said =
        |text| toml::from_str::<MssConfig>(text).unwrap().check().map_err(|refused| refused.to_string());
    assert_eq!(said("size = 1400\nadd = true"), Ok(()));
    assert_eq!(said("mtu = 1280"), Ok(()));
    assert_eq!(said("size = 47").unwrap_err(), "`size` must be 48 to 65,535 bytes, found 47");
    assert_eq!(said("mtu = 107").unwrap_err(), "`mtu` must be 108 to 65,535 bytes, found 107");
    assert_eq!(said("").unwrap_err(), "`size` must be given, or `mtu` in its place, found neither");
    assert_eq!(
        said("size = 1400\nmtu = 1440").unwrap_err(),
        "`mtu` says what `size` says already: leave one of them out"
    );
    assert!(toml::from_str::<MssConfig>("size = 70000").is_err());
    assert!(toml::from_str::<MssConfig>("sizes = 1400").is_err());
}
