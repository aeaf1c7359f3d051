//! The code before the filter: finds headers of variable length and puts their places in cells.
//!
//! ```text
//! radiotap  length: bytes 3 and 2, little-endian          PPI  the same, and bytes 4 to 7 must say 802.11
//! AVS       length: bytes 4 to 7                          Prism  144, unless AVS's magic number is there
//! 802.11    24 bytes; data frames with QoS 2 more; with the flag for it in radiotap, rounded up to 4
//! PFLOG     length: byte 0, rounded up to 4
//! ```
//!
//! Only fields that the filter reads are computed. Sources: IEEE 802.11-2020, 9.2.4; <https://www.radiotap.org/>;
//! libpcap's `insert_compute_vloffsets`.

use tapline_packet::LinkType;

use super::Scope;
use super::layers::{any_set, equal, masked};
use crate::predicate::{Base, FieldOffset, NumberExpr, Predicate, ScratchCell};
use tapline_bpf::cfg::{Alu, Width};

impl Scope<'_> {
    /// The predicates that go before all others, and whether libpcap's optimiser would look at the whole.
    pub(super) fn prefix(&self) -> (Vec<Predicate>, bool) {
        let mut before = Vec::new();
        let mut provable = self.provable;
        let outermost = self.options.link_type;
        if outermost == LinkType::PPI {
            before.push(equal(at(4), Width::Word, PPI_802_11, "PPI link type"));
        }
        let (radio, payload) = self.outermost_cells();
        if let Some(cell) = radio {
            before.push(radio_len(outermost, cell));
            provable &= outermost != LinkType::IEEE802_11_PRISM;
        }
        if let Some(cell) = payload {
            before.extend(payload_start(outermost, radio, cell));
            provable &= outermost == LinkType::PFLOG;
        }
        (before, provable)
    }

    /// The cells of the outermost link header and its payload, as far as the filter reads them.
    fn outermost_cells(&self) -> (Option<ScratchCell>, Option<ScratchCell>) {
        let cells = match self.options.link_type {
            LinkType::IEEE802_11 | LinkType::PFLOG => (None, Some(ScratchCell(0))),
            LinkType::IEEE802_11_PRISM
            | LinkType::IEEE802_11_AVS
            | LinkType::IEEE802_11_RADIOTAP
            | LinkType::PPI => (Some(ScratchCell(0)), Some(ScratchCell(1))),
            _ => (None, None),
        };
        let used = |cell: ScratchCell| self.cell_used[usize::from(cell.0)];
        let payload = cells.1.filter(|cell| used(*cell));
        (cells.0.filter(|cell| used(*cell) || payload.is_some()), payload)
    }
}

/// DLT_IEEE802_11, little-endian, as PPI has it.
const PPI_802_11: u32 = 105_u32.swap_bytes();

fn at(offset: u32) -> FieldOffset {
    FieldOffset { base: Base::Packet, offset }
}

fn assign(cell: ScratchCell, value: NumberExpr) -> Predicate {
    Predicate::Assign(cell, value)
}

fn load(offset: u32, width: Width) -> NumberExpr {
    NumberExpr::load(at(offset), width)
}

/// The length of the radio header.
fn radio_len(link: LinkType, cell: ScratchCell) -> Predicate {
    match link {
        LinkType::IEEE802_11_PRISM => {
            let is_avs = masked(at(0), Width::Word, 0x8021_1000, 0xffff_f000, "AVS magic number");
            let avs = is_avs.and(assign(cell, load(4, Width::Word)));
            avs.or(assign(cell, NumberExpr::Constant(PRISM_LEN)))
        }
        LinkType::IEEE802_11_AVS => assign(cell, load(4, Width::Word)),
        _ => {
            let high = NumberExpr::binary(Alu::Shl, load(3, Width::Byte), NumberExpr::Constant(8));
            assign(cell, NumberExpr::binary(Alu::Or, high, load(2, Width::Byte)))
        }
    }
}

/// No known program writes a Prism header of another length.
const PRISM_LEN: u32 = 144;

/// The start of the link layer's payload.
fn payload_start(link: LinkType, radio: Option<ScratchCell>, cell: ScratchCell) -> Vec<Predicate> {
    if link == LinkType::PFLOG {
        return vec![assign(cell, rounded_up(load(0, Width::Byte)))];
    }
    let frame_control = match radio {
        None => at(0),
        Some(radio) => FieldOffset { base: Base::Cell(radio), offset: 0 },
    };
    let start = radio.map_or(NumberExpr::Constant(0), NumberExpr::Cell).plus(24);
    let has = |bits| any_set(frame_control, Width::Byte, bits, "802.11 frame control");
    let is_data = has(0x08).and(has(0x04).not());
    let qos = has(0x80).and(assign(cell, NumberExpr::Cell(cell).plus(2))).in_any_case();
    let mut more = is_data.and(qos);
    if link == LinkType::IEEE802_11_RADIOTAP {
        more = more.and(datapad()).and(assign(cell, rounded_up(NumberExpr::Cell(cell))));
    }
    vec![assign(cell, start), more.in_any_case()]
}

/// Whether radiotap says that the payload is padded to 4 bytes. Its flags are looked for where they are if there is
/// one word of presence bits: after the time stamp, if that is there.
fn datapad() -> Predicate {
    const FLAGS_PRESENT: u32 = 0x0000_0002_u32.swap_bytes();
    const MORE_WORDS: u32 = 0x8000_0000_u32.swap_bytes();
    const TSFT_PRESENT: u32 = 0x0000_0001_u32.swap_bytes();
    const DATAPAD: u32 = 0x20;
    let present = |bit| any_set(at(4), Width::Word, bit, "radiotap presence bits");
    let padded = |offset| any_set(at(offset), Width::Byte, DATAPAD, "radiotap flags");
    let after_time = present(TSFT_PRESENT).and(padded(16));
    let first = present(TSFT_PRESENT).not().and(padded(8));
    present(FLAGS_PRESENT).and(present(MORE_WORDS).not()).and(after_time.or(first))
}

fn rounded_up(value: NumberExpr) -> NumberExpr {
    NumberExpr::binary(Alu::And, value.plus(3), NumberExpr::Constant(!3))
}
