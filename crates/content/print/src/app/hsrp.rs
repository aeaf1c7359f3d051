//! HSRP, version 0 (RFC 2281): `HSRPv0-hello 20: state=active group=1 addr=10.0.0.254`.
//!
//! ```text
//! version 1 | operation 1 | state 1 | hello time 1 | hold time 1 | priority 1 | group 1 | reserved 1
//! password 8 | address 4
//! ```

use super::relative_time;
use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const OPERATIONS: [&str; 3] = ["hello", "coup", "resign"];
const STATES: &[(u8, &str)] =
    &[(0, "initial"), (1, "learn"), (2, "listen"), (4, "speak"), (8, "standby"), (16, "active")];

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "hsrp";
    let version = span.u8(0)?;
    put!(cx, "HSRPv{version}");
    if version != 0 {
        return Ok(());
    }
    cx.text("-");
    let operation = span.u8(1)?;
    match OPERATIONS.get(usize::from(operation)) {
        Some(name) => put!(cx, "{name} "),
        None => put!(cx, "unknown ({operation}) "),
    }
    put!(cx, "{}: ", span.length);
    let state = span.u8(2)?;
    match lookup(STATES, state) {
        Some(name) => put!(cx, "state={name} "),
        None => put!(cx, "state=Unknown ({state}) "),
    }
    put!(cx, "group={} ", span.u8(6)?);
    let reserved = span.u8(7)?;
    if reserved != 0 {
        put!(cx, "[reserved={reserved}!] ");
    }
    let address = span.array::<4>(16)?;
    cx.text("addr=");
    cx.host(address.into());
    if cx.verbose() > 0 {
        cx.text(" hellotime=");
        relative_time(cx, u32::from(span.u8(3)?));
        cx.text(" holdtime=");
        relative_time(cx, u32::from(span.u8(4)?));
        put!(cx, " priority={} auth=\"", span.u8(5)?);
        cx.visible_until_nul(span.bytes(8, 8)?);
        cx.text("\"");
    }
    Ok(())
}
