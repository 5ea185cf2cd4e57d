mod dances;
mod elders;
mod envelopes;
mod feeds;
mod frames;
mod hixie;
