//! The client behind `stentor publish`: one message to a running Stentor's admin port.

use crate::upstream::{chain, client, tls};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::error::Error as _;
use std::time::Duration;

/// All of it takes no longer.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of an answer, at the most.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Why nothing was published. For people at a command line.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The URL is none.
    #[error("--admin {url}: not a URL; it looks like http://127.0.0.1:8001")]
    Url {
        /// What was given.
        url: String,
    },
    /// The token can't be sent.
    #[error("the token has characters that are not allowed in a header")]
    Token,
    /// Nobody answers there.
    #[error("no server answers at {url} ({cause}); check that it runs and that --admin is its admin address")]
    Connect {
        /// What was given.
        url: String,
        /// Why not.
        cause: String,
    },
    /// The answer didn't come in time.
    #[error("{url} didn't answer within {TIMEOUT:?}; does --admin name the admin port?")]
    Timeout {
        /// What was given.
        url: String,
    },
    /// It wants a token, or another one.
    #[error("{url} wants a token, or another one than given: {message}")]
    Unauthorized {
        /// What was given.
        url: String,
        /// What it said.
        message: String,
    },
    /// It said no.
    #[error("{url} refused the message ({status}): {message}")]
    Refused {
        /// What was given.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What it said.
        message: String,
    },
    /// Something else listens there.
    #[error("{url} is not Stentor's admin port ({status}); set --admin, by default http://127.0.0.1:8001")]
    Stranger {
        /// What was given.
        url: String,
        /// The HTTP status.
        status: u16,
    },
}

#[derive(Serialize)]
struct Message<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    room: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a str>,
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

/// Whom a message is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// The room; where there is none, all Socket.IO clients of the namespace.
    pub room: Option<&'a str>,
    /// The namespace of Socket.IO; `/` unless it is said.
    pub namespace: Option<&'a str>,
    /// The event's name.
    pub event: Option<&'a str>,
}

/// Publishes one message to `target` through the admin port at `url` (`http://127.0.0.1:8001`). `data` that is JSON
/// goes as it is, anything else as a JSON string. Needs a tokio runtime.
///
/// # Errors
/// For people: they name the URL and the flag to change.
pub async fn publish_client(
    url: &str,
    token: Option<&str>,
    target: Target<'_>,
    data: &str,
) -> Result<(), PublishError> {
    let url_error = || PublishError::Url { url: url.into() };
    let base: Uri = url.parse().map_err(|_| url_error())?;
    if !matches!(base.scheme_str(), Some("http" | "https")) || base.host().is_none() {
        return Err(url_error());
    }
    let route = format!("{}/api/v1/publish", url.trim_end_matches('/'));
    let mut request = Request::new(Full::new(Bytes::from(body(target, data))));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = route.parse().map_err(|_| url_error())?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(token) = token {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| PublishError::Token)?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let connect_error = |cause: String| PublishError::Connect { url: url.into(), cause };
    let trusted = crate::options::FeedsOptions::default();
    let secure = base.scheme_str() == Some("https");
    let tls = tls(secure.then_some(&trusted)).map_err(|error| connect_error(error.to_string()))?;
    let exchange = async {
        let answer = client(tls, TIMEOUT, 0).request(request).await;
        let answer =
            answer.map_err(|error| connect_error(error.source().map_or_else(|| error.to_string(), chain)))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map(|body| body.to_bytes()).unwrap_or_default()))
    };
    let (status, answer) = tokio::time::timeout(TIMEOUT, exchange)
        .await
        .map_err(|_| PublishError::Timeout { url: url.into() })??;
    let refusal = || serde_json::from_slice::<Refusal>(&answer).ok().map(|refusal| refusal.message);
    match (status, serde_json::from_slice::<Published>(&answer)) {
        (StatusCode::OK, Ok(Published { published: 1 })) => Ok(()),
        (StatusCode::UNAUTHORIZED, _) => {
            let message = refusal().unwrap_or_else(|| "401".into());
            Err(PublishError::Unauthorized { url: url.into(), message })
        }
        _ => match refusal() {
            Some(message) => Err(PublishError::Refused { url: url.into(), status: status.as_u16(), message }),
            None => Err(PublishError::Stranger { url: url.into(), status: status.as_u16() }),
        },
    }
}

fn body(target: Target<'_>, data: &str) -> Vec<u8> {
    let Target { room, namespace, event } = target;
    // Text always makes a string, and a message of such parts always serialises.
    let write =
        |data: &RawValue| serde_json::to_vec(&Message { room, namespace, event, data }).unwrap_or_default();
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
