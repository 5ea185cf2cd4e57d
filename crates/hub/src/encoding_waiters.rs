//! Sessions whose next publication is being encoded by another core.
//!
//! These sessions receive no deliveries until the frame exists, so that their pending deliveries keep their
//! order. Then the sessions are ready again. **Invariant:** a session in this set counts as listed, so no
//! other event makes the session ready. A session is therefore in the set at most once.

use crate::publication::{FormatId, Publication};
use crate::session_id::SessionId;
use std::collections::VecDeque;
use std::sync::Arc;

/// Sessions by the encoding for which they wait; see the module's documentation.
pub(crate) struct EncodingWaiters<F>(Vec<Encoding<F>>);

struct Encoding<F> {
    publication: Arc<Publication<F>>,
    format: FormatId,
    sessions: Vec<SessionId>,
}

impl<F> Default for EncodingWaiters<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F> EncodingWaiters<F> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a session that waits for this encoding. The session must be listed already.
    pub(crate) fn add(
        &mut self,
        publication: &Arc<Publication<F>>,
        format: FormatId,
        session: SessionId,
        is_listed: &mut bool,
    ) {
        if std::mem::replace(is_listed, true) {
            return;
        }
        let is_it =
            |one: &&mut Encoding<F>| one.format == format && Arc::ptr_eq(&one.publication, publication);
        match self.0.iter_mut().find(is_it) {
            Some(one) => one.sessions.push(session),
            None => {
                let publication = publication.clone();
                self.0.push(Encoding { publication, format, sessions: vec![session] });
            }
        }
    }

    /// Makes sessions ready if no other core is making their frame any longer.
    pub(crate) fn move_encoded_to(&mut self, ready: &mut VecDeque<SessionId>) {
        for one in self.0.extract_if(.., |one| !one.publication.is_being_encoded(one.format)) {
            ready.extend(one.sessions);
        }
    }
}
