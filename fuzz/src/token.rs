//! Tokens, sets of keys, and patterns of topics.

use serde_json::{Map, Value};
use stentor_auth::{Algorithm, Attributes, Issuer, Key, KeySet, Pattern, SigningKey, Unverified};

const SECRET: [u8; 32] = [7; 32];

/// Checks the input as a token, as a set of keys, as claims, and as a pattern with a name after a line break.
pub fn token(data: &[u8]) {
    let _ = KeySet::parse(data);
    let Ok(text) = str::from_utf8(data) else { return };
    let issuer = Issuer {
        name: "i".into(),
        audience: None,
        algorithms: Algorithm::ALL.into(),
        leeway_seconds: 0,
        lifetime_seconds_max: u64::MAX,
    };
    let key = Key::secret(None, &SECRET).expect("it is long enough");
    if let Ok(token) = Unverified::parse(text) {
        // No valid signature is possible without the secret.
        assert!(token.verify(&issuer, std::slice::from_ref(&key), 0).is_err());
    }
    // Signed claims may have any content.
    if let Ok(mut claims) = serde_json::from_str::<Map<String, Value>>(text) {
        claims.insert("iss".into(), "i".into());
        claims.insert("exp".into(), 1.into());
        let signing = SigningKey::secret(&key, Algorithm::Hs256).expect("a secret");
        let token = signing.sign(&claims).expect("no random numbers are needed");
        if let Ok(claims) = Unverified::parse(&token).and_then(|token| token.verify(&issuer, &[key], 0)) {
            assert!((1..=256).contains(&claims.subject.len()));
        }
    }
    let (pattern, name) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(pattern) = Pattern::parse(pattern) {
        let attributes = serde_json::json!({"sub": name}).to_string();
        pattern.matches(name, Attributes::parse(&attributes).ok().as_ref());
    }
}
