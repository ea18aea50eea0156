//! Fused runs: elements that follow each other on a straight way, done in one pass over a batch.
//!
//! A router's input and output paths are such runs. The elements stay what they are, with names, counters and handlers. A
//! run does to each packet what its elements do one after the other, each by a direct call. Packets that an element does
//! not pass on leave by that element's outputs, before those that pass all; where both can meet again, in their order.

use netbricks_core::buffer::{Batch, Packet};

use super::address::{FixIpSrc, GetIpAddress};
use super::check::CheckIpHeader;
use super::field::{DecIpTtl, DropBroadcasts};
use super::options::IpGwOptions;
use super::strip::Strip;
use crate::element::Element;
use crate::elements::standard::paint::{Paint, PaintTee};
use crate::router::{At, Router};

/// The work of an element with one main way through, on packets in place.
pub(crate) trait Step: Element {
    /// Whether [`act`](Self::act) can do all that is to be done to this batch; asked before any element acts.
    fn fits(&self, _batch: &Batch) -> bool {
        true
    }
    /// Works on a packet. 0 if it passes, else why not: below 32.
    fn act(&self, at: At<'_>, packet: &mut Packet) -> u8;
    /// Takes a packet that does not pass, with what [`act`](Self::act) said.
    fn refuse(&self, _at: At<'_>, _packet: Packet, _verdict: u8) {}
}

/// Bits of a verdict; the number of its step is above them.
const VERDICT: u32 = 5;

/// Classes that follow each other, and what does all their work.
struct Pattern {
    classes: &'static [&'static str],
    /// Does the work of elements to a batch, and passes it on behind the last. `false`: nothing has happened.
    go: fn(&Router, &[usize], &mut Batch) -> bool,
}

macro_rules! pattern {
    ($($place:literal $class:literal $name:ident: $step:ty),+ $(,)?) => {
        Pattern {
            classes: &[$($class),+],
            go: |router, ids, batch| {
                let Some(last) = ids.last() else { return false };
                $(
                    let Some($name) = ids.get($place).and_then(|id| router.element_as::<$step>(*id)) else {
                        return false;
                    };
                )+
                if !(true $(&& $name.fits(batch))+) {
                    return false;
                }
                let act = |packet: &mut Packet| {
                    $(
                        let verdict = $name.act(router.at(ids[$place]), packet);
                        if verdict != 0 {
                            return $place << VERDICT | verdict;
                        }
                    )+
                    0
                };
                let refuse = |packet: Packet, verdict: u8| match verdict >> VERDICT {
                    $($place => $name.refuse(router.at(ids[$place]), packet, verdict & ((1 << VERDICT) - 1)),)+
                    _ => (),
                };
                let meets = |verdict: u8| match verdict >> VERDICT {
                    $($place => router.at(ids[$place]).outputs_meet(),)+
                    _ => false,
                };
                router.at(*last).sift_in_order(batch, act, refuse, meets);
                true
            },
        }
    };
}

/// All patterns; of several that fit, the first is taken.
const PATTERNS: &[Pattern] = &[
    pattern!(
        0 "Paint" paint: Paint,
        1 "Strip" strip: Strip,
        2 "CheckIPHeader" check: CheckIpHeader,
        3 "GetIPAddress" get: GetIpAddress,
    ),
    pattern!(0 "Paint" paint: Paint, 1 "Strip" strip: Strip, 2 "CheckIPHeader" check: CheckIpHeader),
    pattern!(
        0 "Strip" strip: Strip,
        1 "CheckIPHeader" check: CheckIpHeader,
        2 "GetIPAddress" get: GetIpAddress,
    ),
    pattern!(0 "Strip" strip: Strip, 1 "CheckIPHeader" check: CheckIpHeader),
    pattern!(0 "CheckIPHeader" check: CheckIpHeader, 1 "GetIPAddress" get: GetIpAddress),
    pattern!(
        0 "DropBroadcasts" broadcasts: DropBroadcasts,
        1 "PaintTee" tee: PaintTee,
        2 "IPGWOptions" options: IpGwOptions,
        3 "FixIPSrc" fix: FixIpSrc,
        4 "DecIPTTL" ttl: DecIpTtl,
    ),
    pattern!(
        0 "DropBroadcasts" broadcasts: DropBroadcasts,
        1 "IPGWOptions" options: IpGwOptions,
        2 "FixIPSrc" fix: FixIpSrc,
        3 "DecIPTTL" ttl: DecIpTtl,
    ),
    pattern!(0 "IPGWOptions" options: IpGwOptions, 1 "FixIPSrc" fix: FixIpSrc, 2 "DecIPTTL" ttl: DecIpTtl),
    pattern!(0 "FixIPSrc" fix: FixIpSrc, 1 "DecIPTTL" ttl: DecIpTtl),
];

/// Elements of a configuration that are done as one.
pub(crate) struct Run {
    pattern: &'static Pattern,
    ids: Vec<usize>,
}

impl Run {
    /// The run that begins at an element.
    ///
    /// `next` is the element behind another's first output, where that leads to its first input.
    pub(crate) fn at(router: &Router, first: usize, next: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        PATTERNS.iter().find_map(|pattern| {
            let mut ids = vec![first];
            for (place, class) in pattern.classes.iter().enumerate() {
                if router.class(ids[place]) != *class {
                    return None;
                }
                if place + 1 < pattern.classes.len() {
                    ids.push(next(ids[place])?);
                }
            }
            Some(Self { pattern, ids })
        })
    }

    /// Its elements.
    #[cfg(test)]
    pub(crate) fn ids(&self) -> &[usize] {
        &self.ids
    }

    /// Does its work to a batch, which is then empty. `false`: nothing has happened, and the elements must do it.
    #[inline]
    pub(crate) fn go(&self, router: &Router, batch: &mut Batch) -> bool {
        (self.pattern.go)(router, &self.ids, batch)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use netbricks_core::buffer::Batch;
    use netbricks_core::packet::checksum;

    use crate::packet::{Annotated, Kind, place};
    use crate::router::{Capabilities, Router};
    use crate::testing::build_with;

    const ROUTER: &str = "left :: FromDevice(in) -> Paint(1) -> Strip(14) -> check :: CheckIPHeader(INTERFACES 10.0.0.1/24) \
        -> get :: GetIPAddress(16) -> routes :: LinearIPLookup(10.1.0.0/16 0, 0.0.0.0/0 1); \
        check[1] -> bad :: Counter -> ToDevice(bad); \
        right :: FromDevice(out) -> drop :: DropBroadcasts -> tee :: PaintTee(1) -> options :: IPGWOptions(10.0.0.1) \
        -> fix :: FixIPSrc(10.0.0.1) -> ttl :: DecIPTTL -> sent :: Counter -> ToDevice(sent); \
        routes[0] -> near :: Counter -> ToDevice(near); routes[1] -> far :: Counter -> ToDevice(far); \
        tee[1] -> ToDevice(redirect); options[1] -> ToDevice(problem); ttl[1] -> ToDevice(expired); \
        drop[1] -> ToDevice(broadcast)";

    /// Random numbers, the same in each run (SplitMix64).
    struct Random(u64);
    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB) % bound
        }
    }

    /// An IPv4 packet, of which one in a few is odd in some way.
    fn bytes(random: &mut Random, ethernet: usize) -> Vec<u8> {
        let options = if random.below(4) == 0 { random.below(11) as usize * 4 } else { 0 };
        let mut all = vec![0; ethernet + 20 + options + 26];
        let length = (all.len() - ethernet) as u16;
        let ip = &mut all[ethernet..];
        ip[0] = 0x45 + (options / 4) as u8;
        ip[2..4].copy_from_slice(&length.to_be_bytes());
        ip[8] = if random.below(5) == 0 { random.below(2) as u8 } else { 64 };
        ip[9] = 17;
        ip[12..16].copy_from_slice(&[10, 0, 0, random.below(256) as u8]);
        ip[16..20].copy_from_slice(&[10, random.below(3) as u8, 0, random.below(256) as u8]);
        if options > 0 && random.below(4) > 0 {
            // Record route, or a timestamp.
            let (kind, pointer) = if random.below(2) == 0 { (7, 4) } else { (68, 5) };
            ip[20..23].copy_from_slice(&[kind, options as u8, pointer]);
        }
        let header = 20 + options;
        let sum = checksum::internet(&ip[..header]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        if random.below(4) == 0 {
            let place = random.below(header as u64) as usize;
            ip[place] ^= 1 << random.below(8);
        }
        all
    }

    /// Gives random batches to both inputs, and returns what left by each device, and what all handlers read.
    fn outcome(fuses: bool, colours: u64) -> (BTreeMap<String, Vec<Vec<u8>>>, Vec<String>) {
        let run = build_with(ROUTER, Capabilities { devices: true, ..Capabilities::default() });
        let router: Rc<Router> = run.router.expect("it is right");
        router.set_fusing(fuses);
        let (mut random, mut left) = (Random(7), BTreeMap::<String, Vec<Vec<u8>>>::new());
        let devices = router.devices();
        for round in 0..400 {
            let is_input = round % 2 == 0;
            let inlet = router.exactly(if is_input { "left" } else { "right" });
            let inlet = inlet.expect("it is there");
            let mut batch = Batch::new();
            for _ in 0..=random.below(32) {
                let bytes = bytes(&mut random, if is_input { 14 } else { 0 });
                let mut packet = router.surroundings().pool.packet(&bytes).expect("a frame is free");
                if !is_input {
                    packet.set_network(0, 20);
                    packet.set_anno_u8(place::PAINT, random.below(colours) as u8);
                    packet.set_anno_u8(place::FIX_IP_SRC, u8::from(random.below(3) == 0));
                    if random.below(6) == 0 {
                        packet.set_kind(Kind::Broadcast);
                    }
                }
                assert!(batch.push(packet).is_ok());
            }
            router.arrived(batch.len() as u64);
            // Behind the device, which sets annotations.
            router.at(inlet).push_batch(0, &mut batch);
            assert!(batch.is_empty());
            router.take_outbox(|device, packet| {
                let mut seen = packet.data().to_vec();
                seen.extend_from_slice(packet.anno());
                left.entry(devices[device].clone()).or_default().push(seen);
            });
        }
        assert_eq!(router.held(), 0);
        let mut handlers = Vec::new();
        for id in 0..router.len() {
            for handler in router.all_handlers(id).iter().filter(|handler| handler.is_visibly_readable()) {
                let value = router.read_handler(id, &handler.name, "");
                handlers.push(format!("{}.{}: {value:?}", router.name(id), handler.name));
            }
        }
        (left, handlers)
    }

    #[test]
    fn runs_are_those_of_the_router() {
        let run = build_with(ROUTER, Capabilities { devices: true, ..Capabilities::default() });
        let router = run.router.expect("it is right");
        let names: Vec<String> = router
            .runs()
            .iter()
            .flatten()
            .map(|run| run.ids().iter().map(|id| router.class(*id)).collect::<Vec<_>>().join(" "))
            .collect();
        assert!(names.contains(&"Paint Strip CheckIPHeader GetIPAddress".to_owned()), "{names:?}");
        assert!(
            names.contains(&"DropBroadcasts PaintTee IPGWOptions FixIPSrc DecIPTTL".to_owned()),
            "{names:?}"
        );
    }

    #[test]
    fn fused_runs_do_what_their_elements_do() {
        // With many colours, batches without the tee's are frequent.
        for colours in [2, 100] {
            let (fused, plain) = (outcome(true, colours), outcome(false, colours));
            assert_eq!(fused.1, plain.1);
            for (device, packets) in &plain.0 {
                assert_eq!(fused.0.get(device), Some(packets), "{device}");
            }
            assert_eq!(fused.0.len(), plain.0.len());
            for device in ["bad", "near", "far", "sent", "redirect", "problem", "expired", "broadcast"] {
                let count = plain.0.get(device).map_or(0, Vec::len);
                assert!(count > 20, "{device} gets {count} packets");
            }
        }
    }
}
