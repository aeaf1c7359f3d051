//! Stages that are written for several.
//!
//! ```text
//! a -> filter("tcp and sni(x)") -> b        a -> filter("tcp") -> names("sni(x)") -> b
//! ```

use super::builder::{Connection, DraftId, Origin, PlanBuilder};
use crate::catalog::Catalog;
use crate::language::SyntaxError;

/// The graph with the stages for which others are written.
pub(super) fn expanded(graph: &PlanBuilder, catalog: &Catalog) -> Result<PlanBuilder, SyntaxError> {
    let mut graph = graph.clone();
    for stage in 0..graph.stages.len() {
        let Some(class) = catalog.class(&graph.stages[stage].class) else { continue };
        let mut several = (class.expand)(&graph.stages[stage])?.into_iter();
        let Some(first) = several.next() else { continue };
        graph.stages[stage] = first;
        let mut last = DraftId(stage);
        for next in several {
            let next = graph.add(next);
            graph.links.iter_mut().filter(|link| link.from == last).for_each(|link| link.from = next);
            let (origin, is_continued) = (Origin::Program, false);
            graph.links.push(Connection { from: last, output: 0, to: next, input: 0, origin, is_continued });
            last = next;
        }
    }
    Ok(graph)
}
