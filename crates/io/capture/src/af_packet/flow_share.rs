//! The program that shares packets among workers by flow, fragments with their flow.
//!
//! The kernel's hash (`PACKET_FANOUT_HASH`) is used where the program cannot be loaded, and for links whose headers it
//! does not know: fragments then go by their addresses alone, apart from the whole packets of their flow.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, OnceLock};

use tapline_ebpf::{FlowShare as Parameters, flow_share};
use tapline_packet::LinkType;
use tapline_sys::bpf::{LoadedProgram, LruTable, ProgramKind, SharedArray, probe};
use tapline_sys::{FanoutMode, Link, PacketSocket, SyscallError};

use super::AfPacketSettings;
use super::extended::text;

const NAME: &str = "tapline_share";

/// Entries for fragments, of all interfaces: a first fragment takes one for its packet, and one for its addresses.
const FRAGMENTS_MAX: u32 = 16_384;

/// Bytes of an Ethernet header.
const ETHERNET_LEN: u32 = 14;

/// The programs, once for all workers and interfaces; nothing in it before they are wanted, and the reason where the
/// kernel refuses them.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedFlowShare(Arc<OnceLock<Result<FlowShare, String>>>);

impl SharedFlowShare {
    /// Loads them if they are wanted, while there are rights: interfaces may come when they have been given up.
    pub(super) fn load(&self, settings: &AfPacketSettings) {
        if is_wanted(settings) {
            self.0.get_or_init(FlowShare::load);
        }
    }

    /// The reason that fragments of a link do not follow their flow, for people.
    pub(super) fn refusal(&self, link: &Link, settings: &AfPacketSettings) -> Option<String> {
        let share = self.0.get().filter(|_| is_wanted(settings))?;
        let why = match share {
            Ok(share) if share.program(link).is_some() => return None,
            Ok(_) => "the program for them does not know headers of this link".to_owned(),
            Err(refusal) => format!("the kernel refused the program for them: {refusal}"),
        };
        Some(format!("fragments go to workers by their addresses, apart from their flow ({why})"))
    }

    /// Later fragments so far whose first one was not known.
    pub(super) fn apart(&self) -> u64 {
        self.0.get().and_then(|share| share.as_ref().ok()).map_or(0, |share| share.apart.word(0, 0))
    }

    /// Joins the fanout group of a number, or makes one whose members share packets as the settings say: where a program
    /// decides, once that is [chosen](Self::choose). Until then the first member gets all.
    pub(super) fn join(
        &self,
        socket: &PacketSocket,
        link: &Link,
        known: Option<u16>,
        settings: &AfPacketSettings,
        ignores_sent: bool,
    ) -> Result<u16, SyscallError> {
        let mode = self.program(link, settings).map_or(settings.fanout, |_| FanoutMode::ExtendedProgram);
        socket.join_fanout(known, mode, ignores_sent)
    }

    /// Has the program for a link share the packets of a socket's group, where there is one.
    pub(super) fn choose(
        &self,
        socket: &PacketSocket,
        link: &Link,
        settings: &AfPacketSettings,
    ) -> Result<(), SyscallError> {
        self.program(link, settings).map_or(Ok(()), |program| socket.choose_member_by(program))
    }

    fn program(&self, link: &Link, settings: &AfPacketSettings) -> Option<&LoadedProgram> {
        let share = self.0.get().filter(|_| is_wanted(settings))?;
        share.as_ref().ok()?.program(link)
    }
}

fn is_wanted(settings: &AfPacketSettings) -> bool {
    settings.workers > 1 && settings.fanout == FanoutMode::Hash
}

/// The loaded programs, and what they share.
#[derive(Debug)]
struct FlowShare {
    /// For links with Ethernet headers.
    ethernet: LoadedProgram,
    /// For links without headers.
    raw: LoadedProgram,
    _fragments: LruTable,
    apart: SharedArray,
}

impl FlowShare {
    fn load() -> Result<FlowShare, String> {
        // This names the right that is missing; a map that is refused does not.
        probe(ProgramKind::SocketFilter).map_err(text)?;
        let fragments = LruTable::create(NAME, Parameters::KEY_LEN, Parameters::VALUE_LEN, FRAGMENTS_MAX)
            .map_err(text)?;
        let apart = SharedArray::create(NAME, 8, 1).map_err(text)?;
        let seed = RandomState::new().build_hasher().finish();
        let load = |sent_header_len| {
            let program = flow_share(Parameters {
                fragments: fragments.as_fd().as_raw_fd(),
                apart: apart.as_fd().as_raw_fd(),
                seed,
                sent_header_len,
            });
            LoadedProgram::load(ProgramKind::SocketFilter, NAME, program.insns()).map_err(text)
        };
        let (ethernet, raw) = (load(ETHERNET_LEN)?, load(0)?);
        Ok(FlowShare { ethernet, raw, _fragments: fragments, apart })
    }

    /// The program for a link, by the headers that its packets have.
    fn program(&self, link: &Link) -> Option<&LoadedProgram> {
        match LinkType::of_hardware(link.hardware_type) {
            LinkType::ETHERNET => Some(&self.ethernet),
            LinkType::RAW => Some(&self.raw),
            _ => None,
        }
    }
}
