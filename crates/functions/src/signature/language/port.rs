//! Sets of ports: `80`, `[80,8000:8080]`, `!443`, `$HTTP_PORTS`.

use super::variables::{Kind, Term, Variables};
use super::{Reading, shown, wrong};

/// A set of ports, as ranges in order that do not touch; `None` is every port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(in super::super) struct Ports(Option<Box<[(u16, u16)]>>);

impl Ports {
    pub(super) fn read(text: &str, at: usize, variables: &Variables) -> Reading<Self> {
        let mut with = Vec::new();
        let mut without = Vec::new();
        variables.terms(text, at, Kind::Ports, &mut |Term { at, negated, text }| {
            let ranges = if negated { &mut without } else { &mut with };
            ranges.push(range(text, at)?);
            Ok(())
        })?;
        if with.is_empty() {
            with.push((0, u16::MAX));
        }
        let left = subtract(merged(with), &merged(without));
        match left[..] {
            [] => wrong(at, "holds no port: nothing is left of it"),
            [(0, u16::MAX)] => Ok(Self(None)),
            _ => Ok(Self(Some(left.into()))),
        }
    }

    #[inline]
    pub(in super::super) fn holds(&self, port: u16) -> bool {
        let Some(ranges) = &self.0 else { return true };
        let at = ranges.partition_point(|(_, last)| *last < port);
        ranges.get(at).is_some_and(|(first, _)| *first <= port)
    }

    pub(in super::super) fn is_any(&self) -> bool {
        self.0.is_none()
    }

    /// Its ranges; one for every port.
    pub(in super::super) fn ranges(&self) -> &[(u16, u16)] {
        self.0.as_deref().unwrap_or(&[(0, u16::MAX)])
    }
}

fn range(text: &str, at: usize) -> Reading<(u16, u16)> {
    if text == "any" {
        return Ok((0, u16::MAX));
    }
    let number = |text: &str, otherwise: u16| match text.trim() {
        "" => Ok(otherwise),
        text => text.parse::<u16>().map_err(|_| text.to_owned()),
    };
    let read = match text.split_once(':') {
        None => number(text, 0).map(|port| (port, port)),
        Some((first, last)) => number(first, 0).and_then(|first| Ok((first, number(last, u16::MAX)?))),
    };
    match read {
        Ok((first, last)) if first <= last => Ok((first, last)),
        Ok((first, last)) => {
            wrong(at, format!("a range of ports that ends before it begins: `{first}:{last}`"))
        }
        Err(found) => {
            wrong(at, format!("expected a port (0 to 65535) or a range `80:90`, found `{}`", shown(&found)))
        }
    }
}

fn merged(mut ranges: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    ranges.sort_unstable();
    let mut all: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match all.last_mut() {
            Some(before) if u32::from(first) <= u32::from(before.1) + 1 => before.1 = before.1.max(last),
            _ => all.push((first, last)),
        }
    }
    all
}

fn subtract(from: Vec<(u16, u16)>, what: &[(u16, u16)]) -> Vec<(u16, u16)> {
    let mut left = from;
    for (first, last) in what {
        left = left
            .into_iter()
            .flat_map(|(begin, end)| {
                let before = (begin < *first).then(|| (begin, end.min(first.saturating_sub(1))));
                let behind = (end > *last).then(|| (begin.max(last.saturating_add(1)), end));
                before.into_iter().chain(behind)
            })
            .filter(|(begin, end)| begin <= end)
            .collect();
    }
    left
}
