//! The control plane: feeds, admin API, metrics.
