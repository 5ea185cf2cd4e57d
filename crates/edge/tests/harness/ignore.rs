//! Data planes that tests replace: methods that a test has no use for.

/// Implements methods of `CommandInbox` and `DataPlane`, by name: commands are taken and dropped, and nothing is reported.
macro_rules! ignore {
    (publish) => {
        fn publish(&self, _: stentor_edge::Publish) -> Result<(), stentor_edge::Busy> { Ok(()) }
    };
    (receive) => {
        fn receive(&self, _: stentor_edge::Broadcast) -> Result<(), stentor_edge::Busy> { Ok(()) }
    };
    (update_room) => {
        fn update_room(&self, _: &stentor_hub::Room, _: stentor_edge::RoomUpdate) -> Result<(), stentor_edge::Busy> { Ok(()) }
    };
    (decide) => {
        fn decide(&self, _: stentor_edge::Ticket, _: Result<(), stentor_edge::Denial>) -> Result<(), stentor_edge::Busy> { Ok(()) }
    };
    (update_feed) => {
        fn update_feed(&self, _: &stentor_hub::Key, _: stentor_edge::FeedUpdate) -> Result<(), stentor_edge::Busy> { Ok(()) }
    };
    (command) => {
        fn command(&self, _: stentor_edge::Target, _: stentor_edge::Command) {}
    };
    (list_rooms) => {
        fn list_rooms(&self, _: stentor_edge::RoomsQuery, _: stentor_edge::Done<stentor_edge::RoomList>) {}
    };
    (take_wanted) => {
        fn take_wanted(&self) -> Vec<stentor_edge::Wanted> { Vec::new() }
    };
    (metrics) => {
        fn metrics(&self) -> Vec<stentor_edge::Metric> { Vec::new() }
    };
    (readiness) => {
        fn readiness(&self) -> stentor_edge::Readiness { stentor_edge::Readiness::default() }
    };
    (pause_accepting) => {
        fn pause_accepting(&self, _: bool, _: stentor_edge::Done<()>) {}
    };
    (drain) => {
        fn drain(&self, _: stentor_edge::Drain) {}
    };
    ($($method:ident),+ $(,)?) => { $(ignore!($method);)+ };
}
