//! Signatures evaluated on whole packets.

mod naive;
mod packets;
