//! Times as they are typed.

use std::str::FromStr;

use mgp_engine::timestamps::parse_rfc3339;

/// The letters after a number, and how many seconds each is.
const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];

/// A time like `30d`, in seconds.
pub(super) fn seconds(typed: &str) -> Result<u64, String> {
    let all = read::<u64>(typed).and_then(|(number, unit)| number.checked_mul(unit));
    all.ok_or_else(|| "a time is a number and s, m, h or d, like 90s or 30d".into())
}

/// A time like `90s`, in milliseconds.
pub(super) fn millis(typed: &str) -> Result<u64, String> {
    match read::<u32>(typed) {
        Some((number, unit)) => Ok(u64::from(number) * unit * 1000),
        None => Err(format!("`{typed}` is no time; write 90s, 30m, 1h or 7d")),
    }
}

/// A time ago, or a moment; in milliseconds since 1970.
pub(super) fn start(typed: &str) -> Result<u64, String> {
    let ago = millis(typed).ok();
    let ago = ago.map(|ms| mgp_runtime::time::unix_ms().saturating_sub(ms));
    ago.or_else(|| parse_rfc3339(typed)).ok_or_else(|| {
        format!("`{typed}` is no time; write 90s, 30m, 1h, 7d or 2026-03-01T00:00:00Z")
    })
}

/// An end: a time from now, or a moment; in milliseconds since 1970.
pub(super) fn end(typed: &str) -> Result<u64, String> {
    let from_now = millis(typed).ok();
    let from_now = from_now.map(|ms| mgp_runtime::time::unix_ms().saturating_add(ms));
    from_now.or_else(|| parse_rfc3339(typed)).ok_or_else(|| {
        format!("`{typed}` is no time; write 90s, 30m, 1h, 7d or 2026-03-01T00:00:00Z")
    })
}

/// A number that is not 0, and the seconds of its unit.
fn read<N: FromStr + Default + PartialEq>(typed: &str) -> Option<(N, u64)> {
    let unit = |(letter, seconds)| Some((typed.strip_suffix::<char>(letter)?, seconds));
    let (number, seconds) = UNITS.into_iter().find_map(unit)?;
    let number = number.parse().ok().filter(|number| *number != N::default());
    number.map(|number| (number, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_letter() {
        assert_eq!(millis("90s"), Ok(90_000));
        assert_eq!(millis("1h"), Ok(3_600_000));
        for wrong in ["", "h", "1", "0s", "-1h", "1 h", "1w", "é"] {
            assert!(millis(wrong).is_err() && seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_start_is_a_time_ago_or_a_moment() {
        assert_eq!(start("2001-09-09T01:46:40Z"), Ok(1_000_000_000_000));
        let now = mgp_runtime::time::unix_ms();
        assert!((now - 3_600_000..now).contains(&start("1h").unwrap()));
        assert!(start("soon").unwrap_err().contains("2026-03-01"));
    }

    #[test]
    fn an_end_is_a_time_from_now_or_a_moment() {
        assert_eq!(end("2001-09-09T01:46:40Z"), Ok(1_000_000_000_000));
        assert!(end("1h").unwrap() > 3_600_000);
        assert!(end("soon").unwrap_err().contains("2026-03-01"));
    }
}
