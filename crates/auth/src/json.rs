//! Parses untrusted JSON into a tree, with a maximum depth and without duplicate members.
//!
//! RFC 7515, section 4, and RFC 7519, section 4, allow parsers to use the last of two members with the same
//! name. Other parsers may use the first one and so read another token, so duplicates are refused here.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fmt;

/// Maximum depth of nested arrays and objects. `{}` has the depth 1.
pub(crate) const DEPTH_MAX: usize = 16;

/// Reason for refusing a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonError {
    Syntax,
    NotAnObject,
    Duplicate,
    TooDeep,
}

impl JsonError {
    /// Returns the predicate of a sentence about the text.
    pub(crate) fn problem(self) -> &'static str {
        match self {
            Self::Syntax => "is not JSON",
            Self::NotAnObject => "is not a JSON object",
            Self::Duplicate => "has a member twice",
            Self::TooDeep => "is nested deeper than 16 levels",
        }
    }
}

/// Reads one object.
///
/// # Errors
/// The text isn't exactly one object, it is nested too deeply, or an object has a member twice.
pub(crate) fn object(text: &[u8]) -> Result<Map<String, Value>, JsonError> {
    let error = Cell::new(JsonError::Syntax);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Strict { depth_left: DEPTH_MAX, error: &error }.deserialize(&mut deserializer);
    match value.and_then(|value| deserializer.end().map(|()| value)) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(JsonError::NotAnObject),
        Err(_) => Err(error.get()),
    }
}

/// Reads a value with a maximum depth. Records errors that aren't errors of the syntax.
#[derive(Clone, Copy)]
struct Strict<'e> {
    depth_left: usize,
    error: &'e Cell<JsonError>,
}

impl Strict<'_> {
    fn fail<E: serde::de::Error>(self, error: JsonError) -> E {
        self.error.set(error);
        E::custom("")
    }

    /// Returns a reader for the next level.
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left, ..self }),
            None => Err(self.fail(JsonError::TooDeep)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(inner)?;
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom(self.fail::<A::Error>(JsonError::Duplicate)));
            }
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_read_strictly() {
        fn check(text: &str, expect: Result<&str, JsonError>) {
            let read = object(text.as_bytes()).map(|object| Value::from(object).to_string());
            assert_eq!(read, expect.map(Into::into), "{text}");
        }
        check(r#" {"a":[1,-2,0.5,"x",true,null],"b":{}} "#, Ok(r#"{"a":[1,-2,0.5,"x",true,null],"b":{}}"#));
        check(r#"{"a":1,"a":1}"#, Err(JsonError::Duplicate));
        // The name is the same in another spelling (an escape), at any depth.
        check(r#"{"b":[{"a":1,"\u0061":2}]}"#, Err(JsonError::Duplicate));
        check("{} {}", Err(JsonError::Syntax));
        check(r#"{"a":1,}"#, Err(JsonError::Syntax));
        check("", Err(JsonError::Syntax));
        check("[]", Err(JsonError::NotAnObject));
        check("7", Err(JsonError::NotAnObject));
        let nested =
            |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
        assert!(object(nested(DEPTH_MAX).as_bytes()).is_ok());
        check(&nested(DEPTH_MAX + 1), Err(JsonError::TooDeep));
        check(&nested(100_000), Err(JsonError::TooDeep));
        assert_eq!(object(b"{\"a\":\"\xff\"}"), Err(JsonError::Syntax));
    }
}
