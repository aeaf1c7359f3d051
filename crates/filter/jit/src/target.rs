//! The processor that code is made for: this one, and how the generator is set up for it.

use std::sync::OnceLock;

use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};

use crate::Error;

/// Settings that differ from the generator's own, and why.
const SETTINGS: &[(&str, &str)] = &[
    ("opt_level", "speed"),
    // Frames of more than a page touch each of their pages, so that none steps over the guard page.
    ("enable_probestack", "true"),
    ("probestack_strategy", "inline"),
    // Nothing unwinds through generated code: functions that it calls catch their panics.
    ("unwind_info", "false"),
    // A filter reads one packet and gives its caller one bit of it: there is no secret to leak by speculation.
    ("enable_heap_access_spectre_mitigation", "false"),
    ("enable_table_access_spectre_mitigation", "false"),
    // The generator's own checks of what it is given cost a tenth of the time; tests have them.
    ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
];

/// The generator for this processor, set up once.
pub(crate) fn target() -> Result<&'static OwnedTargetIsa, Error> {
    static TARGET: OnceLock<Result<OwnedTargetIsa, String>> = OnceLock::new();
    let target = TARGET.get_or_init(set_up).as_ref();
    target.map_err(|reason| Error::Processor { reason: reason.clone() })
}

fn set_up() -> Result<OwnedTargetIsa, String> {
    if cfg!(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_endian = "little"))) {
        return Err("it is neither x86-64 nor aarch64".to_owned());
    }
    let mut flags = settings::builder();
    for (name, value) in SETTINGS {
        flags.set(name, value).map_err(|error| format!("{name}: {error}"))?;
    }
    let builder = cranelift_native::builder()?;
    builder.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())
}
