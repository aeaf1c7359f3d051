//! An interface, or all of them, through AF_PACKET.
//!
//! ```text
//! ring block --SingleSocket--> records --direction, filter where it runs here--> as C sees them:
//!   Ethernet   a VLAN tag that the kernel took out goes back before the EtherType, in the 14 free bytes before the frame
//!   cooked     the SLL or SLL2 header goes before the packet, and a tag before its protocol
//! ```
//!
//! Tags: `vlan.rs`.

use std::ffi::{CString, c_int};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use tapline_bpf::Insn;
use tapline_capture::af_packet::{
    AfPacketError, CaptureDirection, KernelCount, LinkLayerAddress, SingleCount, SingleSettings,
    SingleSocket, TimestampSource,
};
use tapline_ir::CompiledFilter;
use tapline_packet::{Batch, LinkType, Packet, PacketType, Record};
use tapline_sys::{Link, RouteSocket, SyscallError};

use crate::cooked::{self, SLL, SLL2};
use crate::failure::{Failure, system_text};
use crate::raw::*;
use crate::settings::Settings;
use crate::source::{Keep, OpenSource, Source};
use crate::vlan::{self, Tags};

/// The device name for all interfaces at once.
pub(crate) const ANY: &str = "any";
/// `DLT_DOCSIS`: what cable modem head ends put on Ethernet.
const DOCSIS: c_int = 143;
/// `ARPHRD_ETHER`.
const HARDWARE_ETHERNET: u16 = 1;
/// `ARPHRD_PPP`.
const HARDWARE_PPP: u16 = 512;
/// The longest name of an interface, `IFNAMSIZ` with its zero byte.
const NAME_MAX: usize = 15;
/// libpcap's: 2 MiB.
const BUFFER_LEN: u64 = 2 << 20;
/// The most that a ring has unless the program says otherwise.
const BUFFER_LEN_MAX: u64 = 16 << 20;
/// A pause of the reader that few packets should survive.
const PAUSE_MS: u64 = 1000;
/// With this snap length a block of 64 KiB holds every packet.
const SHORT_PACKETS_LEN: c_int = 60_000;
/// The latency for a program that lets packets wait until the buffer is full.
pub(crate) const LATENCY_MS: u32 = 10;

/// An open interface.
pub(crate) struct Interface {
    single: SingleSocket,
    settings: SingleSettings,
    dlt: c_int,
    dlts: Vec<c_int>,
    direction: c_int,
    /// The loopback interface's number, whose sent packets come back as received.
    loopback: u32,
    in_kernel: InKernel,
    program: Option<CompiledFilter>,
    /// Tags of the batch.
    tags: Tags,
    if_drops_before: u64,
    is_down: bool,
    /// The count in the kernel, and whether packets are read as well.
    count: Option<(KernelCount, bool)>,
    /// Packets of former counts that were not read.
    counted_before: u64,
    /// Reason for which the ring is gone.
    no_ring: Option<Failure>,
}

/// The place where the filter runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InKernel {
    /// Nowhere else, or there is none.
    No,
    /// The filter runs in the kernel; packets from before this many blocks saw a former one.
    From { block: u64 },
}

impl Interface {
    /// Opens a device as libpcap's `pcap_activate` does.
    pub(crate) fn open(device: &str, wished: &Settings) -> Result<OpenSource, Failure> {
        let no_such_device = || Failure::code(ERROR_NO_SUCH_DEVICE);
        if device.len() > NAME_MAX {
            return Err(no_such_device());
        }
        if wished.rfmon {
            return Err(Failure::code(ERROR_RFMON_NOTSUP));
        }
        let is_any = device == ANY;
        let links = links()?;
        let link = links.iter().find(|link| link.name == device);
        if link.is_none() && !is_any {
            return Err(no_such_device());
        }
        let shape = Shape::of(link);
        let settings = SingleSettings {
            name: if is_any { String::new() } else { device.to_owned() },
            if_index: link.map_or(0, |link| link.index),
            is_cooked: shape.is_cooked,
            protocol: if wished.protocol == 0 { 3 } else { wished.protocol },
            snap_len: wished.snap_len_or_max() as u32,
            ring_len: ring_len(wished),
            block_len: wished.wake_len.or(Some(block_len(wished))),
            latency_ms: wished.latency_ms().unwrap_or(LATENCY_MS),
            promiscuous: wished.promiscuous && !is_any,
            timestamps: wished.timestamps.unwrap_or_default(),
            // Programs open a capture and go on in a child. `pcap_dispatch` asks them for what this promises.
            is_inherited: true,
        };
        let single = SingleSocket::open(&settings).map_err(open_failure)?;
        let warning = shape.warning.or_else(|| (is_any && wished.promiscuous).then(no_promiscuous_any));
        let interface = Interface {
            single,
            if_drops_before: if_drops(&settings.name),
            settings,
            dlt: shape.dlts[0],
            dlts: shape.dlts.clone(),
            direction: 0,
            loopback: links.iter().find(|link| link.is_loopback()).map_or(0, |link| link.index),
            in_kernel: InKernel::No,
            program: None,
            tags: Tags::default(),
            is_down: false,
            count: None,
            counted_before: 0,
            no_ring: None,
        };
        let snap_len = wished.snap_len_or_max();
        Ok(OpenSource { source: Box::new(interface), dlt: shape.dlts[0], snap_len, warning })
    }

    /// A program as the kernel runs it, which sees no header of ours; `None` if it cannot.
    fn for_kernel(&self, program: &CompiledFilter) -> Option<Vec<Insn>> {
        match cooked::header_len(self.dlt) {
            0 => Some(program.insns().to_vec()),
            _ => cooked::for_kernel(program.insns(), self.dlt),
        }
    }

    /// Has the kernel count on, by the present filter and direction.
    fn count_on(&mut self) -> Result<(), Failure> {
        let Some((_, beside)) = self.count else { return Ok(()) };
        let counted = Source::count_in_kernel(self, beside);
        counted.map(drop).map_err(|why| Failure::error(format!("The kernel does not count on: {why}")))
    }

    /// Packets that the kernel counted and that are not read.
    fn counted_only(&self) -> u64 {
        let present = self.count.as_ref().filter(|(_, beside)| !beside);
        self.counted_before + present.map_or(0, |(count, _)| count.read().packets)
    }

    /// Makes the packets of the batch what C sees, but for the snap length, and leaves out those that are not wanted.
    fn prepare(&mut self, keep: Keep<'_>) {
        let Interface { single, tags, dlt, direction, loopback, .. } = self;
        let (memory, records, stations) = single.memory();
        tags.begin(*dlt);
        let mut index = 0;
        records.retain_mut(|record| {
            let station = stations.get(memory, index);
            index += 1;
            if !is_wanted(&station, *direction, *loopback) {
                return false;
            }
            put_header(memory, record, *dlt, &station);
            if !keep(Packet { data: vlan::data(memory, record), meta: &record.meta }) {
                return false;
            }
            tags.put(memory, record);
            true
        });
    }
}

/// Whether libpcap would hand this packet out.
fn is_wanted(station: &LinkLayerAddress, direction: c_int, loopback: u32) -> bool {
    match station.packet_type == PacketType::Outgoing.to_kernel() {
        // On loopback each packet is seen twice; the received copy is enough.
        true => station.if_index != loopback && direction != 1,
        false => direction != 2,
    }
}

/// The length of a block: it must hold the longest packet, which on loopback and with segmentation offload is 64 KiB
/// and a header.
pub(crate) fn block_len(wished: &Settings) -> u32 {
    if wished.snap_len_or_max() <= SHORT_PACKETS_LEN { 64 << 10 } else { 128 << 10 }
}

/// Bytes of the ring. A block is handed over when its time is over, however little it holds; so a short time needs many
/// blocks, if the reader may pause.
pub(crate) fn ring_len(wished: &Settings) -> u64 {
    let hand_overs = PAUSE_MS / u64::from(wished.latency_ms().unwrap_or(LATENCY_MS).max(1));
    let for_pauses = (hand_overs * u64::from(block_len(wished))).clamp(BUFFER_LEN, BUFFER_LEN_MAX);
    wished.buffer_len.map_or(for_pauses, u64::from)
}

/// The link types of a device, and how its packets come.
struct Shape {
    is_cooked: bool,
    dlts: Vec<c_int>,
    warning: Option<Failure>,
}

impl Shape {
    fn of(link: Option<&Link>) -> Shape {
        let cooked = |warning| Shape { is_cooked: true, dlts: vec![SLL, SLL2], warning };
        let Some(link) = link else { return cooked(None) };
        let found = LinkType::of_hardware(link.hardware_type);
        if link.hardware_type == HARDWARE_PPP {
            return cooked(None);
        }
        if found == LinkType::USER0 {
            let text = format!(
                "arptype {} not supported by libpcap - falling back to cooked socket",
                link.hardware_type
            );
            return cooked(Some(Failure::new(WARNING, text)));
        }
        let mut dlts = vec![c_int::from(found.dlt())];
        if link.hardware_type == HARDWARE_ETHERNET {
            dlts.push(DOCSIS);
        }
        Shape { is_cooked: false, dlts, warning: None }
    }
}

/// libpcap 1.10 leaves the text and returns 0; programs print a warning otherwise.
fn no_promiscuous_any() -> Failure {
    Failure::new(0, "Promiscuous mode not supported on the \"any\" device")
}

/// Puts the cooked header before a packet.
fn put_header(memory: &mut [u8], record: &mut Record, dlt: c_int, station: &LinkLayerAddress) {
    let len = cooked::header_len(dlt);
    let start = record.offset.wrapping_sub(len);
    let Some(room) = memory.get_mut(start..start.wrapping_add(len)).filter(|_| len > 0) else { return };
    cooked::write_header(dlt, station, room);
    record.offset = start;
    record.cap_len += len as u32;
    record.meta.wire_len = record.meta.wire_len.saturating_add(len as u32);
}

impl Source for Interface {
    fn advance(&mut self, keep: Keep<'_>) -> Result<bool, Failure> {
        if let Some(failure) = &self.no_ring {
            return Err(failure.clone());
        }
        let has_come = self.single.advance();
        if has_come {
            self.is_down = false;
            self.prepare(keep);
        }
        Ok(has_come)
    }

    fn refilter(&mut self, from: usize, keep: Keep<'_>) {
        let (memory, records, _) = self.single.memory();
        self.tags.refilter(memory, records, from, keep);
    }

    fn batch(&self) -> Batch<'_> {
        self.single.batch()
    }

    fn release(&mut self) {
        self.single.release();
    }

    fn fd(&self) -> RawFd {
        self.single.as_fd().as_raw_fd()
    }

    fn examine(&mut self) -> Result<(), Failure> {
        let error = self.single.take_error().map_err(|error| call_failure(&error))?;
        let gone = || Failure::error("The interface disappeared");
        if self.settings.if_index != 0 && !exists(&self.settings.name, self.settings.if_index) {
            return Err(gone());
        }
        match error {
            // The interface is down, and may come up again; the kernel then goes on by itself.
            Some(error) if error.raw_os_error() == Some(libc::ENETDOWN) => self.is_down = true,
            Some(error) => {
                let text = system_text(&error);
                return Err(Failure::error(format!("Error condition on packet socket: {text}")));
            }
            None => {}
        }
        Ok(())
    }

    fn is_dozing(&self) -> bool {
        self.is_down
    }

    fn set_program(&mut self, program: &CompiledFilter) -> Result<(), Failure> {
        let seen_from = self.single.blocks_taken() + u64::from(self.single.blocks()) + 1;
        if self.count.is_some() {
            // One program in place of the other, so that each packet is counted by one of them.
            self.program = Some(program.clone());
            self.in_kernel = InKernel::From { block: seen_from };
            return self.count_on();
        }
        let for_kernel = self.for_kernel(program);
        let taken = for_kernel.is_some_and(|insns| self.single.set_filter(Some(&insns)).is_ok());
        self.program = Some(program.clone());
        self.in_kernel = match taken {
            true => InKernel::From { block: seen_from },
            false => {
                self.single.set_filter(None).map_err(|error| call_failure(&error))?;
                InKernel::No
            }
        };
        Ok(())
    }

    fn wants_filter(&self) -> bool {
        match self.in_kernel {
            InKernel::No => self.program.is_some(),
            // The next block has this number, from 1.
            InKernel::From { block } => self.single.blocks_taken() < block,
        }
    }

    fn set_direction(&mut self, direction: c_int) -> Result<(), Failure> {
        self.direction = direction;
        self.count_on()
    }

    fn dlts(&self) -> &[c_int] {
        &self.dlts
    }

    fn set_dlt(&mut self, dlt: c_int) {
        self.dlt = dlt;
    }

    fn statistics(&mut self) -> Result<Stat, Failure> {
        let counted = self
            .single
            .statistics()
            .map_err(|error| Failure::system("failed to get statistics from socket", &error.source))?;
        // libpcap's are 32 bits wide and wrap.
        Ok(Stat {
            recv: (counted.received + self.counted_only()) as u32,
            drop: counted.dropped as u32,
            if_drop: if_drops(&self.settings.name).saturating_sub(self.if_drops_before) as u32,
        })
    }

    fn count_in_kernel(&mut self, beside: bool) -> Result<KernelCount, String> {
        let program = match &self.program {
            Some(program) => Some(
                self.for_kernel(program)
                    .ok_or("the filter asks for a length that the kernel does not know")?,
            ),
            None => None,
        };
        let direction = match (self.direction, self.settings.if_index == self.loopback) {
            _ if self.settings.if_index == 0 => {
                return Err("on all interfaces, packets of the loopback interface come twice".to_owned());
            }
            (0 | 1, true) | (1, false) => CaptureDirection::In,
            (0, false) => CaptureDirection::Both,
            (_, false) => CaptureDirection::Out,
            (_, true) => return Err("of a loopback interface, received packets count alone".to_owned()),
        };
        let header_len = cooked::header_len(self.dlt) as u16;
        let settings = SingleCount { direction, header_len, hands_on: beside };
        let count = self.single.count(program.as_deref(), settings)?;
        self.count = Some((count.clone(), beside));
        Ok(count)
    }

    fn stop_count(&mut self) -> Result<(), Failure> {
        if self.count.is_none() {
            return Ok(());
        }
        self.counted_before = self.counted_only();
        self.count = None;
        self.single.stop_count();
        match self.program.clone() {
            Some(program) => self.set_program(&program),
            None => self.single.set_filter(None).map_err(|error| call_failure(&error)),
        }
    }

    fn send(&mut self, frame: &[u8], waits: bool) -> Result<usize, Failure> {
        if self.settings.if_index == 0 {
            return Err(Failure::error("Sending packets isn't supported on the \"any\" device"));
        }
        if self.settings.is_cooked {
            return Err(Failure::error("Sending packets isn't supported in cooked mode"));
        }
        self.single.send(frame, waits).map_err(|error| Failure::system("send", &error.source))
    }

    fn resize(&mut self, buffer_len: u64, wake_len: Option<u32>) -> Result<(), Failure> {
        let wanted =
            SingleSettings { ring_len: buffer_len.max(1), block_len: wake_len, ..self.settings.clone() };
        let in_kernel = self.program.as_ref().filter(|_| self.in_kernel != InKernel::No).cloned();
        let resized = self.single.resize(&wanted).map_err(open_failure);
        self.no_ring = resized.as_ref().err().filter(|_| !self.single.has_ring()).cloned();
        if let Some(program) = in_kernel {
            self.set_program(&program)?;
        }
        self.count_on()?;
        resized.map(|()| self.settings = wanted)
    }
}

/// The interfaces that there are.
pub(crate) fn links() -> Result<Vec<Link>, Failure> {
    RouteSocket::open().and_then(|mut route| route.links()).map_err(|error| call_failure(&error))
}

fn exists(name: &str, if_index: u32) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: the name ends in a zero byte.
    unsafe { libc::if_nametoindex(name.as_ptr()) == if_index }
}

/// Losses of the adapter, as libpcap counts them.
fn if_drops(name: &str) -> u64 {
    let counter = |file: &str| {
        let path = format!("/sys/class/net/{name}/statistics/{file}");
        std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    if name.is_empty() { 0 } else { counter("rx_missed_errors") + counter("rx_fifo_errors") }
}

/// A failed call in libpcap's words.
fn call_failure(error: &SyscallError) -> Failure {
    Failure::system(error.call, &error.source)
}

/// The error of a device that cannot be opened.
fn open_failure(error: AfPacketError) -> Failure {
    match error {
        AfPacketError::NoPermission { source, .. } => {
            Failure { code: ERROR_PERM_DENIED, ..Failure::system("socket", &source.source) }
        }
        AfPacketError::NoHardwareTimestamps { source, .. } if source.errno() == libc::EPERM => Failure::new(
            ERROR_PERM_DENIED,
            "Attempt to set hardware timestamp failed - CAP_NET_ADMIN may be required",
        ),
        AfPacketError::NoHardwareTimestamps { .. } => Failure::code(ERROR_CANTSET_TSTAMP_TYPE),
        AfPacketError::Call { source, .. } => match source.errno() {
            libc::ENETDOWN => Failure::code(ERROR_IFACE_NOT_UP),
            libc::ENODEV => Failure::code(ERROR_NO_SUCH_DEVICE),
            _ => call_failure(&source),
        },
        AfPacketError::NoRing { source, .. } => {
            Failure::system("can't create rx ring on packet socket", &source.source)
        }
        other => Failure::error(other.to_string()),
    }
}

/// The clocks that can stamp a device's packets, by libpcap's numbers; the host's alone if that cannot be known.
pub(crate) fn timestamp_types(device: &str) -> Vec<c_int> {
    let timestamping =
        tapline_sys::LinkControl::open().and_then(|mut control| control.timestamping(device)).ok();
    match timestamping.is_some_and(|found| found.can_stamp_all()) {
        true => vec![0, 3, 4],
        false => vec![0],
    }
}

/// The clock of a number of libpcap's.
pub(crate) fn timestamp_source(number: c_int) -> Option<TimestampSource> {
    match number {
        0..=2 => Some(TimestampSource::Host),
        3 => Some(TimestampSource::Adapter),
        4 => Some(TimestampSource::AdapterUnsynced),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times_have_many_blocks() {
        let ring = |settings: &Settings| (ring_len(settings), block_len(settings));
        let immediate = Settings { is_immediate: true, ..Settings::default() };
        assert_eq!(ring(&immediate), (BUFFER_LEN_MAX, 128 << 10));
        assert_eq!(
            ring(&Settings { snap_len: 96, timeout_ms: 1000, ..Settings::default() }),
            (BUFFER_LEN, 64 << 10)
        );
        assert_eq!(ring(&Settings { snap_len: 96, ..Settings::default() }), (100 << 16, 64 << 10));
        assert_eq!(ring_len(&Settings { buffer_len: Some(1 << 20), ..immediate }), 1 << 20);
    }

    #[test]
    fn a_header_without_room_stays_away() {
        let mut memory = [7; 10];
        let mut packet = Record { offset: 4, cap_len: 6, ..Record::default() };
        put_header(&mut memory, &mut packet, SLL, &LinkLayerAddress::default());
        assert_eq!((packet.offset, memory), (4, [7; 10]));
    }
}
