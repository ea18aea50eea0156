//! Times as people read them.

use std::time::Duration;

/// A span of time in ns with three digits and its unit: `1.24 ms`.
pub(crate) fn period(nanoseconds: u64) -> String {
    let (value, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (nanoseconds as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanoseconds as f64 / 1e6, "ms"),
        _ => (nanoseconds as f64 / 1e9, "s"),
    };
    let digits = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// The time for which something has run: `12 s`, `3 min 05 s`, `2 h 03 min`, `5 d 04 h`.
pub(crate) fn running_for(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min {:02} s", seconds % 60),
        3_600..86_400 => format!("{hours} h {:02} min", minutes % 60),
        _ => format!("{days} d {:02} h", hours % 24),
    }
}

/// A time in ns since 1970 as date and time of RFC 3339, in UTC: `2026-02-03T04:05:06.007Z`.
pub(super) fn date_time(nanoseconds: u64) -> String {
    let milliseconds = nanoseconds / 1_000_000;
    let seconds = milliseconds / 1_000;
    let (year, month, day) = date(seconds / 86_400);
    let (hours, minutes) = (seconds / 3_600 % 24, seconds / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{:02}.{:03}Z",
        seconds % 60,
        milliseconds % 1_000
    )
}

/// The date of a day, counted from 1970-01-01.
fn date(mut day: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    loop {
        let days = if leap(year) { 366 } else { 365 };
        if day < days {
            break;
        }
        day -= days;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_keep_three_digits() {
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_240, "1.24 µs"),
            (43_000_000, "43.0 ms"),
            (60_000_000_000, "60.0 s"),
        ];
        for (nanoseconds, text) in cases {
            assert_eq!(period(nanoseconds), text);
        }
        let cases = [
            (0.9, "0 s"),
            (185.0, "3 min 05 s"),
            (7_380.0, "2 h 03 min"),
            (446_400.0, "5 d 04 h"),
            (-1.0, "0 s"),
        ];
        for (seconds, text) in cases {
            assert_eq!(running_for(seconds), text);
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        // As `date --utc --iso-8601=ns --date @SECONDS` shows them.
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000Z"),
            (1_770_091_506_007_000_000, "2026-02-03T04:05:06.007Z"),
            (4_107_542_399_999_999_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (nanoseconds, text) in cases {
            assert_eq!(date_time(nanoseconds), text);
        }
    }
}
