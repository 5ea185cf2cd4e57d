//! Tests of accepted tokens, and of the reasons for which others are refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use stentor_auth::{
    Algorithm, Claims, Issuer, Key, KeyError, KeySet, KeySetError, Refused, SigningKey, TOKEN_BYTES_MAX,
    Unverified,
};

const ISSUER: &str = "https://id.test/";
const SECRET: &[u8] = b"a secret that is long enough for every hash: 64 bytes and beyond.";
const NOW: u64 = 1_700_000_100;

fn issuer() -> Issuer {
    Issuer {
        name: ISSUER.into(),
        audience: Some("stentor".into()),
        algorithms: Algorithm::ALL.into(),
        leeway_seconds: 30,
        lifetime_seconds_max: 3600,
    }
}

fn secret() -> Key {
    Key::secret(Some("HS"), SECRET).unwrap()
}

fn claims() -> Value {
    json!({"iss": ISSUER, "sub": "42", "aud": "stentor", "iat": 1_700_000_000, "exp": 1_700_003_600})
}

/// Makes a token with this header and these claims, signed with HS256 regardless of the header.
fn token(header: &str, claims: &str) -> String {
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET);
    let signature = ring::hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

fn verify(token: &str, keys: &[Key]) -> Result<Claims, Refused> {
    Unverified::parse(token)?.verify(&issuer(), keys, NOW)
}

fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors.json")).unwrap()
}

/// Returns the reason for refusing a token with changed [`claims`]. Empty if the token is accepted.
fn refused(change: impl Fn(&mut Value)) -> String {
    let mut claims = claims();
    change(&mut claims);
    let token = token(r#"{"alg":"HS256"}"#, &claims.to_string());
    verify(&token, &[secret()]).map(|_| ()).map_err(|error| error.to_string()).err().unwrap_or_default()
}

#[test]
fn every_algorithm_verifies_and_no_other_key_does() {
    let vectors = vectors();
    let jwks = KeySet::parse(vectors["jwks"].to_string().as_bytes()).unwrap();
    assert_eq!((jwks.keys.len(), jwks.skipped), (4, 0));
    let pem = vectors["pem"].as_object().unwrap();
    let of_pem: Vec<_> =
        pem.iter().map(|(id, text)| Key::public(Some(id), text.as_str().unwrap()).unwrap()).collect();
    let all: Vec<_> = jwks.keys.iter().cloned().chain([secret()]).collect();
    let tokens = vectors["tokens"].as_object().unwrap();
    assert_eq!(tokens.len(), Algorithm::ALL.len());
    for (name, token) in tokens {
        let token = token.as_str().unwrap();
        let algorithm = Algorithm::parse(name).unwrap();
        assert_eq!(&*verify(token, &all).unwrap().subject, "42", "{name}");
        if !algorithm.is_secret() {
            verify(token, &of_pem).unwrap();
        }
        // A changed byte in the claims or in the signature is detected.
        let dots: Vec<_> = token.match_indices('.').map(|(at, _)| at).collect();
        for at in [dots[0] + 9, dots[1] + 5] {
            let other = if &token[at..=at] == "A" { "B" } else { "A" };
            let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
            let error = verify(&changed, &all).unwrap_err();
            assert!(matches!(error, Refused::Signature | Refused::Json { .. }), "{name}: {error}");
        }
        for key in &all {
            let (header, signature) = token.rsplit_once('.').unwrap();
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            assert_eq!(
                key.verifies(algorithm, header.as_bytes(), &signature),
                key.is_for(algorithm),
                "{name}"
            );
        }
        // An issuer whose configuration doesn't allow the algorithm.
        let strict = Issuer {
            algorithms: Algorithm::ALL.into_iter().filter(|a| *a != algorithm).collect(),
            ..issuer()
        };
        let outcome = Unverified::parse(token).unwrap().verify(&strict, &all, NOW);
        assert_eq!(outcome.unwrap_err(), Refused::Algorithm, "{name}");
    }
}

/// The examples of RFC 7515, appendices A.1 to A.3, and RFC 8037, appendix A.4.
#[test]
fn examples_of_the_specifications_verify() {
    let payload =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let jwk =
        |jwk: Value| KeySet::parse(json!({"keys": [jwk]}).to_string().as_bytes()).unwrap().keys.remove(0);
    let k = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    let hmac = Key::secret(None, &decode(k)).unwrap();
    let signature = decode("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
    let message = format!("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{payload}");
    assert!(hmac.verifies(Algorithm::Hs256, message.as_bytes(), &signature));
    let rsa = jwk(
        json!({"kty": "RSA", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}),
    );
    let signature = decode(
        "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
    );
    let message = format!("eyJhbGciOiJSUzI1NiJ9.{payload}");
    assert!(rsa.verifies(Algorithm::Rs256, message.as_bytes(), &signature));
    let ec = jwk(json!({"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
                        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}));
    let signature =
        decode("DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q");
    let message = format!("eyJhbGciOiJFUzI1NiJ9.{payload}");
    assert!(ec.verifies(Algorithm::Es256, message.as_bytes(), &signature));
    let ed = jwk(json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}));
    let signature =
        decode("hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg");
    assert!(ed.verifies(
        Algorithm::EdDsa,
        b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
        &signature
    ));
}

#[test]
fn headers_are_read_strictly() {
    let check = |header: &str, expect: &str| {
        let outcome = verify(&token(header, &claims().to_string()), &[secret()]);
        let text = outcome.map(|_| "accepted".to_owned()).unwrap_or_else(|error| error.to_string());
        assert!(text.contains(expect), "{header}: {text}");
    };
    check(r#"{"alg":"HS256"}"#, "accepted");
    check(r#"{"alg":"HS256","typ":"jwt","kid":"HS"}"#, "accepted");
    check(r#"{"alg":"HS256","typ":"application/at+jwt"}"#, "accepted");
    check(r#"{"alg":"none"}"#, "not signed");
    check(r#"{"alg":"nOnE"}"#, "not signed");
    check(r#"{}"#, "no algorithm");
    check(r#"{"alg":["HS256"]}"#, "no algorithm");
    check(r#"{"alg":"HS1"}"#, "not supported");
    check(r#"{"alg":"ES256K"}"#, "not supported");
    check(r#"{"alg":"HS256","alg":"HS256"}"#, "has a member twice");
    check(r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, "critical extensions");
    check(r#"{"alg":"HS256","crit":[]}"#, "critical extensions");
    check(r#"{"alg":"HS256","typ":"logout+jwt"}"#, "another type");
    check(r#"{"alg":"HS256","typ":7}"#, "another type");
    check(r#"{"alg":"HS256","kid":7}"#, "key id (kid)");
    check(r#"{"alg":"HS256","kid":"other"}"#, "no such key");
    check(r#"["alg"]"#, "header is not a JSON object");
    check("HS256", "header is not JSON");
    // A key, or the URL of a key, in the token is ignored.
    check(r#"{"alg":"HS256","jku":"http://127.0.0.1:1/","jwk":{"kty":"oct","k":"AA"}}"#, "accepted");
}

/// A token whose HMAC uses the issuer's public key, in any form, as the secret is refused (RFC 8725, section
/// 2.1).
#[test]
fn public_keys_are_not_secrets() {
    let vectors = vectors();
    let jwks = KeySet::parse(vectors["jwks"].to_string().as_bytes()).unwrap();
    let pem = vectors["pem"]["RS"].as_str().unwrap();
    let point = {
        let jwk =
            vectors["jwks"]["keys"].as_array().unwrap().iter().find(|jwk| jwk["kid"] == "ES256").unwrap();
        let part = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str().unwrap()).unwrap();
        [vec![4], part("x"), part("y")].concat()
    };
    for secret in [pem.as_bytes(), pem.trim().as_bytes(), &point] {
        for kid in ["RS", "ES256"] {
            let header = format!(r#"{{"alg":"HS256","kid":"{kid}"}}"#);
            let message = format!(
                "{}.{}",
                URL_SAFE_NO_PAD.encode(header),
                URL_SAFE_NO_PAD.encode(claims().to_string())
            );
            let tag =
                ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret), message.as_bytes());
            let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()));
            assert_eq!(verify(&token, &jwks.keys).unwrap_err(), Refused::Key);
        }
    }
}

#[test]
fn tokens_have_a_form_and_a_size() {
    let valid = token(r#"{"alg":"HS256"}"#, &claims().to_string());
    verify(&valid, &[secret()]).unwrap();
    let (message, signature) = valid.rsplit_once('.').unwrap();
    let (header, payload) = message.split_once('.').unwrap();
    let wrong = [
        "".into(),
        ".".into(),
        "..".into(),
        "a.b".into(),
        message.into(),
        format!("{valid}."),
        format!("{valid}.{signature}"),
        format!("{valid}="),
        format!(" {valid}"),
        format!("{header}.{payload} .{signature}"),
        format!("{header}.{payload}+.{signature}"),
    ];
    for text in wrong {
        assert!(
            matches!(Unverified::parse(&text), Err(Refused::NotCompact | Refused::Json { .. })),
            "{text}"
        );
    }
    // The signature's last character has unused bits. A signature that differs only in these bits is refused.
    let same = match signature.chars().last().unwrap() {
        c @ ('A'..='Y' | 'a'..='y' | '0'..='8') => char::from(c as u8 + 1),
        _ => 'B',
    };
    let malleable = format!("{message}.{}{same}", &signature[..signature.len() - 1]);
    assert!(verify(&malleable, &[secret()]).is_err());
    // The signature is empty.
    assert_eq!(verify(&format!("{message}."), &[secret()]).unwrap_err(), Refused::Signature);
    let padded = |bytes: usize| {
        let mut claims = claims();
        claims["x"] = "x".repeat(bytes).into();
        token(r#"{"alg":"HS256"}"#, &claims.to_string())
    };
    verify(&padded(5000), &[secret()]).unwrap();
    assert_eq!(verify(&padded(TOKEN_BYTES_MAX), &[secret()]).unwrap_err(), Refused::TooLong);
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(2000), "]".repeat(2000));
    let error = verify(&token(r#"{"alg":"HS256"}"#, &deep), &[secret()]).unwrap_err();
    assert_eq!(error.to_string(), "the token's payload is nested deeper than 16 levels");
}

#[test]
fn times_are_exact_but_for_the_issuers_clock() {
    let at = |claim: &str, time: u64| refused(|claims| claims[claim] = time.into());
    assert_eq!(at("exp", NOW + 1), "");
    assert_eq!(at("exp", NOW), "the token has expired (exp)");
    assert_eq!(at("nbf", NOW + 30), "");
    assert_eq!(at("nbf", NOW + 31), "the token is not valid yet (nbf)");
    assert_eq!(at("iat", NOW + 30), "");
    assert_eq!(at("iat", NOW + 31), "the token was issued in the future (iat)");
    assert_eq!(at("exp", 1_700_003_601), "the token is valid for longer than the server allows (exp)");
    // The server would have to assume the age of a token without `iat`, so the token could outlive its
    // revocation.
    let undated = refused(|claims| _ = claims.as_object_mut().unwrap().remove("iat"));
    assert_eq!(undated, "the token's claim iat is missing");
    // Fractions of a second are rounded down, so a token never expires later.
    assert_eq!(refused(|claims| claims["exp"] = json!(NOW as f64 + 0.9)), "the token has expired (exp)");
    for wrong in [json!("1700000200"), json!(-1), json!(1e300), json!(null), json!(u64::MAX)] {
        let text = refused(|claims| claims["exp"] = wrong.clone());
        assert_eq!(text, "the token's claim exp is not a time in seconds since 1970", "{wrong}");
    }
    assert_eq!(
        refused(|claims| _ = claims.as_object_mut().unwrap().remove("exp")),
        "the token's claim exp is missing"
    );
}

#[test]
fn issuer_and_audience_are_compared() {
    let set = |claim: &str, value: Value| refused(|claims| claims[claim] = value.clone());
    assert_eq!(set("iss", "https://id.test".into()), "the token's issuer (iss) is not accepted");
    assert_eq!(set("iss", 7.into()), "the token's claim iss is missing");
    let other = "the token is for another audience (aud)";
    assert_eq!(set("aud", json!(["a", "stentor"])), "");
    for wrong in
        [json!("Stentor"), json!(["a"]), json!([]), json!([["stentor"]]), json!({"stentor": 1}), json!(null)]
    {
        assert_eq!(set("aud", wrong), other);
    }
    assert_eq!(refused(|claims| _ = claims.as_object_mut().unwrap().remove("aud")), other);
    // A server without a configured audience accepts tokens without an audience.
    let open = Issuer { audience: None, ..issuer() };
    let verify = |claims: Value| {
        let token = token(r#"{"alg":"HS256"}"#, &claims.to_string());
        Unverified::parse(&token).unwrap().verify(&open, &[secret()], NOW).map(|_| ())
    };
    assert_eq!(verify(claims()), Err(Refused::Audience));
    let mut without = claims();
    without.as_object_mut().unwrap().remove("aud");
    assert_eq!(verify(without), Ok(()));
}

#[test]
fn claims_are_read() {
    let mut claims = claims();
    claims["jti"] = "t1".into();
    claims["stentor"] = json!({
        "allow": [{"topics": ["match/7"], "allow": ["subscribe", "presence"]},
                  {"rooms": ["lobby"], "namespace": "/chat", "allow": ["publish"]}],
        "join": ["lobby"],
        "info": {"name": "Ada"},
    });
    let read = verify(&token(r#"{"alg":"HS256"}"#, &claims.to_string()), &[secret()]).unwrap();
    assert_eq!((&*read.issuer, &*read.subject, read.token_id.as_deref()), (ISSUER, "42", Some("t1")));
    assert_eq!((read.issued_at, read.expires_at), (1_700_000_000, 1_700_003_600));
    assert_eq!((read.grants.len(), read.join), (2, vec!["lobby".to_owned()]));
    assert_eq!(read.info.as_deref(), Some(r#"{"name":"Ada"}"#));
    let stentor = |value: Value| refused(|claims| claims["stentor"] = value.clone());
    for (grants, expect) in [
        (json!(7), "invalid type"),
        (json!({"alow": []}), "unknown field `alow`"),
        (json!({"allow": [{"topics": ["a"]}]}), "missing field `allow`"),
        (json!({"allow": [{"topics": ["a"], "allow": ["write"]}]}), "allow[0]: \"write\" is not an action"),
        (json!({"allow": [{"topics": ["a"], "allow": []}]}), "allow[0]: allow is empty"),
        (json!({"allow": [{"topics": [], "allow": ["publish"]}]}), "names no topics"),
        (json!({"allow": [{"topics": ["a*"], "allow": ["publish"]}]}), "a * next to other characters"),
        (json!({"join": [7]}), "invalid type"),
    ] {
        let text = stentor(grants);
        assert!(
            text.starts_with("the token's claim stentor is invalid: ") && text.contains(expect),
            "{text}"
        );
    }
    for (claim, value) in
        [("sub", json!("")), ("sub", json!(42)), ("sub", json!("a\nb")), ("jti", json!("x".repeat(257)))]
    {
        let text = refused(|claims| claims[claim] = value.clone());
        assert!(text.contains("is not a text of 1 to 256 bytes"), "{claim}: {text}");
    }
}

#[test]
fn several_keys_allow_rotation() {
    let key = |id: Option<&str>, byte: u8| Key::secret(id, &[byte; 32]).unwrap();
    let sign = |id: Option<&str>, byte: u8| {
        SigningKey::secret(&key(id, byte), Algorithm::Hs256)
            .unwrap()
            .sign(claims().as_object().unwrap())
            .unwrap()
    };
    let keys = [key(Some("old"), 1), key(Some("new"), 2)];
    verify(&sign(Some("old"), 1), &keys).unwrap();
    verify(&sign(Some("new"), 2), &keys).unwrap();
    // A token without a key id may be signed by any key. A token with a key id may be signed only by that
    // key.
    verify(&sign(None, 2), &keys).unwrap();
    assert_eq!(verify(&sign(Some("old"), 2), &keys).unwrap_err(), Refused::Signature);
    assert_eq!(verify(&sign(Some("third"), 1), &keys).unwrap_err(), Refused::Key);
    // A key without an id is tried for tokens with any key id.
    verify(&sign(Some("third"), 1), &[key(None, 1)]).unwrap();
    // Only the first keys are tried, up to a limit.
    let many: Vec<_> = (0..10).map(|byte| key(None, byte)).collect();
    verify(&sign(None, 3), &many).unwrap();
    assert_eq!(verify(&sign(None, 4), &many).unwrap_err(), Refused::Signature);
}

#[test]
fn key_sets_are_read() {
    let ed = || json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
    let with = |name: &str, value: Value| {
        let mut jwk = ed();
        jwk[name] = value;
        jwk
    };
    let parse = |keys: Value| KeySet::parse(json!({"keys": keys}).to_string().as_bytes());
    let skipped = [
        with("use", "enc".into()),
        with("key_ops", json!(["sign"])),
        with("alg", "RSA-OAEP".into()),
        with("alg", 7.into()),
        with("kid", 7.into()),
        with("kid", "x".repeat(257).into()),
        with("crv", "Ed448".into()),
        with("x", "AAAA".into()),
        with("x", "not base64url!".into()),
        json!({"kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET)}),
        json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"}),
        json!({"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"}),
        json!({"kty": "new"}),
        json!("text"),
    ];
    for jwk in skipped {
        assert_eq!(parse(json!([jwk])), Err(KeySetError::NoKeys), "{jwk}");
        let set = parse(json!([jwk, ed()])).unwrap();
        assert_eq!((set.keys.len(), set.skipped), (1, 1));
    }
    let set = parse(json!([
        with("alg", "EdDSA".into()),
        with("use", "sig".into()),
        with("key_ops", json!(["verify"]))
    ]));
    assert_eq!(set.unwrap().skipped, 0);
    let bound = |text: &str| KeySet::parse(text.as_bytes()).unwrap_err();
    assert_eq!(bound("<!doctype html>"), KeySetError::Malformed("is not JSON"));
    assert_eq!(bound("{}"), KeySetError::Malformed("it has no array \"keys\""));
    assert_eq!(bound(&" ".repeat(300_000)), KeySetError::TooLarge);
    assert_eq!(parse(Value::Array(vec![ed(); 129])).unwrap_err(), KeySetError::TooMany);
    assert_eq!(bound("{\"keys\":[],\"keys\":[]}"), KeySetError::Malformed("has a member twice"));
}

#[test]
fn keys_of_the_configuration_are_checked() {
    assert_eq!(Key::secret(None, &[1; 31]), Err(KeyError::SecretLength));
    assert_eq!(Key::public(None, "secret"), Err(KeyError::NotPem));
    let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert_eq!(Key::public(None, private), Err(KeyError::Private));
    let other = "-----BEGIN PUBLIC KEY-----\nMAAA\n-----END PUBLIC KEY-----\n";
    assert_eq!(Key::public(None, other), Err(KeyError::Unsupported));
    // A 32-byte secret is allowed for HS256, but is too short for HS384.
    let short = Key::secret(None, &[1; 32]).unwrap();
    assert!(short.is_for(Algorithm::Hs256) && !short.is_for(Algorithm::Hs384));
    assert_eq!(format!("{:?}", Key::secret(Some("a"), SECRET).unwrap()), "Key(Some(\"a\"))");
}
