//! Answers of the scripts.

use super::subscriber::{number, parse};
use crate::NodeId;
use crate::engine::{EngineError, FeedLog, History, Lease, Reply, Request};
use bytes::Bytes;
use redis::Value;
use stentor_hub::{Epoch, Position};

/// The answer to a request.
///
/// # Errors
/// [`EngineError::Fenced`], or [`EngineError::Refused`] if the answer isn't one of the script.
pub(super) fn decode(request: &Request, replies: Vec<Value>) -> Result<Reply, EngineError> {
    let unexpected = || EngineError::Refused("Redis has other data under this key".into());
    if let Request::Heads { .. } = request {
        let heads: Option<Vec<_>> = replies.into_iter().map(optional_position).collect();
        return heads.map(Reply::Heads).ok_or_else(unexpected);
    }
    let Ok([reply]) = <[Value; 1]>::try_from(replies) else { return Err(unexpected()) };
    let decoded = match request {
        Request::Append { .. } => optional_position(reply).flatten().map(Reply::Position),
        Request::History { since, messages_max, .. } => {
            history(*since, *messages_max, reply).map(Reply::History)
        }
        Request::AcquireLease { .. } => lease(reply).map(Reply::Lease),
        Request::RenewLease { lease, .. } => match reply {
            Value::Int(held) => Some(Reply::Lease((held == 1).then_some(*lease))),
            _ => None,
        },
        Request::StoreVersion { .. } => match &bytes(reply).unwrap_or_default()[..] {
            b"stored" => Some(Reply::Done),
            b"fenced" => return Err(EngineError::Fenced),
            b"empty" => return Err(EngineError::Refused("the feed has no base for a change".into())),
            b"moved" => {
                return Err(EngineError::Refused(
                    "the feed's log is of another primary; store a base".into(),
                ));
            }
            b"full" => return Err(EngineError::Refused("the feed's log is full; store a base".into())),
            _ => None,
        },
        Request::LoadFeed { .. } => feed(reply).map(Reply::Feed),
        Request::Heartbeat { .. } => nodes(reply).map(Reply::Nodes),
        Request::Claim { .. } => match reply {
            Value::Nil => Some(Reply::Owner(None)),
            reply => bytes(reply).and_then(|id| node(&id)).map(|node| Reply::Owner(Some(node))),
        },
        Request::ReleaseLease { .. } | Request::EndEpoch { .. } => Some(Reply::Done),
        Request::Heads { .. } => None,
    };
    decoded.ok_or_else(unexpected)
}

fn bytes(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        Value::SimpleString(text) => Some(text.into()),
        _ => None,
    }
}

fn array(value: Value) -> Option<Vec<Value>> {
    if let Value::Array(values) = value { Some(values) } else { None }
}

fn decimal(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.parse().ok()
}

fn node(id: &[u8]) -> Option<NodeId> {
    NodeId::parse(str::from_utf8(id).ok()?)
}

/// `EPOCH:OFFSET`.
fn position(text: Bytes) -> Option<Position> {
    let (epoch, offset) = number(&text)?;
    Some(Position { epoch: Epoch(epoch), offset: decimal(&offset)? })
}

fn optional_position(value: Value) -> Option<Option<Position>> {
    match value {
        Value::Nil => Some(None),
        value => Some(Some(position(bytes(value)?)?)),
    }
}

fn history(since: Position, messages_max: usize, reply: Value) -> Option<History> {
    if reply == Value::Nil {
        return Some(History { truncated: true, ..History::default() });
    }
    let [epoch, offset, is_same, entries] = <[Value; 4]>::try_from(array(reply)?).ok()?;
    let head = Position { epoch: Epoch(decimal(&bytes(epoch)?)?), offset: decimal(&bytes(offset)?)? };
    let is_same = is_same == Value::Int(1);
    let mut messages = Vec::new();
    if messages_max > 0 {
        for entry in array(entries)? {
            messages.push(message(head.epoch, entry)?);
        }
    }
    let after = if is_same { since.offset } else { 0 };
    let first = messages.first().map_or(head.offset.saturating_add(1), |(position, _)| position.offset);
    Some(History { head: Some(head), messages, truncated: !is_same || first > after.saturating_add(1) })
}

/// An entry of a stream: `OFFSET-0`, and the fields `t` and `d`.
fn message(epoch: Epoch, entry: Value) -> Option<(Position, Bytes)> {
    let [id, fields] = <[Value; 2]>::try_from(array(entry)?).ok()?;
    let [_, _, _, payload] = <[Value; 4]>::try_from(array(fields)?).ok()?;
    let offset = decimal(bytes(id)?.strip_suffix(b"-0")?)?;
    Some((Position { epoch, offset }, bytes(payload)?))
}

fn lease(reply: Value) -> Option<Option<Lease>> {
    if reply == Value::Nil {
        return Some(None);
    }
    let (term, token) = number(&bytes(reply)?)?;
    Some(Some(Lease { term, token: decimal(&token)? }))
}

/// Decodes a feed's log: whether versions may be missing, and elements `TERM:EPOCH:OFFSET:CONTENT`, the base first.
fn feed(reply: Value) -> Option<Option<FeedLog>> {
    let [is_other, entries] = <[Value; 2]>::try_from(array(reply)?).ok()?;
    let may_lack_newest = is_other != Value::Int(0);
    let mut entries = array(entries)?.into_iter().map(|entry| {
        let (term, rest) = number(&bytes(entry)?)?;
        let (position, content) = parse(rest)?;
        Some((term, position?, content))
    });
    let Some(base) = entries.next() else { return Some(None) };
    let (mut term, base_position, base) = base?;
    let mut changes = Vec::new();
    for entry in entries {
        let (written, position, change) = entry?;
        term = written;
        changes.push((position, change));
    }
    Some(Some(FeedLog { term, base_position, base, changes, may_lack_newest }))
}

fn nodes(reply: Value) -> Option<Vec<(NodeId, Bytes)>> {
    let mut values = array(reply)?.into_iter();
    let mut nodes = Vec::new();
    while let Some(id) = values.next() {
        nodes.push((node(&bytes(id)?)?, bytes(values.next()?)?));
    }
    nodes.sort_unstable_by_key(|(node, _)| *node);
    Some(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_may_have_the_largest_offset() {
        let number = |number: u64| Value::BulkString(number.to_string().into());
        let head = Position { epoch: Epoch(7), offset: u64::MAX };
        let reply = Value::Array(vec![number(7), number(u64::MAX), Value::Int(1), Value::Array(Vec::new())]);
        let read = history(head, 10, reply);
        assert_eq!(read, Some(History { head: Some(head), messages: Vec::new(), truncated: false }));
    }
}
