//! Patterns of interface names.
//!
//! ```text
//! pattern := "any"                every interface there is, and those that come later
//!          | glob                 a name with `*`, `?` or `[...]`: likewise, those that match
//!          | name                 this one, also when it comes back under its name
//!          | number               as `-D` and `tapline interfaces` count them, if no interface has it for a name
//! ```

use tapline_sys::Link;

use super::AfPacketError;

/// The wanted interfaces, resolved as far as it can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patterns {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Any,
    Glob(String),
    Name(String),
}

impl Patterns {
    /// Looks the words up among `links`.
    ///
    /// # Errors
    /// [`AfPacketError::NoSuchInterface`] for a word that means nothing here, unless it may come later (a glob).
    pub(crate) fn resolve(words: &[String], links: &[Link]) -> Result<Patterns, AfPacketError> {
        let patterns = words.iter().map(|word| resolve(word, links)).collect::<Result<_, _>>()?;
        Ok(Patterns { patterns })
    }

    /// Whether an interface of this name is meant.
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| match pattern {
            Pattern::Any => true,
            Pattern::Glob(glob) => matches_glob(glob.as_bytes(), name.as_bytes()),
            Pattern::Name(wanted) => wanted == name,
        })
    }

    /// Whether it was requested by a name or a glob, and not only as one of all.
    pub(crate) fn is_chosen(&self, name: &str) -> bool {
        let chosen = self.patterns.iter().filter(|pattern| **pattern != Pattern::Any).cloned().collect();
        Patterns { patterns: chosen }.matches(name)
    }

    /// Whether it was requested by its own name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| matches!(pattern, Pattern::Name(wanted) if wanted == name))
    }

    /// Whether interfaces that come later may be meant.
    pub(crate) fn is_open(&self) -> bool {
        self.patterns.iter().any(|pattern| !matches!(pattern, Pattern::Name(_)))
    }
}

/// Whether a word means interfaces that come later, too: `any`, or a glob.
pub fn is_pattern(word: &str) -> bool {
    word == "any" || is_glob(word)
}

fn is_glob(word: &str) -> bool {
    word.contains(['*', '?', '['])
}

fn resolve(word: &str, links: &[Link]) -> Result<Pattern, AfPacketError> {
    if word == "any" {
        return Ok(Pattern::Any);
    }
    if links.iter().any(|link| link.name == word) {
        return Ok(Pattern::Name(word.to_owned()));
    }
    if is_glob(word) {
        return Ok(Pattern::Glob(word.to_owned()));
    }
    let by_number =
        word.parse::<u32>().ok().and_then(|number| links.iter().find(|link| link.index == number));
    match by_number {
        Some(link) => Ok(Pattern::Name(link.name.clone())),
        None => Err(no_such_interface(word, links)),
    }
}

fn no_such_interface(word: &str, links: &[Link]) -> AfPacketError {
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    let nearest = names.iter().min_by_key(|name| distance(word, name));
    let guess = match nearest.filter(|name| distance(word, name) <= word.len().div_ceil(3)) {
        Some(name) => format!(" (did you mean {name:?}?)"),
        None => String::new(),
    };
    let present = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    AfPacketError::NoSuchInterface { wanted: word.to_owned(), guess, present }
}

/// Number of letters that must be added, removed or changed to make one word of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

/// Shell patterns: `*` any bytes, `?` one byte, `[abc]`, `[a-z]`, `[!a]`. Time is the product of the lengths at most.
fn matches_glob(glob: &[u8], name: &[u8]) -> bool {
    let (mut g, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if glob.get(g) == Some(&b'*') {
            star = Some((g, n));
            g += 1;
        } else if let Some(len) = matches_one(&glob[g..], name[n]) {
            g += len;
            n += 1;
        } else if let Some((at, from)) = star {
            // Let the last star take one byte more.
            star = Some((at, from + 1));
            (g, n) = (at + 1, from + 1);
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|&byte| byte == b'*')
}

/// Whether the first element of a pattern, which is not a star, matches this byte; if so, the length of the element.
fn matches_one(glob: &[u8], byte: u8) -> Option<usize> {
    match glob.first()? {
        b'?' => Some(1),
        b'[' => matches_class(glob, byte),
        &literal => (literal == byte).then_some(1),
    }
}

fn matches_class(glob: &[u8], byte: u8) -> Option<usize> {
    let Some(end) = glob.iter().skip(2).position(|&b| b == b']').map(|at| at + 2) else {
        return (byte == b'[').then_some(1);
    };
    let is_negated = matches!(glob[1], b'!' | b'^');
    let members = &glob[1 + usize::from(is_negated)..end];
    let mut found = false;
    let mut at = 0;
    while at < members.len() {
        let is_range = members.get(at + 1) == Some(&b'-') && at + 2 < members.len();
        let last = if is_range { members[at + 2] } else { members[at] };
        found |= (members[at]..=last).contains(&byte);
        at += if is_range { 3 } else { 1 };
    }
    (found != is_negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(names: &[&str]) -> Vec<Link> {
        let link = |(index, name): (usize, &&str)| Link {
            index: index as u32 + 1,
            name: (*name).to_owned(),
            ..Link::default()
        };
        names.iter().enumerate().map(link).collect()
    }

    #[test]
    fn globs() {
        let cases = [
            ("eth*", "eth0", true),
            ("eth*", "veth0", false),
            ("*eth*", "veth0", true),
            ("eth?", "eth10", false),
            ("eth[0-3]", "eth2", true),
            ("eth[!0-3]", "eth2", false),
            ("eth[!0-3]", "eth7", true),
            ("*", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("[", "[", true),
            ("[]a]", "]", true),
            ("", "x", false),
        ];
        for (glob, name, expected) in cases {
            assert_eq!(matches_glob(glob.as_bytes(), name.as_bytes()), expected, "{glob} {name}");
        }
    }

    #[test]
    fn a_glob_full_of_stars_is_not_slow() {
        assert!(!matches_glob("*a".repeat(50).as_bytes(), "a".repeat(49).as_bytes()));
    }

    #[test]
    fn names_take_precedence_over_globs_and_numbers() {
        let links = links(&["lo", "eth0", "3", "we*rd"]);
        let words = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            Patterns::resolve(&words, &links)
        };
        assert!(words(&["2"]).unwrap().is_named("eth0"));
        assert!(words(&["3"]).unwrap().is_named("3"));
        assert!(words(&["we*rd"]).unwrap().is_named("we*rd"));
        let open = words(&["lo", "et*"]).unwrap();
        assert!(open.matches("eth9") && open.matches("lo") && !open.matches("wlan0") && open.is_open());
        let any = words(&["any", "lo"]).unwrap();
        assert!(any.matches("whatever") && !any.is_chosen("whatever") && any.is_chosen("lo"));
        assert!(!words(&["lo"]).unwrap().is_open());
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let links = links(&["lo", "eth0"]);
        let text = |word: &str| Patterns::resolve(&[word.to_owned()], &links).unwrap_err().to_string();
        assert_eq!(
            text("etho"),
            "there is no interface \"etho\" (did you mean \"eth0\"?); there are: lo, eth0"
        );
        assert_eq!(text("wlp3s0"), "there is no interface \"wlp3s0\"; there are: lo, eth0");
    }
}
