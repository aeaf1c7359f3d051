//! Filters of packets, asked about flows: each flow is a frame with its addresses, protocol, ports, TCP flags and VLAN.

use std::sync::Arc;

use tapline_flow::Flow;
use tapline_ir::CompiledFilter;
use tapline_packet::{BATCH_MAX, Interface, LinkType, Selection};
use tapline_watch::FlowFrames;

use crate::filter::{Filters, native};
use crate::settings::InterfaceOptions;

/// Instructions of classic BPF that load the length of the packet: `ld len`, `ldx len`.
const LOAD_LEN: u16 = 0x80;
const LOAD_X_LEN: u16 = 0x81;

pub(crate) struct FlowFilter {
    frames: FlowFrames,
    filters: Filters,
}

impl FlowFilter {
    /// Compiles a filter; `None` for the text without a word, which accepts every flow.
    ///
    /// # Errors
    /// The fault in the text.
    pub(crate) fn new(text: &str, options: &InterfaceOptions) -> Result<Option<FlowFilter>, String> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let options = options(&Interface::new("flows", LinkType::ETHERNET));
        let program: CompiledFilter =
            tapline_filter::compile(text, &options).map_err(|error| error.render(text))?;
        if program.insns().iter().any(|insn| [LOAD_LEN, LOAD_X_LEN].contains(&insn.code)) {
            return Err(format!(
                "`{}` asks about the length of a packet, which a flow does not have: ask about addresses, protocol, ports, TCP flags or VLAN",
                text.trim()
            ));
        }
        let mut filters = Filters::new(Arc::new(native));
        filters.extend([Some(program)]);
        Ok(Some(FlowFilter { frames: FlowFrames::default(), filters }))
    }

    /// Takes those flows out, from `first` on, that the filter refuses.
    pub(crate) fn retain(&mut self, flows: &mut Vec<Flow>, first: usize, mut refused: impl FnMut(&Flow)) {
        let mut is_accepted = Vec::with_capacity(flows.len().saturating_sub(first));
        for part in flows.get(first..).unwrap_or_default().chunks(BATCH_MAX) {
            let batch = self.frames.make(part);
            let mut selection = Selection::none();
            selection.select_all(part.len());
            self.filters.select(&batch, &mut selection);
            let from = is_accepted.len();
            is_accepted.resize(from + part.len(), false);
            selection.iter().for_each(|index| is_accepted[from + index] = true);
        }
        let mut at = 0;
        flows.retain(|flow| {
            let is_kept = at < first || is_accepted[at - first];
            at += 1;
            if !is_kept {
                refused(flow);
            }
            is_kept
        });
    }
}
