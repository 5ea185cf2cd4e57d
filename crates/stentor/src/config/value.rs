//! Types of settings beyond those of TOML: sizes, durations, secrets, origins, headers.

use super::setting::{Raw, Setting, all, fields};
use std::path::PathBuf;
use std::time::Duration;
use stentor_cluster_settings::Address;
use stentor_control::{
    HookSecret, Reference, Secrets, TOKEN_BYTES_MIN, literal, references, upstream_header,
};
use stentor_edge::{Hosts, Origins, Template};
use stentor_ports::Networks;
use toml::de::DeValue;

// These conversions can't fail, because texts and ranges were checked when the configuration was loaded.
fields! {
    Bytes => usize: bytes -> bytes.0, n -> Bytes(*n);
    usize => u32: n -> u32::try_from(*n).unwrap_or(u32::MAX), n -> *n as usize;
    usize => u8: n -> u8::try_from(*n).unwrap_or(u8::MAX), n -> usize::from(*n);
    String => Option<String>: text -> some(text), text -> text.clone().unwrap_or_default();
    String => Option<PathBuf>: text -> some(text).map(PathBuf::from),
        path -> path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    String => PathBuf: text -> PathBuf::from(text), path -> path.display().to_string();
    Token => Option<String>: token -> token.0.as_ref().map(|token| token.reveal().into()),
        token -> Token(token.clone().map(Secret::new));
    SecretText => Option<HookSecret>: secret -> some(secret.0.reveal()).map(HookSecret::new),
        secret -> SecretText(Secret::new(secret.as_ref().map(|secret| secret.reveal().into()).unwrap_or_default()));
    SecretText => String: secret -> secret.0.reveal().into(), text -> SecretText(Secret::new(text.clone()));
    EngineUrl => Option<Address>: url -> url.0.clone(), address -> EngineUrl(address.clone());
    Headers => Vec<(String, String)>:
        headers -> headers.0.iter().map(|(name, value)| (name.clone(), value.reveal().into())).collect(),
        headers -> Headers(headers.iter().map(|(name, value)| (name.clone(), Secret::new(value.clone()))).collect());
    Vec<String> => Networks: texts -> Networks::parse(texts).unwrap_or_default();
    Vec<String> => Hosts: names -> Hosts::parse(names).unwrap_or_default();
    Vec<Origin> => Origins:
        origins -> Origins::parse(&origins.iter().map(Origin::as_str).collect::<Vec<_>>()).unwrap_or_default();
    Vec<String> => Vec<Template>: texts -> texts.iter().filter_map(|text| Template::parse(text).ok()).collect();
}

/// Returns the text, or `None` if it is empty.
fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A number of bytes. Written with a decimal (`1MB`) or binary (`64KiB`) unit, or as a plain integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) usize);

impl Bytes {
    /// Units from large to small. A size is shown in the first unit that divides it.
    const UNITS: [(&'static str, usize); 7] = [
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("kB", 1000),
        ("B", 1),
    ];

    /// Returns `n` times 1024 bytes.
    pub(crate) const fn kib(n: usize) -> Self {
        Self(n << 10)
    }

    /// Returns `n` times 1024² bytes.
    pub(crate) const fn mib(n: usize) -> Self {
        Self(n << 20)
    }
}

const BYTES_EXPECTED: &str = r#"a size such as "1MB", "64KiB" or 65536"#;

impl Setting for Bytes {
    const UNIT: &'static str = "bytes";

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let wrong = || raw.mismatch(BYTES_EXPECTED);
        if let Some(n) = raw.integer() {
            return usize::try_from(n).map(Self).map_err(|_| wrong());
        }
        if let Some(n) = raw.quoted_integer() {
            return Err(format!("{}; a unit is missing: \"{n}B\" or \"{n}MB\"?", wrong()));
        }
        let (number, unit) = split_unit(raw.text().ok_or_else(wrong)?).ok_or_else(wrong)?;
        let same = |name: &str| name.eq_ignore_ascii_case(unit);
        let (_, factor) = Self::UNITS.iter().find(|(name, _)| same(name)).ok_or_else(wrong)?;
        let number = usize::try_from(number).map_err(|_| wrong())?;
        number.checked_mul(*factor).map(Self).ok_or_else(wrong)
    }

    fn show(&self) -> String {
        for (name, factor) in Self::UNITS {
            if self.0 != 0 && self.0.is_multiple_of(factor) && factor > 1 {
                return format!("\"{}{name}\"", self.0 / factor);
            }
        }
        self.0.to_string()
    }
}

const DURATION_EXPECTED: &str = r#"a duration such as "25s", "300ms", "5min" or "1h""#;

impl Setting for Duration {
    const UNIT: &'static str = "duration";

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let wrong = || raw.mismatch(DURATION_EXPECTED);
        let without_unit = raw.integer().and_then(|n| u64::try_from(n).ok()).or_else(|| raw.quoted_integer());
        if let Some(n) = without_unit {
            return Err(format!("{}; a unit is missing: \"{n}s\"?", wrong()));
        }
        let (number, unit) = split_unit(raw.text().ok_or_else(wrong)?).ok_or_else(wrong)?;
        let factor_ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "min" | "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        number.checked_mul(factor_ms).map(Self::from_millis).ok_or_else(wrong)
    }

    fn show(&self) -> String {
        let ms = self.as_millis();
        for (factor_ms, unit) in [(3_600_000, "h"), (60_000, "min"), (1000, "s")] {
            if ms >= factor_ms && ms.is_multiple_of(factor_ms) {
                return format!("\"{}{unit}\"", ms / factor_ms);
            }
        }
        format!("\"{ms}ms\"")
    }
}

/// Splits `25s` or `25 s` into the number and its unit. Fractions are not supported: write `1500ms`.
fn split_unit(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

/// A secret, which is never shown.
#[derive(Clone, PartialEq, Eq, PartialOrd)]
pub(crate) struct Secret(String);

impl Secret {
    /// The text that is shown instead of a secret.
    pub(super) const SHOWN: &'static str = "(secret)";

    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

stentor_ports::opaque_debug!(Secret, "Secret(…)");

/// The token of the admin port. `None` if it has no token.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd)]
pub(crate) struct Token(pub(crate) Option<Secret>);

impl Setting for Token {
    const UNIT: &'static str = "text";
    const SECRET: bool = true;

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let text = raw.text().ok_or("expected a text in quotes")?;
        if text.len() < TOKEN_BYTES_MIN || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!(
                "a token needs at least {TOKEN_BYTES_MIN} printable ASCII characters without spaces"
            ));
        }
        Ok(Self(Some(Secret(text.into()))))
    }

    fn show(&self) -> String {
        if self.0.is_some() { Secret::SHOWN.into() } else { "none".into() }
    }
}

/// The URL of a cluster's engine. `None` without an engine. The password in the URL is not shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineUrl(pub(crate) Option<Address>);

// The trait requires an order, but only settings with a range are compared.
impl PartialOrd for EngineUrl {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        (self == other).then_some(std::cmp::Ordering::Equal)
    }
}

impl Setting for EngineUrl {
    const UNIT: &'static str = "text";

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let text = raw.text().ok_or_else(|| raw.mismatch(r#"a URL such as "redis://127.0.0.1:6379""#))?;
        if text.is_empty() { Ok(Self(None)) } else { Address::parse(text).map(|address| Self(Some(address))) }
    }

    fn show(&self) -> String {
        self.0.as_ref().map_or_else(|| r#""""#.into(), |address| format!("\"{address}\""))
    }
}

/// A secret in a repeated section. Since its key has no environment variable, the text may refer to variables
/// and files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) struct SecretText(pub(crate) Secret);

impl SecretText {
    /// Replaces references to variables and files. Returns the mistake, if there is one.
    pub(crate) fn fill(&mut self, secrets: &Secrets) -> Option<String> {
        if secrets.is_sample() {
            return None;
        }
        match secrets.expand(self.0.reveal()) {
            Ok(text) => self.0 = Secret(text),
            Err(wrong) => return Some(format!("it {wrong}")),
        }
        None
    }

    /// Returns `true` if the secret is shorter than the minimum. Returns `false` for references, whose values
    /// aren't known yet.
    pub(crate) fn is_short(&self) -> bool {
        let text = self.0.reveal();
        let is_named = references(text).is_ok_and(|references| !references.is_empty());
        !is_named && (1..TOKEN_BYTES_MIN).contains(&text.len())
    }
}

impl Setting for SecretText {
    const UNIT: &'static str = "text";
    const SECRET: bool = true;

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let text = raw.text().ok_or("expected a text in quotes")?;
        match references(text) {
            Err(wrong) => Err(format!("the secret {wrong}")),
            Ok(_) => Ok(Self(Secret::new(text.into()))),
        }
    }

    fn show(&self) -> String {
        let text = if self.0.reveal().is_empty() { "\"\"" } else { Secret::SHOWN };
        text.into()
    }
}

/// The name of a request header that a proxy sets. Without `_`, which some servers take for `-`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd)]
pub(crate) struct HeaderName(pub(crate) String);

impl HeaderName {
    const BYTES_MAX: usize = 64;

    /// Returns `true` for letters, digits and `-`.
    pub(crate) fn is_name(text: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=Self::BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
    }

    /// Returns the name. `None` if it is empty.
    pub(crate) fn get(&self) -> Option<Box<str>> {
        (!self.0.is_empty()).then(|| self.0.as_str().into())
    }
}

impl Setting for HeaderName {
    const UNIT: &'static str = "name of a header";

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let name = raw.text().filter(|text| text.is_empty() || Self::is_name(text));
        let name = name.ok_or_else(|| raw.mismatch("the name of a header (letters, digits and \"-\")"))?;
        Ok(Self(name.to_owned()))
    }

    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// An allowed origin of pages: `https://host[:port]`, `https://*.host[:port]` or `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) struct Origin(String);

impl Origin {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` if the data plane accepts the origin.
    fn is_valid(text: &str) -> bool {
        stentor_edge::Origins::parse(&[text]).is_ok()
    }
}

impl Setting for Origin {
    const UNIT: &'static str = "origins";

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let wrong =
            || raw.mismatch(r#"an origin such as "https://example.com", "https://*.example.com" or "*""#);
        let text = raw.text().ok_or_else(wrong)?;
        if !Self::is_valid(text) {
            return Err(match text.strip_suffix('/').filter(|t| Self::is_valid(t)) {
                Some(without) => format!("an origin has no path: write {without:?}, not {text:?}"),
                None => wrong(),
            });
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// Names and values of request headers, sorted by name. A value may refer to variables and files, which the
/// control plane replaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd)]
pub(crate) struct Headers(pub(crate) Vec<(String, Secret)>);

impl Setting for Headers {
    const UNIT: &'static str = "table of texts";
    const SECRET: bool = true;

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let Raw::Toml(DeValue::Table(table)) = raw else {
            return Err(raw.mismatch(r#"a table such as { Authorization = "Bearer …" }"#));
        };
        let headers = table.iter().map(|(name, value)| {
            let (name, text) = (name.get_ref().to_ascii_lowercase(), value.get_ref().as_str());
            upstream_header(&name, &literal(text.unwrap_or_default()))?;
            let text = text.ok_or_else(|| format!("the header {name:?} has no text in quotes"))?;
            references(text).map_err(|wrong| format!("the header {name:?} {wrong}"))?;
            Ok((name, Secret(text.into())))
        });
        all(headers).map(Self)
    }

    fn show(&self) -> String {
        let names = self.0.iter().map(|(name, value)| {
            let named = references(value.reveal()).unwrap_or_default();
            let named: Vec<_> = named.iter().map(shown_reference).collect();
            match named.is_empty() {
                true => format!("{name} = {}", Secret::SHOWN),
                false => format!("{name} = (secret with {})", named.join(", ")),
            }
        });
        match names.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "none".into(),
            some => format!("{{ {some} }}"),
        }
    }
}

/// Returns a reference as it is written.
fn shown_reference(reference: &Reference<'_>) -> String {
    match reference {
        Reference::Variable(name) => format!("${{{name}}}"),
        Reference::File(path) => format!("${{file:{}}}", path.display()),
    }
}
