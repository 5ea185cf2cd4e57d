//! UTF-8 as it arrives: an error is seen with the first byte that no continuation could repair.

use super::Error;

/// How far `bytes` is valid, given that `bytes[..valid]` is; a sequence still incomplete at the end is left for later,
/// so the result is at most 3 short of the end.
pub(super) fn extend_valid(bytes: &[u8], valid: usize) -> Result<usize, Error> {
    match simdutf8::compat::from_utf8(bytes.get(valid..).unwrap_or_default()) {
        Ok(_) => Ok(bytes.len()),
        Err(error) if error.error_len().is_none() => Ok(valid + error.valid_up_to()),
        Err(_) => Err(Error::BadUtf8),
    }
}
