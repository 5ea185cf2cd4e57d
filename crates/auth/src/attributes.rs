//! The attributes of a client: the claims of its token, by name.

use crate::json;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The claims of a token. Permissions refer to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes(pub(crate) Map<String, Value>);

impl Attributes {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// Returns the problem, as the predicate of a sentence about the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        json::object(text.as_bytes()).map(Self).map_err(json::JsonError::problem)
    }

    /// Makes the claims of a user without a token: `iss`, `sub` and `groups`.
    pub fn of_user(issuer: &str, subject: &str, groups: &[Box<str>]) -> Self {
        let groups = groups.iter().map(|group| Value::from(&**group)).collect();
        let claims = [("iss", issuer.into()), ("sub", subject.into()), ("groups", Value::Array(groups))];
        Self(claims.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
    }

    /// Iterates over the values of a claim. `name` is the name of a claim or, if there is no such claim, a
    /// path of names joined by `.`, such as `org.id`. A text or a whole number is one value. An array has the
    /// values of its elements. Other types and the empty text have no value.
    pub fn values(&self, name: &str) -> impl Iterator<Item = Cow<'_, str>> {
        let all = match self.claim(name) {
            Some(Value::Array(items)) => items.as_slice(),
            Some(value) => std::slice::from_ref(value),
            None => &[],
        };
        all.iter().filter_map(|value| match value {
            Value::String(text) if !text.is_empty() => Some(Cow::Borrowed(text.as_str())),
            Value::Number(number) if !number.is_f64() => Some(Cow::Owned(number.to_string())),
            _ => None,
        })
    }

    /// Returns a claim as JSON.
    pub fn claim_text(&self, name: &str) -> Option<String> {
        self.claim(name).map(Value::to_string)
    }

    fn claim(&self, name: &str) -> Option<&Value> {
        self.0.get(name).or_else(|| {
            let (first, rest) = name.split_once('.')?;
            rest.split('.').try_fold(self.0.get(first)?, |value, name| value.get(name))
        })
    }
}
