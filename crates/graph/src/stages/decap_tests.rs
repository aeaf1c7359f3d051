//! Tunnels of every kind.
