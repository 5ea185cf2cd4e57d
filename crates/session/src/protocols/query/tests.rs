//! Query strings of the requests that open connections.

use super::*;
use crate::executor::SubscribeOptions;
use crate::model::Policy;
use std::time::Duration;

#[test]
fn queries() {
    let feeds = |query: &str| ConnectQuery::parse(query, &KeyRule::default())?.feeds(None, true);
    let refused = |query: &str| feeds(query).err().unwrap_or_default();
    let Feeds { keys, options } = feeds("feed=a%2Fb&x=1&resourceId=c&rate=2&delta=0&policy=latest").unwrap();
    assert_eq!(keys.iter().map(Key::as_str).collect::<Vec<_>>(), ["a/b", "c"]);
    let interval = Duration::from_millis(500);
    assert_eq!(options, SubscribeOptions { policy: Policy::Latest, deltas: false, interval });
    assert!(feeds("").unwrap().keys.is_empty());
    assert!(refused("feed=a//b").starts_with("feed: the key has an empty segment"));
    assert!(refused("policy=slowly").contains("no policy \"slowly\""));
    for query in ["rate=", "rate=x", "rate=0", "rate=NaN", "rate=2&policy=queue"] {
        assert!(refused(query).contains("rate"), "{query}: {}", refused(query));
    }
    assert_eq!(refused("delta=yes"), "delta is 1 or 0");
    let query = ConnectQuery::parse("format=raw&lastEventId=a!1!2", &KeyRule::default()).unwrap();
    assert_eq!((query.raw, query.last_event_id.as_deref()), (true, Some("a!1!2")));
}
