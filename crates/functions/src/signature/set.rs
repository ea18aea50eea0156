//! A set of rules, ready to match: what each rule needs, and the groups in which rules are looked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use netbricks_core::packet::protocol;

use super::config::SearchEngine;
use super::evaluate::Step;
use super::group::{Group, Index};
use super::language::{
    Action, Bits, Content, DataSize, Flags, FlowOption, Header, Number, Part, Place, Protocol, Rule,
    Threshold,
};
use super::library::Database;

/// The bytes in which a rule is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Looked {
    pub(super) packets: bool,
    pub(super) streams: bool,
}

/// The facts of a rule that events and reports state.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) action: Action,
    pub(super) sid: u32,
    pub(super) gid: u32,
    pub(super) rev: u32,
    pub(super) priority: u8,
    pub(super) msg: String,
    pub(super) classtype: String,
    pub(super) references: Vec<String>,
    /// The line on which it stands.
    pub(super) line: usize,
}

/// A condition on the bits of a flow, and the changes of a match.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BitMasks {
    /// Of each of these, one bit must be set.
    any: [u64; 2],
    /// None of these may be set.
    none: u64,
    set: u64,
    unset: u64,
    toggle: u64,
}

impl BitMasks {
    #[inline]
    pub(super) fn hold(&self, bits: u64) -> bool {
        self.any.iter().all(|any| *any == 0 || bits & any != 0) && bits & self.none == 0
    }
    #[inline]
    pub(super) fn applied(&self, bits: u64) -> u64 {
        ((bits | self.set) & !self.unset) ^ self.toggle
    }
    fn tests(&self) -> bool {
        self.any != [0; 2] || self.none != 0
    }
}

/// A rule, ready to match.
pub(super) struct Signature {
    pub(super) description: Arc<Description>,
    pub(super) header: Header,
    pub(super) steps: Vec<Step>,
    pub(super) looked: Looked,
    pub(super) flow: FlowOption,
    pub(super) bits: BitMasks,
    pub(super) silent: bool,
    pub(super) data_size: Option<DataSize>,
    pub(super) flags: Option<Flags>,
    pub(super) numbers: Vec<Number>,
    pub(super) threshold: Option<Threshold>,
    /// The bytes by which it is looked for, in lower case; empty where there are none.
    pub(super) fast: Vec<u8>,
}

/// All rules, and the groups in which they are looked for.
pub(super) struct RuleSet {
    /// The number of its rules: sets of other rules have other numbers.
    pub(super) number: u64,
    pub(super) engine: SearchEngine,
    /// In the order in which they count.
    pub(super) signatures: Vec<Signature>,
    /// Rules that are switched off, by their place.
    off: Vec<AtomicBool>,
    places: BTreeMap<u32, usize>,
    pub(super) streams: Index,
    pub(super) tcp: Index,
    pub(super) udp: Index,
    pub(super) others: Index,
}

/// The names of flowbits, and their numbers.
#[derive(Default)]
struct Names(BTreeMap<String, u32>);

impl Names {
    fn mask(&mut self, name: &str) -> Option<u64> {
        let next = self.0.len() as u32;
        let number = *self.0.entry(name.to_owned()).or_insert(next);
        1u64.checked_shl(number)
    }
    fn all(&mut self, names: &[String]) -> Option<u64> {
        names.iter().try_fold(0, |mask, name| Some(mask | self.mask(name)?))
    }
}

/// The number of a list of rules for an engine; never 0.
///
/// By it flows know whether their state is of the same list and engine.
fn number_of(rules: &[Rule], engine: SearchEngine) -> u64 {
    // FNV-1a over the rules as they were read.
    let mut number = 0xcbf2_9ce4_8422_2325_u64 ^ engine as u64;
    for rule in rules {
        for byte in format!("{rule:?}").bytes() {
            number = (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    number.max(1)
}

impl RuleSet {
    /// Makes a set of these rules, which the engine looks for.
    ///
    /// # Errors
    /// What is too much, by line.
    pub(super) fn new(rules: &[Rule], engine: SearchEngine) -> Result<Self, Vec<(usize, String)>> {
        let mut names = Names::default();
        let (mut signatures, mut wrong) = (Vec::with_capacity(rules.len()), Vec::new());
        for rule in rules {
            match Signature::new(rule, &mut names) {
                Ok(signature) => signatures.push(signature),
                Err(problem) => wrong.push((rule.line, problem)),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        // A rule that tests bits sees those of the same packet's other rules.
        signatures.sort_by_key(|signature| {
            (signature.bits.tests(), signature.description.action != Action::Pass, signature.description.line)
        });
        let of = |wanted: &dyn Fn(&Signature) -> bool| {
            let here = signatures.iter().enumerate().filter(|(_, signature)| wanted(signature));
            Index::new(here.map(|(place, signature)| (place as u32, signature)), engine).map_err(
                |(place, problem)| {
                    let line = signatures[place as usize].description.line;
                    let others = "with the other rules of its ports";
                    vec![(line, format!("Hyperscan cannot compile this rule's literal {others}: {problem}"))]
                },
            )
        };
        let packets = |number: Option<u8>| {
            move |signature: &Signature| {
                let is = match (signature.header.protocol, number) {
                    (Protocol::Ip | Protocol::Version(_), _) => true,
                    (Protocol::Tcp | Protocol::TcpPackets, Some(protocol::TCP)) => true,
                    (Protocol::Udp, Some(protocol::UDP)) => true,
                    (Protocol::Icmp | Protocol::Sctp, None) => true,
                    // A later fragment has no header of its own.
                    _ => false,
                };
                // Rules about any protocol are looked for in every packet that is in no stream.
                is && (signature.looked.packets || number != Some(protocol::TCP))
            }
        };
        let mut streams = of(&|signature| signature.looked.streams)?;
        let mut tcp = of(&packets(Some(protocol::TCP)))?;
        let mut udp = of(&packets(Some(protocol::UDP)))?;
        let mut others = of(&packets(None))?;
        let indices = [&mut streams, &mut tcp, &mut udp, &mut others];
        let databases = indices.into_iter().flat_map(Index::databases_mut);
        databases.enumerate().for_each(|(number, database)| database.set_number(number));
        Ok(Self {
            number: number_of(rules, engine),
            engine,
            streams,
            tcp,
            udp,
            others,
            off: signatures.iter().map(|_| AtomicBool::new(false)).collect(),
            places: (0..)
                .zip(&signatures)
                .map(|(place, signature)| (signature.description.sid, place))
                .collect(),
            signatures,
        })
    }

    /// The place of the rule with this sid.
    pub(super) fn find(&self, sid: u32) -> Option<usize> {
        self.places.get(&sid).copied()
    }

    /// Whether the rule at this place is switched on.
    #[inline]
    pub(super) fn is_on(&self, place: usize) -> bool {
        !self.off[place].load(Ordering::Relaxed)
    }

    /// Switches the rule at this place on or off. It answers whether that changed anything.
    pub(super) fn switch(&self, place: usize, on: bool) -> bool {
        self.off[place].swap(!on, Ordering::Relaxed) == on
    }

    /// The sids of rules that are switched off.
    pub(super) fn switched_off(&self) -> impl Iterator<Item = u32> + '_ {
        self.places.iter().filter(|(_, place)| !self.is_on(**place)).map(|(sid, _)| *sid)
    }

    /// The group of rules for packets of this protocol and these ports.
    #[inline]
    pub(super) fn packets(&self, number: u8, ports: (u16, u16)) -> &Group {
        match number {
            protocol::TCP => self.tcp.get(ports),
            protocol::UDP => self.udp.get(ports),
            _ => self.others.get(ports),
        }
    }

    /// The databases by which the library searches, by number.
    pub(super) fn databases(&self) -> impl Iterator<Item = &Database> {
        [&self.streams, &self.tcp, &self.udp, &self.others].into_iter().flat_map(Index::databases)
    }

    /// Bytes of memory of all automata.
    pub(super) fn memory(&self) -> usize {
        let regexes = self.signatures.iter().flat_map(|signature| &signature.steps);
        let regexes = regexes.map(|step| if let Step::Pcre(pcre) = step { pcre.regex.memory() } else { 0 });
        let indices = [&self.streams, &self.tcp, &self.udp, &self.others];
        regexes.sum::<usize>() + indices.into_iter().map(Index::memory).sum::<usize>()
    }
}

/// The default of `priority`, as Suricata's.
const PRIORITY: u8 = 3;

impl Signature {
    fn new(rule: &Rule, names: &mut Names) -> Result<Self, String> {
        let Rule { line, action, header, options } = rule;
        let looked = Looked::of(rule)?;
        let bits =
            masks(&options.bits, names).ok_or("the rules have more than 64 names of flowbits: use fewer")?;
        Ok(Self {
            description: Arc::new(Description {
                action: *action,
                sid: options.sid,
                gid: options.gid,
                rev: options.rev,
                priority: options.priority.unwrap_or(PRIORITY),
                msg: options.msg.clone(),
                classtype: options.classtype.clone().unwrap_or_default(),
                references: options.references.clone(),
                line: *line,
            }),
            header: header.clone(),
            steps: options.parts.iter().map(Step::of).collect(),
            looked,
            flow: options.flow,
            bits,
            silent: options.silent,
            data_size: options.data_size,
            flags: options.flags,
            numbers: options.numbers.clone(),
            threshold: options.threshold,
            fast: fast(&options.parts),
        })
    }

    /// Whether it consists of the content by which it is looked for: nothing that follows changes a match.
    #[inline]
    pub(super) fn is_decided_at_once(&self) -> bool {
        matches!(&self.steps[..], [Step::Content(content, _)] if !content.negated)
    }

    /// Whether the side and the state of the flow are those that the rule asks for.
    #[inline]
    pub(super) fn fits(&self, to_server: bool, established: bool) -> bool {
        let FlowOption { side, established: wanted, .. } = self.flow;
        side.is_none_or(|side| (side == super::language::Side::ToServer) == to_server)
            && wanted.is_none_or(|wanted| wanted == established)
    }
}

fn masks(bits: &[Bits], names: &mut Names) -> Option<BitMasks> {
    let mut masks = BitMasks::default();
    for bit in bits {
        match bit {
            Bits::Set(name) => masks.set |= names.mask(name)?,
            Bits::Unset(name) => masks.unset |= names.mask(name)?,
            Bits::Toggle(name) => masks.toggle |= names.mask(name)?,
            Bits::IsNotSet(all) => masks.none |= names.all(all)?,
            Bits::IsSet(all) => {
                let free = masks.any.iter().position(|any| *any == 0)?;
                masks.any[free] = names.all(all)?;
            }
        }
    }
    Some(masks)
}

impl Looked {
    /// A rule about TCP is looked for in the stream, unless it can only be decided in a packet.
    ///
    /// As in Suricata, a rule that counts from the beginning is looked for in each packet, too.
    fn of(rule: &Rule) -> Result<Self, String> {
        let Rule { header, options, .. } = rule;
        let streams =
            header.protocol.is_tcp() || matches!(header.protocol, Protocol::Ip | Protocol::Version(_));
        let undecided = options.parts.iter().find_map(undecided_in_streams);
        let only_packets = options.needs_packet()
            || options.parts.is_empty()
            || header.protocol == Protocol::TcpPackets
            || options.flow.stream == Some(false);
        let only_streams = header.protocol == Protocol::TcpStream || options.flow.stream == Some(true);
        match (streams, undecided) {
            (true, Some(what)) if only_streams => Err(format!(
                "{what} depends on where the stream ends: leave out `only_stream`, or give it `within`"
            )),
            (true, None) if !only_packets => {
                let counts = |part: &Part| {
                    let Part::Content(Content { place, .. }) = part else { return false };
                    matches!(place, Place::Absolute { offset, depth } if *offset > 0 || depth.is_some())
                };
                Ok(Self { streams: true, packets: !only_streams && options.parts.iter().any(counts) })
            }
            _ => Ok(Self { streams: false, packets: true }),
        }
    }
}

/// Why a part cannot be decided in a stream, where it cannot.
fn undecided_in_streams(part: &Part) -> Option<&'static str> {
    match part {
        Part::Content(Content { ends: true, .. }) => Some("`endswith`"),
        Part::Content(Content {
            negated: true,
            place: Place::Absolute { depth: None, .. } | Place::Relative { within: None, .. },
            ..
        }) => Some("a negated content without `depth` or `within`"),
        Part::Pcre(pcre) if pcre.negated => Some("a negated `pcre`"),
        Part::Pcre(pcre) if pcre.regex.looks_for_end => Some("`$` in a `pcre`"),
        Part::DataAt { negated: true, .. } => Some("a negated `isdataat`"),
        _ => None,
    }
}

/// The bytes by which a rule is looked for, in lower case.
///
/// They are those that the rule says; else those of its longest content; else bytes that its expression needs.
fn fast(parts: &[Part]) -> Vec<u8> {
    let contents = parts.iter().filter_map(|part| match part {
        Part::Content(content) if !content.negated => Some(content),
        _ => None,
    });
    let chosen = contents.max_by_key(|content| (content.fast, strength(&content.bytes)));
    if let Some(Content { bytes, fast_part, .. }) = chosen {
        let part = fast_part.map_or(&bytes[..], |(offset, len)| &bytes[offset..offset + len]);
        return part.to_ascii_lowercase();
    }
    let required = parts.iter().filter_map(|part| match part {
        Part::Pcre(pcre) if !pcre.negated => Some(&pcre.regex.required),
        _ => None,
    });
    required.max_by_key(|bytes| bytes.len()).cloned().unwrap_or_default()
}

/// How rarely bytes are expected: their number, and how many of them differ.
fn strength(bytes: &[u8]) -> (usize, usize) {
    let mut different: Vec<u8> = bytes.to_ascii_lowercase();
    different.sort_unstable();
    different.dedup();
    (different.len().min(8) + bytes.len().min(32), bytes.len())
}
