//! HAProxy's PROXY protocol, versions 1 and 2: a header in which a proxy in front of the server states its
//! client's address. It precedes the first byte of the client.
//!
//! [`parse`] reads the start of a connection. Section numbers refer to `proxy-protocol.txt` of HAProxy 2.8.
//!
//! Deliberately absent: the values of TLVs, except the checksum; addresses of UNIX sockets and datagrams,
//! which are treated as unknown.
//!
//! **Invariants.** Bytes after the header aren't read. A header is refused at its first impossible byte. The
//! parser doesn't allocate.

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

faults! {
    /// Reason why a connection doesn't start with a valid header. The proxy is at fault, or a peer that
    /// connects without a proxy.
    pub enum Error;
    /// The first bytes match neither version.
    NotProxy = "the connection does not begin with a PROXY protocol header",
    /// Version 1: the line isn't one of 2.1, or is longer than 107 bytes.
    BadLine = "the line of PROXY protocol version 1 is malformed",
    /// Version 2: a version, command or family that isn't defined (2.2).
    BadCommand = "the version, command or address family of the PROXY protocol header is unknown",
    /// Version 2: the addresses, or a TLV, are longer than the header.
    BadLength = "a length in the PROXY protocol header is wrong",
    /// Version 2: the header exceeds the limit.
    TooLarge = "the PROXY protocol header is too large",
    /// Version 2: the checksum is wrong (2.2.3).
    BadChecksum = "the checksum of the PROXY protocol header is wrong",
}

/// A complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The client's address. `None` if the proxy doesn't know it, or the connection is the proxy's own (a
    /// health check, LOCAL). The peer's address applies then.
    pub source: Option<SocketAddr>,
    /// Size of the header in bytes.
    pub bytes: usize,
}

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Size of signature, command, family and length.
const FIXED_BYTES: usize = 16;
/// Maximum size of a version 1 line, including its end (2.1).
const LINE_BYTES_MAX: usize = 107;
/// Type of the TLV with the checksum.
const CRC32C: u8 = 0x03;

/// Reads the header at the start of `input`, of at most `bytes_max` bytes. `None`: more bytes are needed.
///
/// # Errors
/// `input` doesn't start with a valid header.
pub fn parse(input: &[u8], bytes_max: usize) -> Result<Option<Header>, Error> {
    let begins = |with: &[u8]| {
        let bytes = input.len().min(with.len());
        input[..bytes] == with[..bytes]
    };
    if begins(b"PROXY ") {
        parse_line(input)
    } else if begins(SIGNATURE) {
        parse_binary(input, bytes_max)
    } else {
        Err(Error::NotProxy)
    }
}

/// Parses version 1 (2.1).
fn parse_line(input: &[u8]) -> Result<Option<Header>, Error> {
    let window = &input[..input.len().min(LINE_BYTES_MAX)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if window.len() == LINE_BYTES_MAX { Err(Error::BadLine) } else { Ok(None) };
    };
    let line = str::from_utf8(&window[..end]).map_err(|_| Error::BadLine)?;
    let bytes = end + 2;
    let mut words = line.split(' ').skip(1);
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Ok(Some(Header { source: None, bytes }));
    }
    let mut word = || words.next().ok_or(Error::BadLine);
    let (source, destination, from, to) = (word()?, word()?, word()?, word()?);
    let port = |text: &str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| is_number).ok_or(Error::BadLine)
    };
    let (from, _) = (port(from)?, port(to)?);
    let source: SocketAddr = match family {
        Some("TCP4") => {
            destination.parse::<Ipv4Addr>().map_err(|_| Error::BadLine)?;
            (source.parse::<Ipv4Addr>().map_err(|_| Error::BadLine)?, from).into()
        }
        Some("TCP6") => {
            destination.parse::<Ipv6Addr>().map_err(|_| Error::BadLine)?;
            (source.parse::<Ipv6Addr>().map_err(|_| Error::BadLine)?, from).into()
        }
        _ => return Err(Error::BadLine),
    };
    match words.next() {
        Some(_) => Err(Error::BadLine),
        None => Ok(Some(Header { source: Some(source), bytes })),
    }
}

/// Parses version 2 (2.2).
fn parse_binary(input: &[u8], bytes_max: usize) -> Result<Option<Header>, Error> {
    let is_local = match input.get(12) {
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return Err(Error::BadCommand),
        None => return Ok(None),
    };
    // Size of the addresses in bytes.
    let addresses = match input.get(13) {
        Some(0x00) => 0,
        Some(0x11 | 0x12) => 12,
        Some(0x21 | 0x22) => 36,
        Some(0x31 | 0x32) => 216,
        Some(_) => return Err(Error::BadCommand),
        None => return Ok(None),
    };
    let (Some(&high), Some(&low)) = (input.get(14), input.get(15)) else { return Ok(None) };
    let bytes = FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if bytes > bytes_max {
        return Err(Error::TooLarge);
    }
    let Some(header) = input.get(..bytes) else { return Ok(None) };
    // The addresses of a proxy's own connection, and addresses of an unspecified family, are ignored.
    if is_local || addresses == 0 {
        return Ok(Some(Header { source: None, bytes }));
    }
    let rest = header[FIXED_BYTES..].get(addresses..).ok_or(Error::BadLength)?;
    check_tlvs(header, rest)?;
    let body = &header[FIXED_BYTES..];
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let source = match header[13] {
        0x11 => Some((Ipv4Addr::from([body[0], body[1], body[2], body[3]]), port(8)).into()),
        0x21 => {
            let mut address = [0; 16];
            address.copy_from_slice(&body[..16]);
            Some((Ipv6Addr::from(address), port(32)).into())
        }
        _ => None,
    };
    Ok(Some(Header { source, bytes }))
}

/// Checks that the TLVs at the end of a header fill it, and verifies the checksum if there is one.
fn check_tlvs(header: &[u8], mut rest: &[u8]) -> Result<(), Error> {
    while let Some((kind, after)) = rest.split_first() {
        let (length, after) = after.split_first_chunk::<2>().ok_or(Error::BadLength)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (value, after) = after.split_at_checked(length).ok_or(Error::BadLength)?;
        if *kind == CRC32C {
            let expected = u32::from_be_bytes(value.try_into().map_err(|_| Error::BadLength)?);
            let at = header.len() - after.len() - length;
            if crc32c(header, at) != expected {
                return Err(Error::BadChecksum);
            }
        }
        rest = after;
    }
    Ok(())
}

/// Computes the CRC32C (RFC 4960, appendix B) of `bytes`, with zeros in place of the four bytes at
/// `zeros_at`. Bit by bit, because it runs once per connection over a few hundred bytes.
fn crc32c(bytes: &[u8], zeros_at: usize) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut crc = u32::MAX;
    for (at, &byte) in bytes.iter().enumerate() {
        crc ^= if (zeros_at..zeros_at + 4).contains(&at) { 0 } else { u32::from(byte) };
        for _ in 0..8 {
            crc = (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// Appends a version 2 header for a connection from `source` to `destination`, or for the proxy's own
/// connection. `tlvs` are appended as they are; a checksum is optional.
///
/// For tests and tools: the server itself is never a proxy.
pub fn write(
    out: &mut Vec<u8>,
    addresses: Option<(SocketAddr, SocketAddr)>,
    tlvs: &[(u8, &[u8])],
    with_checksum: bool,
) {
    let start = out.len();
    out.extend_from_slice(SIGNATURE);
    out.push(if addresses.is_some() { 0x21 } else { 0x20 });
    out.push(match addresses {
        Some((SocketAddr::V4(_), SocketAddr::V4(_))) => 0x11,
        Some(_) => 0x21,
        None => 0x00,
    });
    out.extend([0, 0]);
    if let Some((source, destination)) = addresses {
        match (source, destination) {
            (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
                out.extend(source.ip().octets());
                out.extend(destination.ip().octets());
            }
            _ => {
                for address in [source, destination] {
                    out.extend(match address.ip() {
                        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                        std::net::IpAddr::V6(ip) => ip.octets(),
                    });
                }
            }
        }
        out.extend(source.port().to_be_bytes());
        out.extend(destination.port().to_be_bytes());
    }
    for (kind, value) in tlvs {
        out.push(*kind);
        out.extend((value.len() as u16).to_be_bytes());
        out.extend_from_slice(value);
    }
    if with_checksum {
        out.extend([CRC32C, 0, 4, 0, 0, 0, 0]);
    }
    let length = (out.len() - start - FIXED_BYTES) as u16;
    out[start + 14..start + 16].copy_from_slice(&length.to_be_bytes());
    if with_checksum {
        let at = out.len() - 4;
        let checksum = crc32c(&out[start..], at - start);
        out[at..].copy_from_slice(&checksum.to_be_bytes());
    }
}
