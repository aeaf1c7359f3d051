//! Arguments of stages: their declared types, and their values.

use tapline_syntax::units;

use crate::language::{Argument, Span, StageDeclaration, SyntaxError};

/// An argument that a class takes.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// The type of the argument.
    pub kind: ParameterType,
    /// The default value; `None` if the argument is required.
    pub default: Option<&'static str>,
    /// The meaning, as `tapline run --stages` shows it.
    pub meaning: &'static str,
}

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterType {
    /// Any text.
    Text,
    /// The name of a file.
    Path,
    /// The text of a filter, as `tapline filter explain` takes it.
    Filter,
    /// A recipe for packets, as `tapline generate` takes it.
    Recipe,
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
            ParameterType::Filter => "filter".to_owned(),
            ParameterType::Recipe => "recipe".to_owned(),
            ParameterType::Number(min, u64::MAX) => format!("number, {min} or more"),
            ParameterType::Number(min, max) => format!("number, {min} to {max}"),
            ParameterType::Duration => "time, such as 500ms, 10s, 5m, 1h".to_owned(),
            ParameterType::Ratio => "share, such as 1/100".to_owned(),
            ParameterType::Choice(words) => words.join(" or "),
        }
    }

    fn check(self, text: &str) -> Result<(), String> {
        let is_right = match self {
            ParameterType::Text => true,
            ParameterType::Path => !text.is_empty(),
            ParameterType::Filter => {
                return tapline_filter::parse(text).map(|_| ()).map_err(|error| error.render(text));
            }
            ParameterType::Recipe => {
                return tapline_traffic::Recipe::parse(text).map(|_| ()).map_err(|error| error.render(text));
            }
            ParameterType::Number(min, max) => {
                number(text).is_some_and(|number| (min..=max).contains(&number))
            }
            ParameterType::Duration => nanoseconds(text).is_some(),
            ParameterType::Ratio => ratio(text).is_some(),
            ParameterType::Choice(words) => words.contains(&text),
        };
        if is_right { Ok(()) } else { Err(format!("`{text}` is not what it may be: {}", self.shown())) }
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

/// A stage's arguments, checked: every parameter of its class has a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    values: Vec<(&'static str, String)>,
}

impl Arguments {
    /// Checks what was written against what the class takes.
    pub(crate) fn check(
        declared: &StageDeclaration,
        parameters: &'static [Parameter],
    ) -> Result<Arguments, SyntaxError> {
        let mut given: Vec<Option<&Argument>> = vec![None; parameters.len()];
        for (position, argument) in declared.arguments.iter().enumerate() {
            let at = place(declared, parameters, position, argument)?;
            if let Some(before) = given[at].replace(argument) {
                let message = format!("`{}` is given twice", parameters[at].name);
                return Err(SyntaxError::at(argument.span, message).with_earlier_place(before.span));
            }
        }
        let mut values = Vec::new();
        for (parameter, given) in parameters.iter().zip(given) {
            values.push((parameter.name, value(declared, parameter, given)?));
        }
        Ok(Arguments { values })
    }

    /// Arguments that are right by their making.
    pub(crate) fn of(values: &[(&'static str, String)]) -> Arguments {
        Arguments { values: values.to_vec() }
    }

    /// The value of a parameter as text.
    ///
    /// # Panics
    /// If the class has no such parameter.
    pub fn text(&self, name: &str) -> &str {
        let value = self.values.iter().find(|(known, _)| *known == name);
        &value.unwrap_or_else(|| panic!("the class has no parameter {name}")).1
    }

    /// The value of a parameter, if the class has it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a [`ParameterType::Number`].
    pub fn number(&self, name: &str) -> u64 {
        number(self.text(name)).unwrap_or(0)
    }

    /// The value of a [`ParameterType::Duration`], in nanoseconds.
    pub fn nanoseconds(&self, name: &str) -> u64 {
        nanoseconds(self.text(name)).unwrap_or(0)
    }

    /// The value of a [`ParameterType::Ratio`]: over, under.
    pub fn ratio(&self, name: &str) -> (u64, u64) {
        ratio(self.text(name)).unwrap_or((1, 1))
    }

    /// All with their names: equal for stages that do the same.
    pub fn canonical(&self) -> String {
        let shown = self.values.iter().map(|(name, value)| format!("{name}={value:?}"));
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// Which parameter an argument is for.
fn place(
    declared: &StageDeclaration,
    parameters: &'static [Parameter],
    position: usize,
    argument: &Argument,
) -> Result<usize, SyntaxError> {
    let names = || parameters.iter().map(|parameter| parameter.name).collect::<Vec<_>>().join(", ");
    let Some(key) = &argument.key else {
        if position < parameters.len() {
            return Ok(position);
        }
        let message = format!("`{}` takes no more arguments", declared.class);
        let hint =
            if parameters.is_empty() { "it takes none".to_owned() } else { format!("it input {}", names()) };
        return Err(SyntaxError::at(argument.span, message).hint(hint));
    };
    parameters.iter().position(|parameter| parameter.name == key).ok_or_else(|| {
        let message = format!("`{}` has no argument `{key}`", declared.class);
        SyntaxError::at(argument.span, message).hint(format!("it takes {}", names()))
    })
}

fn value(
    declared: &StageDeclaration,
    parameter: &Parameter,
    given: Option<&Argument>,
) -> Result<String, SyntaxError> {
    match (given, parameter.default) {
        (Some(argument), _) => match parameter.kind.check(&argument.value) {
            Ok(()) => Ok(argument.value.clone()),
            Err(why) => {
                let hint = format!("{}: {}", parameter.name, parameter.meaning);
                Err(SyntaxError::at(argument.span, why).hint(hint))
            }
        },
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => {
            let message = format!("`{}` needs `{}`", declared.class, parameter.name);
            Err(SyntaxError::at(Span { ..declared.span }, message)
                .hint(format!("{}: {}", parameter.name, parameter.meaning)))
        }
    }
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

    #[test]
    fn every_class_takes_the_units_of_the_docs() {
        let input = |kind: ParameterType, text: &str| kind.check(text).is_ok();
        for class in super::super::CLASSES {
            for parameter in class.parameters {
                let shown = format!("{}({})", class.name, parameter.name);
                match parameter.kind {
                    ParameterType::Duration => {
                        assert!(
                            ["90", "1.5s", "500us", "1d"].iter().all(|text| input(parameter.kind, text)),
                            "{shown}"
                        );
                        assert!(
                            ["5x", "1 s", "1M"].iter().all(|text| !input(parameter.kind, text)),
                            "{shown}"
                        );
                    }
                    ParameterType::Number(..) => {
                        let fractions = ["0.001k", "0.01k", "1.5k", "1.5M"];
                        assert!(fractions.iter().any(|text| input(parameter.kind, text)), "{shown}");
                        assert!(
                            ["1m", "1.5", "64Ki"].iter().all(|text| !input(parameter.kind, text)),
                            "{shown}"
                        );
                    }
                    _ => {}
                }
            }
        }
    }
}
