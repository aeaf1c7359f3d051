//! Arguments of stages: their declared types, and their values.

use tapline_syntax::units;

use crate::language::SyntaxError;
use crate::plan::{DraftArgument, StageDraft, Value};

/// An argument that a class takes.
#[derive(Debug)]
pub struct Parameter {
    /// Name of the parameter.
    pub name: &'static str,
    /// The type of the argument.
    pub kind: ParameterType,
    /// The default value; `None` if the argument is required.
    pub default: Option<&'static str>,
    /// The meaning, as `tapline run --stages` shows it.
    pub meaning: &'static str,
}

impl Parameter {
    /// A parameter with a default value.
    pub const fn new(name: &'static str, kind: ParameterType, default: &'static str) -> Parameter {
        Parameter { default: Some(default), ..Parameter::required(name, kind) }
    }

    /// A parameter whose argument is required.
    pub const fn required(name: &'static str, kind: ParameterType) -> Parameter {
        Parameter { name, kind, default: None, meaning: "" }
    }

    /// Sets the meaning.
    #[must_use]
    pub const fn means(self, meaning: &'static str) -> Parameter {
        Parameter { meaning, ..self }
    }
}

/// Checks a text; the error shows the place of the mistake.
pub type CheckText = fn(&str) -> Result<(), String>;

/// The type of an argument.
#[derive(Clone, Copy, Debug)]
pub enum ParameterType {
    /// Any text.
    Text,
    /// The name of a file.
    Path,
    /// A text of a language, and its check; the first word is the name of the language.
    Language(&'static str, CheckText),
    /// A whole number from the first to the second; `k`, `M`, `G`, `T` multiply by powers of 1000.
    Number(u64, u64),
    /// A time: seconds, or with a unit, `ns` to `d`: `500ms`, `10s`, `5m`.
    Duration,
    /// A share: `1/100`.
    Ratio,
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl ParameterType {
    /// The values that may be written, for help texts and messages.
    pub fn shown(self) -> String {
        match self {
            ParameterType::Text => "text".to_owned(),
            ParameterType::Path => "file".to_owned(),
            ParameterType::Language(name, _) => name.to_owned(),
            ParameterType::Number(min, u64::MAX) => format!("number, {min} or more"),
            ParameterType::Number(min, max) => format!("number, {min} to {max}"),
            ParameterType::Duration => "time, such as 500ms, 10s, 5m, 1h".to_owned(),
            ParameterType::Ratio => "share, such as 1/100".to_owned(),
            ParameterType::Choice(words) => words.join(" or "),
        }
    }

    /// Whether an argument may have a value.
    pub fn takes(self, text: &str) -> bool {
        self.value(&Value::word(text)).is_ok()
    }

    /// The value of an argument, if it may have it.
    fn value(self, given: &Value) -> Result<ArgumentValue, String> {
        let text = given.text();
        let wrong = || format!("`{text}` is not allowed here: {}", self.shown());
        let (first, second) = match self {
            ParameterType::Text => (0, 0),
            ParameterType::Path if !text.is_empty() => (0, 0),
            // A choice of numbers is one, too.
            ParameterType::Choice(words) if words.contains(&text.as_str()) => (number(&text).unwrap_or(0), 0),
            ParameterType::Path | ParameterType::Choice(_) => return Err(wrong()),
            ParameterType::Language(_, check) => {
                check(&text)?;
                (0, 0)
            }
            ParameterType::Number(min, max) => {
                let number = number(&text).filter(|number| (min..=max).contains(number));
                (number.ok_or_else(wrong)?, 0)
            }
            ParameterType::Duration => (nanoseconds(&text).ok_or_else(wrong)?, 0),
            ParameterType::Ratio => ratio(&text).ok_or_else(wrong)?,
        };
        Ok(ArgumentValue { text, numbers: (first, second) })
    }
}

fn number(text: &str) -> Option<u64> {
    units::count(text).ok()
}

fn nanoseconds(text: &str) -> Option<u64> {
    units::nanoseconds(text).ok()
}

fn ratio(text: &str) -> Option<(u64, u64)> {
    let (over, under) = text.split_once('/')?;
    let (over, under) = (number(over.trim())?, number(under.trim())?);
    (under > 0 && over <= under).then_some((over, under))
}

/// The value of an argument: as it was written, and the number, the nanoseconds or the share that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ArgumentValue {
    text: String,
    numbers: (u64, u64),
}

/// A stage's arguments, checked: every parameter of its class has a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    values: Vec<(&'static str, ArgumentValue)>,
}

impl Arguments {
    /// Checks the given arguments against the parameters of the class.
    pub(crate) fn check(
        declared: &StageDraft,
        parameters: &'static [Parameter],
    ) -> Result<Arguments, SyntaxError> {
        let mut given: Vec<Option<&DraftArgument>> = vec![None; parameters.len()];
        for (position, argument) in declared.arguments.iter().enumerate() {
            let at = place(declared, parameters, position, argument)?;
            if let Some(before) = given[at].replace(argument) {
                let error = argument.origin.error(format!("`{}` is given twice", parameters[at].name));
                return Err(before.origin.mark_earlier(error));
            }
        }
        let mut values = Vec::new();
        for (parameter, given) in parameters.iter().zip(given) {
            values.push((parameter.name, value(declared, parameter, given)?));
        }
        Ok(Arguments { values })
    }

    /// Arguments of texts that are right by their making.
    pub fn of(values: &[(&'static str, String)]) -> Arguments {
        let value =
            |(name, text): &(_, String)| (*name, ArgumentValue { text: text.clone(), numbers: (0, 0) });
        Arguments { values: values.iter().map(value).collect() }
    }

    /// The value of a parameter as text.
    ///
    /// # Panics
    /// If the class has no such parameter.
    pub fn text(&self, name: &str) -> &str {
        &self.value(name).text
    }

    /// The value of a parameter, if the class has it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.text.as_str())
    }

    /// The value of a [`ParameterType::Number`].
    pub fn number(&self, name: &str) -> u64 {
        self.value(name).numbers.0
    }

    /// The value of a [`ParameterType::Duration`], in nanoseconds.
    pub fn nanoseconds(&self, name: &str) -> u64 {
        self.value(name).numbers.0
    }

    /// The value of a [`ParameterType::Ratio`]: over, under.
    pub fn ratio(&self, name: &str) -> (u64, u64) {
        self.value(name).numbers
    }

    fn value(&self, name: &str) -> &ArgumentValue {
        let value = self.values.iter().find(|(known, _)| *known == name);
        &value.unwrap_or_else(|| panic!("the class has no parameter {name}")).1
    }

    /// All with their names: equal for stages that do the same.
    pub fn canonical(&self) -> String {
        let shown = self.values.iter().map(|(name, value)| format!("{name}={:?}", value.text));
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// The parameter that an argument is for.
fn place(
    declared: &StageDraft,
    parameters: &'static [Parameter],
    position: usize,
    argument: &DraftArgument,
) -> Result<usize, SyntaxError> {
    let names = || parameters.iter().map(|parameter| parameter.name).collect::<Vec<_>>().join(", ");
    let fault = |message: String, hint: String| Err(argument.origin.error(message).hint(hint));
    match &argument.key {
        None if position < parameters.len() => Ok(position),
        None => {
            let hint = match parameters {
                [] => "it takes none".to_owned(),
                _ => format!("it input {}", names()),
            };
            fault(format!("`{}` takes no more arguments", declared.class), hint)
        }
        Some(key) => match parameters.iter().position(|parameter| parameter.name == key) {
            Some(at) => Ok(at),
            None => fault(
                format!("`{}` has no argument `{key}`", declared.class),
                format!("it takes {}", names()),
            ),
        },
    }
}

fn value(
    declared: &StageDraft,
    parameter: &Parameter,
    given: Option<&DraftArgument>,
) -> Result<ArgumentValue, SyntaxError> {
    let (origin, value) = match (given, parameter.default) {
        (Some(argument), _) => (argument.origin, parameter.kind.value(&argument.value)),
        // Where a parameter may be left out, its default may be what nobody can write: no file.
        (None, Some(default)) => {
            let absent = ArgumentValue { text: default.to_owned(), numbers: (0, 0) };
            return Ok(parameter.kind.value(&Value::word(default)).unwrap_or(absent));
        }
        (None, None) => (declared.origin, Err(format!("`{}` needs `{}`", declared.class, parameter.name))),
    };
    value.map_err(|why| origin.error(why).hint(format!("{}: {}", parameter.name, parameter.meaning)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_units() {
        assert_eq!(
            [number("10"), number("64k"), number("1.5M"), number("x")],
            [Some(10), Some(64_000), Some(1_500_000), None]
        );
        let times = ["500ms", "1.5s", "2m", "1h", "7us", "9ns"].map(nanoseconds);
        let expected = [500_000_000, 1_500_000_000, 120_000_000_000, 3_600_000_000_000, 7000, 9].map(Some);
        assert_eq!(times, expected);
        assert_eq!(
            [nanoseconds("5"), nanoseconds("s"), nanoseconds("1 s")],
            [Some(5_000_000_000), None, None]
        );
        assert_eq!(
            [ratio("1/100"), ratio("3/2"), ratio("1/0"), ratio("1")],
            [Some((1, 100)), None, None, None]
        );
    }
}
