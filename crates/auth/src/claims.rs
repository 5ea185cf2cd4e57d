//! The claims of a verified token.

use crate::actions::{Actions, Recipients};
use crate::attributes::Attributes;
use crate::error::Refused;
use crate::permissions::Rule;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The claim that grants permissions: `{"allow": [{"topics": […], "allow": […]}], "join": ["room"], "info": {…}}`.
pub const GRANTS_CLAIM: &str = "stentor";
/// Maximum length of a subject or token id in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Maximum time in seconds. Up to this number, every JSON parser represents whole numbers exactly.
const SECONDS_MAX: f64 = (1u64 << 53) as f64;

/// The claims of a verified token. All times are in seconds since 1970.
#[derive(Clone, Debug)]
pub struct Claims {
    /// The issuer: `iss`.
    pub issuer: Arc<str>,
    /// The user: `sub`, 1 to 256 bytes.
    pub subject: Arc<str>,
    /// The token's own id: `jti`, 1 to 256 bytes.
    pub token_id: Option<Arc<str>>,
    /// The time at which the token was issued: `iat`.
    pub issued_at: u64,
    /// The time at which the token expires, at the start of this second: `exp`.
    pub expires_at: u64,
    /// Permissions that the token grants in addition to those of the configuration.
    pub grants: Vec<Rule>,
    /// Rooms of namespace `/` that the client joins when it connects.
    pub join: Vec<String>,
    /// JSON that is shown to other users and sent to hooks.
    pub info: Option<String>,
    /// All claims, for patterns.
    pub attributes: Attributes,
}

/// The claims about time and audience. They are read first, so that errors about them are reported first.
pub(crate) struct Registered {
    pub(crate) expires_at: u64,
    pub(crate) not_before: Option<u64>,
    pub(crate) issued_at: u64,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Grants {
    #[serde(default)]
    allow: Vec<Grant>,
    #[serde(default)]
    join: Vec<String>,
    info: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Grant {
    #[serde(default)]
    topics: Vec<String>,
    #[serde(default)]
    feeds: Vec<String>,
    #[serde(default)]
    rooms: Vec<String>,
    namespace: Option<String>,
    allow: Vec<String>,
}

/// Reads a NumericDate (RFC 7519, section 2), rounded down.
fn time(claims: &Map<String, Value>, claim: &'static str) -> Result<Option<u64>, Refused> {
    match claims.get(claim) {
        None => Ok(None),
        Some(value) => match value.as_f64() {
            Some(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(Some(seconds as u64)),
            _ => Err(Refused::Claim { claim, problem: "is not a time in seconds since 1970" }),
        },
    }
}

/// Reads a text of 1 to 256 bytes without control characters.
fn name(claims: &Map<String, Value>, claim: &'static str) -> Result<Option<Arc<str>>, Refused> {
    let is_name =
        |text: &&str| (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.contains(|c: char| c.is_control());
    match claims.get(claim) {
        None => Ok(None),
        Some(value) => match value.as_str().filter(is_name) {
            Some(text) => Ok(Some(text.into())),
            None => Err(Refused::Claim {
                claim,
                problem: "is not a text of 1 to 256 bytes without control characters",
            }),
        },
    }
}

impl Registered {
    pub(crate) fn read(claims: &Map<String, Value>) -> Result<Self, Refused> {
        let required = |claim| time(claims, claim)?.ok_or(Refused::Claim { claim, problem: "is missing" });
        Ok(Self {
            expires_at: required("exp")?,
            not_before: time(claims, "nbf")?,
            // `iat` is required, because a token without it could outlive its revocation.
            issued_at: required("iat")?,
        })
    }
}

impl Claims {
    /// Reads the claims of a token of `issuer` whose signature, audience and times are valid.
    pub(crate) fn read(
        issuer: Arc<str>,
        times: &Registered,
        claims: Map<String, Value>,
    ) -> Result<Self, Refused> {
        let subject = name(&claims, "sub")?.ok_or(Refused::Claim { claim: "sub", problem: "is missing" })?;
        let token_id = name(&claims, "jti")?;
        let Grants { allow, join, info } = Grants::read(&claims).map_err(Refused::Grants)?;
        let grants = rules(allow).map_err(Refused::Grants)?;
        Ok(Self {
            issuer,
            subject,
            token_id,
            issued_at: times.issued_at,
            expires_at: times.expires_at,
            grants,
            join,
            info: info.map(|info| info.to_string()),
            attributes: Attributes(claims),
        })
    }
}

impl Attributes {
    /// Returns the permissions that the claim [`GRANTS_CLAIM`] grants.
    ///
    /// # Errors
    /// Returns the mistake in the claim.
    pub fn grants(&self) -> Result<Vec<Rule>, String> {
        rules(Grants::read(&self.0)?.allow)
    }
}

impl Grants {
    fn read(claims: &Map<String, Value>) -> Result<Self, String> {
        let read = claims.get(GRANTS_CLAIM).map(Self::deserialize).transpose();
        Ok(read.map_err(|error| short(&error.to_string()))?.unwrap_or_default())
    }
}

fn rules(grants: Vec<Grant>) -> Result<Vec<Rule>, String> {
    let rules = grants.into_iter().enumerate();
    rules.map(|(n, grant)| grant.rule().map_err(|error| short(&format!("allow[{n}]: {error}")))).collect()
}

impl Grant {
    fn rule(self) -> Result<Rule, String> {
        let allow = Actions::parse(&self.allow)?;
        Rule::new(&self.topics, &self.feeds, &self.rooms, self.namespace.as_deref(), allow, Recipients::Users)
    }
}

/// Shortens the text of an error, because it may quote a long text of the token.
fn short(text: &str) -> String {
    text.chars().take(200).collect()
}
