//! Numbers with units, as people write them: `1000000`, `1M`, `200000/s`, `5kB`, `50%`.

/// Splits a text into its number and what follows. Digits may be grouped by `_` or `,`.
fn number(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || "_,.".contains(c))).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let value = digits.replace(['_', ','], "").parse::<f64>();
    let value = value.map_err(|_| format!("`{text}` doesn't begin with a number"))?;
    Ok((value, rest.trim()))
}

/// A number with `k`, `M` or nothing after it. The rest of the text follows.
fn scaled(text: &str) -> Result<(f64, &str), String> {
    let (value, rest) = number(text)?;
    Ok(match rest.split_at_checked(1) {
        Some(("k", rest)) => (value * 1e3, rest),
        Some(("M", rest)) => (value * 1e6, rest),
        _ => (value, rest),
    })
}

/// A count: `1000000`, `1,000,000` or `1M`.
///
/// # Errors
/// The text isn't a count.
pub fn count(text: &str) -> Result<f64, String> {
    match scaled(text)? {
        (value, "") => Ok(value),
        (_, rest) => Err(format!("`{rest}` isn't known here: write a number such as 1000000 or 1M")),
    }
}

/// A rate, returned per second: `200000/s`, `200k/s`, `30/min` or `100/h`.
///
/// # Errors
/// The text isn't a rate, or has no unit.
pub fn rate(text: &str) -> Result<f64, String> {
    match scaled(text)? {
        (value, "/s") => Ok(value),
        (value, "/min" | "/m") => Ok(value / 60.0),
        (value, "/h") => Ok(value / 3_600.0),
        (value, "") => Err(format!("a rate needs a unit: write {value}/s or {value}/min")),
        (_, rest) => Err(format!("`{rest}` isn't a unit of a rate: write /s, /min or /h")),
    }
}

/// A size in bytes. A size without a unit is in bytes.
///
/// # Errors
/// The text isn't a size.
pub fn bytes(text: &str) -> Result<f64, String> {
    let (value, unit) = number(text)?;
    let factor = match unit {
        "" | "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("`{unit}` isn't a unit of a size: write B, kB, MB, GB, KiB, MiB or GiB")),
    };
    Ok(value * factor)
}

/// A share from 0 to below 1: `50%` or `0.5`.
///
/// # Errors
/// The text isn't a share, or is 100 % or more.
pub fn share(text: &str) -> Result<f64, String> {
    let value = match number(text)? {
        (value, "%") => value / 100.0,
        (value, "") if value < 1.0 => value,
        (value, "") => return Err(format!("a share needs a unit: write {value}%")),
        (_, unit) => return Err(format!("`{unit}` isn't a unit of a share: write %")),
    };
    if value < 1.0 { Ok(value) } else { Err("a share has to be below 100%".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_their_units() {
        for (read, text, expected) in [
            (count as fn(&str) -> Result<f64, String>, "1000000", 1e6),
            (count, "1,000,000", 1e6),
            (count, "1_000_000", 1e6),
            (count, "1.5M", 1.5e6),
            (count, "20k", 2e4),
            (rate, "200000/s", 2e5),
            (rate, "200k/s", 2e5),
            (rate, "30/min", 0.5),
            (rate, "7200 /h", 2.0),
            (bytes, "400", 400.0),
            (bytes, "5kB", 5e3),
            (bytes, "16GiB", 17_179_869_184.0),
            (share, "50%", 0.5),
            (share, "0.25", 0.25),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        for (read, text, told) in [
            (count as fn(&str) -> Result<f64, String>, "many", "doesn't begin with a number"),
            (count, "-5", "doesn't begin with a number"),
            (count, "5/s", "write a number such as"),
            (rate, "200000", "a rate needs a unit: write 200000/s or 200000/min"),
            (rate, "5/day", "write /s, /min or /h"),
            (bytes, "16G", "write B, kB, MB, GB, KiB, MiB or GiB"),
            (share, "50", "write 50%"),
            (share, "100%", "below 100%"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
