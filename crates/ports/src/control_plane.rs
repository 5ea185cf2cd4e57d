//! The control plane, for the data plane.

/// The part of the control plane that the data plane calls. Both functions only notify, and are called on the threads of the
/// cores.
pub trait ControlPlane: Send + Sync {
    /// Reports that [`Feeds::take_key_interest`](crate::Feeds::take_key_interest) has new changes.
    fn interest_changed(&self);

    /// Reports that a full inbox has space again.
    fn space(&self);
}
