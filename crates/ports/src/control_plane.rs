//! The control plane, as the data plane sees it.

/// The control plane, as the data plane sees it. Both are called from a core's thread: they only notify.
pub trait ControlPlane: Send + Sync {
    /// [`Feeds::take_wanted`](crate::Feeds::take_wanted) has something.
    fn wanted(&self);

    /// An inbox that was full has room again.
    fn space(&self);
}
