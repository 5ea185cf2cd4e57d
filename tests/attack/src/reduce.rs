//! Reduces a set of sessions that makes something fail to few of them, by halving (delta debugging, Zeller 1999).

/// Returns the smallest set found for which `fails` returns `true`, after at most `attempts` calls of
/// `fails`. `all` is known to fail.
pub(crate) fn reduce(
    all: &[usize],
    mut attempts: usize,
    mut fails: impl FnMut(&[usize]) -> anyhow::Result<bool>,
) -> anyhow::Result<Vec<usize>> {
    let mut kept = all.to_vec();
    let mut parts = 2;
    'smaller: while kept.len() > 1 && parts <= kept.len() {
        let size = kept.len().div_ceil(parts);
        // One part alone, then all but one part.
        let alone = kept.chunks(size).map(<[usize]>::to_vec);
        let without = (0..kept.len().div_ceil(size)).map(|part| {
            kept.chunks(size)
                .enumerate()
                .filter(|(at, _)| *at != part)
                .flat_map(|(_, part)| part.to_vec())
                .collect()
        });
        let candidates: Vec<Vec<usize>> = alone.chain(without).collect();
        for candidate in candidates {
            if attempts == 0 {
                return Ok(kept);
            }
            attempts -= 1;
            if fails(&candidate)? {
                kept = candidate;
                parts = 2;
                continue 'smaller;
            }
        }
        if parts == kept.len() {
            break;
        }
        parts = (parts * 2).min(kept.len());
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_sessions_that_matter() {
        let check = |needed: &[usize], attempts| {
            let all: Vec<usize> = (0..50).collect();
            reduce(&all, attempts, |some| Ok(needed.iter().all(|one| some.contains(one)))).unwrap()
        };
        assert_eq!(check(&[17], 1000), [17]);
        assert_eq!(check(&[3, 44], 1000), [3, 44]);
        assert_eq!(check(&[0, 20, 49], 1000), [0, 20, 49]);
        assert_eq!(check(&[17], 0).len(), 50);
    }
}
