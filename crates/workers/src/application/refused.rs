//! Reports of refused requests: from the cores to a worker that listens.

use super::Applications;
use crate::refused::body;
use std::time::Instant;
use stentor_link::Link;
use stentor_ports::{LinkApp, LinkRefused};

impl Applications {
    pub(super) fn handle_refused(&mut self, refused: &LinkRefused, now: Instant) {
        let app = usize::from(refused.app.0);
        if self.reports.get_mut(app).is_some_and(|reports| reports.admit(now))
            && let Some(error) = body(refused)
        {
            self.applications[app].report_error(error, now);
            self.act(app, now);
        }
    }

    /// Notifies the cores whether a worker listens.
    pub(crate) fn update_listeners(&self) {
        for (app, application) in self.applications.iter().enumerate() {
            let listens = application.links().any(Link::takes_errors);
            self.engines.set_wants_refused(LinkApp(app as u16), listens);
        }
    }
}
