//! The list of revocations that the nodes of a cluster share.

use super::Auth;
use crate::unix_time::unix_seconds;
use stentor_auth::{Full, Revocation};
use stentor_ports::{IdentityFilter, RevocationList, RevocationsFull, Revoked};

/// Maximum length of the name of an issuer, a user or a token in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 256;

/// Makes a revocation from a filter. `None` if the admin API wouldn't have accepted the filter.
fn entry(filter: &IdentityFilter) -> Option<Revocation> {
    let IdentityFilter { issuer, subject, token_id, issued_before, session } = filter;
    let has_length = |name: &&str| (1..=NAME_BYTES_MAX).contains(&name.len());
    let names = [issuer, subject, token_id].map(Option::as_deref);
    if session.is_some() || !names.iter().flatten().all(has_length) {
        return None;
    }
    match (names, issued_before) {
        ([Some(issuer), Some(subject), None], Some(time)) => Some(Revocation::user(issuer, subject, *time)),
        ([Some(issuer), None, Some(id)], None) => Some(Revocation::token(issuer, id)),
        ([issuer, None, None], Some(time)) => Some(Revocation::issued_before(issuer, *time)),
        _ => None,
    }
}

fn filter(entry: &Revocation) -> IdentityFilter {
    IdentityFilter {
        issuer: entry.issuer().map(Into::into),
        subject: entry.subject().map(Into::into),
        token_id: entry.token_id().map(Into::into),
        // Only the revocation of a single token has no time. For others without a time, tokens of any age are
        // revoked.
        issued_before: entry.time().or_else(|| entry.token_id().is_none().then_some(u64::MAX)),
        session: None,
    }
}

impl RevocationList for Auth {
    fn digest(&self) -> u64 {
        self.change_revocations(unix_seconds(), |list, _| list.digest())
    }

    fn entries(&self, after: Option<&IdentityFilter>, count: usize) -> Vec<Revoked> {
        let after = after.and_then(entry);
        let list = &self.revocations.read().list;
        let entries = list.iter_after(after.as_ref()).take(count);
        entries.map(|(entry, until)| Revoked { filter: filter(&entry), until }).collect()
    }

    fn merge(&self, entries: Vec<Revoked>) -> Result<bool, RevocationsFull> {
        self.change_revocations(unix_seconds(), |list, now| {
            let (mut has_changed, mut result) = (false, Ok(()));
            for Revoked { filter, until } in entries {
                let Some(entry) = entry(&filter) else { continue };
                match list.merge(entry, until, now) {
                    Ok(changed) => has_changed |= changed,
                    Err(Full) => result = Err(RevocationsFull),
                }
            }
            result.map(|()| has_changed)
        })
    }
}
