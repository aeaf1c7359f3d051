//! A filter that several threads share: interpreted at first, native once that pays.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tapline_bpf::PacketFilter;
use tapline_ir::CompiledFilter;
use tapline_packet::{Batch, Packet, Selection};

use crate::{NATIVE_AFTER, Native};

/// A filter that is interpreted for its first [`NATIVE_AFTER`] packets and runs as native code after them, where there
/// is native code. All threads that share it count its packets together.
pub struct TieredFilter {
    program: CompiledFilter,
    seen: AtomicU64,
    /// Set once native code was asked for; `None` in it where there is none.
    native: OnceLock<Option<Native>>,
}

impl TieredFilter {
    /// A filter that has seen no packet.
    pub fn new(program: CompiledFilter) -> TieredFilter {
        TieredFilter { program, seen: AtomicU64::new(0), native: OnceLock::new() }
    }

    /// Counts packets; the engine for them. Threads that come while another one compiles wait for it.
    fn engine(&self, packets: u64) -> &dyn PacketFilter {
        let native = match self.seen.fetch_add(packets, Ordering::Relaxed) < NATIVE_AFTER {
            true => self.native.get(),
            false => Some(self.native.get_or_init(|| Native::of(&self.program).ok())),
        };
        match native.and_then(Option::as_ref) {
            Some(native) => native,
            None => &self.program,
        }
    }
}

impl PacketFilter for TieredFilter {
    fn accepts(&self, packet: Packet<'_>) -> bool {
        self.engine(1).accepts(packet)
    }

    fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
        self.engine(batch.len() as u64).select(batch, selection);
    }
}

#[cfg(test)]
mod tests {
    use tapline_bpf::{Insn, Program};
    use tapline_packet::Record;

    use super::*;

    #[test]
    fn a_tiered_filter_changes_engines_and_no_verdict() {
        let returning = |k| Insn { code: 0x06, jt: 0, jf: 0, k };
        // ldb [0]; jeq #7: accept packets whose first byte is 7.
        let load = Insn { code: 0x30, jt: 0, jf: 0, k: 0 };
        let test = Insn { code: 0x15, jt: 0, jf: 1, k: 7 };
        let program = Program::new(vec![load, test, returning(1), returning(0)]).expect("a valid program");
        let filter = TieredFilter::new(program.into());
        let records: Vec<Record> =
            (0..256).map(|offset| Record { offset, cap_len: 1, ..Record::default() }).collect();
        let bytes: Vec<u8> = (0..=255).collect();
        let batch = Batch::new(&bytes, &records);
        for round in 0..NATIVE_AFTER / 256 + 2 {
            let mut selection = Selection::none();
            selection.select_all(batch.len());
            filter.select(&batch, &mut selection);
            assert_eq!(selection.iter().collect::<Vec<_>>(), [7], "round {round}");
            assert_eq!(filter.native.get().is_some(), round >= NATIVE_AFTER / 256, "round {round}");
        }
        assert!(filter.accepts(batch.packet(7)) && !filter.accepts(batch.packet(8)));
        #[cfg(all(feature = "cranelift", target_arch = "x86_64"))]
        assert!(matches!(filter.native.get(), Some(Some(_))));
    }
}
