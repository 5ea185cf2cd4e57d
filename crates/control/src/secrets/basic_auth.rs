//! The user and the password for an upstream (RFC 7617).

use super::{Secrets, references};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;

impl Secrets {
    /// Returns the value of the header `Authorization` for the text `USER:PASSWORD`, with its secrets.
    ///
    /// # Errors
    /// Returns the mistake, as the predicate of a sentence about the text. It contains no part of the text.
    pub fn basic_auth(&self, text: &str) -> Result<HeaderValue, String> {
        // A sample may be the value of a reference to both the user and the password, so it needn't have a
        // colon.
        let is_known = !self.is_sample() || references(text)?.is_empty();
        let text = self.expand(text)?;
        if text.chars().any(char::is_control) {
            return Err("has control characters".into());
        }
        if is_known && !text.contains(':') {
            return Err("has no colon between the user and the password".into());
        }
        let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(text)))
            .map_err(|_| "can't be sent in a header".to_owned())?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Returns the secrets of a text `USER:PASSWORD`, which messages must not show: the text, the password,
    /// and the header's value.
    pub(crate) fn of_basic_auth(&self, text: &str) -> Vec<String> {
        let text = self.expand(text).unwrap_or_default();
        let password = text.split_once(':').map(|(_, password)| password.to_owned());
        [STANDARD.encode(&text)].into_iter().chain(password).chain([text]).collect()
    }
}
