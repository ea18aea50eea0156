//! Numbers as people read them: thousands separated, rates and sizes with three digits and a unit.

/// `1234567` as `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate with three digits and a decimal prefix: `14.2 Mpps` for `scaled(14_200_000.0, "pps")`.
pub(crate) fn scaled(value: f64, unit: &str) -> String {
    let (value, prefix) = match value {
        value if value < 999.5 => (value, ""),
        value if value < 999.5e3 => (value / 1e3, "k"),
        value if value < 999.5e6 => (value / 1e6, "M"),
        value => (value / 1e9, "G"),
    };
    let digits = match value {
        value if prefix.is_empty() && value.fract() == 0.0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {prefix}{unit}")
}

/// A size of memory in powers of two: `512 MB` for 2²⁹ bytes.
pub(crate) fn memory(bytes: u64) -> String {
    match bytes {
        bytes if bytes < 1 << 20 => format!("{} KB", bytes.div_ceil(1 << 10)),
        bytes if bytes < 10 << 30 => format!("{} MB", bytes.div_ceil(1 << 20)),
        bytes => format!("{} GB", bytes.div_ceil(1 << 30)),
    }
}

/// A share in per cent, such as `0.02 %`; it is never `0.00 %` for a part above 0.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0 %".into();
    }
    let share = part as f64 * 100.0 / whole as f64;
    match share {
        share if share < 0.01 => "<0.01 %".into(),
        share if share < 10.0 => format!("{share:.2} %"),
        share => format!("{share:.1} %"),
    }
}

/// `2 ports`, `1 chain`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{} {noun}{}", thousands(number as u64), if number == 1 { "" } else { "s" })
}

/// The UTC time of the day of a time in ns since 1970, to the microsecond.
///
/// For a clock that begins at 0, it is the time since then.
pub(super) fn time_of_day(time: u64) -> String {
    let microseconds = time / 1_000;
    let seconds = microseconds / 1_000_000;
    let (hours, minutes) = (seconds / 3_600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:06}", seconds % 60, microseconds % 1_000_000)
}

/// `core 3`, `cores 1–2`, `cores 1, 3`: the numbers may be in any order, without repetitions.
pub(crate) fn cores(numbers: &[usize]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    match sorted.as_slice() {
        [] => "no core".into(),
        [core] => format!("core {core}"),
        [first, .., last] if last - first + 1 == sorted.len() => format!("cores {first}–{last}"),
        cores => format!("cores {}", cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_do_not_change_the_number() {
        for number in [0, 7, 999, 1_000, 12_345, 999_999, 1_000_000, u64::MAX] {
            let written = thousands(number);
            assert_eq!(written.replace(',', "").parse(), Ok(number));
            let groups: Vec<_> = written.split(',').collect();
            assert!(groups.iter().skip(1).all(|group| group.len() == 3), "{written}");
            assert!((1..=3).contains(&groups[0].len()), "{written}");
        }
    }

    #[test]
    fn rates_keep_three_digits() {
        let cases = [
            (0.0, "0 pps"),
            (12.5, "12.5 pps"),
            (999.6, "1.00 kpps"),
            (14_200_000.0, "14.2 Mpps"),
            (7.3e9, "7.30 Gpps"),
            (999_600_000.0, "1.00 Gpps"),
        ];
        for (value, text) in cases {
            assert_eq!(scaled(value, "pps"), text);
        }
        assert_eq!(percent(1, 1_000_000), "<0.01 %");
        assert_eq!(percent(2, 10_000), "0.02 %");
        assert_eq!(memory(512 << 20), "512 MB");
    }

    #[test]
    fn times_are_those_of_a_day() {
        assert_eq!(time_of_day(1_037_099_260_999), "00:17:17.099260");
        // 2026-02-03 04:05:06 UTC, as `date` shows it.
        assert_eq!(time_of_day(1_770_091_506_000_000_000), "04:05:06.000000");
    }

    #[test]
    fn cores_are_named_as_a_range_where_they_are_one() {
        let cases: [(&[usize], &str); 4] =
            [(&[], "no core"), (&[7], "core 7"), (&[2, 1, 3], "cores 1–3"), (&[4, 1], "cores 1, 4")];
        for (numbers, text) in cases {
            assert_eq!(cores(numbers), text);
        }
    }
}
