//! The client behind `stentor publish`, `stentor top`, `stentor fetch` and `stentor reload`: one request to a running Stentor's admin port.

use crate::upstream::{chain, client, tls};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::error::Error as _;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum time of a request, from connecting to the end of the response.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum time of `POST /api/v1/fetch`. The `timeout` of a feed is at most one hour.
const FETCH_TIMEOUT: Duration = Duration::from_secs(3660);
/// Maximum size of a response, in bytes.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The failure of a request. The text is for a command line: it contains the URL and the flag to change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ClientError(String);

#[derive(Serialize)]
struct Message<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    room: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    data: &'a RawValue,
}

#[derive(Deserialize)]
struct Published {
    published: u64,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

/// The recipients of a message, and its event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// The room; `None` means all Socket.IO clients of the namespace.
    pub room: Option<&'a str>,
    /// The Socket.IO namespace; `None` means `/`.
    pub namespace: Option<&'a str>,
    /// The event's name.
    pub event: Option<&'a str>,
    /// The idempotency key. A message with the key of an earlier message isn't published again
    /// (docs/admin-api.md).
    pub idempotency_key: Option<&'a str>,
}

/// The admin port of a running server. Its requests need a tokio runtime.
#[derive(Clone, Debug)]
pub struct AdminClient {
    /// URL of the admin port, such as `http://127.0.0.1:8001`.
    pub url: String,
    /// The admin token, if the server has one.
    pub token: Option<String>,
    /// File with PEM certificates to trust for `https://`, instead of the system's.
    pub ca_file: Option<PathBuf>,
}

/// The effect of a reload: the response of `POST /api/v1/reload`.
#[derive(Debug, Deserialize)]
pub struct ReloadReport {
    /// Changed configuration keys that have been applied.
    pub applied: Vec<String>,
    /// Changed configuration keys that apply only after a restart.
    pub restart_needed: Vec<String>,
    /// Warnings about the configuration.
    pub warnings: Vec<String>,
}

/// A fetch by the server: the response of `POST /api/v1/fetch`.
#[derive(Debug, Deserialize)]
pub struct FetchReport {
    /// `true` if the fetch returned a document.
    pub document: bool,
    /// Description of the fetch.
    pub text: String,
}

impl AdminClient {
    /// Publishes one message to `target`. `data` is sent as it is if it is JSON, otherwise as a JSON string.
    ///
    /// # Errors
    /// The message isn't published, or it is unknown whether it is.
    pub async fn publish(&self, target: Target<'_>, data: &str) -> Result<(), ClientError> {
        let path = "/api/v1/publish";
        let Published { published } =
            self.request(Method::POST, path, body(target, data), "the message").await?;
        match published {
            1 => Ok(()),
            _ => Err(self.refused("the message", StatusCode::OK, &[])),
        }
    }

    /// Returns the status of the server, the response of `GET /api/v1/status`.
    ///
    /// # Errors
    /// No server answers, or it refuses the request.
    pub async fn status(&self) -> Result<serde_json::Value, ClientError> {
        self.request(Method::GET, "/api/v1/status", Vec::new(), "the request").await
    }

    /// Returns the time series and findings, the response of `GET /api/v1/overview`, without samples up to a Unix
    /// time in milliseconds.
    ///
    /// # Errors
    /// No server answers, or it refuses the request.
    pub async fn overview(&self, after_ms: u64) -> Result<serde_json::Value, ClientError> {
        let path = format!("/api/v1/overview?after_ms={after_ms}");
        self.request(Method::GET, &path, Vec::new(), "the request").await
    }

    /// Makes the server reload its configuration.
    ///
    /// # Errors
    /// The configuration has mistakes, which the error lists. It is then unchanged. Or no server answers.
    pub async fn reload(&self) -> Result<ReloadReport, ClientError> {
        self.request(Method::POST, "/api/v1/reload", Vec::new(), "the configuration").await
    }

    /// Makes the server fetch a feed's document from its API.
    ///
    /// # Errors
    /// No feed with a URL matches the key, or no server answers.
    pub async fn fetch(&self, key: &str) -> Result<FetchReport, ClientError> {
        #[derive(Serialize)]
        struct Request<'a> {
            key: &'a str,
        }
        // Serializing a text can't fail.
        let body = serde_json::to_vec(&Request { key }).unwrap_or_default();
        self.request_within(FETCH_TIMEOUT, Method::POST, "/api/v1/fetch", body, "the key").await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        what: &str,
    ) -> Result<T, ClientError> {
        self.request_within(TIMEOUT, method, path, body, what).await
    }

    async fn request_within<T: DeserializeOwned>(
        &self,
        timeout: Duration,
        method: Method,
        path: &str,
        body: Vec<u8>,
        what: &str,
    ) -> Result<T, ClientError> {
        let (status, answer) = self.exchange(timeout, method, path, body).await.map_err(ClientError)?;
        match serde_json::from_slice(&answer) {
            Ok(value) if status == StatusCode::OK => Ok(value),
            _ => Err(self.refused(what, status, &answer)),
        }
    }

    fn refused(&self, what: &str, status: StatusCode, answer: &[u8]) -> ClientError {
        let url = &self.url;
        let refusal = serde_json::from_slice::<Refusal>(answer).ok().map(|refusal| refusal.message);
        ClientError(match (status.as_u16(), refusal) {
            (401, message) => {
                let message = message.as_deref().unwrap_or("401");
                format!("{url} wants a token, or another one than given: {message}")
            }
            (status, Some(message)) => format!("{url} refused {what} ({status}): {message}"),
            (status, None) => format!(
                "{url} is not Stentor's admin port ({status}); set --admin, by default http://127.0.0.1:8001"
            ),
        })
    }

    /// Returns the status and body of the response.
    async fn exchange(
        &self,
        timeout: Duration,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), String> {
        let Self { url, token, ca_file } = self;
        let no_url = || format!("--admin {url}: not a URL; it looks like http://127.0.0.1:8001");
        let base: Uri = url.parse().map_err(|_| no_url())?;
        if !matches!(base.scheme_str(), Some("http" | "https")) || base.host().is_none() {
            return Err(no_url());
        }
        let route = format!("{}{path}", url.trim_end_matches('/'));
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = route.parse().map_err(|_| no_url())?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut value = value.map_err(|_| "the token has characters that are not allowed in a header")?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let unreachable = |cause: String| {
            format!(
                "no server answers at {url} ({cause}); check that it runs and that --admin is its admin address"
            )
        };
        let is_secure = base.scheme_str() == Some("https");
        let tls = tls(is_secure, ca_file.as_deref()).map_err(|text| format!("--ca-file: {text}"))?;
        let exchange = async {
            let answer = client(tls, TIMEOUT, 0, TIMEOUT).request(request).await;
            let answer = answer
                .map_err(|error| unreachable(error.source().map_or_else(|| error.to_string(), chain)))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok::<_, String>((status, body.map(|body| body.to_bytes()).unwrap_or_default()))
        };
        let late = |_| format!("{url} didn't answer within {timeout:?}; does --admin name the admin port?");
        tokio::time::timeout(timeout, exchange).await.map_err(late)?
    }
}

fn body(target: Target<'_>, data: &str) -> Vec<u8> {
    let Target { room, namespace, event, idempotency_key } = target;
    // Serializing texts and JSON values can't fail.
    let write = |data: &RawValue| {
        serde_json::to_vec(&Message { room, namespace, event, idempotency_key, data }).unwrap_or_default()
    };
    match serde_json::from_str::<&RawValue>(data) {
        Ok(json) => write(json),
        Err(_) => serde_json::value::to_raw_value(data).map(|text| write(&text)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_data_is_sent_as_json() {
        fn check(data: &str, expect: &str) {
            let text =
                String::from_utf8(body(Target { room: Some("r"), ..Target::default() }, data)).unwrap();
            assert_eq!(text, format!(r#"{{"room":"r","data":{expect}}}"#));
        }
        check("1.50", "1.50");
        check(" {\"a\": 1} ", "{\"a\": 1}");
        check("\"text\"", "\"text\"");
        check("hello \"you\"", r#""hello \"you\"""#);
        check("", "\"\"");
        check("{broken", "\"{broken\"");
        let event = Target { room: Some("r"), event: Some("e"), ..Target::default() };
        assert_eq!(body(event, "1"), br#"{"room":"r","event":"e","data":1}"#);
        let everybody = Target { namespace: Some("/n"), ..Target::default() };
        assert_eq!(body(everybody, "1"), br#"{"namespace":"/n","data":1}"#);
    }
}
