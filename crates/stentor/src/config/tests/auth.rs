//! `[auth]`, `[[auth.issuers]]` and `[[permissions]]`.

use super::*;
use stentor_auth::{Action, Attributes, Permissions, Topic};

/// An issuer with a secret.
pub(super) const ISSUER: &str = "[[auth.issuers]]\nissuer = \"i\"\nalgorithms = [\"HS256\"]\n\
                                 keys = [{ secret = \"0123456789abcdef0123456789abcdef\" }]\n";

/// An issuer with these lines.
fn issuer(lines: &str) -> String {
    format!("[[auth.issuers]]\nissuer = \"i\"\n{lines}\n")
}

#[test]
fn the_example_is_read() {
    let text = r#"
[auth]
anonymous = "allow"
leeway = "5s"
cookie = "token"
[[auth.issuers]]
issuer = "https://id.example.com/"
audience = "stentor"
algorithms = ["RS256", "ES256", "EdDSA"]
jwks_url = "https://id.example.com/.well-known/jwks.json"
[[auth.issuers]]
issuer = "backend"
algorithms = ["HS256"]
keys = [{ kid = "k1", secret = "${JWT_SECRET}" }, { kid = "k2", secret = "0123456789abcdef0123456789abcdef" }]
[[permissions]]
topics = ["user/{sub}", "user:{sub}"]
allow = ["subscribe", "presence"]
[[permissions]]
topics = ["public/**"]
allow = ["subscribe"]
to = "anyone"
[[permissions]]
rooms = ["lobby"]
namespace = "/chat"
allow = ["publish"]
"#;
    let variables = [("JWT_SECRET".to_owned(), "x".repeat(32))];
    let (config, warnings) = from_file(text).environment(variables).load().unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    let auth = config.auth_options().unwrap();
    assert!(auth.allow_anonymous);
    assert_eq!(auth.leeway, Duration::from_secs(5));
    assert_eq!(config.options().edge.tokens.cookie.as_deref(), Some("token"));
    let [remote, local] = &auth.issuers[..] else { panic!("{auth:?}") };
    assert_eq!((&*remote.name, remote.audience.as_deref()), ("https://id.example.com/", Some("stentor")));
    assert_eq!((remote.algorithms.len(), remote.keys.len(), remote.jwks_url.is_some()), (3, 0, true));
    assert_eq!((local.audience.as_deref(), local.keys.len(), local.jwks_url.is_none()), (None, 2, true));
    assert_eq!(local.keys[0].id(), Some("k1"));
    let permissions = Permissions::new(auth.permissions);
    let ada = Attributes::parse(r#"{"sub":"42"}"#).unwrap();
    assert!(permissions.allows(Some(&ada), Action::Presence, Topic::Feed("user/42")));
    assert!(permissions.allows(None, Action::Subscribe, Topic::Feed("public/a")));
    let lobby = Topic::Room { namespace: "/chat", name: "lobby" };
    assert!(
        permissions.allows(Some(&ada), Action::Publish, lobby)
            && !permissions.allows(None, Action::Publish, lobby)
    );
    // No secret is shown.
    let shown = format!("{config:?} {:?} {:?}", config.changed(), config.issuers[1].show());
    assert!(!shown.contains("0123456789abcdef") && !shown.contains("xxxx"), "{shown}");
}

#[test]
fn without_the_section_nothing_is_checked() {
    assert!(load("").unwrap().auth_options().is_none());
    let nobody = "[auth] has no [[auth.issuers]], so that no client could connect; add one, or set anonymous = \"allow\"";
    check("\n[auth]\n", &format!("stentor.toml:2: {nobody}"));
    check("[auth]\nleeway = \"1s\"\n", &format!("stentor.toml:1: {nobody}"));
    let variable = [("STENTOR_AUTH_ANONYMOUS".to_owned(), "refuse".to_owned())];
    let problems = Sources::default().environment(variable).load().unwrap_err().to_string();
    assert_eq!(problems, format!("STENTOR_AUTH_ANONYMOUS: {nobody}"));
    check(
        "[[permissions]]\ntopics = [\"a\"]\nallow = [\"publish\"]\n",
        "stentor.toml:3: [[permissions]] need [auth]: without it, clients may do everything",
    );
}

#[test]
fn issuers_are_checked() {
    let check = |lines: &str, expect: &str| {
        super::check(&issuer(lines), expect);
    };
    let secret = "keys = [{ secret = \"0123456789abcdef0123456789abcdef\" }]";
    let url = "jwks_url = \"https://id.test/keys\"";
    check(
        "",
        "stentor.toml:1: this auth.issuer has no \"algorithms\"\nstentor.toml:2: keys in [[auth.issuers]]: an issuer has either keys or a jwks_url",
    );
    check(
        "algorithms = [\"none\"]",
        "stentor.toml:2: keys in [[auth.issuers]]: an issuer has either keys or a jwks_url\nstentor.toml:3: algorithms in [[auth.issuers]]: expected an algorithm such as \"RS256\", \"ES256\", \"EdDSA\" or \"HS256\", found \"none\"",
    );
    check(
        &format!("algorithms = [\"RS256\"]\naudience = \"a\"\n{url}\n{secret}"),
        "stentor.toml:6: keys in [[auth.issuers]]: an issuer has either keys or a jwks_url",
    );
    check(
        &format!("algorithms = [\"RS256\"]\n{url}"),
        "stentor.toml:2: audience in [[auth.issuers]]: required with jwks_url: the issuer makes tokens for others, too, which would be accepted",
    );
    check(
        &format!("algorithms = [\"RS256\", \"HS256\"]\naudience = \"a\"\n{url}"),
        "stentor.toml:3: algorithms in [[auth.issuers]]: HS256 needs a secret in keys; the keys at a jwks_url are public",
    );
    check(
        "algorithms = [\"RS256\"]\naudience = \"a\"\njwks_url = \"http://id.test/keys\"",
        "stentor.toml:5: jwks_url in [[auth.issuers]]: expected a URL such as https://id.example.com/.well-known/jwks.json; http:// only with 127.0.0.1, [::1] or localhost",
    );
    check(
        "algorithms = [\"HS256\"]\nkeys = [{ secret = \"short\" }]",
        "stentor.toml:4: keys in [[auth.issuers]]: key number 1: a secret needs 32 to 1,024 bytes, as many as the hash of its algorithm (HS256: 32); `openssl rand -hex 32` makes one",
    );
    check(
        &format!("algorithms = [\"HS256\", \"HS512\"]\n{secret}"),
        "stentor.toml:3: algorithms in [[auth.issuers]]: no key is for HS512 (a secret of at least 64 bytes)",
    );
    check(
        &format!("algorithms = [\"ES256\"]\n{secret}"),
        "stentor.toml:3: algorithms in [[auth.issuers]]: no key is for ES256\nstentor.toml:4: keys in [[auth.issuers]]: key number 1: it is for none of the algorithms",
    );
    check(
        "algorithms = [\"ES256\"]\nkeys = [{ public_key_file = \"/nonexistent.pem\" }]",
        "stentor.toml:4: keys in [[auth.issuers]]: key number 1: /nonexistent.pem: cannot be read: No such file or directory (os error 2)",
    );
    for (keys, expect) in [
        ("[{ kid = \"a\" }]", "a key needs secret, public_key or public_key_file"),
        (
            "[{ secret = \"a\", public_key = \"b\" }]",
            "a key has one of secret, public_key and public_key_file",
        ),
        (
            "[{ scret = \"a\" }]",
            "\"scret\" means nothing in a key; expected kid, secret, public_key or public_key_file",
        ),
        ("[{ secret = 7 }]", "secret of a key has no text in quotes"),
        ("[{ secret = \"${X\" }]", "secret of a key has a ${ without a }"),
        (
            "\"secret\"",
            "expected an array of tables such as [{ kid = \"k1\", secret = \"${JWT_SECRET}\" }], found \"secret\"",
        ),
    ] {
        let text = load(&issuer(&format!("algorithms = [\"HS256\"]\nkeys = {keys}"))).unwrap_err();
        assert!(text.contains(&format!("stentor.toml:4: keys in [[auth.issuers]]: {expect}")), "{text}");
    }
    let twice = format!("{ISSUER}{ISSUER}");
    super::check(&twice, "stentor.toml:6: issuer in [[auth.issuers]]: issuer number 1 has the same name");
}

#[test]
fn secrets_come_from_the_environment() {
    let text = issuer("algorithms = [\"HS256\"]\nkeys = [{ secret = \"${JWT_SECRET}\" }]");
    // `stentor check` doesn't read it.
    assert!(load(&text).is_ok());
    let with = |value: &str| {
        let variables = [("JWT_SECRET".to_owned(), value.to_owned())];
        from_file(&text).environment(variables).load().map(|_| ()).map_err(|problems| problems.to_string())
    };
    assert_eq!(with(&"x".repeat(32)), Ok(()));
    assert!(
        with("").unwrap_err().contains("a key needs the environment variable JWT_SECRET, which is not set")
    );
    assert!(with("hunter2").unwrap_err().contains("a secret needs 32 to 1,024 bytes"));
}

#[test]
fn permissions_are_checked() {
    let check = |lines: &str, expect: &str| {
        let text = format!("{ISSUER}[[permissions]]\n{lines}\n");
        let found = load(&text).err().unwrap_or_default();
        assert_eq!(found.replace("stentor.toml:", ""), expect, "{lines}");
    };
    check("topics = [\"a\"]\nallow = [\"subscribe\"]", "");
    check("topics = [\"a\"]", "5: this permission has no \"allow\"");
    check(
        "topics = [\"a\"]\nallow = []",
        "7: [[permissions]] number 1: allow names nothing; expected subscribe, publish, presence or history",
    );
    check(
        "topics = [\"a\"]\nallow = [\"read\"]",
        "7: [[permissions]] number 1: \"read\" can't be allowed; expected subscribe, publish, presence or history",
    );
    check("allow = [\"publish\"]", "6: [[permissions]] number 1: names no topics, feeds or rooms");
    check(
        "rooms = [\"user-*\"]\nallow = [\"publish\"]",
        "7: [[permissions]] number 1: \"user-*\" has a * beside other characters: * stands for a whole segment, between / or :",
    );
    check(
        "rooms = [\"a\"]\nallow = [\"publish\"]\nto = \"all\"",
        "8: to in [[permissions]]: expected \"users\" or \"anyone\", found \"all\"",
    );
}

#[test]
fn the_older_key_for_publishing_is_a_permission() {
    let (config, warnings) = from_file(&format!("[rooms]\npublish = true\n{ISSUER}")).load().unwrap();
    let permissions = Permissions::new(config.permission_rules());
    assert!(permissions.allows(None, Action::Publish, Topic::Room { namespace: "/", name: "any" }));
    assert!(!permissions.allows(None, Action::Subscribe, Topic::Room { namespace: "/", name: "any" }));
    assert_eq!(
        warnings,
        [
            "stentor.toml:2: publish in [rooms] is deprecated with [auth]. It means: [[permissions]] rooms = [\"**\"], allow = \
          [\"publish\"], to = \"anyone\". Write that instead, or narrow it"
        ]
    );
    super::check(
        &format!(
            "[rooms]\npublish = true\n{ISSUER}[[permissions]]\nrooms = [\"a\"]\nallow = [\"publish\"]\n"
        ),
        "stentor.toml:2: publish in [rooms] and [[permissions]] with \"publish\" exclude each other: publish = true allows \
         every client to publish to every room; remove it",
    );
    let (_, warnings) = from_file(ISSUER).load().unwrap();
    assert_eq!(warnings, ["there are no [[permissions]]: clients may do only what their tokens grant"]);
}

#[test]
fn patterns_of_which_one_may_mean_the_other_are_warned_of() {
    let text = format!(
        "{ISSUER}[[permissions]]\nrooms = [\"user-{{sub}}\", \"user-{{sub}}-private\"]\nallow = [\"subscribe\"]\n"
    );
    let (_, warnings) = from_file(&text).load().unwrap();
    let expect = "[[permissions]]: \"user-{sub}\" and \"user-{sub}-private\" may match the same name: the value of a claim may \
                  contain the other's text. Separate the claim by / or :";
    assert_eq!(warnings, [expect]);
}
