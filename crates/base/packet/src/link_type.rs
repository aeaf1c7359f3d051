//! Link types: the kind of a packet's first header.
//!
//! ```text
//! file:     LINKTYPE number, the same on every system      101 RAW
//! program:  DLT number, as libpcap hands it out            12  RAW on Linux (14 on OpenBSD)
//! ```
//!
//! Files carry the numbers of the LINKTYPE registry (<https://www.tcpdump.org/linktypes.html>, which
//! draft-ietf-opsawg-pcaplinktype hands to IANA). Programs that use libpcap know them as DLT values, which differ
//! in a few old cases; [`LinkType::dlt`] and [`LinkType::from_dlt`] translate.
//!
//! Constants have the registry's names. [`LinkType::name`] gives the name that tcpdump prints and takes (`-y`, `-L`),
//! which is that of the DLT and differs in ten old cases: `ETHERNET` is printed as `EN10MB`.

use std::fmt;

/// A number of the LINKTYPE registry. Every 16-bit value is allowed: unknown types are captured and saved alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// The name that tcpdump knows it by, such as `EN10MB`; `None` for numbers outside of the registry.
    pub fn name(self) -> Option<&'static str> {
        self.entry().map(|entry| entry.name)
    }

    /// A few words for people, such as `Ethernet`; `None` for numbers outside of the registry.
    pub fn description(self) -> Option<&'static str> {
        self.entry().map(|entry| entry.description)
    }

    /// The link type called `text`: a DLT or LINKTYPE name with or without its prefix, in any case, or a LINKTYPE
    /// number.
    ///
    /// ```
    /// use tapline_packet::LinkType;
    /// for text in ["EN10MB", "dlt_en10mb", "LINKTYPE_ETHERNET", "ethernet", "1"] {
    ///     assert_eq!(LinkType::from_name(text), Some(LinkType::ETHERNET));
    /// }
    /// ```
    pub fn from_name(text: &str) -> Option<LinkType> {
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().ok().map(LinkType);
        }
        let name = without_prefix(text);
        let by_dlt = REGISTRY.iter().find(|entry| entry.name.eq_ignore_ascii_case(name));
        let by_link_type = || REGISTRY.iter().find(|entry| entry.link_type_name.eq_ignore_ascii_case(name));
        by_dlt.or_else(by_link_type).map(|entry| entry.link_type).or_else(|| from_alias(name))
    }

    /// The DLT value for it on Linux.
    pub fn dlt(self) -> u16 {
        match DLT_DIFFERS.iter().find(|&&(link_type, _)| link_type == self) {
            Some(&(_, dlt)) => dlt,
            None => self.0,
        }
    }

    /// The link type for a DLT value on Linux; values without a rule of their own are taken as they are.
    ///
    /// Files of old programs carry DLT values where a LINKTYPE belongs, and libpcap reads them so. Readers pass the
    /// number of a file through here: 12 becomes [`RAW`](Self::RAW), and 101 stays 101.
    pub fn from_dlt(dlt: u16) -> LinkType {
        match DLT_DIFFERS.iter().find(|&&(_, value)| value == dlt) {
            Some(&(link_type, _)) => link_type,
            None => LinkType(dlt),
        }
    }

    /// The most bytes that a packet of this type can have in a file: the limit of libpcap (`max_snaplen_for_dlt`).
    pub const fn snap_len_max(self) -> u32 {
        match self {
            LinkType::DBUS => 128 << 20,
            LinkType::EBHSCR => 8 << 20,
            LinkType::USBPCAP => 1 << 20,
            _ => 262_144,
        }
    }

    /// All link types that have a name, by number.
    pub fn all() -> impl ExactSizeIterator<Item = LinkType> {
        REGISTRY.iter().map(|entry| entry.link_type)
    }

    fn entry(self) -> Option<&'static Entry> {
        let index = REGISTRY.binary_search_by_key(&self, |entry| entry.link_type).ok()?;
        Some(&REGISTRY[index])
    }
}

/// tcpdump's name, or the number where it has none.
impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

/// One line of the registry.
struct Entry {
    link_type: LinkType,
    link_type_name: &'static str,
    name: &'static str,
    description: &'static str,
}

/// LINKTYPE and DLT numbers that differ on Linux (libpcap, `pcap-common.c`: the table `map`).
const DLT_DIFFERS: [(LinkType, u16); 5] = [
    (LinkType::ATM_RFC1483, 11),
    (LinkType::RAW, 12),
    (LinkType::SLIP_BSDOS, 15),
    (LinkType::PPP_BSDOS, 16),
    (LinkType::ATM_CLIP, 19),
];

/// Second names in `pcap/dlt.h` and earlier editions of the registry.
const ALIASES: [(&str, LinkType); 8] = [
    ("CHDLC", LinkType::C_HDLC),
    ("PPP_WITH_DIRECTION", LinkType::PPP_PPPD),
    ("LINUX_PPP_WITHDIRECTION", LinkType::PPP_PPPD),
    ("USB", LinkType::USB_FREEBSD),
    ("IPMB", LinkType::IPMB_KONTRON),
    ("I2C_LINUX", LinkType::IPMB_LINUX),
    ("PPP_WITHDIRECTION", LinkType::PPP_PPPD),
    ("TOKEN_RING", LinkType::IEEE802_5),
];

fn without_prefix(text: &str) -> &str {
    ["DLT_", "LINKTYPE_"].iter().find_map(|prefix| strip(text, prefix)).unwrap_or(text)
}

fn strip<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

fn from_alias(name: &str) -> Option<LinkType> {
    ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map(|&(_, link_type)| link_type)
}

/// Writes each line once, as a constant and as an entry of the table.
macro_rules! registry {
    ($($constant:ident = $number:literal, $name:literal, $description:literal;)*) => {
        impl LinkType {
            $(
                #[doc = concat!("`LINKTYPE_", stringify!($constant), "` (", $number, "): ", $description, ".")]
                pub const $constant: LinkType = LinkType($number);
            )*
        }

        /// By number, so that a search halves it.
        static REGISTRY: &[Entry] = &[$(
            Entry {
                link_type: LinkType::$constant,
                link_type_name: stringify!($constant),
                name: $name,
                description: $description,
            },
        )*];
    };
}

registry! {
    NULL = 0, "NULL", "BSD loopback";
    ETHERNET = 1, "EN10MB", "Ethernet";
    EXP_ETHERNET = 2, "EN3MB", "Experimental Ethernet (3 Mb/s)";
    AX25 = 3, "AX25", "AX.25 layer 2";
    PRONET = 4, "PRONET", "Proteon ProNET token ring";
    CHAOS = 5, "CHAOS", "Chaosnet";
    IEEE802_5 = 6, "IEEE802", "Token ring";
    ARCNET_BSD = 7, "ARCNET", "BSD ARCNET";
    SLIP = 8, "SLIP", "SLIP";
    PPP = 9, "PPP", "PPP";
    FDDI = 10, "FDDI", "FDDI";
    PPP_HDLC = 50, "PPP_SERIAL", "PPP over serial";
    PPP_ETHER = 51, "PPP_ETHER", "PPPoE";
    SYMANTEC_FIREWALL = 99, "SYMANTEC_FIREWALL", "Symantec Firewall";
    ATM_RFC1483 = 100, "ATM_RFC1483", "RFC 1483 LLC-encapsulated ATM";
    RAW = 101, "RAW", "Raw IP";
    SLIP_BSDOS = 102, "SLIP_BSDOS", "BSD/OS SLIP";
    PPP_BSDOS = 103, "PPP_BSDOS", "BSD/OS PPP";
    C_HDLC = 104, "C_HDLC", "Cisco HDLC";
    IEEE802_11 = 105, "IEEE802_11", "802.11";
    ATM_CLIP = 106, "ATM_CLIP", "Linux Classical IP over ATM";
    FRELAY = 107, "FRELAY", "Frame Relay";
    LOOP = 108, "LOOP", "OpenBSD loopback";
    ENC = 109, "ENC", "OpenBSD encapsulated IP";
    LANE8023 = 110, "LANE8023", "ATM LAN emulation, 802.3";
    HIPPI = 111, "HIPPI", "HIPPI";
    HDLC = 112, "HDLC", "NetBSD HDLC framing";
    LINUX_SLL = 113, "LINUX_SLL", "Linux cooked v1";
    LTALK = 114, "LTALK", "Localtalk";
    ECONET = 115, "ECONET", "Acorn Econet";
    IPFILTER = 116, "IPFILTER", "OpenBSD ipfilter";
    PFLOG = 117, "PFLOG", "OpenBSD pflog file";
    CISCO_IOS = 118, "CISCO_IOS", "Cisco IOS internal";
    IEEE802_11_PRISM = 119, "PRISM_HEADER", "802.11 plus Prism header";
    IEEE802_11_AIRONET = 120, "AIRONET_HEADER", "802.11 plus Aironet header";
    HHDLC = 121, "HHDLC", "Siemens HiPath HDLC";
    IP_OVER_FC = 122, "IP_OVER_FC", "RFC 2625 IP-over-Fibre Channel";
    SUNATM = 123, "SUNATM", "Sun raw ATM";
    RIO = 124, "RIO", "RapidIO";
    PCI_EXP = 125, "PCI_EXP", "PCI Express";
    AURORA = 126, "AURORA", "Xilinx Aurora";
    IEEE802_11_RADIOTAP = 127, "IEEE802_11_RADIO", "802.11 plus radiotap header";
    TZSP = 128, "TZSP", "Tazmen Sniffer Protocol";
    ARCNET_LINUX = 129, "ARCNET_LINUX", "Linux ARCNET";
    JUNIPER_MLPPP = 130, "JUNIPER_MLPPP", "Juniper Multi-Link PPP";
    JUNIPER_MLFR = 131, "JUNIPER_MLFR", "Juniper Multi-Link Frame Relay";
    JUNIPER_ES = 132, "JUNIPER_ES", "Juniper Encryption Services PIC";
    JUNIPER_GGSN = 133, "JUNIPER_GGSN", "Juniper GGSN PIC";
    JUNIPER_MFR = 134, "JUNIPER_MFR", "Juniper FRF.16 Frame Relay";
    JUNIPER_ATM2 = 135, "JUNIPER_ATM2", "Juniper ATM2 PIC";
    JUNIPER_SERVICES = 136, "JUNIPER_SERVICES", "Juniper Advanced Services PIC";
    JUNIPER_ATM1 = 137, "JUNIPER_ATM1", "Juniper ATM1 PIC";
    APPLE_IP_OVER_IEEE1394 = 138, "APPLE_IP_OVER_IEEE1394", "Apple IP-over-IEEE 1394";
    MTP2_WITH_PHDR = 139, "MTP2_WITH_PHDR", "SS7 MTP2 with Pseudo-header";
    MTP2 = 140, "MTP2", "SS7 MTP2";
    MTP3 = 141, "MTP3", "SS7 MTP3";
    SCCP = 142, "SCCP", "SS7 SCCP";
    DOCSIS = 143, "DOCSIS", "DOCSIS";
    LINUX_IRDA = 144, "LINUX_IRDA", "Linux IrDA";
    IBM_SP = 145, "IBM_SP", "IBM SP switch";
    IBM_SN = 146, "IBM_SN", "IBM Next Federation switch";
    USER0 = 147, "USER0", "Private use 0";
    USER1 = 148, "USER1", "Private use 1";
    USER2 = 149, "USER2", "Private use 2";
    USER3 = 150, "USER3", "Private use 3";
    USER4 = 151, "USER4", "Private use 4";
    USER5 = 152, "USER5", "Private use 5";
    USER6 = 153, "USER6", "Private use 6";
    USER7 = 154, "USER7", "Private use 7";
    USER8 = 155, "USER8", "Private use 8";
    USER9 = 156, "USER9", "Private use 9";
    USER10 = 157, "USER10", "Private use 10";
    USER11 = 158, "USER11", "Private use 11";
    USER12 = 159, "USER12", "Private use 12";
    USER13 = 160, "USER13", "Private use 13";
    USER14 = 161, "USER14", "Private use 14";
    USER15 = 162, "USER15", "Private use 15";
    IEEE802_11_AVS = 163, "IEEE802_11_RADIO_AVS", "802.11 plus AVS radio information header";
    JUNIPER_MONITOR = 164, "JUNIPER_MONITOR", "Juniper Passive Monitor PIC";
    BACNET_MS_TP = 165, "BACNET_MS_TP", "BACnet MS/TP";
    PPP_PPPD = 166, "PPP_PPPD", "PPP for pppd, with direction flag";
    JUNIPER_PPPOE = 167, "JUNIPER_PPPOE", "Juniper PPPoE";
    JUNIPER_PPPOE_ATM = 168, "JUNIPER_PPPOE_ATM", "Juniper PPPoE/ATM";
    GPRS_LLC = 169, "GPRS_LLC", "GPRS LLC";
    GPF_T = 170, "GPF_T", "GPF-T";
    GPF_F = 171, "GPF_F", "GPF-F";
    GCOM_T1E1 = 172, "GCOM_T1E1", "Gcom T1/E1";
    GCOM_SERIAL = 173, "GCOM_SERIAL", "Gcom serial";
    JUNIPER_PIC_PEER = 174, "JUNIPER_PIC_PEER", "Juniper PIC Peer";
    ERF_ETH = 175, "ERF_ETH", "Ethernet with Endace ERF header";
    ERF_POS = 176, "ERF_POS", "Packet-over-SONET with Endace ERF header";
    LINUX_LAPD = 177, "LINUX_LAPD", "Linux vISDN LAPD";
    JUNIPER_ETHER = 178, "JUNIPER_ETHER", "Juniper Ethernet";
    JUNIPER_PPP = 179, "JUNIPER_PPP", "Juniper PPP";
    JUNIPER_FRELAY = 180, "JUNIPER_FRELAY", "Juniper Frame Relay";
    JUNIPER_CHDLC = 181, "JUNIPER_CHDLC", "Juniper C-HDLC";
    MFR = 182, "MFR", "FRF.16 Frame Relay";
    JUNIPER_VP = 183, "JUNIPER_VP", "Juniper Voice PIC";
    A429 = 184, "A429", "Arinc 429";
    A653_ICM = 185, "A653_ICM", "Arinc 653 Interpartition Communication";
    USB_FREEBSD = 186, "USB_FREEBSD", "USB with FreeBSD header";
    BLUETOOTH_HCI_H4 = 187, "BLUETOOTH_HCI_H4", "Bluetooth HCI UART transport layer";
    IEEE802_16_MAC_CPS = 188, "IEEE802_16_MAC_CPS", "IEEE 802.16 MAC Common Part Sublayer";
    USB_LINUX = 189, "USB_LINUX", "USB with Linux header";
    CAN20B = 190, "CAN20B", "Controller Area Network (CAN) v. 2.0B";
    IEEE802_15_4_LINUX = 191, "IEEE802_15_4_LINUX", "IEEE 802.15.4 with Linux padding";
    PPI = 192, "PPI", "Per-Packet Information";
    IEEE802_16_MAC_CPS_RADIO = 193, "IEEE802_16_MAC_CPS_RADIO", "IEEE 802.16 MAC Common Part Sublayer plus radiotap header";
    JUNIPER_ISM = 194, "JUNIPER_ISM", "Juniper Integrated Service Module";
    IEEE802_15_4_WITHFCS = 195, "IEEE802_15_4", "IEEE 802.15.4 with FCS";
    SITA = 196, "SITA", "SITA pseudo-header";
    ERF = 197, "ERF", "Endace ERF header";
    RAIF1 = 198, "RAIF1", "Ethernet with u10 Networks pseudo-header";
    IPMB_KONTRON = 199, "IPMB_KONTRON", "IPMB with Kontron pseudo-header";
    JUNIPER_ST = 200, "JUNIPER_ST", "Juniper Secure Tunnel";
    BLUETOOTH_HCI_H4_WITH_PHDR = 201, "BLUETOOTH_HCI_H4_WITH_PHDR", "Bluetooth HCI UART transport layer plus pseudo-header";
    AX25_KISS = 202, "AX25_KISS", "AX.25 with KISS header";
    LAPD = 203, "LAPD", "LAPD without pseudo-header";
    PPP_WITH_DIR = 204, "PPP_WITH_DIR", "PPP with direction byte";
    C_HDLC_WITH_DIR = 205, "C_HDLC_WITH_DIR", "Cisco HDLC with direction byte";
    FRELAY_WITH_DIR = 206, "FRELAY_WITH_DIR", "Frame Relay with direction byte";
    LAPB_WITH_DIR = 207, "LAPB_WITH_DIR", "LAPB with direction byte";
    IPMB_LINUX = 209, "IPMB_LINUX", "IPMB with Linux/Pigeon Point pseudo-header";
    FLEXRAY = 210, "FLEXRAY", "FlexRay automotive bus";
    MOST = 211, "MOST", "Media Oriented Systems Transport bus";
    LIN = 212, "LIN", "Local Interconnect Network bus";
    X2E_SERIAL = 213, "X2E_SERIAL", "X2E serial line";
    X2E_XORAYA = 214, "X2E_XORAYA", "X2E Xoraya data logger";
    IEEE802_15_4_NONASK_PHY = 215, "IEEE802_15_4_NONASK_PHY", "IEEE 802.15.4 with non-ASK PHY data";
    LINUX_EVDEV = 216, "LINUX_EVDEV", "Linux evdev events";
    GSMTAP_UM = 217, "GSMTAP_UM", "GSM Um with GSMTAP header";
    GSMTAP_ABIS = 218, "GSMTAP_ABIS", "GSM Abis with GSMTAP header";
    MPLS = 219, "MPLS", "MPLS with label as link-layer header";
    USB_LINUX_MMAPPED = 220, "USB_LINUX_MMAPPED", "USB with padded Linux header";
    DECT = 221, "DECT", "DECT";
    AOS = 222, "AOS", "AOS Space Data Link protocol";
    WIHART = 223, "WIHART", "Wireless HART";
    FC_2 = 224, "FC_2", "Fibre Channel FC-2";
    FC_2_WITH_FRAME_DELIMS = 225, "FC_2_WITH_FRAME_DELIMS", "Fibre Channel FC-2 with frame delimiters";
    IPNET = 226, "IPNET", "Solaris ipnet";
    CAN_SOCKETCAN = 227, "CAN_SOCKETCAN", "CAN-bus with SocketCAN headers";
    IPV4 = 228, "IPV4", "Raw IPv4";
    IPV6 = 229, "IPV6", "Raw IPv6";
    IEEE802_15_4_NOFCS = 230, "IEEE802_15_4_NOFCS", "IEEE 802.15.4 without FCS";
    DBUS = 231, "DBUS", "D-Bus";
    JUNIPER_VS = 232, "JUNIPER_VS", "Juniper Virtual Server";
    JUNIPER_SRX_E2E = 233, "JUNIPER_SRX_E2E", "Juniper SRX E2E";
    JUNIPER_FIBRECHANNEL = 234, "JUNIPER_FIBRECHANNEL", "Juniper Fibre Channel";
    DVB_CI = 235, "DVB_CI", "DVB-CI";
    MUX27010 = 236, "MUX27010", "MUX27010";
    STANAG_5066_D_PDU = 237, "STANAG_5066_D_PDU", "STANAG 5066 D_PDUs";
    JUNIPER_ATM_CEMIC = 238, "JUNIPER_ATM_CEMIC", "Juniper ATM CEMIC";
    NFLOG = 239, "NFLOG", "Linux netfilter log messages";
    NETANALYZER = 240, "NETANALYZER", "Ethernet with Hilscher netANALYZER pseudo-header";
    NETANALYZER_TRANSPARENT = 241, "NETANALYZER_TRANSPARENT", "Ethernet with Hilscher netANALYZER pseudo-header and with preamble and SFD";
    IPOIB = 242, "IPOIB", "RFC 4391 IP-over-Infiniband";
    MPEG_2_TS = 243, "MPEG_2_TS", "MPEG-2 transport stream";
    NG40 = 244, "NG40", "ng40 protocol tester Iub/Iur";
    NFC_LLCP = 245, "NFC_LLCP", "NFC LLCP PDUs with pseudo-header";
    PFSYNC = 246, "PFSYNC", "Packet filter state syncing";
    INFINIBAND = 247, "INFINIBAND", "InfiniBand";
    SCTP = 248, "SCTP", "SCTP";
    USBPCAP = 249, "USBPCAP", "USB with USBPcap header";
    RTAC_SERIAL = 250, "RTAC_SERIAL", "Schweitzer Engineering Laboratories RTAC packets";
    BLUETOOTH_LE_LL = 251, "BLUETOOTH_LE_LL", "Bluetooth Low Energy air interface";
    WIRESHARK_UPPER_PDU = 252, "WIRESHARK_UPPER_PDU", "Wireshark upper-layer PDU export";
    NETLINK = 253, "NETLINK", "Linux netlink";
    BLUETOOTH_LINUX_MONITOR = 254, "BLUETOOTH_LINUX_MONITOR", "Bluetooth Linux Monitor";
    BLUETOOTH_BREDR_BB = 255, "BLUETOOTH_BREDR_BB", "Bluetooth Basic Rate/Enhanced Data Rate baseband packets";
    BLUETOOTH_LE_LL_WITH_PHDR = 256, "BLUETOOTH_LE_LL_WITH_PHDR", "Bluetooth Low Energy air interface with pseudo-header";
    PROFIBUS_DL = 257, "PROFIBUS_DL", "PROFIBUS data link layer";
    PKTAP = 258, "PKTAP", "Apple DLT_PKTAP";
    EPON = 259, "EPON", "Ethernet with 802.3 Clause 65 EPON preamble";
    IPMI_HPM_2 = 260, "IPMI_HPM_2", "IPMI trace packets";
    ZWAVE_R1_R2 = 261, "ZWAVE_R1_R2", "Z-Wave RF profile R1 and R2 packets";
    ZWAVE_R3 = 262, "ZWAVE_R3", "Z-Wave RF profile R3 packets";
    WATTSTOPPER_DLM = 263, "WATTSTOPPER_DLM", "WattStopper Digital Lighting Management (DLM) and Legrand Nitoo Open protocol";
    ISO_14443 = 264, "ISO_14443", "ISO 14443 messages";
    RDS = 265, "RDS", "IEC 62106 Radio Data System groups";
    USB_DARWIN = 266, "USB_DARWIN", "USB with Darwin header";
    OPENFLOW = 267, "OPENFLOW", "OpenBSD DLT_OPENFLOW";
    SDLC = 268, "SDLC", "IBM SDLC frames";
    TI_LLN_SNIFFER = 269, "TI_LLN_SNIFFER", "TI LLN sniffer frames";
    LORATAP = 270, "LORATAP", "LoRaWAN with LoRaTap pseudo-header";
    VSOCK = 271, "VSOCK", "Linux vsock";
    NORDIC_BLE = 272, "NORDIC_BLE", "Nordic Semiconductor Bluetooth LE sniffer frames";
    DOCSIS31_XRA31 = 273, "DOCSIS31_XRA31", "Excentis XRA-31 DOCSIS 3.1 RF sniffer frames";
    ETHERNET_MPACKET = 274, "ETHERNET_MPACKET", "802.3br mPackets";
    DISPLAYPORT_AUX = 275, "DISPLAYPORT_AUX", "DisplayPort AUX channel monitoring data";
    LINUX_SLL2 = 276, "LINUX_SLL2", "Linux cooked v2";
    SERCOS_MONITOR = 277, "SERCOS_MONITOR", "Sercos Monitor";
    OPENVIZSLA = 278, "OPENVIZSLA", "OpenVizsla USB";
    EBHSCR = 279, "EBHSCR", "Elektrobit High Speed Capture and Replay (EBHSCR)";
    VPP_DISPATCH = 280, "VPP_DISPATCH", "VPP graph dispatch tracer";
    DSA_TAG_BRCM = 281, "DSA_TAG_BRCM", "Broadcom tag";
    DSA_TAG_BRCM_PREPEND = 282, "DSA_TAG_BRCM_PREPEND", "Broadcom tag (prepended)";
    IEEE802_15_4_TAP = 283, "IEEE802_15_4_TAP", "IEEE 802.15.4 with pseudo-header";
    DSA_TAG_DSA = 284, "DSA_TAG_DSA", "Marvell DSA";
    DSA_TAG_EDSA = 285, "DSA_TAG_EDSA", "Marvell EDSA";
    ELEE = 286, "ELEE", "ELEE lawful intercept packets";
    Z_WAVE_SERIAL = 287, "Z_WAVE_SERIAL", "Z-Wave serial frames between host and chip";
    USB_2_0 = 288, "USB_2_0", "USB 2.0/1.1/1.0 as transmitted over the cable";
    ATSC_ALP = 289, "ATSC_ALP", "ATSC Link-Layer Protocol packets";
    ETW = 290, "ETW", "Event Tracing for Windows";
    NETANALYZER_NG = 291, "NETANALYZER_NG", "Hilscher netANALYZER NG";
    ZBOSS_NCP = 292, "ZBOSS_NCP", "ZBOSS network co-processor protocol for Zigbee";
    USB_2_0_LOW_SPEED = 293, "USB_2_0_LOW_SPEED", "USB 2.0/1.1/1.0 on the cable, low speed";
    USB_2_0_FULL_SPEED = 294, "USB_2_0_FULL_SPEED", "USB 2.0/1.1/1.0 on the cable, full speed";
    USB_2_0_HIGH_SPEED = 295, "USB_2_0_HIGH_SPEED", "USB 2.0 on the cable, high speed";
    AUERSWALD_LOG = 296, "AUERSWALD_LOG", "Auerswald Logger Protocol";
    ZWAVE_TAP = 297, "ZWAVE_TAP", "Z-Wave with TAP metadata header";
    SILABS_DEBUG_CHANNEL = 298, "SILABS_DEBUG_CHANNEL", "Silicon Labs debug channel";
    FIRA_UCI = 299, "FIRA_UCI", "FiRa ultra-wideband controller interface";
    MDB = 300, "MDB", "Multi-Drop Bus of vending machines";
    DECT_NR = 301, "DECT_NR", "DECT-2020 New Radio MAC";
    EDK2_MM = 302, "EDK2_MM", "EDK II management mode requests";
    DEBUG_ONLY = 303, "DEBUG_ONLY", "Debugging output, not a format";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_ascends_without_repetition() {
        assert!(REGISTRY.is_sorted_by(|a, b| a.link_type < b.link_type));
    }

    #[test]
    fn each_name_leads_back_to_its_number() {
        for link_type in LinkType::all() {
            let entry = link_type.entry().unwrap();
            assert_eq!(LinkType::from_name(entry.name), Some(link_type));
            assert_eq!(LinkType::from_name(&format!("DLT_{}", entry.name)), Some(link_type));
            assert_eq!(LinkType::from_name(&format!("linktype_{}", entry.link_type_name)), Some(link_type));
            assert_eq!(LinkType::from_name(&link_type.0.to_string()), Some(link_type));
        }
    }

    #[test]
    fn names_that_are_none() {
        for text in ["", "DLT_", "ETHERNE", "65536", "-1", "1x", "DLT_1é", "é"] {
            assert_eq!(LinkType::from_name(text), None, "{text}");
        }
    }

    #[test]
    fn old_numbers_translate_both_ways() {
        assert_eq!(LinkType::RAW.dlt(), 12);
        assert_eq!(LinkType::from_dlt(12), LinkType::RAW);
        assert_eq!(LinkType::from_dlt(101), LinkType::RAW);
        assert_eq!(LinkType::from_dlt(11), LinkType::ATM_RFC1483);
        // libpcap translates five numbers of files on Linux, and a copy keeps all others; 18 is pfsync's DLT on BSD.
        for number in (0..=u16::MAX).filter(|number| !DLT_DIFFERS.iter().any(|(_, dlt)| dlt == number)) {
            assert_eq!(LinkType::from_dlt(number), LinkType(number));
        }
        for number in 0..=u16::MAX {
            let link_type = LinkType::from_dlt(number);
            assert_eq!(LinkType::from_dlt(link_type.dlt()), link_type);
        }
    }

    #[test]
    fn display_is_tcpdumps_name_or_the_number() {
        assert_eq!(LinkType::ETHERNET.to_string(), "EN10MB");
        assert_eq!(LinkType(40_000).to_string(), "40000");
    }
}
