//! Empty: this package exists for its dependency's sources.
