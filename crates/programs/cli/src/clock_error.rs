//! The clock that stamps packets, in words for a file's section header.

use std::fs;

use tapline_sys::clock_state::{self, ClockState};

const SOURCE_FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The present clock source of the kernel and its error, as `tapline doctor` reports them; `stamps` names the requested
/// source of time stamps.
pub(crate) fn comment(stamps: Option<&str>) -> String {
    let source = fs::read_to_string(SOURCE_FILE).ok();
    text(stamps, source.as_deref().map(str::trim), clock_state::read().ok())
}

fn text(stamps: Option<&str>, source: Option<&str>, state: Option<ClockState>) -> String {
    let stamps = stamps.unwrap_or("host");
    let source = source.unwrap_or("unknown");
    let error = match state {
        Some(ClockState { is_synchronised: true, error_max_us, error_estimate_us, tai_offset }) => {
            let tai = if tai_offset == 0 { String::new() } else { format!(", TAI-UTC {tai_offset} s") };
            format!("synchronised, error at most {error_max_us} us, estimated {error_estimate_us} us{tai}")
        }
        Some(_) => "not synchronised, error unknown".to_owned(),
        None => "error unknown".to_owned(),
    };
    format!("clock at the start: time stamps {stamps}, clock source {source}, {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_only_where_it_is_known() {
        let state =
            ClockState { is_synchronised: true, error_max_us: 900, error_estimate_us: 20, tai_offset: 37 };
        assert_eq!(
            text(Some("adapter"), Some("tsc"), Some(state)),
            "clock at the start: time stamps adapter, clock source tsc, synchronised, error at most 900 us, \
             estimated 20 us, TAI-UTC 37 s"
        );
        let unknown = text(None, None, Some(ClockState { is_synchronised: false, ..state }));
        assert!(unknown.ends_with("time stamps host, clock source unknown, not synchronised, error unknown"));
    }
}
