use super::*;

fn entry(subscription: u32, bytes: u32) -> Entry {
    // The publication doesn't matter here; the entry must only not be a marker.
    Entry { subscription, publication_ref: PublicationRef::for_test(bytes), bytes }
}

fn waiting(outbox: &Outbox) -> Vec<(u32, u32)> {
    outbox.iter().map(|e| (e.subscription, e.bytes)).collect()
}

fn slots(outbox: &Outbox) -> usize {
    outbox.rest.as_ref().map_or(0, |rest| rest.entries.len())
}

#[test]
fn first_in_first_out_without_memory_when_empty() {
    let mut outbox = Outbox::default();
    for n in 1..=5 {
        outbox.push(entry(0, n));
    }
    for n in 1..=5 {
        assert_eq!(outbox.front(), Some(entry(0, n)));
        outbox.pop();
    }
    assert_eq!(outbox.front(), None);
    outbox.pop();
    assert!(outbox.rest.is_none());
}

#[test]
fn the_oldest_droppable_goes_first() {
    let mut outbox = Outbox::default();
    outbox.push(Entry::marker(7));
    for n in 1..=4 {
        outbox.push(entry(n % 2, n));
    }
    assert_eq!(outbox.drop_oldest(|s| s == 0), Some(entry(0, 2)));
    assert_eq!(outbox.drop_oldest(|s| s == 0), Some(entry(0, 4)));
    assert_eq!(outbox.drop_oldest(|s| s == 0), None);
    assert_eq!(waiting(&outbox), [(7, 0), (1, 1), (1, 3)]);
    assert_eq!(outbox.drop_oldest(|_| true), None, "each entry is looked at once");
    outbox.policy_changed();
    assert_eq!(outbox.drop_oldest(|_| true), Some(entry(1, 1)));
    outbox.push(entry(0, 6));
    assert_eq!(outbox.drop_oldest(|s| s == 0), Some(entry(0, 6)));
    outbox.pop();
    assert_eq!(waiting(&outbox), [(1, 3)]);
}

#[test]
fn dropping_the_first_moves_the_next_up() {
    let mut outbox = Outbox::default();
    outbox.push(entry(0, 1));
    outbox.push(entry(0, 2));
    assert_eq!(outbox.drop_oldest(|_| true), Some(entry(0, 1)));
    assert_eq!(outbox.front(), Some(entry(0, 2)));
    assert_eq!(outbox.drop_oldest(|_| true), Some(entry(0, 2)));
    assert_eq!(outbox.front(), None);
}

#[test]
fn a_stalled_session_that_drops_the_oldest_doesnt_grow() {
    let mut outbox = Outbox::default();
    for n in 0..3 {
        outbox.push(entry(1, n));
    }
    for n in 0..10_000 {
        outbox.push(entry(0, n));
        if n >= 50 {
            assert_eq!(outbox.drop_oldest(|s| s == 0), Some(entry(0, n - 50)));
        }
        assert!(slots(&outbox) <= 2 * 53 + HOLES_MIN, "{} after {n}", slots(&outbox));
    }
    assert_eq!(waiting(&outbox).len(), 53);
}

#[test]
fn taking_a_subscription_out_leaves_the_others() {
    let mut outbox = Outbox::default();
    outbox.push(entry(0, 1));
    outbox.push(Entry::marker(1));
    for n in 2..=6 {
        outbox.push(entry(n % 2, n));
    }
    assert_eq!(outbox.drop_oldest(|s| s == 1), Some(entry(1, 3)));
    let mut out = Vec::new();
    outbox.take_out(0, |e| out.push(e.bytes));
    assert_eq!(out, [1, 2, 4, 6]);
    assert_eq!(waiting(&outbox), [(1, 0), (1, 5)]);
    outbox.take_out(1, |_| {});
    assert!(outbox.front().is_none() && outbox.rest.is_none());
    outbox.take_out(HOLE - 1, |_| unreachable!());
}
