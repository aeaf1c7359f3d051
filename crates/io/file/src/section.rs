//! Blocks of pcapng files other than packets: their writer, and counters.

use std::fs::File;
use std::io::{self, Read};

use tapline_packet::{InterfaceId, Timestamp};

/// Bytes of a file of the kernel that are read: /proc/cpuinfo has up to 3 KiB for a processor.
const FACTS_LEN_MAX: u64 = 8 << 10;

/// The writer of a section of a pcapng file, and its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The machine.
    pub hardware: String,
    /// Operating system of the capturing machine.
    pub os: String,
    /// The program.
    pub application: String,
    /// Comments of people or programs.
    pub comments: Vec<String>,
    /// All other options: code and value, numbers in this machine's byte order.
    pub options: Vec<(u16, Vec<u8>)>,
}

impl Section {
    /// This machine, for a file that `application` writes: the processor, the kernel's name and release.
    pub fn of_this_machine(application: &str) -> Section {
        // Of the list of processors, which the kernel of a large machine needs milliseconds for, the first ones suffice.
        let read = |path: &str| {
            let text = File::open(path).and_then(|file| io::read_to_string(file.take(FACTS_LEN_MAX)));
            text.unwrap_or_default()
        };
        let processor = read("/proc/cpuinfo");
        let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kernel = [read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease")];
        Section {
            hardware: model.map_or_else(String::new, |(_, name)| name.trim().to_owned()),
            os: kernel.each_ref().map(|part| part.trim()).join(" ").trim().to_owned(),
            application: application.to_owned(),
            comments: Vec::new(),
            options: Vec::new(),
        }
    }

    /// This section as the writer of a copy of `original`: machine and system stay those of the capture, comments and
    /// options come along, and a comment names the program that wrote the original.
    pub(crate) fn of_copy(&self, original: &Section) -> Section {
        let own = |text: &str, own: &str| if text.is_empty() { own.to_owned() } else { text.to_owned() };
        let mut copy = Section {
            hardware: own(&original.hardware, &self.hardware),
            os: own(&original.os, &self.os),
            application: self.application.clone(),
            comments: original.comments.clone(),
            options: original.options.clone(),
        };
        if !original.application.is_empty() && original.application != self.application {
            copy.add_comment(format!("copied from a section that {} wrote", original.application));
        }
        self.comments.iter().for_each(|comment| copy.add_comment(comment.clone()));
        copy
    }

    /// Adds the comments and options of another section to that of a copy.
    pub(crate) fn add(&mut self, original: &Section) {
        original.comments.iter().for_each(|comment| self.add_comment(comment.clone()));
        for option in &original.options {
            if !self.options.contains(option) {
                self.options.push(option.clone());
            }
        }
    }

    fn add_comment(&mut self, comment: String) {
        if !self.comments.contains(&comment) {
            self.comments.push(comment);
        }
    }

    /// Bytes of its text and options.
    pub(crate) fn len(&self) -> usize {
        let texts = [&self.hardware, &self.os, &self.application].into_iter().chain(&self.comments);
        let options = self.options.iter().map(|(_, value)| value.len() + 8);
        texts.map(|text| text.len() + 8).chain(options).sum()
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
