//! Tokens that are revoked before they expire.
//!
//! An entry is kept until the last token to which it may apply has expired. The validity of tokens is limited
//! ([`Issuer::lifetime_seconds_max`](crate::Issuer::lifetime_seconds_max)). A full list refuses further
//! entries, because dropping an entry would readmit a revoked client.
//!
//! Lists of several nodes can be merged: adding the same entries in any order and any number of times results
//! in the same list.

use crate::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Allocator overhead of each name in bytes.
const ALLOCATION_BYTES: usize = 16;

/// The tokens to which an entry applies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Subject {
    /// The tokens of a user, by issuer and subject.
    User(Box<str>, Box<str>),
    /// The token with this id, by issuer and id.
    Token(Box<str>, Box<str>),
    /// All tokens of an issuer.
    Issuer(Box<str>),
    /// All tokens.
    All,
}

impl Subject {
    /// Returns the approximate size in memory of an entry with this subject, in bytes.
    fn bytes(&self) -> usize {
        let names = match self {
            Self::User(issuer, name) | Self::Token(issuer, name) => {
                issuer.len() + name.len() + 2 * ALLOCATION_BYTES
            }
            Self::Issuer(issuer) => issuer.len() + ALLOCATION_BYTES,
            Self::All => 0,
        };
        // Each entry counts twice, because nodes of the tree may be only half full.
        2 * (size_of::<Self>() + size_of::<Kept>()) + names
    }
}

/// An entry of the list: it selects the revoked tokens. It can be serialized for other nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Revocation {
    subject: Subject,
    /// Tokens that were issued before this time are revoked, in seconds since 1970.
    issued_before: u64,
}

/// The list is full. The entry was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the list of revocations is full")]
pub struct Full;

/// The data of a token with which entries are compared.
#[derive(Clone, Copy, Debug)]
pub struct TokenFacts<'a> {
    /// `iss`.
    pub issuer: &'a str,
    /// `sub`.
    pub subject: &'a str,
    /// `jti`.
    pub token_id: Option<&'a str>,
    /// `iat`, in seconds since 1970.
    pub issued_at: u64,
}

impl Revocation {
    /// Makes an entry for the tokens of a user that were issued before a time (seconds since 1970).
    pub fn user(issuer: &str, subject: &str, issued_before: u64) -> Self {
        Self { subject: Subject::User(issuer.into(), subject.into()), issued_before }
    }

    /// Makes an entry for one token.
    pub fn token(issuer: &str, token_id: &str) -> Self {
        Self { subject: Subject::Token(issuer.into(), token_id.into()), issued_before: u64::MAX }
    }

    /// Makes an entry for all tokens of an issuer, or of all issuers, that were issued before a time (seconds
    /// since 1970).
    pub fn issued_before(issuer: Option<&str>, time: u64) -> Self {
        let subject = issuer.map_or(Subject::All, |issuer| Subject::Issuer(issuer.into()));
        Self { subject, issued_before: time }
    }

    /// Returns the issuer. `None` means all issuers.
    pub fn issuer(&self) -> Option<&str> {
        match &self.subject {
            Subject::User(issuer, _) | Subject::Token(issuer, _) | Subject::Issuer(issuer) => Some(issuer),
            Subject::All => None,
        }
    }

    /// Returns the user, if the entry applies to the tokens of a user.
    pub fn subject(&self) -> Option<&str> {
        if let Subject::User(_, subject) = &self.subject { Some(subject) } else { None }
    }

    /// Returns the token's id, if the entry applies to one token.
    pub fn token_id(&self) -> Option<&str> {
        if let Subject::Token(_, id) = &self.subject { Some(id) } else { None }
    }

    /// Returns the time before which revoked tokens were issued, in seconds since 1970. `None` means any
    /// time.
    pub fn time(&self) -> Option<u64> {
        (self.issued_before < u64::MAX).then_some(self.issued_before)
    }

    /// Returns `true` if the entry applies to a token.
    pub fn concerns(&self, token: TokenFacts<'_>) -> bool {
        let is_meant = match &self.subject {
            Subject::User(issuer, subject) => **issuer == *token.issuer && **subject == *token.subject,
            Subject::Token(issuer, id) => **issuer == *token.issuer && Some(&**id) == token.token_id,
            Subject::Issuer(issuer) => **issuer == *token.issuer,
            Subject::All => true,
        };
        is_meant && self.is_old(token)
    }

    fn is_old(&self, token: TokenFacts<'_>) -> bool {
        token.issued_at < self.issued_before
    }
}

/// The data of an entry without its subject.
#[derive(Clone, Copy, Debug)]
struct Kept {
    issued_before: u64,
    /// Time after which no token to which the entry applies is valid, in seconds since 1970.
    until: u64,
}

/// A list of [`Revocation`]s.
#[derive(Debug)]
pub struct Revocations {
    all: BTreeMap<Subject, Kept>,
    /// The exclusive or of the entries' hashes.
    digest: u64,
    entries_max: usize,
    /// Time for which an entry is kept, in seconds.
    lifetime_seconds: u64,
    /// Time at which the first entry may end, in seconds since 1970.
    due_at: u64,
    /// Approximate size of the entries in bytes.
    bytes: usize,
}

impl Revocations {
    /// Makes a list of at most `entries_max` entries. Each entry is kept for `lifetime_seconds`, which must
    /// be the maximum validity of a token plus the leeway for its issuer's clock.
    pub fn new(entries_max: usize, lifetime_seconds: u64) -> Self {
        Self { all: BTreeMap::new(), digest: 0, entries_max, lifetime_seconds, due_at: u64::MAX, bytes: 0 }
    }

    /// Adds an entry, or renews an existing one. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`Full`] if the list is full.
    pub fn add(&mut self, revocation: Revocation, now: u64) -> Result<(), Full> {
        self.merge(revocation, u64::MAX, now).map(|_| ())
    }

    /// Adds an entry of another list, which keeps the entry until the time `until`. This list keeps the entry
    /// at most for its own lifetime. Returns `true` if the list now applies to more tokens than before.
    ///
    /// # Errors
    /// [`Full`] if the list is full.
    pub fn merge(&mut self, revocation: Revocation, until: u64, now: u64) -> Result<bool, Full> {
        let Revocation { subject, issued_before } = revocation;
        if until <= now {
            return Ok(false);
        }
        if self.all.len() >= self.entries_max && !self.all.contains_key(&subject) {
            self.expire(now);
            if self.all.len() >= self.entries_max {
                return Err(Full);
            }
        }
        // An entry with a time in the future also applies to tokens that will be issued until then.
        let latest = if issued_before < u64::MAX { issued_before.max(now) } else { now };
        let until = until.min(latest.saturating_add(self.lifetime_seconds));
        let mut digest = hash(&subject, issued_before);
        if let Some(kept) = self.all.get_mut(&subject) {
            kept.until = kept.until.max(until);
            if issued_before <= kept.issued_before {
                return Ok(false);
            }
            digest ^= hash(&subject, kept.issued_before);
            kept.issued_before = issued_before;
        } else {
            self.due_at = self.due_at.min(until);
            self.bytes += subject.bytes();
            self.all.insert(subject, Kept { issued_before, until });
        }
        self.digest ^= digest;
        Ok(true)
    }

    /// Returns a number that is equal for lists with the same entries, regardless of the times until which
    /// they are kept.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns `true` if a token is revoked.
    pub fn is_revoked(&self, token: TokenFacts<'_>) -> bool {
        let TokenFacts { issuer, subject, token_id, issued_at } = token;
        self.is_user_revoked(issuer, subject, issued_at)
            || self.concerns(&Subject::All, issued_at)
            || token_id.is_some_and(|id| self.concerns(&Subject::Token(issuer.into(), id.into()), issued_at))
    }

    /// Returns `true` if an entry applies to a user who was verified by other means than a token. `since` is
    /// the time of verification in seconds since 1970.
    pub fn is_user_revoked(&self, issuer: &str, subject: &str, since: u64) -> bool {
        !self.all.is_empty()
            && (self.concerns(&Subject::Issuer(issuer.into()), since)
                || self.concerns(&Subject::User(issuer.into(), subject.into()), since))
    }

    fn concerns(&self, subject: &Subject, issued_at: u64) -> bool {
        self.all.get(subject).is_some_and(|kept| issued_at < kept.issued_before)
    }

    /// Removes entries that no longer apply to any valid token. Visits no entries before the first one may
    /// end.
    pub fn expire(&mut self, now: u64) {
        if now < self.due_at {
            return;
        }
        let (mut due_at, mut bytes) = (u64::MAX, 0);
        let digest = &mut self.digest;
        self.all.retain(|subject, kept| {
            let stays = now < kept.until;
            if stays {
                due_at = due_at.min(kept.until);
                bytes += subject.bytes();
            } else {
                *digest ^= hash(subject, kept.issued_before);
            }
            stays
        });
        (self.due_at, self.bytes) = (due_at, bytes);
    }

    /// Iterates over the entries in order, each with the time until which it is kept, in seconds since 1970.
    pub fn iter(&self) -> impl Iterator<Item = (Revocation, u64)> {
        self.iter_after(None)
    }

    /// Iterates over the entries after `after`, which needn't be in the list.
    pub fn iter_after(&self, after: Option<&Revocation>) -> impl Iterator<Item = (Revocation, u64)> {
        let begin = after.map_or(Bound::Unbounded, |entry| Bound::Excluded(&entry.subject));
        self.all.range((begin, Bound::Unbounded)).map(|(subject, kept)| {
            (Revocation { subject: subject.clone(), issued_before: kept.issued_before }, kept.until)
        })
    }

    /// Returns the approximate size of the entries in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns `true` if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// Computes a hash that is the same on all nodes.
fn hash(subject: &Subject, issued_before: u64) -> u64 {
    // The `Debug` format quotes texts, so different entries have different texts.
    Digest::of(&format!("{subject:?} {issued_before}")).number()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: u64 = 100;

    fn list(entries: &[Revocation], now: u64) -> Revocations {
        let mut list = Revocations::new(3, LIFETIME);
        entries.iter().for_each(|entry| list.add(entry.clone(), now).unwrap());
        list
    }

    #[test]
    fn entries_apply_to_tokens() {
        let check = |entry: Revocation, expect: &str| {
            let list = list(std::slice::from_ref(&entry), 1000);
            let mut revoked = Vec::new();
            for (name, issuer, subject, token_id, issued_at) in [
                ("old", "i", "42", None, 900),
                ("new", "i", "42", None, 1001),
                ("named", "i", "42", Some("t"), 1001),
                ("other user", "i", "43", Some("u"), 900),
                ("other issuer", "j", "42", Some("t"), 900),
            ] {
                let token = TokenFacts { issuer, subject, token_id, issued_at };
                assert_eq!(list.is_revoked(token), entry.concerns(token), "{name}");
                revoked.extend(list.is_revoked(token).then_some(name));
            }
            assert_eq!(revoked.join(", "), expect, "{entry:?}");
        };
        check(Revocation::user("i", "42", 1001), "old");
        check(Revocation::token("i", "t"), "named");
        check(Revocation::issued_before(Some("i"), 1001), "old, other user");
        check(Revocation::issued_before(None, 1001), "old, other user, other issuer");
    }

    #[test]
    fn entries_are_kept_until_the_last_token_has_expired() {
        let mut list = list(&[Revocation::user("i", "a", 1000), Revocation::token("i", "t")], 1000);
        list.add(Revocation::issued_before(None, 1500), 1000).unwrap();
        assert_eq!(list.add(Revocation::user("i", "b", 1), 1000), Err(Full));
        // Adding an existing entry again renews it.
        list.add(Revocation::user("i", "a", 1050), 1050).unwrap();
        list.expire(1000 + LIFETIME - 1);
        assert_eq!(list.len(), 3);
        // The end of an entry makes space for another entry.
        list.add(Revocation::user("i", "b", 1), 1000 + LIFETIME).unwrap();
        let mut left: Vec<_> = list.iter().collect();
        left.sort();
        let expect = [
            (Revocation::user("i", "a", 1050), 1150),
            (Revocation::user("i", "b", 1), 1200),
            (Revocation::issued_before(None, 1500), 1600),
        ];
        assert_eq!(left, expect);
        assert!(list.bytes() > 3 * size_of::<Subject>());
        list.expire(1600);
        assert!(list.is_empty() && list.bytes() == 0);
        // Entries that were added later end too.
        list.add(Revocation::user("i", "c", 1), 1600).unwrap();
        list.expire(1600 + LIFETIME);
        assert!(list.is_empty());
    }

    #[test]
    fn lists_merge_in_any_order() {
        let entries = [
            (Revocation::user("i", "a", 10), 1_050),
            (Revocation::user("i", "a", 20), 1_040),
            (Revocation::token("i", "t"), 1_090),
            (Revocation::issued_before(None, 7), u64::MAX),
            (Revocation::token("i", "over"), 1_000),
        ];
        let merge = |order: &[usize]| {
            let mut list = Revocations::new(3, LIFETIME);
            let changes = order.iter().filter(|at| {
                let (entry, until) = entries[**at].clone();
                list.merge(entry, until, 1_000).unwrap()
            });
            let changes = changes.count();
            (changes, list)
        };
        let (changes, expect) = merge(&[0, 1, 2, 3, 4]);
        assert_eq!(changes, 4, "one is over");
        let all: Vec<_> = expect.iter().collect();
        assert_eq!(all.iter().map(|(_, until)| *until).max(), Some(1_000 + LIFETIME));
        for order in [[4, 3, 2, 1, 0], [1, 0, 1, 3, 2], [2, 3, 0, 1, 1]] {
            let (_, list) = merge(&order);
            assert_eq!((list.iter().collect::<Vec<_>>(), list.digest()), (all.clone(), expect.digest()));
        }
        assert_ne!(merge(&[0, 2, 3]).1.digest(), expect.digest());
        // The list is read page by page, each after the last entry of the previous page.
        for (at, (entry, _)) in all.iter().enumerate() {
            assert_eq!(expect.iter_after(Some(entry)).collect::<Vec<_>>(), all[at + 1..]);
        }
        // Entries that have ended are removed, also from the digest.
        let mut list = expect;
        list.expire(1_000 + LIFETIME);
        assert_eq!((list.len(), list.digest()), (0, 0));
    }

    #[test]
    fn entries_are_serialised() {
        for entry in [
            Revocation::user("i", "42", 7),
            Revocation::token("i", "t"),
            Revocation::issued_before(Some("i"), 7),
            Revocation::issued_before(None, 7),
        ] {
            let text = serde_json::to_string(&entry).unwrap();
            assert_eq!(serde_json::from_str::<Revocation>(&text).unwrap(), entry, "{text}");
        }
    }
}
