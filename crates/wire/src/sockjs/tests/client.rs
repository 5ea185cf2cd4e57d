use super::*;

/// A frame that owns its text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    Open,
    Heartbeat,
    Messages(Vec<String>),
    Close(u16, String),
}

impl From<ServerFrame<'_>> for Seen {
    fn from(frame: ServerFrame<'_>) -> Seen {
        match frame {
            ServerFrame::Open => Seen::Open,
            ServerFrame::Heartbeat => Seen::Heartbeat,
            ServerFrame::Messages(messages) => {
                Seen::Messages(messages.map(|text| text.into_owned()).collect())
            }
            ServerFrame::Close { code, reason } => Seen::Close(code, reason.into_owned()),
        }
    }
}

pub(super) fn decode<'b>(
    frame_bytes_max: usize,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> (Vec<Seen>, Option<Error>) {
    let mut decoder = FrameDecoder::new(frame_bytes_max, Limits::default());
    let mut seen = Vec::new();
    for piece in pieces {
        let mut at = 0;
        while at < piece.len() {
            match decoder.receive(&piece[at..]) {
                Ok(received) => {
                    assert!(received.consumed > 0 && received.consumed <= piece.len() - at);
                    at += received.consumed;
                    seen.extend(received.frame.map(Seen::from));
                }
                Err(error) => return (seen, Some(error)),
            }
        }
    }
    (seen, None)
}

#[test]
fn frames_are_decoded() {
    fn check(text: &str, expect: Option<Seen>) {
        assert_eq!(ServerFrame::parse(text, &Limits::default()).ok().map(Seen::from), expect, "{text:?}");
    }
    let messages = |texts: &[&str]| Some(Seen::Messages(texts.iter().map(|&text| text.to_owned()).collect()));
    check("o", Some(Seen::Open));
    check("h", Some(Seen::Heartbeat));
    check("a[]", messages(&[]));
    check(r#"a["a","\u0062"]"#, messages(&["a", "b"]));
    check(r#"m"a""#, messages(&["a"]));
    check(r#"c[3000,"Go away!"]"#, Some(Seen::Close(3000, "Go away!".into())));
    check(r#"c[ 1000 , "\n" ] "#, Some(Seen::Close(1000, "\n".into())));
    for bad in [
        "",
        "x",
        "oo",
        "hh",
        "a",
        "a[1]",
        "a[\"a\"",
        "m",
        "ma",
        "m[]",
        "c",
        "c[]",
        "c[1]",
        "c[1,2]",
        "c[+1,\"\"]",
        "c[,\"\"]",
        "c[70000,\"\"]",
        "c[1,\"\"]x",
        "c[1,\"\",2]",
        "\u{e4}",
    ] {
        check(bad, None);
    }
    let limits = Limits { messages_max: 1 };
    assert_eq!(ServerFrame::parse(r#"a["",""]"#, &limits).err(), Some(Error::TooManyMessages));
}

#[test]
fn streams_may_be_split_anywhere() {
    fn check(stream: &[u8], expect: &[Seen], error: Option<Error>) {
        let expect = (expect.to_vec(), error);
        assert_eq!(decode(3000, [stream]), expect);
        assert_eq!(decode(3000, stream.chunks(1)), expect);
        for at in 0..=stream.len() {
            assert_eq!(decode(3000, [&stream[..at], &stream[at..]]), expect, "split at {at}");
        }
    }
    let prelude = [&[b'h'; 2048][..], b"\n"].concat();
    let tail = "o\na[\"x\u{e4}\",\"\\n\"]\n\nh\nc[3000,\"Go away!\"]\na[\"cut o";
    let frames = [
        Seen::Open,
        Seen::Messages(vec!["x\u{e4}".into(), "\n".into()]),
        Seen::Heartbeat,
        Seen::Close(3000, "Go away!".into()),
    ];
    check(&[&prelude, tail.as_bytes()].concat(), &frames, None);
    check(b"o\nx\no\n", &[Seen::Open], Some(Error::BadFrame));
    check(b"o\na[\"\xff\"]\no\n", &[Seen::Open], Some(Error::BadFrame));
    check(&[b"o\n", &[b'h'; 3001][..], b"\n"].concat(), &[Seen::Open], Some(Error::FrameTooBig));
    check(&[b"o\n", &[b'h'; 3000][..], b"\nh\n"].concat(), &[Seen::Open, Seen::Heartbeat], None);
}
