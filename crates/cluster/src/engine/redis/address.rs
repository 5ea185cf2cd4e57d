//! Where the servers are, and how to speak to them.
//!
//! Several servers are named in one URL as other clients do: `redis+sentinel://host:port,host:port/name` and
//! `redis+cluster://host:port,host:port`.

use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use stentor_json::without_byte_order_mark;
use tokio_rustls::TlsConnector;

use crate::engine::Identity;

/// The ports of a server and of a Sentinel, unless the URL names others.
const PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;

const EXPECTED: &str = "expected a URL such as redis://user:password@host:6379/0, \
                        redis+sentinel://user:password@host:26379,host:26379/name or redis+cluster://user:password@host:6379,host:6379; \
                        rediss for TLS";

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// How the primary is found.
#[derive(Debug)]
pub(super) enum Topology {
    /// It is this one.
    Standalone(Endpoint),
    /// Sentinels know it by this name.
    Sentinel {
        sentinels: Vec<Endpoint>,
        name: String,
        /// User and password at the Sentinels.
        login: RedisConnectionInfo,
    },
    /// The nodes of a cluster tell; these are some of them.
    Cluster(Vec<Endpoint>),
}

/// Where the servers are, with credentials.
pub(super) struct Address {
    pub(super) topology: Topology,
    pub(super) tls: Option<TlsConnector>,
    /// User, password and database.
    pub(super) login: RedisConnectionInfo,
}

impl Address {
    /// Parses a URL.
    ///
    /// # Errors
    /// What is wrong, without the password.
    pub(super) fn parse(
        url: &str,
        ca_file: Option<&Path>,
        identity: Option<&Identity>,
    ) -> Result<Self, String> {
        let wrong = || EXPECTED.to_string();
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (has_tls, kind) = match scheme.strip_prefix("rediss") {
            Some(kind) => (true, kind),
            None => (false, scheme.strip_prefix("redis").ok_or_else(wrong)?),
        };
        let tls = has_tls.then(|| tls(ca_file, identity)).transpose()?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let endpoints = |port| hosts.split(',').map(|host| endpoint(host, port)).collect::<Option<Vec<_>>>();
        let (topology, login) = match kind {
            "" if query.is_empty() => {
                let (endpoint, login) = server(&format!("{credentials}@{hosts}/{path}")).ok_or_else(wrong)?;
                (Topology::Standalone(endpoint), login)
            }
            "+sentinel" => {
                let sentinels = endpoints(SENTINEL_PORT).ok_or_else(wrong)?;
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err(wrong());
                }
                let (_, login) = server(&format!("{credentials}@host/{database}")).ok_or_else(wrong)?;
                let sentinel_login = sentinel_login(query).ok_or_else(wrong)?;
                (Topology::Sentinel { sentinels, name: name.into(), login: sentinel_login }, login)
            }
            "+cluster" if path.is_empty() && query.is_empty() => {
                let (_, login) = server(&format!("{credentials}@host")).ok_or_else(wrong)?;
                (Topology::Cluster(endpoints(PORT).ok_or_else(wrong)?), login)
            }
            _ => return Err(wrong()),
        };
        Ok(Self { topology, tls, login })
    }
}

/// Parses what follows `redis://`.
fn server(rest: &str) -> Option<(Endpoint, RedisConnectionInfo)> {
    let info = format!("redis://{rest}").as_str().into_connection_info().ok()?;
    let ConnectionAddr::Tcp(host, port) = info.addr() else { return None };
    let endpoint = Endpoint { host: host.trim_matches(['[', ']']).into(), port: *port };
    let login = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    // A user with few permissions isn't allowed to.
    Some((endpoint, login.set_skip_set_lib_name()))
}

/// Parses `host` or `host:port`.
fn endpoint(text: &str, port: u16) -> Option<Endpoint> {
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    let (mut endpoint, _) = server(text)?;
    if !has_port {
        endpoint.port = port;
    }
    Some(endpoint)
}

/// Parses `sentinel_user=…&sentinel_password=…`, both optional.
fn sentinel_login(query: &str) -> Option<RedisConnectionInfo> {
    let (mut user, mut password) = ("", "");
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=')? {
            ("sentinel_user", value) => user = value,
            ("sentinel_password", value) => password = value,
            _ => return None,
        }
    }
    let credentials = if query.is_empty() { String::new() } else { format!("{user}:{password}@") };
    server(&format!("{credentials}sentinel")).map(|(_, login)| login)
}

/// What encrypts connections.
pub(in crate::engine) fn tls(
    ca_file: Option<&Path>,
    identity: Option<&Identity>,
) -> Result<TlsConnector, String> {
    let mut roots = rustls::RootCertStore::empty();
    if let Some(file) = ca_file {
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err("there are no certificates to trust: install ca-certificates, or name a CA file".into());
    }
    let failed = |error| format!("can't set up TLS: {error}");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(Identity { certificate_file, key_file }) => {
            let wrong = |why: &dyn fmt::Display| format!("{}: {why}", key_file.display());
            let text = std::fs::read(key_file).map_err(|error| wrong(&error))?;
            let key = PrivateKeyDer::from_pem_slice(without_byte_order_mark(&text))
                .map_err(|error| wrong(&error))?;
            config.with_client_auth_cert(certificates(certificate_file)?, key).map_err(failed)?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The certificates of a PEM file, at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |why: &dyn fmt::Display| format!("{}: {why}", file.display());
    let text = std::fs::read(file).map_err(|error| wrong(&error))?;
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(without_byte_order_mark(&text)).collect();
    let certificates = certificates.map_err(|error| wrong(&error))?;
    if certificates.is_empty() {
        return Err(wrong(&"it has no certificate"));
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, String> {
        Address::parse(url, None, None)
    }

    #[test]
    fn urls() {
        for (url, topology, login) in [
            ("redis://user:p%40ss@example.com:7000/3", "example.com:7000", (3, Some("user"), Some("p@ss"))),
            ("redis://[::1]", "[::1]:6379", (0, None, None)),
            (
                "redis+sentinel://:pass@one,two:5000,[::1]/main/4",
                "main at one:26379 two:5000 [::1]:26379",
                (4, None, Some("pass")),
            ),
            (
                "redis+sentinel://user:pass@one/main?sentinel_user=s&sentinel_password=p%40ss",
                "main at one:26379 as s:p@ss",
                (0, Some("user"), Some("pass")),
            ),
            ("redis+cluster://:pass@one,two:1", "cluster of one:6379 two:1", (0, None, Some("pass"))),
        ] {
            let address = parse(url).unwrap();
            let list = |endpoints: &[Endpoint]| {
                endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            };
            let shown = match &address.topology {
                Topology::Standalone(endpoint) => endpoint.to_string(),
                Topology::Sentinel { sentinels, name, login } => {
                    let (user, password) = (login.username(), login.password());
                    let login = user.zip(password).map(|(user, password)| format!(" as {user}:{password}"));
                    format!("{name} at {}{}", list(sentinels), login.unwrap_or_default())
                }
                Topology::Cluster(seeds) => format!("cluster of {}", list(seeds)),
            };
            assert_eq!(shown, topology);
            let settings = &address.login;
            assert_eq!((settings.db(), settings.username(), settings.password()), login);
        }
    }

    #[test]
    fn wrong_urls_are_refused_without_the_password() {
        for bad in [
            "redis://user:secret@host:port",
            "http://secret@host",
            "redis://:secret@",
            "unix:///secret",
            "redis://:secret@host?x=1",
            "redis+sentinel://:secret@host",
            "redis+sentinel://:secret@host,/name",
            "redis+sentinel://host/name?secret=1",
            "redis+cluster://:secret@host/1",
            "redis+other://:secret@host",
        ] {
            let error = parse(bad).err().unwrap();
            assert!(error.contains("expected a URL") && !error.contains("secret"), "{bad}: {error}");
        }
    }
}
