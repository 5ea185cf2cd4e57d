use super::*;

fn check_bounded(
    event_bytes_max: usize,
    stream: &[u8],
    expect: &[Observed],
    error: Option<Error>,
    last_id: &str,
) {
    let expect = (expect.to_vec(), error, last_id.to_owned());
    let stream_text = String::from_utf8_lossy(stream);
    assert_eq!(decode(event_bytes_max, [stream]), expect, "{stream_text:?}");
    assert_eq!(decode(event_bytes_max, stream.chunks(1)), expect, "{stream_text:?} byte by byte");
    for at in 0..=stream.len() {
        let halves = [&stream[..at], &stream[at..]];
        assert_eq!(decode(event_bytes_max, halves), expect, "{stream_text:?} split at {at}");
    }
}

/// Checks the stream with each kind of line end, if it has LF only.
fn check(stream: &str, expect: &[Observed], last_id: &str) {
    check_bounded(1000, stream.as_bytes(), expect, None, last_id);
    if !stream.contains('\r') {
        check_bounded(1000, stream.replace('\n', "\r").as_bytes(), expect, None, last_id);
        check_bounded(1000, stream.replace('\n', "\r\n").as_bytes(), expect, None, last_id);
    }
}

#[test]
fn examples_of_the_standard_are_decoded() {
    let message = |data| seen("message", data, "");
    check(
        "data: This is the first message.\n\ndata: This is the second message, it\ndata: has two lines.\n\n",
        &[message("This is the first message."), message("This is the second message, it\nhas two lines.")],
        "",
    );
    check(
        "event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\n",
        &[seen("add", "73857293", ""), seen("remove", "2153", "")],
        "",
    );
    check("data: YHOO\ndata: +2\ndata: 10\n\n", &[message("YHOO\n+2\n10")], "");
    check(
        ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
        &[
            Observed::Comment("test stream".into()),
            seen("message", "first event", "1"),
            message("second event"),
            message(" third event"),
        ],
        "",
    );
    // The last event is truncated.
    check("data\n\ndata\ndata\n\ndata:", &[message(""), message("\n")], "");
    check("data:test\n\ndata: test\n\n", &[message("test"), message("test")], "");
}

#[test]
fn fields_are_decoded() {
    let message = |data| seen("message", data, "");
    // An event without data is discarded. Its id counts, its type doesn't.
    check("event: a\nid: 7\n\ndata: b\n\n", &[seen("message", "b", "7")], "7");
    // An id becomes valid at the end of its event.
    check("id: 1\n\nid: 2\ndata: x\n", &[], "1");
    check("id: a\0b\ndata: x\n\n", &[message("x")], "");
    check(
        "retry: 1500\nretry: +1\nretry: 1x\nretry:\nretry: 99999999999999999999\n",
        &[Observed::Retry(Duration::from_millis(1500))],
        "",
    );
    check("Data: a\n data: b\nfoo: c\nfoo\n\n", &[], "");
    check(":\n:a\n: b\n:  c\n", &["", "a", "b", " c"].map(|text| Observed::Comment(text.into())), "");
    check("data: a:b: c\n\n", &[message("a:b: c")], "");
    check("\n\n\n\n", &[], "");
    check("event: a\nevent: b\nevent\ndata: x\n\n", &[message("x")], "");
    check("data: \u{1f600}\n\n", &[message("\u{1f600}")], "");
}

#[test]
fn line_endings_may_be_mixed() {
    let message = |data| seen("message", data, "");
    check("data: a\r\r\ndata: b\n\r", &[message("a"), message("b")], "");
    check("data: a\n\r\ndata: b\r\n\r\n", &[message("a"), message("b")], "");
    // Three line ends, two empty lines, one event.
    check("data: a\r\n\r\r\n", &[message("a")], "");
}

#[test]
fn byte_order_marks_and_invalid_utf8_are_handled() {
    check("\u{feff}data: a\n\n\u{feff}data: b\n\n", &[seen("message", "a", "")], "");
    check("\u{feff}\ndata: a\n\n", &[seen("message", "a", "")], "");
    check("\u{feff}\u{feff}data: a\n\n", &[], "");
    check_bounded(
        1000,
        b"data: \xff\xe2\x82\ndata: \xac\n\n",
        &[seen("message", "\u{fffd}\u{fffd}\n\u{fffd}", "")],
        None,
        "",
    );
}

#[test]
fn events_are_bounded() {
    let ten = "data: 1234\n";
    let message = [seen("message", "1234", "")];
    check_bounded(
        10,
        format!("{ten}\n{ten}\n").as_bytes(),
        &[message.clone(), message.clone()].concat(),
        None,
        "",
    );
    check_bounded(9, ten.as_bytes(), &[], Some(Error::EventTooBig), "");
    // The lines of one event count together with the current line.
    check_bounded(15, format!("{ten}{ten}").as_bytes(), &[seen("message", "1234\n1234", "")][..0], None, "");
    check_bounded(14, format!("{ten}{ten}").as_bytes(), &[], Some(Error::EventTooBig), "");
    check_bounded(14, format!("{ten}\n:01234567890123\n").as_bytes(), &message, Some(Error::EventTooBig), "");
    // An endless event in small pieces. Any number of ids takes no memory.
    for piece in ["data: x\n", "data", ": xxxxxx", "id: a\r"] {
        let (_, error, _) = decode(10_000, vec![piece.as_bytes(); 100_000]);
        assert_eq!(error.is_none(), piece.starts_with("id"), "{piece}");
    }
}
