//! RADIUS (RFC 2865), its accounting (RFC 2866) and dynamic authorization (RFC 5176).
//!
//! ```text
//! code 1 | identifier 1 | length 2 | authenticator 16 | (type 1, length 1 with both, value)*
//! ```

use super::{eap, ntp};
use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::hexdump;
use crate::text::Text;

const HEADER_LEN: usize = 20;

const CODES: &[(u8, &str)] = &[
    (1, "Access-Request"),
    (2, "Access-Accept"),
    (3, "Access-Reject"),
    (4, "Accounting-Request"),
    (5, "Accounting-Response"),
    (11, "Access-Challenge"),
    (12, "Status-Server"),
    (13, "Status-Client"),
    (40, "Disconnect-Request"),
    (41, "Disconnect-ACK"),
    (42, "Disconnect-NAK"),
    (43, "CoA-Request"),
    (44, "CoA-ACK"),
    (45, "CoA-NAK"),
    (255, "Reserved"),
];

/// How the value of an attribute reads.
#[derive(Clone, Copy)]
enum Form {
    Text,
    /// Text behind a byte that groups attributes of a tunnel, if that is below 0x20.
    Tagged,
    /// Text behind the byte that groups attributes of a tunnel, and a salt.
    Password,
    Number,
    /// A number, or a word for 0.
    NumberOr(&'static str),
    /// A number behind the byte that groups attributes of a tunnel.
    TaggedNumber,
    /// The number of a VLAN, and whether its frames are tagged (RFC 4675).
    Vlan,
    /// The name of a VLAN, and whether its frames are tagged.
    VlanName,
    /// A number of an IPX network.
    Network,
    /// A number with names, the first of them of number 0; empty names are none.
    Named(&'static [&'static str]),
    /// As `Named`, with the byte that groups attributes of a tunnel before it.
    TaggedNamed(&'static [&'static str]),
    /// Seconds.
    Duration,
    /// An address, with words for the two highest.
    Address,
    /// An address of a host or a mask.
    Host,
    Address6,
    /// A reserved byte, the prefix's length, and as many of its bytes as are needed.
    Prefix6,
    /// The prefix's length and its 16 bytes.
    HomePrefix6,
    /// What a network offers to mobile hosts (RFC 5447).
    MobilityFeatures,
    /// A name space and a name (RFC 5580).
    Operator,
    Location,
    LocationData,
    LocationRules,
    AppleTalkPassword,
    AppleTalkFeatures,
    AppleTalkChallenge,
    Time,
    /// Why a change was refused.
    Cause,
    Vendor,
    Eap,
    /// Not shown, as it is a secret or has no known form.
    Hidden,
}

const SERVICES: &[&str] = &[
    "",
    "Login",
    "Framed",
    "Callback Login",
    "Callback Framed",
    "Outbound",
    "Administrative",
    "NAS Prompt",
    "Authenticate Only",
    "Callback NAS Prompt",
    "Call Check",
    "Callback Administrative",
    "Voice",
    "Fax",
    "Modem Relay",
    "IAPP-Register",
    "IAPP-AP-Check",
    "Authorize Only",
    "Framed-Management",
    "Additional-Authorization",
];
const FRAMED_PROTOCOLS: &[&str] = &[
    "",
    "PPP",
    "SLIP",
    "ARAP",
    "Gandalf proprietary",
    "Xylogics IPX/SLIP",
    "X.75 Synchronous",
    "GPRS PDP Context",
];
const ROUTINGS: &[&str] = &["None", "Send", "Listen", "Send&Listen"];
const COMPRESSIONS: &[&str] = &["None", "VJ TCP/IP", "IPX", "Stac-LZS"];
const LOGIN_SERVICES: &[&str] = &[
    "Telnet",
    "Rlogin",
    "TCP Clear",
    "PortMaster(proprietary)",
    "LAT",
    "X.25-PAD",
    "X.25-T3POS",
    "Unassigned",
    "TCP Clear Quiet",
];
const TERMINATIONS: &[&str] = &["Default", "RADIUS-Request"];
const PORT_TYPES: &[&str] = &[
    "Async",
    "Sync",
    "ISDN Sync",
    "ISDN Async V.120",
    "ISDN Async V.110",
    "Virtual",
    "PIAFS",
    "HDLC Clear Channel",
    "X.25",
    "X.75",
    "G.3 Fax",
    "SDSL",
    "ADSL-CAP",
    "ADSL-DMT",
    "ISDN-DSL",
    "Ethernet",
    "xDSL",
    "Cable",
    "Wireless - Other",
    "Wireless - IEEE 802.11",
];
const ACCOUNTING_STATUSES: &[&str] = &[
    "",
    "Start",
    "Stop",
    "Interim-Update",
    "Unassigned",
    "Unassigned",
    "Unassigned",
    "Accounting-On",
    "Accounting-Off",
    "Tunnel-Start",
    "Tunnel-Stop",
    "Tunnel-Reject",
    "Tunnel-Link-Start",
    "Tunnel-Link-Stop",
    "Tunnel-Link-Reject",
    "Failed",
];
const AUTHENTICATORS: &[&str] = &["", "RADIUS", "Local", "Remote", "Diameter"];
const CAUSES: &[&str] = &[
    "",
    "User Request",
    "Lost Carrier",
    "Lost Service",
    "Idle Timeout",
    "Session Timeout",
    "Admin Reset",
    "Admin Reboot",
    "Port Error",
    "NAS Error",
    "NAS Request",
    "NAS Reboot",
    "Port Unneeded",
    "Port Preempted",
    "Port Suspended",
    "Service Unavailable",
    "Callback",
    "User Error",
    "Host Request",
    "Supplicant Restart",
    "Reauthentication Failure",
    "Port Reinitialized",
    "Port Administratively Disabled",
    "Lost Power",
];
const TUNNELS: &[&str] = &[
    "",
    "PPTP",
    "L2F",
    "L2TP",
    "ATMP",
    "VTP",
    "AH",
    "IP-IP",
    "MIN-IP-IP",
    "ESP",
    "GRE",
    "DVS",
    "IP-in-IP Tunneling",
    "VLAN",
];
const MEDIA: &[&str] = &[
    "",
    "IPv4",
    "IPv6",
    "NSAP",
    "HDLC",
    "BBN 1822",
    "802",
    "E.163",
    "E.164",
    "F.69",
    "X.121",
    "IPX",
    "Appletalk",
    "Decnet IV",
    "Banyan Vines",
    "E.164 with NSAP subaddress",
];
const PROMPTS: &[&str] = &["No Echo", "Echo"];

const INGRESS_FILTERS: &[&str] = &["", "Enabled", "Disabled"];
const ZONE_ACCESS: &[&str] =
    &["", "Only access to dfl zone", "Use zone filter inc.", "Not used", "Use zone filter exc."];

const VLAN_TAGGING: &[(u8, &str)] = &[(0x31, "Tagged"), (0x32, "Untagged")];

const MOBILITY_FEATURES: &[(u64, &str)] = &[
    (1, "MIP6_INTEGRATED"),
    (1 << 1, "LOCAL_HOME_AGENT_ASSIGNMENT"),
    (1 << 40, "PMIP6_SUPPORTED"),
    (1 << 41, "IP4_HOA_SUPPORTED"),
    (1 << 42, "LOCAL_MAG_ROUTING_SUPPORTED"),
    (1 << 43, "ASSIGN_LOCAL_IP"),
    (1 << 44, "MIP4_SUPPORTED"),
    (1 << 45, "OPTIMIZED_IDLE_MODE_MOBILITY"),
    (1 << 46, "GTPv2_SUPPORTED"),
    (1 << 47, "IP4_TRANSPORT_SUPPORTED"),
    (1 << 48, "IP4_HOA_ONLY_SUPPORTED"),
    (1 << 49, "INTER_MAG_ROUTING_SUPPORTED"),
];

/// What may be done with a location: bits that must be 0, and the right to pass it on (RFC 5580, 4.4).
#[rustfmt::skip]
const LOCATION_FLAGS: &[(u32, &str)] = &[
    (0x0001, "MBZ-15"), (0x0002, "MBZ-14"), (0x0004, "MBZ-13"), (0x0008, "MBZ-12"), (0x0010, "MBZ-11"),
    (0x0020, "MBZ-10"), (0x0040, "MBZ-9"), (0x0080, "MBZ-8"), (0x0100, "MBZ-7"), (0x0200, "MBZ-6"),
    (0x0400, "MBZ-5"), (0x0800, "MBZ-4"), (0x1000, "MBZ-3"), (0x2000, "MBZ-2"), (0x4000, "MBZ-1"),
    (0x8000, "Retransmission Allowed"),
];

/// Attributes: type, name, form (IANA, "RADIUS Attribute Types").
const ATTRIBUTES: &[(u8, &str, Form)] = &[
    (1, "User-Name", Form::Text),
    (2, "User-Password", Form::Hidden),
    (3, "CHAP-Password", Form::Hidden),
    (4, "NAS-IP-Address", Form::Host),
    (5, "NAS-Port", Form::Number),
    (6, "Service-Type", Form::Named(SERVICES)),
    (7, "Framed-Protocol", Form::Named(FRAMED_PROTOCOLS)),
    (8, "Framed-IP-Address", Form::Address),
    (9, "Framed-IP-Netmask", Form::Host),
    (10, "Framed-Routing", Form::Named(ROUTINGS)),
    (11, "Filter-Id", Form::Text),
    (12, "Framed-MTU", Form::Number),
    (13, "Framed-Compression", Form::Named(COMPRESSIONS)),
    (14, "Login-IP-Host", Form::Address),
    (15, "Login-Service", Form::Named(LOGIN_SERVICES)),
    (16, "Login-TCP-Port", Form::Number),
    (17, "Unassigned", Form::Hidden),
    (18, "Reply-Message", Form::Text),
    (19, "Callback-Number", Form::Text),
    (20, "Callback-Id", Form::Text),
    (21, "Unassigned", Form::Hidden),
    (22, "Framed-Route", Form::Text),
    (23, "Framed-IPX-Network", Form::Network),
    (24, "State", Form::Text),
    (25, "Class", Form::Text),
    (26, "Vendor-Specific", Form::Vendor),
    (27, "Session-Timeout", Form::Duration),
    (28, "Idle-Timeout", Form::Duration),
    (29, "Termination-Action", Form::Named(TERMINATIONS)),
    (30, "Called-Station-Id", Form::Text),
    (31, "Calling-Station-Id", Form::Text),
    (32, "NAS-Identifier", Form::Text),
    (33, "Proxy-State", Form::Text),
    (34, "Login-LAT-Service", Form::Text),
    (35, "Login-LAT-Node", Form::Text),
    (36, "Login-LAT-Group", Form::Text),
    (37, "Framed-AppleTalk-Link", Form::NumberOr("Unnumbered")),
    (38, "Framed-AppleTalk-Network", Form::NumberOr("NAS assigned")),
    (39, "Framed-AppleTalk-Zone", Form::Text),
    (40, "Acct-Status-Type", Form::Named(ACCOUNTING_STATUSES)),
    (41, "Acct-Delay-Time", Form::Duration),
    (42, "Acct-Input-Octets", Form::Number),
    (43, "Acct-Output-Octets", Form::Number),
    (44, "Acct-Session-Id", Form::Text),
    (45, "Acct-Authentic", Form::Named(AUTHENTICATORS)),
    (46, "Acct-Session-Time", Form::Duration),
    (47, "Acct-Input-Packets", Form::Number),
    (48, "Acct-Output-Packets", Form::Number),
    (49, "Acct-Terminate-Cause", Form::Named(CAUSES)),
    (50, "Acct-Multi-Session-Id", Form::Text),
    (51, "Acct-Link-Count", Form::Number),
    (52, "Acct-Input-Gigawords", Form::Number),
    (53, "Acct-Output-Gigawords", Form::Number),
    (54, "Unassigned", Form::Hidden),
    (55, "Event-Timestamp", Form::Time),
    (56, "Egress-VLANID", Form::Vlan),
    (57, "Ingress-Filters", Form::Named(INGRESS_FILTERS)),
    (58, "Egress-VLAN-Name", Form::VlanName),
    (59, "User-Priority-Table", Form::Hidden),
    (60, "CHAP-Challenge", Form::Text),
    (61, "NAS-Port-Type", Form::Named(PORT_TYPES)),
    (62, "Port-Limit", Form::Number),
    (63, "Login-LAT-Port", Form::Text),
    (64, "Tunnel-Type", Form::TaggedNamed(TUNNELS)),
    (65, "Tunnel-Medium-Type", Form::TaggedNamed(MEDIA)),
    (66, "Tunnel-Client-Endpoint", Form::Tagged),
    (67, "Tunnel-Server-Endpoint", Form::Tagged),
    (68, "Acct-Tunnel-Connection", Form::Text),
    (69, "Tunnel-Password", Form::Password),
    (70, "ARAP-Password", Form::AppleTalkPassword),
    (71, "ARAP-Features", Form::AppleTalkFeatures),
    (72, "ARAP-Zone-Access", Form::Named(ZONE_ACCESS)),
    (73, "ARAP-Security", Form::Text),
    (74, "ARAP-Security-Data", Form::Text),
    (75, "Password-Retry", Form::Number),
    (76, "Prompt", Form::Named(PROMPTS)),
    (77, "Connect-Info", Form::Text),
    (78, "Configuration-Token", Form::Text),
    (79, "EAP-Message", Form::Eap),
    (80, "Message-Authenticator", Form::Text),
    (81, "Tunnel-Private-Group-ID", Form::Tagged),
    (82, "Tunnel-Assignment-ID", Form::Tagged),
    (83, "Tunnel-Preference", Form::TaggedNumber),
    (84, "ARAP-Challenge-Response", Form::AppleTalkChallenge),
    (85, "Acct-Interim-Interval", Form::Duration),
    (86, "Acct-Tunnel-Packets-Lost", Form::Number),
    (87, "NAS-Port-Id", Form::Text),
    (88, "Framed-Pool", Form::Text),
    (89, "CUI", Form::Text),
    (90, "Tunnel-Client-Auth-ID", Form::Tagged),
    (91, "Tunnel-Server-Auth-ID", Form::Tagged),
    (92, "NAS-Filter-Rule", Form::Text),
    (93, "Unassigned", Form::Hidden),
    (94, "Originating-Line-Info", Form::Hidden),
    (95, "NAS-IPv6-Address", Form::Address6),
    (96, "Framed-Interface-ID", Form::Hidden),
    (97, "Framed-IPv6-Prefix", Form::Prefix6),
    (98, "Login-IPv6-Host", Form::Address6),
    (99, "Framed-IPv6-Route", Form::Text),
    (100, "Framed-IPv6-Pool", Form::Text),
    (101, "Error-Cause", Form::Cause),
    (102, "EAP-Key-Name", Form::Hidden),
    (103, "Digest-Response", Form::Text),
    (104, "Digest-Realm", Form::Text),
    (105, "Digest-Nonce", Form::Text),
    (106, "Digest-Response-Auth", Form::Text),
    (107, "Digest-Nextnonce", Form::Text),
    (108, "Digest-Method", Form::Text),
    (109, "Digest-URI", Form::Text),
    (110, "Digest-Qop", Form::Text),
    (111, "Digest-Algorithm", Form::Text),
    (112, "Digest-Entity-Body-Hash", Form::Text),
    (113, "Digest-CNonce", Form::Text),
    (114, "Digest-Nonce-Count", Form::Text),
    (115, "Digest-Username", Form::Text),
    (116, "Digest-Opaque", Form::Text),
    (117, "Digest-Auth-Param", Form::Text),
    (118, "Digest-AKA-Auts", Form::Text),
    (119, "Digest-Domain", Form::Text),
    (120, "Digest-Stale", Form::Text),
    (121, "Digest-HA1", Form::Text),
    (122, "SIP-AOR", Form::Text),
    (123, "Delegated-IPv6-Prefix", Form::Prefix6),
    (124, "MIP6-Feature-Vector", Form::MobilityFeatures),
    (125, "MIP6-Home-Link-Prefix", Form::HomePrefix6),
    (126, "Operator-Name", Form::Operator),
    (127, "Location-Information", Form::Location),
    (128, "Location-Data", Form::LocationData),
    (129, "Basic-Location-Policy-Rules", Form::LocationRules),
];

/// Why a change of authorization was refused (RFC 5176, 3.5).
const ERROR_CAUSES: &[(u32, &str)] = &[
    (201, "Residual Session Context Removed"),
    (202, "Invalid EAP Packet (Ignored)"),
    (401, "Unsupported Attribute"),
    (402, "Missing Attribute"),
    (403, "NAS Identification Mismatch"),
    (404, "Invalid Request"),
    (405, "Unsupported Service"),
    (406, "Unsupported Extension"),
    (407, "Invalid Attribute Value"),
    (501, "Administratively Prohibited"),
    (502, "Request Not Routable (Proxy)"),
    (503, "Session Context Not Found"),
    (504, "Session Context Not Removable"),
    (505, "Other Proxy Processing Error"),
    (506, "Resources Unavailable"),
    (507, "Request Initiated"),
    (508, "Multiple Session Selection Unsupported"),
    (509, "Location Info Required"),
];

/// Vendors by their enterprise numbers (IANA, "Private Enterprise Numbers"), in tcpdump's words.
const VENDORS: &[(u32, &str)] = &[
    (0, "IETF (reserved)"),
    (5, "ACC"),
    (9, "Cisco"),
    (11, "Hewlett Packard"),
    (42, "Sun Microsystems"),
    (61, "Merit"),
    (74, "AT&T"),
    (161, "Motorola"),
    (166, "Shiva"),
    (193, "Ericsson AB"),
    (255, "Cisco VPN 5000"),
    (307, "Livingston"),
    (311, "Microsoft"),
    (429, "3Com"),
    (529, "Ascend"),
    (1584, "Bay Networks"),
    (1991, "Foundry"),
    (2180, "Versanet"),
    (2352, "Redback"),
    (2636, "Juniper Networks"),
    (2637, "Aptis"),
    (2937, "Deutsche Telekom AG"),
    (3054, "Ixia Communications"),
    (3076, "Cisco VPN 3000"),
    (3085, "CoSine Communications"),
    (3224, "Netscreen"),
    (3199, "Shasta"),
    (3309, "Nomadix"),
    (3414, "T-Mobile"),
    (3561, "The Broadband Forum"),
    (3902, "ZTE"),
    (4329, "Siemens"),
    (4491, "CableLabs"),
    (4874, "Unisphere Networks"),
    (5263, "Cisco BBSM"),
    (5535, "3rd Generation Partnership Project 2 (3GPP2)"),
    (5806, "SK Telecom"),
    (5925, "ipUnplugged"),
    (5948, "Issanni Communications"),
    (5951, "Netscaler"),
    (6490, "T-Mobile"),
    (6618, "Quintum"),
    (6728, "Interlink"),
    (7951, "CNCTC"),
    (8164, "Starent Networks"),
    (8744, "Colubris"),
    (10415, "3GPP"),
    (10529, "Gemtek-Systems"),
    (10704, "Barracuda Networks"),
    (10923, "Ericsson AB - Packet Core Networks"),
    (11665, "dacom"),
    (11862, "Columbia University"),
    (12356, "Fortinet"),
    (12951, "Verizon Wireless"),
    (13745, "Plixer"),
    (14122, "Wi-Fi Alliance"),
    (16787, "T-Systems Nova"),
    (20942, "China Telecom - Guangzhou Research Institute"),
    (26866, "Gigamon Systems"),
    (32622, "CACE Technologies"),
    (35632, "ntop"),
    (46098, "Ericsson Canada"),
];

/// One packet: `RADIUS, Access-Request (1), id: 0x05 length: 139`; with `-v` its authenticator and attributes.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "radius";
    if span.captured() < HEADER_LEN || span.u16(2)? < HEADER_LEN as u16 {
        cx.cut();
        return Ok(());
    }
    let length = usize::from(span.u16(2)?).min(span.length);
    let code = span.u8(0)?;
    let name = lookup(CODES, code).unwrap_or("Unknown Command");
    if cx.verbose() == 0 {
        put!(cx, "RADIUS, {name} ({code}), id: 0x{:02x} length: {length}", span.u8(1)?);
        return Ok(());
    }
    put!(cx, "RADIUS, length: {length}\n\t{name} ({code}), id: 0x{:02x}, Authenticator: ", span.u8(1)?);
    for &byte in span.bytes(4, 16)? {
        cx.hex(byte, 2);
    }
    print_attributes(cx, span.limit(length).skip(HEADER_LEN))
}

fn print_attributes(cx: &mut Context<'_>, mut rest: Span<'_>) -> Printed {
    while rest.length > 0 {
        if rest.length < 2 || rest.captured() < 2 {
            cx.cut();
            return Ok(());
        }
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        let attribute = ATTRIBUTES.iter().find(|(number, ..)| *number == kind);
        let name = attribute.map_or("Unknown", |(_, name, _)| name);
        put!(cx, "\n\t  {name} Attribute ({kind}), length: {length}");
        if length < 2 {
            cx.text(" (bogus, must be >= 2)");
            return Ok(());
        }
        if length > rest.length {
            cx.text(" (bogus, goes past end of packet)");
            return Ok(());
        }
        cx.text(", Value: ");
        let value = rest.skip(2).limit(length - 2);
        if let (Some((.., form)), 1..) = (attribute, value.length) {
            print_value(cx, *form, value)?;
        }
        if cx.verbose() > 1 {
            cx.hex_lines("\n\t    ", value);
        }
        rest = rest.skip(length);
    }
    Ok(())
}

fn print_value(cx: &mut Context<'_>, form: Form, value: Span<'_>) -> Printed {
    let needed = match form {
        Form::Number | Form::Network | Form::Named(_) | Form::TaggedNamed(_) | Form::Duration => 4,
        Form::NumberOr(_) | Form::TaggedNumber | Form::Vlan => 4,
        Form::Address | Form::Host | Form::Time | Form::Cause => 4,
        Form::MobilityFeatures => 8,
        Form::AppleTalkFeatures => 14,
        Form::Address6 | Form::AppleTalkPassword => 16,
        Form::HomePrefix6 => 17,
        _ => value.length,
    };
    if value.length != needed {
        let word = if matches!(form, Form::Cause) { "Error" } else { "ERROR" };
        put!(cx, "{word}: length {} != {needed}", value.length);
        return Ok(());
    }
    match form {
        Form::Hidden => {}
        Form::Text | Form::Tagged | Form::Password | Form::VlanName | Form::Eap => {
            print_string(cx, form, value)?;
        }
        Form::Network if value.u32(0)? == 0xffff_fffe => cx.text("NAS Select"),
        Form::NumberOr(word) if value.u32(0)? == 0 => cx.text(word),
        Form::Number | Form::Network | Form::NumberOr(_) => put!(cx, "{}", value.u32(0)?),
        Form::Named(names) => print_name(cx, names, value.u32(0)?),
        Form::TaggedNamed(names) => {
            print_tag(cx, value.u8(0)?);
            print_name(cx, names, value.u24(1)?);
        }
        Form::TaggedNumber => {
            print_tag(cx, value.u8(0)?);
            put!(cx, "{}", value.u24(1)?);
        }
        Form::Vlan => {
            print_vlan_tagging(cx, value.u8(0)?);
            put!(cx, "{}", value.u24(1)?);
        }
        Form::Duration => print_duration(cx, value.u32(0)?),
        Form::Address => print_address(cx, value.array(0)?),
        Form::Host => cx.host(value.array::<4>(0)?.into()),
        Form::Address6 => cx.host(value.array::<16>(0)?.into()),
        Form::Time => {
            if let Ok(time) = jiff::Timestamp::from_second(i64::from(value.u32(0)?)) {
                put!(cx, "{}", time.strftime("%a %b %e %H:%M:%S %Y"));
            }
        }
        Form::Cause => {
            let cause = value.u32(0)?;
            put!(cx, "Error cause {cause}: ");
            match lookup(ERROR_CAUSES, cause) {
                Some(name) => cx.text(name),
                None => put!(cx, "Error-Cause {cause} not known"),
            }
        }
        Form::Vendor => print_vendor(cx, value)?,
        Form::MobilityFeatures => {
            cx.text("[");
            print_mobility_features(cx, value.u64(0)?);
            cx.text("]");
        }
        Form::AppleTalkPassword => {
            cx.text("User_challenge (");
            print_hex(cx, value, 0, 8)?;
            cx.text(") User_resp(");
            print_hex(cx, value, 8, 8)?;
            cx.text(")");
        }
        Form::AppleTalkFeatures => {
            let can = if value.u8(0)? != 0 { "can" } else { "cannot" };
            put!(cx, "User {can} change password");
            put!(cx, ", Min password length: {}", value.u8(1)?);
            for (name, at) in [(", created at: ", 2), (", expires in: ", 6), (", Current Time: ", 10)] {
                cx.text(name);
                print_hex(cx, value, at, 4)?;
            }
        }
        Form::AppleTalkChallenge if value.length < 8 => put!(cx, "ERROR: length {} != 8", value.length),
        Form::AppleTalkChallenge => print_hex(cx, value, 0, 8)?,
        Form::Prefix6 if !(2..=18).contains(&value.length) => {
            put!(cx, "ERROR: length {} not in range (2..18)", value.length);
        }
        _ if value.need(value.length).is_err() => cx.cut(),
        Form::Prefix6 => print_prefix6(cx, value)?,
        Form::HomePrefix6 => match value.u8(0)? {
            bits @ 0..=128 => {
                cx.host(value.array::<16>(1)?.into());
                put!(cx, "/{bits}");
            }
            bits => put!(cx, "ERROR: netmask {bits} not in range (0..128)"),
        },
        Form::Operator | Form::Location | Form::LocationData | Form::LocationRules => {
            print_place(cx, form, value)?;
        }
    }
    Ok(())
}

/// Text, with what goes before it.
fn print_string(cx: &mut Context<'_>, form: Form, mut value: Span<'_>) -> Printed {
    if value.need(value.length).is_err() {
        cx.cut();
        return Ok(());
    }
    match form {
        Form::Eap => return eap::print(cx, value),
        Form::Tagged if value.u8(0)? < 0x20 => {
            print_tag(cx, value.u8(0)?);
            value = value.skip(1);
        }
        Form::Password if value.length < 3 => {
            cx.cut();
            return Ok(());
        }
        Form::Password => {
            let tag = value.u8(0)?;
            print_tag(cx, if tag < 0x20 { tag } else { 0 });
            put!(cx, "Salt {} ", value.u16(1)?);
            value = value.skip(3);
        }
        Form::VlanName => {
            print_vlan_tagging(cx, value.u8(0)?);
            value = value.skip(1);
        }
        _ => {}
    }
    print_text(cx, value.data);
    Ok(())
}

fn print_vlan_tagging(cx: &mut Context<'_>, tagging: u8) {
    put!(cx, "{} (0x{tagging:02x}) ", lookup(VLAN_TAGGING, tagging).unwrap_or("Unknown tag"));
}

fn print_mobility_features(cx: &mut Context<'_>, features: u64) {
    let mut separator = "";
    for (bit, name) in MOBILITY_FEATURES {
        if features & bit != 0 {
            put!(cx, "{separator}{name}");
            separator = ", ";
        }
    }
}

/// Bytes in hexadecimal, up to where they were cut.
fn print_hex(cx: &mut Context<'_>, value: Span<'_>, at: usize, length: usize) -> Printed {
    for index in at..at + length {
        put!(cx, "{:02X}", value.u8(index)?);
    }
    Ok(())
}

fn print_prefix6(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let length = value.length;
    let bits = value.u8(1)?;
    if bits > 128 {
        put!(cx, "ERROR: netmask {bits} not in range (0..128)");
        return Ok(());
    }
    let prefix = value.bytes(2, length - 2)?;
    let address: [u8; 16] = std::array::from_fn(|index| prefix.get(index).copied().unwrap_or(0));
    cx.host(address.into());
    put!(cx, "/{bits}");
    cx.text(if usize::from(bits) > 8 * (length - 2) { " (inconsistent prefix length)" } else { "" });
    Ok(())
}

/// Attributes of a place (RFC 5580).
fn print_place(cx: &mut Context<'_>, form: Form, value: Span<'_>) -> Printed {
    let least = match form {
        Form::Operator => 2,
        Form::Location => 21,
        Form::LocationData => 3,
        _ => 10,
    };
    if value.length < least {
        put!(cx, "ERROR: length {} < {least}", value.length);
        return Ok(());
    }
    match form {
        Form::Operator => {
            let space = value.u8(0)?;
            match lookup(&[(0x30, "TADIG"), (0x31, "REALM"), (0x32, "E212"), (0x33, "ICC")], space) {
                Some(name) => put!(cx, "[{name}] "),
                None => put!(cx, "[unknown namespace {space}] "),
            }
            cx.visible_all(value.bytes(1, value.length - 1)?);
        }
        Form::Location => {
            put!(cx, "index {}", value.u16(0)?);
            for (name, names, number) in [
                ("code", ["Civic", "Geospatial"], value.u8(2)?),
                ("entity", ["User", "RADIUS"], value.u8(3)?),
            ] {
                match names.get(usize::from(number)) {
                    Some(text) => put!(cx, ", {name} {text}"),
                    None => put!(cx, ", {name} Unknown ({number})"),
                }
            }
            cx.text(", sighting time ");
            ntp::print_timestamp(cx, value.u64(4)?);
            cx.text(", time to live ");
            ntp::print_timestamp(cx, value.u64(12)?);
            cx.text(", method \"");
            cx.visible_all(value.bytes(20, value.length - 20)?);
            cx.text("\"");
        }
        Form::LocationData => {
            put!(cx, "index {}, location", value.u16(0)?);
            hexdump::hex_and_ascii(cx.out, b"\n\t    ", value.bytes(2, value.length - 2)?, 0);
        }
        _ => {
            cx.text("flags [");
            put_bits(cx, LOCATION_FLAGS, "none", ", ", u32::from(value.u16(0)?));
            cx.text("], retention expires ");
            ntp::print_timestamp(cx, value.u64(2)?);
            if value.length > 10 {
                cx.text(", note well \"");
                cx.visible_all(value.bytes(10, value.length - 10)?);
                cx.text("\"");
            }
        }
    }
    Ok(())
}

/// Up to a NUL; a dot for what is not printable.
fn print_text(cx: &mut Context<'_>, text: &[u8]) {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    print_characters(cx, &text[..end]);
}

fn print_characters(cx: &mut Context<'_>, text: &[u8]) {
    for &byte in text {
        cx.raw(&[if (0x20..0x7f).contains(&byte) { byte } else { b'.' }]);
    }
}

fn print_tag(cx: &mut Context<'_>, tag: u8) {
    match tag {
        0 => cx.text("Tag[Unused] "),
        _ => put!(cx, "Tag[{tag}] "),
    }
}

fn print_name(cx: &mut Context<'_>, names: &[&str], value: u32) {
    match usize::try_from(value).ok().and_then(|index| names.get(index)) {
        Some(name) if !name.is_empty() => cx.text(name),
        _ => put!(cx, "#{value}"),
    }
}

fn print_duration(cx: &mut Context<'_>, seconds: u32) {
    let (hours, minutes) = (seconds / 3600, seconds / 60);
    match seconds {
        0..60 => put!(cx, "{seconds:02} secs"),
        60..3600 => put!(cx, "{minutes:02}:{:02} min", seconds % 60),
        _ => put!(cx, "{hours:02}:{:02}:{:02} hours", minutes % 60, seconds % 60),
    }
}

/// The two highest addresses leave the choice to others (RFC 2865, 5.8).
fn print_address(cx: &mut Context<'_>, address: [u8; 4]) {
    match address {
        [0xff, 0xff, 0xff, 0xff] => cx.text("User Selected"),
        [0xff, 0xff, 0xff, 0xfe] => cx.text("NAS Select"),
        _ => cx.host(address.into()),
    }
}

/// Number of the vendor 4, (type 1, length 1 with both, value)*.
fn print_vendor(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    if value.length < 4 {
        cx.cut();
        return Ok(());
    }
    let vendor = value.u32(0)?;
    put!(cx, "Vendor: {} ({vendor})", lookup(VENDORS, vendor).unwrap_or("Unknown"));
    let mut rest = value.skip(4);
    while rest.length >= 2 {
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        let fault = match length {
            0 | 1 => Some("must be >= 2"),
            _ if length > rest.length => Some("goes past end of vendor-specific attribute"),
            _ => None,
        };
        if let Some(fault) = fault {
            put!(cx, "\n\t    Vendor Attribute: {kind}, Length: {length} (bogus, {fault})");
            return Ok(());
        }
        let Ok(text) = rest.bytes(2, length - 2) else {
            cx.cut();
            return Ok(());
        };
        put!(cx, "\n\t    Vendor Attribute: {kind}, Length: {}, Value: ", length - 2);
        print_characters(cx, text);
        rest = rest.skip(length);
    }
    Ok(())
}
