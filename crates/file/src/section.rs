//! Blocks of pcapng files besides packets: their writer, and counters.

use tapline_packet::{InterfaceId, Timestamp};

/// The writer of a section of a pcapng file, and its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The machine.
    pub hardware: String,
    /// Its operating system.
    pub os: String,
    /// The program.
    pub application: String,
    /// Comments of people or programs.
    pub comments: Vec<String>,
}

impl Section {
    /// This machine, for a file that `application` writes: the processor, the kernel's name and release.
    pub fn of_this_machine(application: &str) -> Section {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo");
        let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kernel = [read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease")];
        Section {
            hardware: model.map_or_else(String::new, |(_, name)| name.trim().to_owned()),
            os: kernel.each_ref().map(|part| part.trim()).join(" ").trim().to_owned(),
            application: application.to_owned(),
            comments: Vec::new(),
        }
    }
}

/// The counters of an interface in an interface statistics block. `None` is "not known", never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStatistics {
    /// The interface.
    pub interface: InterfaceId,
    /// The time of the counting.
    pub taken: Timestamp,
    /// The start of the capture.
    pub start: Option<Timestamp>,
    /// The end of the capture.
    pub end: Option<Timestamp>,
    /// Packets that the interface received.
    pub received: Option<u64>,
    /// Packets that the interface dropped for lack of resources.
    pub dropped: Option<u64>,
    /// Packets that the filter let through.
    pub filter_accepted: Option<u64>,
    /// Packets that the operating system dropped.
    pub os_dropped: Option<u64>,
    /// Packets that reached the program.
    pub delivered: Option<u64>,
}

pub(crate) const START_TIME: u16 = 2;
pub(crate) const END_TIME: u16 = 3;
pub(crate) const RECEIVED: u16 = 4;
pub(crate) const DROPPED: u16 = 5;
pub(crate) const FILTER_ACCEPTED: u16 = 6;
pub(crate) const OS_DROPPED: u16 = 7;
pub(crate) const DELIVERED: u16 = 8;
