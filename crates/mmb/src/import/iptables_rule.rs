//! A rule as `iptables-save` prints it.

use std::collections::BTreeSet;

use super::condition::{Conditions, Version, condition, interface, states};
use super::{Action, ImportOptions, Language, Nat, Place, Rule};

/// The words of a line; a text in quotes is one. `None` where a quote is not closed.
pub(super) fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let mut word = String::new();
        let mut quote = None;
        let mut end = rest.len();
        let mut characters = rest.char_indices();
        while let Some((at, character)) = characters.next() {
            match (quote, character) {
                (Some(_), '\\') => word.extend(characters.next().map(|(_, next)| next)),
                (Some(open), close) if open == close => quote = None,
                (None, '"' | '\'') => quote = Some(character),
                (None, blank) if blank.is_whitespace() => {
                    end = at;
                    break;
                }
                _ => word.push(character),
            }
        }
        if quote.is_some() {
            return None;
        }
        words.push(word);
        rest = rest.get(end..).unwrap_or_default().trim_start();
    }
    Some(words)
}

/// Facts that are needed to read rules.
pub(super) struct Reader<'a> {
    pub(super) version: Version,
    pub(super) sets: &'a BTreeSet<String>,
    pub(super) options: &'a ImportOptions,
}

/// A rule so far.
struct Parts {
    protocol: Option<u8>,
    /// Alternatives, of which one holds.
    cases: Vec<Conditions>,
    comment: Option<String>,
    log: Option<String>,
    warnings: Vec<String>,
}

impl Parts {
    /// Adds matches, of which one holds.
    fn any(&mut self, texts: &[String]) -> Result<(), String> {
        let matches = texts.iter().map(|text| condition(text)).collect::<Result<Vec<_>, _>>()?;
        let with = |case: &Conditions| -> Vec<Conditions> {
            matches.iter().filter_map(|one| case.clone().with(one.clone())).collect()
        };
        self.cases = self.cases.iter().flat_map(with).collect();
        Ok(())
    }

    fn all(&mut self, text: String) -> Result<(), String> {
        self.any(&[text])
    }

    fn and(&mut self, other: &Conditions) {
        self.cases = self.cases.iter().filter_map(|case| case.and(other)).collect();
    }

    /// The prefix of the fields of the transport protocol.
    fn transport(&self) -> Result<&'static str, String> {
        match self.protocol {
            Some(6) => Ok("tcp"),
            Some(17) => Ok("udp"),
            _ => Err("mmb has ports of TCP and UDP only".into()),
        }
    }
}

/// The words of a rule, from one on.
struct Words<'a> {
    words: &'a [&'a str],
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word
    }
    fn value(&mut self, option: &str) -> Result<&'a str, String> {
        self.next().ok_or_else(|| format!("`{option}` has no value"))
    }
}

impl Reader<'_> {
    /// Reads what stands behind the name of the chain.
    pub(super) fn rule(&self, words: &[&str], place: &Place) -> Rule {
        let mut parts = Parts {
            protocol: None,
            cases: vec![Conditions::of(self.version)],
            comment: None,
            log: None,
            warnings: Vec::new(),
        };
        let mut problem = None;
        let mut words = Words { words, at: 0 };
        let mut action = Action::Nothing;
        let mut is_negated = false;
        while let Some(word) = words.next() {
            if word == "!" {
                is_negated = true;
                continue;
            }
            if matches!(word, "-j" | "--jump" | "-g" | "--goto") {
                match self.action(word.contains('g') && word != "--jump", &mut words, &mut parts) {
                    Ok(found) => action = found,
                    Err((verdict, why)) => {
                        action = verdict;
                        problem = problem.or(Some(why));
                    }
                }
                break;
            }
            if let Err(why) = self.option(word, is_negated, &mut words, &mut parts) {
                problem = problem.or(Some(why));
            }
            is_negated = false;
        }
        if action == Action::Nothing {
            // It counts or logs: no packet goes another way without it.
            parts.log = parts.log.filter(|_| problem.is_none());
            problem = None;
        }
        Rule {
            place: place.clone(),
            cases: parts.cases.into_iter().map(|case| (case, action.clone())).collect(),
            comment: parts.comment,
            log: parts.log,
            problem,
            warnings: parts.warnings,
        }
    }

    fn option(
        &self,
        option: &str,
        is_negated: bool,
        words: &mut Words<'_>,
        parts: &mut Parts,
    ) -> Result<(), String> {
        let not = if is_negated { "! " } else { "" };
        let ip = if self.version == Version::V6 { "ip6" } else { "ip" };
        match option {
            "-m" | "--match" => words.value(option).map(|_| ()),
            "-s" | "--source" | "-d" | "--destination" => {
                let end = if matches!(option, "-s" | "--source") { "saddr" } else { "daddr" };
                // A prefix of all bits is an address.
                let whole = if self.version == Version::V6 { "/128" } else { "/32" };
                let value = words.value(option)?;
                parts.all(format!("{not}{ip}-{end} {}", value.strip_suffix(whole).unwrap_or(value)))
            }
            "--src-range" | "--dst-range" => {
                let end = if option == "--src-range" { "saddr" } else { "daddr" };
                parts.all(format!("{not}{ip}-{end} {}", words.value(option)?))
            }
            "-i" | "--in-interface" | "-o" | "--out-interface" => {
                let field = if matches!(option, "-i" | "--in-interface") { "in" } else { "out" };
                let one = interface(field, words.value(option)?, is_negated)?;
                parts.cases = parts.cases.drain(..).filter_map(|case| case.with(one.clone())).collect();
                Ok(())
            }
            "-p" | "--protocol" => {
                let protocol = protocol(words.value(option)?)?;
                let Some(protocol) = protocol else { return Ok(()) };
                let mut of = Conditions::of(self.version);
                if is_negated {
                    of.not_protocols.push(protocol);
                } else {
                    of = of.with_protocol(protocol);
                    parts.protocol = Some(protocol);
                }
                parts.and(&of);
                Ok(())
            }
            "--comment" => {
                parts.comment = Some(words.value(option)?.to_owned());
                Ok(())
            }
            "--ctstate" | "--state" => {
                let of = state_bits(words.value(option)?)?;
                let states = if is_negated { states::ALL & !of } else { of };
                parts.and(&Conditions { states, ..Conditions::of(self.version) });
                Ok(())
            }
            "-f" | "--fragment" => parts.all(format!("{not}ip-frag-offset > 0")),
            "--mac-source" => parts.all(format!("{not}eth-saddr {}", words.value(option)?)),
            "--match-set" => self.set(not, ip, words, parts),
            _ => self.field(option, not, ip, words, parts),
        }
    }

    fn set(&self, not: &str, ip: &str, words: &mut Words<'_>, parts: &mut Parts) -> Result<(), String> {
        let name = words.value("--match-set")?;
        let end = match words.value("--match-set")? {
            "src" => "saddr",
            "dst" => "daddr",
            other => return Err(format!("`{other}` names no single address")),
        };
        if !self.sets.contains(name) {
            return Err(format!(
                "the set `{name}` is not known: put the output of `ipset save` before the rules"
            ));
        }
        parts.all(format!("{not}{ip}-{end} @{name}"))
    }

    /// Options that compare a field of a header.
    fn field(
        &self,
        option: &str,
        not: &str,
        ip: &str,
        words: &mut Words<'_>,
        parts: &mut Parts,
    ) -> Result<(), String> {
        let ttl = if ip == "ip6" { "ip6-hop-limit" } else { "ip-ttl" };
        match option {
            "--sport" | "--source-port" | "--sports" | "--source-ports" => {
                let field = format!("{}-sport", parts.transport()?);
                parts.all(format!("{not}{field} {}", ports(words.value(option)?)))
            }
            "--dport" | "--destination-port" | "--dports" | "--destination-ports" => {
                let field = format!("{}-dport", parts.transport()?);
                parts.all(format!("{not}{field} {}", ports(words.value(option)?)))
            }
            "--ports" => {
                let (of, value) = (parts.transport()?, ports(words.value(option)?));
                if not.is_empty() {
                    return parts.any(&[format!("{of}-sport {value}"), format!("{of}-dport {value}")]);
                }
                parts.all(format!("! {of}-sport {value}"))?;
                parts.all(format!("! {of}-dport {value}"))
            }
            "--tcp-flags" => {
                let (mask, value) = (flags(words.value(option)?)?, flags(words.value(option)?)?);
                parts.all(format!("{not}tcp-flags x{value:02x}&x{mask:02x}"))
            }
            "--syn" => parts.all(format!("{not}tcp-flags x02&x17")),
            "--tcp-option" => parts.all(format!("{not}tcp-opt {}", words.value(option)?)),
            "--icmp-type" | "--icmpv6-type" => {
                let of = if option == "--icmp-type" { "icmp" } else { "icmp6" };
                let value = words.value(option)?;
                if matches!(value, "any" | "255") && of == "icmp" {
                    return Ok(());
                }
                match value.split_once('/') {
                    Some(_) if !not.is_empty() => {
                        Err("a type and a code that must not be are two rules".into())
                    }
                    Some((kind, code)) => {
                        parts.all(format!("{of}-type {kind}"))?;
                        parts.all(format!("{of}-code {code}"))
                    }
                    None => parts.all(format!("{not}{of}-type {value}")),
                }
            }
            "--ttl-eq" | "--hl-eq" => parts.all(format!("{not}{ttl} {}", words.value(option)?)),
            "--ttl-lt" | "--hl-lt" => parts.all(format!("{ttl} < {}", words.value(option)?)),
            "--ttl-gt" | "--hl-gt" => parts.all(format!("{ttl} > {}", words.value(option)?)),
            "--dscp" => parts.all(format!("{not}{ip}-dscp {}", words.value(option)?)),
            "--dscp-class" => {
                parts.all(format!("{not}{ip}-dscp {}", words.value(option)?.to_ascii_lowercase()))
            }
            "--ecn-ip-ect" => parts.all(format!("{not}{ip}-ecn {}", words.value(option)?)),
            "--ecn-tcp-cwr" => parts.all(format!("{not}tcp-cwr")),
            "--ecn-tcp-ece" => parts.all(format!("{not}tcp-ece")),
            "--length" if ip == "ip" => {
                parts.all(format!("{not}ip-len {}", words.value(option)?.replace(':', "-")))
            }
            other => Err(format!("`{other}` has no translation")),
        }
    }

    /// The action of a rule; where it has no translation, one of the same kind.
    fn action(
        &self,
        is_goto: bool,
        words: &mut Words<'_>,
        parts: &mut Parts,
    ) -> Result<Action, (Action, String)> {
        let name = words.next().unwrap_or_default();
        let rest = words.words.get(words.at..).unwrap_or_default();
        let value = |option: &str| {
            let at = rest.iter().position(|word| *word == option)?;
            rest.get(at + 1).copied()
        };
        let ip = if self.version == Version::V6 { "ip6" } else { "ip" };
        let change = |targets: String| Ok(Action::Change(vec![(Conditions::of(Version::Any), targets)]));
        if is_goto {
            return Ok(Action::Goto(name.to_owned()));
        }
        match name {
            "ACCEPT" => Ok(Action::Accept),
            "DROP" => Ok(Action::Drop),
            "REJECT" => {
                if self.options.target == Language::Mmb {
                    parts
                        .warnings
                        .push("packets are dropped without an answer, where REJECT sends one".into());
                }
                reject_with(value("--reject-with").unwrap_or("port-unreachable"))
                    .map(Action::Reject)
                    .map_err(|why| (Action::Drop, why))
            }
            "RETURN" => Ok(Action::Return),
            "LOG" | "NFLOG" | "ULOG" | "TRACE" => {
                let prefix = value("--log-prefix").or(value("--nflog-prefix")).unwrap_or_default();
                parts.log = Some(prefix.trim_end().to_owned());
                Ok(Action::Nothing)
            }
            "TCPMSS" => self.segment_size(value("--set-mss")),
            "DSCP" => match value("--set-dscp").or(value("--set-dscp-class")) {
                Some(dscp) => change(format!("mod {ip}-dscp {}", dscp.to_ascii_lowercase())),
                None => Err((Action::Change(Vec::new()), "DSCP has no value".into())),
            },
            "TTL" | "HL" => match value("--ttl-set").or(value("--hl-set")) {
                Some(ttl) if ip == "ip" => change(format!("mod ip-ttl {ttl}")),
                Some(limit) => change(format!("mod ip6-hop-limit {limit}")),
                None => Err((
                    Action::Change(Vec::new()),
                    "mmb sets a TTL, and does not count it up or down".into(),
                )),
            },
            "SNAT" => nat(true, value("--to-source"), rest),
            "DNAT" => nat(false, value("--to-destination"), rest),
            "MASQUERADE" => {
                let ports = value("--to-ports").map(str::to_owned);
                Ok(Action::Nat(Nat { is_source: true, address: None, ports }))
            }
            "REDIRECT" | "NETMAP" | "TPROXY" => {
                let of = Nat { is_source: false, address: None, ports: None };
                Err((Action::Nat(of), format!("`{name}` has no translation")))
            }
            "CLASSIFY" | "CONNMARK" | "MARK" | "TOS" | "ECN" | "CT" | "NOTRACK" | "CHECKSUM" | "SET"
            | "TEE" | "SECMARK" | "CONNSECMARK" | "AUDIT" | "TCPOPTSTRIP" => {
                Err((Action::Change(Vec::new()), format!("`{name}` has no translation")))
            }
            "NFQUEUE" | "QUEUE" => Err((Action::Accept, "the decision of a program can't be known".into())),
            chain => Ok(Action::Jump(chain.to_owned())),
        }
    }

    /// `TCPMSS` lowers the option where it is there, and adds it where it is not.
    fn segment_size(&self, set: Option<&str>) -> Result<Action, (Action, String)> {
        let failed = |why: &str| (Action::Change(Vec::new()), why.to_owned());
        let headers = if self.version == Version::V6 { 60 } else { 40 };
        let size = match set {
            Some(size) => size.parse::<u16>().map_err(|_| failed("no size of segments"))?,
            None => match self.options.mtu {
                Some(mtu) => mtu.saturating_sub(headers),
                None => return Err(failed("the path MTU is not known: give it to the import")),
            },
        };
        clamp(size, self.version, true).map_err(|why| failed(&why))
    }
}

/// The changes by which segments are of at most this size.
pub(super) fn clamp(size: u16, version: Version, adds: bool) -> Result<Action, String> {
    let any = || Conditions::of(Version::Any);
    let large = any().with(condition(&format!("tcp-opt-mss > {size}"))?).unwrap_or_else(any);
    let missing = any().with(condition("! tcp-opt-mss")?).unwrap_or_else(any);
    let mut changes = vec![(large, format!("mod tcp-opt-mss {size}"))];
    if adds {
        // RFC 9293, section 3.7.1, and RFC 8200, section 5: sizes that every host takes.
        let default = if version == Version::V6 { 1220 } else { 536 };
        changes.push((missing, format!("add tcp-opt-mss {}", size.min(default))));
    }
    Ok(Action::Change(changes))
}

fn nat(is_source: bool, to: Option<&str>, rest: &[&str]) -> Result<Action, (Action, String)> {
    let of = Nat { is_source, address: None, ports: None };
    if rest.iter().filter(|word| word.starts_with("--to-")).count() != 1 {
        return Err((Action::Nat(of), "it does not have one address or range".into()));
    }
    let Some(to) = to else { return Err((Action::Nat(of), "it has no address".into())) };
    let (address, ports) = address_and_ports(to);
    Ok(Action::Nat(Nat { is_source, address: Some(address), ports }))
}

/// The firewall's words for an answer, by the names of iptables and nftables.
pub(super) fn reject_with(name: &str) -> Result<&'static str, String> {
    let plain = name.trim_start_matches("icmp6-").trim_start_matches("icmp-");
    Ok(match plain {
        "tcp-reset" | "reset" => " with reset",
        "port-unreachable" => " with port",
        "host-unreachable" | "addr-unreachable" => " with host",
        "net-unreachable" | "no-route" => " with route",
        "net-prohibited" | "host-prohibited" | "admin-prohibited" | "adm-prohibited" => " with prohibited",
        other => return Err(format!("the answer `{other}` is not known")),
    })
}

/// `192.0.2.1-192.0.2.9:1024-2047`, or `[2001:db8::1]:80`.
pub(super) fn address_and_ports(text: &str) -> (String, Option<String>) {
    let split = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(address, behind)| (address, behind.strip_prefix(':'))),
        None if text.matches(':').count() == 1 => {
            text.split_once(':').map(|(address, ports)| (address, Some(ports)))
        }
        None => None,
    };
    let (address, ports) = split.unwrap_or((text, None));
    (address.to_owned(), ports.map(str::to_owned))
}

/// The number of a protocol; `None` for all.
pub(super) fn protocol(name: &str) -> Result<Option<u8>, String> {
    Ok(Some(match name {
        "all" | "0" => return Ok(None),
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        "ipv6-icmp" | "icmpv6" | "icmp6" => 58,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "sctp" => 132,
        "dccp" => 33,
        "udplite" => 136,
        "ipv6" => 41,
        "ipencap" | "ipip" => 4,
        "ospf" => 89,
        "igmp" => 2,
        "pim" => 103,
        "vrrp" => 112,
        number => number.parse().map_err(|_| format!("`{number}` is no protocol that is known"))?,
    }))
}

fn state_bits(text: &str) -> Result<u8, String> {
    let mut bits = 0;
    for name in text.split(',') {
        bits |= match name {
            "NEW" => states::NEW,
            "ESTABLISHED" => states::ESTABLISHED,
            "RELATED" => states::RELATED,
            "INVALID" => states::INVALID,
            "UNTRACKED" => states::UNTRACKED,
            other => return Err(format!("mmb does not know the state `{other}` of connections")),
        };
    }
    Ok(bits)
}

/// `80`, `1000:2000`, `:1023`, and several with commas between them.
fn ports(text: &str) -> String {
    let range = |text: &str| match text.split_once(':') {
        Some((low, high)) => {
            let low = if low.is_empty() { "0" } else { low };
            format!("{low}-{}", if high.is_empty() { "65535" } else { high })
        }
        None => text.to_owned(),
    };
    let all: Vec<String> = text.split(',').map(range).collect();
    match &all[..] {
        [one] => one.clone(),
        all => format!("{{{}}}", all.join(", ")),
    }
}

fn flags(text: &str) -> Result<u8, String> {
    let mut bits = 0;
    for name in text.split(',') {
        bits |= match name {
            "FIN" => 1,
            "SYN" => 2,
            "RST" => 4,
            "PSH" => 8,
            "ACK" => 16,
            "URG" => 32,
            "ALL" => 63,
            "NONE" => 0,
            other => return Err(format!("`{other}` is no flag of TCP")),
        };
    }
    Ok(bits)
}
