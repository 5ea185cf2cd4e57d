//! Joins consecutive patches into one, as texts, for a client that is several versions behind.

use std::collections::BTreeSet;

/// Joins patches into one with the same effect, without values that a later `replace` overwrites. Each must
/// be a JSON array without whitespace around it, like [`Delta::Patch`](super::Delta::Patch). `None` if one
/// isn't.
///
/// Takes time linear in their size, apart from finding each path in a sorted set.
pub fn join<'p>(patches: impl IntoIterator<Item = &'p [u8]>) -> Option<Vec<u8>> {
    let array = |patch| std::str::from_utf8(patch).ok()?.strip_prefix('[')?.strip_suffix(']');
    let mut patches: Vec<&str> = patches.into_iter().map(array).collect::<Option<_>>()?;
    patches.retain(|operations| !operations.is_empty());
    let all: Vec<&str> = patches.iter().flat_map(|operations| stentor_json::elements(operations)).collect();
    let needed = needed(&all);
    let parts = if needed.len() < all.len() { needed } else { patches };
    Some(["[", &parts.join(","), "]"].concat().into_bytes())
}

/// Returns the operations without each `replace` whose path a later one replaces again. Only operations that
/// replace values at other paths may stand in between: any other operation might move the path's target, or
/// need its value.
fn needed<'p>(operations: &[&'p str]) -> Vec<&'p str> {
    // Paths that are replaced later. No path is a prefix of another one.
    let mut replaced: BTreeSet<&str> = BTreeSet::new();
    let mut needed = Vec::with_capacity(operations.len());
    for operation in operations.iter().rev() {
        let Some(path) = replace_path(operation) else {
            replaced.clear();
            needed.push(*operation);
            continue;
        };
        if replaced.contains(path) {
            continue;
        }
        for (end, _) in path.match_indices('/') {
            replaced.remove(&path[..end]);
        }
        let below = format!("{path}/");
        while let Some(found) = replaced.range(&*below..).next().copied().filter(|p| p.starts_with(&below)) {
            replaced.remove(found);
        }
        replaced.insert(path);
        needed.push(*operation);
    }
    needed.reverse();
    needed
}

/// Returns the path of a `replace` as `write` writes it, unless the path has an escape, which has several
/// spellings.
fn replace_path(operation: &str) -> Option<&str> {
    let (path, _) = operation.strip_prefix(r#"{"op":"replace","path":""#)?.split_once('"')?;
    (!path.contains('\\')).then_some(path)
}
