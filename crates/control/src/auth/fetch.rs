//! Fetches the keys of an issuer: one GET of a configured URL, limited in time and size, without following
//! redirects.

use crate::error::Error;
use crate::upstream::{HttpClient, chain, client, tls};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::header::{ACCEPT, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use std::error::Error as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use stentor_auth::{KEY_SET_BYTES_MAX, KeySet, KeySetError};
use stentor_json::without_byte_order_mark;

/// Maximum time of a fetch, from its start to the last byte. Shorter than the default of
/// `limits.decision_timeout`, the maximum time that clients wait for the keys.
const FETCH_TIMEOUT: Duration = Duration::from_secs(4);

/// Reason why keys couldn't be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("can't connect: {0}")]
    Connect(String),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("no complete answer within {FETCH_TIMEOUT:?}")]
    Timeout,
    #[error("the answer is {0}; redirects are not followed")]
    Status(StatusCode),
    #[error(transparent)]
    KeySet(#[from] KeySetError),
}

impl FetchError {
    /// Returns the label in metrics.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Broken(_) => "broken",
            Self::Timeout => "timeout",
            Self::Status(_) => "status",
            Self::KeySet(KeySetError::TooLarge | KeySetError::TooMany) => "too_large",
            Self::KeySet(_) => "invalid",
        }
    }

    /// All values of [`Self::label`].
    pub(super) const LABELS: [&'static str; 6] =
        ["connect", "broken", "timeout", "status", "too_large", "invalid"];
}

/// Parses the URL of an issuer's keys.
///
/// # Errors
/// Returns the expected form. A URL without TLS isn't allowed, because an attacker on the network could
/// replace the keys.
pub(super) fn parse_url(text: &str) -> Result<Uri, &'static str> {
    let expected = "expected a URL such as https://id.example.com/.well-known/jwks.json; http:// only with 127.0.0.1, [::1] or localhost";
    let url: Uri = text.parse().map_err(|_| expected)?;
    let host = url.host().ok_or(expected)?;
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_loopback = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
    match url.scheme_str() {
        _ if has_user => Err("a URL of keys has no credentials"),
        Some("https") => Ok(url),
        Some("http") if is_loopback => Ok(url),
        _ => Err(expected),
    }
}

/// Makes a client for the keys of all issuers.
pub(super) fn key_client(ca_file: Option<&Path>, secure: bool) -> Result<HttpClient<Empty<Bytes>>, Error> {
    let tls = tls(secure, ca_file).map_err(|text| Error::setting("auth.ca_file", text))?;
    Ok(client(tls, FETCH_TIMEOUT, 1, FETCH_TIMEOUT))
}

/// Fetches the keys at a URL once. Returns the number of usable keys, and of skipped ones.
///
/// # Errors
/// The reason why there are no keys.
pub async fn reach_issuer(url: &str, ca_file: Option<&Path>) -> Result<(usize, usize), String> {
    let url = parse_url(url)?;
    let client = key_client(ca_file, url.scheme_str() == Some("https")).map_err(|error| error.to_string())?;
    let set = fetch(&client, &url).await.map_err(|error| error.to_string())?;
    Ok((set.keys.len(), set.skipped))
}

/// Fetches the keys at `url`.
pub(super) async fn fetch(client: &HttpClient<Empty<Bytes>>, url: &Uri) -> Result<KeySet, FetchError> {
    tokio::time::timeout(FETCH_TIMEOUT, request(client, url)).await.map_err(|_| FetchError::Timeout)?
}

async fn request(client: &HttpClient<Empty<Bytes>>, url: &Uri) -> Result<KeySet, FetchError> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = url.clone();
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("application/jwk-set+json, application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("stentor/", env!("CARGO_PKG_VERSION"))));
    let response = client.request(request).await.map_err(|error| {
        let text = error.source().map_or_else(|| error.to_string(), chain);
        if error.is_connect() { FetchError::Connect(text) } else { FetchError::Broken(text) }
    })?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), KEY_SET_BYTES_MAX).collect().await;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() {
            KeySetError::TooLarge.into()
        } else {
            FetchError::Broken(error.to_string())
        }
    })?;
    Ok(KeySet::parse(without_byte_order_mark(&body.to_bytes()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_over_tls_or_from_the_same_machine() {
        for url in
            ["https://id.test/keys", "http://127.0.0.1:9/keys", "http://[::1]/", "http://localhost:1/k?a=b"]
        {
            parse_url(url).unwrap();
        }
        for url in [
            "http://id.test/keys",
            "ftp://127.0.0.1/",
            "id.test",
            "/keys",
            "",
            "http://127.0.0.1.test/",
            "https://a:b@id.test/",
        ] {
            parse_url(url).unwrap_err();
        }
    }
}
