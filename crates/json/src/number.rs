//! Formats numbers as JavaScript does, so that each has one name.

use std::borrow::Cow;

/// Number of digits of the largest whole number that JavaScript writes without an exponent.
const WHOLE_DIGITS_MAX: usize = 21;

/// Returns a number's text as JavaScript's `String(number)` does: `5` for `5`, `5.0` and `5e0` (ECMA-262,
/// `Number::toString`). Whole numbers of up to 21 digits keep all digits, while JavaScript keeps only the
/// first 17. `None` if `text` isn't a JSON number.
pub fn number_text(text: &str) -> Option<Cow<'_, str>> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_whole && digits.len() <= WHOLE_DIGITS_MAX {
        return Some(Cow::Borrowed(if digits == "0" { digits } else { text }));
    }
    let number: f64 = text.parse().ok()?;
    if number == 0.0 {
        return Some(Cow::Borrowed("0"));
    }
    if number.is_infinite() {
        // A number that is too large becomes an infinity, as in `JSON.parse`.
        return Some(Cow::Borrowed(if number > 0.0 { "Infinity" } else { "-Infinity" }));
    }
    // The shortest digits that denote this number, such as `-1.25e-7`.
    let shortest = format!("{:e}", number.abs());
    let (mantissa, exponent) = shortest.split_once('e')?;
    let digits = mantissa.replace('.', "");
    // Position of the decimal point, in digits.
    let point = exponent.parse::<i32>().ok()? + 1;
    let count = i32::try_from(digits.len()).ok()?;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    let sign = if number < 0.0 { "-" } else { "" };
    let text = match point {
        _ if count <= point && point <= 21 => format!("{sign}{digits}{}", zeros(point - count)),
        1..=21 => {
            let (whole, fraction) = digits.split_at(usize::try_from(point).ok()?);
            format!("{sign}{whole}.{fraction}")
        }
        -5..=0 => format!("{sign}0.{}{digits}", zeros(-point)),
        _ => {
            let (first, rest) = digits.split_at(1);
            let fraction = if rest.is_empty() { String::new() } else { format!(".{rest}") };
            format!("{sign}{first}{fraction}e{:+}", point - 1)
        }
    };
    Some(Cow::Owned(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_in_javascript() {
        for (text, expect) in [
            ("5", "5"),
            ("5.0", "5"),
            ("5e0", "5"),
            ("50e-1", "5"),
            ("-5.00", "-5"),
            ("0", "0"),
            ("-0", "0"),
            ("-0.0e7", "0"),
            ("1.50", "1.5"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("-1.25e-7", "-1.25e-7"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("123e20", "1.23e+22"),
            ("1234567890123456789", "1234567890123456789"),
            ("12345678901234567890123", "1.2345678901234568e+22"),
            ("123.456", "123.456"),
            ("1e400", "Infinity"),
            ("-1e400", "-Infinity"),
        ] {
            assert_eq!(number_text(text).as_deref(), Some(expect), "{text}");
        }
        for text in ["", "-", "x", "\"5\"", "null", "true", "+5", ".5", "Infinity"] {
            assert_eq!(number_text(text), None, "{text}");
        }
    }
}
