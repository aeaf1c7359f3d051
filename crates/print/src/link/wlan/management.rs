//! Bodies of 802.11 management frames.
//!
//! ```text
//! beacon, probe response: | timestamp 8 | interval 2 | capabilities 2 | elements |
//! association request:    | capabilities 2 | interval 2 | elements |          probe request: | elements |
//! element:                | id 1 | length 1 | value |
//! ```

use super::print_encryption;
use crate::bytes::{Cut, Span};
use crate::context::{Context, put};
use crate::text::Text;

const NAMES: [&str; 16] = [
    "Assoc Request",
    "Assoc Response",
    "ReAssoc Request",
    "ReAssoc Response",
    "Probe Request",
    "Probe Response",
    "",
    "",
    "Beacon",
    "ATIM",
    "Disassociation",
    "Authentication",
    "DeAuthentication",
    "Action",
    "",
    "",
];

const SSID: u8 = 0;
const RATES: u8 = 1;
const CHANNEL: u8 = 3;
/// Longest network name and list of rates (IEEE 802.11, 9.4.2).
const SSID_MAX: usize = 32;
const RATES_MAX: usize = 16;

const ESS: u16 = 0x0001;
const PRIVACY: u16 = 0x0010;

/// Prints a body. `false` if it ends too early.
pub(super) fn print(
    cx: &mut Context<'_>,
    subtype: u16,
    protected: bool,
    source: &[u8],
    body: Span<'_>,
) -> Result<bool, Cut> {
    let name = NAMES[usize::from(subtype & 15)];
    if name.is_empty() {
        put!(cx, "Unhandled Management subtype({subtype:x})");
        return Ok(true);
    }
    cx.text(name);
    match subtype {
        0 => elements_after(cx, body, 4, Shown { rates: true, ..Shown::default() }),
        2 => elements_after(cx, body, 10, Shown::default()),
        4 => elements_after(cx, body, 0, Shown { rates: true, ..Shown::default() }),
        5 => elements_after(cx, body, 12, Shown { rates: true, channel: true, ..Shown::default() }),
        8 => elements_after(cx, body, 12, Shown { rates: true, channel: true, network: true }),
        11 if protected => {
            print_encryption(cx, body);
            Ok(true)
        }
        11 => authentication(cx, body),
        10 => reason(cx, body, None),
        12 => reason(cx, body, Some(source)),
        _ => Ok(true),
    }
}

/// Which of the elements a kind of frame shows besides the network's name.
#[derive(Clone, Copy, Default)]
struct Shown {
    rates: bool,
    channel: bool,
    network: bool,
}

/// The first of each kind that is shown.
#[derive(Default)]
struct Elements<'p> {
    ssid: Option<&'p [u8]>,
    rates: Option<&'p [u8]>,
    channel: Option<u8>,
    whole: bool,
}

impl<'p> Elements<'p> {
    fn parse(span: Span<'p>) -> Elements<'p> {
        let mut found = Elements::default();
        let mut rest = span;
        while rest.length > 0 {
            let (Ok(id), Ok(length)) = (rest.u8(0), rest.u8(1)) else { return found };
            let length = usize::from(length);
            let (Ok(value), true) = (rest.bytes(2, length), rest.length >= length + 2) else { return found };
            match (id, length) {
                (SSID, ..=SSID_MAX) if found.ssid.is_none() => found.ssid = Some(value),
                (RATES, 1..=RATES_MAX) if found.rates.is_none() => found.rates = Some(value),
                (CHANNEL, 1) if found.channel.is_none() => found.channel = Some(value[0]),
                (SSID, 33..) | (RATES, 17..) => return found,
                _ => {}
            }
            rest = rest.skip(length + 2);
        }
        found.whole = true;
        found
    }
}

/// Elements behind `fixed` bytes, of which the last two of 12 are the capabilities.
fn elements_after(cx: &mut Context<'_>, body: Span<'_>, fixed: usize, shown: Shown) -> Result<bool, Cut> {
    if body.captured() < fixed || body.length < fixed {
        return Ok(false);
    }
    let found = Elements::parse(body.skip(fixed));
    if let Some(ssid) = found.ssid {
        cx.text(" (");
        cx.visible_until_nul(ssid);
        cx.text(")");
    }
    if let (true, Some(rates)) = (shown.rates, found.rates) {
        print_rates(cx, rates);
    }
    let capabilities = if fixed == 12 { body.u16_le(10)? } else { 0 };
    if shown.network {
        cx.text(if capabilities & ESS != 0 { " ESS" } else { " IBSS" });
    }
    if shown.channel {
        if let Some(channel) = found.channel {
            put!(cx, " CH: {channel}");
        }
        cx.text(if capabilities & PRIVACY != 0 { ", PRIVACY" } else { "" });
    }
    Ok(found.whole)
}

/// ` [1.0* 2.0* 5.5 11.0 Mbit]`, in units of 500 kbit/s; a star for those that all must know.
fn print_rates(cx: &mut Context<'_>, rates: &[u8]) {
    for (index, rate) in rates.iter().enumerate() {
        let half = rate & 0x7f;
        cx.text(if index == 0 { " [" } else { " " });
        put!(cx, "{}.{}", half / 2, half % 2 * 5);
        cx.text(if rate & 0x80 != 0 { "*" } else { "" });
    }
    cx.text(" Mbit]");
}

fn authentication(cx: &mut Context<'_>, body: Span<'_>) -> Result<bool, Cut> {
    if body.captured() < 6 || body.length < 6 {
        return Ok(false);
    }
    let (algorithm, step, status) = (body.u16_le(0)?, body.u16_le(2)?, body.u16_le(4)?);
    let name = ["Open System", "Shared Key"].get(usize::from(algorithm)).copied().unwrap_or("Reserved");
    if algorithm == 1 && matches!(step, 2 | 3) {
        put!(cx, " ({name})-{step:x} [Challenge Text] ");
    } else {
        put!(cx, " ({name})-{step:x}: ");
    }
    // Requests have an odd step, and only there a status is shown.
    match (step % 2, status) {
        (1, 0) => cx.text("Successful"),
        (1, _) => put!(cx, "status {status}"),
        _ => {}
    }
    Ok(true)
}

/// Why a station was let go, by its number in the standard (IEEE 802.11, table 9-49).
fn reason(cx: &mut Context<'_>, body: Span<'_>, source: Option<&[u8]>) -> Result<bool, Cut> {
    if body.captured() < 2 || body.length < 2 {
        return Ok(false);
    }
    if let Some(source) = source
        && !cx.options.link_header
    {
        cx.text(" (");
        cx.mac(source);
        cx.text(")");
    }
    put!(cx, ": reason {}", body.u16_le(0)?);
    Ok(true)
}
