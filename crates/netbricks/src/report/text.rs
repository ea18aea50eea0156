//! The final report as text: ports, functions, functions' sections, and the conservation law at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use netbricks_core::DropReason;

use super::table::Align::{Left, Right};
use super::{NodeSummary, Summary, Table, counted, recorded, scaled, thousands};
use crate::diagnostic::visible;

/// `"34,081 ttl-expired, 2 malformed"`, most frequent first.
fn reasons(counts: &BTreeMap<&'static str, u64>) -> String {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(name, packets)| (std::cmp::Reverse(**packets), **name));
    sorted
        .iter()
        .map(|(name, packets)| format!("{} {name}", thousands(**packets)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn reasons_or_zero(counts: &BTreeMap<&'static str, u64>) -> String {
    if counts.is_empty() { "0".into() } else { reasons(counts) }
}

fn decimal(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.1}")).unwrap_or_default()
}

fn bytes(number: u64) -> String {
    scaled(number as f64, "B")
}

/// The reason why arrivals are too big for a port, and the remedy.
pub(crate) fn too_big_to_receive() -> String {
    "larger than the largest packet buffer or a block of the port's ring: `large_frames` in [runtime] take up to 64 KiB"
        .into()
}

/// The reason why packets are too big to leave by a port.
pub(crate) fn too_big_to_send(mtu: usize) -> String {
    format!("larger than the port's MTU of {} bytes", thousands(mtu as u64))
}

impl Summary {
    /// The report as text for people.
    pub fn text(&self) -> String {
        let mut parts = vec![self.ports_text()];
        parts.extend(self.functions_text());
        parts.extend(self.tenants_text());
        parts.extend(self.sections.iter().map(|section| {
            // The first column names the row; the others mostly hold numbers.
            let columns = section.section.columns.iter().enumerate();
            let mut table = Table::new(columns.map(|(i, name)| {
                let numeric = section.section.rows.iter().all(|row| {
                    row.get(i).is_none_or(|cell| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
                });
                (name.clone(), if i > 0 && numeric { Right } else { Left })
            }));
            for row in &section.section.rows {
                table.row(row.iter().enumerate().map(|(i, cell)| match cell.parse() {
                    Ok(number) if i > 0 => thousands(number),
                    _ => cell.clone(),
                }));
            }
            let shown = section.section.rows.len() as u64;
            let of = match section.section.of {
                Some(of) if of > shown => format!(": {} of {}", thousands(shown), thousands(of)),
                _ => String::new(),
            };
            let counts = section.section.counts.iter().filter(|(_, count)| **count > 0);
            let counts: String = counts
                .map(|(name, count)| format!(", {} {}", thousands(*count), name.replace('_', " ")))
                .collect();
            let title = format!("{} ({}){of}{counts}", section.section.title, section.node);
            format!("{}\n{}", visible(&title), table.render())
        }));
        parts.extend(recorded::text(&self.nodes));
        parts.extend(self.notes_text());
        parts.push(self.law());
        parts.join("\n")
    }

    fn ports_text(&self) -> String {
        let consumed = self.ports.iter().any(|port| !port.consumed.is_empty());
        // A lone zero is aligned as a number, a list of reasons to the left.
        let reasons_at = if self.ports.iter().all(|port| port.dropped.is_empty()) { Right } else { Left };
        let mut columns = vec![("port", Left), ("received", Right), ("bytes", Right)];
        columns.extend([("sent", Right), ("bytes", Right), ("dropped", reasons_at)]);
        if consumed {
            columns.push(("consumed", Left));
        }
        let mut table = Table::new(columns);
        for port in &self.ports {
            table.row([
                port.name.clone(),
                thousands(port.received),
                bytes(port.received_bytes),
                thousands(port.sent),
                bytes(port.sent_bytes),
                reasons_or_zero(&port.dropped),
                reasons(&port.consumed),
            ]);
        }
        table.render()
    }

    /// The name of an owner: a tenant's, or a dash for the operator.
    fn owner_name(&self, owner: u16) -> String {
        match usize::from(owner).checked_sub(1) {
            None => "-".into(),
            Some(number) => {
                self.tenants.get(number).map_or_else(|| owner.to_string(), |tenant| tenant.tenant.clone())
            }
        }
    }

    /// The tenants' table, where there are tenants.
    fn tenants_text(&self) -> Option<String> {
        if self.tenants.is_empty() {
            return None;
        }
        let all: u64 = self.tenants.iter().map(|tenant| tenant.used_ns).sum();
        let mut table = Table::new([
            ("tenant", Left),
            ("weight", Right),
            ("priority", Right),
            ("ceiling", Right),
            ("time", Right),
            ("share", Right),
            ("slices", Right),
            ("longest", Right),
            ("overruns", Right),
        ]);
        for tenant in &self.tenants {
            table.row([
                tenant.tenant.clone(),
                tenant.weight.to_string(),
                tenant.priority.to_string(),
                tenant.ceiling.map(|of| format!("{} %", f64::from(of) / 10.0)).unwrap_or_default(),
                format!("{:.3} s", tenant.used_ns as f64 / 1e9),
                format!("{:.1} %", tenant.used_ns as f64 * 100.0 / all.max(1) as f64),
                thousands(tenant.slices),
                format!("{:.0} µs", tenant.longest_slice_ns as f64 / 1e3),
                thousands(tenant.overruns),
            ]);
        }
        Some(table.render())
    }

    /// The functions' table: the uses of one function are one row for each owner.
    fn functions_text(&self) -> Option<String> {
        let mut rows: Vec<NodeSummary> = Vec::new();
        for node in self.nodes.iter().filter(|node| node.role == "function") {
            let same = |other: &NodeSummary| other.of == node.of && other.owner == node.owner;
            if rows.iter().any(same) {
                continue;
            }
            let others: Vec<_> =
                self.nodes.iter().filter(|other| same(other) && other.name != node.name).collect();
            rows.push(node.merged(&others));
        }
        if rows.is_empty() {
            return None;
        }
        let created = rows.iter().any(|row| row.created > 0);
        let held = rows.iter().any(|row| row.held > 0);
        let consumed = rows.iter().any(|row| !row.consumed.is_empty());
        let owned = rows.iter().any(|row| row.owner != rows[0].owner);
        let mut columns = vec![("function", Left)];
        columns.extend(owned.then_some(("owner", Left)));
        columns.extend([("in", Right), ("bytes", Right), ("out", Right), ("bytes", Right)]);
        columns.extend(created.then_some(("created", Right)));
        columns.extend(held.then_some(("held", Right)));
        columns.extend([("cycles/packet", Right), ("packets/batch", Right), ("dropped", Left)]);
        columns.extend(consumed.then_some(("consumed", Left)));
        let mut table = Table::new(columns);
        for row in rows {
            let mut cells = vec![row.of.clone()];
            cells.extend(owned.then(|| self.owner_name(row.owner)));
            cells.extend([thousands(row.arrived), bytes(row.bytes.arrived)]);
            cells.extend([thousands(row.left), bytes(row.bytes.left)]);
            cells.extend(created.then(|| thousands(row.created)));
            cells.extend(held.then(|| thousands(row.held)));
            cells.extend([
                decimal(row.cycles_per_packet),
                decimal(row.packets_per_batch),
                reasons(&row.dropped),
                reasons(&row.consumed),
            ]);
            table.row(cells);
        }
        Some(table.render())
    }

    /// Hints from the counters about the configuration or the machine.
    ///
    /// Packets without a buffer, packets of a wrong size, losses before they came here, links that are down.
    pub fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        if self.pool.exhausted > 0 {
            hints.push(format!(
                "a packet buffer was asked for {} times when none that is large enough was free, of {} in all: `frames` \
                 and `large_frames` in [runtime] give more",
                thousands(self.pool.exhausted),
                thousands(self.pool.frames as u64)
            ));
        }
        for port in &self.ports {
            let too_big = |packets: u64, what: &str, why: String| {
                (packets > 0)
                    .then(|| format!("{} dropped as too-big, {why}", counted(packets as usize, what)))
            };
            let mut hint = |text: String| hints.push(format!("{}: {text}", port.name));
            too_big(port.too_big_to_receive, "arrival", too_big_to_receive()).into_iter().for_each(&mut hint);
            too_big(port.too_big_to_send, "packet", too_big_to_send(port.mtu))
                .into_iter()
                .for_each(&mut hint);
            if port.missed > 0 {
                hint(format!(
                    "the kernel missed {} packets before they came here (its ring was full); they are in no other number",
                    thousands(port.missed)
                ));
            }
            if port.bad_checksum > 0 {
                hint(format!("{} arrivals had a wrong checksum", thousands(port.bad_checksum)));
            }
            if port.cut > 0 {
                hint(format!(
                    "of {} arrivals the capture held only the beginning (its snap length)",
                    thousands(port.cut)
                ));
            }
            if port.overlong > 0 {
                hint(format!(
                    "of {} arrivals the capture holds more than it says was on the wire; they count with what it holds",
                    thousands(port.overlong)
                ));
            }
            if let Some(packets) = port.dropped.get("not-ethernet") {
                hint(format!(
                    "{} records are of link types that cannot be made Ethernet (CAN, 802.11, netlink, …)",
                    thousands(*packets)
                ));
            }
            if !matches!(port.link.as_str(), "up" | "") {
                hint(format!("its link is {}", port.link));
            }
        }
        hints
    }

    /// The text outside the tables: hints, warnings of ports, steering, panics, failures.
    ///
    /// Other warnings were shown when they arose.
    fn notes_text(&self) -> Option<String> {
        let mut out = String::new();
        // Writing to a String cannot fail.
        for hint in self.hints() {
            let _ = writeln!(out, "{hint}");
        }
        for port in &self.ports {
            for warning in &port.warnings {
                let _ = writeln!(out, "{}: {}", port.name, visible(warning));
            }
            if port.steered {
                let queues = port.queues.iter().enumerate();
                let queues: Vec<_> = queues
                    .map(|(queue, packets)| format!("{} at queue {queue}", thousands(*packets)))
                    .collect();
                let by = port.filtered_by.as_ref().map_or_else(
                    || "steered".to_owned(),
                    |by| format!("steered by filters of the graph, in {by}"),
                );
                let _ = writeln!(out, "{}: {by}: {}", port.name, queues.join(", "));
            }
            let line = [
                ("duplicated", port.duplicated),
                ("reordered", port.reordered),
                ("corrupted", port.corrupted),
            ];
            if line.iter().any(|(_, packets)| *packets > 0) {
                let line: BTreeMap<_, _> = line.into_iter().filter(|(_, packets)| *packets > 0).collect();
                let _ = writeln!(out, "{}: its line: {}", port.name, reasons(&line));
            }
        }
        for panic in &self.panics {
            let place = panic.place.as_deref().unwrap_or("an unknown place");
            let times =
                if panic.count == 1 { String::new() } else { format!(", {} times", thousands(panic.count)) };
            let state = if panic.rebuilt { ", its state was rebuilt" } else { "" };
            let _ = writeln!(
                out,
                "panic: `{}` at {}: {} ({} packets lost{times}{state})",
                panic.node,
                visible(place),
                visible(&panic.message),
                thousands(panic.packets)
            );
        }
        for failure in &self.failures {
            let _ = writeln!(out, "error: {}", visible(failure));
        }
        (!out.is_empty()).then_some(out)
    }

    /// The conservation law, with this run's numbers.
    pub fn law(&self) -> String {
        let dropped = self.dropped_in_all();
        let consumed = match self.consumed {
            0 => String::new(),
            consumed => format!(" + {} consumed", thousands(consumed)),
        };
        let law = format!(
            "{} received + {} created = {} sent + {} dropped{consumed} + {} held",
            thousands(self.received),
            thousands(self.created),
            thousands(self.sent),
            thousands(dropped),
            thousands(self.held)
        );
        if self.running {
            let (came, went) =
                (self.received + self.created, self.sent + dropped + self.consumed + self.held);
            return format!("{}   so far\n", law.replacen('=', "≈", usize::from(came != went)));
        }
        if self.conserved {
            // They tell of how this run is set up, and not of the network.
            let sizes = match self.dropped.get(DropReason::TooBig.name()) {
                Some(packets) => format!("; {} dropped for their size", thousands(*packets)),
                None => String::new(),
            };
            return format!("{law}   every packet accounted for{sizes}\n");
        }
        let (came, went) = (self.received + self.created, self.sent + dropped + self.consumed + self.held);
        let wrong = law.replacen('=', "≠", usize::from(came != went));
        let nodes = match self.unbalanced.as_slice() {
            [] => String::new(),
            nodes => format!(" (at {})", nodes.join(", ")),
        };
        format!("{wrong}   NOT accounted for: {} packets{nodes}\n", thousands(came.abs_diff(went)))
    }
}

#[cfg(test)]
mod tests {
    use netbricks_core::{NodeCounters, Role};

    use super::super::PoolSummary;
    use super::super::PortSummary;
    use super::*;

    #[test]
    fn the_report_of_the_north_star() {
        let mut ttl = NodeCounters::default();
        ttl.arrived.add(170_412_032, 85_206_016_000);
        ttl.left.add(170_377_951, 85_188_975_500);
        ttl.batches = 2_784_510;
        ttl.sampled_packets = 1_000;
        ttl.sampled_cycles = 7_900;
        ttl.drops.add(DropReason::TtlExpired, 34_081, 0);
        let port = |name: &str, received, sent| PortSummary {
            name: name.into(),
            link: "up".into(),
            received,
            received_bytes: 500 * received,
            sent,
            sent_bytes: 500 * sent,
            ..PortSummary::default()
        };
        let node = |owner, counters| {
            NodeSummary::new("ttl".into(), "ttl".into(), owner, Role::Function, "function".into(), counters)
        };
        let mut summary = Summary {
            received: 170_500_152,
            sent: 170_466_071,
            dropped: [("ttl-expired", 34_081)].into(),
            conserved: true,
            ports: vec![port("lan", 170_412_032, 88_120), port("wan", 88_120, 170_377_951)],
            nodes: vec![node(0, ttl.clone())],
            ..Summary::default()
        };
        assert_eq!(
            summary.text(),
            "port     received    bytes         sent    bytes  dropped\n\
             lan   170,412,032  85.2 GB       88,120  44.1 MB        0\n\
             wan        88,120  44.1 MB  170,377,951  85.2 GB        0\n\
             \n\
             function           in    bytes          out    bytes  cycles/packet  packets/batch  dropped\n\
             ttl       170,412,032  85.2 GB  170,377,951  85.2 GB            7.9           61.2  34,081 ttl-expired\n\
             \n\
             170,500,152 received + 0 created = 170,466,071 sent + 34,081 dropped + 0 held   every packet accounted for\n"
        );
        // The owner is shown if there are several.
        let mut other = NodeCounters::default();
        other.arrived.add(7, 420);
        summary.nodes = vec![node(0, ttl), node(3, other.clone()), node(3, other)];
        summary.nodes[2].name = "ttl#2".into();
        assert_eq!(
            summary.functions_text().as_deref(),
            Some(
                "function  owner           in    bytes          out    bytes  cycles/packet  packets/batch  dropped\n\
                 ttl       -      170,412,032  85.2 GB  170,377,951  85.2 GB            7.9           61.2  34,081 ttl-expired\n\
                 ttl       3               14    840 B            0      0 B\n"
            )
        );
    }

    #[test]
    fn packets_without_a_buffer_are_noted() {
        let note = |exhausted| {
            let pool = PoolSummary { frames: 32_768, exhausted, copied: 1, ..PoolSummary::default() };
            Summary { pool, ..Summary::default() }.notes_text()
        };
        assert_eq!(note(0), None);
        assert_eq!(
            note(1_200).as_deref(),
            Some(
                "a packet buffer was asked for 1,200 times when none that is large enough was free, of 32,768 in all: `frames` and `large_frames` in [runtime] give more\n"
            )
        );
    }

    #[test]
    fn packets_that_were_too_big_are_noted_and_the_last_line_says_so() {
        let port = PortSummary {
            name: "lan".into(),
            mtu: 1_500,
            too_big_to_receive: 1_200,
            too_big_to_send: 1,
            warnings: vec!["eth0 has no huge frames".into()],
            ..PortSummary::default()
        };
        let summary = Summary {
            ports: vec![port],
            dropped: [("too-big", 1_201)].into(),
            conserved: true,
            ..Summary::default()
        };
        assert_eq!(
            summary.notes_text().as_deref(),
            Some(
                "lan: 1,200 arrivals dropped as too-big, larger than the largest packet buffer or a block of the port's ring: `large_frames` in [runtime] take up to 64 KiB\n\
                 lan: 1 packet dropped as too-big, larger than the port's MTU of 1,500 bytes\n\
                 lan: eth0 has no huge frames\n"
            )
        );
        assert_eq!(summary.hints().len(), 2);
        assert!(
            summary.text().ends_with("every packet accounted for; 1,201 dropped for their size\n"),
            "{}",
            summary.text()
        );
    }

    #[test]
    fn rare_port_counters_are_noted_where_they_are_not_zero() {
        let note = |port: PortSummary| {
            let ports = vec![PortSummary { name: "lan".into(), ..port }];
            Summary { ports, ..Summary::default() }.notes_text().unwrap_or_default()
        };
        assert_eq!(note(PortSummary::default()), "");
        assert_eq!(
            note(PortSummary { cut: 1_200, corrupted: 7, ..PortSummary::default() }),
            "lan: of 1,200 arrivals the capture held only the beginning (its snap length)\nlan: its line: 7 corrupted\n"
        );
        assert_eq!(
            note(PortSummary {
                overlong: 3,
                dropped: [("not-ethernet", 4_000)].into(),
                ..PortSummary::default()
            }),
            "lan: of 3 arrivals the capture holds more than it says was on the wire; they count with what it holds\n\
             lan: 4,000 records are of link types that cannot be made Ethernet (CAN, 802.11, netlink, …)\n"
        );
        assert_eq!(
            note(PortSummary { duplicated: 1, reordered: 2_000, corrupted: 30, ..PortSummary::default() }),
            "lan: its line: 2,000 reordered, 30 corrupted, 1 duplicated\n"
        );
    }

    /// Programs find the text outside the tables in `warnings`, each line once.
    #[test]
    fn hints_are_among_the_warnings() {
        let port = PortSummary {
            name: "lan".into(),
            link: "down".into(),
            missed: 1,
            bad_checksum: 2,
            cut: 3,
            too_big_to_receive: 4,
            ..PortSummary::default()
        };
        let pool = PoolSummary { exhausted: 5, ..PoolSummary::default() };
        let mut summary =
            Summary { ports: vec![port], pool, warnings: vec!["told before".into()], ..Summary::default() };
        let notes = summary.notes_text().expect("there are some");
        assert_eq!(notes.lines().count(), 6, "{notes}");
        summary.add_hints();
        let warnings: Vec<_> = summary.warnings.iter().map(String::as_str).collect();
        assert_eq!(warnings[0], "told before");
        assert_eq!(warnings[1..], notes.lines().collect::<Vec<_>>());
        let once = summary.warnings.clone();
        summary.add_hints();
        assert_eq!(summary.warnings, once, "a hint is there once");
    }

    #[test]
    fn the_last_line_says_that_packets_were_oversized() {
        let summary = Summary {
            received: 1_701,
            sent: 894,
            dropped: [("too-big", 807)].into(),
            conserved: true,
            ..Summary::default()
        };
        assert_eq!(
            summary.law(),
            "1,701 received + 0 created = 894 sent + 807 dropped + 0 held   every packet accounted for; 807 dropped for \
             their size\n"
        );
    }

    #[test]
    fn a_report_so_far_claims_no_balance() {
        let summary = Summary { running: true, received: 10, sent: 7, held: 2, ..Summary::default() };
        assert_eq!(summary.law(), "10 received + 0 created ≈ 7 sent + 0 dropped + 2 held   so far\n");
        let even = Summary { sent: 8, ..summary };
        assert_eq!(even.law(), "10 received + 0 created = 8 sent + 0 dropped + 2 held   so far\n");
    }

    #[test]
    fn a_packet_that_is_missing_is_not_hidden() {
        let summary = Summary {
            received: 10,
            sent: 8,
            conserved: false,
            unbalanced: vec!["ttl".into()],
            ..Summary::default()
        };
        assert!(!summary.succeeded());
        assert_eq!(
            summary.law(),
            "10 received + 0 created ≠ 8 sent + 0 dropped + 0 held   NOT accounted for: 2 packets (at ttl)\n"
        );
    }
}
