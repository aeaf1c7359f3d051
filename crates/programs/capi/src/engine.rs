//! A filter that runs here: interpreted at first, as native code once that pays.
//!
//! ```text
//! first NATIVE_AFTER packets   CompiledFilter::run
//! then                         Native; the interpreter where native code is refused
//! ```

use tapline_bpf::PacketFilter;
use tapline_ir::CompiledFilter;
use tapline_jit::{NATIVE_AFTER, Native};
use tapline_packet::Packet;

/// A filter, and the engine that runs it.
pub(crate) struct Engine {
    filter: CompiledFilter,
    seen: u64,
    /// Native code, once it was tried; the inner `None`: it was refused.
    native: Option<Option<Box<Native>>>,
}

impl Engine {
    pub(crate) fn new(filter: CompiledFilter) -> Engine {
        Engine { filter, seen: 0, native: None }
    }

    /// Whether the filter accepts the packet.
    #[inline]
    pub(crate) fn accepts(&mut self, packet: Packet<'_>) -> bool {
        self.seen += 1;
        if self.seen > NATIVE_AFTER
            && let Some(native) =
                self.native.get_or_insert_with(|| Native::of(&self.filter).ok().map(Box::new))
        {
            return native.accepts(packet);
        }
        self.filter.run(packet) != 0
    }
}

#[cfg(test)]
mod tests {
    use tapline_filter::{Options, compile};
    use tapline_packet::Meta;

    use super::*;

    #[test]
    fn both_forms_decide_alike() {
        let mut engine = Engine::new(compile("ip proto 17", &Options::default()).expect("compiles"));
        let mut frame = [0; 60];
        frame[12] = 8;
        let meta = Meta { wire_len: 60, ..Meta::default() };
        for round in 0..NATIVE_AFTER + 1000 {
            frame[23] = if round % 3 == 0 { 17 } else { 6 };
            let accepted = engine.accepts(Packet { data: &frame, meta: &meta });
            assert_eq!(accepted, round % 3 == 0, "{round}");
        }
        #[cfg(all(feature = "jit", target_arch = "x86_64"))]
        assert!(matches!(engine.native, Some(Some(_))));
    }
}
