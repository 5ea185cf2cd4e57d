//! From keys to upstream URLs, and the clients that fetch them.
//!
//! A key is appended to its upstream's path and nothing else: [`stentor_hub::Key`] has no dot segments, no
//! escapes, no `?`, `#`, `\` or `//`, so it can't leave that path, and redirects are never followed. Requests go
//! over HTTP/1.1 with keep-alive, to the configured host only; proxies named in the environment aren't used.

mod answer;
mod digest;
mod failure;
mod fetch;

pub(crate) use answer::is_json;
pub(crate) use digest::{Digested, Digester, Received, differ};
pub(crate) use failure::Failure;
pub(crate) use fetch::{Fetched, chain};

use crate::error::Error;
use crate::options::{Content, FeedsOptions, UpstreamOptions, at_least_one, duration};
use bytes::Bytes;
use http_body_util::Empty;
use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::Key;
use stentor_hub::delta::Differ;

/// Bytes of an answer's head, at the most.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// An idle connection is given up after this time. Shorter than most servers' own, so that few requests meet a
/// connection that is just being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Fields that the client itself is responsible for.
const RESERVED_HEADERS: [&str; 10] = [
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "if-modified-since",
    "if-none-match",
    "range",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// A client that speaks plain and over TLS.
pub(crate) type HttpClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// One upstream, checked and ready.
pub(crate) struct Upstream {
    pub(crate) name: Arc<str>,
    options: UpstreamOptions,
    /// Scheme, host, port and path, without the last slash.
    base: String,
    /// With its question mark; or empty.
    query: String,
    headers: HeaderMap,
    client: HttpClient<Empty<Bytes>>,
    differ: Arc<Differ>,
}

/// All upstreams, in the order of [`FeedsOptions::upstreams`].
pub(crate) struct Upstreams(Vec<Arc<Upstream>>);

impl Upstreams {
    /// Checks the options and makes the clients. Opens no connection.
    pub(crate) fn new(options: &FeedsOptions) -> Result<Self, Error> {
        let (mut names, mut prefixes) = (HashSet::new(), HashSet::new());
        for upstream in &options.upstreams {
            let place = |field: &str| format!("feeds.upstreams.{}.{field}", upstream.name);
            if upstream.name.is_empty() {
                return Err(Error::setting("feeds.upstreams", "an upstream has no name"));
            }
            if !names.insert(&upstream.name) {
                return Err(Error::setting(place("name"), "two upstreams have this name"));
            }
            if !prefixes.insert(&upstream.prefix) {
                return Err(Error::setting(
                    place("prefix"),
                    format!("another upstream has the prefix {:?} as well", upstream.prefix),
                ));
            }
            at_least_one(&place("concurrency_max"), upstream.concurrency_max)?;
            at_least_one(&place("document_bytes_max"), upstream.document_bytes_max)?;
            for (field, value) in [
                ("interval", upstream.interval),
                ("timeout", upstream.timeout),
                ("read_timeout", upstream.read_timeout),
            ] {
                duration(&place(field), value, Duration::from_millis(1))?;
            }
        }
        let bases = options.upstreams.iter().map(base).collect::<Result<Vec<_>, _>>()?;
        let secure = bases.iter().any(|(base, _)| base.starts_with("https:"));
        let tls = tls(if secure { Some(options) } else { None })?;
        let upstreams = options.upstreams.iter().zip(bases).map(|(options, (base, query))| {
            Ok(Arc::new(Upstream {
                name: options.name.as_str().into(),
                headers: headers(options)?,
                client: client(tls.clone(), options.read_timeout, options.concurrency_max),
                base,
                query,
                differ: differ(&options.identity),
                options: options.clone(),
            }))
        });
        Ok(Self(upstreams.collect::<Result<_, Error>>()?))
    }

    pub(crate) fn at(&self, index: usize) -> &Arc<Upstream> {
        &self.0[index]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.0.iter()
    }
}

impl Upstream {
    /// Where `key` is fetched from.
    fn url(&self, key: &Key) -> Option<Uri> {
        format!("{}/{key}{}", self.base, self.query).parse().ok()
    }

    /// Says where documents come from. Not the query: it may hold a secret.
    pub(crate) fn log(&self) {
        let UpstreamOptions { prefix, interval, .. } = &self.options;
        tracing::info!(upstream = &*self.name, prefix, url = self.base, ?interval, "feeds come from here");
    }

    fn accepts_json_only(&self) -> bool {
        self.options.content == Content::Json
    }
}

/// Splits a base URL into what comes before the key and what comes after.
fn base(options: &UpstreamOptions) -> Result<(String, String), Error> {
    let wrong = |message: &str| Error::setting(format!("feeds.upstreams.{}.base_url", options.name), message);
    let uri: Uri = options.base_url.parse().map_err(|_| wrong("isn't a URL"))?;
    let (scheme, authority) = match (uri.scheme_str(), uri.authority()) {
        (Some(scheme @ ("http" | "https")), Some(authority)) => (scheme, authority),
        _ => return Err(wrong("needs http:// or https:// and a host")),
    };
    if authority.as_str().contains('@') {
        return Err(wrong("may not hold a user name or password; put them into headers, as Authorization"));
    }
    if options.base_url.contains('#') {
        return Err(wrong("may not have a fragment (#)"));
    }
    if uri.path().split('/').any(|segment| segment == "." || segment == "..") {
        return Err(wrong("may not have a segment '.' or '..'"));
    }
    let path = uri.path().trim_end_matches('/');
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    Ok((format!("{scheme}://{authority}{path}"), query))
}

/// The fields sent with every request.
fn headers(options: &UpstreamOptions) -> Result<HeaderMap, Error> {
    let accept = match options.content {
        Content::Json => "application/json",
        Content::Any => "*/*",
    };
    let mut headers = HeaderMap::new();
    headers.insert("accept", HeaderValue::from_static(accept));
    headers.insert("accept-encoding", HeaderValue::from_static("gzip"));
    headers.insert("user-agent", HeaderValue::from_static(concat!("stentor/", env!("CARGO_PKG_VERSION"))));
    for (name, value) in &options.headers {
        // Values may be secrets: messages name the field only.
        let wrong = |message: &str| {
            Error::setting(format!("feeds.upstreams.{}.headers", options.name), format!("{name:?} {message}"))
        };
        let field = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("isn't a field's name"))?;
        if RESERVED_HEADERS.contains(&field.as_str()) {
            return Err(wrong("is set by Stentor itself"));
        }
        let mut value =
            HeaderValue::from_str(value).map_err(|_| wrong("has a value with forbidden characters"))?;
        value.set_sensitive(true);
        headers.insert(field, value);
    }
    Ok(headers)
}

/// A client whose pool keeps at most `idle_max` connections.
pub(crate) fn client<B>(
    tls: rustls::ClientConfig,
    connect_timeout: Duration,
    idle_max: usize,
) -> HttpClient<B>
where
    B: hyper::body::Body + Send,
    B::Data: Send,
{
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(connect_timeout));
    let https =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(http);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(idle_max)
        .http1_max_buf_size(HEAD_BYTES_MAX)
        .build(https)
}

/// TLS with verified certificates. `None`: no https upstream, so nothing needs to be trusted.
pub(crate) fn tls(options: Option<&FeedsOptions>) -> Result<rustls::ClientConfig, Error> {
    let mut roots = rustls::RootCertStore::empty();
    match options.map(|options| &options.ca_file) {
        None => {}
        Some(Some(file)) => {
            let wrong = |why: &dyn std::fmt::Display| {
                Error::setting("feeds.ca_file", format!("{}: {why}", file.display()))
            };
            for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
            if roots.is_empty() {
                return Err(wrong(&"no certificates in it"));
            }
        }
        Some(None) => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(Error::setting(
                    "feeds.ca_file",
                    "an upstream uses https, and this system has no certificates to trust; install the package \
                     ca-certificates, or name a file of PEM certificates",
                ));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::setting("feeds", format!("TLS can't be set up: {error}")))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(base_url: &str) -> UpstreamOptions {
        UpstreamOptions { name: "scores".into(), base_url: base_url.into(), ..UpstreamOptions::default() }
    }

    fn feeds(upstreams: Vec<UpstreamOptions>) -> FeedsOptions {
        FeedsOptions { upstreams, ..FeedsOptions::default() }
    }

    #[test]
    fn keys_stay_below_the_base_url() {
        fn check(base_url: &str, key: &str, expect: &str) {
            let upstreams = Upstreams::new(&feeds(vec![options(base_url)])).unwrap();
            let url = upstreams.at(0).url(&Key::parse(key).unwrap()).unwrap();
            assert_eq!(url, expect);
            let parsed: Uri = base_url.parse().unwrap();
            assert_eq!(url.authority(), parsed.authority());
            assert!(url.path().starts_with(parsed.path().trim_end_matches('/')));
        }
        check("http://h", "a/b", "http://h/a/b");
        check("http://h/", "a", "http://h/a");
        check("http://h:81/api/v1", "a/b", "http://h:81/api/v1/a/b");
        check("http://h/api//", "a", "http://h/api/a");
        check("http://[::1]:8080/x", "a", "http://[::1]:8080/x/a");
        check("http://h/api?token=1&b=2", "a/b", "http://h/api/a/b?token=1&b=2");
        check("http://h/api", "@evil.example", "http://h/api/@evil.example");
        check("http://h", "@evil.example:80/x", "http://h/@evil.example:80/x");
        check("http://h", "http:/x", "http://h/http:/x");
        check("http://h/api", "...", "http://h/api/...");
        check("http://h/api", "a=b,c+d~e_f-g", "http://h/api/a=b,c+d~e_f-g");
    }

    #[test]
    fn what_can_never_work_is_refused_with_the_setting_named() {
        fn check(change: impl Fn(&mut UpstreamOptions), expect: &str) {
            let mut upstream = options("http://h");
            change(&mut upstream);
            let error = Upstreams::new(&feeds(vec![upstream])).err().expect("an error").to_string();
            assert!(error.contains(expect), "{error}");
        }
        check(|u| u.name.clear(), "feeds.upstreams: an upstream has no name");
        check(|u| u.base_url = "h/x".into(), "feeds.upstreams.scores.base_url: ");
        check(|u| u.base_url = "ftp://h/x".into(), "needs http:// or https://");
        check(|u| u.base_url = "/x".into(), "needs http:// or https://");
        check(|u| u.base_url = "http://u:secret@h/x".into(), "put them into headers");
        check(|u| u.base_url = "http://h/x#y".into(), "fragment");
        check(|u| u.base_url = "http://h/a/../b".into(), "'..'");
        check(|u| u.base_url = "http://h/a b".into(), "isn't a URL");
        check(|u| u.interval = Duration::ZERO, "feeds.upstreams.scores.interval: must be at least 1ms");
        check(|u| u.timeout = Duration::MAX, "at most a year");
        check(|u| u.concurrency_max = 0, "concurrency_max: must be at least 1");
        check(|u| u.headers = vec![("Host".into(), "x".into())], "\"Host\" is set by Stentor itself");
        check(|u| u.headers = vec![("a b".into(), "x".into())], "isn't a field's name");
        check(|u| u.headers = vec![("x".into(), "a\r\nb: c".into())], "forbidden characters");
        let twice = vec![options("http://h"), options("http://h")];
        assert!(Upstreams::new(&feeds(twice)).err().unwrap().to_string().contains("two upstreams"));
        let other = UpstreamOptions { name: "other".into(), ..options("http://h") };
        let error = Upstreams::new(&feeds(vec![options("http://h"), other])).err().unwrap().to_string();
        assert_eq!(error, "feeds.upstreams.other.prefix: another upstream has the prefix \"\" as well");
        let missing =
            FeedsOptions { ca_file: Some("/nonexistent.pem".into()), ..feeds(vec![options("https://h")]) };
        assert!(Upstreams::new(&missing).err().unwrap().to_string().starts_with("feeds.ca_file: "));
    }
}
