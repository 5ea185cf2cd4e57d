//! Numbers and booleans in messages of clients. Unlike serde's errors, these errors don't repeat the unexpected value,
//! because it may be as long as a message, and even longer when it is escaped. With serde's errors, a message of 1 MB
//! became an error of 7 MB, of which 256 bytes were sent.

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde_json::value::RawValue;

/// Maximum length of a value's text. An `f64` has at most 24 characters.
const TEXT_BYTES_MAX: usize = 64;

/// A type whose values have a short JSON text.
pub(super) trait Scalar: DeserializeOwned {
    /// The error text if the value has another type.
    const EXPECTED: &str;
}

impl Scalar for bool {
    const EXPECTED: &str = "expected true or false";
}

impl Scalar for u64 {
    const EXPECTED: &str = "expected an integer from 0 to 18446744073709551615";
}

impl Scalar for f64 {
    const EXPECTED: &str = "expected a number";
}

/// Parses a value for `#[serde(deserialize_with)]`. `null` becomes `None`.
pub(super) fn scalar<'de, T: Scalar, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?.get();
    let parsed = if raw.len() <= TEXT_BYTES_MAX { serde_json::from_str(raw).ok() } else { None };
    parsed.ok_or_else(|| Error::custom(T::EXPECTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Message {
        #[serde(deserialize_with = "scalar")]
        epoch: Option<u64>,
        #[serde(deserialize_with = "scalar")]
        delta: Option<bool>,
        #[serde(deserialize_with = "scalar")]
        rate: Option<f64>,
    }

    #[test]
    fn values_null_and_missing_fields() {
        let message: Message =
            serde_json::from_str(r#"{"epoch":9007199254740991,"rate":0.5,"delta":null}"#).unwrap();
        assert_eq!((message.epoch, message.delta, message.rate), (Some((1 << 53) - 1), None, Some(0.5)));
    }

    #[test]
    fn an_error_does_not_repeat_the_value() {
        let error = |json: &str| serde_json::from_str::<Message>(json).unwrap_err().to_string();
        let expect = "expected an integer from 0 to 18446744073709551615 at line 1 column 13";
        assert_eq!(error(r#"{"epoch":"x"}"#), expect);
        assert!(error(r#"{"delta":1}"#).starts_with("expected true or false"));
        let long = format!(r#"{{"rate":"{}"}}"#, "\u{7f}".repeat(1_000_000));
        assert!(error(&long).len() < 100);
    }
}
