//! Session tickets, with which a client continues an earlier session without a full handshake (RFC 8446, section 4.6.1).
//!
//! The encrypted state is in the ticket, so the server stores nothing. All keys are derived from one secret and the time: each
//! key encrypts for [`KEY_LIFETIME`] and decrypts for as long again. Nodes with the same secret therefore accept each other's
//! tickets, and rotate keys together, without communication. Without a configured secret, a random one is used.

use parking_lot::RwLock;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time during which a key encrypts tickets.
const KEY_LIFETIME: Duration = Duration::from_secs(6 * 3600);
/// Size of the key's number, which isn't encrypted.
const PERIOD_BYTES: usize = size_of::<u64>();

/// The minimum length of a configured secret.
pub(super) const SECRET_BYTES_MIN: usize = 32;

pub(super) struct Tickets {
    secret: RwLock<Vec<u8>>,
    random: SystemRandom,
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

impl Tickets {
    /// Makes tickets with this secret, or with a random one. `None` if the system has no random bytes.
    pub(super) fn new(secret: Option<Vec<u8>>) -> Option<Self> {
        let random = SystemRandom::new();
        let secret = match secret {
            Some(secret) => secret,
            None => {
                let mut secret = vec![0; SECRET_BYTES_MIN];
                random.fill(&mut secret).ok()?;
                secret
            }
        };
        Some(Self { secret: RwLock::new(secret), random })
    }

    /// Encrypts with another secret from now on.
    pub(super) fn replace(&self, secret: Vec<u8>) {
        *self.secret.write() = secret;
    }

    fn key(&self, period: u64) -> Option<LessSafeKey> {
        let secret = self.secret.read();
        let period = period.to_be_bytes();
        let key = Salt::new(HKDF_SHA256, b"stentor session tickets").extract(&secret);
        let info = [&period[..]];
        Some(LessSafeKey::new(UnboundKey::from(key.expand(&info, &AES_256_GCM).ok()?)))
    }

    fn encrypt_at(&self, plain: &[u8], period: u64) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let period_bytes = period.to_be_bytes();
        let mut ticket = [&period_bytes[..], &nonce, plain].concat();
        let (nonce, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(period_bytes));
        let content = &mut ticket[PERIOD_BYTES + NONCE_LEN..];
        let tag = self.key(period)?.seal_in_place_separate_tag(nonce, aad, content).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn decrypt_at(&self, ticket: &[u8], now: u64) -> Option<Vec<u8>> {
        let (period_bytes, rest) = ticket.split_first_chunk::<PERIOD_BYTES>()?;
        let (nonce, content) = rest.split_first_chunk::<NONCE_LEN>()?;
        let period = u64::from_be_bytes(*period_bytes);
        // Another node's clock may be a little ahead.
        if period.abs_diff(now) > 1 {
            return None;
        }
        let mut content = content.to_vec();
        let (nonce, aad) = (Nonce::assume_unique_for_key(*nonce), Aad::from(*period_bytes));
        let len = self.key(period)?.open_in_place(nonce, aad, &mut content).ok()?.len();
        content.truncate(len);
        Some(content)
    }
}

/// The number of the current key.
fn period() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() / KEY_LIFETIME.as_secs()
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        KEY_LIFETIME.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(plain, period())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(ticket, period())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(secret: &[u8]) -> Tickets {
        Tickets::new(Some(secret.repeat(SECRET_BYTES_MIN))).unwrap()
    }

    #[test]
    fn a_ticket_is_understood_for_two_periods_by_all_with_the_secret() {
        let (one, other) = (with(b"a"), with(b"a"));
        let ticket = one.encrypt_at(b"state", 1000).unwrap();
        for now in 999..=1001 {
            assert_eq!(other.decrypt_at(&ticket, now).unwrap(), b"state");
        }
        assert_eq!(other.decrypt_at(&ticket, 1002), None);
        assert_eq!(other.decrypt_at(&ticket, 998), None);
        assert_eq!(with(b"b").decrypt_at(&ticket, 1000), None);
        other.replace(b"b".repeat(SECRET_BYTES_MIN));
        assert_eq!(other.decrypt_at(&ticket, 1000), None);
        assert_eq!(with(b"b").decrypt_at(&other.encrypt_at(b"new", 7).unwrap(), 7).unwrap(), b"new");
        let random = || Tickets::new(None).unwrap();
        assert_eq!(random().decrypt(&random().encrypt(b"state").unwrap()), None);
    }

    #[test]
    fn a_changed_ticket_is_none() {
        let tickets = with(b"a");
        let ticket = tickets.encrypt_at(b"state", 1000).unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.decrypt_at(&changed, 1000), None, "byte {at}");
            assert_eq!(tickets.decrypt_at(&ticket[..at], 1000), None, "up to byte {at}");
        }
    }
}
