//! Client addresses that proxies report.

use crate::{parts, pieces};
use stentor_wire::{http1, proxy};

/// Checks a header of the PROXY protocol, complete and in pieces, and the addresses in headers of requests.
pub fn proxy_header(data: &[u8]) {
    let Some((flags, cuts, bytes)) = parts(data) else { return };
    let bytes_max = if flags & 1 == 0 { 4_096 } else { 64 };
    let whole = proxy::parse(bytes, bytes_max);
    let mut received = Vec::new();
    for piece in pieces(bytes, cuts) {
        received.extend_from_slice(piece);
        let part = proxy::parse(&received, bytes_max);
        assert!(part == whole || part == Ok(None));
    }
    if let Ok(Some(header)) = whole {
        assert!(header.bytes <= bytes.len() && header.bytes <= bytes_max.max(107));
        assert_eq!(proxy::parse(&bytes[..header.bytes], bytes_max), whole);
    }
    let elements = bytes.iter().filter(|byte| **byte == b',').count() + 1;
    assert_eq!(http1::x_forwarded_for(bytes).count(), elements);
    assert_eq!(http1::forwarded(bytes).count(), elements);
}
