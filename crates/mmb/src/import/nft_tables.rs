//! Tables, sets and chains of nftables.

use std::collections::{BTreeMap, BTreeSet};

use super::condition::Version;
use super::emit::define;
use super::nft_lexer::{Token, tokens};
use super::nft_rule::Reader;
use super::{Chain, Hook, ImportOptions, Imported, Language, Place, Table};

/// Reads all tables, and defines their sets.
pub(super) fn read(text: &str, options: &ImportOptions, imported: &mut Imported) -> Vec<Table> {
    let lines: Vec<&str> = text.lines().collect();
    let tokens = tokens(text);
    let mut reading = Reading {
        lines: &lines,
        tokens: &tokens,
        at: 0,
        options,
        imported,
        sets: BTreeMap::new(),
        taken: BTreeSet::new(),
    };
    let mut tables: Vec<Table> = Vec::new();
    while let Some(token) = reading.next() {
        if token.is_end() {
            continue;
        }
        if token.is("table") {
            tables.extend(reading.table());
            continue;
        }
        let place = reading.place(token.line);
        reading.imported.skip(&place, "no line of `nft list ruleset`");
        reading.pass_line();
    }
    tables
}

struct Reading<'a> {
    lines: &'a [&'a str],
    tokens: &'a [Token],
    at: usize,
    options: &'a ImportOptions,
    imported: &'a mut Imported,
    /// The sets of the table, by name: the name that mmb has for each.
    sets: BTreeMap<String, String>,
    /// Names of sets that earlier tables took.
    taken: BTreeSet<String>,
}

impl<'a> Reading<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }
    fn next(&mut self) -> Option<&'a Token> {
        let token = self.peek();
        self.at += 1;
        token
    }
    fn place(&self, line: usize) -> Place {
        let text = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        Place { line, text: text.trim().to_owned() }
    }

    /// Goes behind the end of the line, or of the block that begins in it.
    fn pass_line(&mut self) {
        let mut depth = 0usize;
        while let Some(token) = self.next() {
            if token.is("{") {
                depth += 1;
            } else if token.is("}") {
                depth = depth.saturating_sub(1);
            } else if depth == 0 && token.is_end() {
                return;
            }
        }
    }

    /// The tokens up to the end of a rule; signs within braces do not end it.
    fn statement(&mut self) -> &'a [Token] {
        let start = self.at;
        let mut depth = 0usize;
        while let Some(token) = self.peek() {
            if token.is("{") {
                depth += 1;
            } else if token.is("}") {
                if depth == 0 {
                    break;
                }
                depth -= 1;
            } else if depth == 0 && token.is_end() {
                break;
            }
            self.at += 1;
        }
        self.tokens.get(start..self.at).unwrap_or_default()
    }

    fn table(&mut self) -> Option<Table> {
        let first = self.statement_head();
        let words: Vec<&str> = first.iter().map(|token| token.text.as_str()).collect();
        let (family, name) = match words[..] {
            [name] => ("ip", name),
            [family, name] => (family, name),
            _ => {
                let place = self.place(first.first().map_or(1, |token| token.line));
                self.imported.skip(&place, "no name of a table");
                self.pass_line();
                return None;
            }
        };
        let version = match family {
            "ip" => Version::V4,
            "ip6" => Version::V6,
            "inet" => Version::Ip,
            "bridge" | "netdev" => Version::Any,
            other => {
                let place = self.place(first.first().map_or(1, |token| token.line));
                self.imported
                    .skip(&place, format!("tables of the family `{other}` see no forwarded packets"));
                self.pass_line();
                return None;
            }
        };
        if !self.next()?.is("{") {
            self.at -= 1;
            return None;
        }
        self.taken.extend(self.sets.values().cloned());
        self.sets.clear();
        let mut table = Table { name: format!("{family} {name}"), version, chains: Vec::new() };
        let body = self.at;
        // A chain may name a set that stands behind it.
        self.sets_of(name);
        self.at = body;
        while let Some(token) = self.next() {
            match token.text.as_str() {
                _ if token.is_end() => {}
                "}" => break,
                "chain" => table.chains.extend(self.chain(version)),
                "set" | "comment" | "flags" => self.pass_line(),
                other => {
                    if !matches!(
                        other,
                        "map" | "flowtable" | "counter" | "quota" | "limit" | "ct" | "synproxy"
                    ) {
                        let place = self.place(token.line);
                        self.imported.skip(&place, "no part of a table that is known");
                    }
                    self.pass_line();
                }
            }
        }
        Some(table)
    }

    /// The words up to a brace or the end of the line.
    fn statement_head(&mut self) -> &'a [Token] {
        let start = self.at;
        while self.peek().is_some_and(|token| !token.is_end() && !token.is("{") && !token.is("}")) {
            self.at += 1;
        }
        self.tokens.get(start..self.at).unwrap_or_default()
    }

    /// Reads the sets of a table, up to its end.
    fn sets_of(&mut self, table: &str) {
        while let Some(token) = self.next() {
            if token.is("}") {
                return;
            }
            if token.is("set") {
                self.set(table);
            } else if !token.is_end() {
                self.pass_line();
            }
        }
    }

    fn set(&mut self, table: &str) {
        let head = self.statement_head();
        let [name] = head else { return self.pass_line() };
        let place = self.place(name.line);
        if !self.peek().is_some_and(|token| token.is("{")) {
            return self.pass_line();
        }
        self.at += 1;
        let mut values = Vec::new();
        let mut kind = String::new();
        let mut is_dynamic = false;
        while let Some(token) = self.peek() {
            if token.is("}") {
                self.at += 1;
                break;
            }
            let statement = self.statement();
            match statement {
                [] => self.at += 1,
                [first, rest @ ..] if first.is("type") || first.is("typeof") => {
                    kind = rest.iter().map(|token| token.text.as_str()).collect::<Vec<_>>().join(" ");
                }
                [first, rest @ ..] if first.is("flags") => {
                    is_dynamic = rest.iter().any(|token| token.text == "dynamic" || token.text == "timeout");
                }
                [first, rest @ ..] if first.is("elements") => values = elements(rest),
                _ => {}
            }
        }
        if is_dynamic {
            let warning = "its values change while the firewall runs; mmb has those of the text";
            self.imported.warn(format!("line {}: set {}: {warning}", place.line, name.text));
        }
        self.define(&name.text, table, &kind, &values, &place);
    }

    fn define(&mut self, name: &str, table: &str, kind: &str, values: &[String], place: &Place) {
        if kind.contains(" . ") {
            return self.imported.skip(place, "mmb's sets have single values, and no combinations of fields");
        }
        if values.is_empty() && self.options.target == Language::Mmb {
            return self
                .imported
                .skip(place, "the set has no values yet, and rules that name it are left out");
        }
        let is_taken = self.taken.contains(name) || self.options.sets.contains(name);
        let named = if is_taken { format!("{table}-{name}") } else { name.to_owned() };
        let before = self.imported.lines.len();
        if let Err(why) = define(&named, values, self.options.target, self.imported) {
            self.imported.lines.truncate(before);
            return self.imported.skip(place, why);
        }
        self.sets.insert(name.to_owned(), named);
    }

    fn chain(&mut self, version: Version) -> Option<Chain> {
        let head = self.statement_head();
        let [name] = head else {
            self.pass_line();
            return None;
        };
        if !self.next()?.is("{") {
            return None;
        }
        let mut chain = Chain {
            name: name.text.clone(),
            hook: None,
            is_nat: false,
            priority: 0,
            drops: false,
            place: self.place(name.line),
            rules: Vec::new(),
        };
        while let Some(token) = self.peek() {
            if token.is("}") {
                self.at += 1;
                break;
            }
            let statement = self.statement();
            let Some((first, rest)) = statement.split_first() else {
                self.at += 1;
                continue;
            };
            let line = first.line;
            match (first.text.as_str(), rest.first().map(|token| token.text.as_str())) {
                ("type", Some("filter" | "nat" | "route")) => base(&mut chain, statement),
                ("policy", Some(policy)) => {
                    chain.drops = policy == "drop";
                    chain.place = self.place(line);
                }
                ("comment", _) if rest.len() == 1 => {}
                _ => {
                    let place = self.place(line);
                    let reader = Reader { version, sets: &self.sets, options: self.options };
                    chain.rules.push(reader.rule(statement, &place));
                }
            }
        }
        Some(chain)
    }
}

/// `type filter hook forward priority filter + 10`.
fn base(chain: &mut Chain, statement: &[Token]) {
    let behind = |word: &str| {
        let at = statement.iter().position(|token| token.is(word))?;
        statement.get(at + 1..)
    };
    let first = |tokens: Option<&[Token]>| {
        tokens.and_then(<[Token]>::first).map(|token| token.text.clone()).unwrap_or_default()
    };
    chain.is_nat = first(behind("type")) == "nat";
    chain.hook = Some(match first(behind("hook")).as_str() {
        "forward" | "ingress" => Hook::Forward,
        "prerouting" => Hook::Prerouting,
        "postrouting" => Hook::Postrouting,
        _ => Hook::Other,
    });
    let priority: Vec<&str> =
        behind("priority").unwrap_or_default().iter().map(|token| token.text.as_str()).collect();
    let mut sum = 0i64;
    let mut is_minus = false;
    for word in priority {
        let number = match word {
            "+" | "-" => {
                is_minus = word == "-";
                continue;
            }
            "raw" => -300,
            "mangle" => -150,
            "dstnat" => -100,
            "filter" => 0,
            "security" => 50,
            "srcnat" | "out" => 100,
            number => number.parse::<i32>().map_or(0, i64::from),
        };
        sum += if is_minus { -number } else { number };
    }
    chain.priority = sum;
}

/// The values of a set; times and counters behind them are left out.
fn elements(tokens: &[Token]) -> Vec<String> {
    let inner = tokens.iter().skip_while(|token| !token.is("{")).skip(1);
    let mut values = Vec::new();
    let mut is_first = true;
    for token in inner {
        if token.is("}") {
            break;
        }
        if token.is(",") {
            is_first = true;
        } else if is_first && !token.is("\n") {
            values.push(if token.is_text { format!("\"{}\"", token.text) } else { token.text.clone() });
            is_first = false;
        }
    }
    values
}
