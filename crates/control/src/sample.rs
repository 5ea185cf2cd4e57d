//! The text of `/metrics` with a sample of every metric. docs/metrics.md is generated from it.

use crate::admin::reason;
use crate::auth::metrics::AuthMetrics;
use crate::metrics::{FetchLabels, Figures, Metrics, ReasonLabels, UpstreamLabels};
use crate::options::{Expiries, FeedsOptions, ProcessCounter};
use crate::pushed_documents::PushedDocuments;
use crate::schedule::FailureClass;
use crate::signals::Signals;
use crate::view::FeedsView;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use stentor_ports::DataPlane;

/// The name of the upstream in the sample.
const ANY: &str = "any";

/// Returns the text of `/metrics` with at least one sample of every metric, including metrics that normally
/// appear only with their first event. Starts no task.
///
/// # Errors
/// The text can't be encoded.
pub fn sample_metrics(data_plane: DataPlane, counters: Vec<ProcessCounter>) -> Result<String, fmt::Error> {
    let metrics = Metrics::default();
    let upstream = Arc::<str>::from(ANY);
    let outcomes = ["changed", "unchanged", "not_modified"];
    for outcome in outcomes.into_iter().chain(FailureClass::ALL.map(FailureClass::outcome)) {
        metrics.fetches.get_or_create(&FetchLabels { upstream: upstream.clone(), outcome }).inc();
    }
    let auth = AuthMetrics::default();
    auth.sample(&upstream);
    let labels = UpstreamLabels { upstream };
    metrics.fetch_seconds.get_or_create(&labels).observe(0.0);
    metrics.fetch_received_bytes.get_or_create(&labels).inc();
    metrics.upstream_interval.get_or_create(&labels).set(1.0);
    metrics.upstream_max_age.get_or_create(&labels).set(1.0);
    let count = |refusals: &Family<ReasonLabels, Counter>, reason| {
        refusals.get_or_create(&ReasonLabels { reason }).inc();
    };
    reason::publish_refusals().for_each(|reason| count(&metrics.publish_refusals, reason));
    reason::push_refusals().for_each(|reason| count(&metrics.push_refusals, reason));
    reason::refusals().for_each(|reason| count(&metrics.admin_refusals, reason));
    let feeds = Arc::new(FeedsView::with_every_failure(ANY));
    let pushed_documents = PushedDocuments::new(
        FeedsOptions::default(),
        Duration::ZERO,
        data_plane.feeds.clone(),
        Signals::new(),
    );
    let hooks = crate::hooks::Metrics::sample();
    let admin_expiries: Option<Expiries> = Some(Arc::new(|| vec![(ANY.into(), Duration::ZERO)]));
    let figures = Figures { data_plane, feeds, pushed_documents, counters, admin_expiries };
    let registry = metrics.registry(figures, &auth, Some(&hooks));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}
