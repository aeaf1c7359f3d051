//! Tokens to a graph.

use std::collections::HashMap;

use super::lex::{Token, lex};
use super::{Span, SyntaxError};
use crate::plan::{Connection, DraftArgument, DraftId, Origin, PlanBuilder, StageDraft, Value};

/// The most stages in one text.
const STAGES_MAX: usize = 1000;
/// The most connections in one text: a group before a group connects each way of one with each of the other.
const LINKS_MAX: usize = 20_000;
/// Maximum nesting depth of groups.
const GROUPS_MAX: usize = 32;
/// The highest number of an input or output.
const PORT_MAX: usize = 255;

/// Parses a graph.
///
/// # Errors
/// The fault of the text, its place, and the mend.
///
/// ```
/// let graph = tapline_graph::language::parse("web :: filter(\"tcp port 80\"); device(lo) -> web -> count").unwrap();
/// assert_eq!((graph.stages().len(), graph.links().len()), (3, 2));
/// ```
pub fn parse(text: &str) -> Result<PlanBuilder, SyntaxError> {
    let tokens = lex(text)?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        end: text.len(),
        graph: PlanBuilder::default(),
        ends: Vec::new(),
        links: Vec::new(),
        depth: 0,
    };
    parser.statements()?;
    parser.resolve()
}

/// One side of an arrow.
struct End {
    /// A stage that was declared here, or a name to look up.
    stage: Result<DraftId, (String, Span)>,
    input: usize,
    output: usize,
    span: Span,
}

struct Parser<'t> {
    tokens: &'t [(Token, Span)],
    at: usize,
    /// The offset of the end of the text.
    end: usize,
    graph: PlanBuilder,
    /// The ends of connections, in order.
    ends: Vec<End>,
    /// The connections between them.
    links: Vec<(usize, usize)>,
    /// Groups that are open.
    depth: usize,
}

/// The ends of a hop, or of ways: those that packets come to, and those that they leave from.
struct Ways {
    heads: Vec<usize>,
    tails: Vec<usize>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn peek_after(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead).map(|(token, _)| token)
    }

    fn span(&self) -> Span {
        self.tokens.get(self.at).map_or(Span { start: self.end, end: self.end }, |(_, span)| *span)
    }

    fn take(&mut self, token: &Token) -> bool {
        let is_here = self.peek() == Some(token);
        self.at += usize::from(is_here);
        is_here
    }

    fn expect(&mut self, token: &Token, hint: &str) -> Result<(), SyntaxError> {
        if self.take(token) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("expected {}", token.shown()), hint))
        }
    }

    fn unexpected(&self, wanted: &str, hint: &str) -> SyntaxError {
        let found =
            self.peek().map_or("the end of the text".to_owned(), |token| format!("`{}`", token.shown()));
        SyntaxError::at(self.span(), format!("{wanted}, found {found}")).hint(hint)
    }

    fn statements(&mut self) -> Result<(), SyntaxError> {
        while self.peek().is_some() {
            if !self.take(&Token::Semicolon) {
                self.statement()?;
                if self.peek().is_some() && self.peek() != Some(&Token::Semicolon) {
                    return Err(self.unexpected("expected `;` or `->`", "statements end with a semicolon"));
                }
            }
        }
        Ok(())
    }

    fn statement(&mut self) -> Result<(), SyntaxError> {
        let mut names = 0;
        while matches!(self.peek_after(names), Some(Token::Word(_)))
            && self.peek_after(names + 1) == Some(&Token::Comma)
        {
            names += 2;
        }
        if names > 0 && self.peek_after(names + 1) == Some(&Token::Colons) {
            return self.declarations();
        }
        self.way().map(drop)
    }

    /// `hop -> hop -> ...`
    fn way(&mut self) -> Result<Ways, SyntaxError> {
        let Ways { heads, mut tails } = self.hop()?;
        while self.take(&Token::Arrow) {
            let span = self.span();
            let next = self.hop()?;
            if self.links.len() + tails.len() * next.heads.len() > LINKS_MAX {
                return Err(SyntaxError::at(span, format!("more than {LINKS_MAX} connections")));
            }
            for tail in tails {
                self.links.extend(next.heads.iter().map(|head| (tail, *head)));
            }
            tails = next.tails;
        }
        Ok(Ways { heads, tails })
    }

    /// `( way | way | ... )`: packets go each way, and come together behind it.
    fn group(&mut self) -> Result<Ways, SyntaxError> {
        if self.depth == GROUPS_MAX {
            return Err(SyntaxError::at(self.span(), format!("more than {GROUPS_MAX} groups in each other")));
        }
        self.depth += 1;
        self.at += 1;
        let mut all = self.way()?;
        while self.take(&Token::Bar) {
            let Ways { heads, tails } = self.way()?;
            all.heads.extend(heads);
            all.tails.extend(tails);
        }
        self.expect(
            &Token::Close,
            "ways in a group are separated by `|`: ( count | filter(\"tcp\") -> top )",
        )?;
        self.depth -= 1;
        Ok(all)
    }

    /// `a, b :: stage`: as many stages as names.
    fn declarations(&mut self) -> Result<(), SyntaxError> {
        let mut names = vec![self.word("a name")?];
        while self.take(&Token::Comma) {
            names.push(self.word("a name")?);
        }
        self.expect(&Token::Colons, "name :: class(arguments)")?;
        let stage = self.stage()?;
        for name in names {
            self.declare(Some(name), stage.clone())?;
        }
        Ok(())
    }

    fn hop(&mut self) -> Result<Ways, SyntaxError> {
        if self.peek() == Some(&Token::Open) {
            return self.group();
        }
        let start = self.span();
        let input = self.port()?;
        let end = self.end_of_hop()?;
        let output = self.port()?;
        self.ends.push(End { stage: end, input, output, span: start.to(self.tokens[self.at - 1].1) });
        let place = vec![self.ends.len() - 1];
        Ok(Ways { heads: place.clone(), tails: place })
    }

    fn end_of_hop(&mut self) -> Result<Result<DraftId, (String, Span)>, SyntaxError> {
        match (self.peek(), self.peek_after(1)) {
            (Some(Token::Word(_)), Some(Token::Colons)) => {
                let name = self.word("a name")?;
                self.at += 1;
                let stage = self.stage()?;
                self.declare(Some(name), stage).map(Ok)
            }
            (Some(Token::Word(_)), Some(Token::Open)) => {
                let stage = self.stage()?;
                self.declare(None, stage).map(Ok)
            }
            _ => self.word("a stage").map(Err),
        }
    }

    fn port(&mut self) -> Result<usize, SyntaxError> {
        if !self.take(&Token::OpenSquare) {
            return Ok(0);
        }
        let (word, span) = self.word("a number")?;
        let number = word.parse().ok().filter(|number| *number <= PORT_MAX);
        let number = number.ok_or_else(|| {
            SyntaxError::at(span, format!("`{word}` is not a number of an input or output"))
                .hint(format!("0 to {PORT_MAX}"))
        })?;
        self.expect(&Token::CloseSquare, "write [0] or [1]")?;
        Ok(number)
    }

    fn word(&mut self, wanted: &str) -> Result<(String, Span), SyntaxError> {
        let span = self.span();
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok((word, span))
            }
            _ => Err(self.unexpected(
                &format!("expected {wanted}"),
                "such as: device(eth0) -> filter(\"tcp\") -> count",
            )),
        }
    }

    fn stage(&mut self) -> Result<StageDraft, SyntaxError> {
        let (class, span) = self.word("a class")?;
        let mut arguments = Vec::new();
        if self.take(&Token::Open) {
            while !self.take(&Token::Close) {
                if !arguments.is_empty() {
                    self.expect(
                        &Token::Comma,
                        "arguments are separated by commas; quote a text that holds spaces or commas",
                    )?;
                }
                arguments.push(self.argument()?);
            }
        }
        Ok(StageDraft { class, name: None, arguments, origin: Origin::Text(span) })
    }

    fn argument(&mut self) -> Result<DraftArgument, SyntaxError> {
        let start = self.span();
        let key = match (self.peek(), self.peek_after(1)) {
            (Some(Token::Word(word)), Some(Token::Equals)) => {
                let key = word.clone();
                self.at += 2;
                Some(key)
            }
            _ => None,
        };
        let span = start.to(self.span());
        let value = match self.peek() {
            Some(Token::Word(value)) => Value::Word(value.clone()),
            Some(Token::Text(value)) => Value::Text(value.clone()),
            _ => return Err(self.unexpected("expected a value", "a word, a number, or a text in quotes")),
        };
        self.at += 1;
        Ok(DraftArgument { key, value, origin: Origin::Text(span) })
    }

    fn declare(
        &mut self,
        name: Option<(String, Span)>,
        mut stage: StageDraft,
    ) -> Result<DraftId, SyntaxError> {
        if self.graph.stages.len() == STAGES_MAX {
            return Err(stage.origin.error(format!("more than {STAGES_MAX} stages")));
        }
        if let Some((name, name_span)) = name {
            if !is_name(&name) {
                return Err(SyntaxError::at(name_span, format!("`{name}` cannot be a name"))
                    .hint("a letter first, then letters, digits, _ - and ."));
            }
            if let Some(other) = self.graph.stages.iter().find(|other| other.name.as_ref() == Some(&name)) {
                let error = SyntaxError::at(name_span, format!("there are two stages `{name}`"));
                return Err(other
                    .origin
                    .mark_earlier(error)
                    .hint("a name is declared once with ::, and used without"));
            }
            stage.name = Some(name);
        }
        Ok(self.graph.add(stage))
    }

    /// Finds the stages that names mean; a name that was not declared is a stage without arguments.
    fn resolve(mut self) -> Result<PlanBuilder, SyntaxError> {
        let declared = (0..self.graph.stages.len()).map(DraftId);
        let by_name: HashMap<String, DraftId> =
            declared.map(|stage| (self.graph.name_of(stage), stage)).collect();
        let mut ends = Vec::new();
        for End { stage, input, output, span } in std::mem::take(&mut self.ends) {
            let stage = match stage {
                Ok(stage) => stage,
                Err((name, span)) => match by_name.get(&name) {
                    Some(stage) => *stage,
                    None => {
                        let origin = Origin::Text(span);
                        self.declare(None, StageDraft { origin, ..StageDraft::new(name) })?
                    }
                },
            };
            ends.push((stage, input, output, span));
        }
        for (from, to) in std::mem::take(&mut self.links) {
            let ((from, _, output, _), (to, input, _, span)) = (ends[from], ends[to]);
            let origin = Origin::Text(span);
            self.graph.links.push(Connection { from, output, to, input, origin, is_continued: true });
        }
        Ok(self.graph)
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(text: &str) -> Vec<String> {
        let graph = parse(text).unwrap_or_else(|error| panic!("{}", error.render(text)));
        let show = |link: &Connection| {
            let [from, to] = [link.from, link.to].map(|stage| graph.name_of(stage));
            format!("{from}[{}] -> [{}]{to}", link.output, link.input)
        };
        graph.links.iter().map(show).collect()
    }

    fn message(text: &str) -> String {
        parse(text).expect_err("an error").render(text)
    }

    #[test]
    fn arrows_connect_outputs_to_inputs() {
        let text = "web :: filter(\"tcp port 80\"); // all\ndevice(eth0) -> web; web -> a::sample(1/100) -> record(\"x y\"); web -> count";
        assert_eq!(
            links(text),
            ["device@2[0] -> [0]web", "web[0] -> [0]a", "a[0] -> [0]record@4", "web[0] -> [0]count@5"]
        );
        assert_eq!(links("a, b :: count; a -> b; x(1)[1] -> [2]a"), ["a[0] -> [0]b", "x@3[1] -> [2]a"]);
        assert_eq!(
            links("c -> d; d -> e"),
            ["c@1[0] -> [0]d@2", "d@3[0] -> [0]e@4"],
            "a class alone is a new stage"
        );
    }

    #[test]
    fn groups_lead_each_way_and_together_again() {
        let chains = links("x -> a(1); a(1) -> y");
        assert_eq!(chains, ["x@3[0] -> [0]a@1", "a@2[0] -> [0]y@4"]);
        let text = "s(1) -> ( a(tcp|udp) | b::c(1) -> (d(1)|e(1)[2]) ) -> f(1)";
        let expected = [
            "b[0] -> [0]d@4",
            "b[0] -> [0]e@5",
            "s@1[0] -> [0]a@2",
            "s@1[0] -> [0]b",
            "a@2[0] -> [0]f@6",
            "d@4[0] -> [0]f@6",
            "e@5[2] -> [0]f@6",
        ];
        assert_eq!(links(text), expected);
        assert_eq!(links("(a(1)) -> (b(1))"), ["a@1[0] -> [0]b@2"]);
        assert!(message("a(1) -> (b(1)").contains("expected )"));
        assert!(message("a(1) -> ()").contains("expected a stage"));
        assert!(message(&"(".repeat(40)).contains("more than 32 groups"));
        let many = format!("({})", vec!["a(1)"; 200].join("|"));
        assert!(message(&format!("{many} -> {many}")).contains("more than 20000 connections"));
    }

    #[test]
    fn arguments_keep_their_words() {
        let text = "a(1/100, by=flow, \"x, y\", host=2001:db8::1, e=f(g));";
        assert_eq!(parse(text).expect("a graph").to_string(), text);
    }

    #[test]
    fn mistakes_are_marked() {
        assert_eq!(
            message("device(eth0) -> -> count"),
            "expected a stage, found `->`\n  device(eth0) -> -> count\n                  ^^\n  such as: device(eth0) -> filter(\"tcp\") -> count"
        );
        assert!(message("a :: b; a :: c").starts_with("there are two stages `a`"));
        assert!(message("a(1 2)").contains("separated by commas"));
        assert!(message("a(").starts_with("expected a value, found the end"));
        assert!(message("a[300] -> b").contains("0 to 255"));
        assert!(message("a b").contains("expected `;`"));
    }

    #[test]
    fn no_text_panics() {
        let pieces = [
            "a", "::", "->", "(", ")", "[", "]", ",", ";", "=", "\"", "1/2", " ", "\n", "//", "/*", "\\",
            "ü", "|",
        ];
        let mut state = 1_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..state % 13 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            }
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            if let Err(error) = parse(&text) {
                error.render(&text);
            }
        }
    }
}
