use super::*;
use crate::publication::{Body, Data};
use crate::topic::Room;
use bytes::Bytes;

struct Rig {
    live: LiveBytes,
    now: Instant,
    log: Log<u64>,
}

fn rig(publications_max: usize, age_max: Duration) -> Rig {
    let live = LiveBytes::default();
    // All bodies of this test have 4 bytes.
    let bytes_max = publications_max * (RECOVERY_ENTRY_BYTES + 4);
    let limits = RecoveryLimits { bytes_max, age_max };
    Rig { log: Log::new(Some(limits), live.clone()), live, now: Instant::now() }
}

impl Rig {
    fn push(&mut self, id: u64) {
        let data = Data::Text(Bytes::from_static(b"text"));
        let room = Room::plain("r").unwrap();
        let body = Body::Message { room, event: None, data, position: None };
        let publication = Publication::new(id, true, body, &self.live);
        self.log.push(self.now, &publication, &[0], Box::default(), &Exceptions::default(), None);
    }

    fn since(&self, index: LogIndex) -> Option<Vec<(LogIndex, u64)>> {
        Some(self.log.since(index)?.map(|(index, entry)| (index, entry.publication.id())).collect())
    }
}

#[test]
fn an_entry_takes_about_the_bytes_it_counts() {
    // Frames are references; the publication has inline space for the first one.
    let bytes = size_of::<Publication<Arc<()>>>() + size_of::<Entry<Arc<()>>>();
    assert!((RECOVERY_ENTRY_BYTES * 3 / 4..=RECOVERY_ENTRY_BYTES).contains(&bytes), "{bytes}");
}

#[test]
fn entries_over_the_byte_limit_are_evicted_oldest_first() {
    let mut rig = rig(3, Duration::from_secs(9));
    assert_eq!(rig.since(0), Some(vec![]));
    for id in 10..14 {
        rig.push(id);
    }
    assert_eq!(
        [10, 11, 13].map(|id| rig.log.find(id, SessionId { index: 0, generation: 0 })),
        [None, Some(1), Some(3)]
    );
    assert_eq!(rig.since(0), None);
    assert_eq!(rig.since(1), Some(vec![(1, 11), (2, 12), (3, 13)]));
    assert_eq!(rig.since(4), Some(vec![]));
    assert_eq!(rig.since(5), None, "never was");
    assert_eq!((rig.log.figures().publications, rig.log.figures().evicted), (3, 1));
    assert_eq!(rig.log.figures().bytes, 3 * (RECOVERY_ENTRY_BYTES + 4));
    assert_eq!(rig.log.evict_oldest(), RECOVERY_ENTRY_BYTES + 4);
    assert_eq!(rig.since(2), Some(vec![(2, 12), (3, 13)]));
}

#[test]
fn old_entries_expire() {
    let mut rig = rig(100, Duration::from_secs(9));
    rig.push(10);
    rig.now += Duration::from_secs(5);
    rig.push(11);
    rig.now += Duration::from_secs(5);
    rig.log.expire(rig.now);
    assert_eq!(rig.since(1), Some(vec![(1, 11)]));
    rig.now += Duration::from_secs(5);
    rig.log.expire(rig.now);
    let expired = LogStats { expired: 2, ..LogStats::default() };
    assert_eq!((rig.log.figures(), rig.log.next(), rig.live.bytes()), (expired, 2, 0));
    assert_eq!(rig.log.evict_oldest(), 0);
    assert_eq!(rig.log.figures(), expired);
}

#[test]
fn a_publication_larger_than_the_log_empties_it() {
    let mut rig = rig(0, Duration::from_secs(9));
    rig.push(10);
    assert_eq!((rig.log.next(), rig.since(0), rig.since(1)), (1, None, Some(vec![])));
}
