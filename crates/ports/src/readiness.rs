//! The readiness of a node for new clients: the answer to `GET /readyz`.

use std::fmt;
use std::time::SystemTime;

/// A lost connection to the engine of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineAway {
    /// The time at which the connection was lost, or at which the node started without a connection.
    pub since: SystemTime,
    /// `true` if the node should get no new clients, because other nodes serve them better.
    pub makes_unready: bool,
}

impl fmt::Display for EngineAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "engine away since {}", httpdate::fmt_http_date(self.since))
    }
}

/// The state of a node that `/readyz` reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// `true` after the signal to shut down.
    pub is_draining: bool,
    /// The lost connection to the engine. `None` if the engine is connected, or the node has no engine.
    pub engine_away: Option<EngineAway>,
}

impl Readiness {
    /// `true` if `/readyz` answers 200.
    pub fn is_ready(&self) -> bool {
        !self.is_draining && !self.engine_away.is_some_and(|away| away.makes_unready)
    }

    /// The HTTP status of the answer.
    pub fn status(&self) -> u16 {
        if self.is_ready() { 200 } else { 503 }
    }
}

/// Formats the body of the answer, without the final line break.
impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self { is_draining: true, .. } => "shutting down",
            _ if self.is_ready() => "ready",
            _ => "not ready",
        })?;
        match self.engine_away {
            Some(away) => write!(f, "; {away}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn the_answer_names_the_missing_engine() {
        fn check(is_draining: bool, makes_unready: Option<bool>, expect: (u16, &str)) {
            let since = UNIX_EPOCH + Duration::from_secs(784_111_777);
            let engine_away = makes_unready.map(|makes_unready| EngineAway { since, makes_unready });
            let readiness = Readiness { is_draining, engine_away };
            assert_eq!((readiness.status(), &*readiness.to_string()), expect);
        }
        check(false, None, (200, "ready"));
        check(true, None, (503, "shutting down"));
        check(false, Some(false), (200, "ready; engine away since Sun, 06 Nov 1994 08:49:37 GMT"));
        check(false, Some(true), (503, "not ready; engine away since Sun, 06 Nov 1994 08:49:37 GMT"));
        check(true, Some(false), (503, "shutting down; engine away since Sun, 06 Nov 1994 08:49:37 GMT"));
    }
}
