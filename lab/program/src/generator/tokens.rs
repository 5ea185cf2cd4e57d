//! Tokens of clients, in the query of their path.

use std::error;
use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::json;
use stentor_auth::{Algorithm, Key, SigningKey};

use crate::Error;

/// The issuer of all tokens.
pub(crate) const ISSUER: &str = "lab";
const LIFETIME_S: u64 = 3600;

/// Kind of the clients' tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tokens {
    /// The signing key.
    pub key: TokenKey,
    /// `true` if each client has its own token, which a server can't have cached.
    pub differ: bool,
}

/// A signing key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TokenKey {
    /// A secret for HS256.
    Secret(String),
    /// The file of a private key for ES256.
    Private(PathBuf),
}

impl Tokens {
    /// Makes a token for each client, or one token for all.
    pub(super) fn make(&self, clients: usize) -> Result<Vec<String>, Error> {
        self.signed(clients).map_err(|error| Error::Usage(format!("the key of tokens: {error}")))
    }

    fn signed(&self, clients: usize) -> Result<Vec<String>, Box<dyn error::Error>> {
        let key = match &self.key {
            TokenKey::Secret(secret) => {
                SigningKey::secret(&Key::secret(None, secret.as_bytes())?, Algorithm::Hs256)?
            }
            TokenKey::Private(file) => SigningKey::es256(None, &fs::read_to_string(file)?)?,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let sign = |number: usize| {
            let sub = format!("client-{number}");
            let claims = json!({"iss": ISSUER, "sub": sub, "iat": now, "exp": now + LIFETIME_S});
            Ok(key.sign(&claims.as_object().cloned().unwrap_or_default())?)
        };
        (0..if self.differ { clients } else { 1 }).map(sign).collect()
    }
}
