//! Options of IP and TCP headers as text, and text as options.

use std::io::Write as _;

/// A text that is read from its front.
struct Cursor<'t> {
    text: &'t [u8],
    place: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.place).copied()
    }
    fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.place + ahead).copied()
    }
    fn is_digit(&self, ahead: usize) -> bool {
        self.peek_at(ahead).is_some_and(|byte| byte.is_ascii_digit())
    }
    fn at_end(&self) -> bool {
        self.place >= self.text.len()
    }
    fn eat(&mut self, word: &str) -> bool {
        let found = self.text[self.place.min(self.text.len())..].starts_with(word.as_bytes());
        if found {
            self.place += word.len();
        }
        found
    }
    /// A decimal, hexadecimal or octal number; the largest where it has more than 32 bits.
    fn number(&mut self) -> Option<u32> {
        let base = match (self.peek(), self.peek_at(1)) {
            (Some(b'0'), Some(b'x' | b'X'))
                if self.peek_at(2).is_some_and(|byte| byte.is_ascii_hexdigit()) =>
            {
                self.place += 2;
                16
            }
            (Some(b'0'), Some(b'0'..=b'7')) => {
                self.place += 1;
                8
            }
            _ => 10,
        };
        self.digits(base)
    }
    fn digits(&mut self, base: u32) -> Option<u32> {
        let begin = self.place;
        let mut value: u32 = 0;
        while let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(base)) {
            value = value.saturating_mul(base).saturating_add(digit);
            self.place += 1;
        }
        (self.place > begin).then_some(value)
    }
    fn byte(&mut self) -> Option<u8> {
        self.number().and_then(|value| u8::try_from(value).ok())
    }
    fn address(&mut self) -> Option<[u8; 4]> {
        let mut bytes = [0; 4];
        for (place, byte) in bytes.iter_mut().enumerate() {
            if place > 0 && !self.eat(".") {
                return None;
            }
            *byte = self.digits(10).and_then(|value| u8::try_from(value).ok())?;
        }
        Some(bytes)
    }
}

/// Which options of TCP a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// All.
    All,
    /// All but timestamps.
    WithoutTime,
    /// Those of selective acknowledgement.
    Sack,
}

impl Choice {
    fn has(self, kind: u8) -> bool {
        match self {
            Self::All => true,
            Self::WithoutTime => kind != 8,
            Self::Sack => matches!(kind, 4 | 5),
        }
    }
    fn has_padding(self) -> bool {
        self == Self::All
    }
}

/// One option at the front of the bytes: its length, or `None` where that lies.
fn length_of(options: &[u8]) -> Option<usize> {
    let length = usize::from(*options.get(1)?);
    (length >= 2 && length <= options.len()).then_some(length)
}

/// A list of options under construction, as text.
struct List<'o> {
    out: &'o mut Vec<u8>,
    begin: usize,
}

impl<'o> List<'o> {
    fn new(out: &'o mut Vec<u8>) -> Self {
        let begin = out.len();
        Self { out, begin }
    }
    fn add(&mut self, text: &str) {
        if self.out.len() > self.begin {
            self.out.push(b';');
        }
        self.out.extend_from_slice(text.as_bytes());
    }
    fn add_unknown(&mut self, option: &[u8]) {
        let mut text = option[0].to_string();
        for (place, byte) in option[2..].iter().enumerate() {
            text.push(if place == 0 { '=' } else { ':' });
            text.push_str(&byte.to_string());
        }
        self.add(&text);
    }
    fn end(self, good: bool) {
        if !good {
            self.out.truncate(self.begin);
            self.out.push(b'?');
        } else if self.out.len() == self.begin {
            self.out.push(b'.');
        }
    }
}

/// Writes options of IP, without padding: `rr{1.0.0.1}+2;ts{5}`; `?` for those that lie, `.` for none.
pub(super) fn write_ip(options: &[u8], out: &mut Vec<u8>) {
    let mut list = List::new(out);
    let mut rest = options;
    let good = loop {
        match rest.first() {
            None | Some(0) => break true,
            Some(1) => rest = &rest[1..],
            Some(&kind) => {
                let Some(length) = length_of(rest) else { break false };
                let (option, after) = rest.split_at(length);
                let text = match kind {
                    7 => route_text("rr", option, true),
                    131 => route_text("lsrr", option, false),
                    137 => route_text("ssrr", option, false),
                    68 => time_text(option),
                    _ => {
                        list.add_unknown(option);
                        rest = after;
                        continue;
                    }
                };
                let Some(text) = text else { break false };
                list.add(&text);
                rest = after;
            }
        }
    };
    list.end(good);
}

fn address_text(bytes: &[u8]) -> String {
    bytes.iter().take(4).map(u8::to_string).collect::<Vec<_>>().join(".")
}

fn route_text(name: &str, option: &[u8], is_record: bool) -> Option<String> {
    let pointer = usize::from(*option.get(2)?);
    if pointer < 4 {
        return None;
    }
    let next = pointer - 1;
    let mut text = format!("{name}{{");
    let mut place = 3;
    let mut separator = "";
    while place + 4 <= option.len() {
        if place == next {
            if is_record {
                break;
            }
            separator = "^";
        }
        text.push_str(separator);
        text.push_str(&address_text(&option[place..]));
        separator = ",";
        place += 4;
    }
    if place == option.len() && place == next && !is_record {
        text.push('^');
    }
    text.push('}');
    if place + 4 <= option.len() && place == next && is_record {
        text.push_str(&format!("+{}", (option.len() - place) / 4));
    }
    Some(text)
}

fn time_text(option: &[u8]) -> Option<String> {
    let (pointer, flags) = (usize::from(*option.get(2)?), *option.get(3)?);
    if pointer < 5 {
        return None;
    }
    let (next, flag) = (pointer - 1, flags & 15);
    let with_address = flag != 0;
    let entry = if (1..=3).contains(&flag) { 8 } else { 4 };
    let mut text = match flag {
        0 => "ts{".to_owned(),
        1 => "ts.ip{".to_owned(),
        3 => "ts.preip{".to_owned(),
        _ => format!("ts.{flag}{{"),
    };
    let mut place = 4;
    let mut separator = "";
    while place + entry <= option.len() {
        if place == next {
            if flag != 3 {
                break;
            }
            separator = "^";
        }
        text.push_str(separator);
        let open = flag == 3 && place + 4 > next;
        if with_address {
            text.push_str(&address_text(&option[place..]));
            if !open {
                text.push('=');
            }
            place += 4;
        }
        if !open {
            let value = option.get(place..place + 4).map_or(0, number_at);
            if value >> 31 != 0 {
                text.push('!');
            }
            text.push_str(&(value & 0x7FFF_FFFF).to_string());
        }
        separator = ",";
        place += 4;
    }
    if place == option.len() && place == next {
        text.push('^');
    }
    text.push('}');
    if place + entry <= option.len() && place == next {
        text.push_str(&format!("+{}", (option.len() - place) / entry));
    }
    if flags >> 4 != 0 {
        text.push_str(&format!("++{}", flags >> 4));
    }
    Some(text)
}

/// The number in the first four bytes.
fn number_at(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// Writes the chosen options of TCP, without padding: `mss1400;sack95-98`; `?` for those that lie, `.` for none.
pub(super) fn write_tcp(options: &[u8], choice: Choice, out: &mut Vec<u8>) {
    let mut list = List::new(out);
    let mut rest = options;
    let good = loop {
        match rest.first() {
            None | Some(0) => break true,
            Some(1) => rest = &rest[1..],
            Some(&kind) => {
                let Some(length) = length_of(rest) else { break false };
                let (option, after) = rest.split_at(length);
                let fits = match kind {
                    2 => length == 4,
                    3 => length == 3,
                    4 => length == 2,
                    5 => length % 8 == 2,
                    8 => length == 10,
                    _ => true,
                };
                if !fits {
                    break false;
                }
                if choice.has(kind) {
                    add_tcp(&mut list, option);
                }
                rest = after;
            }
        }
    };
    list.end(good);
}

fn add_tcp(list: &mut List<'_>, option: &[u8]) {
    match option[0] {
        2 => list.add(&format!("mss{}", u16::from_be_bytes([option[2], option[3]]))),
        3 => list.add(&format!("wscale{}", option[2])),
        4 => list.add("sackok"),
        5 => {
            for block in option[2..].chunks_exact(8) {
                list.add(&format!("sack{}-{}", number_at(block), number_at(&block[4..])));
            }
        }
        8 => list.add(&format!("ts{}:{}", number_at(&option[2..]), number_at(&option[6..]))),
        _ => list.add_unknown(option),
    }
}

/// Writes a length byte and the chosen options of TCP as they are.
pub(super) fn write_tcp_binary(options: &[u8], choice: Choice, out: &mut Vec<u8>) {
    let begin = out.len();
    out.push(0);
    if choice == Choice::All {
        out.extend_from_slice(options);
    } else {
        let mut rest = options;
        while let Some(&kind) = rest.first() {
            match kind {
                0 => break,
                1 => rest = &rest[1..],
                _ => {
                    let Some(length) = length_of(rest) else { break };
                    if choice.has(kind) {
                        out.extend_from_slice(&rest[..length]);
                    }
                    rest = &rest[length..];
                }
            }
        }
    }
    out[begin] = u8::try_from(out.len() - begin - 1).unwrap_or(0);
}

/// Reads options of IP. `None` for a text that means none or too many.
pub(super) fn read_ip(text: &[u8]) -> Option<Vec<u8>> {
    read(text, |from, out| {
        for (name, kind) in [("rr{", 7), ("lsrr{", 131), ("ssrr{", 137)] {
            if from.eat(name) {
                return read_route(from, kind, out);
            }
        }
        if from.eat("ts{") {
            return read_time(from, None, out);
        }
        if from.eat("ts.ip{") {
            return read_time(from, Some(1), out);
        }
        if from.eat("ts.preip{") {
            return read_time(from, Some(3), out);
        }
        if from.eat("ts.") {
            let flag = from.byte().filter(|flag| *flag <= 15)?;
            return if from.eat("{") { read_time(from, Some(flag), out) } else { None };
        }
        read_other(from, out)
    })
}

/// Reads the chosen options of TCP. `None` for a text that means none or too many.
pub(super) fn read_tcp(text: &[u8], choice: Choice) -> Option<Vec<u8>> {
    read(text, |from, out| {
        if choice.has(2) && from.eat("mss") {
            let size = from.number().and_then(|size| u16::try_from(size).ok())?;
            out.extend_from_slice(&[2, 4]);
            out.extend_from_slice(&size.to_be_bytes());
        } else if choice.has(3) && from.eat("wscale") {
            out.extend_from_slice(&[3, 3, from.byte()?]);
        } else if choice.has(4) && from.eat("sackok") {
            out.extend_from_slice(&[4, 2]);
        } else if choice.has(5) && from.eat("sack") {
            let begin = out.len();
            out.extend_from_slice(&[5, 0]);
            loop {
                let first = from.number()?;
                if !from.eat("-") && !from.eat(":") {
                    return None;
                }
                out.extend_from_slice(&first.to_be_bytes());
                out.extend_from_slice(&from.number()?.to_be_bytes());
                // Blocks that follow each other make one option.
                if !from.eat(",sack") {
                    break;
                }
            }
            out[begin + 1] = u8::try_from(out.len() - begin).ok()?;
        } else if choice.has(8) && from.eat("ts") {
            if out.is_empty() {
                out.extend_from_slice(&[1, 1]);
            }
            out.extend_from_slice(&[8, 10]);
            out.extend_from_slice(&from.number()?.to_be_bytes());
            if !from.eat(":") {
                return None;
            }
            out.extend_from_slice(&from.number()?.to_be_bytes());
        } else {
            let before = out.len();
            read_other(from, out)?;
            if !choice.has_padding() && out.len() == before + 1 && out[before] < 2 || choice == Choice::Sack {
                return None;
            }
        }
        Some(())
    })
}

/// Reads a list of options with `one` for each.
fn read(text: &[u8], one: impl Fn(&mut Cursor<'_>, &mut Vec<u8>) -> Option<()>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    if text.is_empty() || text == b"." {
        return Some(out);
    }
    let mut from = Cursor { text, place: 0 };
    loop {
        one(&mut from, &mut out)?;
        if from.at_end() {
            break;
        }
        if !from.eat(",") && !from.eat(";") {
            return None;
        }
    }
    // Padding in front gives way where the options are too long.
    let excess = out.len().saturating_sub(40);
    let padding = out.iter().take(excess).take_while(|byte| **byte == 1).count();
    out.drain(..padding);
    (out.len() <= 40).then_some(out)
}

/// `nop`, `eol`, `98` or `98=1:2`.
fn read_other(from: &mut Cursor<'_>, out: &mut Vec<u8>) -> Option<()> {
    if from.eat("nop") {
        out.push(1);
    } else if from.eat("eol") {
        // The list's end takes no comma behind it.
        if from.peek() == Some(b',') {
            return None;
        }
        out.push(0);
    } else if from.is_digit(0) {
        out.push(from.byte()?);
        if from.peek() == Some(b'=') && from.is_digit(1) {
            let begin = out.len();
            out.push(0);
            loop {
                from.place += 1;
                out.push(from.byte()?);
                if from.peek() != Some(b':') || !from.is_digit(1) {
                    break;
                }
            }
            out[begin] = u8::try_from(out.len() - begin + 1).ok()?;
        }
    } else {
        return None;
    }
    Some(())
}

fn read_route(from: &mut Cursor<'_>, kind: u8, out: &mut Vec<u8>) -> Option<()> {
    let begin = out.len();
    out.extend_from_slice(&[kind, 0, 0]);
    let mut pointer = None;
    loop {
        if pointer.is_none() && from.eat("^") {
            pointer = Some(out.len() - begin + 1);
        }
        if !from.is_digit(0) {
            break;
        }
        out.extend_from_slice(&from.address()?);
        from.eat(",");
    }
    if !from.eat("}") {
        return None;
    }
    out[begin + 2] = u8::try_from(pointer.unwrap_or(out.len() - begin + 1)).ok()?;
    if from.peek() == Some(b'+') && from.is_digit(1) {
        from.place += 1;
        add_room(from.digits(10)?, 4, out);
    }
    out[begin + 1] = u8::try_from(out.len() - begin).ok()?;
    Some(())
}

/// Adds room for up to 63 entries.
fn add_room(entries: u32, size: usize, out: &mut Vec<u8>) {
    if entries < 64 {
        out.resize(out.len() + entries as usize * size, 0);
    }
}

fn read_time(from: &mut Cursor<'_>, flag: Option<u8>, out: &mut Vec<u8>) -> Option<()> {
    let begin = out.len();
    out.extend_from_slice(&[68, 0, 0, 0]);
    let mut flag = flag;
    // Entries began with an address though the option did not say so: it is of type 1, or 3 if some are open.
    let mut with_address = matches!(flag, Some(1 | 3));
    let mut pointer = None;
    loop {
        if pointer.is_none() && from.eat("^") {
            pointer = Some(out.len() - begin + 1);
        }
        if !from.is_digit(0) && from.peek() != Some(b'!') {
            break;
        }
        if flag.is_none() && !with_address {
            let entry = from.place;
            from.eat("!");
            from.number()?;
            with_address = from.peek() == Some(b'.');
            if !with_address {
                flag = Some(0);
            }
            from.place = entry;
        }
        if with_address {
            out.extend_from_slice(&from.address()?);
            if pointer.is_some() {
                flag = flag.or(Some(3));
            }
            if from.peek() == Some(b'=') && (from.is_digit(1) || from.peek_at(1) == Some(b'!')) {
                from.place += 1;
            } else if pointer.is_some() && (from.eat("=?") || from.peek() != Some(b'=')) {
                out.extend_from_slice(&[0; 4]);
                from.eat(",");
                continue;
            } else {
                return None;
            }
        }
        let odd = if from.eat("!") { 1 << 31 } else { 0 };
        out.extend_from_slice(&(from.number()? | odd).to_be_bytes());
        from.eat(",");
    }
    if !from.at_end() && !from.eat("}") {
        return None;
    }
    let flag = flag.unwrap_or(u8::from(with_address));
    out[begin + 2] = u8::try_from(pointer.unwrap_or(out.len() - begin + 1)).ok()?;
    if from.peek() == Some(b'+') && from.is_digit(1) {
        from.place += 1;
        add_room(from.number()?, if matches!(flag, 1 | 3) { 8 } else { 4 }, out);
    }
    let mut overflow = 0;
    if from.peek() == Some(b'+') && from.peek_at(1) == Some(b'+') && from.is_digit(2) {
        from.place += 2;
        overflow = from.byte().filter(|overflow| *overflow < 16).unwrap_or(0);
    }
    out[begin + 3] = overflow << 4 | flag;
    out[begin + 1] = u8::try_from(out.len() - begin).ok()?;
    Some(())
}

/// Writes a length byte and options of IP as they are.
pub(super) fn write_ip_binary(options: &[u8], out: &mut Vec<u8>) {
    let options = options.get(..options.len().min(255)).unwrap_or_default();
    // Writing to memory does not fail.
    let _ = out.write_all(&[options.len() as u8]);
    out.extend_from_slice(options);
}
