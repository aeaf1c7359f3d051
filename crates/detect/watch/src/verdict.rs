//! Verdicts of scripts about packets.

/// A verdict about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet passes.
    Pass,
    /// The packet passes, with this label.
    Label(u8),
    /// The packet is dropped.
    Drop,
    /// The script failed.
    Failed,
}

/// Packets by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    /// Packets that passed without a label.
    pub passed: u64,
    /// Packets that passed with a label.
    pub labelled: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets for which the script failed.
    pub failed: u64,
    /// Printed lines and reports of faults that found no room, and events, which verdicts do not make.
    pub not_told: u64,
}

impl VerdictCounts {
    pub(crate) fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Pass => &mut self.passed,
            Verdict::Label(_) => &mut self.labelled,
            Verdict::Drop => &mut self.dropped,
            Verdict::Failed => &mut self.failed,
        } += 1;
    }

    /// Adds the counts of another worker.
    pub fn merge(&mut self, other: &VerdictCounts) {
        self.passed += other.passed;
        self.labelled += other.labelled;
        self.dropped += other.dropped;
        self.failed += other.failed;
        self.not_told += other.not_told;
    }
}
