//! Tests that are neither ids nor comparisons, and the fields that they name.

use super::{Fragments, Protocol, Relop};

/// A test that is neither an id nor a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// `[protocol] broadcast`.
    Broadcast(Option<Protocol>),
    /// `[protocol] multicast`.
    Multicast(Option<Protocol>),
    /// `less n`: at most n bytes long.
    Less(u32),
    /// `greater n`: at least n bytes long.
    Greater(u32),
    /// `byte i op v`.
    Byte(u32, ByteOp, u32),
    /// `inbound`.
    Inbound,
    /// `outbound`.
    Outbound,
    /// `ifindex n`.
    IfIndex(u32),
    /// `vlan [id]`.
    Vlan(Option<u32>),
    /// `mpls [label]`.
    Mpls(Option<u32>),
    /// `pppoed`.
    Pppoed,
    /// `pppoes [session]`.
    Pppoes(Option<u32>),
    /// `geneve [vni]`.
    Geneve(Option<u32>),
    /// `vxlan [vni]`.
    Vxlan(Option<u32>),
    /// `fragment()`, `fragment(first)`, `fragment(later)`.
    Fragment(Fragments),
    /// `llc [type]`.
    Llc(Option<LlcType>),
    /// A field of the OpenBSD packet filter's log.
    Pf(PfField),
    /// Masked bits of an 802.11 frame control byte.
    Wlan(WlanField),
    /// `vpi`, `vci`: any of these comparisons holds.
    AtmField(AtmField, Vec<(Relop, u32)>),
    /// `lane`, `metac` and the like.
    Atm(AtmType),
    /// `fisu`, `lssu`, `msu` and the forms for high-speed links.
    Mtp2(Mtp2Type, Mtp2Format),
    /// `sio`, `opc`, `dpc`, `sls` and the forms for high-speed links: any of these comparisons holds.
    Mtp3(Mtp3Field, Mtp2Format, Vec<(Relop, u32)>),
}

tapline_packet::named_enum! {
    /// Operators of `byte`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum ByteOp {
        Equal = "=",
        Less = "<",
        Greater = ">",
        And = "&",
        Or = "|",
    }
}

/// The control field of IEEE 802.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlcType {
    /// Information.
    I,
    /// Supervisory.
    S,
    /// Unnumbered.
    U,
    /// A supervisory function, by its control byte.
    Supervisory(u8),
    /// An unnumbered command, by its control byte.
    Unnumbered(u8),
}

/// Fields of a PFLOG header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum PfField {
    Ifname(String),
    Ruleset(String),
    Rulenum(u32),
    Subrulenum(u32),
    Reason(u32),
    Action(u32),
}

/// Bits of an 802.11 frame control field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WlanField {
    /// `type` and `subtype`: value and mask of the first byte.
    Type {
        /// The bits wanted.
        value: u32,
        /// The bits looked at.
        mask: u32,
    },
    /// `dir`: the two low bits of the second byte.
    Dir(u32),
}

/// Fields of a SunATM header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum AtmField {
    Vpi,
    Vci,
}

tapline_packet::named_enum! {
    /// Kinds of ATM traffic.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum AtmType {
        Lane = "lane",
        Metac = "metac",
        Bcc = "bcc",
        Oamf4ec = "oamf4ec",
        Oamf4sc = "oamf4sc",
        Sc = "sc",
        Ilmic = "ilmic",
        Oam = "oam",
        Oamf4 = "oamf4",
        Connectmsg = "connectmsg",
        Metaconnect = "metaconnect",
    }
}

tapline_packet::named_enum! {
    /// Signal units of MTP2 (ITU-T Q.703).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum Mtp2Type {
        Fisu = "fisu",
        Lssu = "lssu",
        Msu = "msu",
    }
}

tapline_packet::named_enum! {
    /// Fields of MTP2 and MTP3 (ITU-T Q.703, Q.704).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum Mtp3Field {
        Sio = "sio",
        Opc = "opc",
        Dpc = "dpc",
        Sls = "sls",
    }
}

tapline_packet::named_enum! {
    /// The two formats of MTP2: a high-speed link has longer sequence and length fields (ITU-T Q.703 annex A).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum Mtp2Format {
        Normal = "",
        HighSpeed = "h",
    }
}

impl Mtp2Format {
    /// A word as it is written for this format.
    pub(crate) fn word(self, name: &str) -> String {
        format!("{}{name}", self.name())
    }
}
