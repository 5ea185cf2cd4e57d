//! Masks secrets in external texts: error pages, headers of responses, messages of libraries.

use super::Secrets;
use super::url::{MASKED, escape};
use hyper::Uri;

/// Minimum length of a masked value in bytes. A shorter value is masked only in the URL, because elsewhere it
/// would match parts of unrelated words.
pub(crate) const SECRET_BYTES_MIN: usize = 4;

/// Values that messages must not show, the longest first, because a long value may contain a short one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Masks(Vec<String>);

impl Masks {
    /// Collects the secrets of an upstream: the values of references, in all forms in which they are sent or
    /// may be repeated; the values of headers, and the words in them; the values of the query. `others` are
    /// secrets of other settings.
    pub(crate) fn new(
        headers: &[(String, String)],
        url: &str,
        others: Vec<String>,
        secrets: &Secrets,
    ) -> Self {
        let mut all = others;
        for text in headers.iter().map(|(_, text)| text.as_str()).chain([url]) {
            secrets.values(text).iter().for_each(|value| add_forms(&mut all, value));
        }
        let url = secrets.url(url).unwrap_or_default().text;
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let values = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
        all.extend([query].into_iter().chain(values).filter(|value| !value.contains('{')).map(String::from));
        for (_, text) in headers {
            let value = secrets.expand(text).unwrap_or_default();
            all.extend(value.split_whitespace().map(String::from));
            all.push(value);
        }
        all.retain(|secret| secret.len() >= SECRET_BYTES_MIN);
        all.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        Self(all)
    }

    /// Returns a text with the secrets masked.
    pub(crate) fn mask(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, MASKED))
    }

    /// Returns a truncated text with the secrets masked. The text may end within a secret.
    pub(crate) fn mask_cut(&self, text: &str) -> String {
        let cut = self.0.iter().filter_map(|secret| {
            let lengths = SECRET_BYTES_MIN..=secret.len().min(text.len());
            lengths.rev().find(|n| secret.get(..*n).is_some_and(|begin| text.ends_with(begin)))
        });
        match cut.max() {
            Some(bytes) => self.mask(&text[..text.len() - bytes]) + MASKED,
            None => self.mask(text),
        }
    }
}

/// Adds the forms in which an upstream may repeat a value.
fn add_forms(all: &mut Vec<String>, value: &str) {
    let mut encoded = String::new();
    escape(value, &mut encoded);
    all.push(lower_escapes(&encoded));
    all.push(encoded);
    let json = serde_json::Value::from(value).to_string();
    all.extend(json.get(1..json.len() - 1).map(String::from));
    if let Some(uri) = value.parse().ok().filter(|uri: &Uri| value.contains("://") && uri.host().is_some()) {
        let parts = [uri.authority().map(|authority| authority.as_str()), uri.host(), Some(uri.path())];
        for part in parts.into_iter().flatten() {
            let part = part.trim_end_matches('/');
            all.extend([part.to_owned(), part.to_ascii_lowercase()]);
        }
    }
    all.extend([value.to_owned(), value.trim_end_matches('/').to_owned()]);
}

/// Returns percent-encoded text with lower-case hexadecimal digits.
fn lower_escapes(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (digits, rest) = part.split_at(part.len().min(2));
        format!("{text}%{}{rest}", digits.to_ascii_lowercase())
    })
}
