//! One HTTP/1.1 request over one connection: enough for tests of what we serve.
//!
//! Deliberately no TLS, no redirects, no pool. Bounded in time and in the bytes of the answer.

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Response, Uri, header};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;

/// Time for a request, from connecting to the last byte of the answer.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Sends `request`, whose URI is absolute, and reads an answer of at most `bytes_max`.
pub(crate) async fn send(request: Request<Bytes>, bytes_max: usize) -> anyhow::Result<Response<Bytes>> {
    let uri = request.uri().clone();
    match tokio::time::timeout(TIME_MAX, exchange(request, bytes_max)).await {
        Ok(answer) => answer.with_context(|| uri.to_string()),
        Err(_) => bail!("{uri}: no answer within {} seconds", TIME_MAX.as_secs()),
    }
}

async fn exchange(request: Request<Bytes>, bytes_max: usize) -> anyhow::Result<Response<Bytes>> {
    let uri = request.uri();
    if uri.scheme_str() != Some("http") {
        bail!("only http:// URLs are supported");
    }
    let authority = uri.authority().context("this URL has no host")?.clone();
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await.map_err(refused)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);

    let (mut parts, body) = request.into_parts();
    parts.headers.insert(header::HOST, authority.as_str().parse()?);
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse::<Uri>()?;
    let answer = sender.send_request(Request::from_parts(parts, Full::new(body))).await?;
    let (parts, body) = answer.into_parts();
    let body =
        Limited::new(body, bytes_max).collect().await.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    Ok(Response::from_parts(parts, body))
}

fn refused(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => anyhow::anyhow!("connection refused"),
        _ => error.into(),
    }
}
