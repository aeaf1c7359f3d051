//! Man pages of languages and files, out of the sections of the documents that describe them.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// A page that is not of a command.
pub(super) struct Page {
    /// Name of the page: `tapline-filter`.
    pub(super) name: &'static str,
    /// Section of the manual: 5 files, 7 languages.
    pub(super) section: &'static str,
    /// Subject, in one line.
    about: &'static str,
    /// The document.
    text: &'static str,
    /// Headings of the sections that it has; none for all.
    sections: &'static [&'static str],
}

pub(super) const PAGES: [Page; 4] = [
    Page {
        name: "tapline-filter",
        section: "7",
        about: "filters of Tapline: pcap-filter(7), with modifiers of its own",
        text: include_str!("../../../../../docs/filter.md"),
        sections: &["Meaning", "Beyond libpcap's language", "Where libpcap is wrong"],
    },
    Page {
        name: "tapline-serve.toml",
        section: "5",
        about: "captures of tapline serve, and the rights of their readers",
        text: include_str!("../../../../../docs/serve.md"),
        sections: &["Rules", "Recording"],
    },
    Page {
        name: "tapline.toml",
        section: "5",
        about: "options of tapline in files, profiles and the environment",
        text: include_str!("../../../../../docs/configuration.md"),
        sections: &[],
    },
    Page {
        name: "tapline-metrics",
        section: "7",
        about: "metrics of tapline for Prometheus",
        text: include_str!("../../../../../docs/metrics.md"),
        sections: &[],
    },
];

impl Page {
    /// The page for man(1).
    pub(super) fn roff(&self, version: &str) -> String {
        let mut page = Roff::new();
        let title = self.name.to_uppercase();
        page.control("TH", [title.as_str(), self.section, "", &format!("tapline {version}"), "Tapline"]);
        page.control("SH", ["NAME"]);
        page.text([roman(format!("{} - {}", self.name, self.about))]);
        let mut writer =
            Writer { page, is_wanted: false, inlines: Vec::new(), state: ParserState::default() };
        Parser::new_ext(self.text, Options::ENABLE_TABLES)
            .for_each(|event| writer.event(event, self.sections));
        writer.flush();
        let mut page = writer.page;
        page.control("SH", ["SEE ALSO"]);
        page.text([roman("tapline(1), tapline-capture(1), tapline-serve(1), pcap-filter(7)")]);
        page.to_roff()
    }
}

/// Where the parser is.
#[derive(Default)]
struct ParserState {
    heading: Option<HeadingLevel>,
    is_code: bool,
    is_bold: bool,
    is_italic: bool,
    lists: usize,
    /// Heads of the table's columns, and the cells of the row.
    heads: Vec<String>,
    cells: Vec<Vec<Inline>>,
    is_head: bool,
    is_in_table: bool,
}

struct Writer {
    page: Roff,
    /// Whether the section is one of those that the page has.
    is_wanted: bool,
    inlines: Vec<Inline>,
    state: ParserState,
}

impl Writer {
    fn event(&mut self, event: Event<'_>, sections: &[&str]) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag, sections),
            Event::Text(text) if self.state.is_code => self.code(&text),
            Event::Text(text) => self.push(&text),
            Event::Code(text) => self.inlines.push(bold(text.to_string())),
            Event::SoftBreak | Event::HardBreak => self.push(" "),
            _ => {}
        }
    }

    fn push(&mut self, text: &str) {
        let inline = match (self.state.is_bold, self.state.is_italic) {
            (true, _) => bold(text),
            (false, true) => italic(text),
            (false, false) => roman(text),
        };
        self.inlines.push(inline);
    }

    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.flush();
                self.state.heading = Some(*level);
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                // Pictures are for the book.
                let is_picture = matches!(kind, CodeBlockKind::Fenced(word) if &**word == "picture");
                self.state.is_code = !is_picture;
                self.control("PP", &[]);
                self.control("RS", &["4"]);
                self.control("nf", &[]);
            }
            Tag::List(_) => {
                self.flush();
                self.state.lists += 1;
                if self.state.lists > 1 {
                    self.control("RS", &["4"]);
                }
            }
            Tag::Item => {
                self.flush();
                self.control("IP", &["\u{2022}", "2"]);
            }
            Tag::Paragraph if self.state.lists == 0 => self.control("PP", &[]),
            Tag::Strong => self.state.is_bold = true,
            Tag::Emphasis => self.state.is_italic = true,
            Tag::Table(_) => {
                self.flush();
                self.state.is_in_table = true;
            }
            Tag::TableHead => self.state.is_head = true,
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd, sections: &[&str]) {
        match tag {
            TagEnd::Heading(level) => self.heading(level, sections),
            TagEnd::CodeBlock => {
                self.state.is_code = false;
                self.inlines.clear();
                self.control("fi", &[]);
                self.control("RE", &[]);
            }
            TagEnd::List(_) => {
                self.flush();
                if self.state.lists > 1 {
                    self.control("RE", &[]);
                }
                self.state.lists -= 1;
            }
            TagEnd::Paragraph | TagEnd::Item => self.flush(),
            TagEnd::Strong => self.state.is_bold = false,
            TagEnd::Emphasis => self.state.is_italic = false,
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inlines);
                self.state.cells.push(cell);
            }
            TagEnd::TableHead => {
                self.state.is_head = false;
                self.state.heads = self.state.cells.drain(..).map(|cell| words(&cell)).collect();
            }
            TagEnd::TableRow => self.row(),
            TagEnd::Table => self.state.is_in_table = false,
            _ => {}
        }
    }

    fn heading(&mut self, level: HeadingLevel, sections: &[&str]) {
        let title = words(&std::mem::take(&mut self.inlines));
        self.state.heading = None;
        match level {
            // What comes before the first heading of the second level is an introduction.
            HeadingLevel::H1 => {
                self.is_wanted = sections.is_empty();
                self.control("SH", &["DESCRIPTION"]);
            }
            HeadingLevel::H2 => {
                self.is_wanted = sections.is_empty() || sections.contains(&title.as_str());
                self.control("SH", &[&title.to_uppercase()]);
            }
            _ => self.control("SS", &[&title]),
        }
    }

    /// A row: its first cell is the term, the others follow it, each under the head of its column.
    fn row(&mut self) {
        let cells = std::mem::take(&mut self.state.cells);
        let Some((term, others)) = cells.split_first() else { return };
        self.control("TP", &[]);
        self.text(term.clone());
        let filled: Vec<_> =
            others.iter().zip(self.state.heads.iter().skip(1)).filter(|(cell, _)| !cell.is_empty()).collect();
        let mut line = Vec::new();
        for (at, (cell, head)) in filled.iter().enumerate() {
            if at > 0 {
                line.push(roman("; "));
            }
            if filled.len() > 1 {
                line.push(roman(format!("{head}: ")));
            }
            line.extend_from_slice(cell);
        }
        self.text(line);
    }

    fn code(&mut self, text: &str) {
        if !text.trim_end().is_empty() {
            self.text(vec![roman(text.trim_end())]);
        }
    }

    fn flush(&mut self) {
        let inlines = std::mem::take(&mut self.inlines);
        if !inlines.is_empty() && !self.state.is_in_table {
            self.text(inlines);
        }
    }

    fn text(&mut self, inlines: Vec<Inline>) {
        if self.is_wanted {
            self.page.text(inlines);
        }
    }

    fn control(&mut self, name: &str, arguments: &[&str]) {
        if self.is_wanted {
            self.page.control(name, arguments.iter().copied());
        }
    }
}

/// The letters alone.
fn words(inlines: &[Inline]) -> String {
    let text = |inline: &Inline| match inline {
        Inline::Roman(text) | Inline::Italic(text) | Inline::Bold(text) => text.clone(),
        Inline::LineBreak => " ".to_owned(),
    };
    inlines.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_a_page_are_in_its_document() {
        for page in &PAGES {
            for section in page.sections {
                let heading = format!("\n## {section}\n");
                assert!(page.text.contains(&heading), "{}: {section}", page.name);
            }
            let text = page.roff("0");
            assert!(text.contains(".SH NAME") && text.lines().count() > 40, "{}: {text}", page.name);
        }
    }

    #[test]
    fn other_sections_are_left_out() {
        let filter = PAGES[0].roff("0");
        assert!(filter.contains("BEYOND LIBPCAP") && !filter.contains("STAGES OF COMPILATION"), "{filter}");
        assert!(filter.contains(r"\fBscoped(E)\fR"), "{filter}");
    }
}
