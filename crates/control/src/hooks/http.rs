//! Sends one request to a hook: signed, limited in time and size, without following redirects, and never sent
//! twice.

use super::failure::Cause;
use super::options::{HookOptions, HookSecret};
use super::signature::sign;
use crate::error::Error;
use crate::unix_time::unix_seconds;
use crate::upstream::{HttpClient, chain, client, tls};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use std::error::Error as _;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Time after which idle connections are closed. Node's HTTP server closes them after 5 s, and a request on a
/// connection that it has just closed can't be sent again.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// The header of the signature.
const SIGNATURE: HeaderName = HeaderName::from_static("stentor-signature");

/// The cause of a failed request, with a text for the log.
pub(super) type Failed = (Cause, String);

/// Sends the requests of one hook.
pub(super) struct Sender {
    client: HttpClient<Full<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
    secret: Option<HookSecret>,
    response_bytes_max: usize,
}

impl Sender {
    pub(super) fn new(options: &HookOptions) -> Result<Self, Error> {
        let uri = options.uri().map_err(|text| options.error("url", text))?;
        let is_secure = uri.scheme_str() == Some("https");
        let tls =
            tls(is_secure, options.ca_file.as_deref()).map_err(|text| options.error("ca_file", text))?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let agent = concat!("stentor/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        Ok(Self {
            client: client(tls, options.timeout, options.concurrency_max, IDLE_TIMEOUT),
            uri,
            headers,
            secret: options.secret.clone(),
            response_bytes_max: options.response_bytes_max,
        })
    }

    /// Sends a request and reads the response, which must end before `deadline`.
    pub(super) async fn send(&self, body: Vec<u8>, deadline: std::time::Instant) -> Result<Vec<u8>, Failed> {
        let deadline = Instant::from_std(deadline);
        let exchange = async {
            let response = self.client.request(self.request(body)).await.map_err(|error| {
                let text = error.source().map_or_else(|| error.to_string(), chain);
                (if error.is_connect() { Cause::Connect } else { Cause::Broken }, text)
            })?;
            match response.status() {
                StatusCode::OK => self.read(response.into_body()).await,
                status if status.is_redirection() => {
                    Err((Cause::Redirect, format!("it answered {status}; redirects aren't followed")))
                }
                status => {
                    let concerns_all = matches!(status.as_u16(), 401 | 403 | 429 | 502..=504);
                    let cause = if concerns_all { Cause::Unavailable } else { Cause::Status };
                    Err((cause, format!("it answered {status}")))
                }
            }
        };
        let late = |_| (Cause::Timeout, "the response was not complete in time (timeout)".to_owned());
        timeout_at(deadline, exchange).await.map_err(late)?
    }

    fn request(&self, body: Vec<u8>) -> Request<Full<Bytes>> {
        let signature = self.secret.as_ref().and_then(|secret| sign(secret.reveal(), unix_seconds(), &body));
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        if let Some(signature) = signature.and_then(|text| HeaderValue::try_from(text).ok()) {
            request.headers_mut().insert(SIGNATURE, signature);
        }
        request
    }

    async fn read(&self, mut body: Incoming) -> Result<Vec<u8>, Failed> {
        let bytes_max = self.response_bytes_max;
        let too_large = || {
            (Cause::TooLarge, format!("the response has more than {bytes_max} bytes (response_bytes_max)"))
        };
        // A body with a too large declared length is refused at once. Received bytes are counted in any case.
        if body.size_hint().lower() > u64::try_from(bytes_max).unwrap_or(u64::MAX) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| (Cause::Broken, chain(&error)))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > bytes_max {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }
}

/// Makes the body of a request. `what` is `questions` or `notices`, and `texts` are these.
pub(super) fn body<'a>(node: &str, what: &str, texts: impl Iterator<Item = &'a Vec<u8>> + Clone) -> Vec<u8> {
    let size: usize = texts.clone().map(|text| text.len() + 1).sum();
    let mut body = Vec::with_capacity(size + node.len() + 48);
    // The node's id needs no escaping, because it is hexadecimal.
    body.extend_from_slice(format!("{{\"version\":1,\"node\":\"{node}\",\"{what}\":[").as_bytes());
    for (n, question) in texts.enumerate() {
        if n > 0 {
            body.push(b',');
        }
        body.extend_from_slice(question);
    }
    body.extend_from_slice(b"]}");
    body
}
