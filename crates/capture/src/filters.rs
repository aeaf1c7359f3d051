//! The filters of a run: one for each interface, interpreted at first, and by something faster once that pays.
//!
//! ```text
//! first packets:                 Program (interpreter), at hand as soon as the text is compiled
//! after FASTER_AFTER packets:    what `faster` makes of it, such as native code; the interpreter where it makes nothing
//! ```

use std::sync::Arc;

use tapline_filter::Select;
use tapline_filter::bpf::Program;
use tapline_packet::{Batch, Selection};

use crate::FilterAccount;

/// Makes something that decides like the program, and faster, or says why it cannot.
pub type Faster<'a> = dyn Fn(&Program) -> Result<Arc<dyn Select>, String> + Sync + 'a;

/// So many packets are interpreted first. Native code takes about half a millisecond to make and saves about 10 ns a packet on a filter of
/// some tests: short inputs never pay for it, and long ones pay at most twice.
pub(crate) const FASTER_AFTER: u64 = 1 << 16;

/// The filters of a run.
pub(crate) struct Filters<'a> {
    faster: Option<&'a Faster<'a>>,
    /// By interface; `None` accepts everything.
    filters: Vec<Option<Filter>>,
    /// All interfaces have the same.
    is_uniform: bool,
    /// Filters before this one have been made faster where they could.
    tried: usize,
    seen: u64,
    /// Packets seen when the first filter was made faster.
    faster_after: Option<u64>,
}

struct Filter {
    program: Program,
    /// `None` as long as it was not tried.
    faster: Option<Result<Arc<dyn Select>, String>>,
}

impl Filter {
    fn engine(&self) -> &dyn Select {
        match &self.faster {
            Some(Ok(faster)) => faster.as_ref(),
            _ => &self.program,
        }
    }
}

fn program(filter: &Option<Filter>) -> Option<&Program> {
    filter.as_ref().map(|filter| &filter.program)
}

impl<'a> Filters<'a> {
    pub(crate) fn new() -> Filters<'a> {
        Filters { faster: None, filters: Vec::new(), is_uniform: true, tried: 0, seen: 0, faster_after: None }
    }

    /// Programs are handed to `faster` once they have seen enough packets.
    pub(crate) fn made_faster(self, faster: &'a Faster<'a>) -> Filters<'a> {
        Filters { faster: Some(faster), ..self }
    }

    /// What runs them now.
    pub(crate) fn account(&self) -> FilterAccount {
        let mut account = FilterAccount { faster_after: self.faster_after, ..FilterAccount::default() };
        for filter in self.filters.iter().flatten() {
            match &filter.faster {
                Some(Ok(_)) => account.faster += 1,
                Some(Err(reason)) => account.reason = Some(reason.clone()),
                None => {}
            }
            account.interpreted += u64::from(!matches!(filter.faster, Some(Ok(_))));
        }
        account
    }

    /// How many interfaces have theirs.
    pub(crate) fn len(&self) -> usize {
        self.filters.len()
    }

    /// Adds those of further interfaces.
    pub(crate) fn extend(&mut self, programs: impl IntoIterator<Item = Option<Program>>) {
        let filter = |program: Option<Program>| program.map(|program| Filter { program, faster: None });
        self.filters.extend(programs.into_iter().map(filter));
        self.is_uniform = self.filters.windows(2).all(|pair| program(&pair[0]) == program(&pair[1]));
    }

    /// Leaves in the selection what the filters accept.
    pub(crate) fn select(&mut self, batch: &Batch<'_>, selection: &mut Selection) {
        let seen_before = self.seen;
        self.seen += batch.len() as u64;
        if self.seen > FASTER_AFTER && self.tried < self.filters.len() {
            self.make_faster(seen_before);
        }
        if self.is_uniform {
            if let Some(Some(filter)) = self.filters.first() {
                filter.engine().select(batch, selection);
            }
            return;
        }
        selection.retain(|index| {
            let packet = batch.packet(index);
            match self.filters.get(packet.meta.interface.0 as usize) {
                Some(Some(filter)) => filter.engine().accepts(packet),
                _ => true,
            }
        });
    }

    /// Each program once, however many interfaces have it.
    fn make_faster(&mut self, seen_before: u64) {
        let Some(faster) = self.faster else { return };
        for at in std::mem::replace(&mut self.tried, self.filters.len())..self.filters.len() {
            let (before, rest) = self.filters.split_at_mut(at);
            let Some(Some(filter)) = rest.first_mut() else { continue };
            let same = before.iter().flatten().find(|other| other.program == filter.program);
            filter.faster = match same {
                Some(other) => other.faster.clone(),
                None => Some(faster(&filter.program)),
            };
            if let Some(Ok(_)) = filter.faster {
                self.faster_after.get_or_insert(seen_before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tapline_filter::bpf::Insn;
    use tapline_packet::{InterfaceId, Meta, Packet, Record};

    fn returning(k: u32) -> Program {
        Program::new(vec![Insn { code: 0x06, jt: 0, jf: 0, k }]).expect("a valid program")
    }

    /// Accepts nothing, so that it can be told from what it stands for.
    struct Nothing;

    impl Select for Nothing {
        fn accepts(&self, _: Packet<'_>) -> bool {
            false
        }

        fn select(&self, _: &Batch<'_>, selection: &mut Selection) {
            selection.truncate(0);
        }
    }

    /// How many of ten packets, in turn of interface 0 and 1, are accepted.
    fn accepted(filters: &mut Filters<'_>) -> usize {
        let meta = |interface| Meta { interface: InterfaceId(interface), ..Meta::default() };
        let records: Vec<Record> =
            (0..10).map(|index| Record { meta: meta(index % 2), ..Record::default() }).collect();
        let mut selection = Selection::none();
        selection.select_all(10);
        filters.select(&Batch::new(&[], &records), &mut selection);
        selection.len()
    }

    #[test]
    fn what_is_faster_takes_over_once_it_pays() {
        let made = AtomicUsize::new(0);
        let faster = |_: &Program| -> Result<Arc<dyn Select>, String> {
            made.fetch_add(1, Ordering::Relaxed);
            Ok(Arc::new(Nothing))
        };
        let mut filters = Filters::new().made_faster(&faster);
        filters.extend([Some(returning(1)), Some(returning(1))]);
        for _ in 0..FASTER_AFTER / 10 {
            assert_eq!(accepted(&mut filters), 10);
        }
        assert_eq!(filters.account(), FilterAccount { interpreted: 2, ..FilterAccount::default() });
        assert_eq!((made.load(Ordering::Relaxed), accepted(&mut filters)), (0, 0));
        assert_eq!((accepted(&mut filters), made.load(Ordering::Relaxed)), (0, 1));
        let after = Some(FASTER_AFTER / 10 * 10);
        let account = FilterAccount { faster: 2, faster_after: after, ..FilterAccount::default() };
        assert_eq!(filters.account(), account);
        filters.extend([Some(returning(2))]);
        assert_eq!((accepted(&mut filters), made.load(Ordering::Relaxed)), (0, 2));
    }

    #[test]
    fn each_interface_has_its_own() {
        let faster = |program: &Program| -> Result<Arc<dyn Select>, String> {
            let is_easy = *program == returning(1);
            is_easy.then(|| Arc::new(Nothing) as Arc<dyn Select>).ok_or_else(|| "too hard".to_owned())
        };
        let mut filters = Filters::new().made_faster(&faster);
        filters.extend([Some(returning(1)), Some(returning(2))]);
        assert_eq!(accepted(&mut filters), 10);
        filters.seen = FASTER_AFTER;
        assert_eq!(accepted(&mut filters), 5, "the second cannot be made faster and goes on as it was");
        let FilterAccount { interpreted, faster, reason, .. } = filters.account();
        assert_eq!((interpreted, faster, reason.as_deref()), (1, 1, Some("too hard")));
    }
}
