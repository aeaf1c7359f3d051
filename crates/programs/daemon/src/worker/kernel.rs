//! The kernel's filter: the union of the filters of readers and the history. Other packets are not even lent.

use tapline_ir::CompiledFilter;
use tapline_source::Source;

use crate::union::{self, FilterNeed};

/// The filter that the source has attached for all readers together.
#[derive(Debug)]
pub(super) struct KernelFilter {
    attached: Attached,
    /// The source was asked for another filter than the capture's.
    has_replaced: bool,
}

/// The orders to the source.
#[derive(Debug, PartialEq, Eq)]
enum Attached {
    /// Nothing: it lends all that the capture filter accepts.
    Nothing,
    /// To lend what this program accepts.
    Union(CompiledFilter),
    /// The source takes no such filter, or is to count every packet.
    Never,
}

impl KernelFilter {
    /// Nothing is attached yet. With `counts_all` nothing ever is: unwanted packets are lent to be counted.
    pub(super) fn new(counts_all: bool) -> KernelFilter {
        let attached = if counts_all { Attached::Never } else { Attached::Nothing };
        KernelFilter { attached, has_replaced: false }
    }

    /// Requires the source to lend the packets that any of these wants: all that the capture filter accepts if the
    /// union is not a single program.
    ///
    /// # Errors The source's error: packets that are wanted may not come.
    pub(super) fn require<'a>(
        &mut self,
        wanted: impl Iterator<Item = &'a FilterNeed>,
        source: &dyn Source,
    ) -> Result<(), String> {
        if self.attached == Attached::Never {
            return Ok(());
        }
        let union = union::of(wanted).map(CompiledFilter::from);
        if union.as_ref() == self.program() {
            return Ok(());
        }
        let answer = source.restrict(union.as_ref());
        self.has_replaced |= !matches!(answer, Ok(false));
        let can = answer.map_err(|error| error.to_string())?;
        self.attached = match union {
            _ if !can => Attached::Never,
            Some(program) => Attached::Union(program),
            None => Attached::Nothing,
        };
        Ok(())
    }

    /// Whether the filter of the capture was ever replaced: where the kernel refuses another one, all packets come.
    pub(super) fn has_replaced(&self) -> bool {
        self.has_replaced
    }

    /// Instructions of the attached program; `None` if everything is lent.
    pub(super) fn instructions(&self) -> Option<usize> {
        self.program().map(|program| program.insns().len())
    }

    fn program(&self) -> Option<&CompiledFilter> {
        match &self.attached {
            Attached::Union(program) => Some(program),
            Attached::Nothing | Attached::Never => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tapline_filter::Options;
    use tapline_packet::{Batch, Interface};
    use tapline_source::{Advance, Error, InterfaceAccount};

    use super::*;

    /// Notes the lengths of the programs that it got; 0 for none.
    struct Noting {
        told: Mutex<Vec<usize>>,
        can: bool,
    }

    impl Noting {
        fn new(can: bool) -> Noting {
            Noting { told: Mutex::default(), can }
        }

        fn times(&self) -> usize {
            self.told.lock().expect("no panic").len()
        }
    }

    impl Source for Noting {
        fn interfaces(&self) -> &[Interface] {
            &[]
        }

        fn advance(&mut self, _: Duration) -> Result<Advance, Error> {
            Ok(Advance::End)
        }

        fn batch(&self) -> Batch<'_> {
            Batch::empty()
        }

        fn restrict(&self, program: Option<&CompiledFilter>) -> Result<bool, Error> {
            self.told.lock().expect("no panic").push(program.map_or(0, |program| program.insns().len()));
            Ok(self.can)
        }

        fn stop(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn account(&mut self) -> Vec<InterfaceAccount> {
            Vec::new()
        }
    }

    fn asked(text: &str) -> FilterNeed {
        FilterNeed::text("", text, &Options::default())
    }

    #[test]
    fn the_source_hears_of_changes_only() {
        let (mut kernel, source) = (KernelFilter::new(false), Noting::new(true));
        let (tcp, udp) = (asked("tcp"), asked("udp"));
        kernel.require([&tcp].into_iter(), &source).unwrap();
        let of_one = kernel.instructions().expect("a program");
        kernel.require([&tcp].into_iter(), &source).unwrap();
        assert_eq!(source.times(), 1);
        kernel.require([&tcp, &udp].into_iter(), &source).unwrap();
        assert!(source.times() == 2 && kernel.instructions() > Some(of_one));
        // A reader of everything takes the filter away.
        kernel.require([&tcp, &asked("")].into_iter(), &source).unwrap();
        assert_eq!((source.times(), kernel.instructions()), (3, None));
    }

    #[test]
    fn a_source_that_cannot_is_asked_once() {
        let (mut kernel, source) = (KernelFilter::new(false), Noting::new(false));
        for text in ["tcp", "udp", "icmp"] {
            kernel.require([&asked(text)].into_iter(), &source).unwrap();
        }
        assert_eq!((source.times(), kernel.instructions()), (1, None));
        let mut counting = KernelFilter::new(true);
        let source = Noting::new(true);
        counting.require([&asked("tcp")].into_iter(), &source).unwrap();
        assert_eq!(source.times(), 0, "all packets are to be counted");
    }
}
