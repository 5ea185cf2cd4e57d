use super::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = b"before".to_vec();
    write(&mut out);
    String::from_utf8(out).unwrap()["before".len()..].to_owned()
}

#[test]
fn events_are_written() {
    fn check(id: Option<&str>, event: Option<&str>, data: &str, expect: &str) {
        assert_eq!(written(|out| write_event(out, &Event { id, event, data })), expect);
    }
    check(None, None, "", "data: \n\n");
    check(None, None, "{\"a\":1}", "data: {\"a\":1}\n\n");
    check(Some("7"), Some("snapshot"), " x", "id: 7\nevent: snapshot\ndata:  x\n\n");
    check(None, None, "a\nb\r\nc\rd\n", "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
    check(None, None, "\r\n\n\r", "data: \ndata: \ndata: \ndata: \n\n");
    // A value can't inject lines.
    check(Some("7\ndata: x\n\n"), Some("a\rretry: 1\0"), "b", "id: 7data: x\nevent: aretry: 1\ndata: b\n\n");
}

#[test]
fn comments_and_delays_are_written() {
    assert_eq!(written(|out| write_comment(out, "")), ": \n");
    assert_eq!(written(|out| write_comment(out, "a\n\ndata: b")), ": a\n: \n: data: b\n");
    assert_eq!(written(|out| write_retry(out, Duration::from_micros(1_500_900))), "retry: 1500\n");
}

fn event() -> impl Strategy<Value = (Option<String>, Option<String>, String)> {
    (option::of("[^\r\n\0]{0,9}"), option::of("[^\r\n\0]{1,9}"), "(?s)(.|[\r\n :]){0,30}")
}

proptest! {
    #[test]
    fn written_events_are_decoded(events in vec(event(), 0..6), size in 1..30usize) {
        let mut out = Vec::new();
        let (mut expect, mut last_id) = (Vec::new(), String::new());
        for (id, event, data) in &events {
            write_event(&mut out, &Event { id: id.as_deref(), event: event.as_deref(), data });
            last_id = id.clone().unwrap_or(last_id);
            let data = data.replace("\r\n", "\n").replace('\r', "\n");
            expect.push(seen(event.as_deref().unwrap_or("message"), &data, &last_id));
        }
        prop_assert_eq!(decode(usize::MAX, out.chunks(size)), (expect, None, last_id));
    }

    #[test]
    fn chunk_boundaries_do_not_change_the_result(
        stream in "([a-c:\r\n\0\u{feff}é ]|data|event:|id: |retry:9|\n\n){0,40}",
        size in 1..9usize,
    ) {
        prop_assert_eq!(decode(40, stream.as_bytes().chunks(size)), decode(40, [stream.as_bytes()]));
    }
}
