//! TCP and UDP.

mod connections;

pub(crate) use connections::Connections;
