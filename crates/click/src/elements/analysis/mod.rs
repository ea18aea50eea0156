//! Traces and what is counted in them: dumps, summaries, aggregates, timestamps.

use crate::element::Class;

mod aggregate_counter;
mod aggregate_filter;
mod aggregate_flows;
mod aggregate_ip;
mod aggregate_pairs;
mod aggregates;
mod flow_monitor;
mod flow_table;
mod from_dump;
mod from_tcpdump;
mod input;
mod link;
mod output;
mod rate_monitor;
mod summary;
#[cfg(test)]
mod tests;
mod time_filter;
mod time_sorted;
mod timestamps;
mod to_dump;

pub(super) const FAMILIES: &[&[Class]] = &[
    aggregate_counter::CLASSES,
    aggregate_filter::CLASSES,
    aggregate_flows::CLASSES,
    aggregate_ip::CLASSES,
    aggregate_pairs::CLASSES,
    aggregates::CLASSES,
    flow_monitor::CLASSES,
    from_dump::CLASSES,
    from_tcpdump::CLASSES,
    rate_monitor::CLASSES,
    summary::CLASSES,
    time_filter::CLASSES,
    time_sorted::CLASSES,
    timestamps::CLASSES,
    to_dump::CLASSES,
];

/// A number with up to 12 digits, in the shorter of the plain and the exponential form (C's `%.12g`).
fn general(value: f64) -> String {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if value.is_nan() { "nan" } else { "inf" });
    }
    let scientific = format!("{value:.11e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..12).contains(&exponent) {
        trim(&format!("{value:.*}", usize::try_from(11 - exponent).unwrap_or(0)))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(digits), exponent.abs())
    }
}

/// A number of so many binary digits, as the shortest decimal number that means the same.
fn binary_fraction(value: u64, bits: u32) -> String {
    let one = (1_u64 << bits) as f64;
    let exact = value as f64 / one;
    let means = |text: &String| text.parse::<f64>().is_ok_and(|read| (read * one).round() as u64 == value);
    (0..=10).map(|digits| format!("{exact:.digits$}")).find(means).unwrap_or_else(|| exact.to_string())
}
