//! Spanning tree (IEEE 802.1D), rapid (802.1w), multiple (802.1s), shortest path bridging (802.1aq).
//!
//! ```text
//! protocol 2 = 0 | version 1 | type 1 | flags 1 | root 8 | root path cost 4 | bridge 8 | port 2
//! message age 2 | max age 2 | hello time 2 | forward delay 2 (in 1/256 s) | version 1 length 1 = 0
//! multiple: version 3 length 2 | format 1 | name 32 | revision 2 | digest 16 | internal cost 4 | bridge 8 | hops 1
//!           instances of 16: flags 1, regional root 8, cost 4, bridge priority 1, port priority 1, hops 1
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const RAPID: u8 = 2;
const MULTIPLE: u8 = 3;
const SHORTEST_PATH: u8 = 4;

const VERSIONS: &[(u8, &str)] =
    &[(0, "802.1d"), (RAPID, "802.1w"), (MULTIPLE, "802.1s"), (SHORTEST_PATH, "802.1aq")];

const CONFIG: u8 = 0;
const RAPID_CONFIG: u8 = 2;
const TOPOLOGY_CHANGE: u8 = 0x80;

const TYPES: &[(u8, &str)] =
    &[(CONFIG, "Config"), (RAPID_CONFIG, "Rapid STP"), (TOPOLOGY_CHANGE, "Topology Change")];

const FLAGS: &[(u32, &str)] = &[
    (0x01, "Topology change"),
    (0x02, "Proposal"),
    (0x10, "Learn"),
    (0x20, "Forward"),
    (0x40, "Agreement"),
    (0x80, "Topology change ACK"),
];

const PORT_ROLES: [&str; 4] = ["Unknown", "Alternate", "Root", "Designated"];

const CONFIG_LEN: usize = 35;
const RAPID_LEN: usize = 36;
const MULTIPLE_LEN: usize = 102;
const INSTANCES: usize = 102;
const INSTANCE_LEN: usize = 16;
/// Bytes that version 3's length counts before the instances.
const CONFIG_INFO_LEN: usize = 64;
const SHORTEST_PATH_LEN: usize = 87;

/// One bridge protocol data unit.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "stp";
    if span.length < 4 {
        cx.invalid();
        return Ok(());
    }
    if span.u16(0)? != 0 {
        put!(cx, "unknown STP version, length {}", span.length);
        return Ok(());
    }
    let version = span.u8(2)?;
    let Some(name) = lookup(VERSIONS, version) else {
        put!(cx, "STP Unknown STP protocol (0x{version:02x})");
        return Ok(());
    };
    put!(cx, "STP {name}");
    let kind = span.u8(3)?;
    match lookup(TYPES, kind) {
        Some(name) => put!(cx, ", {name}"),
        None => put!(cx, ", Unknown BPDU Type (0x{kind:02x})"),
    }
    match (kind, version) {
        (CONFIG, _) if span.length >= CONFIG_LEN => print_config(cx, span),
        (RAPID_CONFIG, RAPID) if span.length >= RAPID_LEN => print_config(cx, span),
        (RAPID_CONFIG, MULTIPLE | SHORTEST_PATH) => print_multiple(cx, span, version),
        (CONFIG, _) | (RAPID_CONFIG, RAPID) => {
            cx.invalid();
            Ok(())
        }
        _ => Ok(()),
    }
}

fn print_config(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let flags = span.u8(4)?;
    cx.text(", Flags [");
    put_bits(cx, FLAGS, "none", ", ", u32::from(flags));
    cx.text("]");
    let port = span.u16(25)?;
    cx.text(", bridge-id ");
    print_bridge(cx, span.skip(17))?;
    put!(cx, ".{port:04x}, length {}", span.length);
    if cx.verbose() == 0 {
        return Ok(());
    }
    print_timers(cx, span)?;
    cx.text("\n\troot-id ");
    print_bridge(cx, span.skip(5))?;
    put!(cx, ", root-pathcost {}", span.u32(13)?);
    if span.u8(2)? == RAPID {
        put!(cx, ", port-role {}", port_role(flags));
    }
    Ok(())
}

/// `8000.00:11:22:33:44:55`: priority and address.
fn print_bridge(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let mac = span.bytes(2, 6)?;
    cx.hex(span.u16(0)?, 4);
    cx.text(".");
    cx.colon_hex(mac);
    Ok(())
}

fn print_timers(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let mut times = [0.0; 4];
    for (index, time) in times.iter_mut().enumerate() {
        *time = f64::from(span.u16(27 + index * 2)?) / 256.0;
    }
    let [age, max, hello, forward] = times;
    put!(
        cx,
        "\n\tmessage-age {age:.2}s, max-age {max:.2}s, hello-time {hello:.2}s, forwarding-delay {forward:.2}s"
    );
    Ok(())
}

fn port_role(flags: u8) -> &'static str {
    PORT_ROLES[usize::from(flags >> 2 & 3)]
}

fn print_multiple(cx: &mut Context<'_>, span: Span<'_>, version: u8) -> Printed {
    if span.length < MULTIPLE_LEN || span.u8(35)? != 0 {
        cx.invalid();
        return Ok(());
    }
    let length = 2 + usize::from(span.u16(36)?);
    if span.length < RAPID_LEN + length {
        cx.invalid();
        return Ok(());
    }
    print_multiple_fields(cx, span)?;
    if version != SHORTEST_PATH {
        return Ok(());
    }
    let start = RAPID_LEN + length;
    let own_length = 2 + usize::from(span.u16(start)?);
    if span.length < start + own_length || own_length < SHORTEST_PATH_LEN {
        cx.invalid();
        return Ok(());
    }
    print_shortest_path(cx, span.skip(start))
}

fn print_multiple_fields(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let flags = span.u8(4)?;
    cx.text(", CIST Flags [");
    put_bits(cx, FLAGS, "none", ", ", u32::from(flags));
    put!(cx, "], length {}", span.length);
    if cx.verbose() == 0 {
        return Ok(());
    }
    put!(cx, "\n\tport-role {}, CIST root-id ", port_role(flags));
    print_bridge(cx, span.skip(5))?;
    put!(cx, ", CIST ext-pathcost {}\n\tCIST regional-root-id ", span.u32(13)?);
    print_bridge(cx, span.skip(17))?;
    put!(cx, ", CIST port-id {:04x},", span.u16(25)?);
    print_timers(cx, span)?;
    put!(cx, "\n\tv3len {}, MCID Name ", span.u16(36)?);
    cx.visible_until_nul(span.bytes(39, 32)?);
    put!(cx, ", rev {},\n\t\tdigest ", span.u16(71)?);
    print_digest(cx, span.bytes(73, 16)?);
    put!(cx, ", CIST int-root-pathcost {},\n\tCIST bridge-id ", span.u32(89)?);
    print_bridge(cx, span.skip(93))?;
    put!(cx, ", CIST remaining-hops {}", span.u8(101)?);
    let instances = usize::from(span.u16(36)?).saturating_sub(CONFIG_INFO_LEN) / INSTANCE_LEN;
    for index in 0..instances {
        print_instance(cx, span.skip(INSTANCES + index * INSTANCE_LEN))?;
    }
    Ok(())
}

fn print_digest(cx: &mut Context<'_>, digest: &[u8]) {
    digest.iter().for_each(|&byte| cx.hex(byte, 2));
}

fn print_instance(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let flags = span.u8(0)?;
    put!(cx, "\n\tMSTI {}, Flags [", span.u16(1)? & 0x0fff);
    put_bits(cx, FLAGS, "none", ", ", u32::from(flags));
    put!(cx, "], port-role {}\n\t\tMSTI regional-root-id ", port_role(flags));
    print_bridge(cx, span.skip(1))?;
    put!(cx, ", pathcost {}", span.u32(9)?);
    put!(
        cx,
        "\n\t\tMSTI bridge-prio {}, port-prio {}, hops {}",
        span.u8(13)? >> 4,
        span.u8(14)? >> 4,
        span.u8(15)?
    );
    Ok(())
}

/// Version 4: length 2, format 1, name 32, revision 2, digest 16, agreement 1, unused 1, format 1, convention 1,
/// edge count 2, reserved 8, topology digest 20.
fn print_shortest_path(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if cx.verbose() == 0 {
        return Ok(());
    }
    put!(cx, "\n\tv4len {}, AUXMCID Name ", span.u16(0)?);
    cx.visible_until_nul(span.bytes(3, 32)?);
    put!(cx, ", Rev {},\n\t\tdigest ", span.u16(35)?);
    print_digest(cx, span.bytes(37, 16)?);
    let (agreement, format, convention) = (span.u8(53)?, span.u8(55)?, span.u8(56)?);
    put!(
        cx,
        "\n\tAgreement num {}, Discarded Agreement num {}, Agreement valid-flag {},\n\t",
        agreement >> 6,
        agreement >> 4 & 3,
        agreement >> 3 & 1
    );
    put!(
        cx,
        "Restricted role-flag: {}, Format id {} cap {format}, Convention id {} cap {convention},\n\t",
        agreement >> 2 & 1,
        format >> 4,
        convention >> 4
    );
    put!(cx, "Edge count {}, Agreement digest ", span.u16(57)?);
    print_digest(cx, span.bytes(67, 20)?);
    Ok(())
}
