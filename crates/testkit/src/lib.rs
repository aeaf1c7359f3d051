//! Traffic, oracles and network namespaces for Tapline's own tests.
