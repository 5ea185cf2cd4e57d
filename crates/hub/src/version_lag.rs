//! The number of versions of a feed that a session is behind the newest, in two bytes per subscription.

/// The session has no version to which a patch could apply.
pub(crate) const UNKNOWN: u16 = u16::MAX;
/// The session's version is too old to be counted.
pub(crate) const FAR: u16 = UNKNOWN - 1;

/// Returns the lag of a session after a document that is `step` versions newer than the previous one.
pub(crate) fn further_behind(behind: u16, step: u16) -> u16 {
    if behind == UNKNOWN || step == UNKNOWN { UNKNOWN } else { behind.saturating_add(step).min(FAR) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lags_stop_at_far_and_stay_unknown() {
        let after = |step| [0, FAR - 1, FAR, UNKNOWN].map(|behind| further_behind(behind, step));
        assert_eq!(after(1), [1, FAR, FAR, UNKNOWN]);
        assert_eq!(after(3), [3, FAR, FAR, UNKNOWN]);
        assert_eq!(after(UNKNOWN), [UNKNOWN; 4]);
    }
}
