//! Tests of references in headers and URLs, files that change, and masks.

use super::*;
use crate::route::Route;
use std::fs;
use stentor_hub::Key;
use stentor_hub::KeyCharset;
use tempfile::TempDir;

fn secrets(variables: &[(&str, &str)]) -> Secrets {
    let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    Secrets::new(variables, &Secrets::default())
}

#[test]
fn references_are_replaced() {
    let all = secrets(&[("A", "1"), ("_B2", "2"), ("R", "${A}"), ("EMPTY", "")]);
    let check = |text: &str, expect: Result<&str, &str>| {
        assert_eq!(all.expand(text).as_deref(), expect.map_err(String::from).as_deref(), "{text}");
    };
    check("Bearer ${A}", Ok("Bearer 1"));
    check("${A}${_B2}", Ok("12"));
    check("$ $A {A} $$ {file:/a}", Ok("$ $A {A} $$ {file:/a}"));
    // A value that has the form of a reference isn't expanded again.
    check("${R}", Ok("${A}"));
    check("${EMPTY}", Err("needs the environment variable EMPTY, which is not set"));
    check("${NONE}", Err("needs the environment variable NONE, which is not set"));
    check("a${A", Err("has a ${ without a }"));
    for name in ["", "1A", "A-B", "A B", "FILE:/a"] {
        check(&format!("${{{name}}}"), Err("has a ${…} that is not a valid variable name"));
    }
    for path in ["", "a", "./a"] {
        check(&format!("${{file:{path}}}"), Err("has a ${file:…} without an absolute path"));
    }
}

#[test]
fn a_user_and_a_password_are_a_header() {
    let all = secrets(&[("PASSWORD", "open:sesame"), ("NONE", ""), ("BREAK", "a\nb")]);
    let check = |text: &str, expect: Result<&str, &str>| {
        let value = all.basic_auth(text).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(value.as_deref(), expect.map_err(String::from).as_deref(), "{text}");
    };
    // Examples of RFC 7617: section 2, then section 2.1.
    check("Aladdin:open sesame", Ok("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
    check("test:123\u{a3}", Ok("Basic dGVzdDoxMjPCow=="));
    check("Aladdin:${PASSWORD}", Ok("Basic QWxhZGRpbjpvcGVuOnNlc2FtZQ=="));
    check(":", Ok("Basic Og=="));
    check("Aladdin", Err("has no colon between the user and the password"));
    check("Aladdin:${BREAK}", Err("has control characters"));
    check("Aladdin:${NONE}", Err("needs the environment variable NONE, which is not set"));
    assert!(Secrets::sample().basic_auth("${BOTH}").is_ok());
    assert_eq!(all.of_basic_auth("a:${PASSWORD}"), ["YTpvcGVuOnNlc2FtZQ==", "open:sesame", "a:open:sesame"]);
}

/// The URLs are for the key `a/b`, whose template has the placeholders `x` and `y`.
#[test]
fn a_secret_stays_in_its_place_of_the_url() {
    let all = [
        ("BASE", "http://api.internal:8080/v1/"),
        ("TLS", "https://[2001:db8::1]"),
        ("HOST", "api-1.internal"),
        ("PORT", "8080"),
        ("SCHEME", "https"),
        ("ID", "a/b?c=d&e#f g%\u{e4}"),
        ("UP", ".."),
        ("USER", "http://me:hunter2@api"),
        ("QUERY", "http://api?a=b"),
        ("FTP", "ftp://api"),
        ("WILD", "http://api/{x}"),
        ("SPACE", "http://a pi"),
    ];
    let all = secrets(&all);
    let url = |text: &str| {
        let url = all.url(text)?;
        let shown = url.shown.clone();
        let route =
            Route::new("", "{x}/{y}", url, KeyCharset::Ascii, "").map_err(|errors| errors[0].text.clone())?;
        let (pattern, url, _) = route.into_parts();
        let key = Key::parse("a/b").unwrap();
        let values = pattern.values(&key).unwrap();
        Ok((shown, url.fill(&key, &values).unwrap().to_string(), url.fill_shown(&key, &values)))
    };
    let check = |text: &str, expect: &str, shown: &str| {
        let (_, filled, filled_shown) = url(text).unwrap_or_else(|error: String| panic!("{text}: {error}"));
        assert_eq!((filled.as_str(), filled_shown.as_str()), (expect, shown), "{text}");
    };
    check("${BASE}/{x}/{y}", "http://api.internal:8080/v1/a/b", "***/a/b");
    check("${BASE}?x={x}&y={y}", "http://api.internal:8080/v1?x=a&y=b", "***?…");
    check("${TLS}/{x}{y}", "https://[2001:db8::1]/ab", "***/ab");
    check("http://${HOST}:${PORT}/{x}/{y}", "http://api-1.internal:8080/a/b", "http://***:***/a/b");
    check("${SCHEME}://h/{x}/{y}", "https://h/a/b", "***://h/a/b");
    let encoded = "a%2Fb%3Fc%3Dd%26e%23f%20g%25%C3%A4";
    check("http://h/${ID}/{x}/{y}", &format!("http://h/{encoded}/a/b"), "http://h/***/a/b");
    check("http://h/{x}/{y}?k=${ID}&f=1", &format!("http://h/a/b?k={encoded}&f=1"), "http://h/a/b?…");
    check("http://h/v${PORT}.{x}/{y}", "http://h/v8080.a/b", "http://h/v***.a/b");
    let check = |text: &str, expect: &str| {
        let error = url(text).map(|(_, filled, _)| filled).unwrap_err();
        assert!(error.starts_with(expect) && !error.contains("hunter2"), "{text}: {error}");
    };
    check("${UP}/{x}/{y}", "the environment variable UP begins the URL, and isn't http://HOST[:PORT][/PATH]");
    for name in ["HOST", "USER", "QUERY", "FTP", "WILD", "SPACE"] {
        check(
            &format!("${{{name}}}/{{x}}/{{y}}"),
            &format!(
                "the environment variable {name} begins the URL, and isn't http://HOST[:PORT][/PATH] or"
            ),
        );
    }
    let follows = "a / or a ? must follow the environment variable BASE in the URL, because it has a host";
    check("${BASE}.evil.example/{x}/{y}", follows);
    check("${BASE}${ID}/{x}/{y}", follows);
    check(
        "http://${ID}/{x}/{y}",
        "the environment variable ID has characters that are not allowed in a host",
    );
    check("http://h/${UP}/{x}/{y}", "the path has a segment '.' or '..': \"http://h/***/{x}/{y}\"");
    check("http://h:${HOST}/{x}/{y}", "the port is no number below 65,536: \"http://h:***/{x}/{y}\"");
    check("http://h/${NONE}/{x}/{y}", "the URL needs the environment variable NONE, which is not set");
    check("http://h/${NONE", "the URL has a ${ without a }");
}

#[test]
fn samples_are_valid_wherever_secrets_may_be() {
    for url in ["${A}", "${A}/x", "${A}://h/x", "http://${A}:${B}/${C}?d=${file:/nonexistent}", "${A}?x=1"] {
        let filled = Secrets::sample().url(url).unwrap();
        Route::new("", "", filled, KeyCharset::Ascii, "")
            .map_err(|errors| format!("{url}: {errors:?}"))
            .unwrap();
    }
    Secrets::sample().header("X-Key", "${A} ${file:/nonexistent}").unwrap();
}

/// A file with a secret.
struct SecretFile {
    _folder: TempDir,
    path: PathBuf,
}

impl SecretFile {
    fn new(content: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, content).unwrap();
        Self { _folder: folder, path }
    }

    fn reference(&self) -> String {
        format!("${{file:{}}}", self.path.display())
    }
}

#[test]
fn a_file_that_cannot_be_used_keeps_its_last_value() {
    let file = SecretFile::new("one\n");
    let text = file.reference();
    let all = secrets(&[]);
    assert_eq!(all.expand(&text).as_deref(), Ok("one"));
    for (content, expect, version) in [
        (Some("one"), "one", 0),
        (Some("two\n"), "two", 1),
        (Some(""), "two", 1),
        (Some("a\nb"), "two", 1),
        (None, "two", 1),
        (Some("three"), "three", 2),
        (None, "three", 2),
    ] {
        match content {
            Some(content) => fs::write(&file.path, content).unwrap(),
            None => fs::remove_file(&file.path).unwrap(),
        }
        all.reread();
        assert_eq!((all.expand(&text).as_deref(), all.version()), (Ok(expect), version), "{content:?}");
    }
    // A reload while the file is missing keeps the last value. A reload after the file is back reads it.
    let reloaded = Secrets::new([], &all);
    assert_eq!(reloaded.expand(&text).as_deref(), Ok("three"));
    fs::write(&file.path, "four").unwrap();
    assert_eq!(reloaded.expand(&text).as_deref(), Ok("three"));
    assert_eq!(Secrets::new([], &reloaded).expand(&text).as_deref(), Ok("four"));
    fs::remove_file(&file.path).unwrap();
    let error = Secrets::new([], &Secrets::default()).expand(&text).unwrap_err();
    assert!(
        error.starts_with(&format!("needs the file {}, which cannot be read: ", file.path.display())),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn changed_files_are_noticed() {
    let file = SecretFile::new("one");
    let all = secrets(&[]);
    all.expand(&file.reference()).unwrap();
    fs::write(&file.path, "two").unwrap();
    tokio::time::timeout(2 * WATCH_INTERVAL, all.clone().watch()).await.unwrap_err();
    assert_eq!(all.expand(&file.reference()).as_deref(), Ok("two"));
}

#[test]
fn secrets_are_masked_in_every_form() {
    let variables = [
        ("TOKEN", "s3cr\"t/1 x"),
        ("LONG", "s3cr\"t/1 xyz"),
        ("SHORT", "abc"),
        ("BASE", "https://API.internal:8443/v1beta/"),
    ];
    let all = secrets(&variables);
    let url = "${BASE}/x?token=${TOKEN}&q=${SHORT}&plain=query1&id={id}";
    let masks =
        Masks::new(&[("X-Key".into(), "Key ${LONG} literal".into())], url, vec!["proxied".into()], &all);
    let check = |text: &str, expect: &str| assert_eq!(masks.mask(text), expect, "{text}");
    check("no secret: abc, {id}", "no secret: abc, {id}");
    check("<s3cr\"t/1 x>", "<***>");
    check("<s3cr\"t/1 xyz>", "<***>");
    check(r#"{"token":"s3cr\"t/1 x"}"#, r#"{"token":"***"}"#);
    check("GET /v1beta/x?token=s3cr%22t%2F1%20x", "GET ***/x?token=***");
    check("GET ?token=s3cr%22t%2f1%20x&plain=query1", "GET ?token=***&plain=***");
    check("certificate not valid for name \"api.internal\"", "certificate not valid for name \"***\"");
    check("API.internal:8443 refused, https://API.internal:8443/v1beta/x", "*** refused, ***x");
    check("by proxied", "by ***");
    check("Key s3cr\"t/1 xyz literal, literal", "***, ***");
    let check = |text: &str, expect: &str| assert_eq!(masks.mask_cut(text), expect, "{text}");
    check("Key s3c", "***");
    check("token=s3cr", "token=***");
    check("token=s3c", "token=s3c");
    check("<s3cr\"t/1 x>", "<***>");
    check("", "");
}
