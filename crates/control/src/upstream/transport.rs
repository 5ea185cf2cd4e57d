//! Transport of requests: a TCP connection to the host of the URL, with TLS for `https://`, or a Unix domain socket.

use crate::options::UpstreamOptions;
use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::error::Error;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

/// An open transport.
pub(super) type Stream = TokioIo<Box<dyn Io>>;

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// How an upstream is reached.
pub(super) struct Transport {
    tcp: HttpConnector,
    /// Connected to instead of the host.
    socket: Option<PathBuf>,
    tls: TlsConnector,
    /// The authority whose host is named in the handshake and in the certificate. `None`: that of the URL.
    host: Option<Uri>,
}

impl Transport {
    pub(super) fn new(options: &UpstreamOptions, tls: Arc<ClientConfig>) -> Self {
        Self {
            tcp: super::tcp(options.connect_timeout),
            socket: options.socket.clone(),
            tls: TlsConnector::from(tls),
            // It was checked.
            host: options.host.as_ref().and_then(|host| host.parse().ok()),
        }
    }

    /// Opens a transport to the host of `url`.
    pub(super) async fn open(&self, url: &Uri) -> Result<Stream, Box<dyn Error + Send + Sync>> {
        if let Some(path) = &self.socket {
            let stream = UnixStream::connect(path).await;
            let stream = stream.map_err(|error| format!("{}: {error}", path.display()))?;
            return Ok(TokioIo::new(Box::new(stream)));
        }
        let mut tcp = self.tcp.clone();
        poll_fn(|context| tcp.poll_ready(context)).await?;
        let stream = tcp.call(url.clone()).await?.into_inner();
        if url.scheme_str() != Some("https") {
            return Ok(TokioIo::new(Box::new(stream)));
        }
        let name = server_name(self.host.as_ref().unwrap_or(url))?;
        Ok(TokioIo::new(Box::new(self.tls.connect(name, stream).await?)))
    }
}

/// The name that the certificate must have.
pub(super) fn server_name(url: &Uri) -> Result<ServerName<'static>, rustls::pki_types::InvalidDnsNameError> {
    let host = url.host().unwrap_or_default();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    ServerName::try_from(address.unwrap_or(host).to_owned())
}
