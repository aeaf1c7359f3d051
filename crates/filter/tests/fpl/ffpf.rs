//! FFPF
