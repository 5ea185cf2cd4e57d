//! The signature of a request: HMAC-SHA256 over the time and the body. So neither can be changed, and the
//! backend can detect old requests.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::Write as _;

/// Returns the value of the header `Stentor-Signature`: `t=SECONDS,v1=HEX`, where HEX is HMAC-SHA256 of
/// `SECONDS.BODY`.
pub(super) fn sign(secret: &str, unix_seconds: u64, body: &[u8]) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).ok()?;
    mac.update(unix_seconds.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    let mut header = format!("t={unix_seconds},v1=");
    for byte in mac.finalize().into_bytes() {
        let _ = write!(header, "{byte:02x}");
    }
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The expected value is the output of `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac
    // 0123456789abcdef`.
    #[test]
    fn a_signature_matches_openssl() {
        let signature = sign("0123456789abcdef", 1_700_000_000, br#"{"a":1}"#);
        let expect = "t=1700000000,v1=9eb18f493f8ec135d9eb2dad817c369bb4e9cbfa818657897a7437c1cd8c3a23";
        assert_eq!(signature.as_deref(), Some(expect));
    }
}
