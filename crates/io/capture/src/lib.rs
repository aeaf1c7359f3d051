//! Live capture on AF_PACKET and AF_XDP, and datagrams of a socket.
#![forbid(unsafe_code)]

pub mod af_packet;
pub mod af_xdp;
mod link_state;
mod listener;

pub use listener::Listener;
