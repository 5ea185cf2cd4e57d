//! Upstreams, and the clients that fetch their documents.
//!
//! [`crate::route`] makes the URL of a key's document. Redirects are followed only within its path, and only
//! if configured. Requests use HTTP/1.1 with keep-alive, and go only to the configured host, through a proxy
//! if one is configured. The content of requests is configured, except the key, which comes from a client.

mod answer;
mod bodies;
mod connections;
mod cookies;
mod decode;
mod document_processor;
mod explain;
mod failure;
mod fetch;
mod probe;
mod proxy;
mod redirect;
mod rotation;
mod settings;
mod tls;
mod transport;

pub(crate) use answer::{Coding, coding, is_json};
pub(crate) use bodies::Bodies;
pub(crate) use document_processor::{DocumentProcessor, Received, differ};
pub(crate) use failure::{Failure, chain};
pub(crate) use fetch::Fetched;
pub use probe::{Probe, probe};
pub(crate) use probe::{ProbeError, Prober};
pub(crate) use rotation::Rotating;
pub(crate) use tls::tls;
pub use tls::{check_client_certificate, check_trusted_certificates};

use crate::error::Error;
use crate::options::{Content, ContentCoding, FeedsOptions, Redirects, RequestMethod, UpstreamOptions};
use crate::route::{BodyTemplate, KeyPattern, Route, UrlTemplate};
use crate::secrets::{Masks, Secrets};
use connections::Connections;
use cookies::CookieJar;
use explain::{escaped, shown_url};
use hyper::Uri;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use redirect::Scope;
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::Duration;
use stentor_delta::Differ;
use stentor_hub::Key;
use tls::SectionTls;
use transport::Transport;

/// Maximum size of the headers of a hook's response in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum number of headers of a response.
const HEADERS_MAX: usize = 1000;
/// Time after which an idle connection is closed. Shorter than the idle timeout of most servers, so that few
/// requests use a connection that the server is just closing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// A client for HTTP and HTTPS.
pub(crate) type HttpClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// One upstream with checked options, ready for fetches.
#[derive(Clone)]
pub(crate) struct Upstream {
    name: Arc<str>,
    options: Arc<UpstreamOptions>,
    route: FilledRoute,
    headers: HeaderMap,
    /// The header `Host`. `None` means the host of the URL.
    host: Option<HeaderValue>,
    /// The cookies of the upstream. `None` means that cookies are ignored.
    cookies: Option<Arc<CookieJar>>,
    /// The allowed targets of redirects. `None` means that redirects aren't followed.
    redirects: Option<Arc<Scope>>,
    tls: Arc<ClientConfig>,
    connections: Arc<Connections>,
    differ: Arc<Differ>,
}

/// The keys of an upstream and their URLs, with the values of secrets.
#[derive(Clone)]
struct FilledRoute {
    pattern: KeyPattern,
    url: UrlTemplate,
    /// The body of POST requests. `None` means that requests use GET.
    body: Option<BodyTemplate>,
    masks: Masks,
}

/// All upstreams, in the order of [`FeedsOptions::upstreams`].
#[derive(Clone)]
pub(crate) struct Upstreams(Vec<Arc<Rotating>>);

impl Upstreams {
    /// Makes the upstreams, with the checks that the configuration can't make. Opens no connection.
    pub(crate) fn new(options: &FeedsOptions) -> Result<Self, Error> {
        let secrets = &options.secrets;
        let routes = options.upstreams.iter().map(|upstream| FilledRoute::new(upstream, secrets));
        let routes = routes.collect::<Result<Vec<_>, Error>>()?;
        let mut tls = SectionTls::new(options);
        let upstreams = options.upstreams.iter().zip(routes).map(|(options, route)| {
            if let Some((field, text)) = options.check().into_iter().next() {
                return Err(Error::setting(format!("feeds.upstreams.{}.{field}", options.name), text));
            }
            let tls = tls.of(options, route.url.is_secure())?;
            let upstream = Upstream {
                name: options.name.as_str().into(),
                headers: headers(options, secrets)?,
                host: options.host.as_ref().and_then(|host| HeaderValue::from_str(host).ok()),
                cookies: cookies(options, &route.url),
                redirects: scope(options, &route.url),
                connections: connections(options, &route.url, &tls),
                tls,
                route,
                differ: differ(&options.identity, options.ignored().unwrap_or_default()),
                options: Arc::new(options.clone()),
            };
            Ok(Arc::new(Rotating::new(upstream, secrets)))
        });
        Ok(Self(upstreams.collect::<Result<_, Error>>()?))
    }

    pub(crate) fn at(&self, index: usize) -> &Arc<Rotating> {
        &self.0[index]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Rotating>> {
        self.0.iter()
    }
}

impl FilledRoute {
    fn new(options: &UpstreamOptions, secrets: &Secrets) -> Result<Self, Error> {
        let UpstreamOptions { name, prefix, key, url, keys, body, .. } = options;
        let wrong = |field: &str, text| Error::setting(format!("feeds.upstreams.{name}.{field}"), text);
        let mut others = options.proxy.secrets();
        others.extend(secrets.of_basic_auth(&options.basic_auth));
        let masks = Masks::new(&options.headers, url, others, secrets);
        let url = secrets.url(url).map_err(|text| wrong("url", text))?;
        let route = Route::new(prefix, key, url, *keys, body).map_err(|errors| {
            let field = errors.first().map_or("url", |error| error.field);
            let texts: Vec<_> = errors.into_iter().map(|error| error.text).collect();
            wrong(field, texts.join("; "))
        })?;
        let (pattern, url, body) = route.into_parts();
        Ok(Self { pattern, url, body, masks })
    }
}

impl Upstream {
    /// Returns the URL of `key`. `None` if the URL would leave the upstream's path.
    fn url(&self, key: &Key) -> Option<Uri> {
        self.route.url.fill(key, &self.route.pattern.values(key)?)
    }

    /// Returns the URL of a key for messages.
    fn shown_url(&self, key: &Key) -> String {
        self.route.url.fill_shown(key, &self.route.pattern.values(key).unwrap_or_default())
    }

    /// Returns the URL of a response for messages: that of the key, or the target of a redirect.
    fn shown_target(&self, key: &Key, url: &Uri) -> String {
        match self.url(key).as_ref() == Some(url) || self.route.url.has_secret_origin() {
            true => self.shown_url(key),
            false => self.shown(&shown_url(url)),
        }
    }

    /// Returns the upstream with the current values of its secrets. `None` if the values are unchanged.
    fn renewed(&self, secrets: &Secrets) -> Result<Option<Self>, Error> {
        let route = FilledRoute::new(&self.options, secrets)?;
        let headers = headers(&self.options, secrets)?;
        if headers == self.headers && route.url == self.route.url {
            return Ok(None);
        }
        if route.url.is_secure() && !self.route.url.is_secure() {
            let text = "begins with https:// now, which needs a reload";
            return Err(Error::setting(format!("feeds.upstreams.{}.url", self.name), text));
        }
        let options = &*self.options;
        let redirects = scope(options, &route.url);
        let (cookies, connections) = match route.url.origin() == self.route.url.origin() {
            true => (self.cookies.clone(), self.connections.clone()),
            false => (cookies(options, &route.url), connections(options, &route.url, &self.tls)),
        };
        Ok(Some(Self { route, headers, redirects, cookies, connections, ..self.clone() }))
    }

    /// Logs which keys the upstream has, and its URL.
    fn log(&self) {
        let UpstreamOptions { prefix, key, poll_interval, .. } = &*self.options;
        let url = self.route.url.shown();
        tracing::info!(upstream = &*self.name, prefix, key, url, ?poll_interval, "feed configured");
    }

    /// Returns a text from the upstream on one line, with secrets and cookies masked.
    fn shown(&self, text: &str) -> String {
        escaped(&self.route.masks.mask(&self.without_cookies(text)))
    }

    fn without_cookies(&self, text: &str) -> String {
        self.cookies.as_ref().map_or_else(|| text.to_owned(), |cookies| cookies.mask(text))
    }

    fn accepts_json_only(&self) -> bool {
        self.options.content == Content::Json
    }
}

/// Returns the cookie jar for the host that requests have. `None` without `cookies`.
fn cookies(options: &UpstreamOptions, url: &UrlTemplate) -> Option<Arc<CookieJar>> {
    let host: Option<Uri> = options.host.as_deref().unwrap_or(url.begin()).parse().ok();
    let host = host.as_ref().and_then(Uri::host).unwrap_or_default();
    options.cookies.then(|| Arc::new(CookieJar::new(host, url.is_secure())))
}

fn scope(options: &UpstreamOptions, url: &UrlTemplate) -> Option<Arc<Scope>> {
    match options.redirects {
        Redirects::Never => None,
        Redirects::SamePath => Scope::new(url.begin()).map(Arc::new),
    }
}

fn connections(options: &UpstreamOptions, url: &UrlTemplate, tls: &Arc<ClientConfig>) -> Arc<Connections> {
    Arc::new(Connections::new(Transport::new(options, url.begin(), tls.clone()), options))
}

/// Returns the header `Accept-Encoding`. Without it, any coding would be acceptable (RFC 9110, section
/// 12.5.3).
fn accept_encoding(options: &UpstreamOptions) -> &'static str {
    let accepts = |coding| options.accept_encoding.contains(&coding);
    match (accepts(ContentCoding::Gzip), accepts(ContentCoding::Brotli)) {
        (true, true) => "gzip, br",
        (true, false) => "gzip",
        (false, true) => "br",
        (false, false) => "identity",
    }
}

/// Returns the headers of every request.
fn headers(options: &UpstreamOptions, secrets: &Secrets) -> Result<HeaderMap, Error> {
    let accept = match options.content {
        Content::Json => "application/json",
        Content::Any => "*/*",
    };
    let mut headers = HeaderMap::new();
    headers.insert("accept", HeaderValue::from_static(accept));
    headers.insert("accept-encoding", HeaderValue::from_static(accept_encoding(options)));
    if options.method == RequestMethod::Post {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    headers.insert("user-agent", HeaderValue::from_static(concat!("stentor/", env!("CARGO_PKG_VERSION"))));
    for (name, value) in &options.headers {
        let (name, value) = secrets
            .header(name, value)
            .map_err(|text| Error::setting(format!("feeds.upstreams.{}.headers", options.name), text))?;
        headers.insert(name, value);
    }
    if !options.basic_auth.is_empty() {
        let value = secrets.basic_auth(&options.basic_auth);
        let wrong = |text| Error::setting(format!("feeds.upstreams.{}.basic_auth", options.name), text);
        headers.insert(AUTHORIZATION, value.map_err(wrong)?);
    }
    Ok(headers)
}

/// Makes a client whose pool keeps at most `idle_max` connections, each for `idle_timeout`.
pub(crate) fn client<B>(
    tls: rustls::ClientConfig,
    connect_timeout: Duration,
    idle_max: usize,
    idle_timeout: Duration,
) -> HttpClient<B>
where
    B: hyper::body::Body + Send,
    B::Data: Send,
{
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(idle_timeout)
        .pool_max_idle_per_host(idle_max)
        .http1_max_buf_size(HEAD_BYTES_MAX)
        .build(
            HttpsConnectorBuilder::new()
                .with_tls_config(tls)
                .https_or_http()
                .enable_http1()
                .wrap_connector(tcp(connect_timeout)),
        )
}

/// Makes a connector that opens TCP connections.
fn tcp(connect_timeout: Duration) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_timeout));
    tcp
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> UpstreamOptions {
        UpstreamOptions { name: "scores".into(), url: url.into(), ..UpstreamOptions::default() }
    }

    fn feeds(upstreams: Vec<UpstreamOptions>) -> FeedsOptions {
        FeedsOptions { upstreams, ..FeedsOptions::default() }
    }

    #[test]
    fn invalid_settings_are_refused_by_name() {
        fn check(change: impl Fn(&mut UpstreamOptions), expect: &str) {
            let mut upstream = options("http://h");
            change(&mut upstream);
            let error = Upstreams::new(&feeds(vec![upstream])).err().expect("an error").to_string();
            assert!(error.contains(expect), "{error}");
        }
        check(|u| u.url = "h/x".into(), "feeds.upstreams.scores.url: ");
        check(|u| u.url = "ftp://h/x".into(), "beginning with http:// or https://");
        check(|u| u.url = "http://u:secret@h/x".into(), "credentials belong in the headers");
        check(|u| u.key = "a/{x}".into(), "feeds.upstreams.scores.url: {x} of the key isn't used in it");
        check(|u| u.ignore = vec!["at".into()], "feeds.upstreams.scores.ignore: expected a JSON pointer");
        check(|u| u.key = "a/{x".into(), "feeds.upstreams.scores.key: a { has no }");
        check(|u| u.headers = vec![("Host".into(), "x".into())], "\"Host\" is set by the fetcher itself");
        check(|u| u.headers = vec![("a b".into(), "x".into())], "is no name of a header");
        check(|u| u.headers = vec![("x".into(), "a\r\nb: c".into())], "characters that no header can have");
        let missing =
            FeedsOptions { ca_file: Some("/nonexistent.pem".into()), ..feeds(vec![options("https://h")]) };
        assert!(Upstreams::new(&missing).err().unwrap().to_string().starts_with("feeds_limits.ca_file: "));
    }

    #[test]
    fn compressions_are_offered_as_configured() {
        use ContentCoding::{Brotli, Gzip};
        let offered = |codings: &[ContentCoding]| {
            let options = UpstreamOptions { accept_encoding: codings.to_vec(), ..options("http://h") };
            headers(&options, &Secrets::default()).unwrap()["accept-encoding"].to_str().unwrap().to_owned()
        };
        let cases = [&[Gzip, Brotli][..], &[Brotli, Gzip], &[Gzip], &[Brotli], &[]].map(offered);
        assert_eq!(cases, ["gzip, br", "gzip, br", "gzip", "br", "identity"]);
    }
}
