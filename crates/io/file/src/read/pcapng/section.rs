//! Sections and interface statistics by the options of their blocks.

use tapline_packet::{InterfaceId, Timestamp};

use super::option::{self, Options};
use super::room::Room;
use crate::byte_order::ByteOrder;
use crate::section::{
    DELIVERED, DROPPED, END_TIME, FILTER_ACCEPTED, InterfaceStatistics, OS_DROPPED, RECEIVED, START_TIME,
    Section,
};

impl Section {
    /// The section by its options, as far as there is room.
    pub(crate) fn parse(order: ByteOrder, options: &[u8], room: &mut Room) -> Section {
        let mut section = Section::default();
        for (code, value) in Options::new(order, options) {
            if room.take(value.len()).is_none() {
                break;
            }
            let text = option::text(value);
            match code {
                option::COMMENT => section.comments.push(text),
                option::SECTION_HARDWARE => section.hardware = text,
                option::SECTION_OS => section.os = text,
                option::SECTION_APPLICATION => section.application = text,
                _ => section.options.push((code, option::native_value(order, code, value))),
            }
        }
        section
    }
}

impl InterfaceStatistics {
    /// The counters by their options. `clock` makes a time of its high and low 32 bits.
    pub(crate) fn parse(
        interface: InterfaceId,
        taken: Timestamp,
        options: Options<'_>,
        clock: impl Fn(u32, u32) -> Timestamp,
    ) -> InterfaceStatistics {
        let order = options.order();
        let mut statistics = InterfaceStatistics { interface, taken, ..InterfaceStatistics::default() };
        for (code, value) in options.filter(|(_, value)| value.len() == 8) {
            let count = Some(order.u64(value, 0));
            let time = Some(clock(order.u32(value, 0), order.u32(value, 4)));
            match code {
                START_TIME => statistics.start = time,
                END_TIME => statistics.end = time,
                RECEIVED => statistics.received = count,
                DROPPED => statistics.dropped = count,
                FILTER_ACCEPTED => statistics.filter_accepted = count,
                OS_DROPPED => statistics.os_dropped = count,
                DELIVERED => statistics.delivered = count,
                _ => {}
            }
        }
        statistics
    }
}
