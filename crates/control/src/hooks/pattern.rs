//! Patterns of names: `*` matches any text, including the empty one.

/// The texts between the stars of a pattern.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pattern(Box<[Box<str>]>);

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        Self(text.split('*').map(Into::into).collect())
    }

    /// Returns `true` if the pattern matches the text. Takes linear time per star.
    pub(super) fn matches(&self, text: &str) -> bool {
        let (first, rest) = match &*self.0 {
            [] => return text.is_empty(),
            [whole] => return text == &**whole,
            [first, rest @ ..] => (first, rest),
        };
        let Some((last, middle)) = rest.split_last() else { return false };
        let Some(mut text) = text.strip_prefix(&**first) else { return false };
        for piece in middle {
            match text.find(&**piece) {
                Some(at) => text = &text[at + piece.len()..],
                None => return false,
            }
        }
        text.ends_with(&**last)
    }

    /// Returns `true` if the pattern is this name, without a star.
    pub(super) fn is_exactly(&self, name: &str) -> bool {
        matches!(&*self.0, [whole] if **whole == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        fn check(pattern: &str, matching: &[&str], others: &[&str]) {
            let parsed = Pattern::new(pattern);
            matching.iter().for_each(|text| assert!(parsed.matches(text), "{pattern} {text}"));
            others.iter().for_each(|text| assert!(!parsed.matches(text), "{pattern} {text}"));
        }
        check("a", &["a"], &["", "b", "aa"]);
        check("*", &["", "a", "a/b"], &[]);
        check("user:*", &["user:", "user:42"], &["user", "xuser:1"]);
        check("*.jpg", &[".jpg", "a.jpg"], &["a.jpg2"]);
        check("a*b*c", &["abc", "aXbYc", "abbcc"], &["ac", "acb", "abcd"]);
        check("a*a", &["aa", "aba"], &["a"]);
        check("é*", &["é", "éa"], &["e"]);
    }
}
