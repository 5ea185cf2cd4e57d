//! Transport of requests: a TCP connection to the host of the URL, a Unix domain socket, or a proxy, with TLS
//! for `https://`.
//!
//! A proxy forwards requests for `http://`, and opens tunnels (`CONNECT`) for `https://`, in which TLS runs
//! end to end with the upstream.

use super::failure::chain;
use crate::options::UpstreamOptions;
use hyper::Uri;
use hyper::header::HeaderValue;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::error::Error;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tower_service::Service;

type BoxError = Box<dyn Error + Send + Sync>;

/// An open transport.
pub(super) type Stream = TokioIo<Box<dyn Io>>;

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The route to an upstream.
pub(super) struct Transport {
    way: Way,
    tls: TlsConnector,
    /// The authority whose host is the SNI name and must be in the certificate. `None` means that of the URL.
    host: Option<Uri>,
}

enum Way {
    Host(HttpConnector),
    Socket(PathBuf),
    Proxy(HttpConnector, Intercept),
}

impl Transport {
    /// Makes the transport. `begin` is the common start of the upstream's URLs, including the host.
    pub(super) fn new(options: &UpstreamOptions, begin: &str, tls: Arc<ClientConfig>) -> Self {
        let tcp = super::tcp(options.connect_timeout);
        let proxy = begin.parse().ok().and_then(|url| options.proxy.of(&url));
        Self {
            way: match (&options.socket, proxy) {
                (Some(path), _) => Way::Socket(path.clone()),
                (None, Some(proxy)) => Way::Proxy(tcp, proxy),
                (None, None) => Way::Host(tcp),
            },
            tls: TlsConnector::from(tls),
            // The value has been checked before, so it can be parsed.
            host: options.host.as_ref().and_then(|host| host.parse().ok()),
        }
    }

    /// Returns the credentials (`Some(None)` without) of the proxy to which requests are sent. `None` if
    /// requests go to the upstream, possibly in a tunnel.
    pub(super) fn http_proxy(&self, url: &Uri) -> Option<Option<&HeaderValue>> {
        match &self.way {
            Way::Proxy(_, proxy) if !is_secure(url) => Some(proxy.basic_auth()),
            _ => None,
        }
    }

    /// Opens a transport to the host of `url`.
    pub(super) async fn open(&self, url: &Uri) -> Result<Stream, BoxError> {
        let stream = match &self.way {
            Way::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                let stream = stream.map_err(|error| format!("{}: {error}", path.display()))?;
                return Ok(TokioIo::new(Box::new(stream)));
            }
            Way::Host(tcp) => connect(tcp.clone(), url).await?,
            Way::Proxy(tcp, proxy) => {
                let stream = if is_secure(url) {
                    let tunnel = Tunnel::new(proxy.uri().clone(), tcp.clone());
                    let auth = proxy.basic_auth().cloned();
                    connect(
                        match auth {
                            Some(auth) => tunnel.with_auth(auth),
                            None => tunnel,
                        },
                        url,
                    )
                    .await
                } else {
                    connect(tcp.clone(), proxy.uri()).await
                };
                stream.map_err(|error| format!("by the proxy {}: {}", proxy.uri(), chain(&*error)))?
            }
        };
        if !is_secure(url) {
            return Ok(TokioIo::new(Box::new(stream)));
        }
        let name = server_name(self.host.as_ref().unwrap_or(url))?;
        Ok(TokioIo::new(Box::new(self.tls.connect(name, stream).await?)))
    }
}

async fn connect<C>(mut connector: C, url: &Uri) -> Result<TcpStream, BoxError>
where
    C: Service<Uri, Response = TokioIo<TcpStream>>,
    C::Error: Into<BoxError>,
{
    poll_fn(|context| connector.poll_ready(context)).await.map_err(Into::<BoxError>::into)?;
    Ok(connector.call(url.clone()).await.map_err(Into::<BoxError>::into)?.into_inner())
}

fn is_secure(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}

/// Returns the name that the certificate must have.
pub(super) fn server_name(url: &Uri) -> Result<ServerName<'static>, rustls::pki_types::InvalidDnsNameError> {
    let host = url.host().unwrap_or_default();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    ServerName::try_from(address.unwrap_or(host).to_owned())
}
