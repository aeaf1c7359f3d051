//! The manual page of each class, from its declaration.

use std::fmt::Write as _;

use super::{Catalog, Outputs, StageClass};

impl Catalog {
    /// Every class in a line.
    pub fn index(&self) -> String {
        let width = self.classes.iter().map(|class| class.name.len()).max().unwrap_or(0);
        self.classes.iter().fold(String::new(), |mut text, class| {
            let _ = writeln!(text, "  {:<width$}  {}", class.name, class.summary);
            text
        })
    }
}

/// The page of one class.
pub fn page(class: &StageClass) -> String {
    let mut text = format!("{}: {}\n\n  {}\n", class.name, class.summary, synopsis(class));
    if !class.description.is_empty() {
        let _ = write!(text, "\n{}\n", wrapped(class.description, 2));
    }
    if !class.parameters.is_empty() {
        text.push_str("\narguments\n");
    }
    for parameter in class.parameters {
        let default = match parameter.default {
            None => "must be given".to_owned(),
            Some("") => "empty unless given".to_owned(),
            Some(default) => format!("{default} unless given"),
        };
        let _ = writeln!(text, "  {} ({}; {default})", parameter.name, parameter.kind.shown());
        let _ = writeln!(text, "{}", wrapped(parameter.meaning, 6));
    }
    let _ = write!(text, "\nexample\n  {}\n", class.example);
    text
}

fn synopsis(class: &StageClass) -> String {
    let parameters = class.parameters.iter().map(|parameter| match parameter.default {
        None => parameter.name.to_owned(),
        Some(default) => format!("{}={}", parameter.name, if default.is_empty() { "\"\"" } else { default }),
    });
    let arguments = parameters.collect::<Vec<_>>().join(", ");
    let call =
        if arguments.is_empty() { class.name.to_owned() } else { format!("{}({arguments})", class.name) };
    let before = if class.is_source() { "" } else { "... -> " };
    let after = match class.outputs {
        Outputs::None => "",
        Outputs::One | Outputs::Flows => " -> ...",
        Outputs::Many => "[0] -> ..., [1] -> ...",
    };
    format!("{before}{call}{after}")
}

/// Lines of at most 100 columns.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("a line");
        if line.len() + word.len() + indent >= 100 && !line.is_empty() {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    let blank = " ".repeat(indent);
    lines.iter().map(|line| format!("{blank}{line}")).collect::<Vec<_>>().join("\n")
}
