//! Who is subscribed to what, and what they are owed; no I/O.
