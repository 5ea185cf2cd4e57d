use super::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

fn publication(live: &LiveBytes, bytes: usize) -> Arc<Publication<Vec<u8>>> {
    let data = Data::Text(vec![b'x'; bytes].into());
    let room = Room::plain("r").unwrap();
    Publication::new(1, false, Body::Message { room, event: None, data, position: None }, live)
}

#[test]
fn the_name_of_an_event_counts() -> Result<(), crate::RoomError> {
    let (live, event) = (LiveBytes::default(), Some("e".repeat(1_000).into()));
    let body =
        Body::Message { room: Room::plain("r")?, event, data: Data::Text("data".into()), position: None };
    assert_eq!(body.len(), 1_004);
    let publication = Publication::<Vec<u8>>::new(1, false, body, &live);
    assert!(live.bytes() > 1_004);
    drop(publication);
    assert_eq!(live.bytes(), 0);
    Ok(())
}

#[test]
fn attachments_count() {
    let attachments: Arc<[Bytes]> = [Bytes::from_static(b"abc"), Bytes::new()].into();
    let json = Bytes::from_static(b"1,{\"_placeholder\":true,\"num\":0}");
    let bytes = json.len() + 3;
    assert_eq!(Data::Arguments { json, attachments: attachments.clone() }.len(), bytes);
    assert!(!Data::Arguments { json: Bytes::new(), attachments }.is_empty());
    assert!(Data::Arguments { json: Bytes::new(), attachments: [].into() }.is_empty());
}

/// Requests all formats of a body of this size from four threads, each in another order. Returns how often
/// each format was made.
fn race(bytes: usize) -> [usize; FORMATS_MAX] {
    let publication = publication(&LiveBytes::default(), bytes);
    let made = [const { AtomicUsize::new(0) }; FORMATS_MAX];
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (publication, made, start) = (&publication, &made, &start);
            scope.spawn(move || {
                start.wait();
                for n in 0..FORMATS_MAX {
                    let format = (n * [1, 3, 5, 7][thread] + thread) % FORMATS_MAX;
                    let encoded = || {
                        publication.encoded(FormatId(format as u8), |publication| {
                            made[format].fetch_add(1, Ordering::Relaxed);
                            (format != 3).then(|| vec![format as u8; publication.body().len()])
                        })
                    };
                    let expect = (format != 3).then(|| vec![format as u8; bytes]);
                    match encoded() {
                        Encoded::Shared(frame, _) => assert_eq!(frame, expect),
                        Encoded::Own(frame) => assert_eq!(frame, expect),
                        Encoded::InProgress => {
                            while publication.is_being_encoded(FormatId(format as u8)) {
                                std::thread::yield_now();
                            }
                            assert_eq!(encoded(), Encoded::Shared(expect, false));
                        }
                    }
                }
            });
        }
    });
    made.map(AtomicUsize::into_inner)
}

#[test]
fn large_encodings_are_made_once_and_small_ones_at_most_once_per_core() {
    assert_eq!(race(OWN_ENCODING_BYTES_MAX + 1), [1; FORMATS_MAX]);
    assert!(race(OWN_ENCODING_BYTES_MAX).iter().all(|made| (1..=4).contains(made)));
}

#[test]
fn no_core_waits_for_an_encoding_that_another_core_makes() {
    let large = publication(&LiveBytes::default(), OWN_ENCODING_BYTES_MAX + 1);
    let small = publication(&LiveBytes::default(), 1);
    // During the encoding, requests the same format as another core would.
    for publication in [&large, &small] {
        let inner = |_: &Publication<Vec<u8>>| {
            let other = publication.encoded(FormatId(1), |_| Some(vec![2]));
            let expect =
                if publication.body().len() == 1 { Encoded::Own(Some(vec![2])) } else { Encoded::InProgress };
            assert_eq!(other, expect);
            assert!(publication.is_being_encoded(FormatId(1)));
            Some(vec![1])
        };
        assert_eq!(publication.encoded(FormatId(1), inner), Encoded::Shared(Some(vec![1]), true));
        assert!(!publication.is_being_encoded(FormatId(1)));
    }
}

#[test]
fn a_forgotten_encoding_is_made_again() {
    let publication = publication(&LiveBytes::default(), OWN_ENCODING_BYTES_MAX + 1);
    let encoded = |frame| publication.encoded(FormatId(1), |_| Some(vec![frame]));
    assert_eq!(encoded(1), Encoded::Shared(Some(vec![1]), true));
    assert_eq!(encoded(2), Encoded::Shared(Some(vec![1]), false));
    publication.forget_encodings();
    assert_eq!(encoded(3), Encoded::Shared(Some(vec![3]), true));
    // An encoding that a core is making isn't dropped.
    let inner = |publication: &Publication<Vec<u8>>| {
        publication.forget_encodings();
        assert_eq!(publication.encoded(FormatId(2), |_| None), Encoded::InProgress);
        None
    };
    assert_eq!(publication.encoded(FormatId(2), inner), Encoded::Shared(None, true));
    assert_eq!(encoded(4), Encoded::Shared(Some(vec![4]), true));
}

#[test]
fn live_bytes_are_released_with_the_last_reference() {
    let live = LiveBytes::default();
    let one = publication(&live, 5);
    let two = one.clone();
    let bytes = live.bytes();
    assert!(bytes > 5);
    drop(one);
    assert_eq!(live.bytes(), bytes);
    drop(two);
    assert_eq!(live.bytes(), 0);
}
