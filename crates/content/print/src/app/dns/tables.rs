//! Names of numbers in DNS messages (IANA, "Domain Name System Parameters"), as tcpdump 4.99 spells them.

pub(crate) const A: u16 = 1;
pub(crate) const NS: u16 = 2;
pub(crate) const CNAME: u16 = 5;
pub(crate) const SOA: u16 = 6;
pub(crate) const PTR: u16 = 12;
pub(crate) const MX: u16 = 15;
pub(crate) const TXT: u16 = 16;
pub(crate) const AAAA: u16 = 28;
pub(crate) const SRV: u16 = 33;
pub(crate) const A6: u16 = 38;
pub(crate) const DNAME: u16 = 39;
pub(crate) const OPT: u16 = 41;
pub(crate) const UNSPECA: u16 = 104;
pub(crate) const TSIG: u16 = 250;
pub(crate) const URI: u16 = 256;

/// Types of resource records and questions.
pub(crate) const TYPES: &[(u16, &str)] = &[
    (A, "A"),
    (NS, "NS"),
    (3, "MD"),
    (4, "MF"),
    (CNAME, "CNAME"),
    (SOA, "SOA"),
    (7, "MB"),
    (8, "MG"),
    (9, "MR"),
    (10, "NULL"),
    (11, "WKS"),
    (PTR, "PTR"),
    (13, "HINFO"),
    (14, "MINFO"),
    (MX, "MX"),
    (TXT, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (19, "X25"),
    (20, "ISDN"),
    (21, "RT"),
    (22, "NSAP"),
    (23, "NSAP_PTR"),
    (24, "SIG"),
    (25, "KEY"),
    (26, "PX"),
    (27, "GPOS"),
    (AAAA, "AAAA"),
    (29, "LOC"),
    (30, "NXT"),
    (31, "EID"),
    (32, "NIMLOC"),
    (SRV, "SRV"),
    (34, "ATMA"),
    (35, "NAPTR"),
    (36, "KX"),
    (37, "CERT"),
    (A6, "A6"),
    (DNAME, "DNAME"),
    (40, "SINK"),
    (OPT, "OPT"),
    (42, "APL"),
    (43, "DS"),
    (44, "SSHFP"),
    (45, "IPSECKEY"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (99, "SPF"),
    (100, "UINFO"),
    (101, "UID"),
    (102, "GID"),
    (103, "UNSPEC"),
    (UNSPECA, "UNSPECA"),
    (249, "TKEY"),
    (TSIG, "TSIG"),
    (251, "IXFR"),
    (252, "AXFR"),
    (253, "MAILB"),
    (254, "MAILA"),
    (255, "ANY"),
    (URI, "URI"),
];

/// Classes other than the Internet's.
pub(crate) const CLASSES: &[(u16, &str)] = &[(1, "IN"), (3, "CHAOS"), (4, "HS"), (255, "ANY")];

/// Names of operations, each with a space before it.
pub(crate) const OPERATIONS: [&str; 16] = [
    "",
    " inv_q",
    " stat",
    " op3",
    " notify",
    " update",
    " op6",
    " op7",
    " op8",
    " updateA",
    " updateD",
    " updateDA",
    " updateM",
    " updateMA",
    " zoneInit",
    " zoneRef",
];

/// Names of response codes, each with a space before it.
pub(crate) const RESPONSES: [&str; 24] = [
    "",
    " FormErr",
    " ServFail",
    " NXDomain",
    " NotImp",
    " Refused",
    " YXDomain",
    " YXRRSet",
    " NXRRSet",
    " NotAuth",
    " NotZone",
    " Resp11",
    " Resp12",
    " Resp13",
    " Resp14",
    " NoChange",
    " BadVers",
    "Resp17",
    " Resp18",
    " Resp19",
    " Resp20",
    "Resp21",
    " Resp22",
    " BadCookie",
];

/// Options of EDNS (RFC 6891).
pub(crate) const EDNS_OPTIONS: &[(u16, &str)] = &[
    (1, "LLQ"),
    (2, "UL"),
    (3, "NSID"),
    (5, "DAU"),
    (6, "DHU"),
    (7, "N3U"),
    (8, "ECS"),
    (9, "EXPIRE"),
    (10, "COOKIE"),
    (11, "KEEPALIVE"),
    (12, "PADDING"),
    (13, "CHAIN"),
    (14, "KEY-TAG"),
    (16, "CLIENT-TAG"),
    (17, "SERVER-TAG"),
];

/// Signature algorithms of DNSSEC, as EDNS's DAU option lists them (RFC 6975).
pub(crate) const SIGNATURE_ALGORITHMS: &[(u8, &str)] = &[
    (0, "DELETE"),
    (1, "RSAMD5"),
    (2, "DH"),
    (3, "DS"),
    (5, "RSASHA1"),
    (6, "DSA-NSEC3-SHA1"),
    (7, "RSASHA1-NSEC3-SHA1"),
    (8, "RSASHA256"),
    (10, "RSASHA512"),
    (12, "ECC-GOST"),
    (13, "ECDSAP256SHA256"),
    (14, "ECDSAP384SHA384"),
    (15, "ED25519"),
    (16, "ED448"),
    (252, "INDIRECT"),
    (253, "PRIVATEDNS"),
    (254, "PRIVATEOID"),
];

/// Digests of delegation signers: EDNS's DHU option.
pub(crate) const DIGEST_ALGORITHMS: &[(u8, &str)] =
    &[(1, "SHA-1"), (2, "SHA-256"), (3, "GOST_R_34.11-94"), (4, "SHA-384")];

/// Hashes of NSEC3: EDNS's N3U option.
pub(crate) const HASH_ALGORITHMS: &[(u8, &str)] = &[(1, "SHA-1")];
