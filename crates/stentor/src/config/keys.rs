//! The keys and algorithms of an issuer of tokens.

use super::setting::{Raw, Setting, all, fields};
use super::value::Secret;
use stentor_auth::{Algorithm, Key, KeyError};
use stentor_control::{Secrets, references};
use toml::de::{DeTable, DeValue};

/// Maximum number of keys of an issuer.
const KEYS_MAX: usize = 16;
/// Maximum length of a `kid` in bytes.
const KID_BYTES_MAX: usize = 256;

fields! {
    // Invalid keys are skipped without an error, because keys were checked when the configuration was loaded.
    IssuerKeys => Vec<Key>: keys -> keys.0.iter().filter_map(|key| key.key().ok()).collect(),
        _keys -> IssuerKeys::default();
    Vec<AlgorithmName> => Vec<Algorithm>: names -> names.iter().map(|name| name.0).collect(),
        all -> all.iter().copied().map(AlgorithmName).collect();
}

/// The name of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlgorithmName(pub(crate) Algorithm);

// The trait requires an order, but only settings with a range are compared.
impl PartialOrd for AlgorithmName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        (self == other).then_some(std::cmp::Ordering::Equal)
    }
}

impl Setting for AlgorithmName {
    const UNIT: &'static str = "algorithms";

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let found = raw.text().and_then(Algorithm::parse);
        found
            .map(Self)
            .ok_or_else(|| raw.mismatch(r#"an algorithm such as "RS256", "ES256", "EdDSA" or "HS256""#))
    }

    fn show(&self) -> String {
        format!("{:?}", self.0.name())
    }
}

/// Keys in the configuration. Secrets may contain references to variables and files, until
/// [`IssuerKeys::fill`] has replaced them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd)]
pub(crate) struct IssuerKeys(pub(crate) Vec<KeySetting>);

/// A key of an issuer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) struct KeySetting {
    kid: Option<String>,
    source: KeySource,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd)]
enum KeySource {
    Secret(Secret),
    /// A secret with references whose values are unknown, because neither the environment nor files are read.
    Unknown(Secret),
    Public(String),
    File(String),
}

impl KeySetting {
    /// Returns the key, or its mistake. The mistake never contains a secret.
    pub(crate) fn key(&self) -> Result<Key, String> {
        let public = |pem: &str| Key::public(self.kid.as_deref(), pem);
        let key = match &self.source {
            KeySource::Secret(secret) => Key::secret(self.kid.as_deref(), secret.reveal().as_bytes()),
            // A sample secret that is long enough for every algorithm. It verifies no token.
            KeySource::Unknown(_) => Key::secret(self.kid.as_deref(), &[0; 64]),
            KeySource::Public(pem) => public(pem),
            KeySource::File(path) => match std::fs::read_to_string(path) {
                Ok(pem) => return public(&pem).map_err(|error| format!("{path}: {error}")),
                Err(error) => return Err(format!("{path}: cannot be read: {error}")),
            },
        };
        key.map_err(|error: KeyError| error.to_string())
    }

    fn read(table: &DeTable<'_>) -> Result<Self, String> {
        let (mut kid, mut source) = (None, None);
        for (name, value) in table {
            let (name, text) = (name.get_ref().as_ref(), value.get_ref().as_str());
            let text = text.ok_or_else(|| format!("{name} of a key has no text in quotes"))?.to_owned();
            let given = match name {
                "kid" if (1..=KID_BYTES_MAX).contains(&text.len()) => {
                    kid = Some(text);
                    continue;
                }
                "kid" => return Err("kid of a key has 1 to 256 bytes".into()),
                "secret" => {
                    references(&text).map_err(|wrong| format!("secret of a key {wrong}"))?;
                    KeySource::Secret(Secret::new(text))
                }
                "public_key" => KeySource::Public(text),
                "public_key_file" => KeySource::File(text),
                _ => {
                    return Err(format!(
                        "{name:?} means nothing in a key; expected kid, secret, public_key or public_key_file"
                    ));
                }
            };
            if source.replace(given).is_some() {
                return Err("a key has one of secret, public_key and public_key_file".into());
            }
        }
        let source = source.ok_or("a key needs secret, public_key or public_key_file")?;
        Ok(Self { kid, source })
    }
}

impl IssuerKeys {
    /// Replaces references to variables and files. Returns the mistakes. With sample values, secrets stay
    /// unknown.
    pub(crate) fn fill(&mut self, secrets: &Secrets) -> Vec<String> {
        let mut wrong = Vec::new();
        for key in &mut self.0 {
            let KeySource::Secret(secret) = &key.source else { continue };
            if references(secret.reveal()).is_ok_and(|references| references.is_empty()) {
                continue;
            }
            key.source = match secrets.expand(secret.reveal()) {
                Ok(text) if !secrets.is_sample() => KeySource::Secret(Secret::new(text)),
                Ok(_) => KeySource::Unknown(secret.clone()),
                Err(text) => {
                    wrong.push(format!("a key {text}"));
                    KeySource::Unknown(secret.clone())
                }
            };
        }
        wrong
    }

    /// Iterates over the secrets as they are written.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|key| match &key.source {
            KeySource::Secret(secret) | KeySource::Unknown(secret) => Some(secret.reveal()),
            _ => None,
        })
    }
}

impl Setting for IssuerKeys {
    const UNIT: &'static str = "list of tables";
    const SECRET: bool = true;

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let wrong =
            || raw.mismatch(r#"an array of tables such as [{ kid = "k1", secret = "${JWT_SECRET}" }]"#);
        let Raw::Toml(DeValue::Array(items)) = raw else { return Err(wrong()) };
        if items.len() > KEYS_MAX {
            return Err(format!("{} keys; the maximum is {KEYS_MAX}", items.len()));
        }
        let keys = items.iter().map(|item| match item.get_ref() {
            DeValue::Table(table) => KeySetting::read(table),
            _ => Err(wrong()),
        });
        all(keys).map(Self)
    }

    fn show(&self) -> String {
        let keys = self.0.iter().map(|key| {
            let kid = key.kid.as_ref().map(|kid| format!("kid = {kid:?}, ")).unwrap_or_default();
            let source = match &key.source {
                KeySource::Secret(_) | KeySource::Unknown(_) => format!("secret = {}", Secret::SHOWN),
                KeySource::Public(_) => "public_key = …".into(),
                KeySource::File(path) => format!("public_key_file = {path:?}"),
            };
            format!("{{ {kid}{source} }}")
        });
        format!("[{}]", keys.collect::<Vec<_>>().join(", "))
    }
}
