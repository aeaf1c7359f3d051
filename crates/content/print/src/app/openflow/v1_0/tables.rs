//! Names of the values of OpenFlow 1.0, with tcpdump's words.

pub(super) const PORT_CONFIG: &[(u32, &str)] = &[
    (1, "PORT_DOWN"),
    (2, "NO_STP"),
    (4, "NO_RECV"),
    (8, "NO_RECV_STP"),
    (0x10, "NO_FLOOD"),
    (0x20, "NO_FWD"),
    (0x40, "NO_PACKET_IN"),
];
pub(super) const SPANNING_TREE: &[(u32, &str)] =
    &[(0, "STP_LISTEN"), (0x100, "STP_LEARN"), (0x200, "STP_FORWARD"), (0x300, "STP_BLOCK")];
pub(super) const PORTS: &[(u32, &str)] = &[
    (0xff00, "MAX"),
    (0xfff8, "IN_PORT"),
    (0xfff9, "TABLE"),
    (0xfffa, "NORMAL"),
    (0xfffb, "FLOOD"),
    (0xfffc, "ALL"),
    (0xfffd, "CONTROLLER"),
    (0xfffe, "LOCAL"),
    (0xffff, "NONE"),
];
pub(super) const PORT_FEATURES: &[(u32, &str)] = &[
    (1, "10MB_HD"),
    (2, "10MB_FD"),
    (4, "100MB_HD"),
    (8, "100MB_FD"),
    (0x10, "1GB_HD"),
    (0x20, "1GB_FD"),
    (0x40, "10GB_FD"),
    (0x80, "COPPER"),
    (0x100, "FIBER"),
    (0x200, "AUTONEG"),
    (0x400, "PAUSE"),
    (0x800, "PAUSE_ASYM"),
];
pub(super) const PROPERTIES: &[(u32, &str)] = &[(0, "NONE"), (1, "MIN_RATE")];
pub(super) const WILDCARDS: &[(u32, &str)] = &[
    (1, "IN_PORT"),
    (2, "DL_VLAN"),
    (4, "DL_SRC"),
    (8, "DL_DST"),
    (0x10, "DL_TYPE"),
    (0x20, "NW_PROTO"),
    (0x40, "TP_SRC"),
    (0x80, "TP_DST"),
    (0x100000, "DL_VLAN_PCP"),
    (0x200000, "NW_TOS"),
];
pub(super) const ACTIONS: &[(u32, &str)] = &[
    (0, "OUTPUT"),
    (1, "SET_VLAN_VID"),
    (2, "SET_VLAN_PCP"),
    (3, "STRIP_VLAN"),
    (4, "SET_DL_SRC"),
    (5, "SET_DL_DST"),
    (6, "SET_NW_SRC"),
    (7, "SET_NW_DST"),
    (8, "SET_NW_TOS"),
    (9, "SET_TP_SRC"),
    (0xa, "SET_TP_DST"),
    (0xb, "ENQUEUE"),
    (0xffff, "VENDOR"),
];
pub(super) const ACTION_BITS: &[(u32, &str)] = &[
    (1, "OUTPUT"),
    (2, "SET_VLAN_VID"),
    (4, "SET_VLAN_PCP"),
    (8, "STRIP_VLAN"),
    (0x10, "SET_DL_SRC"),
    (0x20, "SET_DL_DST"),
    (0x40, "SET_NW_SRC"),
    (0x80, "SET_NW_DST"),
    (0x100, "SET_NW_TOS"),
    (0x200, "SET_TP_SRC"),
    (0x400, "SET_TP_DST"),
    (0x800, "ENQUEUE"),
];
pub(super) const CAPABILITIES: &[(u32, &str)] = &[
    (1, "FLOW_STATS"),
    (2, "TABLE_STATS"),
    (4, "PORT_STATS"),
    (8, "STP"),
    (0x10, "RESERVED"),
    (0x20, "IP_REASM"),
    (0x40, "QUEUE_STATS"),
    (0x80, "ARP_MATCH_IP"),
];
pub(super) const FRAGMENTS: &[(u32, &str)] = &[(0, "FRAG_NORMAL"), (1, "FRAG_DROP"), (2, "FRAG_REASM")];
pub(super) const COMMANDS: &[(u32, &str)] =
    &[(0, "ADD"), (1, "MODIFY"), (2, "MODIFY_STRICT"), (3, "DELETE"), (4, "DELETE_STRICT")];
pub(super) const BUFFERS: &[(u32, &str)] = &[(0xffffffff, "NONE")];
pub(super) const FLOW_FLAGS: &[(u32, &str)] = &[(1, "SEND_FLOW_REM"), (2, "CHECK_OVERLAP"), (4, "EMERG")];
pub(super) const STATISTICS: &[(u32, &str)] = &[
    (0, "DESC"),
    (1, "FLOW"),
    (2, "AGGREGATE"),
    (3, "TABLE"),
    (4, "PORT"),
    (5, "QUEUE"),
    (0xffff, "VENDOR"),
];
pub(super) const TABLES: &[(u32, &str)] = &[(0xfe, "EMERG"), (0xff, "ALL")];
pub(super) const QUEUES: &[(u32, &str)] = &[(0xffffffff, "ALL")];
pub(super) const REPLY_FLAGS: &[(u32, &str)] = &[(1, "MORE")];
pub(super) const PACKET_REASONS: &[(u32, &str)] = &[(0, "NO_MATCH"), (1, "ACTION")];
pub(super) const REMOVAL_REASONS: &[(u32, &str)] = &[(0, "IDLE_TIMEOUT"), (1, "HARD_TIMEOUT"), (2, "DELETE")];
pub(super) const PORT_REASONS: &[(u32, &str)] = &[(0, "ADD"), (1, "DELETE"), (2, "MODIFY")];
pub(super) const ERRORS: &[(u32, &str)] = &[
    (0, "HELLO_FAILED"),
    (1, "BAD_REQUEST"),
    (2, "BAD_ACTION"),
    (3, "FLOW_MOD_FAILED"),
    (4, "PORT_MOD_FAILED"),
    (5, "QUEUE_OP_FAILED"),
];
pub(super) const HELLO_FAILED: &[(u32, &str)] = &[(0, "INCOMPATIBLE"), (1, "EPERM")];
pub(super) const BAD_REQUEST: &[(u32, &str)] = &[
    (0, "BAD_VERSION"),
    (1, "BAD_TYPE"),
    (2, "BAD_STAT"),
    (3, "BAD_VENDOR"),
    (4, "BAD_SUBTYPE"),
    (5, "EPERM"),
    (6, "BAD_LEN"),
    (7, "BUFFER_EMPTY"),
    (8, "BUFFER_UNKNOWN"),
];
pub(super) const BAD_ACTION: &[(u32, &str)] = &[
    (0, "BAD_TYPE"),
    (1, "BAD_LEN"),
    (2, "BAD_VENDOR"),
    (3, "BAD_VENDOR_TYPE"),
    (4, "BAD_OUT_PORT"),
    (5, "BAD_ARGUMENT"),
    (6, "EPERM"),
    (7, "TOO_MANY"),
    (8, "BAD_QUEUE"),
];
pub(super) const FLOW_MOD_FAILED: &[(u32, &str)] = &[
    (0, "ALL_TABLES_FULL"),
    (1, "OVERLAP"),
    (2, "EPERM"),
    (3, "BAD_EMERG_TIMEOUT"),
    (4, "BAD_COMMAND"),
    (5, "UNSUPPORTED"),
];
pub(super) const PORT_MOD_FAILED: &[(u32, &str)] = &[(0, "BAD_PORT"), (1, "BAD_HW_ADDR")];
pub(super) const QUEUE_OP_FAILED: &[(u32, &str)] = &[(0, "BAD_PORT"), (1, "BAD_QUEUE"), (2, "EPERM")];
pub(super) const BIG_SWITCH_MESSAGES: &[(u32, &str)] = &[
    (0, "SET_IP_MASK"),
    (1, "GET_IP_MASK_REQUEST"),
    (2, "GET_IP_MASK_REPLY"),
    (3, "SET_MIRRORING"),
    (4, "GET_MIRRORING_REQUEST"),
    (5, "GET_MIRRORING_REPLY"),
    (6, "SHELL_COMMAND"),
    (7, "SHELL_OUTPUT"),
    (8, "SHELL_STATUS"),
    (9, "GET_INTERFACES_REQUEST"),
    (0xa, "GET_INTERFACES_REPLY"),
    (0xb, "SET_PKTIN_SUPPRESSION_REQUEST"),
    (0xc, "SET_L2_TABLE_REQUEST"),
    (0xd, "GET_L2_TABLE_REQUEST"),
    (0xe, "GET_L2_TABLE_REPLY"),
    (0xf, "VIRTUAL_PORT_CREATE_REQUEST"),
    (0x10, "VIRTUAL_PORT_CREATE_REPLY"),
    (0x11, "VIRTUAL_PORT_REMOVE_REQUEST"),
    (0x12, "BW_ENABLE_SET_REQUEST"),
    (0x13, "BW_ENABLE_GET_REQUEST"),
    (0x14, "BW_ENABLE_GET_REPLY"),
    (0x15, "BW_CLEAR_DATA_REQUEST"),
    (0x16, "BW_CLEAR_DATA_REPLY"),
    (0x17, "BW_ENABLE_SET_REPLY"),
    (0x18, "SET_L2_TABLE_REPLY"),
    (0x19, "SET_PKTIN_SUPPRESSION_REPLY"),
    (0x1a, "VIRTUAL_PORT_REMOVE_REPLY"),
    (0x1b, "HYBRID_GET_REQUEST"),
    (0x1c, "HYBRID_GET_REPLY"),
    (0x1f, "PDU_TX_REQUEST"),
    (0x20, "PDU_TX_REPLY"),
    (0x21, "PDU_RX_REQUEST"),
    (0x22, "PDU_RX_REPLY"),
    (0x23, "PDU_RX_TIMEOUT"),
];
pub(super) const BIG_SWITCH_ACTIONS: &[(u32, &str)] =
    &[(1, "MIRROR"), (2, "SET_TUNNEL_DST"), (4, "CHECKSUM")];

/// Bits that have a meaning, where the tables do not name them all.
pub(super) const SPANNING_TREE_BITS: u32 = 0x300;
pub(super) const LINK_DOWN: u32 = 1;
pub(super) const WILDCARD_BITS: u32 = 0x3f_ffff;
pub(super) const CAPABILITY_BITS: u32 = 0xef;
