//! Events of matches, and their form in JSON, which is that of Suricata's EVE.

use std::fmt::{self, Write};
use std::sync::Arc;

use netbricks_core::packet::{FlowKey, protocol};
use netbricks_core::write_json_text;

use super::language::Action;
use super::set::Description;

/// A match that is told of.
#[derive(Clone, Debug)]
pub(super) struct Alert {
    pub(super) rule: Arc<Description>,
    /// When (ns since 1970, the graph's clock).
    pub(super) time: u64,
    /// From the sender of the bytes to their receiver.
    pub(super) flow: FlowKey,
    /// Whether it was found in the stream, and not in the packet.
    pub(super) stream: bool,
    /// The position behind the match, in the stream or in the packet's payload.
    pub(super) end: u64,
}

/// Writes an event as one JSON object.
///
/// # Errors
/// Those of the writer.
pub(super) fn write(alert: &Alert, to: &mut dyn Write) -> fmt::Result {
    let Alert { rule, time, flow, stream, end } = alert;
    to.write_str("{\"timestamp\":\"")?;
    write_time(*time, to)?;
    write!(
        to,
        "\",\"event_type\":\"alert\",\"src_ip\":\"{}\",\"dest_ip\":\"{}\"",
        flow.source(),
        flow.destination()
    )?;
    let number = flow.protocol();
    if protocol::has_ports(number) {
        write!(to, ",\"src_port\":{},\"dest_port\":{}", flow.source_port(), flow.destination_port())?;
    }
    match number {
        protocol::TCP => to.write_str(",\"proto\":\"TCP\"")?,
        protocol::UDP => to.write_str(",\"proto\":\"UDP\"")?,
        protocol::ICMP => to.write_str(",\"proto\":\"ICMP\"")?,
        protocol::ICMPV6 => to.write_str(",\"proto\":\"IPv6-ICMP\"")?,
        _ => write!(to, ",\"proto\":\"{number}\"")?,
    }
    let from = if *stream { "stream" } else { "packet" };
    let action = if rule.action == Action::Alert { "allowed" } else { "blocked" };
    write!(
        to,
        ",\"pkt_src\":\"wire/pcap\",\"match\":{{\"in\":\"{from}\",\"end\":{end}}},\"alert\":{{\"action\":\"{action}\""
    )?;
    write!(to, ",\"gid\":{},\"signature_id\":{},\"rev\":{},\"signature\":\"", rule.gid, rule.sid, rule.rev)?;
    write_json_text(to, rule.msg.as_bytes())?;
    to.write_str("\",\"category\":\"")?;
    write_json_text(to, rule.classtype.as_bytes())?;
    write!(to, "\",\"severity\":{}", rule.priority)?;
    if !rule.references.is_empty() {
        to.write_str(",\"references\":[")?;
        for (at, reference) in rule.references.iter().enumerate() {
            to.write_str(if at > 0 { ",\"" } else { "\"" })?;
            write_json_text(to, reference.as_bytes())?;
            to.write_str("\"")?;
        }
        to.write_str("]")?;
    }
    to.write_str("}}")
}

/// Writes nanoseconds since 1970 as `2026-01-31T12:00:00.000001+0000`.
fn write_time(time: u64, to: &mut dyn Write) -> fmt::Result {
    let (seconds, micros) = (time / 1_000_000_000, time % 1_000_000_000 / 1_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The civil calendar from days: the year begins in March, so that a leap day ends it.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    write!(to, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+0000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_civil_calendar() {
        let shown = |seconds: u64| {
            let mut text = String::new();
            write_time(seconds * 1_000_000_000 + 1_234, &mut text).unwrap();
            text
        };
        assert_eq!(shown(0), "1970-01-01T00:00:00.000001+0000");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00.000001+0000");
        assert_eq!(shown(1_772_323_199), "2026-02-28T23:59:59.000001+0000");
        assert_eq!(shown(4_107_542_400), "2100-03-01T00:00:00.000001+0000");
    }
}
