//! The repository's documents as data: code blocks, command lines, headings and links, so that tests can check them.
//!
//! ```text
//! document --blocks--> ```console, ```toml, ...    by the word behind the fence
//!                       four columns of blanks      without a word: command lines
//!          --links--->  [text](target#heading)
//! ```

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

/// A Markdown file of the repository.
#[derive(Clone, Debug)]
pub struct Document {
    /// Path below the root, such as `docs/guide.md`.
    pub name: String,
    /// Text of the document.
    pub text: String,
}

/// Lines that are kept literally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The word behind the fence; empty for none and for indented blocks.
    pub kind: String,
    /// The number of the first line in the file, from 1.
    pub line: usize,
    /// The lines, without fence and indentation.
    pub lines: Vec<String>,
}

/// All documents: those in the root, in `docs`, in `examples`, and the READMEs of the folders in `crates`.
///
/// # Panics
/// If one cannot be read.
pub fn all() -> Vec<Document> {
    let root = Path::new(ROOT);
    let mut paths = markdown_in(root);
    paths.extend(
        entries(&root.join("crates")).iter().filter(|path| path.is_dir()).flat_map(|path| markdown_in(path)),
    );
    let mut folders = vec![root.join("docs"), root.join("examples")];
    while let Some(folder) = folders.pop() {
        paths.extend(markdown_in(&folder));
        folders.extend(entries(&folder).into_iter().filter(|path| path.is_dir()));
    }
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.flatten().map(|entry| entry.path()).collect()
}

fn markdown_in(folder: &Path) -> Vec<PathBuf> {
    let is_markdown = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "md");
    entries(folder).into_iter().filter(is_markdown).collect()
}

fn read(path: &Path) -> Document {
    let name = path.strip_prefix(ROOT).expect("a file of the repository").display().to_string();
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    Document { name, text }
}

impl Document {
    /// Code blocks of the document.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        self.visit(|place, line| match place {
            LineKind::Opens { kind, line } => blocks.push(Block { kind, line, lines: Vec::new() }),
            LineKind::Code => blocks.last_mut().expect("an open block").lines.push(line.to_owned()),
            LineKind::Prose(_) => {}
        });
        blocks.iter_mut().for_each(|block| {
            while block.lines.last().is_some_and(|line| line.trim().is_empty()) {
                block.lines.pop();
            }
        });
        blocks
    }

    /// Lines of prose, tables and headings with their numbers.
    pub fn prose(&self) -> Vec<(usize, String)> {
        let mut lines = Vec::new();
        self.visit(|place, line| {
            if let LineKind::Prose(number) = place {
                lines.push((number, line.to_owned()));
            }
        });
        lines
    }

    /// The names by which links reach its headings: small letters, digits, `-` and `_`, blanks as `-`.
    pub fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for (_, line) in self.prose() {
            let Some(heading) = line.strip_prefix('#') else { continue };
            let text = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            // The second heading of a name is NAME-1.
            let before = anchors.iter().filter(|known| **known == anchor).count();
            anchors.push(if before == 0 { anchor } else { format!("{anchor}-{before}") });
        }
        anchors
    }

    /// Targets of links to files and headings of the repository.
    pub fn links(&self) -> Vec<String> {
        // A link may go over the end of a line.
        let prose: String = self.prose().into_iter().map(|(_, line)| line + "\n").collect();
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let is_ours = |target: &&str| !target.contains("://") && !target.starts_with("mailto:");
        targets.filter(is_ours).map(str::to_owned).collect()
    }

    fn visit(&self, mut see: impl FnMut(LineKind, &str)) {
        let (mut is_fenced, mut is_indented, mut is_after_blank) = (false, false, true);
        for (at, line) in self.text.lines().enumerate() {
            let number = at + 1;
            // A block in a list is indented as the list's text is.
            if let Some(kind) = line.trim_start().strip_prefix("```") {
                is_fenced = !is_fenced;
                is_indented = false;
                if is_fenced {
                    see(LineKind::Opens { kind: kind.trim().to_owned(), line: number + 1 }, "");
                }
            } else if is_fenced {
                see(LineKind::Code, line);
            } else if line.starts_with("    ") && (is_indented || is_after_blank) {
                if !is_indented {
                    see(LineKind::Opens { kind: String::new(), line: number }, "");
                }
                is_indented = true;
                see(LineKind::Code, &line[4..]);
            } else if is_indented && line.is_empty() {
                see(LineKind::Code, line);
            } else {
                is_indented = false;
                see(LineKind::Prose(number), line);
            }
            is_after_blank = line.trim().is_empty();
        }
    }
}

enum LineKind {
    Opens { kind: String, line: usize },
    Code,
    Prose(usize),
}

/// The words of a command line of a document that runs `program`, without the part before it (a prompt, `sudo`,
/// variables) and behind it (a pipe, a remark behind `#` or two blanks). `None` for other lines, and for synopses,
/// which have `[`, `]` or `...` outside of quotes.
pub fn command(line: &str, program: &str) -> Option<Vec<String>> {
    let mut text = line.trim_start();
    loop {
        let (word, rest) = text.split_once(' ')?;
        let name = word.rsplit('/').next().unwrap_or(word);
        if name == program {
            let words = words(rest.trim_start())?;
            return Some([vec![program.to_owned()], words].concat());
        }
        let is_variable = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        });
        if !is_variable && !["$", "#", "sudo"].contains(&word) {
            return None;
        }
        text = rest.trim_start();
    }
}

fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '[' | ']') => return None,
            (None, '|' | '>' | '<' | ';' | '&') => break,
            (None, '#') if word.is_none() => break,
            // The command goes on in the next line.
            (None, '\\') if characters.peek().is_none() => break,
            (None, ' ') => {
                words.extend(word.take());
                if characters.peek() == Some(&' ') {
                    break;
                }
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    let is_synopsis = words.iter().any(|word| word == "...");
    (!is_synopsis).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_headings_and_links_are_found() {
        let text = "# A `b`, c\n\nSee [it](x.md#a-b-c)\nand [that](https://e.org).\n\n    one\n\n      two\n\n- a\n    b\n\n\
            ```toml\n# no heading\n    x\n```\n# A b c\n";
        let document = Document { name: "t".to_owned(), text: text.to_owned() };
        let block = |kind: &str, line, lines: &[&str]| Block {
            kind: kind.to_owned(),
            line,
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        };
        let expected = [block("", 6, &["one", "", "  two"]), block("toml", 14, &["# no heading", "    x"])];
        assert_eq!(document.blocks(), expected);
        assert_eq!(document.anchors(), ["a-b-c", "a-b-c-1"]);
        assert_eq!(document.links(), ["x.md#a-b-c"]);
    }

    #[test]
    fn command_lines_lose_their_surroundings() {
        let words = |line: &str| command(line, "tapline").map(|words| words[1..].join("|"));
        assert_eq!(
            words("# tapline find S --to +10m 'a b'   remark").as_deref(),
            Some("find|S|--to|+10m|a b")
        );
        assert_eq!(words("sudo bin/tapline status # remark").as_deref(), Some("status"));
        assert_eq!(words("tapline probe --biflow \\").as_deref(), Some("probe|--biflow"));
        assert_eq!(words("A=b tapline run -e 'x -> y' | less").as_deref(), Some("run|-e|x -> y"));
        assert_eq!(words("tapline capture -w '' -r \"x|y\"").as_deref(), Some("capture|-w||-r|x|y"));
        for other in
            ["tapline: reading", "tapline find S [FILTER]", "tapline p ... -x", "  tcpdump -r tapline", ""]
        {
            assert_eq!(words(other), None, "{other}");
        }
    }

    #[test]
    fn all_documents_are_found() {
        let names: Vec<String> = all().into_iter().map(|document| document.name).collect();
        for name in ["README.md", "docs/guide.md", "docs/format/store.md", "examples/README.md"] {
            assert!(names.iter().any(|known| known == name), "{names:?}");
        }
    }
}
