//! How many versions of a feed a session is behind the newest, in two bytes per subscription.

/// The session has no version that a patch could build on.
pub(crate) const UNKNOWN: u16 = u16::MAX;
/// The session has one from so long ago that nobody counts any more.
pub(crate) const FAR: u16 = UNKNOWN - 1;

/// How far behind is who was `behind` before there was another version.
pub(crate) fn one_more_behind(behind: u16) -> u16 {
    if behind < FAR { behind + 1 } else { behind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_far_behind_stays_so_and_nobody_becomes_unknown() {
        assert_eq!([0, FAR - 1, FAR, UNKNOWN].map(one_more_behind), [1, FAR, FAR, UNKNOWN]);
    }
}
