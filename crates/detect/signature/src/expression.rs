//! Regular expressions of `pcre`, with a bound on their work.
//!
//! ```text
//! states few     regex: bytes times states at worst, which steps count
//! states many    a lazy automaton: bytes, and its own states as long as its memory lasts; then it gives up
//! ```
//!
//! A counted repetition has as many states as it counts, and a hostile payload keeps all of them busy at every byte.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};
use regex_automata::Input;
use regex_automata::hybrid::{dfa, regex as lazy};
use regex_automata::nfa::thompson;
use regex_automata::util::pool::Pool;
use regex_automata::util::syntax;

/// Bytes that a compiled regular expression may take: it is charged the first size in which it fits, and as much for
/// each of its two caches.
const SIZES: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// States up to which an expression counts as one of few.
const STATES_FEW: usize = 256;
/// Few states for which a byte costs a step.
const STATES_PER_STEP: usize = 16;
/// The most steps for a byte: the longest payload can be searched once.
const BYTE_STEPS_MAX: usize = 3;
/// Bytes that a cache of an expression of many states takes: some thousand states of the automaton.
const CACHE_BYTES: usize = 1 << 20;
/// Bytes of payload for each state of a full cache before it is filled again.
const BYTES_PER_STATE: usize = 100;

/// The search would take too long.
#[derive(Debug)]
pub(crate) struct GaveUp;

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    /// With few states.
    Few {
        /// The expression.
        regex: Regex,
        byte_steps: usize,
    },
    /// With many.
    Many(Arc<Lazy>),
}

type CacheMaker = Box<dyn Fn() -> lazy::Cache + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// An automaton whose states are made when a payload needs them, with a cache for each thread.
#[derive(Debug)]
pub(crate) struct Lazy {
    regex: Arc<lazy::Regex>,
    caches: Pool<lazy::Cache, CacheMaker>,
}

impl Expression {
    /// Compiles an expression. Returns it with the bytes of memory that it may take.
    ///
    /// # Errors
    /// Why it is none.
    pub(crate) fn new(text: &str) -> Result<(Expression, usize), String> {
        let (regex, size) = built(text).map_err(|error| reason(&error))?;
        let nfa = thompson::Compiler::new().syntax(bytes_only()).configure(nfa_config()).build(text);
        let states = nfa.map_err(|error| error.to_string())?.states().len();
        if states <= STATES_FEW {
            let byte_steps = states.div_ceil(STATES_PER_STEP).min(BYTE_STEPS_MAX);
            return Ok((Expression::Few { regex, byte_steps }, 3 * size));
        }
        let lazy = Lazy::new(text)?;
        Ok((Expression::Many(Arc::new(lazy)), 3 * size.max(CACHE_BYTES)))
    }

    /// The steps that a search in some bytes counts as.
    pub(crate) fn steps(&self, bytes: usize) -> usize {
        match self {
            Expression::Few { byte_steps, .. } => bytes.saturating_mul(*byte_steps),
            Expression::Many(_) => bytes,
        }
    }

    /// The first match in `haystack` that begins at `from` or behind: its start and end.
    pub(crate) fn find_at(&self, haystack: &[u8], from: usize) -> Result<Option<(usize, usize)>, GaveUp> {
        if from > haystack.len() {
            return Ok(None);
        }
        match self {
            Expression::Few { regex, .. } => {
                Ok(regex.find_at(haystack, from).map(|found| (found.start(), found.end())))
            }
            Expression::Many(lazy) => {
                let found =
                    lazy.regex.try_search(&mut lazy.caches.get(), &Input::new(haystack).range(from..));
                found.map(|found| found.map(|found| (found.start(), found.end()))).map_err(|_| GaveUp)
            }
        }
    }
}

impl Lazy {
    fn new(text: &str) -> Result<Lazy, String> {
        let cache = dfa::Config::new()
            .cache_capacity(CACHE_BYTES)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(0))
            .minimum_bytes_per_state(Some(BYTES_PER_STATE));
        let regex = lazy::Builder::new().syntax(bytes_only()).thompson(nfa_config()).dfa(cache).build(text);
        let regex = Arc::new(regex.map_err(|error| error.to_string())?);
        let maker = Arc::clone(&regex);
        let make: CacheMaker = Box::new(move || maker.create_cache());
        Ok(Lazy { regex, caches: Pool::new(make) })
    }
}

/// Payloads are bytes.
fn bytes_only() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false)
}

fn nfa_config() -> thompson::Config {
    thompson::Config::new().utf8(false).nfa_size_limit(Some(SIZES[SIZES.len() - 1]))
}

/// A regular expression, and the least of the sizes in which it fits.
fn built(text: &str) -> Result<(Regex, usize), regex::Error> {
    let build = |size| {
        let mut builder = RegexBuilder::new(text);
        builder.unicode(false).size_limit(size).dfa_size_limit(size).build().map(|regex| (regex, size))
    };
    let mut outcome = build(SIZES[0]);
    for size in &SIZES[1..] {
        if !matches!(outcome, Err(regex::Error::CompiledTooBig(_))) {
            break;
        }
        outcome = build(*size);
    }
    outcome
}

/// The last line of an error that shows the expression first.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_testkit::random::Random;

    fn many(text: &str) -> Expression {
        let (expression, _) = Expression::new(text).expect(text);
        assert!(matches!(expression, Expression::Many(_)), "{text}");
        expression
    }

    #[test]
    fn both_kinds_find_the_same() {
        let mut random = Random::new(3);
        for text in ["[^\\n]{300}", "a[ab]{290,}?c", "(?i)x.{400}y$", r"\bab{0,500}\b", "^[ab]{256}"] {
            let (lazy, (regex, _)) = (many(text), built(text).expect(text));
            for _ in 0..50 {
                let len = random.below(900) as usize;
                let payload: Vec<u8> =
                    (0..len).map(|_| *random.pick(b"aaaaaaaabbbbbbbbcxXyY \n\xff")).collect();
                let from = random.below(20) as usize;
                let expected = match from <= len {
                    true => regex.find_at(&payload, from).map(|found| (found.start(), found.end())),
                    false => None,
                };
                assert_eq!(
                    lazy.find_at(&payload, from).expect("it is short"),
                    expected,
                    "{text} {payload:?}"
                );
            }
        }
    }

    #[test]
    fn hostile_payloads_have_bounded_costs() {
        let (expression, mut random) = (many("a[ab]{900}c"), Random::new(5));
        let mut given_up = 0;
        for _ in 0..200 {
            let payload: Vec<u8> = (0..1400).map(|_| *random.pick(b"ab")).collect();
            given_up += usize::from(expression.find_at(&payload, 0).is_err());
        }
        assert!(given_up > 150, "{given_up}");
        // A payload of the usual kind is searched meanwhile.
        assert!(matches!(expression.find_at(&[b'x'; 1400], 0), Ok(None)));
    }
}
