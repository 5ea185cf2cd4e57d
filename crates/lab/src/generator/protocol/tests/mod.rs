mod dances;
mod envelopes;
mod feeds;
mod frames;
