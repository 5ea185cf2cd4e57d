//! Data that clients send: requests, WebSocket handshakes and frames, deflated messages.
//!
//! Independent of `stentor-wire`: an attack needs bytes that no well-behaved client writes, and a bug of the
//! server's parsers must not be hidden by sharing them. Frames have a mask of zeros (RFC 6455, section 5.3
//! allows any), so that their payload can be read, replaced and mutated in place.

use flate2::{Compress, Compression, FlushCompress};

/// Opcodes of RFC 6455, section 5.2.
pub(crate) const CONTINUATION: u8 = 0x0;
pub(crate) const TEXT: u8 = 0x1;
pub(crate) const BINARY: u8 = 0x2;
pub(crate) const CLOSE: u8 = 0x8;
pub(crate) const PING: u8 = 0x9;
pub(crate) const PONG: u8 = 0xa;

/// Bits of a frame's first byte.
pub(crate) const FIN: u8 = 0x80;
pub(crate) const COMPRESSED: u8 = 0x40;

/// Makes a request without a body.
pub(crate) fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
}

/// Makes a request with a body.
pub(crate) fn post(target: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut request = post_head(target, content_type, body.len());
    request.extend_from_slice(body);
    request
}

/// Makes the headers of a request that announces a body of `length_bytes`.
pub(crate) fn post_head(target: &str, content_type: &str, length_bytes: usize) -> Vec<u8> {
    format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: \
         {length_bytes}\r\n\r\n"
    )
    .into_bytes()
}

/// Makes a WebSocket handshake.
pub(crate) fn upgrade(target: &str) -> Vec<u8> {
    upgrade_with(target, "")
}

/// Makes a WebSocket handshake that offers permessage-deflate.
pub(crate) fn upgrade_deflate(target: &str) -> Vec<u8> {
    upgrade_with(target, "Sec-WebSocket-Extensions: permessage-deflate\r\n")
}

/// Makes a WebSocket handshake with additional headers.
pub(crate) fn upgrade_with(target: &str, headers: &str) -> Vec<u8> {
    format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    )
    .into_bytes()
}

/// Makes a frame. `first` is the first byte: flags and opcode.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame_head(first, payload.len());
    bytes.extend_from_slice(payload);
    bytes
}

/// Makes the header of a frame that announces `length_bytes`.
pub(crate) fn frame_head(first: u8, length_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![first];
    if let Ok(short @ 0..126) = u8::try_from(length_bytes) {
        bytes.push(0x80 | short);
    } else if let Ok(medium) = u16::try_from(length_bytes) {
        bytes.push(0x80 | 126);
        bytes.extend_from_slice(&medium.to_be_bytes());
    } else {
        bytes.push(0x80 | 127);
        bytes.extend_from_slice(&(length_bytes as u64).to_be_bytes());
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

/// Returns the first byte and the payload, if the bytes are one complete frame as [`frame`] makes it.
pub(crate) fn unframed(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let first = *bytes.first()?;
    [6, 8, 14].into_iter().find_map(|head| {
        let payload = bytes.get(head..)?;
        (bytes[..head] == frame_head(first, payload.len())).then_some((first, payload))
    })
}

/// Makes a text message in one frame.
pub(crate) fn text(payload: &str) -> Vec<u8> {
    frame(FIN | TEXT, payload.as_bytes())
}

/// Makes a text message in one compressed frame.
pub(crate) fn deflated_text(payload: &[u8]) -> Vec<u8> {
    frame(FIN | COMPRESSED | TEXT, &deflate(payload))
}

/// Deflates as RFC 7692, section 7.2.1 says: raw, flushed, without the last four bytes.
fn deflate(payload: &[u8]) -> Vec<u8> {
    let mut deflater = Compress::new(Compression::best(), false);
    // The capacity exceeds the maximum expansion of deflate, because `compress_vec` writes into spare
    // capacity only.
    let mut out = Vec::with_capacity(payload.len() + payload.len() / 1000 + 64);
    deflater.compress_vec(payload, &mut out, FlushCompress::Sync).expect("deflating into memory can't fail");
    out.truncate(out.len() - 4);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_lengths() {
        for (length, expect) in [
            (0, vec![0x81, 0x80, 0, 0, 0, 0]),
            (125, vec![0x81, 0xfd, 0, 0, 0, 0]),
            (126, vec![0x81, 0xfe, 0, 126, 0, 0, 0, 0]),
            (65_535, vec![0x81, 0xfe, 255, 255, 0, 0, 0, 0]),
            (65_536, vec![0x81, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(frame_head(FIN | TEXT, length), expect, "{length}");
            let payload = vec![b'x'; length];
            let whole = frame(FIN | TEXT, &payload);
            assert_eq!(unframed(&whole), Some((FIN | TEXT, &payload[..])), "{length}");
            assert_eq!(unframed(&[whole, vec![0]].concat()), None, "{length}");
        }
    }

    #[test]
    fn deflated_messages_inflate_again() {
        for payload in [vec![b'x'; 1_000_000], b"abc".to_vec(), Vec::new()] {
            let mut bytes = deflate(&payload);
            bytes.extend_from_slice(&[0, 0, 0xff, 0xff]);
            let mut inflated = Vec::with_capacity(payload.len() + 1);
            let mut inflater = flate2::Decompress::new(false);
            inflater.decompress_vec(&bytes, &mut inflated, flate2::FlushDecompress::Sync).unwrap();
            assert_eq!(inflated, payload);
        }
    }
}
