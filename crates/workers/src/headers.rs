//! The JSON of ACCEPT and REFUSE: headers of responses.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use stentor_link::{Json, Parser};
use stentor_ports::{LinkAcceptance, LinkHeaders, LinkParser, LinkRefusal};

/// Headers that Stentor writes itself.
const OWN: [&str; 6] =
    ["connection", "content-length", "keep-alive", "transfer-encoding", "upgrade", "sec-websocket-accept"];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Accept {
    first: Map<String, Value>,
    all: Map<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Refuse {
    status: Option<Value>,
    code: Option<Value>,
    message: Option<Value>,
    headers: Map<String, Value>,
    body: Option<String>,
}

/// The valid headers of an object.
fn headers(object: Map<String, Value>) -> LinkHeaders {
    let mut all = LinkHeaders::new();
    for (name, value) in object {
        let values = if let Value::Array(list) = value { list } else { vec![value] };
        for value in values {
            let value = match value {
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                _ => continue,
            };
            let is_value = value.chars().all(|c| c == '\t' || !c.is_control());
            if is_name(&name) && is_value && !OWN.iter().any(|own| own.eq_ignore_ascii_case(&name)) {
                all.push((name.as_str().into(), value.into()));
            }
        }
    }
    all
}

/// `true` for a token of HTTP (RFC 9110 section 5.6.2).
fn is_name(name: &str) -> bool {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(is_token)
}

/// The acceptance of a session, with the headers of ACCEPT.
pub(crate) fn acceptance(accept: Option<&Json>, parser: Parser) -> LinkAcceptance {
    let Accept { first, all } =
        accept.and_then(|json| serde_json::from_str(json.as_str()).ok()).unwrap_or_default();
    let parser = match parser {
        Parser::Json => LinkParser::Json,
        Parser::Opaque => LinkParser::Opaque,
    };
    LinkAcceptance { first: headers(first), all: headers(all), parser }
}

/// The response to a refused client. `None`: there is no worker.
pub(crate) fn refusal(refuse: Option<&Json>) -> LinkRefusal {
    let Some(refuse) = refuse else {
        let body = json!({ "code": 3, "message": "Service unavailable" });
        return with_json(503, LinkHeaders::new(), &body);
    };
    let refuse: Refuse = serde_json::from_str(refuse.as_str()).unwrap_or_default();
    let status = refuse.status.and_then(|status| u16::try_from(status.as_u64()?).ok());
    let status = status.filter(|status| (200..=599).contains(status)).unwrap_or(403);
    let headers = headers(refuse.headers);
    match refuse.body {
        Some(body) => LinkRefusal { status, headers, body: body.into() },
        None => {
            let code = refuse.code.unwrap_or(4.into());
            let message = refuse.message.unwrap_or("Forbidden".into());
            with_json(status, headers, &json!({ "code": code, "message": message }))
        }
    }
}

fn with_json(status: u16, mut headers: LinkHeaders, body: &Value) -> LinkRefusal {
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        headers.push(("Content-Type".into(), "application/json".into()));
    }
    LinkRefusal { status, headers, body: body.to_string().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_not_valid_are_left_out() {
        let check = |accept: &str, first: &[(&str, &str)], all: &[(&str, &str)]| {
            let accepted = acceptance(Json::new(accept).as_ref(), Parser::Json);
            let pairs = |headers: &[(&str, &str)]| -> LinkHeaders {
                headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
            };
            assert_eq!((accepted.first, accepted.all), (pairs(first), pairs(all)), "{accept}");
        };
        check("{}", &[], &[]);
        check("[]", &[], &[]);
        check(
            r#"{"first":{"Set-Cookie":["a=1","b=2"]},"all":{"x":1}}"#,
            &[("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")],
            &[("x", "1")],
        );
        check(
            r#"{"all":{"a b":"1","":"2","c":"x\r\ny","Content-Length":"3","d":null,"e":"é"}}"#,
            &[],
            &[("e", "é")],
        );
    }

    #[test]
    fn a_refusal_has_the_response_of_the_worker() {
        let check = |refuse: Option<&str>, status: u16, body: &str, count: usize| {
            let refusal = refusal(refuse.and_then(Json::new).as_ref());
            assert_eq!(
                (refusal.status, &*refusal.body, refusal.headers.len()),
                (status, body.as_bytes(), count),
                "{refuse:?}"
            );
        };
        check(None, 503, r#"{"code":3,"message":"Service unavailable"}"#, 1);
        check(Some("{}"), 403, r#"{"code":4,"message":"Forbidden"}"#, 1);
        check(Some(r#"{"status":101,"message":"no"}"#), 403, r#"{"code":4,"message":"no"}"#, 1);
        check(Some(r#"{"status":302,"headers":{"Location":"/login"},"body":""}"#), 302, "", 1);
        check(
            Some(r#"{"status":401,"code":"x","headers":{"content-type":"a/b"}}"#),
            401,
            r#"{"code":"x","message":"Forbidden"}"#,
            1,
        );
    }
}
