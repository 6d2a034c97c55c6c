//! Moments as people write them (RFC 3339). The clock is read elsewhere.

const DAY: i64 = 86_400;

/// A moment as seen from a place `offset_minutes` east of Greenwich: `2026-11-21T14:03:07+02:00`,
/// with `Z` for no offset. `unix` is in seconds since 1970.
#[must_use]
pub fn rfc3339(unix: i64, offset_minutes: i32) -> String {
    let local = unix + i64::from(offset_minutes) * 60;
    let (days, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let offset = offset(offset_minutes);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{offset}")
}

/// A moment in Greenwich to the millisecond: `2026-11-21T14:03:07.045Z`. `unix_ms` is in milliseconds
/// since 1970; beyond the year 9999 it has more digits.
#[must_use]
pub fn rfc3339_ms(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).expect("a thousandth of a u64 fits");
    let mut text = rfc3339(seconds, 0);
    let zone = text.pop();
    debug_assert_eq!(zone, Some('Z'));
    format!("{text}.{:03}Z", unix_ms % 1000)
}

/// `Z`, `+05:30`, `-08:00`.
#[must_use]
pub fn offset(minutes: i32) -> String {
    match minutes {
        0 => "Z".into(),
        _ => {
            let sign = if minutes < 0 { '-' } else { '+' };
            let minutes = minutes.abs();
            format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
        }
    }
}

/// Reads an offset: `Z`, `UTC`, `+05:30`, `-0800`, `+2`. At most 14 hours, as on Earth.
#[must_use]
pub fn parse_offset(text: &str) -> Option<i32> {
    if matches!(text, "Z" | "z" | "UTC" | "GMT") {
        return Some(0);
    }
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match (digits.split_once(':'), digits.len()) {
        (Some(pair), _) => pair,
        (None, 4) => digits.split_at_checked(2)?,
        (None, _) => (digits, "0"),
    };
    let number = |text: &str, most: i32| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<i32>().ok().filter(|n| digits && *n <= most)
    };
    let total = number(hours, 14)? * 60 + number(minutes, 59)?;
    (total <= 14 * 60).then_some(sign * total)
}

/// Days since 1970-01-01 as year, month and day (Howard Hinnant's `civil_from_days`): eras of 400
/// years that begin in March, so that the leap day comes last.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_seen_from_a_place() {
        assert_eq!(rfc3339_ms(951_782_400_045), "2000-02-29T00:00:00.045Z");
        assert_eq!(rfc3339(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(-1, 0), "1969-12-31T23:59:59Z");
        assert_eq!(rfc3339(951_782_400, 0), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_709_251_199, 60), "2024-03-01T00:59:59+01:00");
        assert_eq!(rfc3339(1_795_300_000, -150), "2026-11-21T19:56:40-02:30");
    }

    #[test]
    fn offsets_are_read_in_all_their_forms() {
        let read = ["Z", "UTC", "+05:30", "-0800", "+2", "-14:00"].map(parse_offset);
        assert_eq!(read, [0, 0, 330, -480, 120, -840].map(Some));
        for bad in [
            "",
            "2",
            "+",
            "+15",
            "+14:30",
            "+1:60",
            "+-1",
            "Europe/Berlin",
            "+é",
        ] {
            assert_eq!(parse_offset(bad), None, "{bad}");
        }
    }
}
