//! Which upstream a key belongs to, and the URL that it is fetched from.
//!
//! An upstream is given its keys in one of two ways:
//!
//! - by **prefix**: the keys that begin with it. The whole key is appended to the path of the upstream's URL.
//! - by **template**: `matchesfeed/{id}/matchcentre` with the URL `http://api/match/{id}?full=1`. A placeholder stands for
//!   one segment of a key or a part of one, never for nothing, and never for a slash; `{rest*}` as the last segment stands for
//!   all that follow. Each placeholder of the key must be used in the URL, in its path or query, or in the body of requests.
//!
//! **Which one wins** where several fit a key: the one with the longest text before its first placeholder (a prefix is
//! nothing but such text); of those a template before one with `{rest*}`, and that before a prefix; of those the one with
//! the most text; of those the first. Two that fit exactly the same keys are a mistake.
//!
//! **A key never leaves its upstream's path.** Scheme, host and the path's text before the first placeholder are always
//! as configured: placeholders stand behind them, what they are replaced by has no `\`, no `//` and no escape ([`Key`]
//! refuses them). Where a replacement would make a segment `.` or `..`, or an escape together with the text behind it, there is no
//! URL. A slash stays one in the path. Characters outside of [`KeyCharset::Ascii`] are escaped there. All but unreserved characters (RFC 3986,
//! 2.3) are escaped in the query. The same holds for redirects, if they are followed at all.
//!
//! What this doesn't do: regular expressions, optional parts, placeholders in a host.

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

/// A mistake in an upstream's keys or URL, made by the author of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteError {
    /// Which field of [`UpstreamOptions`]: `prefix`, `key`, `url` or `body`.
    pub field: &'static str,
    /// The mistake, for humans. Never shows the query or the user information of a URL.
    pub text: String,
}

/// The keys of one upstream, and where they are fetched from; checked.
#[derive(Clone, Debug)]
pub struct Route {
    pattern: KeyPattern,
    url: UrlTemplate,
    body: Option<BodyTemplate>,
}

impl Route {
    /// Checks what [`UpstreamOptions`] says of the same names. The URL has its secrets. An empty body is none.
    ///
    /// # Errors
    /// Everything that is wrong, at least one.
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

    /// Refuses a key with a placeholder that isn't used: two keys would be one document, most likely by mistake.
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

    /// A text that another route has as well exactly if it fits the same keys.
    pub fn shape(&self) -> String {
        self.pattern.shape()
    }

    /// The same text of keys that come from no URL, because their documents are pushed.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn shape_of(prefix: &str, key: &str, keys: KeyCharset) -> Result<String, RouteError> {
        KeyPattern::new(prefix, key, keys).map(|pattern| pattern.shape())
    }

    /// The parts, to be kept where they are used.
    pub(crate) fn into_parts(self) -> (KeyPattern, UrlTemplate, Option<BodyTemplate>) {
        (self.pattern, self.url, self.body)
    }
}

/// Finds the upstream of a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(Vec<(usize, KeyPattern, KeyCharset)>);

impl Routes {
    /// The routes of these upstreams, which were checked before; one whose pattern is none serves no key.
    pub(crate) fn new(upstreams: &[UpstreamOptions]) -> Self {
        Self::with_pushed(upstreams, &[])
    }

    /// The same of upstreams and, numbered after them, keys that are pushed.
    pub(crate) fn with_pushed(upstreams: &[UpstreamOptions], pushed: &[PushedKeys]) -> Self {
        let upstreams = upstreams.iter().map(|upstream| (&upstream.prefix, &upstream.key, upstream.keys));
        let pushed = pushed.iter().map(|pushed| (&pushed.prefix, &pushed.key, pushed.keys));
        let patterns = upstreams.chain(pushed).enumerate();
        let patterns = patterns.filter_map(|(i, (prefix, key, charset))| {
            Some((i, KeyPattern::new(prefix, key, charset).ok()?, charset))
        });
        let mut all: Vec<_> = patterns.collect();
        // The sort is stable: the first of equals stays the first.
        all.sort_by_key(|(_, pattern, _)| std::cmp::Reverse(pattern.rank()));
        Self(all)
    }

    /// The upstream's number, if there is one for the key. The most specific pattern that fits decides, also if its upstream has
    /// no keys with such characters.
    pub(crate) fn find(&self, key: &Key) -> Option<usize> {
        let (upstream, _, charset) = self.0.iter().find(|(_, pattern, _)| pattern.fits(key))?;
        key.is_of(*charset).then_some(*upstream)
    }
}

impl FeedsOptions {
    /// Where the documents of each key come from.
    pub fn sources(&self) -> impl Fn(&Key) -> FeedSource + Send + Sync + use<> {
        let (routes, upstreams) = (Routes::with_pushed(&self.upstreams, &self.pushed), self.upstreams.len());
        move |key| match routes.find(key) {
            Some(number) if number < upstreams => FeedSource::Fetched,
            Some(_) => FeedSource::Pushed,
            None => FeedSource::Unknown,
        }
    }

    /// The keys that clients and backends may name.
    pub fn key_rule(&self) -> KeyRule {
        let routes = Routes::with_pushed(&self.upstreams, &self.pushed);
        let is_wide = routes.0.iter().any(|(_, _, charset)| *charset != KeyCharset::Ascii);
        if is_wide { KeyRule::new(move |key| routes.find(key).is_some()) } else { KeyRule::default() }
    }
}

#[cfg(test)]
mod tests;
