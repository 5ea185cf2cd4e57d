//! Incremental UTF-8 validation: an error is reported at the first byte that no continuation could repair.

use super::Error;

/// Returns the length of the valid start of `bytes`, of which `bytes[..valid]` is already known to be valid. An
/// incomplete sequence at the end isn't counted, so the result is at most 3 bytes short of the end.
pub(super) fn extend_valid(bytes: &[u8], valid: usize) -> Result<usize, Error> {
    match simdutf8::compat::from_utf8(bytes.get(valid..).unwrap_or_default()) {
        Ok(_) => Ok(bytes.len()),
        Err(error) if error.error_len().is_none() => Ok(valid + error.valid_up_to()),
        Err(_) => Err(Error::BadUtf8),
    }
}
