//! A frame as a tree: every header with every field, option and extension header, then payload and padding.

use core::fmt;

use super::dissect::{Dissection, dissect};
use super::parts::Hex;

/// A frame as a tree of lines, written when it is displayed. The last line ends without a line break.
#[derive(Clone, Debug)]
pub struct Tree<'a> {
    dissection: Dissection<'a>,
}

/// An Ethernet frame as a tree.
///
/// ```
/// use netbricks_packet::{build::ethernet, print::tree};
///
/// let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1000, 53).payload(b"hi").build()?;
/// let text = tree(&frame).to_string();
/// assert!(text.contains("udp at 34, 8 bytes\n  source_port 1000\n  destination_port 53\n"));
/// assert!(text.ends_with("payload at 42, 2 bytes: 6869"));
/// # Ok::<(), netbricks_packet::build::BuildError>(())
/// ```
pub fn tree(frame: &[u8]) -> Tree<'_> {
    Tree { dissection: dissect(frame) }
}

impl<'a> From<Dissection<'a>> for Tree<'a> {
    fn from(dissection: Dissection<'a>) -> Self {
        Self { dissection }
    }
}

impl fmt::Display for Tree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dissection = &self.dissection;
        write!(f, "frame, {} bytes", dissection.frame().len())?;
        for layer in dissection.layers() {
            let quoted = if layer.quoted { "quoted " } else { "" };
            write!(f, "\n{quoted}{} at {}, {} bytes", layer.name(), layer.offset, layer.bytes.len())?;
            for (field, shown) in layer.fields() {
                write!(f, "\n  {} {shown}", field.name)?;
            }
            for part in layer.parts() {
                write!(f, "\n  {part}")?;
            }
        }
        if let Some((at, malformed)) = dissection.malformed() {
            write!(f, "\nmalformed at {at}: {malformed}")?;
        }
        for (name, at, bytes) in [
            ("payload", dissection.payload_offset(), dissection.payload()),
            ("padding", dissection.payload_offset() + dissection.payload().len(), dissection.padding()),
        ] {
            if !bytes.is_empty() {
                write!(f, "\n{name} at {at}, {} bytes: {}", bytes.len(), Hex(bytes))?;
            }
        }
        Ok(())
    }
}
