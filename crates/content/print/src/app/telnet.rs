//! The commands at the start of a Telnet segment (RFC 854): ` [telnet WILL ECHO, DO NAWS]`.
//!
//! ```text
//! IAC IAC | IAC command | IAC WILL/WONT/DO/DONT option | IAC SB option bytes IAC SE
//! ```

use crate::bytes::{Cut, Span};
use crate::context::Context;
use crate::text::Text;

const COMMAND: u8 = 255;
const DONT: u8 = 254;
const SUBNEGOTIATION: u8 = 250;
const SUBNEGOTIATION_END: u8 = 240;
const FIRST: u8 = 236;

const COMMANDS: [&str; 19] = [
    "EOF", "SUSP", "ABORT", "EOR", "SE", "NOP", "DMARK", "BRK", "IP", "AO", "AYT", "EC", "EL", "GA", "SB",
    "WILL", "WONT", "DO", "DONT",
];

const OPTIONS: [&str; 40] = [
    "BINARY",
    "ECHO",
    "RCP",
    "SUPPRESS GO AHEAD",
    "NAME",
    "STATUS",
    "TIMING MARK",
    "RCTE",
    "NAOL",
    "NAOP",
    "NAOCRD",
    "NAOHTS",
    "NAOHTD",
    "NAOFFD",
    "NAOVTS",
    "NAOVTD",
    "NAOLFD",
    "EXTEND ASCII",
    "LOGOUT",
    "BYTE MACRO",
    "DATA ENTRY TERMINAL",
    "SUPDUP",
    "SUPDUP OUTPUT",
    "SEND LOCATION",
    "TERMINAL TYPE",
    "END OF RECORD",
    "TACACS UID",
    "OUTPUT MARKING",
    "TTYLOC",
    "3270 REGIME",
    "X.3 PAD",
    "NAWS",
    "TSPEED",
    "LFLOW",
    "LINEMODE",
    "XDISPLOC",
    "OLD-ENVIRON",
    "AUTHENTICATION",
    "ENCRYPT",
    "NEW-ENVIRON",
];

const AUTHENTICATION: u8 = 37;
const ENCRYPT: u8 = 38;

const QUALIFIERS: &[&str] = &["IS", "SEND", "INFO"];
const AUTHENTICATION_COMMANDS: &[&str] = &["IS", "SEND", "REPLY", "NAME"];
const AUTHENTICATION_TYPES: &[&str] = &[
    "NULL",
    "KERBEROS_V4",
    "KERBEROS_V5",
    "SPX",
    "MINK",
    "SRP",
    "RSA",
    "SSL",
    "",
    "",
    "LOKI",
    "SSA",
    "KEA_SJ",
    "KEA_SJ_INTEG",
    "DSS",
    "NTLM",
];
const ENCRYPTION_COMMANDS: &[&str] =
    &["IS", "SUPPORT", "REPLY", "START", "END", "REQUEST-START", "REQUEST-END", "END_KEYID", "DEC_KEYID"];
const ENCRYPTION_TYPES: &[&str] = &[
    "NULL",
    "DES_CFB64",
    "DES_OFB64",
    "DES3_CFB64",
    "DES3_OFB64",
    "",
    "CAST5_40_CFB64",
    "CAST5_40_OFB64",
    "CAST128_CFB64",
    "CAST128_OFB64",
];

/// The commands; nothing where the segment starts with text.
pub(crate) fn print(cx: &mut Context<'_>, mut span: Span<'_>) -> Result<(), Cut> {
    cx.protocol = "telnet";
    let mut separator = " [telnet ";
    while span.length > 0 && span.u8(0)? == COMMAND {
        let Some(length) = length(span)? else { break };
        cx.text(separator);
        separator = ", ";
        print_command(cx, span.bytes(0, length)?);
        span = span.skip(length);
    }
    if separator == ", " {
        cx.text("]");
    }
    Ok(())
}

/// Bytes of the command at the start; `None` if it is not complete, or none.
fn length(span: Span<'_>) -> Result<Option<usize>, Cut> {
    if span.length < 2 {
        return Ok(None);
    }
    match span.u8(1)? {
        COMMAND => Ok(Some(2)),
        SUBNEGOTIATION..=DONT if span.length < 3 => Ok(None),
        SUBNEGOTIATION => {
            let mut at = 3;
            while at + 1 < span.length && (span.u8(at)?, span.u8(at + 1)?) != (COMMAND, SUBNEGOTIATION_END) {
                at += 1;
            }
            Ok((at + 1 < span.length).then_some(at + 2))
        }
        251..=DONT => Ok(Some(3)),
        FIRST..SUBNEGOTIATION => Ok(Some(2)),
        _ => Ok(None),
    }
}

fn print_command(cx: &mut Context<'_>, bytes: &[u8]) {
    let command = bytes[1];
    if command == COMMAND {
        return cx.text("IAC IAC");
    }
    cx.text(COMMANDS[usize::from(command - FIRST)]);
    let Some(&option) = bytes.get(2) else { return };
    cx.text(" ");
    match OPTIONS.get(usize::from(option)) {
        Some(name) => cx.text(name),
        None => print_hex(cx, option),
    }
    if command == SUBNEGOTIATION {
        print_subnegotiation(cx, option, &bytes[3..bytes.len() - 2]);
        cx.text(" SE");
    }
}

fn print_subnegotiation(cx: &mut Context<'_>, option: u8, values: &[u8]) {
    let tables: &[&[&str]] = match option {
        AUTHENTICATION => &[AUTHENTICATION_COMMANDS, AUTHENTICATION_TYPES],
        ENCRYPT => &[ENCRYPTION_COMMANDS, ENCRYPTION_TYPES],
        _ => &[QUALIFIERS],
    };
    for (index, &value) in values.iter().enumerate() {
        cx.text(" ");
        match tables.get(index).and_then(|table| table.get(usize::from(value))) {
            Some(name) if !name.is_empty() => cx.text(name),
            _ => print_hex(cx, value),
        }
    }
}

/// `%#x`: zero has no prefix.
fn print_hex(cx: &mut Context<'_>, value: u8) {
    cx.text(if value == 0 { "" } else { "0x" });
    cx.hex(value, 1);
}
