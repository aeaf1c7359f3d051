//! Events while an interface is opened: limits of the driver, the kernel and the settings.

use std::fmt::Display;

use tapline_source::Event;
use tapline_sys::{Link, SyscallError};

/// The warnings about one interface so far.
pub(super) struct LinkWarnings<'a> {
    interface: &'a str,
    events: Vec<Event>,
}

impl<'a> LinkWarnings<'a> {
    /// No warning yet.
    pub(super) fn about(interface: &'a str) -> LinkWarnings<'a> {
        LinkWarnings { interface, events: Vec::new() }
    }

    pub(super) fn into_events(self) -> Vec<Event> {
        self.events
    }

    fn warn(&mut self, text: String) {
        self.events.push(Event { interface: self.interface.to_owned(), text, is_warning: true });
    }

    /// The filter does not run in the XDP program.
    pub(super) fn filter_refused(&mut self, refusal: &impl Display) {
        self.warn(format!(
            "the filter cannot run in front ({refusal}): all packets are taken from the host and filtered here"
        ));
    }

    /// Only a weaker part of the filter runs in the XDP program.
    pub(super) fn filter_weakened(&mut self, refusal: &impl Display) {
        self.warn(format!(
            "only a part of the filter runs in front ({refusal}): what that accepts is taken from the host, and the whole filter runs here"
        ));
    }

    /// The driver runs no XDP programs.
    pub(super) fn not_native(&mut self, error: &SyscallError) {
        self.warn(format!(
            "its driver runs no XDP program ({error}): it runs in the stack, where AF_XDP gains nothing over AF_PACKET"
        ));
    }

    /// Packets come in one buffer of `len_max` bytes only.
    pub(super) fn single_buffer(&mut self, len_max: u32) {
        self.warn(format!(
            "packets of more than {len_max} bytes are dropped: this kernel or driver gives AF_XDP none that long"
        ));
    }

    /// Promiscuous mode was refused.
    pub(super) fn not_promiscuous(&mut self, error: &SyscallError) {
        self.warn(format!("refused promiscuous mode ({error}): packets for other hosts are not seen"));
    }

    /// VLAN tags that the adapter takes out of packets are lost to the capture or to its filter.
    pub(super) fn stripped_tags(&mut self, link: &Link, is_noted: bool, is_filtered: bool) {
        let lack = match (is_noted, is_filtered) {
            // A veth takes no tag out of packets that are sent through it with one.
            _ if link.kind == "veth" => return,
            (true, false) => return,
            (true, true) => "the filter in front does not see them",
            (false, _) => "AF_XDP does not get them",
        };
        self.warn(format!(
            "the adapter takes VLAN tags out, and {lack}: ethtool -K {} rxvlan off",
            link.name
        ));
    }

    /// The link is down.
    pub(super) fn down(&mut self) {
        self.warn("is down: nothing is captured until it is up".to_owned());
    }
}
