//! The body of a request: a JSON text, with the values of a key in place of placeholders.
//!
//! A placeholder is a complete string: `{"id":"{id}"}`. Its value is always written as a JSON string. A
//! placeholder within a longer string, or as a name, is a mistake. All other braces are literal, because
//! GraphQL queries contain many of them.

use super::RouteError;
use stentor_json::{DEPTH_MAX, Scalar, Visitor, scan, skip_space, write_string};

/// Maximum length of a body with placeholders in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// A body, and the positions of a key's values in it.
#[derive(Clone, Debug)]
pub(crate) struct BodyTemplate {
    /// The text before each placeholder, with the number of the placeholder.
    parts: Vec<(String, usize)>,
    end: String,
}

impl BodyTemplate {
    /// Parses a body. `names` are the key's placeholders.
    pub(super) fn new(text: &str, names: &[String]) -> Result<Self, RouteError> {
        parse(text, names).map_err(|text| RouteError { field: "body", text })
    }

    /// Returns `true` if the body has the placeholder with this number.
    pub(super) fn uses(&self, placeholder: usize) -> bool {
        self.parts.iter().any(|(_, number)| *number == placeholder)
    }

    /// Returns the body for a key with these `values` of its placeholders.
    pub(crate) fn fill(&self, values: &[&str]) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.end.len() + 256);
        for (text, number) in &self.parts {
            body.extend_from_slice(text.as_bytes());
            write_string(&mut body, values.get(*number).unwrap_or(&""));
        }
        body.extend_from_slice(self.end.as_bytes());
        body
    }
}

/// Finds the placeholders of a body while it is scanned.
struct Placeholders<'a> {
    text: &'a str,
    names: &'a [String],
    /// For each placeholder: its start and end, including the quotes, and the number of its name.
    found: Vec<(usize, usize, usize)>,
    wrong: Option<String>,
}

impl Placeholders<'_> {
    /// Returns the number of the first placeholder within the string `text[start..end]`, and `true` if it is
    /// the complete string.
    fn within(&self, start: usize, end: usize) -> Option<(usize, bool)> {
        let string = &self.text[start + 1..end - 1];
        let placeholders = self.names.iter().map(|name| format!("{{{name}}}")).enumerate();
        let mut within = placeholders.filter(|(_, placeholder)| string.contains(placeholder));
        within.next().map(|(number, placeholder)| (number, string == placeholder))
    }

    fn refuse(&mut self, number: usize, why: &str) {
        let name = &self.names[number];
        self.wrong.get_or_insert_with(|| format!("{{{name}}} {why}"));
    }
}

impl Visitor for Placeholders<'_> {
    type Error = stentor_json::Error;

    fn scalar(&mut self, scalar: Scalar, start: usize, end: usize) {
        if !matches!(scalar, Scalar::String { .. }) {
            return;
        }
        match self.within(start, end) {
            Some((number, true)) => self.found.push((start, end, number)),
            Some((number, false)) => {
                let why = "stands within a longer string: a placeholder is a whole string, and other braces have a blank behind them";
                self.refuse(number, why);
            }
            None => {}
        }
    }

    fn name(&mut self, start: usize, end: usize, _: bool) {
        if let Some((number, _)) = self.within(start, end) {
            self.refuse(number, "stands in the name of a member: a placeholder is a value");
        }
    }
}

fn parse(text: &str, names: &[String]) -> Result<BodyTemplate, String> {
    if text.len() > BODY_BYTES_MAX {
        return Err(format!("{} bytes are more than {BODY_BYTES_MAX}", text.len()));
    }
    let mut placeholders = Placeholders { text, names, found: Vec::new(), wrong: None };
    let not_json = |error: stentor_json::Error| format!("expected a JSON text: {error}");
    let end = scan(text.as_bytes(), 0, DEPTH_MAX, &mut placeholders).map_err(not_json)?;
    let rest = skip_space(text.as_bytes(), end);
    if rest < text.len() {
        return Err(not_json(stentor_json::Error::Unexpected(rest)));
    }
    if let Some(wrong) = placeholders.wrong {
        return Err(wrong);
    }
    let mut at = 0;
    let parts = placeholders.found.into_iter().map(|(start, end, number)| {
        let before = text[at..start].to_owned();
        at = end;
        (before, number)
    });
    let parts = parts.collect();
    Ok(BodyTemplate { parts, end: text[at..].to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> [String; 2] {
        ["id".into(), "lang".into()]
    }

    #[test]
    fn placeholders_are_complete_strings() {
        fn check(body: &str, values: [&str; 2], expect: &str) {
            let template =
                BodyTemplate::new(body, &names()).unwrap_or_else(|error| panic!("{}: {body}", error.text));
            let filled = String::from_utf8(template.fill(&values)).unwrap();
            assert_eq!(filled, expect, "{body}");
            stentor_json::check(&filled).unwrap();
        }
        check(r#"{"id":"{id}"}"#, ["7", ""], r#"{"id":"7"}"#);
        check(r#"["{lang}", "{id}","{id}" ]"#, ["a", "b"], r#"["b", "a","a" ]"#);
        check(r#""{id}""#, ["\",\"admin\":\"\\", ""], r#""\",\"admin\":\"\\""#);
        check(r#"["{id}"]"#, ["{lang}", "x"], r#"["{lang}"]"#);
        check(r#"["{id}"]"#, ["é\u{2028}\n", ""], "[\"é\u{2028}\\n\"]");
        // Braces with other text than a placeholder's name stay unchanged.
        let query = r#"{"query":"query($id: ID!) { match(id: $id) { id lang } }","variables":{"id":"{id}"}}"#;
        check(query, ["7", ""], &query.replace("{id}", "7"));
        check(r#"{"query":"{me}","{x}":"{ id }"}"#, ["7", ""], r#"{"query":"{me}","{x}":"{ id }"}"#);
        check("  {}\n", ["7", ""], "  {}\n");
    }

    #[test]
    fn wrong_bodies_are_refused() {
        fn check(body: &str, expect: &str) {
            let error = BodyTemplate::new(body, &names()).expect_err(body);
            assert_eq!((error.field, error.text.as_str()), ("body", expect), "{body}");
        }
        let within = "{id} stands within a longer string: a placeholder is a whole string, and other braces have a blank behind them";
        for body in
            [r#"{"id":"match-{id}"}"#, r#"["{id}{lang}"]"#, r#"["{id} "]"#, r#"{"query":"{match{id}}"}"#]
        {
            check(body, within);
        }
        let name = "stands in the name of a member: a placeholder is a value";
        check(r#"{"{id}":1}"#, &format!("{{id}} {name}"));
        check(r#"{"a":{"x{lang}":1}}"#, &format!("{{lang}} {name}"));
        check(r#"{"id":{id}}"#, "expected a JSON text: not JSON at byte 7");
        check("{\"a\":1", "expected a JSON text: the JSON text ends too early");
        check("{} x", "expected a JSON text: not JSON at byte 3");
        check("id=1", "expected a JSON text: not JSON at byte 0");
        check(&format!("\"{}\"", "x".repeat(65_535)), "65537 bytes are more than 65536");
    }
}
