//! Secrets in a URL. At the start of the URL, a value may be `scheme://host[:port][/path]`. Elsewhere, a
//! value is percent-encoded, so that it stays one segment of a path or one value of a query.

use super::Secrets;
use super::references::{Piece, Reference, pieces};
use crate::percent;

/// Value of a secret at the start of a URL, while a configuration is checked without its secrets.
const SAMPLE_BASE: &str = "http://1";

/// Replacement for a value in messages.
pub(super) const MASKED: &str = "***";

/// The configured URL of an upstream, with the values of its secrets ([`Secrets::url`]).
#[derive(Clone, Default)]
pub struct UrlText {
    pub(crate) text: String,
    /// The text with `***` in place of secrets.
    pub(crate) shown: String,
}

stentor_ports::opaque_debug!(UrlText, "UrlText(…)");

impl<T: AsRef<str> + ?Sized> From<&T> for UrlText {
    fn from(url: &T) -> Self {
        Self { text: url.as_ref().into(), shown: url.as_ref().into() }
    }
}

impl Secrets {
    /// Returns the URL of an upstream with the values of its secrets.
    ///
    /// # Errors
    /// Returns an error that describes the mistake in the URL or its secrets.
    pub fn url(&self, url: &str) -> Result<UrlText, String> {
        let of_url = |wrong: &str| format!("the URL {wrong}");
        let pieces: Vec<_> = pieces(url).collect::<Result<_, _>>().map_err(of_url)?;
        let mut filled = UrlText::default();
        for (n, piece) in pieces.iter().enumerate() {
            let reference = match piece {
                Piece::Text(plain) => {
                    filled.text += plain;
                    filled.shown += plain;
                    continue;
                }
                Piece::Reference(reference) => reference,
            };
            let value = self.needed(reference).map_err(|wrong| of_url(&wrong))?;
            let goes_on_with = |starts: &[&str]| matches!(pieces.get(n + 1), Some(Piece::Text(next)) if starts.iter().any(|start| next.starts_with(start)));
            let is_base = n == 0 && !goes_on_with(&["://"]);
            if is_base {
                if pieces.len() > 1 && !goes_on_with(&["/", "?"]) {
                    return Err(format!(
                        "a / or a ? must follow {reference} in the URL, because it has a host"
                    ));
                }
                let value = if self.is_sample() { SAMPLE_BASE } else { &value };
                filled.text += base(value).ok_or_else(|| not_base(reference))?;
            } else if n == 0 && self.is_sample() {
                filled.text += "http";
            } else if is_in_authority(&filled.text) && !value.bytes().all(is_of_host) {
                return Err(format!("{reference} has characters that are not allowed in a host"));
            } else {
                escape(&value, &mut filled.text);
            }
            filled.shown += MASKED;
        }
        Ok(filled)
    }
}

fn not_base(reference: &Reference<'_>) -> String {
    format!("{reference} begins the URL, and isn't http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH]")
}

/// Returns the value of a secret at the start of a URL, without the slash at its end. `None` if the value
/// isn't allowed there. [`Route`](crate::Route) checks the complete URL.
fn base(value: &str) -> Option<&str> {
    let is_allowed = |b: u8| b.is_ascii_graphic() && !b"{}?#@\\\"<>^`|".contains(&b);
    let has_scheme = value.starts_with("http://") || value.starts_with("https://");
    (has_scheme && value.bytes().all(is_allowed)).then(|| value.trim_end_matches('/'))
}

/// Returns `true` if the start of a URL ends before the path.
fn is_in_authority(text: &str) -> bool {
    text.split_once("://").is_some_and(|(_, rest)| !rest.contains(['/', '?', '#']))
}

fn is_of_host(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-._".contains(&b)
}

/// Escapes all but unreserved characters (RFC 3986, 2.3), like `encodeURIComponent`.
pub(crate) fn escape(value: &str, url: &mut String) {
    percent::encode(value, |byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte), url);
}
