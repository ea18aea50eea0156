//! Packets that are described in words, for `explain` and `expect`.

use super::error::{Fault, LineError};
use super::lexer::Kind;
use super::parser::Parser;
use super::values::{Domain, bytes, shortened};
use crate::complete::Class;
use crate::field::{FieldId, Kind as FieldKind};
use crate::rule::{Atom, DescribedPacket};

/// The most fields of a packet.
const MOST_FIELDS: usize = 256;

impl Parser<'_> {
    /// A packet: fields with their values, or `hex` and bytes.
    pub(super) fn packet(&mut self) -> Result<DescribedPacket, LineError> {
        self.expects(&[("hex", "the bytes of a frame")]);
        if self.is_word("hex") {
            self.advance(Class::Keyword);
            return self.frame();
        }
        let mut fields: Vec<(FieldId, Atom)> = Vec::new();
        loop {
            if self.is_asked() {
                for field in FieldId::all() {
                    self.expects_one(field.info().name.clone(), crate::complete::summary(field));
                }
            }
            let Some(word) = self.word().filter(|word| !matches!(*word, "accept" | "drop")) else { break };
            let span = self.span();
            let Some(field) = FieldId::named(word) else {
                let hint = Self::nearest_hint(word, FieldId::names().map(|(name, _)| name), || {
                    "`show fields` lists them".to_owned()
                });
                return Err(self.fault(Fault::new(format!("there is no field `{}`", shortened(word)), hint)));
            };
            self.advance(Class::Field);
            let name = &field.info().name;
            let value = self.value_in_packet(field)?;
            // An option may come twice, each other field has one value.
            if !field.info().kind.is_option() && fields.iter().any(|(other, _)| *other == field) {
                return Err(Fault::new(format!("a second value of {name}"), "remove one of them").at(span));
            }
            if fields.len() == MOST_FIELDS {
                let hint = "describe it by `hex` and its bytes";
                return Err(Fault::new("too many fields of a packet", hint).at(span));
            }
            fields.push((field, value));
        }
        if fields.is_empty() {
            let hint = "write fields with their values: `ip-saddr 10.0.0.1 tcp-dport 80`, or `hex` and bytes";
            return Err(self.unexpected("a packet", hint));
        }
        Ok(DescribedPacket::Fields(fields))
    }

    fn value_in_packet(&mut self, field: FieldId) -> Result<Atom, LineError> {
        let info = field.info();
        let Some(domain) = Domain::of(field) else {
            return Err(
                self.unexpected("a field with a value", format!("`{}` has none; remove it", info.name))
            );
        };
        self.expects_values(field);
        self.take(Kind::Equal);
        if domain == Domain::Interface && self.is(Kind::Word) || self.starts_value() {
            return self.atom(domain, &info.name);
        }
        match info.kind {
            FieldKind::ExtensionHeader(_) => Ok(Atom::Number(1)),
            FieldKind::BytesOption { .. } => Ok(Atom::Bytes(Vec::new())),
            kind if kind.is_flag() => Ok(Atom::Number(1)),
            _ => Err(self.unexpected(&format!("a value of {}", info.name), domain.range_of(&info.name))),
        }
    }

    /// The bytes behind `hex`, in words of digits. Colons may stand between them.
    fn frame(&mut self) -> Result<DescribedPacket, LineError> {
        let mut digits = String::new();
        while let Some(word) = self.word().filter(|word| !matches!(*word, "accept" | "drop")) {
            let word = match digits.is_empty() {
                true => word.strip_prefix("0x").or_else(|| word.strip_prefix('x')).unwrap_or(word),
                false => word,
            };
            if !word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':') {
                return Err(
                    self.unexpected("a byte", "write two hexadecimal digits for each: `hex 0200 0000 0001`")
                );
            }
            digits.extend(word.chars().filter(|digit| *digit != ':'));
            self.advance(Class::Value);
        }
        match bytes(&digits) {
            Some(bytes) if !bytes.is_empty() => Ok(DescribedPacket::Frame(bytes)),
            Some(_) => {
                Err(self.unexpected("a byte", "write two hexadecimal digits for each: `hex 0200 0000 0001`"))
            }
            None => Err(self.unexpected("another digit", "each byte has two hexadecimal digits")),
        }
    }
}
