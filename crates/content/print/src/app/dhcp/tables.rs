//! The options of DHCP by number (RFC 2132 and IANA's list), with tcpdump's names and the forms of their values.

/// Text forms of option values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Bytes, in decimal.
    Bytes,
    /// 16-bit numbers.
    Shorts,
    /// 32-bit numbers.
    Longs,
    /// 32-bit numbers that may be negative.
    SignedLongs,
    /// IPv4 addresses.
    Addresses,
    /// Pairs of IPv4 addresses.
    Pairs,
    /// `Y` or `N`.
    Flags,
    /// Characters.
    Text,
    /// A message type.
    MessageType,
    /// Numbers of options.
    OptionList,
    /// A NetBIOS node type.
    NodeType,
    /// The other fields that hold options.
    Overload,
    /// A fully qualified domain name.
    Fqdn,
    /// A client identifier.
    ClientId,
    /// Suboptions of a relay agent.
    Agent,
    /// Routes with their prefix lengths.
    Routes,
    /// Classes of users.
    UserClass,
    /// Addresses of bootstrap servers.
    Redirect,
    /// No value.
    None,
}

use Form::{
    Addresses, Agent, Bytes, ClientId, Flags, Fqdn, Longs, MessageType, NodeType, OptionList, Overload,
    Pairs, Redirect, Routes, Shorts, SignedLongs, Text, UserClass,
};

/// One option: code, name, form.
pub(crate) const OPTIONS: &[(u8, &str, Form)] = &[
    (0, "PAD", Form::None),
    (1, "Subnet-Mask", Addresses),
    (2, "Time-Zone", SignedLongs),
    (3, "Default-Gateway", Addresses),
    (4, "Time-Server", Addresses),
    (5, "IEN-Name-Server", Addresses),
    (6, "Domain-Name-Server", Addresses),
    (7, "LOG", Addresses),
    (8, "CS", Addresses),
    (9, "LPR-Server", Addresses),
    (10, "IM", Addresses),
    (11, "RL", Addresses),
    (12, "Hostname", Text),
    (13, "BS", Shorts),
    (14, "DP", Text),
    (15, "Domain-Name", Text),
    (16, "SS", Addresses),
    (17, "RP", Text),
    (18, "EP", Text),
    (19, "IPF", Flags),
    (20, "SRT", Flags),
    (21, "PF", Pairs),
    (22, "RSZ", Shorts),
    (23, "TTL", Bytes),
    (24, "MTU-Timeout", Longs),
    (25, "MTU-Table", Shorts),
    (26, "MTU", Shorts),
    (27, "LSN", Flags),
    (28, "BR", Addresses),
    (29, "MD", Flags),
    (30, "MS", Flags),
    (31, "Router-Discovery", Flags),
    (32, "RSA", Addresses),
    (33, "Static-Route", Pairs),
    (34, "UT", Flags),
    (35, "AT", Longs),
    (36, "IE", Flags),
    (37, "TT", Bytes),
    (38, "KI", Longs),
    (39, "KG", Flags),
    (40, "YD", Text),
    (41, "YS", Addresses),
    (42, "NTP", Addresses),
    (43, "Vendor-Option", Bytes),
    (44, "Netbios-Name-Server", Addresses),
    (45, "WDD", Addresses),
    (46, "Netbios-Node", NodeType),
    (47, "Netbios-Scope", Text),
    (48, "XFS", Addresses),
    (49, "XDM", Addresses),
    (50, "Requested-IP", Addresses),
    (51, "Lease-Time", Longs),
    (52, "OO", Overload),
    (53, "DHCP-Message", MessageType),
    (54, "Server-ID", Addresses),
    (55, "Parameter-Request", OptionList),
    (56, "MSG", Text),
    (57, "MSZ", Shorts),
    (58, "RN", Longs),
    (59, "RB", Longs),
    (60, "Vendor-Class", Text),
    (61, "Client-ID", ClientId),
    (64, "N+D", Shorts),
    (65, "N+S", Addresses),
    (66, "TFTP", Text),
    (67, "BF", Text),
    (68, "MH", Addresses),
    (69, "SMTP", Addresses),
    (70, "POP3", Addresses),
    (71, "NNTP", Addresses),
    (72, "WWW", Addresses),
    (73, "FG", Addresses),
    (74, "IRC", Addresses),
    (75, "STS", Addresses),
    (76, "STDA", Addresses),
    (77, "User-Class", UserClass),
    (78, "SLP-DA", Bytes),
    (79, "SLP-SCOPE", Bytes),
    (80, "SLP-NA", Text),
    (81, "FQDN", Fqdn),
    (82, "Agent-Information", Agent),
    (83, "ARMT", Bytes),
    (88, "TZSTR", Text),
    (89, "FQDNS", Bytes),
    (90, "AUTH", Bytes),
    (91, "Last-Transaction-Time", SignedLongs),
    (92, "Associated-IP", Addresses),
    (93, "ARCH", Shorts),
    (94, "NDI", Bytes),
    (95, "LDAP", Text),
    (97, "GUID", Bytes),
    (98, "UAP", Text),
    (100, "POSIX-TZ", Text),
    (101, "TZ-Name", Text),
    (112, "NI", Addresses),
    (113, "NITAG", Text),
    (114, "URL", Text),
    (116, "NOAUTO", Flags),
    (117, "NSSEARCH", Shorts),
    (118, "SUBNET", Addresses),
    (121, "Classless-Static-Route", Routes),
    (143, "SZTP-Redirect", Redirect),
    (150, "TFTP-Server-Address", Addresses),
    (161, "MUD-URL", Text),
    (249, "Classless-Static-Route-Microsoft", Routes),
    (255, "END", Form::None),
];

/// The name and form of an option; options that are not known read as the widest numbers that fit their length.
pub(crate) fn option(code: u8, length: usize) -> (&'static str, Form) {
    match OPTIONS.iter().find(|(number, ..)| *number == code) {
        Some(&(_, name, form)) => (name, form),
        None if length & 1 != 0 => ("Unknown", Bytes),
        None if length & 2 != 0 => ("Unknown", Shorts),
        None => ("Unknown", Longs),
    }
}

/// Message types (RFC 2132, 9.6; RFC 4388).
pub(crate) const MESSAGE_TYPES: &[(u8, &str)] = &[
    (1, "Discover"),
    (2, "Offer"),
    (3, "Request"),
    (4, "Decline"),
    (5, "ACK"),
    (6, "NACK"),
    (7, "Release"),
    (8, "Inform"),
    (10, "LeaseQuery"),
    (11, "LeaseUnassigned"),
    (12, "LeaseUnknown"),
    (13, "LeaseActive"),
];

/// ARP hardware types, which give the kind of a client identifier.
pub(crate) const HARDWARE_TYPES: &[(u8, &str)] =
    &[(1, "ether"), (6, "ieee802"), (7, "arcnet"), (15, "frelay"), (23, "strip"), (24, "ieee1394")];

/// NetBIOS node types (RFC 2132, 8.7).
pub(crate) const NODE_TYPES: &[(u8, &str)] = &[(1, "b-node"), (2, "p-node"), (4, "m-node"), (8, "h-node")];

/// Fields that may hold further options (RFC 2132, 9.3).
pub(crate) const OVERLOADS: &[(u8, &str)] = &[(1, "file"), (2, "sname"), (3, "file+sname")];

/// Suboptions of relay agents (RFC 3046, RFC 3993).
pub(crate) const AGENT_OPTIONS: &[(u8, &str)] = &[(1, "Circuit-ID"), (2, "Remote-ID"), (6, "Subscriber-ID")];
