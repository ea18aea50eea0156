//! Keeps TCP segments within the MTU of a path, by lowering the maximum segment size (RFC 4459, section 3.2).
//!
//! Every router before a tunnel or a DSL line does so.

mod config;
#[cfg(test)]
mod tests;

pub use config::MssConfig;

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::TcpRef;
use netbricks_core::packet::tcp_options::{LONGEST, clamp_maximum_segment_size};
use netbricks_core::packet::{Ip, IpRef, Link, Tcp, TcpOption, protocol};
use netbricks_core::{Enclosing, Function, Input, Metadata, Operator, Verdict, Worker};

/// The size that an end assumes without the option, for IPv4 and IPv6 (RFC 9293, section 3.7.1).
///
/// An added option never allows more.
const DEFAULTS: [u16; 2] = [536, 1220];

/// Lowers the maximum segment size of SYN segments to that of `config`, or adds it where `config` says so.
///
/// All other packets pass untouched, and so do segments that cannot be changed.
pub fn mss(input: Input, config: &MssConfig, worker: &Worker) -> impl Function {
    let (sizes, add) = (config.sizes(), config.add);
    let [lowered, added, passed] = ["lowered", "added", "passed"].map(|name| worker.counter(name));
    let refused = passed.clone();
    explain(sizes, add, worker);
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .parse::<Tcp>()
        .or(Verdict::PASS)
        .map(move |packet| {
            let header = packet.header();
            if !header.syn() || header.rst() {
                return Finding::Nothing;
            }
            let version = usize::from(matches!(packet.outer::<Ip>(), IpRef::V6(_)));
            let missing =
                if add { Finding::Missing(sizes[version].min(DEFAULTS[version])) } else { Finding::Nothing };
            find(header, sizes[version], missing)
        })
        .resize(|packet, replace| {
            let finding = *packet.get::<Finding>();
            if matches!(finding, Finding::Nothing | Finding::Unreadable) {
                return;
            }
            let options = packet.header().options_bytes();
            let mut new = [0; 4 + LONGEST];
            let (added, kept) = new.split_at_mut(4);
            let kept = &mut kept[..options.len()];
            kept.copy_from_slice(options);
            match finding {
                Finding::Larger(size) => {
                    clamp_maximum_segment_size(kept, size);
                    replace.options(kept);
                }
                // In front, so that no option with a wrong length hides it.
                Finding::Missing(size) => {
                    let [high, low] = size.to_be_bytes();
                    added.copy_from_slice(&[2, 4, high, low]);
                    let len = 4 + options.len();
                    replace.options(&new[..len]);
                }
                Finding::Nothing | Finding::Unreadable => {}
            }
        })
        .or_else(move |_, _| {
            refused.add(1);
            Err(Verdict::PASS)
        })
        .inspect(move |packet| match packet.get::<Finding>() {
            Finding::Nothing => {}
            Finding::Larger(_) => lowered.add(1),
            Finding::Missing(_) => added.add(1),
            Finding::Unreadable => passed.add(1),
        })
        .done()
}

/// Declares the sentence of a trace about segments whose size changes.
fn explain(sizes: [u16; 2], add: bool, worker: &Worker) {
    worker.explain(move |frame, why| {
        let Some((ip, payload)) = Ip::in_frame(frame) else { return Ok(()) };
        if ip.protocol() != protocol::TCP || ip.is_later_fragment() {
            return Ok(());
        }
        let Ok(found) = Tcp::find(payload, 0) else { return Ok(()) };
        let Some(header) = payload.get(..found.len) else { return Ok(()) };
        let header = Tcp::view(header, ());
        if !header.syn() || header.rst() {
            return Ok(());
        }
        let version = usize::from(matches!(ip, IpRef::V6(_)));
        let stated = header.options().find_map(|option| match option {
            Ok(TcpOption::MaximumSegmentSize(size)) => Some(size),
            _ => None,
        });
        match stated {
            Some(size) if size > sizes[version] => {
                write!(why, "maximum segment size clamped from {size} to {}", sizes[version])
            }
            Some(size) => write!(why, "maximum segment size {size} fits"),
            None if add => write!(why, "no maximum segment size stated: it is added"),
            None => write!(why, "no maximum segment size stated"),
        }
    });
}

/// The change that a segment needs.
#[derive(Clone, Copy)]
enum Finding {
    Nothing,
    /// It states a larger size.
    Larger(u16),
    /// It states no size and needs this one.
    Missing(u16),
    /// It states no size before an option whose length is impossible.
    Unreadable,
}

fn find(header: TcpRef<'_>, size: u16, missing: Finding) -> Finding {
    let mut stated = false;
    for option in header.options() {
        match option {
            Ok(TcpOption::MaximumSegmentSize(larger)) if larger > size => return Finding::Larger(size),
            Ok(TcpOption::MaximumSegmentSize(_)) => stated = true,
            Ok(_) => {}
            Err(_) if !stated => return Finding::Unreadable,
            Err(_) => {}
        }
    }
    if stated { Finding::Nothing } else { missing }
}
