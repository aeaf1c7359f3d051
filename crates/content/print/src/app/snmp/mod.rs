//! SNMP, versions 1 (RFC 1157), 2c (RFC 1901) and 3 (RFC 3412).
//!
//! ```text
//! message  = SEQUENCE { version 0/1, community STRING, pdu }
//!          | SEQUENCE { version 3, SEQUENCE { id, maximum size, flags STRING, model },
//!                       STRING { engine, boots, time, user, authentication, privacy }, scoped pdu }
//! scoped   = SEQUENCE { engine STRING, context STRING, pdu }
//! pdu      = [tag] { request id, error status, error index, bindings }
//! trap     = [4] { enterprise, agent, generic, specific, time, bindings }
//! bindings = SEQUENCE OF SEQUENCE { object, value }
//! ```
//!
//! Text: ` GetRequest(28)  .1.3.6.1.2.1.1.1.0`; a community other than `public` goes first as `C="name"`.

mod ber;

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;
use ber::{Kind, Stop, Value};

const GET: usize = 0;
const GET_NEXT: usize = 1;
const RESPONSE: usize = 2;
const TRAP: usize = 4;
const GET_BULK: usize = 5;

const VERSIONS: [&str; 4] = ["SNMPv1", "SNMPv2c", "SNMPv2u", "SNMPv3"];

/// Error statuses (RFC 3416).
const ERRORS: [&str; 19] = [
    "noError",
    "tooBig",
    "noSuchName",
    "badValue",
    "readOnly",
    "genErr",
    "noAccess",
    "wrongType",
    "wrongLength",
    "wrongEncoding",
    "wrongValue",
    "noCreation",
    "inconsistentValue",
    "resourceUnavailable",
    "commitFailed",
    "undoFailed",
    "authorizationError",
    "notWritable",
    "inconsistentName",
];

const TRAPS: [&str; 7] = [
    "coldStart",
    "warmStart",
    "linkDown",
    "linkUp",
    "authenticationFailure",
    "egpNeighborLoss",
    "enterpriseSpecific",
];
const ENTERPRISE_SPECIFIC: i32 = 6;

type Done = Result<(), Stop>;

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "snmp";
    cx.text(" ");
    // The printer has already printed its error.
    let _: Done = print_message(cx, span.limit(span.length));
    Ok(())
}

/// Text that only `-v` shows.
fn verbose(cx: &mut Context<'_>, text: &str) {
    if cx.verbose() > 0 {
        cx.text(text);
    }
}

/// The next value, which must be of a kind; `fault` names it in `[fault]` where it is not.
fn expect<'p>(
    cx: &mut Context<'_>,
    span: &mut Span<'p>,
    fault: &str,
    is_wanted: impl Fn(Kind) -> bool,
) -> Result<Value<'p>, Stop> {
    let value = ber::parse(cx, *span)?;
    if !is_wanted(value.kind) {
        put!(cx, "[{fault}]");
        ber::print(cx, &value);
        return Err(Stop);
    }
    *span = value.rest;
    Ok(value)
}

fn expect_integer(cx: &mut Context<'_>, span: &mut Span<'_>, name: &str) -> Result<i32, Stop> {
    let value = ber::parse(cx, *span)?;
    let Kind::Integer(number) = value.kind else {
        put!(cx, "[{name}!=INT]");
        ber::print(cx, &value);
        return Err(Stop);
    };
    *span = value.rest;
    Ok(number)
}

fn expect_string<'p>(cx: &mut Context<'_>, span: &mut Span<'p>, name: &str) -> Result<Span<'p>, Stop> {
    let value = ber::parse(cx, *span)?;
    if value.kind != Kind::String {
        put!(cx, "[{name}!=STR]");
        ber::print(cx, &value);
        return Err(Stop);
    }
    *span = value.rest;
    Ok(value.contents)
}

fn extra(cx: &mut Context<'_>, rest: Span<'_>, after: &str) {
    if rest.length > 0 {
        put!(cx, "[{} extra after {after}]", rest.length);
    }
}

fn print_message(cx: &mut Context<'_>, mut span: Span<'_>) -> Done {
    let message = expect(cx, &mut span, "!init SEQ", |kind| kind == Kind::Sequence)?;
    extra(cx, span, "iSEQ");
    let mut span = message.contents;
    let version = expect_integer(cx, &mut span, "version")?;
    match version {
        0 | 1 | 3 => {
            if cx.verbose() > 0 {
                put!(cx, "{{ {} ", VERSIONS[version as usize]);
            }
        }
        _ => {
            put!(cx, "SNMP [version = {version}]");
            return Ok(());
        }
    }
    // An error inside of this part does not end the message.
    let _: Done = match version {
        3 => print_version_3(cx, span),
        _ => print_community(cx, span, version),
    };
    verbose(cx, "} ");
    Ok(())
}

fn print_community(cx: &mut Context<'_>, mut span: Span<'_>, version: i32) -> Done {
    let community = expect_string(cx, &mut span, "comm")?;
    if community.data != b"public" {
        cx.text("C=");
        ber::print_string(cx, community.data);
        cx.text(" ");
    }
    print_pdu(cx, span, version)
}

fn print_version_3(cx: &mut Context<'_>, mut span: Span<'_>) -> Done {
    let header = expect(cx, &mut span, "!message", |kind| kind == Kind::Sequence)?;
    let mut fields = header.contents;
    verbose(cx, "{ ");
    expect_integer(cx, &mut fields, "msgID")?;
    expect_integer(cx, &mut fields, "msgMaxSize")?;
    let flags = expect_string(cx, &mut fields, "msgFlags")?;
    let &[flags] = flags.data else {
        put!(cx, "[msgFlags size {}]", flags.length);
        return Err(Stop);
    };
    if !matches!(flags, 0 | 1 | 3 | 4 | 5 | 7) {
        put!(cx, "[msgFlags=0x{flags:02X}]");
        return Err(Stop);
    }
    cx.text("F=");
    for (bit, letter) in [(1, "a"), (2, "p"), (4, "r")] {
        cx.text(if flags & bit != 0 { letter } else { "" });
    }
    cx.text(" ");
    let model = expect_integer(cx, &mut fields, "msgSecurityModel")?;
    extra(cx, fields, "message SEQ");
    verbose(cx, "} ");
    if model != 3 {
        put!(cx, "[security model {model}]");
        return Err(Stop);
    }
    verbose(cx, "{ USM ");
    let security = expect_string(cx, &mut span, "msgSecurityParameters")?;
    let _: Done = print_user_security(cx, security);
    verbose(cx, "} { ScopedPDU ");
    let _: Done = print_scoped_pdu(cx, span);
    verbose(cx, "} ");
    Ok(())
}

/// The user-based security model (RFC 3414).
fn print_user_security(cx: &mut Context<'_>, mut span: Span<'_>) -> Done {
    let parameters = expect(cx, &mut span, "!usm", |kind| kind == Kind::Sequence)?;
    let mut span = parameters.contents;
    expect_string(cx, &mut span, "msgAuthoritativeEngineID")?;
    let boots = expect_integer(cx, &mut span, "msgAuthoritativeEngineBoots")?;
    if cx.verbose() > 0 {
        put!(cx, "B={boots} ");
    }
    let time = expect_integer(cx, &mut span, "msgAuthoritativeEngineTime")?;
    if cx.verbose() > 0 {
        put!(cx, "T={time} ");
    }
    let user = expect_string(cx, &mut span, "msgUserName")?;
    cx.text("U=");
    ber::print_string(cx, user.data);
    cx.text(" ");
    expect_string(cx, &mut span, "msgAuthenticationParameters")?;
    expect_string(cx, &mut span, "msgPrivacyParameters")?;
    extra(cx, span, "usm SEQ");
    Ok(())
}

fn print_scoped_pdu(cx: &mut Context<'_>, mut span: Span<'_>) -> Done {
    let scoped = expect(cx, &mut span, "!scoped PDU", |kind| kind == Kind::Sequence)?;
    let mut span = scoped.contents;
    let engine = expect_string(cx, &mut span, "contextEngineID")?;
    cx.text("E=");
    ber::print_octets(cx, engine.data);
    cx.text(" ");
    let context = expect_string(cx, &mut span, "contextName")?;
    cx.text("C=");
    ber::print_string(cx, context.data);
    cx.text(" ");
    print_pdu(cx, span, 3)
}

fn print_pdu(cx: &mut Context<'_>, span: Span<'_>, version: i32) -> Done {
    let pdu = ber::parse(cx, span)?;
    let Kind::Pdu(tag) = pdu.kind else {
        cx.text("[no PDU]");
        return Err(Stop);
    };
    extra(cx, pdu.rest, "PDU");
    verbose(cx, "{ ");
    ber::print(cx, &pdu);
    cx.text(" ");
    if version == 0 && tag >= GET_BULK {
        cx.text("[v2 PDU in v1 message]");
        return Err(Stop);
    }
    if version == 1 && tag == TRAP {
        cx.text("[v1 PDU in v2 message]");
        return Err(Stop);
    }
    let _: Done = match tag {
        TRAP => print_trap(cx, pdu.contents),
        _ => print_request(cx, pdu.contents, tag),
    };
    verbose(cx, " } ");
    Ok(())
}

fn print_error(cx: &mut Context<'_>, error: i32) {
    match usize::try_from(error).ok().and_then(|index| ERRORS.get(index)) {
        Some(name) => cx.text(name),
        None => put!(cx, "err={}", error as u32),
    }
}

/// Every message but version 1's trap. Only responses may report errors; a bulk request has numbers in their place.
fn print_request(cx: &mut Context<'_>, mut span: Span<'_>, tag: usize) -> Done {
    let request = expect_integer(cx, &mut span, "reqId")?;
    if cx.verbose() > 0 {
        put!(cx, "R={request} ");
    }
    let status = expect_integer(cx, &mut span, "errorStatus")?;
    match tag {
        GET_BULK => put!(cx, " N={status}"),
        _ if status == 0 => {}
        RESPONSE => {
            cx.text(" ");
            print_error(cx, status);
        }
        _ => {
            cx.text("[errorStatus(");
            print_error(cx, status);
            cx.text(")!=0]");
        }
    }
    let index = expect_integer(cx, &mut span, "errorIndex")?;
    match tag {
        GET_BULK => put!(cx, " M={index}"),
        RESPONSE if index == 0 && status != 0 => cx.text("[errorIndex==0]"),
        _ if index == 0 => {}
        RESPONSE if status == 0 => put!(cx, "[errorIndex({index}) w/o errorStatus]"),
        RESPONSE => put!(cx, "@{index}"),
        _ => put!(cx, "[errorIndex({index})!=0]"),
    }
    print_bindings(cx, span, tag)
}

fn print_trap(cx: &mut Context<'_>, mut span: Span<'_>) -> Done {
    cx.text(" ");
    let enterprise = expect(cx, &mut span, "enterprise!=OID", |kind| kind == Kind::ObjectId)?;
    ber::print(cx, &enterprise);
    cx.text(" ");
    let agent = expect(cx, &mut span, "agent-addr!=INETADDR", |kind| kind == Kind::Address)?;
    ber::print(cx, &agent);
    let generic = expect_integer(cx, &mut span, "generic-trap")?;
    match usize::try_from(generic).ok().and_then(|index| TRAPS.get(index)) {
        Some(name) => put!(cx, " {name}"),
        None => put!(cx, " gt={generic}"),
    }
    let specific = expect_integer(cx, &mut span, "specific-trap")?;
    if generic == ENTERPRISE_SPECIFIC {
        put!(cx, " s={specific}");
    } else if specific != 0 {
        put!(cx, "[specific-trap({specific})!=0]");
    }
    cx.text(" ");
    let time = expect(cx, &mut span, "time-stamp!=TIMETICKS", |kind| matches!(kind, Kind::Unsigned(_)))?;
    ber::print(cx, &time);
    print_bindings(cx, span, TRAP)
}

fn print_bindings(cx: &mut Context<'_>, mut span: Span<'_>, tag: usize) -> Done {
    let bindings = expect(cx, &mut span, "!SEQ of varbind", |kind| kind == Kind::Sequence)?;
    extra(cx, span, "SEQ of varbind");
    let mut span = bindings.contents;
    while span.length > 0 {
        cx.text(" ");
        let binding = expect(cx, &mut span, "!varbind", |kind| kind == Kind::Sequence)?;
        print_binding(cx, binding.contents, tag)?;
    }
    Ok(())
}

fn print_binding(cx: &mut Context<'_>, mut span: Span<'_>, tag: usize) -> Done {
    let object = expect(cx, &mut span, "objName!=OID", |kind| kind == Kind::ObjectId)?;
    ber::print(cx, &object);
    let asks = matches!(tag, GET | GET_NEXT | GET_BULK);
    cx.text(if asks { "" } else { "=" });
    let value = ber::parse(cx, span)?;
    if value.kind != Kind::Null {
        cx.text(if asks { "[objVal!=NULL]" } else { "" });
        ber::print(cx, &value);
    }
    Ok(())
}
