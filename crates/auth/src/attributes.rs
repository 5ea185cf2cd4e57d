//! What is known of a client: the claims of its token, by name.

use crate::json;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The claims of a token, as permissions refer to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes(pub(crate) Map<String, Value>);

impl Attributes {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// What is wrong with it, as the rest of a sentence.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        json::object(text.as_bytes()).map(Self).map_err(json::JsonError::problem)
    }

    /// The values of a claim. `name` is that of a claim, or else a path of names joined by `.`, as `org.id`. A text and a whole number
    /// are one value each, an array is those of its elements. Anything else, and the empty text, is no value.
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

    /// A claim as JSON.
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
