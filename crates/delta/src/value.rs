//! A mutable JSON value to which patches are applied. Values are compared by the rules in the crate
//! documentation.

use super::number::Number;
use super::tape::{Kind, NodeId, Parsed};
use super::text;
use std::collections::BTreeMap;

/// A value and its subtree. Numbers and literals keep their spelling, strings and names are decoded.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Literal(Box<[u8]>),
    Number(Box<[u8]>),
    String(Box<[u8]>),
    Array(Vec<Value>),
    Object(BTreeMap<Box<[u8]>, Value>),
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Number::of(a) == Number::of(b),
            (Self::Literal(a), Self::Literal(b)) | (Self::String(a), Self::String(b)) => a == b,
            (Self::Array(a), Self::Array(b)) => a == b,
            (Self::Object(a), Self::Object(b)) => a == b,
            _ => false,
        }
    }
}

impl Value {
    pub(crate) fn read(parsed: &Parsed<'_>, id: NodeId) -> Self {
        let raw = parsed.raw(id);
        match parsed.kind(id) {
            Kind::Literal => Self::Literal(raw.into()),
            Kind::Number => Self::Number(raw.into()),
            Kind::String => Self::String(string(parsed, id)),
            Kind::Array => Self::Array(parsed.children(id).map(|id| Self::read(parsed, id)).collect()),
            Kind::Object => {
                let member = |id| (text::decoded(parsed.name(id)).into(), Self::read(parsed, id));
                Self::Object(parsed.children(id).map(member).collect())
            }
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Literal(raw) | Self::Number(raw) => out.extend_from_slice(raw),
            Self::String(decoded) => write_string(decoded, out),
            Self::Array(elements) => {
                out.push(b'[');
                for (i, element) in elements.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    element.write(out);
                }
                out.push(b']');
            }
            Self::Object(members) => {
                out.push(b'{');
                for (i, (name, value)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    write_string(name, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }

    /// Returns the value's approximate size in bytes, and the number of levels below it.
    pub(crate) fn size(&self) -> (usize, usize) {
        let sum = |(bytes, depth): (usize, usize), (more, deeper): (usize, usize)| {
            (bytes + more, depth.max(deeper + 1))
        };
        match self {
            Self::Literal(bytes) | Self::Number(bytes) | Self::String(bytes) => (bytes.len() + 2, 0),
            Self::Array(elements) => elements.iter().map(Self::size).fold((2, 1), sum),
            Self::Object(members) => members.iter().fold((2, 1), |sum_so_far, (name, value)| {
                let (bytes, depth) = value.size();
                sum(sum_so_far, (name.len() + 4 + bytes, depth))
            }),
        }
    }
}

/// Decodes a string to WTF-8.
pub(crate) fn string(parsed: &Parsed<'_>, id: NodeId) -> Box<[u8]> {
    let raw = parsed.raw(id);
    text::decoded(&raw[1..raw.len() - 1]).into()
}

fn write_string(decoded: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    stentor_json::write_wtf8(out, decoded);
    out.push(b'"');
}
