//! The environment of the program, as far as it may be believed.

/// The environment variable that sends devices elsewhere.
pub(crate) const DEVICE_MAP: &str = "TAPLINE_DEVICE_MAP";

/// Whether the program has more rights than its user, as from a setuid bit. Such programs believe no environment.
pub(crate) fn is_secure() -> bool {
    // SAFETY: getauxval(3) takes a number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The text of [`DEVICE_MAP`]; empty in programs that believe no environment.
pub(crate) fn device_map() -> String {
    if is_secure() { String::new() } else { std::env::var(DEVICE_MAP).unwrap_or_default() }
}
