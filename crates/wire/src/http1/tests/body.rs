use crate::http1::*;

/// Decodes a body that arrives in these pieces. Returns the body, the input after it, and whether it has
/// ended.
fn decode(kind: BodyKind, pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>, bool), Error> {
    let mut decoder = BodyDecoder::new(kind);
    let (mut body, mut rest) = (Vec::new(), Vec::new());
    for piece in pieces {
        let mut input = *piece;
        while !input.is_empty() && !decoder.is_done() {
            let decoded = decoder.decode(input)?;
            assert!(decoded.consumed > 0 && decoded.done == decoder.is_done());
            body.extend_from_slice(decoded.data);
            input = &input[decoded.consumed..];
        }
        rest.extend_from_slice(input);
    }
    Ok((body, rest, decoder.is_done()))
}

fn check(kind: BodyKind, input: &str, expect: Result<(&str, &str, bool), Error>) {
    let expect = expect.map(|(body, rest, done)| (body.as_bytes().to_vec(), rest.as_bytes().to_vec(), done));
    let input = input.as_bytes();
    for at in 0..=input.len() {
        assert_eq!(decode(kind, &[&input[..at], &input[at..]]), expect, "{input:?} split at {at}");
    }
    let single: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(decode(kind, &single), expect, "{input:?} byte by byte");
}

#[test]
fn plain_bodies_are_decoded() {
    check(BodyKind::Empty, "next", Ok(("", "next", true)));
    check(BodyKind::Length(0), "next", Ok(("", "next", true)));
    check(BodyKind::Length(3), "abcnext", Ok(("abc", "next", true)));
    check(BodyKind::Length(9), "abc", Ok(("abc", "", false)));
    check(BodyKind::UntilClose, "abc", Ok(("abc", "", false)));
}

#[test]
fn chunked_bodies_are_decoded() {
    fn chunked(input: &str, expect: Result<(&str, &str, bool), Error>) {
        check(BodyKind::Chunked, input, expect);
    }
    chunked("0\r\n\r\nnext", Ok(("", "next", true)));
    chunked("3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\nnext", Ok(("abc0123456789", "next", true)));
    chunked("3;a=b;c=\"d e\"\r\nabc\r\n0;x\r\n\r\n", Ok(("abc", "", true)));
    chunked("3 \t;a\r\nabc\r\n0 \r\n\r\n", Ok(("abc", "", true)));
    chunked("1\r\na\r\n0\r\nA: b\r\nC:\r\n\r\nnext", Ok(("a", "next", true)));
    chunked("0000000000000001\r\na\r\n0\r\n\r\n", Ok(("a", "", true)));
    chunked("3\r\nab", Ok(("ab", "", false)));
    chunked("ffffffffffffffff\r\nab", Ok(("ab", "", false)));
    for bad in [
        "00000000000000001\r\n",
        "\r\n",
        ";a\r\n",
        " 1\r\n",
        "g\r\n",
        "-1\r\n",
        "0x1\r\n",
        "1\n",
        "1\ra",
        "1 a\r\n",
        "1 1\r\n",
        "1;a\n",
        "1;a\0",
        "1;a\rb",
        "1\r\nab",
        "1\r\na\n",
        "1\r\na\rb",
        "1\r\na1\r\n",
    ] {
        chunked(bad, Err(Error::BadChunk));
    }
    for bad in [
        "0\r\n\n",
        "0\r\n\rx",
        "0\r\n a: b\r\n\r\n",
        "0\r\nab\r\n",
        "0\r\n:\r\n",
        "0\r\na: b\n",
        "0\r\na: b\rc",
    ] {
        chunked(bad, Err(Error::BadTrailer));
    }
}

/// Extensions and trailers are bounded over the whole body, not only one by one.
#[test]
fn extensions_and_trailers_are_bounded() {
    let chunk = "1;abcdefg\r\na\r\n";
    let fits = (CHUNK_EXTENSION_BYTES_MAX / 8) as usize;
    let all = |chunks: usize| format!("{}0\r\n\r\n", chunk.repeat(chunks));
    assert_eq!(decode(BodyKind::Chunked, &[all(fits).as_bytes()]).unwrap().0.len(), fits);
    assert_eq!(decode(BodyKind::Chunked, &[all(fits + 1).as_bytes()]), Err(Error::ChunkExtensionTooLarge));
    let all = |lines: usize| format!("0\r\n{}\r\n", "A: 345\r\n".repeat(lines));
    let fits = (TRAILER_BYTES_MAX / 8) as usize;
    assert!(decode(BodyKind::Chunked, &[all(fits).as_bytes()]).unwrap().2);
    assert_eq!(decode(BodyKind::Chunked, &[all(fits + 1).as_bytes()]), Err(Error::TrailerTooLarge));
}

#[test]
fn written_chunks_are_read() {
    let mut out = Vec::new();
    write_chunk(&mut out, b"hello");
    write_chunk(&mut out, b"");
    write_chunk(&mut out, &[7; 300]);
    write_last_chunk(&mut out);
    let (body, rest, done) = decode(BodyKind::Chunked, &[&out]).unwrap();
    assert_eq!((body, rest, done), ([&b"hello"[..], &[7; 300]].concat(), Vec::new(), true));
    for (length, size) in [(1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (255, "ff\r\n"), (4096, "1000\r\n")] {
        out.clear();
        write_chunk(&mut out, &vec![7; length]);
        assert!(out.starts_with(size.as_bytes()) && out.ends_with(b"\x07\r\n"));
        assert_eq!(out.len(), size.len() + length + 2);
    }
}
