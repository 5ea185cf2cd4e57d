//! Tests of permissions: decisions and their explanations. Also compares the compiled rules with each single
//! pattern.

use proptest::prelude::*;
use stentor_auth::{Action, Actions, Attributes, Pattern, Permissions, Recipients, Rule, Topic};

fn rule(topics: &[&str], allow: &[&str], to: Recipients) -> Rule {
    Rule::new(topics, &[], &[], None, Actions::parse(allow).unwrap(), to).unwrap()
}

fn room(name: &str) -> Topic<'_> {
    Topic::Room { namespace: "/", name }
}

#[test]
fn actions_without_a_rule_are_refused() {
    let chat = Actions::parse(&["publish"]).unwrap();
    let permissions = Permissions::new(vec![
        rule(&["user/{sub}", "user:{sub}"], &["subscribe", "presence"], Recipients::Users),
        rule(&["public/**"], &["subscribe"], Recipients::Anyone),
        rule(&["public/talk"], &["publish"], Recipients::Users),
        Rule::new(&[], &[], &["*"], Some("/chat"), chat, Recipients::Users).unwrap(),
        Rule::new(&[], &[], &["**"], Some("/all"), chat, Recipients::Users).unwrap(),
        Rule::new(&[], &["score/*"], &[], None, Actions::parse(&["history"]).unwrap(), Recipients::Users)
            .unwrap(),
    ]);
    let ada = Attributes::parse(r#"{"sub":"42"}"#).unwrap();
    let check = |who: Option<&Attributes>, topic: Topic<'_>, expect: &str| {
        assert_eq!(permissions.actions(who, topic).to_string(), expect, "{topic}");
        for action in Action::ALL {
            assert_eq!(permissions.allows(who, action, topic), expect.contains(action.name()));
        }
    };
    check(Some(&ada), Topic::Feed("user/42"), "subscribe, presence");
    check(Some(&ada), room("user:42"), "subscribe, presence");
    check(Some(&ada), Topic::Feed("user/43"), "");
    check(None, Topic::Feed("user/42"), "");
    check(None, Topic::Feed("public/talk"), "subscribe");
    // All rules that match grant their actions together.
    check(Some(&ada), Topic::Feed("public/talk"), "subscribe, publish");
    check(Some(&ada), Topic::Feed("score/7"), "history");
    check(Some(&ada), room("score/7"), "");
    check(Some(&ada), Topic::Room { namespace: "/chat", name: "lobby" }, "publish");
    check(Some(&ada), room("lobby"), "");
    check(None, Topic::Room { namespace: "/chat", name: "lobby" }, "");
    // The empty name is the room of all sockets of a namespace.
    check(Some(&ada), Topic::Room { namespace: "/chat", name: "" }, "");
    check(Some(&ada), Topic::Room { namespace: "/all", name: "" }, "publish");
    check(None, Topic::Room { namespace: "/all", name: "" }, "");
    assert!(permissions.allows_namespace(None, "/"));
    assert!(
        permissions.allows_namespace(Some(&ada), "/chat") && !permissions.allows_namespace(None, "/chat")
    );
    assert!(!permissions.allows_namespace(Some(&ada), "/admin"));
}

#[test]
fn decisions_are_explained() {
    let permissions = Permissions::new(vec![
        rule(&["org/{org.id}/{sub}"], &["subscribe"], Recipients::Users),
        rule(&["org/**"], &["presence"], Recipients::Users),
        rule(&["other"], &["publish"], Recipients::Anyone),
    ]);
    let explain = |who: Option<&str>, name: &str| {
        let attributes = who.map(|text| Attributes::parse(text).unwrap());
        let explanation = permissions.explain(attributes.as_ref(), Topic::Feed(name));
        let reasons = explanation.reasons.iter().map(|(n, reason)| format!("{n}: {reason}"));
        reasons.collect::<Vec<_>>().join("; ")
    };
    let ada = r#"{"sub":"42","org":{"id":7}}"#;
    assert_eq!(
        explain(Some(ada), "org/7/42"),
        "1: org/{org.id}/{sub} matches and allows subscribe; 2: org/** matches and allows presence"
    );
    assert!(
        explain(Some(ada), "org/7/43")
            .starts_with("1: org/{org.id}/{sub} doesn't match: the claim sub is \"42\"; 2")
    );
    assert!(
        explain(Some(ada), "org/8/43")
            .starts_with("1: org/{org.id}/{sub} doesn't match: the claim org.id is 7;")
    );
    assert!(explain(Some(r#"{"sub":"42"}"#), "org/7/42").contains("the client has no claim org.id"));
    assert!(explain(None, "org/7").starts_with("2: org/** matches, but not for clients without a token"));
    assert_eq!(explain(Some(ada), "nothing"), "");
}

/// Generates names and values from a few characters, so that they often match.
fn name() -> impl Strategy<Value = String> {
    "[ab*{}/:]{1,6}"
}

fn pattern() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        Just("a".to_owned()),
        Just("b".to_owned()),
        Just("*".to_owned()),
        Just("{x}".to_owned()),
        Just("a{x}".to_owned())
    ];
    (prop::collection::vec((segment, "[/:]"), 1..4), any::<bool>()).prop_map(|(segments, rest)| {
        let mut text: String =
            segments.into_iter().map(|(segment, separator)| segment + &separator).collect();
        if rest {
            text.push_str("**")
        } else {
            _ = text.pop()
        }
        text
    })
}

proptest! {
    #[test]
    fn compiled_rules_agree_with_their_patterns(
        patterns in prop::collection::vec((pattern(), any::<bool>()), 0..8),
        value in name(),
        topic in name(),
        anonymous: bool,
    ) {
        let to = |anyone| if anyone { Recipients::Anyone } else { Recipients::Users };
        let rules = patterns.iter().map(|(text, anyone)| rule(&[text], &["subscribe"], to(*anyone))).collect();
        let permissions = Permissions::new(rules);
        let attributes = Attributes::parse(&serde_json::json!({"x": value}).to_string()).unwrap();
        let attributes = Some(&attributes).filter(|_| !anonymous);
        let allowed = permissions.allows(attributes, Action::Subscribe, Topic::Feed(&topic));
        let one_by_one = patterns.iter().any(|(text, anyone)| {
            (*anyone || !anonymous) && Pattern::parse(text).unwrap().matches(&topic, attributes)
        });
        prop_assert_eq!(allowed, one_by_one);
        let explanation = permissions.explain(attributes, Topic::Feed(&topic));
        prop_assert_eq!(explanation.rules_that_allow(Action::Subscribe).next().is_some(), allowed);
    }

    /// For any value of the claim `x`, `{x}` matches at most one name, and `user/{x}` matches only names with
    /// two segments.
    #[test]
    fn values_never_widen_patterns(value in name(), topic in name()) {
        let attributes = Attributes::parse(&serde_json::json!({"x": value}).to_string()).unwrap();
        let matches = Pattern::parse("a/{x}").unwrap().matches(&topic, Some(&attributes));
        let expect = !value.contains(['/', ':']) && topic == format!("a/{value}");
        prop_assert_eq!(matches, expect);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}", name in "\\PC{0,40}") {
        if let Ok(pattern) = Pattern::parse(&text) {
            prop_assert_eq!(pattern.to_string(), text);
            pattern.matches(&name, None);
        }
    }
}
