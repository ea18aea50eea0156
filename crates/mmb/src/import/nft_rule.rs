//! A rule of nftables: expressions and statements.

use std::collections::BTreeMap;

use super::condition::{Conditions, Version, condition};
use super::iptables_rule::{address_and_ports, clamp, reject_with};
use super::nft_lexer::Token;
use super::nft_match::{Compared, field, value_text};
use super::{Action, ImportOptions, Language, Nat, Place, Rule};

/// Facts that are needed to read rules.
pub(super) struct Reader<'a> {
    pub(super) version: Version,
    /// Sets of the table: the name that mmb has for each.
    pub(super) sets: &'a BTreeMap<String, String>,
    pub(super) options: &'a ImportOptions,
}

/// The tokens of a rule, and what they said so far.
pub(super) struct Parts<'a> {
    tokens: &'a [Token],
    at: usize,
    cases: Vec<(Conditions, Option<Action>)>,
    action: Option<Action>,
    changes: Vec<(Conditions, String)>,
    comment: Option<String>,
    log: Option<String>,
    warnings: Vec<String>,
}

impl Parts<'_> {
    fn peek(&self) -> Option<&Token> {
        // Line ends within braces have no meaning.
        self.tokens.get(self.at..)?.iter().find(|token| !token.is("\n"))
    }
    pub(super) fn is(&self, text: &str) -> bool {
        self.peek().is_some_and(|token| token.is(text))
    }
    fn next(&mut self) -> Option<Token> {
        while self.tokens.get(self.at).is_some_and(|token| token.is("\n")) {
            self.at += 1;
        }
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }
    pub(super) fn take(&mut self, text: &str) -> bool {
        let found = self.is(text);
        if found {
            self.next();
        }
        found
    }
    pub(super) fn word(&mut self) -> Option<String> {
        self.next().map(|token| value_text(&token))
    }
    fn is_verdict(&self) -> bool {
        ["accept", "drop", "jump", "goto", "return", "continue"].iter().any(|word| self.is(word))
    }

    /// Adds conditions of which one holds.
    fn any(&mut self, of: &[Conditions]) {
        let with = |(case, action): &(Conditions, Option<Action>)| -> Vec<(Conditions, Option<Action>)> {
            of.iter().filter_map(|one| Some((case.and(one)?, action.clone()))).collect()
        };
        self.cases = self.cases.iter().flat_map(with).collect();
    }

    fn verdict(&mut self) -> Result<Action, String> {
        let word = self.word().unwrap_or_default();
        Ok(match word.as_str() {
            "accept" => Action::Accept,
            "drop" => Action::Drop,
            "return" => Action::Return,
            "continue" => Action::Nothing,
            "jump" => Action::Jump(self.word().ok_or("`jump` names no chain")?),
            "goto" => Action::Goto(self.word().ok_or("`goto` names no chain")?),
            other => return Err(format!("`{other}` is no verdict")),
        })
    }
}

impl Reader<'_> {
    /// Reads a rule.
    pub(super) fn rule(&self, tokens: &[Token], place: &Place) -> Rule {
        let mut parts = Parts {
            tokens,
            at: 0,
            cases: vec![(Conditions::of(self.version), None)],
            action: None,
            changes: Vec::new(),
            comment: None,
            log: None,
            warnings: Vec::new(),
        };
        let mut problem = None;
        while parts.peek().is_some() {
            if let Err(why) = self.part(&mut parts) {
                problem = Some(why);
                break;
            }
        }
        if problem.is_some() {
            last_verdict(&mut parts, tokens);
        }
        let mut cases = Vec::new();
        for (case, own) in &parts.cases {
            if !parts.changes.is_empty() {
                cases.push((case.clone(), Action::Change(parts.changes.clone())));
            }
            let action = own.clone().or_else(|| parts.action.clone()).unwrap_or(Action::Nothing);
            cases.push((case.clone(), action));
        }
        if cases.iter().all(|(_, action)| *action == Action::Nothing) && problem.is_some() && !changes(tokens)
        {
            // It counts or logs: no packet goes another way without it.
            parts.log = None;
            problem = None;
        }
        let Parts { comment, log, warnings, .. } = parts;
        Rule { place: place.clone(), cases, comment, log, problem, warnings }
    }

    /// Reads one expression or statement.
    fn part(&self, parts: &mut Parts<'_>) -> Result<(), String> {
        if parts.is_verdict() {
            parts.action = Some(parts.verdict()?);
            return Ok(());
        }
        let word = parts.word().unwrap_or_default();
        match word.as_str() {
            "counter" => {
                if parts.take("packets") {
                    parts.word();
                    parts.take("bytes");
                    parts.word();
                } else if parts.take("name") {
                    parts.word();
                }
                Ok(())
            }
            "comment" => {
                parts.comment = parts.word();
                Ok(())
            }
            "log" => {
                log(parts);
                Ok(())
            }
            "reject" => {
                if self.options.target == Language::Mmb {
                    parts.at = parts.tokens.len();
                    parts.action = Some(Action::Reject(""));
                    let warning = "packets are dropped without an answer, where `reject` sends one";
                    parts.warnings.push(warning.into());
                    return Ok(());
                }
                reject(parts)
            }
            "snat" | "dnat" => nat(word == "snat", parts),
            "masquerade" => {
                let ports =
                    if parts.take("to") { parts.word().map(|word| word.replace(':', "")) } else { None };
                parts.at = parts.tokens.len();
                parts.action = Some(Action::Nat(Nat { is_source: true, address: None, ports }));
                Ok(())
            }
            "redirect" => {
                parts.action = Some(Action::Nat(Nat { is_source: false, address: None, ports: None }));
                Err("`redirect` has no translation".into())
            }
            "iifname" | "iif" | "oifname" | "oif" => self.expression("meta", &word, parts),
            "queue" => {
                parts.action = Some(Action::Accept);
                Err("the decision of a program can't be known".into())
            }
            "ip" | "ip6" | "tcp" | "udp" | "th" | "icmp" | "icmpv6" | "ether" | "vlan" | "arp" | "meta"
            | "ct" => {
                let name = parts.word().unwrap_or_default();
                self.expression(&word, &name, parts)
            }
            other => Err(format!("`{other}` has no translation")),
        }
    }

    /// An expression, from behind its two words.
    fn expression(&self, header: &str, name: &str, parts: &mut Parts<'_>) -> Result<(), String> {
        if parts.is(".") {
            return Err("combinations of fields have no translation".into());
        }
        match (header, name) {
            ("tcp", "option") => return self.option(parts),
            ("tcp", "flags") => {
                let conditions = self.flags(parts)?;
                parts.any(&conditions);
                return Ok(());
            }
            _ => {}
        }
        if parts.take("set") {
            let value = parts.word().unwrap_or_default();
            let Some(field) = field(header, name) else {
                return Err(format!("`{header} {name} set` has no translation"));
            };
            let base = Conditions::of(Version::Any);
            let of = match header {
                "ip" => Conditions::of(Version::V4),
                "ip6" => Conditions::of(Version::V6),
                "tcp" => base.with_protocol(6),
                "udp" => base.with_protocol(17),
                _ => base,
            };
            parts.changes.push((of, format!("mod {field} {value}")));
            return Ok(());
        }
        if parts.take("vmap") {
            return self.verdict_map(header, name, parts);
        }
        let compared = self.compared(parts)?;
        let conditions = self.conditions(header, name, &compared)?;
        parts.any(&conditions);
        Ok(())
    }

    /// A sign, if there is one, and values.
    fn compared(&self, parts: &mut Parts<'_>) -> Result<Compared, String> {
        let mut compared = Compared { sign: "", is_negated: false, values: Vec::new(), named: None };
        if parts.take("!=") {
            compared.is_negated = true;
        } else if !parts.take("==") {
            let signs = ["<=", ">=", "<", ">"];
            compared.sign = signs.into_iter().find(|sign| parts.take(sign)).unwrap_or_default();
        }
        if parts.is("&") || parts.is("(") {
            return Err("masks of this field have no translation".into());
        }
        if parts.take("{") {
            loop {
                let value = parts.word().ok_or("a set is not closed")?;
                compared.values.push(value);
                if parts.is(".") {
                    return Err("combinations of fields have no translation".into());
                }
                if parts.take("}") {
                    return Ok(compared);
                }
                if !parts.take(",") {
                    return Err("values of this set have no translation".into());
                }
                if parts.take("}") {
                    return Ok(compared);
                }
            }
        }
        let value = parts.word().ok_or("a value is missing")?;
        if let Some(name) = value.strip_prefix('@') {
            let own = self.sets.get(name).cloned();
            let given = || self.options.sets.contains(name).then(|| name.to_owned());
            let known = own.or_else(given).ok_or_else(|| format!("the set `{name}` has no translation"))?;
            compared.named = Some(known);
            return Ok(compared);
        }
        compared.values.push(value);
        while parts.take(",") {
            compared.values.push(parts.word().ok_or("a value is missing")?);
        }
        Ok(compared)
    }

    /// `vmap { 22 : accept, 23 : drop }`: a verdict for each value.
    fn verdict_map(&self, header: &str, name: &str, parts: &mut Parts<'_>) -> Result<(), String> {
        if !parts.take("{") {
            return Err("verdict maps by name have no translation".into());
        }
        let mut cases = Vec::new();
        loop {
            let value = parts.word().ok_or("a verdict map is not closed")?;
            if !parts.take(":") {
                return Err("verdict maps of this form have no translation".into());
            }
            let action = parts.verdict()?;
            let compared = Compared { sign: "", is_negated: false, values: vec![value], named: None };
            for one in self.conditions(header, name, &compared)? {
                for (case, _) in &parts.cases {
                    cases.extend(case.and(&one).map(|both| (both, Some(action.clone()))));
                }
            }
            let is_more = parts.take(",");
            if parts.take("}") {
                break;
            }
            if !is_more {
                return Err("a verdict map is not closed".into());
            }
        }
        // Conditions behind a verdict map are not written.
        parts.cases = cases;
        Ok(())
    }

    /// `tcp option maxseg size set 1400`, `tcp option sack-perm exists`.
    fn option(&self, parts: &mut Parts<'_>) -> Result<(), String> {
        let name = parts.word().unwrap_or_default();
        let option = match name.as_str() {
            "maxseg" | "2" => "tcp-opt-mss",
            "window" | "3" => "tcp-opt-wscale",
            "sack-perm" | "sack-permitted" | "4" => "tcp-opt-sackp",
            "sack" | "5" => "tcp-opt-sack",
            "timestamp" | "8" => "tcp-opt-timestamp",
            "fastopen" | "34" => "tcp-opt-fast-open",
            "mptcp" | "30" => "tcp-opt-mptcp",
            other => return Err(format!("the TCP option `{other}` has no translation")),
        };
        let one = |text: String| -> Result<Vec<Conditions>, String> {
            Ok(Conditions::of(self.version).with(condition(&text)?).into_iter().collect())
        };
        if parts.take("exists") {
            let conditions = one(option.to_owned())?;
            parts.any(&conditions);
            return Ok(());
        }
        if parts.take("missing") {
            let conditions = one(format!("! {option}"))?;
            parts.any(&conditions);
            return Ok(());
        }
        if option != "tcp-opt-mss" || !parts.take("size") {
            return Err(format!("the part of the TCP option `{name}` has no translation"));
        }
        if !parts.take("set") {
            let compared = self.compared(parts)?;
            let [value] = &compared.values[..] else {
                return Err("several sizes have no translation".into());
            };
            let sign = if compared.is_negated { "!=" } else { compared.sign };
            let conditions = one(format!("{option} {sign} {value}"))?;
            parts.any(&conditions);
            return Ok(());
        }
        let size = if parts.take("rt") {
            parts.word();
            let mtu = self.options.mtu.ok_or("the path MTU is not known: give it to the import")?;
            mtu.saturating_sub(if self.version == Version::V6 { 60 } else { 40 })
        } else {
            let size = parts.word().unwrap_or_default();
            size.parse().map_err(|_| format!("`{size}` is no size of segments"))?
        };
        if let Action::Change(changes) = clamp(size, self.version, false)? {
            parts.changes.extend(changes);
        }
        Ok(())
    }
}

/// `snat ip to 192.0.2.1:1024-2047`.
fn nat(is_source: bool, parts: &mut Parts<'_>) -> Result<(), String> {
    parts.action = Some(Action::Nat(Nat { is_source, address: None, ports: None }));
    let _ = parts.take("ip") || parts.take("ip6");
    parts.take("to");
    let to = parts.word().ok_or("the address is missing")?;
    let (address, ports) = match to.strip_prefix(':') {
        Some(ports) => (String::new(), Some(ports.to_owned())),
        None => address_and_ports(&to),
    };
    if parts.peek().is_some()
        && !["random", "fully-random", "persistent", "comment"].iter().any(|word| parts.is(word))
    {
        return Err("the translation depends on the packet".into());
    }
    while !parts.is("comment") && parts.peek().is_some() {
        parts.next();
    }
    parts.action = Some(Action::Nat(Nat { is_source, address: Some(address), ports }));
    Ok(())
}

/// `reject with tcp reset`, `reject with icmpx port-unreachable`, `reject with icmp type host-unreachable`.
fn reject(parts: &mut Parts<'_>) -> Result<(), String> {
    parts.action = Some(Action::Drop);
    let mut answer = "port-unreachable".to_owned();
    if parts.take("with") {
        let _ = ["tcp", "icmp", "icmpv6", "icmpx"].iter().any(|family| parts.take(family));
        parts.take("type");
        answer = parts.word().unwrap_or_default();
    }
    parts.action = Some(Action::Reject(reject_with(&answer)?));
    Ok(())
}

/// Reads what `log` says: its prefix counts, and the rest is left out.
fn log(parts: &mut Parts<'_>) {
    parts.log = Some(String::new());
    while let Some(word) = parts.peek().map(value_text) {
        match word.as_str() {
            "prefix" => {
                parts.next();
                parts.log = parts.word().map(|prefix| prefix.trim_end().to_owned());
            }
            "level" | "group" | "snaplen" | "queue-threshold" => {
                parts.next();
                parts.next();
            }
            "flags" => {
                parts.next();
                // `all`, `tcp sequence,options`, `skuid`.
                let is_of_header = parts.is("tcp") || parts.is("ip");
                parts.next();
                if is_of_header {
                    parts.next();
                    while parts.take(",") {
                        parts.next();
                    }
                }
            }
            _ => return,
        }
    }
}

/// Finds the verdict of a rule that is not understood, for the warning.
fn last_verdict(parts: &mut Parts<'_>, tokens: &[Token]) {
    if parts.action.is_some() {
        return;
    }
    let verdicts = [
        ("drop", Action::Drop),
        ("reject", Action::Drop),
        ("accept", Action::Accept),
        ("return", Action::Return),
    ];
    // A map of verdicts that is not translated may drop packets.
    if tokens.iter().any(|token| token.is("vmap")) {
        parts.action = Some(Action::Drop);
        return;
    }
    let found = verdicts.into_iter().find(|(word, _)| tokens.iter().any(|token| token.is(word)));
    parts.action = found.map(|(_, action)| action);
    let chain = tokens.iter().position(|token| token.is("jump") || token.is("goto"));
    if let (None, Some(at)) = (&parts.action, chain) {
        parts.action = Some(Action::Jump(tokens.get(at + 1).map(value_text).unwrap_or_default()));
    }
}

/// Whether a rule writes into packets, decides about them, or is about them otherwise than by counting.
fn changes(tokens: &[Token]) -> bool {
    let words = [
        "set",
        "notrack",
        "synproxy",
        "dup",
        "fwd",
        "tproxy",
        "add",
        "update",
        "delete",
        "flow",
        "reset",
        // Verdicts and values by a map, and statements whose verdicts are not seen.
        "vmap",
        "map",
        "snat",
        "dnat",
        "masquerade",
        "redirect",
        "queue",
        "jump",
        "goto",
    ];
    tokens.iter().any(|token| words.iter().any(|word| token.is(word)))
}
