//! Joins consecutive patches to one, as texts, for a client that is several versions behind.

/// One patch that does what these do one after the other: a JSON array with all their operations. Each must be
/// a JSON array without whitespace around it, as [`Delta::Patch`](super::Delta::Patch) is.
pub fn join<'p>(patches: impl IntoIterator<Item = &'p [u8], IntoIter: Clone>) -> Vec<u8> {
    let patches = patches.into_iter();
    let mut out = Vec::with_capacity(joined_len(patches.clone()));
    out.push(b'[');
    for operations in patches.map(operations).filter(|operations| !operations.is_empty()) {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(operations);
    }
    out.push(b']');
    out
}

/// How long the joined patch would be, in bytes: to see whether a snapshot is shorter.
pub fn joined_len<'p>(patches: impl IntoIterator<Item = &'p [u8]>) -> usize {
    let with_comma = |patch| Some(operations(patch).len()).filter(|len| *len > 0).map(|len| len + 1);
    // The first has no comma before it; two brackets.
    patches.into_iter().filter_map(with_comma).sum::<usize>().max(1) + 1
}

fn operations(patch: &[u8]) -> &[u8] {
    patch.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operations_of_all_in_order() {
        let check = |patches: &[&str], expect: &str| {
            let patches = || patches.iter().map(|patch| patch.as_bytes());
            assert_eq!(String::from_utf8(join(patches())).unwrap(), expect);
            assert_eq!(joined_len(patches()), expect.len());
        };
        check(&[], "[]");
        check(&["[]"], "[]");
        check(&["[]", "[1]"], "[1]");
        check(&["[1]", "[]"], "[1]");
        check(&["[1,2]", "[]", "[3]"], "[1,2,3]");
    }
}
