//! Compares JSON numbers by value, whatever their size: `1`, `1.0` and `10e-1` are equal, 9007199254740993 and
//! 9007199254740992 are not.

/// A number as its digits, without zeros at either end, times a power of ten.
#[derive(PartialEq, Eq)]
struct JsonNumber {
    negative: bool,
    digits: String,
    power: i64,
}

/// True when both texts have the same value.
#[must_use]
pub fn are_equal(left: &str, right: &str) -> bool {
    if left == right {
        return true;
    }
    match (parse_decimal(left), parse_decimal(right)) {
        (Some(left), Some(right)) => left == right,
        // Exponents beyond 64 bits are equal only as text.
        (None, _) | (_, None) => false,
    }
}

fn parse_decimal(text: &str) -> Option<JsonNumber> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, power) = match text.split_once(['e', 'E']) {
        Some((mantissa, power)) => (mantissa, power.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let trimmed = digits.trim_end_matches('0');
    if trimmed.is_empty() {
        // Zero, with any sign and exponent.
        return Some(JsonNumber {
            negative: false,
            digits: String::new(),
            power: 0,
        });
    }
    let shift = i64::try_from(digits.len() - trimmed.len()).ok()?;
    let after_point = i64::try_from(fraction.len()).ok()?;
    Some(JsonNumber {
        negative,
        digits: trimmed.to_owned(),
        power: power.checked_add(shift)?.checked_sub(after_point)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-065: numbers that are equal as doubles differ, and spellings of one number are equal.
    #[test]
    fn numbers_are_compared_by_value() {
        for (left, right) in [
            ("1", "1.0"),
            ("10e-1", "1"),
            ("-0", "0.00e9"),
            ("1e3", "1000"),
            ("0.10", "1E-1"),
        ] {
            assert!(are_equal(left, right), "{left} {right}");
        }
        for (left, right) in [
            ("9007199254740993", "9007199254740992"),
            ("1", "-1"),
            ("1e400", "1e401"),
            ("1e99999999999999999999", "1e99999999999999999998"),
            ("0.1", "0.01"),
        ] {
            assert!(!are_equal(left, right), "{left} {right}");
        }
    }
}
