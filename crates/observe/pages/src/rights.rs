//! Rights of a viewer: counts, names, packets.

/// The rights of a viewer. Each right includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    /// Counts and addresses; no names from payloads.
    Look,
    /// Also names that clients asked for.
    Names,
    /// Also packets, as far as the daemon or the store lets this process have them.
    Packets,
}

impl Rights {
    /// The right as one word.
    pub const fn name(self) -> &'static str {
        match self {
            Rights::Look => "look",
            Rights::Names => "names",
            Rights::Packets => "packets",
        }
    }

    /// The right of a word.
    pub fn of_name(word: &str) -> Option<Rights> {
        [Rights::Look, Rights::Names, Rights::Packets].into_iter().find(|rights| rights.name() == word)
    }
}
