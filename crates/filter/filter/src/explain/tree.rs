//! The tree of a filter, indented, with the qualifiers that its text leaves out.
//!
//! ```text
//! node := leaf | and node node+ | or node node+ | not node | modifier node
//! ```

use super::meaning;
use crate::ast::{Ast, BoolOp, Expr, ExprKind, Qualifiers};

enum Node {
    Leaf { text: String, meaning: String },
    Branch(&'static str, Vec<Node>),
    Modifier { text: String, meaning: &'static str, inner: Box<Node> },
}

/// Leaves of this width and less have their meanings in one column.
const COLUMN: usize = 36;

pub(super) fn render(ast: &Ast, text: &str) -> String {
    let mut out = String::new();
    match &ast.root {
        Some(root) => write(&node(root, None, text).0, 1, &mut out),
        None => out += "  every packet: the filter is empty\n",
    }
    out
}

fn write(node: &Node, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match node {
        Node::Leaf { text, meaning } => {
            let line = format!("{indent}{text:<COLUMN$}  {meaning}");
            *out += line.trim_end();
            out.push('\n');
        }
        Node::Modifier { text, meaning, inner } => {
            *out += &format!("{indent}{text:<COLUMN$}  {meaning}\n");
            write(inner, depth + 1, out);
        }
        Node::Branch(word, parts) => {
            *out += &format!("{indent}{word}\n");
            parts.iter().for_each(|part| write(part, depth + 1, out));
        }
    }
}

/// The node of a part, and the qualifiers that the next part inherits: the rules of [`lower`](crate::lower).
fn node(expr: &Expr, inherited: Option<Qualifiers>, text: &str) -> (Node, Option<Qualifiers>) {
    let written = text.get(expr.span.start..expr.span.end).unwrap_or("");
    match &expr.kind {
        ExprKind::Chain(first, rest) => {
            let (mut left, mut inherited) = node(first, inherited, text);
            for (joint, part) in rest {
                let (right, next) = node(part, inherited, text);
                left = join(left, *joint, right);
                inherited = next;
            }
            (left, inherited)
        }
        ExprKind::Not(inner) => {
            let (inner, next) = node(inner, inherited, text);
            (Node::Branch("not", vec![inner]), next)
        }
        ExprKind::Group(inner) => (node(inner, inherited, text).0, inherited),
        ExprKind::Modified(modifier, inner) => {
            let inner = Box::new(node(inner, None, text).0);
            (
                Node::Modifier {
                    text: modifier.to_string(),
                    meaning: meaning::of_modifier(*modifier),
                    inner,
                },
                None,
            )
        }
        ExprKind::Qualified(qualifiers, inner) => (node(inner, Some(*qualifiers), text).0, Some(*qualifiers)),
        ExprKind::Id(_) => {
            let words = inherited.map_or(String::new(), |qualifiers| words(qualifiers) + " ");
            let meaning = inherited.map_or(String::new(), meaning::of_qualifiers);
            (Node::Leaf { text: words + written, meaning }, inherited)
        }
        kind => (Node::Leaf { text: written.to_owned(), meaning: meaning::of_kind(kind) }, None),
    }
}

/// `a and b and c` is one node of three.
fn join(left: Node, joint: BoolOp, right: Node) -> Node {
    let word = match joint {
        BoolOp::And => "and",
        BoolOp::Or => "or",
    };
    match left {
        Node::Branch(same, mut parts) if same == word => {
            parts.push(right);
            Node::Branch(word, parts)
        }
        left => Node::Branch(word, vec![left, right]),
    }
}

fn words(qualifiers: Qualifiers) -> String {
    let Qualifiers { protocol, direction, kind } = qualifiers;
    let words = [protocol.map(|p| p.name()), direction.map(|d| d.name()), kind.map(|k| k.name())];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
