//! Parses durations and moments.

use mgp_engine::timestamps::parse_rfc3339;

/// The suffixes of a number, in seconds.
const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];

/// The longest time, in days: a hundred years, so that the resulting dates are valid.
const LONGEST_DAYS: u64 = 36_525;

/// A duration like `30d`, in seconds.
pub(super) fn parse_seconds(typed: &str) -> Result<u64, String> {
    parse_number_and_unit(typed)
}

/// A duration like `90s`, in milliseconds.
pub(super) fn parse_millis(typed: &str) -> Result<u64, String> {
    Ok(parse_number_and_unit(typed)? * 1000)
}

/// A duration ago, or a moment; in milliseconds since 1970.
pub(super) fn parse_start(typed: &str) -> Result<u64, String> {
    moment(typed, u64::saturating_sub)
}

/// An end: a duration from now, or a moment; in milliseconds since 1970.
pub(super) fn parse_end(typed: &str) -> Result<u64, String> {
    moment(typed, u64::saturating_add)
}

fn moment(typed: &str, from_now: fn(u64, u64) -> u64) -> Result<u64, String> {
    if let Some(moment) = parse_rfc3339(typed) {
        return Ok(moment);
    }
    let time = parse_millis(typed)
        .map_err(|why| format!("{why}; or a moment, like 2026-03-01T00:00:00Z"))?;
    Ok(from_now(mgp_runtime::time::unix_ms(), time))
}

/// A positive number with its unit, in seconds.
fn parse_number_and_unit(typed: &str) -> Result<u64, String> {
    let unit = |(letter, seconds)| Some((typed.strip_suffix::<char>(letter)?, seconds));
    let known = UNITS.into_iter().find_map(unit);
    let known = known.filter(|(number, _)| {
        number.bytes().all(|b| b.is_ascii_digit()) && number.bytes().any(|b| b != b'0')
    });
    let Some((number, unit)) = known else {
        return Err(format!("`{typed}` is no time; write 90s, 30m, 1h or 7d"));
    };
    // Only a number with too many digits fails here.
    let number = number.parse().unwrap_or(u64::MAX);
    let seconds = number.checked_mul(unit);
    let seconds = seconds.filter(|seconds| *seconds <= LONGEST_DAYS * 86_400);
    seconds.ok_or_else(|| {
        format!("`{typed}` is longer than a hundred years; the longest time is {LONGEST_DAYS}d")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_letter() {
        assert_eq!(parse_millis("90s"), Ok(90_000));
        assert_eq!(parse_millis("1h"), Ok(3_600_000));
        for wrong in ["", "h", "1", "0s", "-1h", "1 h", "1w", "é"] {
            assert!(
                parse_millis(wrong).is_err() && parse_seconds(wrong).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_time_that_is_too_long_names_the_longest() {
        assert_eq!(parse_seconds("36525d"), Ok(36_525 * 86_400));
        for long in ["36526d", "99999999d", "99999999999999999999s"] {
            for why in [
                parse_seconds(long),
                parse_millis(long),
                parse_start(long),
                parse_end(long),
            ] {
                let why = why.unwrap_err();
                assert!(why.contains("36525d"), "{why}");
            }
        }
    }

    #[test]
    fn a_start_is_a_time_ago_or_a_moment() {
        assert_eq!(parse_start("2001-09-09T01:46:40Z"), Ok(1_000_000_000_000));
        let now = mgp_runtime::time::unix_ms();
        assert!((now - 3_600_000..now).contains(&parse_start("1h").unwrap()));
        assert!(parse_start("soon").unwrap_err().contains("2026-03-01"));
    }

    #[test]
    fn an_end_is_a_time_from_now_or_a_moment() {
        assert_eq!(parse_end("2001-09-09T01:46:40Z"), Ok(1_000_000_000_000));
        assert!(parse_end("1h").unwrap() > 3_600_000);
        assert!(parse_end("soon").unwrap_err().contains("2026-03-01"));
    }
}
