//! How many versions of a feed a session is behind the newest, in two bytes per subscription.

/// The session has no version that a patch could apply to.
pub(crate) const UNKNOWN: u16 = u16::MAX;
/// The session's version is too old to be counted.
pub(crate) const FAR: u16 = UNKNOWN - 1;

/// How many versions behind a session is after a document that is `step` versions newer than the one before.
pub(crate) fn further_behind(behind: u16, step: u16) -> u16 {
    if behind == UNKNOWN || step == UNKNOWN { UNKNOWN } else { behind.saturating_add(step).min(FAR) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_behind_and_unknown_stay_so() {
        let after = |step| [0, FAR - 1, FAR, UNKNOWN].map(|behind| further_behind(behind, step));
        assert_eq!(after(1), [1, FAR, FAR, UNKNOWN]);
        assert_eq!(after(3), [3, FAR, FAR, UNKNOWN]);
        assert_eq!(after(UNKNOWN), [UNKNOWN; 4]);
    }
}
