//! Tests of `[auth]`, `[[auth.issuers]]` and `[[permissions]]`.

use super::*;
use stentor_auth::{Action, Attributes, Permissions, Topic};

/// An issuer with a secret.
pub(super) const ISSUER: &str = "[[auth.issuers]]\nissuer = \"i\"\nalgorithms = [\"HS256\"]\n\
                                 keys = [{ secret = \"0123456789abcdef0123456789abcdef\" }]\n";

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
    assert_eq!(warnings, []);
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
    // The configuration's `Debug` text and its shown keys contain no secret.
    let shown = format!("{config:?} {:?} {:?}", config.changed(), config.issuers[1].show());
    assert!(!shown.contains("0123456789abcdef") && !shown.contains("xxxx"), "{shown}");
}

#[test]
fn an_authenticating_proxy_is_read() {
    let text = "[auth.proxy]\nuser_header = \"X-Forwarded-User\"\ngroups_header = \"X-Forwarded-Groups\"\n\
                from = [\"10.0.0.7\"]\nlifetime = \"5min\"\nsecret_header = \"X-Proxy-Secret\"\n\
                [[permissions]]\ntopics = [\"user/{sub}\"]\nallow = [\"subscribe\"]\n";
    let secret = "0123456789abcdef";
    let variables = [("STENTOR_AUTH_PROXY_SECRET".to_owned(), secret.to_owned())];
    let (config, warnings) = from_file(text).environment(variables).load().unwrap();
    assert_eq!(warnings, []);
    let auth = config.auth_options().unwrap();
    assert_eq!((auth.proxy_lifetime, auth.allow_anonymous), (Some(Duration::from_secs(300)), false));
    let proxy = config.options().edge.tokens.proxy.clone().unwrap();
    assert_eq!(
        (&*proxy.user_header, proxy.groups_header.as_deref()),
        ("X-Forwarded-User", Some("X-Forwarded-Groups"))
    );
    assert!(
        proxy.from.contains("10.0.0.7".parse().unwrap()) && !proxy.from.contains("10.0.0.8".parse().unwrap())
    );
    assert_eq!(proxy.secret, Some(("X-Proxy-Secret".into(), secret.into())));
    assert!(!format!("{config:?} {:?}", config.changed()).contains(secret));
    // Without a secret, each process at the proxy's address can name users.
    let short = text.replace("secret_header = \"X-Proxy-Secret\"\n", "");
    let (_, warnings) = from_file(&short).load().unwrap();
    let texts: Vec<_> = warnings.iter().map(|warning| warning.text.as_str()).collect();
    assert_eq!(
        texts,
        ["[auth.proxy] has no secret_header: each process at an address in from can name any user"]
    );
    assert_eq!(load("").unwrap().options().edge.tokens.proxy, None);
}

#[test]
fn without_the_section_nothing_is_checked() {
    assert!(load("").unwrap().auth_options().is_none());
}

#[test]
fn the_older_key_for_publishing_is_a_permission() {
    let (config, _) = from_file(&format!("[rooms]\npublish = true\n{ISSUER}")).load().unwrap();
    let permissions = Permissions::new(config.permission_rules());
    assert!(permissions.allows(None, Action::Publish, Topic::Room { namespace: "/", name: "any" }));
    assert!(!permissions.allows(None, Action::Subscribe, Topic::Room { namespace: "/", name: "any" }));
}
