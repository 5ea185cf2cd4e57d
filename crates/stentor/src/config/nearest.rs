//! Finds the known word that is nearest to a mistyped one.

/// Returns the word of `known` for which `word` is likely a typing mistake: the nearest one, if at most a
/// third of the letters differ.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Long input isn't compared: it is no typing mistake, and the comparison takes time proportional to the
    // product of both lengths.
    if word.len() > 64 {
        return None;
    }
    let distance = |candidate: &&str| strsim::osa_distance(&word.to_lowercase(), candidate);
    let best = known.into_iter().min_by_key(distance)?;
    (distance(&best) <= best.chars().count().max(3) / 3).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_similar_words_are_suggested() {
        fn check(word: &str, expect: Option<&str>) {
            assert_eq!(nearest(word, ["listen", "admin", "cores", "log", "url"]), expect, "{word:?}");
        }
        check("lisen", Some("listen"));
        check("litsen", Some("listen"));
        check("LISTEN", Some("listen"));
        check("core", Some("cores"));
        check("lg", Some("log"));
        check("uri", Some("url"));
        check("history", None);
        check("", None);
        check(&"listen".repeat(20), None);
    }
}
