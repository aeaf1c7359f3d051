//! The question in an address: page, filter, window.

use tapline_pages::{FilterLine, Page, PageRequest, Rights, WINDOW_MAX};
use tapline_view::{Dimension, ROWS_MAX};

/// Dimensions of charts with layers.
const STACKS: [Dimension; 3] = [Dimension::HostOut, Dimension::HostIn, Dimension::Service];
/// Rows of a table in an answer.
const ROWS: u64 = 100;

/// Parameters of an address, decoded; each at most once, the first counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

/// The most bytes of a query.
pub(crate) const QUERY_LEN_MAX: usize = 4096;

impl Query {
    /// Reads the part behind `?`. `None` if it is too long or not UTF-8.
    pub(crate) fn parse(text: &str) -> Option<Query> {
        if text.len() > QUERY_LEN_MAX {
            return None;
        }
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?, decoded(value)?))
        });
        Some(Query { pairs: pairs.collect::<Option<_>>()? })
    }

    /// A parameter; empty if it is not there.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.pairs.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// A number within limits; the default if it is not there or none.
    pub(crate) fn number(&self, name: &str, default: u64, least: u64, most: u64) -> u64 {
        self.text(name).parse().unwrap_or(default).clamp(least, most)
    }

    /// The filter line.
    ///
    /// # Errors
    /// A text that describes its problem.
    pub(crate) fn filter(&self, rights: Rights) -> Result<FilterLine, String> {
        Ok(FilterLine::parse(self.text("filter"))?.seeing(rights))
    }

    /// The dimension of a chart with layers, if one is asked for.
    pub(crate) fn stack(&self) -> Option<Dimension> {
        Dimension::of_name(self.text("stack")).filter(|dimension| STACKS.contains(dimension))
    }

    /// The question for a page.
    ///
    /// # Errors
    /// A text that describes the problem of the filter.
    pub(crate) fn page(&self, rights: Rights) -> Result<PageRequest, String> {
        Ok(PageRequest {
            page: Page::of_name(self.text("page")).unwrap_or_default(),
            host: self.text("host").parse().ok(),
            filter: self.filter(rights)?,
            window: self.number("window", 10, 1, WINDOW_MAX as u64) as usize,
            rows: self.number("rows", ROWS, 1, ROWS_MAX as u64) as usize,
            stack: self.stack(),
            rights,
        })
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| (byte? as char).to_digit(16);
                (digit(rest.next())? * 16 + digit(rest.next())?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_faults_refused() {
        let query = Query::parse("filter=tcp+port%2080&n=7&n=9&empty").expect("a query");
        assert_eq!((query.text("filter"), query.number("n", 1, 1, 8)), ("tcp port 80", 7));
        assert_eq!((query.text("empty"), query.text("none"), query.number("m", 3, 1, 8)), ("", "", 3));
        for wrong in ["a=%", "a=%2", "a=%zz", "a=%ff"] {
            assert_eq!(Query::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Query::parse(&"x".repeat(QUERY_LEN_MAX + 1)), None);
    }
}
