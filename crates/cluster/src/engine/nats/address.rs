//! Addresses of the servers, with credentials.

use super::credentials::Credentials;
use crate::engine::Identity;
use crate::engine::common::{Endpoint, Login, tls};
use serde_json::{Map, Value};
use std::path::Path;
use tokio_rustls::TlsConnector;

const PORT: u16 = 4_222;

/// The servers of a NATS deployment. The node connects to any of them.
pub(super) struct Servers {
    pub(super) endpoints: Vec<Endpoint>,
    /// `true` if the connection must be encrypted. It is also encrypted if the server requires it.
    pub(super) requires_tls: bool,
    /// The TLS configuration, or the reason why there is none.
    pub(super) tls: Result<TlsConnector, String>,
    login: Option<Login>,
    credentials: Option<Credentials>,
}

impl Servers {
    /// Parses `nats://[user:password@|token@]host[:port][,host[:port]…]`, or `tls://`.
    ///
    /// # Errors
    /// The mistake, without the password.
    pub(super) fn parse(
        url: &str,
        ca_file: Option<&Path>,
        identity: Option<&Identity>,
        credentials_file: Option<&Path>,
    ) -> Result<Self, String> {
        let wrong = || "expected a URL such as nats://user:password@host:4222, or tls:// for TLS".to_string();
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let requires_tls = match scheme {
            "nats" => false,
            "tls" => true,
            _ => return Err(wrong()),
        };
        // The server's request for TLS isn't authenticated: an attacker on the network could remove it, and read the password.
        let requires_tls = requires_tls || ca_file.is_some() || identity.is_some();
        let (login, hosts) = match rest.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, rest),
        };
        // In a list of servers, each may have the scheme.
        let hosts = hosts.trim_end_matches('/').replace("nats://", "").replace("tls://", "");
        let endpoints = Endpoint::parse_list(&hosts, PORT).ok_or_else(wrong)?;
        if login.is_some() && credentials_file.is_some() {
            return Err("the URL and a credentials file both say who connects".into());
        }
        let login = login.map(|login| Login::parse(login).ok_or_else(wrong)).transpose()?;
        let credentials = credentials_file.map(Credentials::read).transpose()?;
        let tls = tls(ca_file, identity);
        if let (true, Err(error)) = (requires_tls, &tls) {
            return Err(error.clone());
        }
        Ok(Self { endpoints, requires_tls, tls, login, credentials })
    }

    /// The fields of `CONNECT` that authenticate the node. `nonce` is the text to sign for the server.
    pub(super) fn log_in(&self, nonce: &str) -> Map<String, Value> {
        let fields = match (&self.login, &self.credentials) {
            (Some(Login { user, password: Some(password) }), _) => {
                vec![("user", user.clone()), ("pass", password.clone())]
            }
            (Some(Login { user: token, .. }), _) => vec![("auth_token", token.clone())],
            (None, Some(credentials)) => {
                vec![("jwt", credentials.jwt.clone()), ("sig", credentials.sign(nonce))]
            }
            (None, None) => vec![],
        };
        fields.into_iter().map(|(name, value)| (name.to_string(), value.into())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Servers, String> {
        Servers::parse(url, None, None, None)
    }

    #[test]
    fn urls() {
        let hosts = |hosts: &[(&str, u16)]| -> Vec<Endpoint> {
            hosts.iter().map(|(host, port)| Endpoint { host: host.to_string(), port: *port }).collect()
        };
        for (url, expected, login) in [
            ("nats://a", hosts(&[("a", 4_222)]), "{}"),
            ("nats://a:1,b,nats://[::1]:2", hosts(&[("a", 1), ("b", 4_222), ("::1", 2)]), "{}"),
            ("nats://us%40er:p%3Ass@a:1/", hosts(&[("a", 1)]), r#"{"pass":"p:ss","user":"us@er"}"#),
            ("nats://t%20ok@a", hosts(&[("a", 4_222)]), r#"{"auth_token":"t ok"}"#),
        ] {
            let servers = parse(url).unwrap();
            let (hosts, fields) = (servers.endpoints.clone(), servers.log_in(""));
            assert_eq!((hosts, &*Value::from(fields).to_string()), (expected, login), "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused_without_their_password() {
        for url in [
            "nats://u:secret@a:port",
            "http://secret@a",
            "nats://u:secret@",
            "nats://u:secret%4@a",
            "nats://a,,b",
        ] {
            let error = parse(url).err().unwrap();
            assert!(error.contains("expected a URL") && !error.contains("secret"), "{url}: {error}");
        }
        let both = Servers::parse("nats://token@a", None, None, Some(Path::new("/none"))).err().unwrap();
        assert!(both.contains("both"), "{both}");
    }
}
