//! Live capture on AF_PACKET and AF_XDP, datagrams of a socket, and sending.
#![forbid(unsafe_code)]

pub mod af_packet;
pub mod af_xdp;
mod link_state;
mod listener;
pub mod transmit;

pub use listener::Listener;
