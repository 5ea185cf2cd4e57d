//! How many versions of a feed a session is behind the newest, in two bytes per subscription.

/// The session has no version that a patch could apply to.
pub(crate) const UNKNOWN: u16 = u16::MAX;
/// The session's version is too old to be counted.
pub(crate) const FAR: u16 = UNKNOWN - 1;

/// How many versions behind a session is after one more version.
pub(crate) fn one_more_behind(behind: u16) -> u16 {
    if behind < FAR { behind + 1 } else { behind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_behind_and_unknown_stay_so() {
        assert_eq!([0, FAR - 1, FAR, UNKNOWN].map(one_more_behind), [1, FAR, FAR, UNKNOWN]);
    }
}
