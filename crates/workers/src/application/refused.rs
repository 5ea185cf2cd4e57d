//! Reports of refused requests: from the cores to a worker that listens.

use super::Applications;
use crate::refused::body;
use std::time::Instant;
use stentor_link::Link;
use stentor_ports::{LinkApp, LinkRefused};

impl Applications {
    pub(super) fn handle_refused(&mut self, refused: &LinkRefused, now: Instant) {
        let app = usize::from(refused.app.0);
        if let Some(application) = self.applications.get_mut(app)
            && let Some(error) = body(refused)
        {
            application.report_error(error, now);
            self.act(app, now);
        }
    }

    /// Gives the cores the reports of each application that has a listening worker.
    pub(crate) fn update_reports(&mut self, now: Instant) {
        for (app, application) in self.applications.iter().enumerate() {
            let listens = application.links().any(Link::takes_errors);
            self.reports[app].update(listens, LinkApp(app as u16), &self.engines, now);
        }
    }
}
