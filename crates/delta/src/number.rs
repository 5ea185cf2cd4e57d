//! Exact decimal values of numbers. JSON bounds neither their size nor their precision (RFC 8259, section 6),
//! and documents have identifiers of 19 digits, which a double can't distinguish.

use std::borrow::Cow;

/// Number of significant digits that always fit into 64 bits.
const SMALL_DIGITS_MAX: usize = 19;

/// A number in canonical form: digits without zeros at either end, times a power of ten. Two numbers are
/// equal if their exact values are. Zero has no sign.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Number<'t> {
    /// `digits` has at most [`SMALL_DIGITS_MAX`] digits.
    Small {
        is_negative: bool,
        digits: u64,
        exponent: i64,
    },
    Long {
        is_negative: bool,
        digits: Cow<'t, [u8]>,
        exponent: i64,
    },
    /// The original spelling, if the exponent has more than 64 bits.
    Spelling(&'t [u8]),
}

impl<'t> Number<'t> {
    /// Reads a number that the scanner has accepted, in time linear in its length. The number is never
    /// expanded.
    pub(crate) fn of(text: &'t [u8]) -> Self {
        let (is_negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        // Most numbers are whole.
        let whole_end = unsigned.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(unsigned.len());
        let (whole, rest) = unsigned.split_at(whole_end);
        let (fraction, exponent) = if rest.is_empty() { (rest, Some(0)) } else { split(rest) };
        let fraction = without_trailing_zeros(fraction);
        let whole = without_leading_zeros(whole);
        // Trailing and leading zeros, which become part of the power of ten.
        let (whole, fraction, power) = if fraction.is_empty() {
            let digits = without_trailing_zeros(whole);
            (digits, fraction, (whole.len() - digits.len()) as i64)
        } else {
            let leading = if whole.is_empty() { without_leading_zeros(fraction) } else { fraction };
            (whole, leading, -(fraction.len() as i64))
        };
        if whole.is_empty() && fraction.is_empty() {
            return Self::Small { is_negative: false, digits: 0, exponent: 0 };
        }
        let Some(exponent) = exponent.and_then(|exponent: i64| exponent.checked_add(power)) else {
            return Self::Spelling(text);
        };
        if whole.len() + fraction.len() <= SMALL_DIGITS_MAX {
            let digits = whole.iter().chain(fraction);
            let digits = digits.fold(0u64, |number, digit| number * 10 + u64::from(digit - b'0'));
            return Self::Small { is_negative, digits, exponent };
        }
        let digits = match (whole, fraction) {
            (whole, []) => Cow::Borrowed(whole),
            ([], fraction) => Cow::Borrowed(fraction),
            (whole, fraction) => Cow::Owned([whole, fraction].concat()),
        };
        Self::Long { is_negative, digits, exponent }
    }
}

/// Splits fraction and exponent: `.5e3`, `.5` or `e3`. `None` for an exponent of more than 64 bits.
fn split(text: &[u8]) -> (&[u8], Option<i64>) {
    let exponent_at = text.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(text.len());
    let (fraction, exponent) = text.split_at(exponent_at);
    let exponent = match exponent {
        [_, exponent @ ..] => std::str::from_utf8(exponent).ok().and_then(|text| text.parse().ok()),
        [] => Some(0),
    };
    (fraction.strip_prefix(b".").unwrap_or(fraction), exponent)
}

fn without_leading_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

fn without_trailing_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().rev().take_while(|digit| **digit == b'0').count();
    &digits[..digits.len() - zeros]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_equal_if_their_exact_values_are() {
        let long = "1234567890123456789012345678901234567890";
        let same: [&[&str]; 12] = [
            &["0", "-0", "0.0", "-0.000e5", "0e99999999999999999999"],
            &["1", "1.0", "1e0", "1E+0", "0.1e1", "10e-1", "100000e-5", "0.00001e5"],
            &["-1", "-1.0", "-0.1e1"],
            &["100", "1e2", "1.00e2", "0.1e3", "1000e-1"],
            &["12.5", "125e-1", "0.125e2", "12.50"],
            &["0.05", "5e-2", "0.0500", "0.5e-1"],
            &["1234567890123456789", "1234567890123456789.0", "1.234567890123456789e18"],
            &[long, &format!("{long}.000"), &format!("0.{long}e40"), &format!("{long}000e-3")],
            &["1e400", "10e399", "0.1e401"],
            &["1e9223372036854775807", "1.0e9223372036854775807"],
            &["1e-9223372036854775808"],
            &["18446744073709551615", "1844674407370955161.5e1"],
        ];
        for (n, one) in same.iter().enumerate() {
            for (m, other) in same.iter().enumerate() {
                for (a, b) in one.iter().flat_map(|a| other.iter().map(move |b| (a, b))) {
                    assert_eq!(Number::of(a.as_bytes()) == Number::of(b.as_bytes()), n == m, "{a} {b}");
                }
            }
        }
    }

    #[test]
    fn neighboring_numbers_differ() {
        for (a, b) in [
            ("1234567890123456789", "1234567890123456790"),
            ("9007199254740993", "9007199254740992"),
            ("1e400", "2e400"),
            ("1e-400", "0"),
            ("1.00000000000000000000000001", "1"),
            ("0.1", "0.10000000000000000000000000000000001"),
        ] {
            assert_ne!(Number::of(a.as_bytes()), Number::of(b.as_bytes()), "{a} {b}");
        }
    }

    /// An exponent of more than 64 bits only equals its own spelling.
    #[test]
    fn large_exponents_are_compared_as_text() {
        let of = |text: &'static str| Number::of(text.as_bytes());
        assert_eq!(of("1e9223372036854775808"), of("1e9223372036854775808"));
        assert_ne!(of("1e9223372036854775808"), of("10e9223372036854775807"));
        assert_ne!(of("1e99999999999999999999"), of("2e99999999999999999999"));
    }
}
