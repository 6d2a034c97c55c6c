//! Numbers as JSON text and as doubles.

use super::{StructErrorKind, truncate};

/// 2^53: from here on, a double may represent several integers.
const EXACT_INTEGER_LIMIT: f64 = 9_007_199_254_740_992.0;

/// Most compared digits of a number: no double needs more for its exact value.
const MAX_DIGITS: usize = 770;

/// The double of a JSON number. Integers must be exact to the last digit; numbers with a fraction or an exponent are
/// rounded as usual, but large ones must be exact in all written digits.
pub(super) fn parse_double(text: &str) -> Result<f64, StructErrorKind> {
    let rounded = || StructErrorKind::Rounded(truncate(text).into());
    let value: f64 = text.parse().map_err(|_| rounded())?;
    let significand = text.split(['e', 'E']).next().unwrap_or_default();
    let written = significand.bytes().filter(u8::is_ascii_digit);
    let digits: Vec<u8> = written.skip_while(|digit| *digit == b'0').collect();
    let is_exact = match value.abs() {
        0.0 => digits.is_empty(),
        small if small < EXACT_INTEGER_LIMIT => true,
        _ if !value.is_finite() || digits.len() > MAX_DIGITS => false,
        large if is_integer(text) => format!("{large:.0}").as_bytes() == digits,
        large => {
            let significant = format!("{large:.*e}", digits.len().saturating_sub(1));
            let significant = significant.split('e').next().unwrap_or_default();
            significant.bytes().filter(u8::is_ascii_digit).eq(digits)
        }
    };
    is_exact.then_some(value).ok_or_else(rounded)
}

fn is_integer(text: &str) -> bool {
    !text.contains(['.', 'e', 'E'])
}

/// Writes a double as JSON text: integers without a fraction, as servers expect them.
pub(super) fn write_double(value: f64, out: &mut Vec<u8>) -> Result<(), StructErrorKind> {
    if !value.is_finite() {
        return Err(StructErrorKind::NotFinite(value.to_string()));
    }
    if value.trunc() != value {
        serde_json::to_writer(out, &value).expect("a vector takes all, and it is finite");
        return Ok(());
    }
    if value.abs() >= EXACT_INTEGER_LIMIT {
        return Err(StructErrorKind::Ambiguous(format!("{value:?}")));
    }
    if value == 0.0 && value.is_sign_negative() {
        out.extend_from_slice(b"-0.0");
        return Ok(());
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is an integer below 2^53"
    )]
    let integer = value as i64;
    out.extend_from_slice(integer.to_string().as_bytes());
    Ok(())
}
