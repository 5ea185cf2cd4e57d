//! Where servers are, and how to speak to them.

use rustls::pki_types::ServerName;
use serde_json::{Map, Value};
use std::path::Path;
use tokio_rustls::TlsConnector;

use super::credentials::Credentials;
use crate::engine::Identity;
use crate::engine::redis::tls;

const PORT: u16 = 4_222;

/// The servers of a NATS, any of which will do.
pub(super) struct Servers {
    pub(super) hosts: Vec<(String, u16)>,
    /// Whether the connection has to be encrypted. It is also if the server asks for it.
    pub(super) requires_tls: bool,
    tls: Result<TlsConnector, String>,
    login: Login,
}

enum Login {
    None,
    Token(String),
    Password(String, String),
    Credentials(Credentials),
}

impl Servers {
    /// Parses `nats://[user:password@|token@]host[:port][,host[:port]…]`, or `tls://`.
    ///
    /// # Errors
    /// What is wrong, without the password.
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
        // Otherwise, whoever is between could leave out that the server asks for TLS, and read the password.
        let requires_tls = requires_tls || ca_file.is_some() || identity.is_some();
        let (login, hosts) = match rest.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, rest),
        };
        let hosts = hosts.trim_end_matches('/').split(',').map(|text| host(text).ok_or_else(wrong));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let login = match (login, credentials_file) {
            (None, None) => Login::None,
            (None, Some(file)) => Login::Credentials(Credentials::read(file)?),
            (Some(_), Some(_)) => return Err("the URL and a credentials file both say who connects".into()),
            (Some(login), None) => match login.split_once(':') {
                Some((user, password)) => {
                    Login::Password(decode(user).ok_or_else(wrong)?, decode(password).ok_or_else(wrong)?)
                }
                None => Login::Token(decode(login).ok_or_else(wrong)?),
            },
        };
        let tls = tls(ca_file, identity);
        if let (true, Err(error)) = (requires_tls, &tls) {
            return Err(error.clone());
        }
        Ok(Self { hosts, requires_tls, tls, login })
    }

    /// What encrypts a connection to a host.
    pub(super) fn tls(&self, host: &str) -> Result<(TlsConnector, ServerName<'static>), String> {
        let name =
            ServerName::try_from(host.to_string()).map_err(|_| "TLS: no valid host name".to_string())?;
        Ok((self.tls.clone()?, name))
    }

    /// The credentials for the server. `nonce`: the text that it wants signed.
    pub(super) fn log_in(&self, nonce: &str) -> Map<String, Value> {
        let fields: Vec<(&str, String)> = match &self.login {
            Login::None => vec![],
            Login::Token(token) => vec![("auth_token", token.clone())],
            Login::Password(user, password) => vec![("user", user.clone()), ("pass", password.clone())],
            Login::Credentials(credentials) => {
                vec![("jwt", credentials.jwt.clone()), ("sig", credentials.sign(nonce))]
            }
        };
        fields.into_iter().map(|(name, value)| (name.to_string(), value.into())).collect()
    }
}

/// `HOST[:PORT]`, where a host that has colons is in brackets.
fn host(text: &str) -> Option<(String, u16)> {
    let text = text.strip_prefix("nats://").or_else(|| text.strip_prefix("tls://")).unwrap_or(text);
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(PORT), |port| port.parse().ok())?;
    let is_valid = !host.is_empty() && !host.contains(['/', '?', '#', ' ']);
    is_valid.then(|| (host.into(), port))
}

/// Decodes `%XX`.
fn decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Servers, String> {
        Servers::parse(url, None, None, None)
    }

    #[test]
    fn urls() {
        let hosts = |hosts: &[(&str, u16)]| -> Vec<(String, u16)> {
            hosts.iter().map(|(host, port)| (host.to_string(), *port)).collect()
        };
        for (url, expected, login) in [
            ("nats://a", hosts(&[("a", 4_222)]), "{}"),
            ("nats://a:1,b,nats://[::1]:2", hosts(&[("a", 1), ("b", 4_222), ("::1", 2)]), "{}"),
            ("nats://us%40er:p%3Ass@a:1/", hosts(&[("a", 1)]), r#"{"pass":"p:ss","user":"us@er"}"#),
            ("nats://t%20ok@a", hosts(&[("a", 4_222)]), r#"{"auth_token":"t ok"}"#),
        ] {
            let servers = parse(url).unwrap();
            let (hosts, fields) = (servers.hosts.clone(), servers.log_in(""));
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
