//! What is kept of a suspended session besides the session.

use crate::log::LogIndex;
use crate::notice::Notice;

/// What there is of a suspended session besides the session.
pub(crate) struct Suspended {
    /// When, as a place in the log.
    pub(crate) at: LogIndex,
    /// What it is to be told when it is back. At most one for each of its subscriptions and attempts.
    pub(crate) notices: Vec<Notice>,
}
