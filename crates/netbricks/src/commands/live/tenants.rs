//! `netbricks tenants`: the tenants with their shares, their use of the workers, and their packets.

use std::time::Instant;

use netbricks_control::api::TenantStats;
use netbricks_core::units;
use serde::Serialize;

use super::{Api, Output, Trouble, stats};
use crate::report::Align::{Left, Right};
use crate::report::{Table, thousands};

#[derive(Debug, clap::Args)]
pub(crate) struct TenantsArguments {
    /// The time over which shares are measured
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) interval: units::Duration,
    #[command(flatten)]
    pub(crate) plain: super::arguments::Plain,
}

/// A tenant, and its part of the time that all tenants used.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    #[serde(flatten)]
    stats: TenantStats,
    /// Its part of the time of one core during the interval: 1 is a whole core.
    cores: f64,
    /// Its part of the time that all tenants used.
    share: Option<f64>,
    /// Packets a second that came to its queues.
    packets_per_second: f64,
}

pub(super) fn tenants(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &TenantsArguments,
) -> Result<(), Trouble> {
    let interval = stats::interval(arguments.interval)?;
    let before = api.tenants()?;
    let begin = Instant::now();
    if !before.is_empty() {
        output.wait_until(begin + interval);
    }
    let now = api.tenants()?;
    let rows = rows(&before, now, begin.elapsed().as_secs_f64());
    Ok(output.show(arguments.plain.json, &rows, |rows| text(rows))?)
}

fn rows(before: &[TenantStats], now: Vec<TenantStats>, seconds: f64) -> Vec<Row> {
    let seconds = seconds.max(f64::MIN_POSITIVE);
    let since = |tenant: &TenantStats| {
        let known = before.iter().find(|known| known.tenant == tenant.tenant);
        let (used, arrived) = known.map_or((0, 0), |known| (known.used_ns, known.arrived.packets));
        (tenant.used_ns.saturating_sub(used) as f64 / 1e9, tenant.arrived.packets.saturating_sub(arrived))
    };
    let all: f64 = now.iter().map(|tenant| since(tenant).0).sum();
    let row = |stats: TenantStats| {
        let (used, arrived) = since(&stats);
        let share = (all > 0.0).then(|| used / all);
        Row { cores: used / seconds, share, packets_per_second: arrived as f64 / seconds, stats }
    };
    now.into_iter().map(row).collect()
}

fn text(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no tenants: `[tenant.NAME]` in the file makes some\n".into();
    }
    let mut table = Table::new([
        ("tenant", Left),
        ("weight", Right),
        ("priority", Right),
        ("ceiling", Right),
        ("share", Right),
        ("cores", Right),
        ("packets/s", Right),
        ("waiting", Right),
        ("dropped", Right),
        ("slices", Right),
        ("longest", Right),
        ("overruns", Right),
        ("", Left),
    ]);
    for Row { stats, cores, share, packets_per_second } in rows {
        let dropped: u64 = stats.dropped.values().map(|count| count.packets).sum();
        table.row([
            stats.tenant.clone(),
            stats.weight.to_string(),
            stats.priority.to_string(),
            stats.ceiling.map(|of| format!("{} %", f64::from(of) / 10.0)).unwrap_or_default(),
            share.map(|share| format!("{:.1} %", share * 100.0)).unwrap_or_default(),
            format!("{cores:.2}"),
            thousands(packets_per_second.round() as u64),
            thousands(stats.held),
            thousands(dropped),
            thousands(stats.slices),
            format!("{:.0} µs", stats.longest_slice_ns as f64 / 1e3),
            thousands(stats.overruns),
            if stats.demoted { "demoted".into() } else { String::new() },
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use netbricks_control::api::Count;

    use super::*;

    #[test]
    fn shares_are_those_of_the_interval() {
        let tenant = |name: &str, used_ns: u64, packets: u64| TenantStats {
            tenant: name.into(),
            weight: 2,
            priority: 4,
            used_ns,
            longest_slice_ns: 24_600,
            arrived: Count { packets, bytes: 60 * packets },
            ..TenantStats::default()
        };
        let before = [tenant("a", 5_000_000_000, 100)];
        let mut now = vec![tenant("a", 5_300_000_000, 1_100), tenant("b", 100_000_000, 500)];
        (now[1].ceiling, now[1].demoted) = (Some(125), true);
        let rows = rows(&before, now, 0.5);
        assert_eq!(
            text(&rows),
            "tenant  weight  priority  ceiling   share  cores  packets/s  waiting  dropped  slices  longest  overruns\n\
             a            2         4           75.0 %   0.60      2,000        0        0       0    25 µs         0\n\
             b            2         4   12.5 %  25.0 %   0.20      1,000        0        0       0    25 µs         0  demoted\n"
        );
        assert_eq!(text(&[]), "no tenants: `[tenant.NAME]` in the file makes some\n");
    }
}
