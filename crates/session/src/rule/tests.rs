//! Templates.

use super::*;

#[test]
fn templates() {
    fn check(template: &str, arguments: &str, expect: Option<&str>) {
        let parsed = Template::parse(template).unwrap();
        let filled = parsed.fill(Arguments { json: arguments, attachments: &[] });
        assert_eq!(filled.as_deref(), expect, "{template} of {arguments}");
    }
    check("{}", r#""news""#, Some("news"));
    check("{}", r#""n\u00e9ws",1"#, Some("néws"));
    for number in ["5", "5.0", "5e0"] {
        check("{}", number, Some("5"));
        check("user:{id}", &format!("{{\"id\":{number}}}"), Some("user:5"));
    }
    check("{}", r#"{"a":1}"#, None);
    check("{}", "null", None);
    check("{}", "true", None);
    check("{}", "", None);
    check("{1}", r#""a","b""#, Some("b"));
    check("{clientKey}", r#"{"clientKey":"c-1","other":true}"#, Some("c-1"));
    check("{clientKey}", r#""c-1""#, None);
    check("{1.id}", r#"0,{"id":5}"#, Some("5"));
    check("user:{id}/{1}", r#"{"id":"x"},2"#, Some("user:x/2"));
    check("lobby", "", Some("lobby"));
}

#[test]
fn invalid_templates_are_refused() {
    for text in ["", "{", "a}b", "{a", &"r".repeat(257)] {
        assert!(Template::parse(text).is_err(), "{text}");
    }
}
