//! OpenFlow 1.3. Flows, groups, meters, multipart messages and packets are not decoded: nor are they by tcpdump 4.99.
//!
//! ```text
//! port 64:    number 4 | 0 4 | address 6 | 0 2 | name 16 | config 4 | state 4 | current 4 | advertised 4 | supported 4
//!             | peer's 4 | speed 4 | most 4
//! hello:      (type 2 | length 2 | value)*
//! ```

use super::{
    Fields, INVALID_4, Invalid, Length, Message, Otherwise, PartResult, data, put_error, put_name, put_word,
    settle, vendor_name,
};
use crate::bytes::{Cut, Span};
use crate::context::{Context, put};
use crate::text::Text;

const CAPABILITIES: &[(u32, &str)] = &[
    (1, "FLOW_STATS"),
    (2, "TABLE_STATS"),
    (4, "PORT_STATS"),
    (8, "GROUP_STATS"),
    (0x20, "IP_REASM"),
    (0x40, "QUEUE_STATS"),
    (0x100, "PORT_BLOCKED"),
];
const FRAGMENTS: &[(u32, &str)] = &[(0, "FRAG_NORMAL"), (1, "FRAG_DROP"), (2, "FRAG_REASM")];
const TABLES: &[(u32, &str)] = &[(0xfe, "MAX"), (0xff, "ALL")];
const LENGTHS: &[(u32, &str)] = &[(0xffe5, "MAX"), (0xffff, "NO_BUFFER")];
const PORT_CONFIG: &[(u32, &str)] =
    &[(1, "PORT_DOWN"), (4, "NO_RECV"), (0x20, "NO_FWD"), (0x40, "NO_PACKET_IN")];
const PORT_STATES: &[(u32, &str)] = &[(1, "LINK_DOWN"), (2, "BLOCKED"), (4, "LIVE")];
const PORT_FEATURES: &[(u32, &str)] = &[
    (1, "10MB_HD"),
    (2, "10MB_FD"),
    (4, "100MB_HD"),
    (8, "100MB_FD"),
    (0x10, "1GB_HD"),
    (0x20, "1GB_FD"),
    (0x40, "10GB_FD"),
    (0x80, "40GB_FD"),
    (0x100, "100GB_FD"),
    (0x200, "1TB_FD"),
    (0x400, "OTHER"),
    (0x800, "COPPER"),
    (0x1000, "FIBER"),
    (0x2000, "AUTONEG"),
    (0x4000, "PAUSE"),
    (0x8000, "PAUSE_ASYM"),
];
const PORTS: &[(u32, &str)] = &[
    (0xffffff00, "MAX"),
    (0xfffffff8, "IN_PORT"),
    (0xfffffff9, "TABLE"),
    (0xfffffffa, "NORMAL"),
    (0xfffffffb, "FLOOD"),
    (0xfffffffc, "ALL"),
    (0xfffffffd, "CONTROLLER"),
    (0xfffffffe, "LOCAL"),
    (0xffffffff, "ANY"),
];
const ROLES: &[(u32, &str)] = &[(0, "NOCHANGE"), (1, "EQUAL"), (2, "MASTER"), (3, "SLAVE")];
const VERSION_BITS: &[(u32, &str)] =
    &[(1, "1.0"), (2, "1.1"), (4, "1.2"), (8, "1.3"), (0x10, "1.4"), (0x20, "1.5")];
const PACKET_REASONS: &[(u32, &str)] = &[(1, "NO_MATCH"), (2, "ACTION"), (4, "INVALID_TTL")];
const PORT_REASONS: &[(u32, &str)] = &[(0, "ADD"), (1, "DELETE"), (2, "MODIFY")];
const PORT_REASON_BITS: &[(u32, &str)] = &[(1, "ADD"), (2, "DELETE"), (4, "MODIFY")];
const ERRORS: &[(u32, &str)] = &[
    (0, "HELLO_FAILED"),
    (1, "BAD_REQUEST"),
    (2, "BAD_ACTION"),
    (3, "BAD_INSTRUCTION"),
    (4, "BAD_MATCH"),
    (5, "FLOW_MOD_FAILED"),
    (6, "GROUP_MOD_FAILED"),
    (7, "PORT_MOD_FAILED"),
    (8, "TABLE_MOD_FAILED"),
    (9, "QUEUE_OP_FAILED"),
    (0xa, "SWITCH_CONFIG_FAILED"),
    (0xb, "ROLE_REQUEST_FAILED"),
    (0xc, "METER_MOD_FAILED"),
    (0xd, "TABLE_FEATURES_FAILED"),
    (0xffff, "EXPERIMENTER"),
];
const HELLO_FAILED: &[(u32, &str)] = &[(0, "INCOMPATIBLE"), (1, "EPERM")];
const BAD_REQUEST: &[(u32, &str)] = &[
    (0, "BAD_VERSION"),
    (1, "BAD_TYPE"),
    (2, "BAD_MULTIPART"),
    (3, "BAD_EXPERIMENTER"),
    (4, "BAD_EXP_TYPE"),
    (5, "EPERM"),
    (6, "BAD_LEN"),
    (7, "BUFFER_EMPTY"),
    (8, "BUFFER_UNKNOWN"),
    (9, "BAD_TABLE_ID"),
    (0xa, "IS_SLAVE"),
    (0xb, "BAD_PORT"),
    (0xc, "BAD_PACKET"),
    (0xd, "MULTIPART_BUFFER_OVERFLOW"),
];
const BAD_ACTION: &[(u32, &str)] = &[
    (0, "BAD_TYPE"),
    (1, "BAD_LEN"),
    (2, "BAD_EXPERIMENTER"),
    (3, "BAD_EXP_TYPE"),
    (4, "BAD_OUT_PORT"),
    (5, "BAD_ARGUMENT"),
    (6, "EPERM"),
    (7, "TOO_MANY"),
    (8, "BAD_QUEUE"),
    (9, "BAD_OUT_GROUP"),
    (0xa, "MATCH_INCONSISTENT"),
    (0xb, "UNSUPPORTED_ORDER"),
    (0xc, "BAD_TAG"),
    (0xd, "BAD_SET_TYPE"),
    (0xe, "BAD_SET_LEN"),
    (0xf, "BAD_SET_ARGUMENT"),
];
const BAD_INSTRUCTION: &[(u32, &str)] = &[
    (0, "UNKNOWN_INST"),
    (1, "UNSUP_INST"),
    (2, "BAD_TABLE_ID"),
    (3, "UNSUP_METADATA"),
    (4, "UNSUP_METADATA_MASK"),
    (5, "BAD_EXPERIMENTER"),
    (6, "BAD_EXP_TYPE"),
    (7, "BAD_LEN"),
    (8, "EPERM"),
];
const BAD_MATCH: &[(u32, &str)] = &[
    (0, "BAD_TYPE"),
    (1, "BAD_LEN"),
    (2, "BAD_TAG"),
    (3, "BAD_DL_ADDR_MASK"),
    (4, "BAD_NW_ADDR_MASK"),
    (5, "BAD_WILDCARDS"),
    (6, "BAD_FIELD"),
    (7, "BAD_VALUE"),
    (8, "BAD_MASK"),
    (9, "BAD_PREREQ"),
    (0xa, "DUP_FIELD"),
    (0xb, "EPERM"),
];
const FLOW_MOD_FAILED: &[(u32, &str)] = &[
    (0, "UNKNOWN"),
    (1, "TABLE_FULL"),
    (2, "BAD_TABLE_ID"),
    (3, "OVERLAP"),
    (4, "EPERM"),
    (5, "BAD_TIMEOUT"),
    (6, "BAD_COMMAND"),
    (7, "BAD_FLAGS"),
];
const GROUP_MOD_FAILED: &[(u32, &str)] = &[
    (0, "GROUP_EXISTS"),
    (1, "INVALID_GROUP"),
    (2, "WEIGHT_UNSUPPORTED"),
    (3, "OUT_OF_GROUPS"),
    (4, "OUT_OF_BUCKETS"),
    (5, "CHAINING_UNSUPPORTED"),
    (6, "WATCH_UNSUPPORTED"),
    (7, "LOOP"),
    (8, "UNKNOWN_GROUP"),
    (9, "CHAINED_GROUP"),
    (0xa, "BAD_TYPE"),
    (0xb, "BAD_COMMAND"),
    (0xc, "BAD_BUCKET"),
    (0xd, "BAD_MATCH"),
    (0xe, "EPERM"),
];
const PORT_MOD_FAILED: &[(u32, &str)] =
    &[(0, "BAD_PORT"), (1, "BAD_HW_ADDR"), (2, "BAD_CONFIG"), (3, "BAD_ADVERTISE"), (4, "EPERM")];
const TABLE_MOD_FAILED: &[(u32, &str)] = &[(0, "BAD_TABLE"), (1, "BAD_CONFIG"), (2, "EPERM")];
const QUEUE_OP_FAILED: &[(u32, &str)] = &[(0, "BAD_PORT"), (1, "BAD_QUEUE"), (2, "EPERM")];
const SWITCH_CONFIG_FAILED: &[(u32, &str)] = &[(0, "BAD_FLAGS"), (1, "BAD_LEN"), (2, "EPERM")];
const ROLE_REQUEST_FAILED: &[(u32, &str)] = &[(0, "STALE"), (1, "UNSUP"), (2, "BAD_ROLE")];
const METER_MOD_FAILED: &[(u32, &str)] = &[
    (0, "UNKNOWN"),
    (1, "METER_EXISTS"),
    (2, "INVALID_METER"),
    (3, "UNKNOWN_METER"),
    (4, "BAD_COMMAND"),
    (5, "BAD_FLAGS"),
    (6, "BAD_RATE"),
    (7, "BAD_BURST"),
    (8, "BAD_BAND"),
    (9, "BAD_BAND_VALUE"),
    (0xa, "OUT_OF_METERS"),
    (0xb, "OUT_OF_BANDS"),
];
const TABLE_FEATURES_FAILED: &[(u32, &str)] = &[
    (0, "BAD_TABLE"),
    (1, "BAD_METADATA"),
    (2, "BAD_TYPE"),
    (3, "BAD_LEN"),
    (4, "BAD_ARGUMENT"),
    (5, "EPERM"),
];

/// The names of an error's codes, by its type.
const CODES: [&[(u32, &str)]; 14] = [
    HELLO_FAILED,
    BAD_REQUEST,
    BAD_ACTION,
    BAD_INSTRUCTION,
    BAD_MATCH,
    FLOW_MOD_FAILED,
    GROUP_MOD_FAILED,
    PORT_MOD_FAILED,
    TABLE_MOD_FAILED,
    QUEUE_OP_FAILED,
    SWITCH_CONFIG_FAILED,
    ROLE_REQUEST_FAILED,
    METER_MOD_FAILED,
    TABLE_FEATURES_FAILED,
];

use Length::{AtLeast, Exactly};

pub(super) static MESSAGES: [Message; 30] = [
    Message { name: "HELLO", length: AtLeast(0), print: Some(hello) },
    Message { name: "ERROR", length: AtLeast(4), print: Some(error) },
    Message { name: "ECHO_REQUEST", length: AtLeast(0), print: Some(data) },
    Message { name: "ECHO_REPLY", length: AtLeast(0), print: Some(data) },
    Message { name: "EXPERIMENTER", length: AtLeast(8), print: Some(experimenter) },
    Message { name: "FEATURES_REQUEST", length: Exactly(0), print: None },
    Message { name: "FEATURES_REPLY", length: Exactly(24), print: Some(features) },
    Message { name: "GET_CONFIG_REQUEST", length: Exactly(0), print: None },
    Message { name: "GET_CONFIG_REPLY", length: Exactly(4), print: Some(switch_config) },
    Message { name: "SET_CONFIG", length: Exactly(4), print: Some(switch_config) },
    Message { name: "PACKET_IN", length: AtLeast(0), print: None },
    Message { name: "FLOW_REMOVED", length: AtLeast(0), print: None },
    Message { name: "PORT_STATUS", length: Exactly(72), print: Some(port_status) },
    Message { name: "PACKET_OUT", length: AtLeast(0), print: None },
    Message { name: "FLOW_MOD", length: AtLeast(0), print: None },
    Message { name: "GROUP_MOD", length: AtLeast(0), print: None },
    Message { name: "PORT_MOD", length: Exactly(32), print: Some(port_mod) },
    Message { name: "TABLE_MOD", length: Exactly(8), print: Some(table_mod) },
    Message { name: "MULTIPART_REQUEST", length: AtLeast(0), print: None },
    Message { name: "MULTIPART_REPLY", length: AtLeast(0), print: None },
    Message { name: "BARRIER_REQUEST", length: Exactly(0), print: None },
    Message { name: "BARRIER_REPLY", length: Exactly(0), print: None },
    Message { name: "QUEUE_GET_CONFIG_REQUEST", length: Exactly(8), print: Some(queue_request) },
    Message { name: "QUEUE_GET_CONFIG_REPLY", length: AtLeast(0), print: None },
    Message { name: "ROLE_REQUEST", length: Exactly(16), print: Some(role) },
    Message { name: "ROLE_REPLY", length: Exactly(16), print: Some(role) },
    Message { name: "GET_ASYNC_REQUEST", length: Exactly(0), print: None },
    Message { name: "GET_ASYNC_REPLY", length: Exactly(24), print: Some(asynchronous) },
    Message { name: "SET_ASYNC", length: Exactly(24), print: Some(asynchronous) },
    Message { name: "METER_MOD", length: AtLeast(0), print: None },
];

/// `name PORT`.
fn put_port(cx: &mut Context<'_>, fields: &mut Fields<'_>, name: &str) -> PartResult {
    let port = fields.u32()?;
    cx.text(name);
    put_name(cx, PORTS, port, Otherwise::Decimal);
    Ok(())
}

fn port(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> PartResult {
    put_port(cx, fields, "\n\t  port_no ")?;
    fields.pass(4);
    fields.mac(cx, ", hw_addr ")?;
    fields.pass(2);
    fields.quoted(cx, ", name", 16)?;
    if cx.verbose() < 2 {
        return fields.padding(32);
    }
    put_word(cx, fields, "\n\t   config", PORT_CONFIG)?;
    put_word(cx, fields, "\n\t   state", PORT_STATES)?;
    for name in ["\n\t   curr", "\n\t   advertised", "\n\t   supported", "\n\t   peer"] {
        put_word(cx, fields, name, PORT_FEATURES)?;
    }
    put!(cx, "\n\t   curr_speed {}kbps", fields.u32()?);
    put!(cx, "\n\t   max_speed {}kbps", fields.u32()?);
    Ok(())
}

fn hello(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let outcome = hello_elements(cx, span);
    settle(cx, outcome)
}

fn hello_elements<'p>(cx: &mut Context<'_>, span: Span<'p>) -> Result<Result<(), Invalid<'p>>, Cut> {
    let mut fields = Fields::new(span);
    while fields.left() != 0 {
        if fields.left() < 4 {
            return Ok(Err(Invalid(fields.rest)));
        }
        let kind = fields.u16()?;
        cx.text("\n\t type ");
        put_name(cx, &[(1, "VERSIONBITMAP")], kind, Otherwise::Word("unknown", 4));
        let length = usize::from(fields.u16()?);
        put!(cx, ", length {length}");
        if length < 4 || length > fields.left() + 4 {
            return Ok(Err(Invalid(fields.rest)));
        }
        match (kind, length) {
            (1, 8) => put_word(cx, &mut Fields::new(fields.rest), ", bitmap", VERSION_BITS)?,
            (1, _) => cx.text(" (bogus)"),
            _ => {}
        }
        fields.padding(length - 4)?;
    }
    Ok(Ok(()))
}

fn error(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    put_error(cx, span, ERRORS, &CODES)
}

fn experimenter(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    let experimenter = fields.u32()?;
    put!(cx, "\n\t experimenter 0x{experimenter:08x} ({})", vendor_name(experimenter));
    put!(cx, ", exp_type 0x{:08x}", fields.u32()?);
    data(cx, fields.rest)
}

fn features(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    put!(cx, "\n\t dpid 0x{:016x}", fields.u64()?);
    fields.put_u32(cx, ", n_buffers")?;
    put!(cx, ", n_tables {}", fields.u8()?);
    put!(cx, ", auxiliary_id {}", fields.u8()?);
    fields.pass(2);
    put_word(cx, &mut fields, "\n\t capabilities", CAPABILITIES)?;
    fields.padding(4)
}

fn switch_config(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    let flags = fields.u16()?;
    cx.text("\n\t flags ");
    put_name(cx, FRAGMENTS, flags, INVALID_4);
    let length = fields.u16()?;
    cx.text(", miss_send_len ");
    put_name(cx, LENGTHS, length, Otherwise::Decimal);
    Ok(())
}

fn port_status(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    let reason = fields.u8()?;
    match crate::context::lookup(PORT_REASONS, u32::from(reason)) {
        Some(name) => put!(cx, "\n\t reason {name}"),
        // The number does not show in tcpdump's text.
        None => cx.text("\n\t reason invalid (0x02x)"),
    }
    fields.pass(7);
    port(cx, &mut fields)
}

fn port_mod(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    put_port(cx, &mut fields, "\n\t port_no ")?;
    fields.pass(4);
    fields.mac(cx, ", hw_addr ")?;
    fields.pass(2);
    put_word(cx, &mut fields, "\n\t  config", PORT_CONFIG)?;
    put_word(cx, &mut fields, "\n\t  mask", PORT_CONFIG)?;
    put_word(cx, &mut fields, "\n\t  advertise", PORT_FEATURES)?;
    fields.padding(4)
}

fn table_mod(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    let table = fields.u8()?;
    cx.text("\n\t table_id ");
    put_name(cx, TABLES, table, Otherwise::Decimal);
    fields.pass(3);
    put!(cx, ", config 0x{:08x}", fields.u32()?);
    Ok(())
}

fn queue_request(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    put_port(cx, &mut fields, "\n\t port ")?;
    fields.padding(4)
}

fn role(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    let role = fields.u32()?;
    cx.text("\n\t role ");
    put_name(cx, ROLES, role, Otherwise::Word("invalid", 8));
    fields.pass(4);
    put!(cx, ", generation_id 0x{:016x}", fields.u64()?);
    Ok(())
}

/// Messages that a controller gets: of one that is master or equal, and of one that is slave.
fn asynchronous(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    for (name, table) in [
        ("\n\t packet_in_mask[EM]", PACKET_REASONS),
        ("\n\t packet_in_mask[S]", PACKET_REASONS),
        ("\n\t port_status_mask[EM]", PORT_REASON_BITS),
        ("\n\t port_status_mask[S]", PORT_REASON_BITS),
        // tcpdump has the names of port reasons for these too.
        ("\n\t flow_removed_mask[EM]", PORT_REASON_BITS),
        ("\n\t flow_removed_mask[S]", PORT_REASON_BITS),
    ] {
        put_word(cx, &mut fields, name, table)?;
    }
    Ok(())
}
