//! The headers that drivers of 802.11 cards put before a frame: Prism's, and AVS.
//!
//! ```text
//! Prism:  | message 4 | length 4 | device 16 | fields, 144 bytes in all | 802.11 frame |
//! AVS:    | 0x80211001 or 0x80211002 4 | length 4 | fields | 802.11 frame |      in network order
//! ```

use super::wlan::{self, Trim};
use crate::bytes::{Cut, Printed, Span};
use crate::context::Context;

const PRISM_LEN: usize = 144;
const AVS: [u32; 2] = [0x8021_1001, 0x8021_1002];

/// Prints a packet of the link type PRISM_HEADER; drivers put the header of AVS there too.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "prism";
    if span.captured() < 4 {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    if AVS.contains(&span.u32(0)?) {
        cx.link_header_len += print_avs(cx, span)?;
        return Ok(());
    }
    if span.captured() < PRISM_LEN {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    cx.link_header_len += PRISM_LEN;
    cx.link_header_len += wlan::frame(cx, span.skip(PRISM_LEN), Trim::default())?;
    Ok(())
}

/// Prints a packet with the header of AVS; how many bytes all headers have.
pub(super) fn print_avs(cx: &mut Context<'_>, span: Span<'_>) -> Result<usize, Cut> {
    cx.protocol = "802.11_radio_avs";
    let length = match span.u32(4) {
        Ok(length) => length as usize,
        Err(Cut) => 0,
    };
    if length < 8 || span.captured() < length {
        cx.cut();
        return Ok(span.captured());
    }
    Ok(length + wlan::frame(cx, span.skip(length), Trim::default())?)
}
