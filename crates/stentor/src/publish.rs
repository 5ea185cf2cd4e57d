//! `stentor publish`: one message to a room, by the admin API of a running server.

use crate::cli::PublishArgs;
use crate::http_client;
use anyhow::{Context, bail};
use bytes::Bytes;
use hyper::{Method, Request, StatusCode, Uri, header};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::process::ExitCode;

/// Most of an answer that is read: it is an error for people, or nothing.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The body of `POST /api/v1/publish`.
#[derive(Serialize)]
struct Message<'a> {
    room: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a str>,
    data: Box<RawValue>,
}

pub(crate) fn run(args: &PublishArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(publish(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn publish(args: &PublishArgs) -> anyhow::Result<()> {
    let uri = endpoint(&args.admin)?;
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&uri)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Bytes::from(body(args)?))?;
    if let Some(token) = &args.token {
        let value = header::HeaderValue::from_str(&format!("Bearer {token}"));
        let value = value.ok().context("--token has characters that no header can have")?;
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    let answer = match http_client::send(request, ANSWER_BYTES_MAX).await {
        Ok(answer) => answer,
        Err(error) if error.root_cause().to_string() == "connection refused" => {
            bail!(
                "--admin {}: connection refused; is the server running, and is this its admin port?",
                args.admin
            )
        }
        Err(error) => return Err(error),
    };
    let said = String::from_utf8_lossy(answer.body());
    match answer.status() {
        status if status.is_success() => Ok(()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if args.token.is_none() => {
            bail!(
                "the server wants its admin token: --token, or STENTOR_SERVER_ADMIN_TOKEN ({})",
                said.trim()
            )
        }
        status => bail!("the server refused ({status}): {}", said.trim()),
    }
}

/// The message, with `DATA` spliced in where it is JSON, else as a JSON string.
fn body(args: &PublishArgs) -> anyhow::Result<Vec<u8>> {
    let data = match serde_json::from_str::<Box<RawValue>>(&args.data) {
        Ok(json) => json,
        Err(_) => to_raw_value(&args.data)?,
    };
    let message = Message { room: &args.room, event: args.event.as_deref(), data };
    Ok(serde_json::to_vec(&message)?)
}

/// Where to post, from `http://host:port` or `host:port`.
fn endpoint(admin: &str) -> anyhow::Result<Uri> {
    let base = admin.trim_end_matches('/');
    let base = if base.contains("://") { base.to_string() } else { format!("http://{base}") };
    let uri: Uri =
        format!("{base}/api/v1/publish").parse().with_context(|| format!("--admin {admin}: no URL"))?;
    match uri.scheme_str() {
        Some("http") => Ok(uri),
        _ => bail!("--admin {admin}: only http:// is spoken here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(admin: &str, event: Option<&str>, data: &str) -> PublishArgs {
        let (room, event) = ("news".into(), event.map(Into::into));
        PublishArgs { admin: admin.into(), token: None, room, event, data: data.into() }
    }

    #[test]
    fn data_is_json_or_text() {
        fn check(event: Option<&str>, data: &str, expect: &str) {
            assert_eq!(String::from_utf8(body(&args("", event, data)).unwrap()).unwrap(), expect);
        }
        check(None, "hello", r#"{"room":"news","data":"hello"}"#);
        check(Some("goal"), r#"{"n": 1}"#, r#"{"room":"news","event":"goal","data":{"n": 1}}"#);
        check(None, "12345678901234567890123", r#"{"room":"news","data":12345678901234567890123}"#);
        check(None, "{broken", r#"{"room":"news","data":"{broken"}"#);
        check(None, "", r#"{"room":"news","data":""}"#);
        check(None, "a\"b\n", r#"{"room":"news","data":"a\"b\n"}"#);
    }

    #[test]
    fn endpoints() {
        fn check(admin: &str, expect: Result<&str, &str>) {
            let found = endpoint(admin).map(|uri| uri.to_string()).map_err(|error| error.to_string());
            assert_eq!(found, expect.map(Into::into).map_err(Into::into), "{admin}");
        }
        check("http://127.0.0.1:8001", Ok("http://127.0.0.1:8001/api/v1/publish"));
        check("http://127.0.0.1:8001/", Ok("http://127.0.0.1:8001/api/v1/publish"));
        check("localhost:8001", Ok("http://localhost:8001/api/v1/publish"));
        check("http://[::1]:8001", Ok("http://[::1]:8001/api/v1/publish"));
        check("https://example.com", Err("--admin https://example.com: only http:// is spoken here"));
        check("a b", Err("--admin a b: no URL"));
    }
}
