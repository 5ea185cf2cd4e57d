use super::*;

/// A frame that owns its text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Observed {
    Open,
    Heartbeat,
    Messages(Vec<String>),
    Close(u16, String),
}

impl From<ServerFrame<'_>> for Observed {
    fn from(frame: ServerFrame<'_>) -> Observed {
        match frame {
            ServerFrame::Open => Observed::Open,
            ServerFrame::Heartbeat => Observed::Heartbeat,
            ServerFrame::Messages(messages) => {
                Observed::Messages(messages.map(|text| text.into_owned()).collect())
            }
            ServerFrame::Close { code, reason } => Observed::Close(code, reason.into_owned()),
        }
    }
}

pub(super) fn decode<'b>(
    frame_bytes_max: usize,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> (Vec<Observed>, Option<Error>) {
    let mut decoder = FrameDecoder::new(frame_bytes_max, Limits::default());
    let mut seen = Vec::new();
    for piece in pieces {
        let mut at = 0;
        while at < piece.len() {
            match decoder.receive(&piece[at..]) {
                Ok(received) => {
                    assert!(received.consumed > 0 && received.consumed <= piece.len() - at);
                    at += received.consumed;
                    seen.extend(received.frame.map(Observed::from));
                }
                Err(error) => return (seen, Some(error)),
            }
        }
    }
    (seen, None)
}

#[test]
fn frames_are_decoded() {
    fn check(text: &str, expect: Option<Observed>) {
        assert_eq!(ServerFrame::parse(text, &Limits::default()).ok().map(Observed::from), expect, "{text:?}");
    }
    let messages =
        |texts: &[&str]| Some(Observed::Messages(texts.iter().map(|&text| text.to_owned()).collect()));
    check("o", Some(Observed::Open));
    check("h", Some(Observed::Heartbeat));
    check("a[]", messages(&[]));
    check(r#"a["a","\u0062"]"#, messages(&["a", "b"]));
    check(r#"m"a""#, messages(&["a"]));
    check(r#"c[3000,"Go away!"]"#, Some(Observed::Close(3000, "Go away!".into())));
    check(r#"c[ 1000 , "\n" ] "#, Some(Observed::Close(1000, "\n".into())));
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
    fn check(stream: &[u8], expect: &[Observed], error: Option<Error>) {
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
        Observed::Open,
        Observed::Messages(vec!["x\u{e4}".into(), "\n".into()]),
        Observed::Heartbeat,
        Observed::Close(3000, "Go away!".into()),
    ];
    check(&[&prelude, tail.as_bytes()].concat(), &frames, None);
    check(b"o\nx\no\n", &[Observed::Open], Some(Error::BadFrame));
    check(b"o\na[\"\xff\"]\no\n", &[Observed::Open], Some(Error::BadFrame));
    check(&[b"o\n", &[b'h'; 3001][..], b"\n"].concat(), &[Observed::Open], Some(Error::FrameTooBig));
    check(&[b"o\n", &[b'h'; 3000][..], b"\nh\n"].concat(), &[Observed::Open, Observed::Heartbeat], None);
}
