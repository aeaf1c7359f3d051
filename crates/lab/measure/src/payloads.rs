//! Payloads and patterns for searching, from a seed: the same ones in every run.

use std::collections::BTreeSet;
use tapline_arena::random::Random;
use tapline_search::{Pattern, Patterns};

tapline_packet::named_enum! {
    /// Relation of patterns and payloads.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Traffic {
        /// No pattern occurs in any payload.
        Miss = "miss",
        /// One pattern is planted in each payload.
        Match = "match",
        /// As `Match`, and half the patterns are pieces of the same words as the text, with a letter or two changed.
        Alike = "alike",
    }
}

/// Patterns, and payloads to search for them.
pub struct Workload {
    /// Relation of the two.
    pub traffic: Traffic,
    /// The patterns, numbered from 0 in ascending order of their bytes.
    pub patterns: Vec<Pattern>,
    /// Payloads of 1400 to 1500 bytes; text and random bytes alternate.
    pub payloads: Vec<Vec<u8>>,
}

impl Workload {
    /// `count` patterns and `payloads` payloads; with `nocase` all patterns ignore case.
    pub fn new(count: usize, traffic: Traffic, payloads: usize, nocase: bool) -> Workload {
        let mut random = Random::new(1);
        let mut payloads: Vec<Vec<u8>> = (0..payloads).map(|index| payload(&mut random, index)).collect();
        let mut bytes = patterns(&mut random, count, traffic, &payloads, nocase);
        if traffic != Traffic::Miss {
            payloads.iter_mut().for_each(|payload| plant(&mut random, payload, &bytes));
        }
        bytes.sort_unstable();
        Workload { traffic, patterns: numbered(bytes, nocase), payloads }
    }

    /// Length of all payloads together, in bytes.
    pub fn bytes(&self) -> usize {
        self.payloads.iter().map(Vec::len).sum()
    }
}

/// 1400 to 1500 bytes; text and random bytes by turns.
fn payload(random: &mut Random, index: usize) -> Vec<u8> {
    let len = random.between(1400..=1500) as usize;
    if index.is_multiple_of(2) { text(random, len) } else { random.bytes(len) }
}

fn text(random: &mut Random, len: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        text.extend_from_slice(random.pick(WORDS).as_bytes());
        let between: &&str = random.pick(&[" ", " ", " ", " ", ", ", ". ", "\r\n", "/"]);
        text.extend_from_slice(between.as_bytes());
    }
    text.truncate(len);
    text
}

/// `count` different patterns of 6 to 15 bytes, half of them printable; none occurs in the payloads.
fn patterns(
    random: &mut Random,
    count: usize,
    traffic: Traffic,
    payloads: &[Vec<u8>],
    nocase: bool,
) -> Vec<Vec<u8>> {
    let mut all = BTreeSet::new();
    loop {
        while all.len() < count {
            let len = random.between(6..=15) as usize;
            all.insert(match (all.len() % 2, traffic) {
                (0, _) => random.bytes(len),
                (_, Traffic::Alike) => misspelt(random, len),
                _ => token(random, len),
            });
        }
        let patterns: Vec<Vec<u8>> = all.iter().cloned().collect();
        let occurring = occurring(&patterns, payloads, nocase);
        if occurring.is_empty() {
            return patterns;
        }
        all.retain(|pattern| !occurring.contains(pattern));
    }
}

fn occurring(patterns: &[Vec<u8>], payloads: &[Vec<u8>], nocase: bool) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    // Making the set cannot fail: there are patterns, none of them empty or long.
    if let Ok(search) = Patterns::new(numbered(patterns.to_vec(), nocase)) {
        let payloads = payloads.iter().map(Vec::as_slice);
        search.for_each_in(payloads, |_, each| _ = found.insert(patterns[each.id as usize].clone()));
    }
    found
}

/// Like the names, paths and agents that signatures look for.
fn token(random: &mut Random, len: usize) -> Vec<u8> {
    let mut token = Vec::with_capacity(len + 2);
    while token.len() < len {
        if random.one_of(1, 4) {
            token.push(*random.pick(b"0123456789/._-=:?&%"));
        } else {
            token.extend([*random.pick(b"bcdfghjklmnprstvwz"), *random.pick(b"aeiou")]);
        }
    }
    token.truncate(len);
    token
}

/// A piece of text with two letters changed, perhaps into themselves.
fn misspelt(random: &mut Random, len: usize) -> Vec<u8> {
    let mut piece = text(random, len);
    for _ in 0..2 {
        let at = random.below(len as u64) as usize;
        piece[at] = random.between(u64::from(b'a')..=u64::from(b'z')) as u8;
    }
    piece
}

fn plant(random: &mut Random, payload: &mut [u8], patterns: &[Vec<u8>]) {
    let pattern = random.pick(patterns);
    let at = random.below((payload.len() - pattern.len()) as u64) as usize;
    payload[at..at + pattern.len()].copy_from_slice(pattern);
}

/// Frequent words of English, and of the web.
const WORDS: &[&str] = &[
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "be",
    "by",
    "on",
    "not",
    "he",
    "his",
    "but",
    "at",
    "are",
    "this",
    "have",
    "from",
    "or",
    "had",
    "an",
    "they",
    "which",
    "one",
    "you",
    "were",
    "all",
    "her",
    "there",
    "would",
    "their",
    "we",
    "him",
    "been",
    "has",
    "when",
    "who",
    "will",
    "no",
    "more",
    "if",
    "out",
    "so",
    "up",
    "said",
    "what",
    "its",
    "about",
    "than",
    "into",
    "them",
    "can",
    "only",
    "other",
    "time",
    "new",
    "some",
    "could",
    "these",
    "two",
    "may",
    "first",
    "then",
    "do",
    "any",
    "like",
    "my",
    "now",
    "over",
    "such",
    "our",
    "man",
    "me",
    "even",
    "most",
    "made",
    "after",
    "also",
    "well",
    "before",
    "must",
    "through",
    "years",
    "much",
    "where",
    "your",
    "way",
    "down",
    "should",
    "because",
    "long",
    "each",
    "just",
    "state",
    "those",
    "people",
    "too",
    "how",
    "little",
    "good",
    "world",
    "make",
    "very",
    "year",
    "still",
    "see",
    "own",
    "work",
    "men",
    "day",
    "get",
    "here",
    "old",
    "life",
    "both",
    "between",
    "being",
    "under",
    "three",
    "never",
    "know",
    "same",
    "last",
    "another",
    "while",
    "great",
    "come",
    "since",
    "against",
    "right",
    "came",
    "take",
    "used",
    "himself",
    "few",
    "house",
    "use",
    "place",
    "during",
    "without",
    "again",
    "home",
    "around",
    "small",
    "however",
    "found",
    "part",
    "school",
    "thought",
    "general",
    "once",
    "high",
    "upon",
    "every",
    "left",
    "number",
    "course",
    "water",
    "until",
    "always",
    "away",
    "public",
    "something",
    "fact",
    "less",
    "though",
    "far",
    "put",
    "head",
    "think",
    "called",
    "set",
    "almost",
    "enough",
    "end",
    "took",
    "government",
    "night",
    "yet",
    "system",
    "better",
    "four",
    "nothing",
    "told",
    "eyes",
    "city",
    "going",
    "days",
    "present",
    "point",
    "look",
    "find",
    "second",
    "group",
    "later",
    "next",
    "room",
    "social",
    "business",
    "knew",
    "program",
    "give",
    "half",
    "side",
    "face",
    "HTTP",
    "GET",
    "POST",
    "Host",
    "Accept",
    "Content-Type",
    "text",
    "html",
    "application",
    "json",
    "Connection",
    "keep-alive",
    "Cookie",
    "session",
    "index",
    "image",
    "style",
    "script",
    "href",
    "http",
    "https",
    "www",
    "com",
    "org",
    "User-Agent",
    "Mozilla",
    "Server",
    "Date",
    "Cache-Control",
    "gzip",
    "charset",
    "utf",
    "login",
    "user",
    "name",
];

/// Patterns of these bytes, numbered from 0.
pub fn numbered(bytes: Vec<Vec<u8>>, nocase: bool) -> Vec<Pattern> {
    bytes.into_iter().zip(0..).map(|(bytes, id)| Pattern { id, bytes, nocase }).collect()
}
