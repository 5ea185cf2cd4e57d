//! Addresses of the servers, with credentials.
//!
//! Several servers are named in one URL as other clients do: `redis+sentinel://host:port,host:port/name` and
//! `redis+cluster://host:port,host:port`.

use crate::engine::Identity;
use crate::engine::common::{Endpoint, Login, percent_decoded, tls};
use std::path::Path;
use tokio_rustls::TlsConnector;

/// The default ports of a server and of a Sentinel.
const PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;

const EXPECTED: &str = "expected a URL such as redis://user:password@host:6379/0, \
                        redis+sentinel://user:password@host:26379,host:26379/name or redis+cluster://user:password@host:6379,host:6379; \
                        rediss for TLS";

/// The way in which the primary is found.
#[derive(Debug)]
pub(super) enum Topology {
    /// This server is the primary.
    Standalone(Endpoint),
    /// Sentinels know the primary by this name.
    Sentinel {
        sentinels: Vec<Endpoint>,
        name: String,
        /// User and password at the Sentinels.
        login: Login,
    },
    /// Some nodes of a cluster. Each of them lists the primaries.
    Cluster(Vec<Endpoint>),
}

/// Addresses and credentials of the servers.
pub(super) struct Address {
    pub(super) topology: Topology,
    pub(super) tls: Option<TlsConnector>,
    pub(super) login: Login,
    /// Number of the database.
    pub(super) database: u32,
}

impl Address {
    /// Parses a URL.
    ///
    /// # Errors
    /// A description of the mistake, without the password.
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
        let login = Login::parse(credentials).ok_or_else(wrong)?;
        let endpoints = |port| Endpoint::parse_list(hosts, port).ok_or_else(wrong);
        let (topology, database) = match kind {
            "" if query.is_empty() => match <[_; 1]>::try_from(endpoints(PORT)?) {
                Ok([endpoint]) => (Topology::Standalone(endpoint), path),
                Err(_) => return Err(wrong()),
            },
            "+sentinel" => {
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err(wrong());
                }
                let (sentinels, name) = (endpoints(SENTINEL_PORT)?, name.into());
                let login = sentinel_login(query).ok_or_else(wrong)?;
                (Topology::Sentinel { sentinels, name, login }, database)
            }
            "+cluster" if path.is_empty() && query.is_empty() => (Topology::Cluster(endpoints(PORT)?), ""),
            _ => return Err(wrong()),
        };
        let database = if database.is_empty() { Ok(0) } else { database.parse() };
        Ok(Self { topology, tls, login, database: database.map_err(|_| wrong())? })
    }

    /// Credentials and database of the primaries.
    pub(super) fn login(&self) -> (&Login, u32) {
        (&self.login, self.database)
    }
}

/// Parses `sentinel_user=…&sentinel_password=…`, both optional.
fn sentinel_login(query: &str) -> Option<Login> {
    let mut login = Login::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=')? {
            ("sentinel_user", value) => login.user = percent_decoded(value)?,
            ("sentinel_password", value) => login.password = Some(percent_decoded(value)?),
            _ => return None,
        }
    }
    Some(login)
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
            ("redis://user:p%40ss@example.com:7000/3", "example.com:7000", (3, "user", Some("p@ss"))),
            ("redis://[::1]", "[::1]:6379", (0, "", None)),
            (
                "redis+sentinel://:pass@one,two:5000,[::1]/main/4",
                "main at one:26379 two:5000 [::1]:26379",
                (4, "", Some("pass")),
            ),
            (
                "redis+sentinel://user:pass@one/main?sentinel_user=s&sentinel_password=p%40ss",
                "main at one:26379 as s:p@ss",
                (0, "user", Some("pass")),
            ),
            ("redis+cluster://:pass@one,two:1", "cluster of one:6379 two:1", (0, "", Some("pass"))),
        ] {
            let address = parse(url).unwrap();
            let list = |endpoints: &[Endpoint]| {
                endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            };
            let shown = match &address.topology {
                Topology::Standalone(endpoint) => endpoint.to_string(),
                Topology::Sentinel { sentinels, name, login } => {
                    let Login { user, password } = login;
                    let login = password.as_ref().map(|password| format!(" as {user}:{password}"));
                    format!("{name} at {}{}", list(sentinels), login.unwrap_or_default())
                }
                Topology::Cluster(seeds) => format!("cluster of {}", list(seeds)),
            };
            assert_eq!(shown, topology);
            let Login { user, password } = &address.login;
            assert_eq!((address.database, &**user, password.as_deref()), login);
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
            "redis://:secret@host/x",
            "redis://:secret@one,two",
            "redis://:secret%4@host",
        ] {
            let error = parse(bad).err().unwrap();
            assert!(error.contains("expected a URL") && !error.contains("secret"), "{bad}: {error}");
        }
    }
}
