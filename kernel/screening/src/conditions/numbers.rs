//! Numbers: whole ones exactly, others as doubles where no digit is lost.

use std::cmp::Ordering;

/// Digits with which two decimal numbers are always two doubles.
const DIGITS_MAX: usize = 15;

/// A number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Integer(i128),
    /// Always finite.
    Decimal(f64),
}

impl Number {
    /// Reads a number of JSON. `None` where a reader may see another number than this one: more digits than a double
    /// holds, or a size that it does not reach.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if !text.contains(['.', 'e', 'E']) {
            return text.parse().ok().map(Self::Integer);
        }
        let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
        let digits = mantissa.trim_start_matches('-').replace('.', "");
        let digits = digits.trim_matches('0').len();
        let value: f64 = text.parse().ok()?;
        let is_lost = digits > 0 && !value.is_normal();
        (digits <= DIGITS_MAX && value.is_finite() && !is_lost).then_some(Self::Decimal(value))
    }

    /// Compares by value.
    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => one.cmp(&other),
            (Self::Decimal(one), Self::Decimal(other)) => compare_decimals(one, other),
            (Self::Integer(one), Self::Decimal(other)) => compare_mixed(one, other),
            (Self::Decimal(one), Self::Integer(other)) => compare_mixed(other, one).reverse(),
        }
    }

    pub(super) fn as_integer(self) -> Option<i128> {
        match self {
            Self::Integer(value) => Some(value),
            Self::Decimal(_) => None,
        }
    }
}

/// Both are finite.
fn compare_decimals(one: f64, other: f64) -> Ordering {
    one.partial_cmp(&other).unwrap_or(Ordering::Equal)
}

fn compare_mixed(whole: i128, decimal: f64) -> Ordering {
    // Every double below is exactly a whole number and a fraction.
    const BEYOND: f64 = 1.7e38;
    if decimal >= BEYOND {
        return Ordering::Less;
    }
    if decimal <= -BEYOND {
        return Ordering::Greater;
    }
    let floor = decimal.floor();
    #[allow(clippy::cast_possible_truncation)] // It is whole, and in range.
    let ordering = whole.cmp(&(floor as i128));
    match ordering {
        Ordering::Equal if decimal > floor => Ordering::Less,
        Ordering::Less | Ordering::Equal | Ordering::Greater => ordering,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(one: &str, other: &str) -> Option<Ordering> {
        Some(Number::parse(one)?.compare(Number::parse(other)?))
    }

    #[test]
    fn numbers_compare_by_value_at_their_edges() {
        use Ordering::{Equal, Greater, Less};
        for (one, other, ordering) in [
            ("9007199254740993", "9007199254740992", Greater),
            ("-0", "0", Equal),
            ("-0.0", "0", Equal),
            ("1", "1.0", Equal),
            ("10e-1", "1", Equal),
            ("18446744073709551616", "18446744073709551615", Greater),
            ("1", "1.5", Less),
            ("-1", "-1.5", Greater),
            ("2", "1.5", Greater),
            ("1", "1e300", Less),
            ("1", "-1e300", Greater),
            ("1e300", "170141183460469231731687303715884105727", Greater),
        ] {
            assert_eq!(compared(one, other), Some(ordering), "{one} {other}");
            assert_eq!(compared(other, one), Some(ordering.reverse()));
        }
    }

    /// A number that readers round to another one decides nothing.
    #[test]
    fn a_number_that_readers_may_round_is_none() {
        for text in [
            "1e400",
            "-1e400",
            "1e-400",
            "5e-324",
            "9007199254740993.0",
            "0.1000000000000000055",
            "170141183460469231731687303715884105728",
            "1e",
            "",
        ] {
            assert!(Number::parse(text).is_none(), "{text}");
        }
        assert!(Number::parse("0e999").is_some());
        assert!(Number::parse("123456.789").is_some());
    }
}
