//! Data planes that tests replace: methods that a test has no use for.

/// Implements methods of `CommandInbox` and `DataPlane`, by name: commands are taken and dropped, and nothing is reported.
macro_rules! ignore {
    (publish) => {
        fn publish(&self, _: stentor_ports::Publish) -> Result<(), stentor_ports::Busy> { Ok(()) }
    };
    (receive) => {
        fn receive(&self, _: stentor_ports::Broadcast) -> Result<(), stentor_ports::Busy> { Ok(()) }
    };
    (update_room) => {
        fn update_room(&self, _: &stentor_hub::Room, _: stentor_ports::RoomUpdate) -> Result<(), stentor_ports::Busy> { Ok(()) }
    };
    (decide) => {
        fn decide(&self, _: stentor_ports::Ticket, _: Result<(), stentor_ports::Denial>) -> Result<(), stentor_ports::Busy> { Ok(()) }
    };
    (update_feed) => {
        fn update_feed(&self, _: &stentor_hub::Key, _: stentor_ports::FeedUpdate) -> Result<(), stentor_ports::Busy> { Ok(()) }
    };
    (command) => {
        fn command(&self, _: stentor_ports::Target, _: stentor_ports::Command) {}
    };
    (list_rooms) => {
        fn list_rooms(&self, _: stentor_ports::RoomsQuery, _: stentor_ports::Done<stentor_ports::RoomList>) {}
    };
    (take_wanted) => {
        fn take_wanted(&self) -> Vec<stentor_ports::Wanted> { Vec::new() }
    };
    (metrics) => {
        fn metrics(&self) -> Vec<stentor_ports::Metric> { Vec::new() }
    };
    (readiness) => {
        fn readiness(&self) -> stentor_ports::Readiness { stentor_ports::Readiness::default() }
    };
    (pause_accepting) => {
        fn pause_accepting(&self, _: bool, _: stentor_ports::Done<()>) {}
    };
    (drain) => {
        fn drain(&self, _: stentor_ports::Drain) {}
    };
    ($($method:ident),+ $(,)?) => { $(ignore!($method);)+ };
}
