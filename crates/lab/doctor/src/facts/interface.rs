//! One interface: the facts from driver, kernel and /sys. Facts that they do not give are `None`.

use std::fs;

use tapline_sys::packet_diag;
use tapline_sys::proc_packet::{self, SocketHolder};
use tapline_sys::ptp::{self, ClockOffset};
use tapline_sys::{
    Channels, Coalescing, DriverInfo, HashFields, Link, LinkControl, LinkMode, NetdevSocket, Offload,
    PauseFrames, ReceiveHash, RingSizes, Timestamping, XdpFeatures, counts_receive_loss,
};

use super::processors::{Interrupt, parse_cpu_list};

/// `ETH_P_ALL`: the protocol of sockets that capture.
const ALL_PROTOCOLS: u16 = 3;
/// Interrupts that one adapter may have: the limit of MSI-X.
const IRQS_MAX: usize = 2048;
/// The most receive queues whose settings are read.
const QUEUES_MAX: usize = 1024;

/// Facts of an interface.
#[derive(Clone, Debug, Default)]
pub struct Interface {
    /// Attributes by rtnetlink.
    pub link: Link,
    /// Whether it has IP addresses: then this host talks there, and it is more than a monitor port.
    pub has_addresses: bool,
    /// The bridge or bond that it is a port of.
    pub controller: Option<Link>,
    /// The other end of a veth and its offloads, if it is in the same namespace.
    pub peer: Option<(String, Vec<Offload>)>,
    /// Devices above it: VLANs, a bridge.
    pub upper_devices: Vec<Link>,
    /// The driver.
    pub driver: Option<DriverInfo>,
    /// Offloads of the interface.
    pub features: Option<Vec<Offload>>,
    /// Descriptors.
    pub rings: Option<RingSizes>,
    /// Queues.
    pub channels: Option<Channels>,
    /// Interrupt moderation.
    pub coalescing: Option<Coalescing>,
    /// Pause frames.
    pub pause: Option<PauseFrames>,
    /// Receive-side scaling: the hash that spreads packets over queues.
    pub hash: Option<ReceiveHash>,
    /// Fields that are hashed (`RXH_*`), for flows whose fields are known.
    pub hash_fields: Vec<(HashFields, u64)>,
    /// Speed and duplex.
    pub mode: Option<LinkMode>,
    /// Clocks that can stamp packets.
    pub timestamping: Option<Timestamping>,
    /// Distance of the adapter's clock from the system's, or why it is unknown; `None` without such a clock.
    pub clock_offset: Option<Result<ClockOffset, String>>,
    /// XDP features of the driver.
    pub xdp: Option<XdpFeatures>,
    /// The adapter's and the kernel's counters of loss.
    pub nic_losses: Option<Vec<Counter>>,
    /// The driver's counters whose names indicate loss.
    pub driver_losses: Option<Vec<Counter>>,
    /// Packets received.
    pub received: Option<Counter>,
    /// Programs that capture here.
    pub packet_sockets: Vec<PacketSocket>,
    /// For each receive queue the processors to which software spreads its packets, as a mask.
    pub rps_masks: Option<Vec<String>>,
    /// The memory node of the adapter.
    pub node: Option<u32>,
    /// Interrupts of the interface.
    pub irqs: Option<Vec<Irq>>,
}

/// A counter that grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Name of the process.
    pub name: String,
    /// Since the interface was made, or the driver loaded.
    pub value: u64,
    /// By how much it grew while we watched.
    pub growth: Option<u64>,
}

/// A packet socket of another program, and its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketSocket {
    /// The interface's number; 0 for all.
    pub if_index: u32,
    /// The processes that hold it; empty if we may not see them.
    pub holders: Vec<SocketHolder>,
    /// The user id of its owner.
    pub uid: u32,
    /// Bytes of its ring.
    pub ring_len: Option<u64>,
    /// Fanout group and mode of the socket.
    pub fanout: Option<(u16, u8)>,
}

/// An interrupt of an adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Irq {
    /// Number of the queue.
    pub number: u32,
    /// Controller and device, as the driver names it.
    pub device: String,
    /// Number of occurrences.
    pub count: u64,
    /// The processors that take it.
    pub cpus: Vec<u32>,
}

impl Interface {
    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// Queues that receive; `None` if unknown.
    pub fn receive_queues(&self) -> Option<u32> {
        self.channels.map(|channels| channels.receive_queues()).filter(|queues| *queues > 0)
    }

    pub(super) fn watched(&mut self, before: &Interface) {
        grow(self.nic_losses.iter_mut().flatten(), before.nic_losses.as_deref());
        grow(self.driver_losses.iter_mut().flatten(), before.driver_losses.as_deref());
        grow(self.received.iter_mut(), before.received.as_ref().map(std::slice::from_ref));
    }
}

fn grow<'a>(counters: impl Iterator<Item = &'a mut Counter>, before: Option<&[Counter]>) {
    for counter in counters {
        let earlier = before.unwrap_or(&[]).iter().find(|earlier| earlier.name == counter.name);
        // A counter that starts again counts from zero.
        counter.growth =
            earlier.map(|earlier| counter.value.checked_sub(earlier.value).unwrap_or(counter.value));
    }
}

/// Reads interfaces of the calling thread's network namespace.
pub(super) struct Reader {
    pub(super) control: LinkControl,
    pub(super) netdev: Option<NetdevSocket>,
    pub(super) packet_sockets: Vec<PacketSocket>,
    pub(super) interrupts: Option<Vec<Interrupt>>,
    /// Whether /sys shows this namespace.
    pub(super) has_sysfs: bool,
}

impl Reader {
    pub(super) fn read(&mut self, link: &Link) -> Interface {
        let name = link.name.as_str();
        let control = &mut self.control;
        let driver = control.driver(name).ok();
        let bus = driver.as_ref().map(|driver| driver.bus.clone()).and_then(|bus| bus_folder(&bus));
        let flows = [HashFields::Tcp4, HashFields::Udp4, HashFields::Tcp6, HashFields::Udp6];
        let mut interface = Interface {
            features: control.features(name).ok(),
            rings: control.rings(name).ok(),
            channels: control.channels(name).ok(),
            coalescing: control.coalescing(name).ok(),
            pause: control.pause(name).ok(),
            hash: control.receive_hash(name).ok(),
            mode: control.mode(name).ok(),
            timestamping: control.timestamping(name).ok(),
            xdp: self.netdev.as_mut().and_then(|netdev| netdev.xdp_features(link.index).ok().flatten()),
            nic_losses: nic_losses(link),
            driver_losses: control.statistics(name).ok().map(losses),
            received: link.statistics.map(|counts| counter("rx_packets", counts.rx_packets)),
            packet_sockets: self
                .packet_sockets
                .iter()
                .filter(|s| s.if_index == 0 || s.if_index == link.index)
                .cloned()
                .collect(),
            rps_masks: if self.has_sysfs { rps_masks(link) } else { None },
            node: bus.as_deref().and_then(node),
            irqs: bus.as_deref().zip(self.interrupts.as_deref()).and_then(|(bus, all)| irqs(bus, all)),
            link: link.clone(),
            driver,
            ..Interface::default()
        };
        let clock = interface.timestamping.and_then(|stamps| u32::try_from(stamps.clock).ok());
        interface.clock_offset =
            clock.map(|number| ptp::read_offset(number).map_err(|error| error.to_string()));
        interface.hash_fields =
            flows.iter().filter_map(|&flow| Some((flow, control.hash_fields(name, flow).ok()?))).collect();
        interface
    }
}

fn counter(name: &str, value: u64) -> Counter {
    Counter { name: name.to_owned(), value, growth: None }
}

fn nic_losses(link: &Link) -> Option<Vec<Counter>> {
    let counts = link.statistics?;
    Some(vec![
        counter("rx_missed_errors", counts.rx_missed_errors),
        counter("rx_fifo_errors", counts.rx_fifo_errors),
        counter("rx_over_errors", counts.rx_over_errors),
        counter("rx_crc_errors", counts.rx_crc_errors),
        counter("rx_frame_errors", counts.rx_frame_errors),
        counter("rx_length_errors", counts.rx_length_errors),
        counter("rx_dropped", counts.rx_dropped),
    ])
}

fn losses(all: Vec<(String, u64)>) -> Vec<Counter> {
    let lost = all.into_iter().filter(|(name, _)| counts_receive_loss(name));
    lost.map(|(name, value)| Counter { name, value, growth: None }).collect()
}

/// The sockets of this namespace that capture, but for our own.
pub(super) fn packet_sockets() -> Vec<PacketSocket> {
    let sockets: Vec<_> = proc_packet::sockets()
        .into_iter()
        .filter(|socket| socket.protocol == ALL_PROTOCOLS && socket.is_running)
        .collect();
    let holders = proc_packet::holders(&sockets.iter().map(|socket| socket.inode).collect::<Vec<_>>());
    let details = packet_diag::sockets().unwrap_or_default();
    let sniffer = |socket: &proc_packet::PacketSocketEntry| {
        let detail = details.iter().find(|detail| detail.inode == socket.inode);
        PacketSocket {
            if_index: socket.if_index,
            holders: holders.get(&socket.inode).cloned().unwrap_or_default(),
            uid: socket.uid,
            ring_len: detail.and_then(|detail| detail.ring_len),
            fanout: detail.and_then(|detail| detail.fanout),
        }
    };
    let is_ours =
        |sniffer: &PacketSocket| sniffer.holders.iter().any(|holder| holder.pid == std::process::id());
    sockets.iter().map(sniffer).filter(|sniffer| !is_ours(sniffer)).collect()
}

/// The /sys directory of a device that ethtool names by its PCI address. It does not depend on network namespaces.
fn bus_folder(bus: &str) -> Option<String> {
    let is_pci = !bus.is_empty() && bus.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
    is_pci.then(|| format!("/sys/bus/pci/devices/{bus}")).filter(|folder| fs::metadata(folder).is_ok())
}

/// A negative number is a machine without nodes.
fn node(folder: &str) -> Option<u32> {
    fs::read_to_string(format!("{folder}/numa_node")).ok()?.trim().parse().ok()
}

fn irqs(folder: &str, interrupts: &[Interrupt]) -> Option<Vec<Irq>> {
    let entries = fs::read_dir(format!("{folder}/msi_irqs")).ok()?.flatten().take(IRQS_MAX);
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    let irq = |&number: &u32| {
        let line = interrupts.iter().find(|line| line.number == number)?;
        // The effective affinity may be narrower than the one set.
        let list = |name: &str| fs::read_to_string(format!("/proc/irq/{number}/{name}")).ok();
        let cpus = list("effective_affinity_list").filter(|text| !text.trim().is_empty());
        let cpus = parse_cpu_list(&cpus.or_else(|| list("smp_affinity_list"))?)?;
        let count = line.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        Some(Irq { number, device: line.device.clone(), count, cpus })
    };
    Some(numbers.iter().filter_map(irq).collect())
}

/// /sys may show another namespace, as after nsenter(1): then the number under this name is another, or there is none.
fn rps_masks(link: &Link) -> Option<Vec<String>> {
    let name = &link.name;
    let index = fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok()?;
    if index.trim().parse() != Ok(link.index) {
        return None;
    }
    let mask = |queue| fs::read_to_string(format!("/sys/class/net/{name}/queues/rx-{queue}/rps_cpus")).ok();
    let masks: Vec<String> = (0..QUEUES_MAX).map_while(mask).map(|text| text.trim().to_owned()).collect();
    (!masks.is_empty()).then_some(masks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_a_place_on_a_bus_only() {
        for bus in ["", "../../..", "usb-0000:00:14.0-1", "0000:00:03.0/.."] {
            assert_eq!(bus_folder(bus), None, "{bus}");
        }
    }

    #[test]
    fn counters_grow_and_start_again() {
        let with = |value| Interface {
            driver_losses: Some(losses(vec![("rx_missed".into(), value), ("rx_packets".into(), 1)])),
            ..Interface::default()
        };
        let mut now = with(7);
        now.watched(&with(5));
        assert_eq!(now.driver_losses.as_ref().unwrap()[0].growth, Some(2));
        now.watched(&with(9));
        assert_eq!(now.driver_losses.as_ref().unwrap()[0].growth, Some(7));
        now.watched(&Interface::default());
        assert_eq!(now.driver_losses.unwrap()[0].growth, None, "unknown, not zero");
    }
}
