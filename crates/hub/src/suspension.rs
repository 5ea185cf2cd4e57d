//! The additional state of a suspended session.

use crate::log::LogIndex;
use crate::notice::Notice;

/// A suspended session.
pub(crate) struct Suspended {
    /// Log index at which the session was suspended.
    pub(crate) at: LogIndex,
    /// `true` if one of the session's rooms has skipped messages since, which the log therefore lacks.
    pub(crate) has_gap: bool,
    /// Distinct notices for the time of its resumption.
    pub(crate) notices: Vec<Notice>,
}
