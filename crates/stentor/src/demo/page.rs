//! The demo's page: one HTML file, nothing from elsewhere.
//!
//! Its own policy, in a `meta` element, allows exactly the one style and the one script in it, by hash; a
//! test compares, and says the new hash when one of them was changed.

use stentor_edge::StaticRoute;

const PAGE: &str = include_str!("page.html");

/// What the demo serves beside the application's routes.
pub(super) fn routes() -> Vec<StaticRoute> {
    let page = StaticRoute {
        path: "/".into(),
        content_type: "text/html; charset=utf-8".into(),
        body: PAGE.as_bytes().into(),
    };
    vec![page]
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use sha2::{Digest, Sha256};

    fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
        assert_eq!(text.matches(begin).count(), 1, "one {begin}");
        text.split(begin).nth(1).and_then(|rest| rest.split(end).next()).unwrap()
    }

    #[test]
    fn the_policy_allows_this_style_and_this_script() {
        let policy = between(PAGE, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
        for (directive, part) in [
            ("style-src", between(PAGE, "<style>", "</style>")),
            ("script-src", between(PAGE, "<script>", "</script>")),
        ] {
            let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(part));
            let expect = format!("{directive} 'sha256-{hash}'");
            assert!(policy.contains(&expect), "page.html was changed; its policy must say {expect}");
        }
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }

    /// What a policy by hash refuses, and what would need the network.
    #[test]
    fn nothing_inline_and_nothing_from_elsewhere() {
        for refused in [
            " style=",
            " onclick=",
            " onload=",
            "javascript:",
            "innerHTML",
            "eval(",
            "http://",
            "https://",
            "@import",
        ] {
            // The one name of a namespace that looks like an address.
            assert!(!PAGE.replace("http://www.w3.org/2000/svg", "").contains(refused), "{refused}");
        }
        assert!(PAGE.len() < 64 * 1024, "small enough to be read");
    }
}
