use super::*;
use crate::key::Key;
use crate::publication::{Body, Document, Epoch, FeedState, Position};

fn past(patches: &[&str], patches_max: usize, bytes_max: usize) -> PatchHistory {
    let live = LiveBytes::default();
    let mut past = PatchHistory::default();
    for patch in patches {
        past.push(StoredPatch::new(patch.as_bytes(), &live), patches_max, bytes_max);
    }
    past
}

#[test]
fn the_newest_patches_stay() {
    fn check(patches_max: usize, bytes_max: usize, expect: &[&str]) {
        let past = past(&["[1]", "[2,2]", "[3]", "[4]"], patches_max, bytes_max);
        let kept: Vec<_> = past.patches.iter().map(|step| &step.operations[..]).collect();
        assert_eq!(kept, expect.iter().map(|patch| patch.as_bytes()).collect::<Vec<_>>());
        assert_eq!(past.bytes, expect.iter().map(|patch| patch.len()).sum::<usize>());
    }
    check(9, 99, &["[1]", "[2,2]", "[3]", "[4]"]);
    check(2, 99, &["[3]", "[4]"]);
    check(9, 11, &["[2,2]", "[3]", "[4]"]);
    check(9, 10, &["[3]", "[4]"]);
    check(9, 2, &[]);
    check(0, 99, &[]);
}

fn version(patches: &[&str]) -> Version<()> {
    let past = past(patches, 100, 10_000);
    Version::new(past.patches.last().unwrap().clone(), past)
}

/// Makes the publication of a version of this size.
fn snapshot(bytes: usize) -> Arc<Publication<()>> {
    let position = Position { epoch: Epoch(7), offset: 1000 };
    let document = Document { body: vec![b'x'; bytes].into(), json: true, content_type: "".into() };
    let (key, state, document) = (Key::parse("k").unwrap(), FeedState::Live, Arc::new(document));
    let body = Body::Snapshot { key, position, state, snapshot_reason: None, document };
    Publication::new(1, false, body, &LiveBytes::default())
}

fn base_and_patch(made: Option<Arc<Publication<()>>>) -> Option<(u64, String)> {
    made.map(|made| match made.body() {
        Body::Delta { base, patch, .. } => (*base, String::from_utf8(patch.to_vec()).unwrap()),
        _ => unreachable!(),
    })
}

#[test]
fn sessions_further_behind_get_joined_patches_while_they_are_shorter() {
    let version = version(&["[1]", "[2]", "[3]"]);
    assert_eq!(base_and_patch(version.delta_from(1, &snapshot(100))), Some((999, "[3]".into())));
    assert!(!version.was_used());
    assert_eq!(base_and_patch(version.delta_from(2, &snapshot(100))), Some((998, "[2,3]".into())));
    assert!(version.was_used() && !version.was_used());
    let again = version.delta_from(2, &snapshot(100)).unwrap();
    assert!(Arc::ptr_eq(&again, &version.delta_from(2, &snapshot(100)).unwrap()), "made once");
    assert_eq!(base_and_patch(version.delta_from(3, &snapshot(7))), None, "as long as the document");
    assert_eq!(base_and_patch(version.delta_from(4, &snapshot(100))), None, "longer ago than is kept");
    version.forget_forms();
    assert!(!Arc::ptr_eq(&again, &version.delta_from(2, &snapshot(100)).unwrap()), "made again");
    version.forget_past();
    assert_eq!(base_and_patch(version.delta_from(1, &snapshot(100))), Some((999, "[3]".into())));
}

#[test]
fn only_an_unused_version_gives_its_patches_away() {
    let version = version(&["[1]", "[2]"]);
    assert_eq!((version.past_for_next(false).bytes, version.past_size()), (6, (2, 6)));
    assert_eq!((version.past_for_next(true).bytes, version.past_size()), (6, (0, 0)));
}

#[test]
fn all_joined_together_are_no_longer_than_the_document() {
    let patches: Vec<String> = (0..60).map(|n| format!("[{}]", 10 + n)).collect();
    let patches: Vec<&str> = patches.iter().map(String::as_str).collect();
    let (few, many) = (version(&patches), version(&patches));
    let made: usize =
        (2..60).filter_map(|n| few.delta_from(n, &snapshot(300))).map(|made| made.body().len()).sum();
    assert!((200..=300).contains(&made), "{made}");
    assert_eq!((2..60).filter_map(|n| many.delta_from(n, &snapshot(1 << 20))).count(), JOINS_MAX);
}
