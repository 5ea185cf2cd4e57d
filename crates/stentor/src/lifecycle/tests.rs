//! Tests of every way in which the server ends, with a fake data plane.

use super::*;
use parking_lot::Mutex;
use stentor_ports::fake::{self, Call};
use tokio::sync::Notify;

/// A data plane that records calls of `drain`.
#[derive(Default)]
struct Drains {
    drained: Mutex<Vec<Drain>>,
    told: Notify,
}

impl Drains {
    fn data_plane(self: &Arc<Self>) -> Arc<fake::Node> {
        let this = self.clone();
        Arc::new(fake::Node::new(move |call| {
            if let Call::Drain(drain) = call {
                this.drained.lock().push(drain);
                this.told.notify_one();
            }
            Ok(())
        }))
    }
}

const TEN: Duration = Duration::from_secs(10);
const SLOW: Drain =
    Drain { delay: TEN, window: TEN, timeout: TEN, new_connections: NewConnections::Accepted };

/// Runs the server with these signals, and asserts the outcome and the number of calls of `drain`. `ends`
/// says when the data plane ends. If `fails` is `true`, the control plane fails.
async fn check(signals: &[&'static str], ends: Ends, fails: bool, expect: Outcome, drains: usize) {
    let plane = Arc::<Drains>::default();
    let (sender, receiver) = mpsc::channel(3);
    for name in signals {
        sender.send(*name).await.unwrap();
    }
    let ended = {
        let plane = plane.clone();
        async move {
            match ends {
                Ends::ByItself => {}
                Ends::WhenTold => plane.told.notified().await,
                Ends::Fails => return Err(CoreFailed { core: 1, error: None }),
                Ends::FailsWhenTold => {
                    plane.told.notified().await;
                    return Err(CoreFailed { core: 1, error: None });
                }
                Ends::Never => std::future::pending().await,
            }
            Ok(())
        }
    };
    let failed = async move {
        if !fails {
            std::future::pending().await
        }
    };
    let outcome = run(plane.data_plane(), ended, failed, receiver, || SLOW).await;
    assert_eq!(outcome, expect);
    let told = match signals.first() {
        Some(&"SIGINT") => vec![Drain::within(TEN)],
        Some(&TAKEOVER) => {
            let new_connections = NewConnections::Elsewhere;
            vec![Drain { delay: TAKEOVER_DELAY, new_connections, ..SLOW }, Drain::within(TEN)]
        }
        _ => vec![SLOW],
    };
    assert_eq!(*plane.drained.lock(), told[..drains]);
    drop(sender);
}

#[derive(Clone, Copy)]
enum Ends {
    ByItself,
    WhenTold,
    Fails,
    FailsWhenTold,
    Never,
}

#[tokio::test(start_paused = true)]
async fn every_end_has_its_outcome() {
    check(&["SIGTERM"], Ends::WhenTold, false, Outcome::Drained, 1).await;
    check(&["SIGINT"], Ends::Never, false, Outcome::TimedOut, 1).await;
    check(&["SIGTERM"], Ends::Never, false, Outcome::TimedOut, 1).await;
    check(&["SIGINT", "SIGINT"], Ends::Never, false, Outcome::Forced, 1).await;
    check(&[TAKEOVER], Ends::WhenTold, false, Outcome::Drained, 1).await;
    // The takeover has started the drain. SIGTERM doesn't start another one, and SIGINT shortens it.
    check(&[TAKEOVER, "SIGTERM"], Ends::Never, false, Outcome::TimedOut, 1).await;
    check(&[TAKEOVER, "SIGINT"], Ends::Never, false, Outcome::TimedOut, 2).await;
    check(&[TAKEOVER, "SIGTERM", "SIGTERM"], Ends::Never, false, Outcome::Forced, 1).await;
    check(&[], Ends::ByItself, false, Outcome::Failed, 0).await;
    check(&[], Ends::Fails, false, Outcome::Failed, 0).await;
    check(&["SIGTERM"], Ends::FailsWhenTold, false, Outcome::Failed, 1).await;
    check(&[], Ends::Never, true, Outcome::Failed, 0).await;
}
