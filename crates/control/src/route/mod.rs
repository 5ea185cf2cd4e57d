//! Selects the upstream of a key, and the URL from which its document is fetched.
//!
//! An upstream's keys are configured in one of two ways:
//!
//! - by **prefix**: the keys that begin with it. The complete key is appended to the path of the upstream's
//!   URL.
//! - by **template**: `matchesfeed/{id}/matchcentre` with the URL `http://api/match/{id}?full=1`. A
//!   placeholder matches one segment of a key or a part of one, never an empty text and never a slash.
//!   `{rest*}` as the last segment matches all remaining segments. Each placeholder of the key must be used
//!   in the URL, in its path or query, or in the body of requests.
//!
//! **Precedence** if several match a key: (1) the longest text before the first placeholder (a prefix
//! consists only of such text); (2) a template, then a template with `{rest*}`, then a prefix; (3) the most
//! text; (4) the first one. Two upstreams that match exactly the same keys are a mistake.
//!
//! **A key never leaves its upstream's path.** Scheme, host and the path's text before the first placeholder
//! are always as configured: placeholders come after them, and their values have no `\`, no `//` and no
//! escape ([`Key`] refuses them). If a value would result in a segment `.` or `..`, or in an escape together
//! with the text after it, the key has no URL. In the path, a slash stays a slash, and characters outside
//! [`KeyCharset::Ascii`] are escaped. In the query, all but unreserved characters (RFC 3986, 2.3) are
//! escaped. If redirects are followed, the same rules apply to their targets.
//!
//! Deliberately absent: regular expressions, optional parts, placeholders in a host.

mod body;
mod key;
mod url;

pub(crate) use body::BodyTemplate;
pub(crate) use key::KeyPattern;
pub(crate) use url::UrlTemplate;

use crate::options::{FeedsOptions, PushedKeys, UpstreamOptions};
use crate::secrets::UrlText;
use stentor_hub::{Key, KeyCharset, KeyRule};
use stentor_ports::FeedSource;

/// A mistake in the configuration of an upstream's keys or URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteError {
    /// The field of [`UpstreamOptions`]: `prefix`, `key`, `url` or `body`.
    pub field: &'static str,
    /// The mistake, for humans. Never contains the query or the user information of a URL.
    pub text: String,
}

/// The checked keys of one upstream, and the URL from which they are fetched.
#[derive(Clone, Debug)]
pub struct Route {
    pattern: KeyPattern,
    url: UrlTemplate,
    body: Option<BodyTemplate>,
}

impl Route {
    /// Checks the fields of [`UpstreamOptions`] with the same names. Secrets in the URL are already replaced.
    /// An empty body means no body.
    ///
    /// # Errors
    /// Returns all mistakes, at least one.
    pub fn new(
        prefix: &str,
        key: &str,
        url: impl Into<UrlText>,
        keys: KeyCharset,
        body: &str,
    ) -> Result<Self, Vec<RouteError>> {
        let pattern = KeyPattern::new(prefix, key, keys);
        let names = pattern.as_ref().ok().map(KeyPattern::names);
        let url = UrlTemplate::new(&url.into(), names);
        let body = names
            .filter(|_| !body.is_empty())
            .map(|names| BodyTemplate::new(body, names.unwrap_or_default()));
        match (url, pattern, body.transpose()) {
            (Ok(url), Ok(pattern), Ok(body)) => Self { pattern, url, body }.using_all_placeholders(),
            (url, pattern, body) => {
                Err([pattern.err(), url.err(), body.err()].into_iter().flatten().collect())
            }
        }
    }

    /// Refuses a route with an unused placeholder. Different keys would have the same document, most likely
    /// by mistake.
    fn using_all_placeholders(self) -> Result<Self, Vec<RouteError>> {
        let is_used =
            |number| self.url.uses(number) || self.body.as_ref().is_some_and(|body| body.uses(number));
        let names = self.pattern.names().unwrap_or_default();
        match names.iter().enumerate().find(|(number, _)| !is_used(*number)) {
            Some((_, name)) => {
                let elsewhere = if self.body.is_some() { ", nor in body" } else { "" };
                let text = format!("{{{name}}} of the key isn't used in it{elsewhere}");
                Err(vec![RouteError { field: "url", text }])
            }
            None => Ok(self),
        }
    }

    /// Returns a text that is the same for all routes that match the same keys.
    pub fn shape(&self) -> String {
        self.pattern.shape()
    }

    /// Returns the shape ([`Self::shape`]) of pushed keys, which have no URL.
    ///
    /// # Errors
    /// The mistakes in the keys.
    pub fn shape_of(prefix: &str, key: &str, keys: KeyCharset) -> Result<String, RouteError> {
        KeyPattern::new(prefix, key, keys).map(|pattern| pattern.shape())
    }

    /// Returns the parts of the route.
    pub(crate) fn into_parts(self) -> (KeyPattern, UrlTemplate, Option<BodyTemplate>) {
        (self.pattern, self.url, self.body)
    }
}

/// Finds the upstream of a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(Vec<(usize, KeyPattern, KeyCharset)>);

impl Routes {
    /// Makes the routes of these upstreams. Their patterns have been checked before. An upstream with an
    /// invalid pattern has no keys.
    pub(crate) fn new(upstreams: &[UpstreamOptions]) -> Self {
        Self::with_pushed(upstreams, &[])
    }

    /// Makes the routes of upstreams and of pushed keys. The numbers of pushed keys follow those of
    /// upstreams.
    pub(crate) fn with_pushed(upstreams: &[UpstreamOptions], pushed: &[PushedKeys]) -> Self {
        let upstreams = upstreams.iter().map(|upstream| (&upstream.prefix, &upstream.key, upstream.keys));
        let pushed = pushed.iter().map(|pushed| (&pushed.prefix, &pushed.key, pushed.keys));
        let patterns = upstreams.chain(pushed).enumerate();
        let patterns = patterns.filter_map(|(i, (prefix, key, charset))| {
            Some((i, KeyPattern::new(prefix, key, charset).ok()?, charset))
        });
        let mut all: Vec<_> = patterns.collect();
        // The sort is stable, so the first of equal patterns stays first.
        all.sort_by_key(|(_, pattern, _)| std::cmp::Reverse(pattern.rank()));
        Self(all)
    }

    /// Returns the number of the key's upstream. The most specific matching pattern decides, even if its
    /// upstream doesn't accept the key's characters.
    pub(crate) fn find(&self, key: &Key) -> Option<usize> {
        let (upstream, _, charset) = self.0.iter().find(|(_, pattern, _)| pattern.fits(key))?;
        key.is_of(*charset).then_some(*upstream)
    }
}

impl FeedsOptions {
    /// Returns a function that returns the source of a key's document.
    pub fn sources(&self) -> impl Fn(&Key) -> FeedSource + Send + Sync + use<> {
        let (routes, upstreams) = (Routes::with_pushed(&self.upstreams, &self.pushed), self.upstreams.len());
        move |key| match routes.find(key) {
            Some(number) if number < upstreams => FeedSource::Fetched,
            Some(_) => FeedSource::Pushed,
            None => FeedSource::Unknown,
        }
    }

    /// Returns the rule for the keys that clients and backends may use.
    pub fn key_rule(&self) -> KeyRule {
        let routes = Routes::with_pushed(&self.upstreams, &self.pushed);
        let is_wide = routes.0.iter().any(|(_, _, charset)| *charset != KeyCharset::Ascii);
        if is_wide { KeyRule::new(move |key| routes.find(key).is_some()) } else { KeyRule::default() }
    }
}

#[cfg(test)]
mod tests;
