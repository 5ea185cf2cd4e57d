//! What is kept of a suspended session besides the session.

use crate::log::LogIndex;
use crate::notice::Notice;

/// A suspended session.
pub(crate) struct Suspended {
    /// When it was suspended, as a log index.
    pub(crate) at: LogIndex,
    /// Whether one of its rooms has skipped messages since: the log lacks them.
    pub(crate) has_gap: bool,
    /// Notices for when it is resumed, none twice.
    pub(crate) notices: Vec<Notice>,
}
