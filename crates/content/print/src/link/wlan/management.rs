//! Bodies of 802.11 management frames.
//!
//! ```text
//! beacon, probe response: | timestamp 8 | interval 2 | capabilities 2 | elements |
//! association request:    | capabilities 2 | interval 2 | [address 6, where it asks again] | elements |
//! association response:   | capabilities 2 | status 2 | association 2 | elements |
//! authentication:         | algorithm 2 | step 2 | status 2 | elements |     probe request: | elements |
//! farewells:              | reason 2 |                                       action: | category 1 | action 1 |
//! element:                | id 1 | length 1 | value |
//! ```

use super::codes::{REASONS, STATUSES};
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
const TRAFFIC: u8 = 5;
const CHALLENGE: u8 = 16;
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
    if protected {
        print_encryption(cx, body);
        return Ok(true);
    }
    match subtype {
        0 => elements_after(cx, body, 4, Shown { rates: true, ..Shown::default() }),
        1 | 3 => association_response(cx, body),
        2 => elements_after(cx, body, 10, Shown { access_point: true, ..Shown::default() }),
        4 => elements_after(cx, body, 0, Shown { rates: true, ..Shown::default() }),
        5 => elements_after(cx, body, 12, Shown { rates: true, channel: true, ..Shown::default() }),
        8 => elements_after(
            cx,
            body,
            12,
            Shown { rates: true, channel: true, network: true, ..Shown::default() },
        ),
        11 => authentication(cx, body),
        10 => reason(cx, body, None),
        12 => reason(cx, body, Some(source)),
        13 => action(cx, body, source),
        _ => Ok(true),
    }
}

/// The elements that a kind of frame shows in addition to the network's name.
#[derive(Clone, Copy, Default)]
struct Shown {
    rates: bool,
    channel: bool,
    network: bool,
    access_point: bool,
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
                (SSID, 33..) | (RATES, 17..) | (CHALLENGE, 254..) | (TRAFFIC, 255) => return found,
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
    if shown.access_point {
        cx.text(" AP : ");
        cx.mac(body.bytes(4, 6)?);
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

/// The text of a code, or `unknown`.
fn text_of(texts: &[&'static str], code: u16, unknown: &'static str) -> &'static str {
    texts.get(usize::from(code)).copied().unwrap_or(unknown)
}

fn association_response(cx: &mut Context<'_>, body: Span<'_>) -> Result<bool, Cut> {
    if body.captured() < 6 || body.length < 6 {
        return Ok(false);
    }
    let found = Elements::parse(body.skip(6));
    let privacy = if body.u16_le(0)? & PRIVACY != 0 { " PRIVACY " } else { "" };
    // The two highest bits are always set (IEEE 802.11, 9.4.1.8).
    let association = body.u16_le(4)? & 0x3fff;
    put!(cx, " AID({association:x}) :{privacy}: {}", text_of(&STATUSES, body.u16_le(2)?, "n/a"));
    Ok(found.whole)
}

fn authentication(cx: &mut Context<'_>, body: Span<'_>) -> Result<bool, Cut> {
    if body.captured() < 6 || body.length < 6 {
        return Ok(false);
    }
    let (algorithm, step, status) = (body.u16_le(0)?, body.u16_le(2)?, body.u16_le(4)?);
    let found = Elements::parse(body.skip(6));
    let name = text_of(&["Open System", "Shared Key", "EAP"], algorithm, "Reserved");
    if algorithm == 1 && matches!(step, 2 | 3) {
        put!(cx, " ({name})-{step:x} [Challenge Text] ");
    } else {
        put!(cx, " ({name})-{step:x}: ");
    }
    // Requests have an odd step, and only there a status is shown.
    if step % 2 == 1 {
        cx.text(text_of(&STATUSES, status, "n/a"));
    }
    Ok(found.whole)
}

/// The source in parentheses, unless the header has shown it.
fn print_source(cx: &mut Context<'_>, source: &[u8]) {
    if !cx.options.link_header {
        cx.text(" (");
        cx.mac(source);
        cx.text(")");
    }
}

/// Prints the reason for a deauthentication or disassociation.
fn reason(cx: &mut Context<'_>, body: Span<'_>, source: Option<&[u8]>) -> Result<bool, Cut> {
    if body.captured() < 2 || body.length < 2 {
        return Ok(false);
    }
    if let Some(source) = source {
        print_source(cx, source);
    }
    put!(cx, ": {}", text_of(&REASONS, body.u16_le(0)?, "Reserved"));
    Ok(true)
}

/// A category of actions: its number, its name, and the names of its actions; empty where there is none.
type Category = (u8, &'static str, &'static [&'static str]);

const CATEGORIES: &[Category] = &[
    (0, "Spectrum Management", &[]),
    (1, "QoS", &[]),
    (2, "DLS", &[]),
    (3, "BA", &["ADDBA Request", "ADDBA Response", "DELBA"]),
    (7, "HT", &["TxChWidth", "MIMOPwrSave"]),
    (
        13,
        "MeshAction",
        &[
            "MeshLink",
            "HWMP",
            "Gate Announcement",
            "Congestion Control",
            "MCCA Setup Request",
            "MCCA Setup Reply",
            "MCCA Advertisement Request",
            "MCCA Advertisement",
            "MCCA Teardown",
            "TBTT Adjustment Request",
            "TBTT Adjustment Response",
        ],
    ),
    (14, "MultiohopAction", &["Proxy Update", "Proxy Update Confirmation"]),
    (
        15,
        "SelfprotectAction",
        &[
            "",
            "Peering Open",
            "Peering Confirm",
            "Peering Close",
            "Group Key Inform",
            "Group Key Acknowledge",
        ],
    ),
    (127, "Vendor", &[]),
];

fn action(cx: &mut Context<'_>, body: Span<'_>, source: &[u8]) -> Result<bool, Cut> {
    if body.captured() < 2 || body.length < 2 {
        return Ok(false);
    }
    print_source(cx, source);
    let (category, action) = (body.u8(0)?, body.u8(1)?);
    let Some((_, name, actions)) = CATEGORIES.iter().find(|(number, ..)| *number == category) else {
        put!(cx, ": Reserved({category}) Act#{action}");
        return Ok(true);
    };
    match actions.get(usize::from(action)) {
        Some(action) if !action.is_empty() => put!(cx, ": {name} {action}"),
        _ => put!(cx, ": {name} Act#{action}"),
    }
    Ok(true)
}
