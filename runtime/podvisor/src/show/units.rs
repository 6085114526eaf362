//! Values in units for people: ages, times, sizes, rates, ids. Pure functions.

use jiff::Timestamp;

/// Stands for an unknown value.
pub(crate) const UNKNOWN: &str = "-";

/// Letters of an id in tables. Every command accepts them in place of the whole id.
const SHORT_ID: usize = 12;

const SECOND_NS: i64 = 1_000_000_000;

/// The time passed, in at most two units: "42s", "5m12s", "3h", "12d". A time of zero is unknown. One in the
/// future (a clock was set back) counts as now.
pub(crate) fn age(since_ns: i64, now_ns: i64) -> String {
    if since_ns <= 0 {
        return UNKNOWN.to_owned();
    }
    span((now_ns.saturating_sub(since_ns).max(0) / SECOND_NS).unsigned_abs())
}

/// A span of seconds, in the format of [`age`]. The second unit is printed only while the first is a small
/// number.
pub(crate) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |first: u64, unit: char, second: u64, below: char| match second {
        0 => format!("{first}{unit}"),
        _ => format!("{first}{unit}{second}{below}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 10 => two(hours, 'h', minutes % 60, 'm'),
        () if days < 3 => format!("{hours}h"),
        () if days < 10 => two(days, 'd', hours % 24, 'h'),
        () => format!("{days}d"),
    }
}

/// The time in UTC with milliseconds (RFC 3339); [`UNKNOWN`] for zero and for times outside of the calendar.
pub(crate) fn time(at_ns: i64) -> String {
    match Timestamp::from_nanosecond(at_ns.into()) {
        Ok(time) if at_ns > 0 => format!("{time:.3}"),
        _ => UNKNOWN.to_owned(),
    }
}

/// A size in the largest unit with a value of at least 1, with one decimal below ten.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.5 would be shown as 1024.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(value < 9.95);
    format!("{value:.decimals$}{}", UNITS[unit])
}

/// A rate in bytes per second.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    // A float that is no number becomes 0.
    format!("{}/s", bytes(bytes_per_second.round() as u64))
}

/// CPUs in use, in percent of one.
pub(crate) fn percent(cpus: f64) -> String {
    format!("{:.1}%", cpus * 100.0)
}

/// The beginning of an id.
pub(crate) fn short(id: &str) -> &str {
    id.char_indices().nth(SHORT_ID).map_or(id, |(end, _)| &id[..end])
}

/// The beginning of a digest, without the algorithm. All commands accept an image's in place of its whole id.
pub(crate) fn short_digest(digest: &str) -> &str {
    short(digest.split_once(':').map_or(digest, |(_, hex)| hex))
}

/// The clock's time in nanoseconds since the epoch, as in CRI.
pub(crate) fn now_ns() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_two_units_while_the_first_is_small() {
        let of = |seconds: i64| age(SECOND_NS, SECOND_NS + seconds * SECOND_NS);
        for (seconds, shown) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (312, "5m12s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (9 * 3600 + 1859, "9h30m"),
            (71 * 3600, "71h"),
            (3 * 86_400 + 3600, "3d1h"),
            (10 * 86_400, "10d"),
            (4000 * 86_400, "4000d"),
        ] {
            assert_eq!(of(seconds), shown);
        }
    }

    #[test]
    fn an_unknown_time_and_one_in_the_future_have_an_age_too() {
        assert_eq!(age(0, 5), "-");
        assert_eq!(age(-1, 5), "-");
        assert_eq!(age(i64::MAX, 5), "0s");
        assert_eq!(age(1, i64::MAX), "106751d");
    }

    #[test]
    fn times_are_shown_in_utc_to_the_millisecond() {
        assert_eq!(time(1_700_000_000_123_456_789), "2023-11-14T22:13:20.123Z");
        assert_eq!(time(0), "-");
        assert_eq!(time(-5), "-");
    }

    #[test]
    fn sizes_have_the_unit_that_leaves_a_small_number() {
        for (size, shown) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.0KiB"),
            (10 * 1024, "10KiB"),
            (1024 * 1024 - 1, "1.0MiB"),
            (134_217_728, "128MiB"),
            (1_610_612_736, "1.5GiB"),
            (u64::MAX, "16EiB"),
        ] {
            assert_eq!(bytes(size), shown);
        }
        assert_eq!(rate(1536.4), "1.5KiB/s");
        assert_eq!(rate(f64::NAN), "0B/s");
        assert_eq!(percent(1.25), "125.0%");
    }

    #[test]
    fn an_id_is_cut_at_a_letters_end() {
        assert_eq!(short("0123456789abcdef"), "0123456789ab");
        assert_eq!(short("äöüäöüäöüäöüäöü"), "äöüäöüäöüäöü");
        assert_eq!(short("ab"), "ab");
    }
}
