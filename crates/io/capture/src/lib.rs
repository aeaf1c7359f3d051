//! Live capture on AF_PACKET and AF_XDP, datagrams of a socket, and packets that the kernel drops.
#![forbid(unsafe_code)]

pub mod af_packet;
pub mod af_xdp;
mod drops;
mod link_state;
mod listener;

pub use drops::{DropSettings, DroppedPackets};
pub use listener::Listener;
