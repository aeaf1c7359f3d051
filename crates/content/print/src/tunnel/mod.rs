//! Packets within packets: GRE, VXLAN, Geneve.

pub(crate) mod geneve;
pub(crate) mod gre;
pub(crate) mod vxlan;
