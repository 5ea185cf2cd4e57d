mod dances;
mod envelopes;
mod frames;
