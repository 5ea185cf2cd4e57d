//! Where a server is, and how to speak to it.

use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// A server's address, with credentials.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<(TlsConnector, ServerName<'static>)>,
    /// User, password and database.
    pub(crate) login: RedisConnectionInfo,
}

impl Server {
    /// Parses `redis://[[user]:password@]host[:port][/db]`, or `rediss://` for TLS.
    ///
    /// # Errors
    /// What is wrong, without the password.
    pub(crate) fn parse(url: &str, ca_file: Option<&Path>) -> Result<Self, String> {
        let (plain, has_tls) = match url.strip_prefix("rediss://") {
            Some(rest) => (format!("redis://{rest}"), true),
            None => (url.to_string(), false),
        };
        let wrong =
            || "expected a URL such as redis://user:password@host:6379/0, or rediss:// for TLS".to_string();
        let info = plain.as_str().into_connection_info().map_err(|_| wrong())?;
        let ConnectionAddr::Tcp(host, port) = info.addr() else { return Err(wrong()) };
        let host = host.trim_matches(['[', ']']).to_string();
        let tls = if has_tls {
            let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
            Some((tls(ca_file)?, name))
        } else {
            None
        };
        let login = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        Ok(Self { host, port: *port, tls, login })
    }
}

fn tls(ca_file: Option<&Path>) -> Result<TlsConnector, String> {
    let mut roots = rustls::RootCertStore::empty();
    if let Some(file) = ca_file {
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
            let certificate = certificate.map_err(|error| wrong(&error))?;
            roots.add(certificate).map_err(|error| wrong(&error))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err("there are no certificates to trust: install ca-certificates, or name a CA file".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("can't set up TLS: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let server = Server::parse("redis://user:p%40ss@example.com:7000/3", None).unwrap();
        assert_eq!((&*server.host, server.port, server.login.db()), ("example.com", 7000, 3));
        assert_eq!((server.login.username(), server.login.password()), (Some("user"), Some("p@ss")));
        let server = Server::parse("redis://[::1]", None).unwrap();
        assert_eq!((&*server.host, server.port), ("::1", 6379));
        for bad in
            ["redis://user:secret@host:port", "http://secret@host", "redis://:secret@", "unix:///secret"]
        {
            let error = Server::parse(bad, None).err().unwrap();
            assert!(error.contains("expected a URL") && !error.contains("secret"), "{bad}: {error}");
        }
    }
}
