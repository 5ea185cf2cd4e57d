//! Messages to publish, as batches and as commands, and the server's refusals.

use crate::engine::common::{Outgoing, Permit, Taken};
use bytes::Bytes;
use redis::Value;
use std::io::Write;
use std::mem;

/// Maximum number of messages in a batch.
const BATCH_MESSAGES_MAX: usize = 512;
/// Maximum size of a batch in bytes, besides its first message.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The command that publishes a message.
#[derive(Clone, Copy)]
pub(crate) struct Publish {
    /// `PUBLISH`, or `SPUBLISH`.
    pub(crate) command: &'static str,
    /// The first bytes of each message.
    pub(crate) prefix: &'static [u8],
}

/// Bytes of a command besides its name, channel and payload.
const COMMAND_BYTES: usize = 48;

/// Commands that publish messages, as they are written to the server. The client library's pipeline would copy each payload
/// twice more.
#[derive(Default)]
pub(crate) struct Publications {
    pub(super) packed: Vec<u8>,
    pub(super) count: usize,
}

impl Publish {
    pub(crate) fn add(self, publications: &mut Publications, channel: &str, payload: &Bytes) {
        let Self { command, prefix } = self;
        let (name, content) = (command.len(), prefix.len() + payload.len());
        let packed = &mut publications.packed;
        packed.reserve(name + channel.len() + content + COMMAND_BYTES);
        // Writing to memory doesn't fail.
        let _ =
            write!(packed, "*3\r\n${name}\r\n{command}\r\n${}\r\n{channel}\r\n${content}\r\n", channel.len());
        packed.extend_from_slice(prefix);
        packed.extend_from_slice(payload);
        packed.extend_from_slice(b"\r\n");
        publications.count += 1;
    }
}

/// Takes a batch, if messages wait.
pub(crate) fn take_batch(outgoing: &Outgoing) -> Option<(Vec<(String, Bytes)>, Permit)> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let permit = outgoing.take(|message| {
        if batch.len() >= BATCH_MESSAGES_MAX || bytes >= BATCH_BYTES_MAX {
            return Taken::Nothing;
        }
        bytes += message.payload.len();
        batch.push((mem::take(&mut message.channel), mem::take(&mut message.payload)));
        Taken::Whole
    });
    (!batch.is_empty()).then_some((batch, permit))
}

/// The first error among replies.
pub(super) fn first_refusal(replies: Vec<Value>) -> Option<String> {
    replies.into_iter().find_map(|reply| match reply {
        Value::ServerError(error) => Some(error.to_string()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_client_library() {
        let (mut publications, mut pipeline) = (Publications::default(), redis::Pipeline::new());
        let publish = Publish { command: "SPUBLISH", prefix: b":" };
        for (channel, payload) in
            [("p:{room:1:/a}", &b""[..]), ("\u{e9}", &b"\0\r\n\xff"[..]), ("c", &[7; 1_000][..])]
        {
            publish.add(&mut publications, channel, &Bytes::copy_from_slice(payload));
            pipeline.cmd("SPUBLISH").arg(channel).arg([b":", payload].concat());
        }
        assert_eq!((publications.packed, publications.count), (pipeline.get_packed_pipeline(), 3));
    }
}
