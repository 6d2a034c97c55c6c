//! Times of the wall clock in UTC.

/// Reads a time such as `2026-12-24T18:00:00Z`, in seconds since 1970.
pub(super) fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let signs = [
        (4, b'-'),
        (7, b'-'),
        (10, b'T'),
        (13, b':'),
        (16, b':'),
        (19, b'Z'),
    ];
    if bytes.len() != 20 || signs.iter().any(|(index, sign)| bytes[*index] != *sign) {
        return None;
    }
    let number = |from: usize, to: usize| {
        let digits = &bytes[from..to];
        let is_number = digits.iter().all(u8::is_ascii_digit);
        is_number.then(|| {
            digits
                .iter()
                .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_time = hour < 24 && minute < 60 && second < 60;
    let days = days_from_date(year, month, day);
    let is_date = (1..=12).contains(&month) && date_from_days(days) == (year, month, day);
    (is_time && is_date).then_some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// The days from 1970-01-01 to a date (Howard Hinnant's algorithm).
fn days_from_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day, both from 1.
pub(super) fn date_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_dates_come_back() {
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse("2000-02-29T12:30:59Z"), Some(951_827_459));
        for bad in [
            "2001-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01",
            "2026-01-01T00:00:00+1",
            "",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        for days in [-719_468, -1, 0, 59, 60, 11_016, 20_000, 2_932_896] {
            let (year, month, day) = date_from_days(days);
            assert_eq!(days_from_date(year, month, day), days);
        }
    }
}
