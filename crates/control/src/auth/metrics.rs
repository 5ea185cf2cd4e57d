//! Metrics of tokens, keys and revocations.

use super::fetch::FetchError;
use crate::declare::metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::Arc;
use stentor_auth::Refused;

/// Labels of a fetch of keys: the issuer and the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FetchLabels {
    pub(crate) issuer: Arc<str>,
    pub(crate) outcome: &'static str,
}

/// Label of a refusal: its reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RefusalLabels {
    pub(crate) reason: &'static str,
}

/// Label of an issuer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct IssuerLabels {
    pub(crate) issuer: Arc<str>,
}

metrics! {
    /// The metrics.
    pub(crate) struct AuthMetrics {
        pub(super) accepted: Counter,
            "auth_tokens_verified", "Tokens whose signature was verified and that were accepted";
        pub(super) cached: Counter,
            "auth_tokens_cached", "Tokens accepted because they were verified before";
        pub(super) anonymous: Counter,
            "auth_anonymous", "Clients accepted without a token";
        pub(super) refused: Family<RefusalLabels, Counter>,
            "auth_refusals", "Clients and tokens refused, by reason";
        pub(super) denied: Counter,
            "auth_denials", "Actions of clients refused because no permission allows them";
        pub(super) fetches: Family<FetchLabels, Counter>,
            "auth_key_fetches", "Fetches of an issuer's keys, by issuer and outcome";
        pub(super) keys: Family<IssuerLabels, Gauge>,
            "auth_keys", "Keys of an issuer that are known";
        pub(super) waiting: Gauge,
            "auth_waiting_tokens", "Tokens that wait for the keys of their issuers";
        pub(super) cache_bytes: Gauge,
            "auth_cache_bytes", "Size of the tokens that were verified";
        pub(super) revocations: Gauge,
            "auth_revocations", "Entries of the list of revocations";
    }
}

/// Reasons for refusing a client, in addition to the reasons for refusing a token ([`Refused::LABELS`]).
pub(super) const REASONS: [&str; 4] = ["missing", "other_user", "revoked", "unavailable"];

impl AuthMetrics {
    /// Adds one sample of every metric, for the generated reference.
    pub(crate) fn sample(&self, issuer: &Arc<str>) {
        for reason in REASONS.into_iter().chain(Refused::LABELS) {
            self.refuse(reason);
        }
        for outcome in ["ok"].into_iter().chain(FetchError::LABELS) {
            self.fetches.get_or_create(&FetchLabels { issuer: issuer.clone(), outcome }).inc();
        }
        self.keys.get_or_create(&IssuerLabels { issuer: issuer.clone() }).set(1);
    }

    pub(super) fn refuse(&self, reason: &'static str) {
        self.refused.get_or_create(&RefusalLabels { reason }).inc();
    }
}
