//! The changes that an operator made: `ipv4.time_to_live 64 → 63, ipv4.header_checksum 0x1f2a → 0x202a`.
//!
//! The longest common sequence of their kinds pairs the headers of both packets. So an inserted or removed header
//! shows as that, and not as a change of everything after it.

use core::fmt;

use super::dissect::{DissectedLayer, Dissection, MOST_LAYERS, dissect};
use super::parts::Part;
use super::show::Shown;

/// The changes from one packet to another, written when it is displayed.
#[derive(Clone, Debug)]
pub struct Difference<'b, 'a> {
    before: Dissection<'b>,
    after: Dissection<'a>,
}

/// One change.
#[derive(Clone, Copy, Debug)]
pub enum Change<'b, 'a> {
    /// A field of a header that both packets have.
    Field {
        /// The header's short name.
        header: &'static str,
        /// Which header of this name it is, from 1, counted in the packet before.
        occurrence: usize,
        /// The option or extension header that holds the field, if one does.
        part: Option<&'static str>,
        /// The field's name.
        field: &'static str,
        /// Its value before.
        before: Shown,
        /// Its value after.
        after: Shown,
    },
    /// Bytes of a header that no field covers: reserved bits, an option's data.
    Bytes {
        /// The header's short name.
        header: &'static str,
        /// Which header of this name it is, from 1, counted in the packet before.
        occurrence: usize,
        /// The option or extension header, if it is one's data.
        part: Option<&'static str>,
    },
    /// A header that only the packet after has.
    Inserted(DissectedLayer<'a>),
    /// A header that only the packet before has.
    Removed(DissectedLayer<'b>),
    /// An option or extension header that only the packet after has.
    PartInserted(&'static str, Part<'a>),
    /// An option or extension header that only the packet before has.
    PartRemoved(&'static str, Part<'b>),
    /// Bytes behind the headers.
    Data {
        /// `"payload"` or `"padding"`.
        what: &'static str,
        /// The first byte that changed, counted from the payload's first.
        offset: usize,
        /// How many of the bytes that both have changed.
        changed: usize,
        /// Bytes before.
        before: usize,
        /// Bytes after.
        after: usize,
    },
}

/// The changes from the Ethernet frame `before` to `after`. Empty text if nothing changed.
///
/// ```
/// use netbricks_packet::{build::ethernet, print::difference};
///
/// let packet = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(b"hi");
/// let before = packet.build()?;
/// let mut after = before.clone();
/// after[14 + 8] -= 1;
/// assert_eq!(difference(&before, &after).to_string(), "ipv4.time_to_live 64 → 63");
/// # Ok::<(), netbricks_packet::build::BuildError>(())
/// ```
pub fn difference<'b, 'a>(before: &'b [u8], after: &'a [u8]) -> Difference<'b, 'a> {
    Difference { before: dissect(before), after: dissect(after) }
}

impl<'b, 'a> Difference<'b, 'a> {
    /// The difference of two packets already taken apart.
    pub fn of(before: Dissection<'b>, after: Dissection<'a>) -> Self {
        Self { before, after }
    }

    /// Whether the frames are equal, byte by byte.
    pub fn is_empty(&self) -> bool {
        self.before.frame() == self.after.frame()
    }

    /// Calls `each` with every change, from the outermost header inwards.
    ///
    /// # Errors
    /// The first error of `each`.
    pub fn each<E>(&self, mut each: impl FnMut(Change<'b, 'a>) -> Result<(), E>) -> Result<(), E> {
        let lengths = self.common();
        let (mut before, mut after) = (self.before.layers().peekable(), self.after.layers().peekable());
        let (mut i, mut j) = (0, 0);
        loop {
            match (before.peek().copied(), after.peek().copied()) {
                (None, None) => break,
                (Some(old), Some(new)) if old.protocol == new.protocol => {
                    let occurrence =
                        self.before.layers().take(i + 1).filter(|l| l.protocol == old.protocol).count();
                    layer(old, new, occurrence, &mut each)?;
                    before.next();
                    after.next();
                    (i, j) = (i + 1, j + 1);
                }
                // Whichever side leaves the longer common sequence goes first.
                (Some(old), new) if new.is_none() || lengths[i + 1][j] >= lengths[i][j + 1] => {
                    each(Change::Removed(*old))?;
                    before.next();
                    i += 1;
                }
                (_, Some(new)) => {
                    each(Change::Inserted(*new))?;
                    after.next();
                    j += 1;
                }
                (Some(_), None) => break,
            }
        }
        for (what, old, new) in [
            ("payload", self.before.payload(), self.after.payload()),
            ("padding", self.before.padding(), self.after.padding()),
        ] {
            if old != new {
                let differs = |(old, new): (&u8, &u8)| old != new;
                let common = old.len().min(new.len());
                each(Change::Data {
                    what,
                    offset: old.iter().zip(new).position(differs).unwrap_or(common),
                    changed: old.iter().zip(new).filter(|pair| differs(*pair)).count(),
                    before: old.len(),
                    after: new.len(),
                })?;
            }
        }
        Ok(())
    }

    /// `[i][j]`: how many headers the rests from `i` and from `j` on have in common, in order.
    fn common(&self) -> [[u8; MOST_LAYERS + 1]; MOST_LAYERS + 1] {
        let mut lengths = [[0; MOST_LAYERS + 1]; MOST_LAYERS + 1];
        let counts = (self.before.layers().count(), self.after.layers().count());
        for (i, old) in (0..counts.0).rev().zip(self.before.layers().rev()) {
            for (j, new) in (0..counts.1).rev().zip(self.after.layers().rev()) {
                lengths[i][j] = if old.protocol == new.protocol {
                    1 + lengths[i + 1][j + 1]
                } else {
                    lengths[i + 1][j].max(lengths[i][j + 1])
                };
            }
        }
        lengths
    }
}

/// The changes within one header.
fn layer<'b, 'a, E>(
    old: &DissectedLayer<'b>,
    new: &DissectedLayer<'a>,
    occurrence: usize,
    each: &mut impl FnMut(Change<'b, 'a>) -> Result<(), E>,
) -> Result<(), E> {
    if old.bytes == new.bytes {
        return Ok(());
    }
    let header = old.name();
    let mut shown = false;
    for ((field, before), (_, after)) in old.fields().zip(new.fields()) {
        if before != after {
            shown = true;
            each(Change::Field { header, occurrence, part: None, field: field.name, before, after })?;
        }
    }
    let (mut olds, mut news) = (old.parts().peekable(), new.parts().peekable());
    loop {
        match (olds.peek().copied(), news.peek().copied()) {
            (None, None) => break,
            (Some(before), Some(after)) if before.name == after.name => {
                olds.next();
                news.next();
                shown |= before.bytes != after.bytes;
                part(header, occurrence, before, after, each)?;
            }
            // An option that comes again further on was preceded by an insertion; otherwise it was removed.
            (Some(before), _) if !news.clone().any(|after| after.name == before.name) => {
                olds.next();
                shown = true;
                each(Change::PartRemoved(header, before))?;
            }
            (_, Some(after)) => {
                news.next();
                shown = true;
                each(Change::PartInserted(header, after))?;
            }
            (Some(before), None) => {
                olds.next();
                shown = true;
                each(Change::PartRemoved(header, before))?;
            }
        }
    }
    if shown { Ok(()) } else { each(Change::Bytes { header, occurrence, part: None }) }
}

fn part<'b, 'a, E>(
    header: &'static str,
    occurrence: usize,
    old: Part<'b>,
    new: Part<'a>,
    each: &mut impl FnMut(Change<'b, 'a>) -> Result<(), E>,
) -> Result<(), E> {
    for ((field, before), (_, after)) in old.fields().zip(new.fields()) {
        if before != after {
            each(Change::Field {
                header,
                occurrence,
                part: Some(old.name),
                field: field.name,
                before,
                after,
            })?;
        }
    }
    let fields_differ = old.fields().zip(new.fields()).any(|((_, before), (_, after))| before != after);
    if old.rest() != new.rest() || (old.bytes != new.bytes && !fields_differ) {
        each(Change::Bytes { header, occurrence, part: Some(old.name) })?;
    }
    Ok(())
}

impl fmt::Display for Change<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |f: &mut fmt::Formatter<'_>, header: &str, occurrence: usize, part: Option<&str>| {
            f.write_str(header)?;
            if occurrence > 1 {
                write!(f, "#{occurrence}")?;
            }
            part.map_or(Ok(()), |part| write!(f, ".{part}"))
        };
        match self {
            Self::Field { header, occurrence, part, field, before, after } => {
                place(f, header, *occurrence, *part)?;
                write!(f, ".{field} {before} → {after}")
            }
            Self::Bytes { header, occurrence, part } => {
                place(f, header, *occurrence, *part)?;
                f.write_str(if part.is_some() {
                    " data changed"
                } else {
                    " bytes outside its fields changed"
                })
            }
            Self::Inserted(layer) => write!(f, "inserted {layer}"),
            Self::Removed(layer) => write!(f, "removed {layer}"),
            Self::PartInserted(header, part) => write!(f, "{header}: inserted {part}"),
            Self::PartRemoved(header, part) => write!(f, "{header}: removed {part}"),
            Self::Data { what, offset, changed, before, after } => {
                if before != after {
                    write!(f, "{what} {before} → {after} bytes")?;
                    return if *changed == 0 {
                        Ok(())
                    } else {
                        write!(f, ", {changed} of them changed from {offset} on")
                    };
                }
                write!(f, "{what}: {changed} bytes changed from {offset} on")
            }
        }
    }
}

impl fmt::Display for Difference<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        self.each(|change| {
            write!(f, "{before}{change}")?;
            before = ", ";
            Ok(())
        })
    }
}
