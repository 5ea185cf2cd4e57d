//! Lists of the sessions of one user.

use super::{Issuer, Node};
use crate::harness::{answer, on_one_and_three};
use stentor_ports::SessionsQuery;

#[test]
fn sessions_are_listed_by_exactly_their_user_and_issuer() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer { lets_anonymous_in: true, ..Issuer::default() }, |_| {});
        let _users = ["42", "42", "142", "421"].map(|token| node.user(token));
        let _io = node.socketio_user("42");
        let _anonymous = node.client();
        let list = |user: Option<&str>, issuer: Option<&str>, limit| {
            let (user, issuer) = (user.map(Into::into), issuer.map(Into::into));
            let query = SessionsQuery { user, issuer, limit, ..SessionsQuery::default() };
            let list = answer(|done| node.plane().list_sessions(query, done)).unwrap();
            let users = list.sessions.iter().filter_map(|info| info.details.user.as_ref());
            let mut users: Vec<String> = users.map(|user| user.subject.to_string()).collect();
            users.sort_unstable();
            (list.count, users.join(" "))
        };
        let issuer = Some("https://id.example.com");
        for (user, issuer, limit, expect) in [
            (Some("42"), issuer, 9, (3, "42 42 42")),
            (Some("42"), None, 9, (3, "42 42 42")),
            (Some("42"), issuer, 2, (3, "42 42")),
            (Some("2"), issuer, 9, (0, "")),
            (Some("42"), Some("https://id.example"), 9, (0, "")),
            (None, issuer, 9, (5, "142 42 42 42 421")),
        ] {
            assert_eq!(list(user, issuer, limit), (expect.0, expect.1.into()), "{user:?} {issuer:?} {limit}");
        }
        assert_eq!(list(None, None, 0).0, 6);
    });
}
