//! Parts of a batch, for which room is found one after the other.

use std::borrow::Cow;
use std::ops::Range;

use tapline_packet::Selection;

/// The packets of a selection within a part of the batch, which mostly is all of it.
pub(super) fn within<'a>(wanted: &'a Selection, part: &Range<usize>) -> Cow<'a, Selection> {
    let is_all = part.start == 0 && wanted.last().is_none_or(|last| last < part.end);
    if is_all {
        return Cow::Borrowed(wanted);
    }
    let mut within = wanted.clone();
    within.retain(|index| part.contains(&index));
    Cow::Owned(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_batch_have_each_packet_once() {
        let mut wanted = Selection::none();
        wanted.select_all(100);
        wanted.retain(|index| index % 3 == 0);
        assert!(matches!(within(&wanted, &(0..100)), Cow::Borrowed(_)), "the whole is not copied");
        let parts = [0..1, 1..50, 50..99, 99..100];
        let found: Vec<usize> =
            parts.iter().flat_map(|part| within(&wanted, part).iter().collect::<Vec<_>>()).collect();
        assert_eq!(found, wanted.iter().collect::<Vec<_>>());
    }
}
