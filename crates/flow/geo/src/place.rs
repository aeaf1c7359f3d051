use std::fmt;

/// The most bytes of a name; a longer one in an MMDB file counts as unknown, in a text file it is a mistake.
pub const TEXT_MAX: usize = 255;

/// The facts about an address. Unknown texts are empty, and unknown numbers are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place<'a> {
    /// The country: two letters of ISO 3166-1 in all published files.
    pub country: &'a str,
    /// The number of the autonomous system (RFC 6793).
    pub as_number: u32,
    /// The name of the autonomous system.
    pub as_name: &'a str,
    /// The name of the network.
    pub network_name: &'a str,
}

impl<'a> Place<'a> {
    /// The fields of this place, and those of `other` where this one has none. Number and name of an autonomous system
    /// come from one of the two, so that they are of the same system.
    #[must_use]
    pub fn or(self, other: Place<'a>) -> Place<'a> {
        let text = |one: &'a str, other: &'a str| if one.is_empty() { other } else { one };
        let is_same_as = self.as_number == other.as_number;
        let (as_number, as_name) = match (self.as_number, self.as_name) {
            (0, "") => (other.as_number, other.as_name),
            (number, "") if is_same_as => (number, other.as_name),
            system => system,
        };
        Place {
            country: text(self.country, other.country),
            as_number,
            as_name,
            network_name: text(self.network_name, other.network_name),
        }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Place::default()
    }
}

/// The fields that are known: `office, DE, AS64496 Example`.
impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for text in [self.network_name, self.country].into_iter().filter(|text| !text.is_empty()) {
            write!(f, "{separator}{text}")?;
            separator = ", ";
        }
        match (self.as_number, self.as_name) {
            (0, "") => Ok(()),
            (0, name) => write!(f, "{separator}{name}"),
            (number, "") => write!(f, "{separator}AS{number}"),
            (number, name) => write!(f, "{separator}AS{number} {name}"),
        }
    }
}

/// Whether a text is safe in records and on terminals.
pub(crate) fn is_plain(text: &str) -> bool {
    text.len() <= TEXT_MAX && !text.chars().any(char::is_control)
}
