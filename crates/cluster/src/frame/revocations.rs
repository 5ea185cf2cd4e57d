//! Lists of revocations, and commands about identities.

use super::FrameError;
use super::codec::{Reader, Writer};
use stentor_ports::{IdentityFilter, PublicId, Recheck, RecheckAction, Revoked};

/// Maximum number of entries of a page: with the longest names, it has less than a megabyte.
pub const REVOCATIONS_MAX: usize = 1_000;

/// Messages by which nodes share their lists of revocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevocationsFrame {
    /// Asks for a page of the receiver's list.
    Ask {
        /// Digest of the asker's list. See [`RevocationList::digest`](stentor_ports::RevocationList::digest).
        digest: u64,
        /// Last entry of the previous page. `None` for the first page.
        after: Option<IdentityFilter>,
    },
    /// A page of the sender's list, for the node that has asked.
    Page {
        /// Digest of the sender's list.
        digest: u64,
        /// The page's entries, at most [`REVOCATIONS_MAX`]. Fewer if no page follows, none if the lists are equal.
        entries: Vec<Revoked>,
    },
    /// Entries that some node lacks, for all nodes.
    Added {
        /// The entries, at most [`REVOCATIONS_MAX`].
        entries: Vec<Revoked>,
    },
}

impl Writer {
    pub(super) fn revocations(&mut self, frame: &RevocationsFrame) {
        match frame {
            RevocationsFrame::Ask { digest, after } => {
                self.u8(0);
                self.u64(*digest);
                self.option(after.as_ref(), Self::filter);
            }
            RevocationsFrame::Page { digest, entries } => {
                self.u8(1);
                self.u64(*digest);
                self.revoked(entries);
            }
            RevocationsFrame::Added { entries } => {
                self.u8(2);
                self.revoked(entries);
            }
        }
    }

    fn revoked(&mut self, entries: &[Revoked]) {
        self.list(entries.iter(), |w, Revoked { filter, until }| {
            w.filter(filter);
            w.u64(*until);
        });
    }

    fn filter(&mut self, filter: &IdentityFilter) {
        let IdentityFilter { issuer, subject, token_id, issued_before, session } = filter;
        for name in [issuer, subject, token_id] {
            self.option(name.as_deref(), Self::text);
        }
        self.option(*issued_before, Self::u64);
        self.option(*session, |w, id| w.text(&id.to_string()));
    }

    pub(super) fn recheck(&mut self, Recheck { filter, action }: &Recheck) {
        self.filter(filter);
        self.u8(match action {
            RecheckAction::Authorize => 0,
            RecheckAction::EndRevoked => 1,
            RecheckAction::Disconnect => 2,
            RecheckAction::Renew => 3,
        });
    }
}

impl Reader {
    pub(super) fn revocations(&mut self) -> Result<RevocationsFrame, FrameError> {
        Ok(match self.u8()? {
            0 => RevocationsFrame::Ask { digest: self.u64()?, after: self.option(Self::filter)? },
            1 => RevocationsFrame::Page { digest: self.u64()?, entries: self.revoked()? },
            2 => RevocationsFrame::Added { entries: self.revoked()? },
            _ => return Err(FrameError::Malformed),
        })
    }

    fn revoked(&mut self) -> Result<Vec<Revoked>, FrameError> {
        let entries = self.list(|r| Ok(Revoked { filter: r.filter()?, until: r.u64()? }))?;
        if entries.len() > REVOCATIONS_MAX { Err(FrameError::Malformed) } else { Ok(entries) }
    }

    fn filter(&mut self) -> Result<IdentityFilter, FrameError> {
        Ok(IdentityFilter {
            issuer: self.option(Self::text)?,
            subject: self.option(Self::text)?,
            token_id: self.option(Self::text)?,
            issued_before: self.option(Self::u64)?,
            session: self.option(|r| PublicId::parse(&r.text()?).ok_or(FrameError::Malformed))?,
        })
    }

    pub(super) fn recheck(&mut self) -> Result<Recheck, FrameError> {
        let filter = self.filter()?;
        let action = match self.u8()? {
            0 => RecheckAction::Authorize,
            1 => RecheckAction::EndRevoked,
            2 => RecheckAction::Disconnect,
            3 => RecheckAction::Renew,
            _ => return Err(FrameError::Malformed),
        };
        Ok(Recheck { filter, action })
    }
}
