//! Hop-by-hop and destination options.
//!
//! ```text
//! | next header 1 | length 1 | 0 (one byte of padding) | type 1, length 1, value | ... |
//! ```

use std::net::IpAddr;

use super::Step;
use crate::bytes::{Cut, Span};
use crate::context::{Context, put};
use crate::text::Text;

const PAD_1: u8 = 0x00;
const PAD_N: u8 = 0x01;
const ROUTER_ALERT: u8 = 0x05;
const JUMBO: u8 = 0xc2;
const HOME_ADDRESS: u8 = 0xc9;

const ROUTER_ALERT_LEN: usize = 4;
const JUMBO_LEN: usize = 6;
const HOME_ADDRESS_LEN: usize = 18;
/// Shorter payloads have no need of the jumbo option (RFC 2675).
const JUMBO_MIN: u32 = 65_536;

/// Prints hop-by-hop options. Returns the payload's length of a valid jumbo option.
pub(super) fn hop_by_hop(
    cx: &mut Context<'_>,
    header: Span<'_>,
    payload_len: usize,
) -> Result<(Step, Option<usize>), Cut> {
    cx.protocol = "hbhopt";
    let length = (usize::from(header.u8(1)?) + 1) * 8;
    header.need(length)?;
    cx.text("HBH ");
    let mut list = List { hop_by_hop: true, payload_len, jumbo_seen: false, jumbo: None };
    if !list.print(cx, header.limit(length).skip(2))? {
        return Ok((Step::Done, list.jumbo));
    }
    Ok((Step::Next(length), list.jumbo))
}

/// Prints destination options, in detail only with `-v`.
pub(super) fn destination(cx: &mut Context<'_>, header: Span<'_>) -> Result<Step, Cut> {
    cx.protocol = "dstopt";
    let length = (usize::from(header.u8(1)?) + 1) * 8;
    header.need(length)?;
    cx.text("DSTOPT ");
    if cx.verbose() > 0 {
        let mut list = List { hop_by_hop: false, payload_len: 0, jumbo_seen: false, jumbo: None };
        if !list.print(cx, header.limit(length).skip(2))? {
            return Ok(Step::Done);
        }
    }
    Ok(Step::Next(length))
}

struct List {
    hop_by_hop: bool,
    payload_len: usize,
    jumbo_seen: bool,
    jumbo: Option<usize>,
}

impl List {
    /// `false` if the options make no sense.
    fn print(&mut self, cx: &mut Context<'_>, options: Span<'_>) -> Result<bool, Cut> {
        let mut rest = options;
        while rest.length > 0 {
            let option_len = match rest.u8(0)? {
                PAD_1 => 1,
                _ if rest.length < 2 => return Ok(bad(cx)),
                _ => usize::from(rest.u8(1)?) + 2,
            };
            if option_len > rest.length {
                return Ok(bad(cx));
            }
            if !self.print_one(cx, rest.limit(option_len), rest.length)? {
                return Ok(bad(cx));
            }
            rest = rest.skip(option_len);
        }
        if cx.verbose() > 0 {
            cx.text(" ");
        }
        Ok(true)
    }

    /// `room` is the length of the remaining options, this one included.
    fn print_one(&mut self, cx: &mut Context<'_>, option: Span<'_>, room: usize) -> Result<bool, Cut> {
        let verbose = cx.verbose() > 0;
        let (name, min) = match option.u8(0)? {
            ROUTER_ALERT => ("rtalert", ROUTER_ALERT_LEN),
            JUMBO => ("jumbo", JUMBO_LEN),
            HOME_ADDRESS => ("homeaddr", HOME_ADDRESS_LEN),
            _ => ("", 0),
        };
        if room < min {
            put!(cx, "({name}: trunc)");
            return Ok(false);
        }
        match option.u8(0)? {
            PAD_1 if verbose => cx.text("(pad1)"),
            PAD_N if verbose => cx.text("(padn)"),
            PAD_1 | PAD_N => {}
            ROUTER_ALERT => return router_alert(cx, option),
            JUMBO => return self.jumbo(cx, option),
            HOME_ADDRESS => return home_address(cx, option),
            kind if verbose => put!(cx, "(opt_type 0x{kind:02x}: len={})", option.u8(1)?),
            _ => {}
        }
        Ok(true)
    }

    fn jumbo(&mut self, cx: &mut Context<'_>, option: Span<'_>) -> Result<bool, Cut> {
        if option.length != JUMBO_LEN {
            put!(cx, "(jumbo: invalid len {})", option.length - 2);
            return Ok(false);
        }
        let length = option.u32(2)?;
        let fault = if self.jumbo_seen {
            " - already seen"
        } else if !self.hop_by_hop {
            " - not a hop-by-hop option"
        } else if self.payload_len != 0 {
            " - payload len != 0"
        } else if length < JUMBO_MIN {
            " - < 65536"
        } else {
            self.jumbo = Some(length as usize);
            ""
        };
        self.jumbo_seen = true;
        if cx.verbose() > 0 {
            put!(cx, "(jumbo: {length}{fault}) ");
        }
        Ok(true)
    }
}

fn bad(cx: &mut Context<'_>) -> bool {
    cx.cut();
    false
}

fn router_alert(cx: &mut Context<'_>, option: Span<'_>) -> Result<bool, Cut> {
    if option.length != ROUTER_ALERT_LEN {
        put!(cx, "(rtalert: invalid len {})", option.length - 2);
        return Ok(false);
    }
    if cx.verbose() > 0 {
        put!(cx, "(rtalert: 0x{:04x}) ", option.u16(2)?);
    }
    Ok(true)
}

fn home_address(cx: &mut Context<'_>, option: Span<'_>) -> Result<bool, Cut> {
    if option.length < HOME_ADDRESS_LEN {
        put!(cx, "(homeaddr: invalid len {})", option.length - 2);
        return Ok(false);
    }
    if cx.verbose() > 0 {
        cx.text("(homeaddr: ");
        cx.host(IpAddr::from(option.array::<16>(2)?));
        if !sub_options(cx, option.skip(HOME_ADDRESS_LEN))? {
            return Ok(false);
        }
        cx.text(")");
    }
    Ok(true)
}

fn sub_options(cx: &mut Context<'_>, options: Span<'_>) -> Result<bool, Cut> {
    let mut rest = options;
    while rest.length > 0 {
        let kind = rest.u8(0)?;
        let option_len = match kind {
            PAD_1 => 1,
            _ if rest.length < 2 => return Ok(false),
            _ => usize::from(rest.u8(1)?) + 2,
        };
        if option_len > rest.length {
            return Ok(false);
        }
        match kind {
            PAD_1 => cx.text(", pad1"),
            PAD_N => cx.text(", padn"),
            _ => put!(cx, ", sopt_type 0x{kind:02x}: len={}", option_len - 2),
        }
        rest = rest.skip(option_len);
    }
    Ok(true)
}
