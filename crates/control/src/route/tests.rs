//! Tests of the URLs of keys, and of the configuration mistakes that are refused.

use super::*;
use hyper::Uri;
use proptest::prelude::*;

fn key(text: &str) -> Key {
    Key::parse_as(text, KeyCharset::Utf8).unwrap()
}

/// Makes a route with the charset `Utf8`.
fn route(prefix: &str, template: &str, url: &str) -> Result<Route, Vec<RouteError>> {
    Route::new(prefix, template, url, KeyCharset::Utf8, "")
}

fn url_of(prefix: &str, template: &str, url: &str, text: &str) -> Option<String> {
    let (pattern, url, _) = route(prefix, template, url).unwrap().into_parts();
    let key = key(text);
    let values = pattern.values(&key)?;
    url.fill(&key, &values).map(|uri| uri.to_string())
}

#[test]
fn a_template_gives_the_url_of_a_key() {
    fn check(template: &str, url: &str, text: &str, expect: Option<&str>) {
        let found = url_of("", template, url, text);
        assert_eq!(found.as_deref(), expect, "{template} {url} {text}");
    }
    let centre = "matchesfeed/{id}/matchcentre";
    let found = Some("http://api/match/8?full=1");
    check(centre, "http://api/match/{id}?full=1", "matchesfeed/8/matchcentre", found);
    check(centre, "http://api/{id}", "matchesfeed/8/other", None);
    check(centre, "http://api/{id}", "matchesfeed/8/9/matchcentre", None);
    check(centre, "http://api/{id}", "matchesfeed/8/matchcentre/x", None);
    check(centre, "http://api/{id}", "x/matchesfeed/8/matchcentre", None);
    check("one", "http://api/fixed", "one", Some("http://api/fixed"));
    check("{a}/{b}", "https://h:81/{b}/{a}/{b}", "x/y", Some("https://h:81/y/x/y"));
    check("match-{id}.json", "http://h/m/{id}", "match-8.json", Some("http://h/m/8"));
    check("match-{id}.json", "http://h/m/{id}", "match-.json", None);
    check("match-{id}.json", "http://h/m/{id}", "match-.json.json", Some("http://h/m/.json"));
    check("v/{rest*}", "http://h/api/{rest}", "v/a/b/c", Some("http://h/api/a/b/c"));
    check("v/{rest*}", "http://h/api/{rest}/end", "v/a", Some("http://h/api/a/end"));
    check("v/{rest*}", "http://h/api/{rest}", "v", None);
    check("{rest*}", "http://h?k={rest}", "a/b", Some("http://h/?k=a%2Fb"));
}

#[test]
fn a_key_is_escaped_in_the_url() {
    fn check(url: &str, text: &str, expect: &str) {
        assert_eq!(url_of("", "k/{x}", url, text).as_deref(), Some(expect));
    }
    // In a path, all characters of a key are allowed (RFC 3986, 3.3).
    check("http://h/{x}", "k/a~b_c-d.e@f:g=h+i,j", "http://h/a~b_c-d.e@f:g=h+i,j");
    // In a query, + would be a space, and = and & would end a name.
    check("http://h/?q={x}&r=1", "k/a+b=c,d@e:f", "http://h/?q=a%2Bb%3Dc%2Cd%40e%3Af&r=1");
    check("http://h/?q={x}", "k/A-z_0.~", "http://h/?q=A-z_0.~");
}

#[test]
fn other_characters_are_percent_encoded() {
    fn check(template: &str, url: &str, text: &str, expect: Option<&str>) {
        assert_eq!(url_of("", template, url, text).as_deref(), expect, "{template} {url} {text}");
    }
    let found = Some("http://h/v1/city/S%C3%A3o%20Paulo/50%25?lang=en");
    check("", "http://h/v1?lang=en", "city/S\u{e3}o Paulo/50%", found);
    check("u/{x}", "http://h/{x}", "u/o'brien@example.com", Some("http://h/o%27brien@example.com"));
    check("u/{x}", "http://h/?q={x}", "u/o'b@c", Some("http://h/?q=o%27b%40c"));
    check("u/{x*}", "http://h/{x}", "u/a?b/#c;d=1", Some("http://h/a%3Fb/%23c%3Bd=1"));
    check(
        "u/{x}",
        "http://h/{x}",
        "u/\"<>^`{|}*&!$()[]",
        Some("http://h/%22%3C%3E%5E%60%7B%7C%7D%2A%26%21%24%28%29%5B%5D"),
    );
    check("caf\u{e9}/{x}", "http://h/{x}", "caf\u{e9}/1", Some("http://h/1"));
    // A letter with a combining accent is a different key than the accented letter.
    check("caf\u{e9}/{x}", "http://h/{x}", "cafe\u{301}/1", None);
}

#[test]
fn a_replacement_makes_no_escape_for_a_second_decoding() {
    fn check(template: &str, url: &str, text: &str, expect: Option<&str>) {
        assert_eq!(url_of("", template, url, text).as_deref(), expect, "{url} {text}");
    }
    check("{x}", "http://h/{x}2e/s", "%", None);
    check("{x}", "http://h/.{x}/s", "%2", Some("http://h/.%252/s"));
    check("{x}", "http://h/{x}%65/s", "%2", None);
    check("{x}/{y}", "http://h/{x}{y}/s", "%/2e", None);
    check("{x}/{y}", "http://h/?a={x}{y}", "%/26b=c", None);
    check("{x}/{y}", "http://h/{x}/{y}", "%/2e", Some("http://h/%25/2e"));
    check("{x}", "http://h/a%2541/{x}", "b", Some("http://h/a%2541/b"));
}

#[test]
fn a_url_with_other_characters_reports_how_to_write_them() {
    let check = |url: &str, expect: &str| {
        let errors = route("", "", url).expect_err(url);
        assert!(errors[0].text.starts_with(expect), "{url}: {}", errors[0].text);
    };
    check("http://b\u{fc}cher.example/x", "a host with letters outside of ASCII is written in Punycode");
    check("http://h/s\u{e3}o paulo", "'\u{e3}' in a path or a query is written %C3%A3");
    check("http://h/?q=a b", "' ' in a path or a query is written %20");
    check("http://h/?q=\"a\"", "'\"' in a path or a query is written %22");
    check("http://h:x/", "the port is no number below 65,536");
    check("http://h:99999/", "the port is no number below 65,536");
}

#[test]
fn no_replacement_makes_a_dot_segment() {
    fn check(template: &str, url: &str, text: &str, expect: Option<&str>) {
        assert_eq!(url_of("", template, url, text).as_deref(), expect, "{url} {text}");
    }
    check("a{x}", "http://h/api/{x}", "a..", None);
    check("a{x}", "http://h/api/{x}", "a.", None);
    check("a{x}", "http://h/api/{x}", "a...", Some("http://h/api/..."));
    check("a{x}", "http://h/api/.{x}/secret", "a.", None);
    check("a{x}", "http://h/api/%2E{x}/secret", "a.", None);
    check("a{x}/b{y}", "http://h/api/{x}{y}", "a./b.", None);
    check("a{x}", "http://h/api/{x};v=1/s", "a..", None);
    check("a{x}", "http://h/api/{x}/s", "a..;v", None);
    check("a{x}", "http://h/api/{x}/s", "a..?", None);
    check("a{x}", "http://h/api/{x}%20/s", "a..", None);
    check("a{x}", "http://h/api/x%2F{x}/s", "a..", None);
    check("a{x}", "http://h/api/{x}/s", "a.. .", Some("http://h/api/..%20./s"));
    check("a{x}", "http://h/api?q={x}", "a..", Some("http://h/api?q=.."));
}

#[test]
fn a_prefix_takes_the_whole_key() {
    fn check(prefix: &str, url: &str, text: &str, expect: Option<&str>) {
        assert_eq!(url_of(prefix, "", url, text).as_deref(), expect, "{prefix} {url} {text}");
    }
    check("", "http://h", "a/b", Some("http://h/a/b"));
    check("", "http://h/", "a", Some("http://h/a"));
    check("a/", "http://h:81/api/v1", "a/b", Some("http://h:81/api/v1/a/b"));
    check("a/", "http://h", "b/a", None);
    check("", "http://h/api//", "a", Some("http://h/api/a"));
    check("", "http://[::1]:8080/x", "a", Some("http://[::1]:8080/x/a"));
    check("", "http://h/api?token=1&b=2", "a/b", Some("http://h/api/a/b?token=1&b=2"));
    check("", "http://h/api", "@evil.example", Some("http://h/api/@evil.example"));
    check("", "http://h", "@evil.example:80/x", Some("http://h/@evil.example:80/x"));
    check("", "http://h", "http:/x", Some("http://h/http:/x"));
    check("", "http://h/api", "...", Some("http://h/api/..."));
    check("", "http://h/api", "a=b,c+d~e_f-g", Some("http://h/api/a=b,c+d~e_f-g"));
}

#[test]
fn the_most_specific_upstream_wins() {
    fn check(routes: &[(&str, &str)], text: &str, expect: Option<usize>) {
        let upstream = |(prefix, key): &(&str, &str)| UpstreamOptions {
            prefix: (*prefix).into(),
            key: (*key).into(),
            ..UpstreamOptions::default()
        };
        let upstreams: Vec<_> = routes.iter().map(upstream).collect();
        assert_eq!(Routes::new(&upstreams).find(&key(text)), expect, "{routes:?} {text}");
    }
    check(&[], "a", None);
    check(&[("b", "")], "a", None);
    // The longest prefix wins, in any order of the upstreams.
    check(&[("", ""), ("a/", ""), ("a", "")], "a/b", Some(1));
    check(&[("a/b", ""), ("a", "")], "a/c", Some(1));
    // Of templates and prefixes, the one with the longest text before its first placeholder wins.
    check(&[("", "{x}/live"), ("", "a/{x}")], "a/live", Some(1));
    check(&[("", "a/{x}"), ("", "a/live")], "a/live", Some(1));
    check(&[("a/l", ""), ("", "a/{x}")], "a/live", Some(0));
    // If these texts are equally long, a template precedes a template with a rest (`{x*}`), which precedes a
    // prefix.
    check(&[("a/", ""), ("", "a/{x*}"), ("", "a/{x}")], "a/b", Some(2));
    check(&[("a/", ""), ("", "a/{x*}"), ("", "a/{x}")], "a/b/c", Some(1));
    check(&[("a/", ""), ("", "a/{x}")], "a/b/c", Some(0));
    // Of templates with equally long first texts, the one with the most text in all wins.
    check(&[("", "{s}/{x}"), ("", "{s}/live")], "a/live", Some(1));
    check(&[("", "{s}/{x}"), ("", "{s}/live")], "a/dead", Some(0));
    check(&[("", "m{x}"), ("", "m{x}.json")], "m1.json", Some(1));
    // Otherwise, the first upstream wins.
    check(&[("", "{x}/b"), ("", "a{x}/c")], "d/b", Some(0));
    check(&[("", "{x}-b"), ("", "{x}-{y}a")], "a-b", Some(0));
    check(&[("", "{s}/b/{x}"), ("", "{s}/{x}/c")], "a/b/c", Some(0));
}

#[test]
fn keys_of_the_wider_charset_belong_to_upstreams_that_have_it() {
    use KeyCharset::{Ascii, Utf8};
    let upstream = |(prefix, keys): (&str, KeyCharset)| UpstreamOptions {
        prefix: prefix.into(),
        keys,
        ..UpstreamOptions::default()
    };
    let pushed = PushedKeys { prefix: "p/".into(), keys: Utf8, ..PushedKeys::default() };
    let upstreams = [("", Utf8), ("a/", Ascii), ("b/", Ascii), ("b/b/", Utf8)].map(upstream).to_vec();
    let options = FeedsOptions { upstreams, pushed: vec![pushed], ..FeedsOptions::default() };
    let (routes, rule) = (Routes::with_pushed(&options.upstreams, &options.pushed), options.key_rule());
    let check = |text: &str, expect: Option<usize>| {
        assert_eq!((routes.find(&key(text)), rule.parse(text).is_ok()), (expect, expect.is_some()), "{text}");
    };
    check("c d", Some(0));
    check("a/x", Some(1));
    // The upstream with the longest matching prefix doesn't allow the key. Upstreams with shorter prefixes
    // aren't tried.
    check("a/x y", None);
    check("b/x y", None);
    check("b/b/x y", Some(3));
    check("p/x y", Some(4));
    let narrow = FeedsOptions { upstreams: vec![upstream(("", Ascii))], ..FeedsOptions::default() };
    assert!(narrow.key_rule().parse("c d").is_err() && narrow.key_rule().parse("c").is_ok());
}

#[test]
fn errors_name_their_field() {
    fn check(prefix: &str, key: &str, url: &str, expect: &[(&str, &str)]) {
        let errors = Route::new(prefix, key, url, KeyCharset::Ascii, "").err().unwrap_or_default();
        let found: Vec<_> = errors.iter().map(|error| (error.field, error.text.as_str())).collect();
        assert_eq!(found, expect, "{prefix:?} {key:?} {url:?}");
    }
    check("", "a/{x}", "http://h/{x}", &[]);
    check("a/../b", "", "http://h", &[("prefix", "the prefix has a segment '.' or '..'")]);
    let placeholder = "a placeholder is { }, with 1 to 32 of a-z 0-9 _ in between: ";
    let rest = "{x*} must be the whole last segment: ";
    let empty = "the key has an empty segment (a leading, trailing or doubled '/'): ";
    let character = "the key has a character at byte 1 that is none of A-Z a-z 0-9 . _ ~ @ : = + , -; \
                     keys = \"utf8\" in [[feeds]] allows others: ";
    let forbidden = "the key has a character at byte 1 that no key may have: a control character, '\\', or '%' before two hexadecimal digits: ";
    for (key, text) in [
        ("a/{x", "a { has no }: "),
        ("a/x}", "a } has no {: "),
        ("a/{}", placeholder),
        ("a/{X}", placeholder),
        ("{x}{y}", "a segment may have only one placeholder: "),
        ("{x*}/a", rest),
        ("a{x*}", rest),
        ("a//{x}", empty),
        ("a b/{x}", character),
        ("a\\b/{x}", forbidden),
    ] {
        check("", key, "http://h/{x}", &[("key", &format!("{text}{key:?}"))]);
    }
    check("", "{x}/{x}", "http://h/{x}", &[("key", "two placeholders have the name \"x\"")]);
    check("a", "a/{x}", "http://h/{x}", &[("key", "a feed has either a prefix or a key, not both")]);
    let placed = "placeholders are allowed in the path and the query only";
    let scheme = "expected a URL beginning with http:// or https://: ";
    for (key, url, text) in [
        ("a/{x}", "http://h/", "{x} of the key isn't used in it"),
        ("a/{x}", "http://h/{x}/{y}", "the key has no {y}"),
        ("a/{x}", "http://h/{x}/{x*}", "{x*} is written {x} here, and keeps its slashes"),
        ("a/{x}", "http://{x}/", placed),
        ("a/{x}", "http://h{x}", placed),
        ("a/{x}", "http://h:{x}/", placed),
        ("a/{x}", "{x}", "this is no URL: \"{x}\""),
        ("a/{x}", "{x}://h", placed),
        ("a/{x}", "http://h/a/../{x}", "the path has a segment '.' or '..': \"http://h/a/../{x}\""),
        ("a/{x}", "http://h/%2e%2E/{x}", "the path has a segment '.' or '..': \"http://h/%2e%2E/{x}\""),
        ("", "http://h/{x}", "{x} means nothing without a key that has it"),
        ("", "http://me:secret@h", "credentials belong in the headers, not in the URL"),
        ("", "gopher://h?token=secret", &format!("{scheme}\"gopher://h?…\"")),
        ("", "", "this is no URL: \"\""),
        ("", "http://h/ä", "'ä' in a path or a query is written %C3%A4: \"http://h/ä\""),
    ] {
        check("", key, url, &[("url", text)]);
    }
    // A mistake in `key` and one in `url` are both reported.
    let both = [("key", "a { has no }: \"{x\""), ("url", &format!("{scheme}\"ftp://h\""))];
    check("", "{x", "ftp://h", &both);
}

#[test]
fn templates_that_match_the_same_keys_have_the_same_shape() {
    let shape = |prefix, key: &str, url| route(prefix, key, url).unwrap().shape();
    assert_eq!(shape("", "a/{x}/b", "http://h/{x}"), shape("", "a/{y}/b", "http://g/{y}"));
    assert_ne!(shape("", "a/{x}", "http://h/{x}"), shape("", "a/{x*}", "http://h/{x}"));
    assert_ne!(shape("a", "", "http://h"), shape("", "a", "http://h"));
    assert_ne!(shape("a/", "", "http://h"), shape("", "a/{x*}", "http://h/{x}"));
}

proptest! {
    /// For any key, host and path up to the first placeholder are unchanged, and the path has no dot
    /// segments, even if a server decodes the path three more times and reads `\` as a slash.
    #[test]
    fn no_key_leaves_its_upstreams_path(text in prop_oneof![
        "[A-Za-z0-9._~@:=+,/.-]{1,40}",
        "[a./]{1,8}",
        "[.%25eEfF/;?# ]{1,10}",
        "[a./%;?# \\\\'\"\u{e9}\u{202e}\r\n\u{ff0e}]{1,12}",
        "\\PC{1,20}",
    ]) {
        let routes = [
            ("", "", "http://host:81/api/v1"),
            ("", "{x*}", "http://host:81/api/v1/{x}"),
            ("", "{x}/{y}", "http://host:81/api/v1/.{y}/{x}?q={y}&x=1"),
            ("", "a{x}", "http://host:81/api/v1/{x}/s"),
            ("", "{x}/{y*}", "http://host:81/api/v1/{x}{y}?z={y}"),
            ("", "{x}", "http://host:81/api/v1/{x}2e/{x};{x}"),
        ];
        if let Ok(key) = Key::parse_as(&text, KeyCharset::Utf8) {
            for (prefix, template, url) in routes {
                let (pattern, url, _) = route(prefix, template, url).unwrap().into_parts();
                let Some(values) = pattern.values(&key) else { continue };
                let Some(uri) = url.fill(&key, &values) else { continue };
                let uri: Uri = uri;
                prop_assert_eq!(uri.authority().unwrap().as_str(), "host:81");
                prop_assert!(uri.to_string().bytes().all(|byte| byte.is_ascii_graphic()));
                let mut path = uri.path().to_owned();
                prop_assert!(path.starts_with("/api/v1/"), "{}", uri);
                let segments = path.matches('/').count();
                for _ in 0..4 {
                    for segment in path.split(['/', '\\']).skip(1) {
                        let name = segment.split([';', '?', '#']).next().unwrap_or_default().trim();
                        prop_assert!(!segment.is_empty() && ![".", ".."].contains(&name), "{} {}", uri, path);
                    }
                    prop_assert_eq!(path.matches(['/', '\\']).count(), segments);
                    path = String::from_utf8(crate::percent::decode(&path).0).unwrap();
                }
                let query = uri.query().unwrap_or_default();
                prop_assert!(query.matches('=').count() <= 2 && query.matches('&').count() <= 1, "{}", uri);
            }
        }
    }

    /// Any configuration is either accepted or refused, without a panic.
    #[test]
    fn arbitrary_configurations_cause_no_panic(prefix in "[a{}*/.]{0,6}", key in "[a{}*/.x]{0,12}", url in "(http://h)?[{}x*/?.$#@]{0,12}") {
        if let Ok(route) = route(&prefix, &key, &url) {
            let (pattern, url, _) = route.into_parts();
            for text in ["a", "a/x", "x", "a.a/x/a"] {
                let key = Key::parse(text).unwrap();
                prop_assert_eq!(pattern.fits(&key), pattern.values(&key).is_some());
                if let Some(values) = pattern.values(&key) {
                    let _ = url.fill(&key, &values);
                }
            }
        }
    }
}
