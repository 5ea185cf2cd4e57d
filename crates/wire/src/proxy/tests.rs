use super::*;
use proptest::prelude::*;
use std::net::IpAddr;

const BYTES_MAX: usize = 4_096;

/// Checks the result for the complete `input`. Each prefix must be incomplete or give the same result.
fn check(input: &[u8], expected: Result<Option<Header>, Error>) {
    assert_eq!(parse(input, BYTES_MAX), expected, "{input:?}");
    for end in 0..input.len() {
        let part = parse(&input[..end], BYTES_MAX);
        assert!(part == Ok(None) || part == expected, "{part:?} of {end} bytes of {input:?}");
        if let Ok(Some(header)) = part {
            assert!(header.bytes <= end);
        }
    }
    // The bytes after the header belong to the client and don't matter.
    if let Ok(Some(header)) = expected {
        for rest in [&b"GET / HTTP/1.1\r\n"[..], b"PROXY ", b"\0\0\0", SIGNATURE] {
            let followed = [input, rest].concat();
            assert_eq!(parse(&followed, BYTES_MAX), Ok(Some(header)));
        }
    }
}

fn source(text: &str, bytes: usize) -> Result<Option<Header>, Error> {
    Ok(Some(Header { source: Some(text.parse().unwrap()), bytes }))
}

fn unknown(bytes: usize) -> Result<Option<Header>, Error> {
    Ok(Some(Header { source: None, bytes }))
}

#[test]
fn lines_of_version_1() {
    check(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n", source("192.0.2.1:56324", 45));
    check(b"PROXY TCP6 2001:db8::1 ::1 65535 0\r\n", source("[2001:db8::1]:65535", 36));
    check(b"PROXY UNKNOWN\r\n", unknown(15));
    check(b"PROXY UNKNOWN ffff:: what ever\r\n", unknown(32));
    let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(91));
    check(longest.as_bytes(), unknown(107));
    let longer = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
    check(longer.as_bytes(), Err(Error::BadLine));
}

#[test]
fn malformed_lines() {
    for line in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1  192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 -1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 \r\n",
        "PROXY TCP4 192.0.2 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP6 ::1%eth0 ::1 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n\r\n",
        "PROXY TCP4\t192.0.2.1 192.0.2.2 1 2\r\n",
    ] {
        check(line.as_bytes(), Err(Error::BadLine));
    }
    check(b"PROXY TCP4 \xff 192.0.2.2 1 2\r\n", Err(Error::BadLine));
    check(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n", Ok(None));
    for not in ["GET / HTTP/1.1\r\n", "proxy UNKNOWN\r\n", "PROXY\tUNKNOWN", "\r\n\r\nGET", "\0", " PROXY"] {
        check(not.as_bytes(), Err(Error::NotProxy));
    }
    check(b"", Ok(None));
}

fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16).to_be_bytes();
    [&SIGNATURE[..], &[command, family], &length, body].concat()
}

const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];

#[test]
fn headers_of_version_2() {
    check(&binary(0x21, 0x11, &V4), source("192.0.2.1:56324", 28));
    let v6 = [[0x20; 16], [0x30; 16]].concat();
    let v6 = [&v6[..], &[0, 1, 0, 2]].concat();
    check(&binary(0x21, 0x21, &v6), source("[2020:2020:2020:2020:2020:2020:2020:2020]:1", 52));
    // LOCAL, and address families other than TCP.
    check(&binary(0x20, 0x00, &[]), unknown(16));
    check(&binary(0x20, 0x11, &V4), unknown(28));
    check(&binary(0x20, 0x00, &[0xff, 0xff, 0xff]), unknown(19));
    check(&binary(0x21, 0x00, &[1, 2, 3]), unknown(19));
    check(&binary(0x21, 0x12, &V4), unknown(28));
    check(&binary(0x21, 0x31, &[0; 216]), unknown(232));
    // TLVs.
    let tlvs = [&V4[..], &[0x01, 0, 2, b'h', b'2', 0x04, 0, 0, 0xee, 0, 1, 0]].concat();
    check(&binary(0x21, 0x11, &tlvs), source("192.0.2.1:56324", 40));
}

#[test]
fn malformed_headers() {
    for (command, family, body, error) in [
        (0x11, 0x11, &V4[..], Error::BadCommand),
        (0x22, 0x11, &V4, Error::BadCommand),
        (0x31, 0x11, &V4, Error::BadCommand),
        (0x21, 0x13, &V4, Error::BadCommand),
        (0x21, 0x41, &V4, Error::BadCommand),
        (0x21, 0x11, &V4[..11], Error::BadLength),
        (0x21, 0x21, &V4, Error::BadLength),
        (0x21, 0x31, &V4, Error::BadLength),
        (0x21, 0x11, &[&V4[..], &[1]].concat(), Error::BadLength),
        (0x21, 0x11, &[&V4[..], &[1, 0]].concat(), Error::BadLength),
        (0x21, 0x11, &[&V4[..], &[1, 0, 1]].concat(), Error::BadLength),
        (0x21, 0x11, &[&V4[..], &[1, 0xff, 0xff, 0]].concat(), Error::BadLength),
        (0x21, 0x11, &[&V4[..], &[3, 0, 3, 0, 0, 0]].concat(), Error::BadLength),
        (0x21, 0x11, &[&V4[..], &[3, 0, 4, 0, 0, 0, 0]].concat(), Error::BadChecksum),
        (0x21, 0x11, &vec![0; BYTES_MAX - FIXED_BYTES + 1], Error::TooLarge),
    ] {
        check(&binary(command, family, body), Err(error));
    }
    // Refused before the complete header has arrived.
    assert_eq!(parse(&binary(0x21, 0x11, &[0; 65_535])[..16], BYTES_MAX), Err(Error::TooLarge));
}

#[test]
fn the_checksum_is_that_of_rfc_4960() {
    // RFC 3720, B.4: 32 bytes of zeros, of ones, and ascending.
    let none = usize::MAX - 4;
    assert_eq!(crc32c(&[0; 32], none), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32], none), 0x62a8_ab43);
    assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>(), none), 0x46dd_794e);
    let addresses = ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap());
    let mut header = Vec::new();
    write(&mut header, Some(addresses), &[(0xe0, b"x")], true);
    check(&header, source("192.0.2.1:1", header.len()));
    // A TLV of another type is no checksum.
    let kind_at = header.len() - 7;
    for at in (FIXED_BYTES..header.len()).filter(|at| *at != kind_at) {
        let mut broken = header.clone();
        broken[at] ^= 0x10;
        assert!(parse(&broken, BYTES_MAX).is_err(), "byte {at}");
    }
}

proptest! {
    #[test]
    fn written_headers_are_read(
        source: IpAddr, destination: IpAddr, from: u16, to: u16, tlv: Vec<u8>, with_checksum: bool,
        rest: Vec<u8>,
    ) {
        let (source, destination) = (SocketAddr::new(source, from), SocketAddr::new(destination, to));
        let mut header = Vec::new();
        write(&mut header, Some((source, destination)), &[(0xe0, &tlv)], with_checksum);
        let bytes = header.len();
        header.extend(rest);
        let read = parse(&header, BYTES_MAX).unwrap().unwrap();
        prop_assert_eq!(read.bytes, bytes);
        let ip = read.source.unwrap().ip();
        prop_assert_eq!(ip.to_canonical(), source.ip().to_canonical());
        prop_assert_eq!(read.source.unwrap().port(), from);
    }

    #[test]
    fn anything_is_read_the_same_in_pieces(command: u8, family: u8, body: Vec<u8>) {
        let header = binary(command & 0x23, family & 0x33, &body);
        check(&header, parse(&header, BYTES_MAX));
    }
}
