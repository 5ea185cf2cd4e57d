//! Replacement for cluster membership in a build without engines. No node is a member, because the
//! configuration refuses all settings that need an engine.

use crate::config::options::ClusterOptions;
use std::convert::Infallible;
use std::future::Ready;
use std::sync::Arc;
use stentor_ports::{
    Broker, ControlPlane, DataPlane, Ledger, LinkCarrier, LocalNode, NodeTag, NoticeSink, Relay,
    RevocationList,
};

/// A node that is connected to its engine.
pub(crate) struct Joining(Infallible);

/// A node of a cluster.
pub(crate) struct Member(Infallible);

pub(crate) async fn connect(
    _: ClusterOptions,
    _: &stentor_edge::Options,
    _: &stentor_control::Options,
    _: Arc<Ledger>,
    _: Option<Arc<dyn RevocationList>>,
) -> anyhow::Result<Option<Joining>> {
    Ok(None)
}

/// An attempt to connect once. Without engines, there are none.
pub(crate) type Attempt = (&'static str, String, Ready<Result<String, String>>);

pub(crate) fn attempts(_: ClusterOptions, _: &stentor_edge::Options) -> Vec<Attempt> {
    Vec::new()
}

pub(crate) fn add_all_metrics(_: &mut DataPlane) -> anyhow::Result<()> {
    Ok(())
}

impl Joining {
    pub(crate) fn broker(&self) -> Option<Arc<dyn Broker>> {
        match self.0 {}
    }

    pub(crate) fn has_bridges(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn observe_sessions(&self, _: Option<Arc<dyn NoticeSink>>) -> Option<Arc<dyn NoticeSink>> {
        match self.0 {}
    }

    pub(crate) fn node_tag(&self) -> NodeTag {
        match self.0 {}
    }

    pub(crate) fn node_id(&self) -> Option<String> {
        match self.0 {}
    }

    pub(crate) fn relay(&self) -> Option<Arc<dyn Relay>> {
        match self.0 {}
    }

    pub(crate) fn link_carrier(&self) -> Option<Arc<dyn LinkCarrier>> {
        match self.0 {}
    }

    pub(crate) fn observe(&self, _: Arc<dyn ControlPlane>) -> Arc<dyn ControlPlane> {
        match self.0 {}
    }

    pub(crate) fn start(self, _: Arc<dyn LocalNode>) -> (DataPlane, Member) {
        match self.0 {}
    }
}

impl Member {
    pub(crate) async fn leave(self) {
        match self.0 {}
    }
}
