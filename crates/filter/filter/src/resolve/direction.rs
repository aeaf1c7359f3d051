//! `inbound`, `outbound` and `ifindex`.
//!
//! ```text
//! SLL    packet type (2): 4 sent                     SLL2   interface index (4) at 4, packet type (1) at 10
//! SLIP   byte 0: 1 sent                              PPP_PPPD  byte 0: 1 sent
//! IPNET  bytes 2 and 3: 1 sent, 2 received           PFLOG  byte 60: 1 in, 2 out
//! Juniper  byte 3, low bit: 1 received               others  the kernel's metadata, on a live capture
//! DSA    byte 12, high two bits: 0 received, 1 sent  BRCM  byte 12, high three bits: 0 received, 1 sent
//! EDSA   byte 16, as DSA
//! ```
//!
//! Tags of switches: "sent" is from the host to its switch. Marvell's mode has a third value, 3, for frames between two
//! switches, which are neither. Sources: LINKTYPE_DSA_TAG_DSA and LINKTYPE_DSA_TAG_BRCM of tcpdump.org.

use tapline_packet::LinkType;

use super::layers::{equal, is_juniper, masked};
use super::pflog;
use super::{Result, Scope};
use crate::options::HandleKind;
use crate::predicate::Predicate;
use tapline_bpf::ancillary;
use tapline_bpf::cfg::Width;
use tapline_syntax::Error;

/// `PACKET_OUTGOING` of packet(7).
const SENT: u32 = 4;

/// The mode in the first byte of Marvell's tag: 0 to the host, 1 from the host, 3 between switches.
const MARVELL_MODE: u32 = 0xc0;

/// The opcode in the first byte of Broadcom's tag: 0 to the host, 1 from the host.
const BROADCOM_OPCODE: u32 = 0xe0;

const NAME: &str = "direction";

impl Scope<'_> {
    pub(super) fn direction(&mut self, outbound: bool) -> Result<Predicate> {
        let code = |sent, received| if outbound { sent } else { received };
        let sent = match self.link_type() {
            LinkType::SLIP | LinkType::PPP_PPPD => {
                return Ok(equal(self.at_link(0), Width::Byte, code(1, 0), NAME));
            }
            LinkType::IPNET => return Ok(equal(self.at_link(2), Width::Half, code(1, 2), NAME)),
            LinkType::PFLOG => {
                return Ok(equal(self.at_link(pflog::DIRECTION), Width::Byte, code(2, 1), NAME));
            }
            link if is_juniper(link) => {
                return Ok(masked(self.at_link(3), Width::Byte, code(0, 1), 0x01, NAME));
            }
            LinkType::DSA_TAG_DSA => {
                return Ok(masked(self.at_link(12), Width::Byte, code(0x40, 0), MARVELL_MODE, NAME));
            }
            LinkType::DSA_TAG_EDSA => {
                return Ok(masked(self.at_link(16), Width::Byte, code(0x40, 0), MARVELL_MODE, NAME));
            }
            LinkType::DSA_TAG_BRCM => {
                return Ok(masked(self.at_link(12), Width::Byte, code(0x20, 0), BROADCOM_OPCODE, NAME));
            }
            LinkType::LINUX_SLL => equal(self.at_link(0), Width::Half, SENT, NAME),
            LinkType::LINUX_SLL2 => equal(self.at_link(10), Width::Byte, SENT, NAME),
            // The kernel runs a program in front of its stack for received packets alone.
            _ if self.options.handle == HandleKind::Front => return Ok(Predicate::Constant(!outbound)),
            _ if self.options.handle == HandleKind::Dropped => {
                let word = code_word(outbound);
                let message = format!("'{word}' not supported on packets that the kernel dropped");
                let hint =
                    "it does not say whether they were received or sent; use addresses: src host, dst net";
                return Err(Error::whole(message).hint(hint));
            }
            _ => {
                self.require_live(code_word(outbound))?;
                equal(self.at_packet(ancillary::PKTTYPE), Width::Half, SENT, NAME)
            }
        };
        Ok(if outbound { sent } else { sent.not() })
    }

    pub(super) fn if_index(&mut self, index: u32) -> Result<Predicate> {
        if self.link_type() == LinkType::LINUX_SLL2 {
            return Ok(equal(self.at_link(4), Width::Word, index, "interface index"));
        }
        self.require_live("ifindex")?;
        Ok(equal(self.at_packet(ancillary::IFINDEX), Width::Word, index, "interface index"))
    }

    fn require_live(&self, word: &str) -> Result<()> {
        if matches!(self.options.handle, HandleKind::Live | HandleKind::Front | HandleKind::Dropped) {
            return Ok(());
        }
        Err(Error::whole(format!("not a live capture, '{word}' not supported on {}", self.link_name()))
            .hint("only the kernel knows this, while it captures"))
    }
}

fn code_word(outbound: bool) -> &'static str {
    if outbound { "outbound" } else { "inbound" }
}
