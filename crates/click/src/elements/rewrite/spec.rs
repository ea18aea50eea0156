//! Specifications of a rewriter's inputs.

use std::rc::Rc;

use super::mapper::is_mapper;
use super::pattern::{Pattern, output_ports};
use crate::language::text;
use crate::router::At;
use crate::value::integer;

/// An input's way with packets of flows that are not known.
#[derive(Clone)]
pub(super) enum Spec {
    /// They end.
    Drop,
    /// They leave by an output as they are.
    Pass(u16),
    /// Their flows keep addresses and ports. Outputs forward and in reply.
    Keep([i32; 2]),
    /// Their flows get what a pattern says.
    Pattern(Rc<Pattern>, [i32; 2]),
    /// Their flows get what another element says.
    Mapper(usize),
}

impl Spec {
    /// Reads the specification of input `number`.
    ///
    /// # Errors
    /// Click's words for the fault.
    pub(super) fn parse(line: &str, number: usize, at: At<'_>) -> Result<Self, String> {
        Self::read(line, at).map_err(|message| format!("input spec {number}: {message}"))
    }

    fn read(line: &str, at: At<'_>) -> Result<Self, String> {
        let (word, rest) = text::next_word(line);
        let word = String::from_utf8_lossy(&text::unquote(&word)).into_owned();
        let rest = rest.trim();
        let in_range = |outputs: [i32; 2]| {
            let good =
                outputs.iter().all(|port| usize::try_from(*port).is_ok_and(|port| port < at.outputs()));
            if good { Ok(outputs) } else { Err("output port out of range".to_owned()) }
        };
        match word.as_str() {
            "" => Err("empty argument".into()),
            "pass" | "passthrough" | "nochange" => {
                let port = if rest.is_empty() { Some(0) } else { integer(rest) };
                let port = port.ok_or("syntax error, expected 'nochange [OUTPUT]'")?;
                let port = u16::try_from(port).ok().filter(|port| usize::from(*port) < at.outputs());
                port.map(Self::Pass).ok_or_else(|| "output port out of range".into())
            }
            "keep" => Ok(Self::Keep(in_range(output_ports(&text::split_words(rest))?)?)),
            "drop" | "discard" if rest.is_empty() => Ok(Self::Drop),
            "drop" | "discard" => Err(format!("syntax error, expected '{word}'")),
            "pattern" | "xpattern" => {
                let (pattern, outputs) = Pattern::parse_with_ports(&text::split_words(rest), at)?;
                Ok(Self::Pattern(pattern, in_range(outputs)?))
            }
            name => match at.router.find(name, at.id) {
                None => Err("unknown specification".into()),
                Some(_) if !rest.is_empty() => Err("syntax error, expected element name".into()),
                Some(id) if is_mapper(at.router.class(id)) => Ok(Self::Mapper(id)),
                Some(_) => Err("element is not an IPMapper".into()),
            },
        }
    }
}

impl std::fmt::Display for Spec {
    /// As Click's handlers write it.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Drop => to.write_str("<drop>"),
            Self::Pass(_) => to.write_str("<nochange>"),
            Self::Keep(_) => to.write_str("<keep>"),
            Self::Pattern(pattern, _) => pattern.fmt(to),
            Self::Mapper(_) => to.write_str("<mapper>"),
        }
    }
}
