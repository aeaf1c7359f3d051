//! Every engine has the results of the plain search, on sets and haystacks made to be hard.

use proptest::prelude::*;
use std::ops::ControlFlow;
use tapline_search::{Match, Pattern, Patterns, SearchEngine, StreamMatch, StreamState, find_all_naive};

const ENGINES: [SearchEngine; 4] =
    [SearchEngine::Single, SearchEngine::Teddy, SearchEngine::Grams, SearchEngine::Automaton];

/// Bytes of few kinds, so that patterns overlap, repeat and are prefixes of each other.
fn few_letters(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(&b"aAbB@`\x00\xff"[..]), len)
}

fn any_bytes(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), len)
}

/// Sets of one pattern, a few, many; short, long, of all lengths; with and without case.
fn sets() -> impl Strategy<Value = Vec<Pattern>> {
    let bytes = prop_oneof![
        few_letters(1..4),
        few_letters(4..12),
        few_letters(12..30),
        any_bytes(1..3),
        any_bytes(4..20),
        Just(b"abab".to_vec()),
    ];
    let counts = prop_oneof![1..2_usize, 2..12_usize, 12..120_usize, 300..400_usize];
    let case = prop_oneof![Just(0.0), Just(0.5), Just(1.0)];
    (counts, case).prop_flat_map(move |(count, case)| {
        let one = (bytes.clone(), prop::bool::weighted(case));
        prop::collection::vec(one, count).prop_map(|set| {
            let numbered = set.into_iter().zip((0..).map(|index: u32| index * 3 + 1));
            numbered.map(|((bytes, nocase), id)| Pattern { id, bytes, nocase }).collect()
        })
    })
}

/// Noise, with patterns of the set (in either case) put in, at the borders too.
fn haystacks(patterns: &[Pattern]) -> impl Strategy<Value = Vec<u8>> + use<> {
    let bytes: Vec<Vec<u8>> = patterns.iter().map(|pattern| pattern.bytes.clone()).collect();
    let planted = (prop::sample::select(bytes), any::<bool>()).prop_map(|(mut bytes, shout)| {
        if shout {
            bytes.make_ascii_uppercase();
        }
        bytes
    });
    let part = prop_oneof![planted, few_letters(0..9), any_bytes(0..40)];
    prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

fn cases() -> impl Strategy<Value = (Vec<Pattern>, Vec<u8>)> {
    sets().prop_flat_map(|set| (haystacks(&set), Just(set)).prop_map(|(haystack, set)| (set, haystack)))
}

/// The set with each engine that takes it, and with the one that is chosen.
fn engines(patterns: &[Pattern]) -> Vec<Patterns> {
    let fixed = ENGINES.iter().filter_map(|engine| Patterns::with_engine(patterns.to_vec(), *engine).ok());
    let all: Vec<Patterns> = fixed.chain([Patterns::new(patterns.to_vec()).unwrap()]).collect();
    let has = |engine| all.iter().any(|search| search.engine() == engine);
    assert!(has(SearchEngine::Grams) && has(SearchEngine::Automaton));
    all
}

fn ensure_all(searches: &Patterns, haystack: &[u8], expected: &[Match]) {
    let engine = searches.engine();
    assert_eq!(searches.find_all(haystack), expected, "{engine}");
    assert_eq!(searches.count(haystack), expected.len() as u64, "{engine}");
    assert_eq!(searches.is_match(haystack), !expected.is_empty(), "{engine}");
    assert_eq!(searches.find(haystack), expected.first().copied(), "{engine}");
}

fn ensure_law(patterns: &[Pattern], haystack: &[u8]) {
    let expected = find_all_naive(patterns, haystack);
    for searches in engines(patterns) {
        ensure_all(&searches, haystack, &expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn engines_equal_the_plain_search((patterns, haystack) in cases()) {
        ensure_law(&patterns, &haystack);
    }

    #[test]
    fn pieces_of_a_stream_equal_the_whole(
        (patterns, whole) in cases(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
        cuts.extend([0, whole.len()]);
        cuts.sort_unstable();
        let expected: Vec<StreamMatch> = find_all_naive(&patterns, &whole).into_iter().map(in_stream).collect();
        for searches in engines(&patterns) {
            let mut stream = StreamState::new();
            let mut found = Vec::new();
            for cut in cuts.windows(2) {
                let seen = cut[1] as u64;
                stream.push(&searches, &whole[cut[0]..cut[1]], |each| {
                    assert!(each.end <= seen && each.end > cut[0] as u64);
                    found.push(each);
                });
            }
            found.sort_unstable();
            prop_assert_eq!(stream.position(), whole.len() as u64);
            prop_assert_eq!(&found, &expected, "{}", searches.engine());
        }
    }
}

fn in_stream(found: Match) -> StreamMatch {
    StreamMatch { start: found.start as u64, id: found.id, end: found.end as u64 }
}

fn numbered(bytes: impl IntoIterator<Item = Vec<u8>>) -> Vec<Pattern> {
    bytes.into_iter().zip(0..).map(|(bytes, id)| Pattern::new(id, bytes)).collect()
}

#[test]
fn chains_of_prefixes_and_suffixes() {
    let word = b"abcdefghijklmnop";
    let prefixes = (1..=word.len()).map(|len| word[..len].to_vec());
    let suffixes = (1..word.len()).map(|from| word[from..].to_vec());
    let patterns = numbered(prefixes.chain(suffixes));
    ensure_law(&patterns, &word.repeat(5));
    ensure_law(&patterns, &word[..word.len() - 1].repeat(40));
}

#[test]
fn one_byte_everywhere() {
    let patterns = numbered((1..60).map(|len| vec![0; len]));
    ensure_law(&patterns, &[0; 500]);
    ensure_law(&patterns[..1], &[0; 500]);
}

#[test]
fn every_offset_and_length_of_haystack() {
    let patterns =
        numbered([b"needle".to_vec(), b"need".to_vec(), b"a-longer-needle".to_vec(), b"le".to_vec()]);
    let searches = engines(&patterns);
    for len in 0..200 {
        for at in (0..len).step_by(3) {
            let mut haystack = vec![b'.'; len];
            let word = &b"a-longer-needle"[..15.min(len - at)];
            haystack[at..at + word.len()].copy_from_slice(word);
            let expected = find_all_naive(&patterns, &haystack);
            searches.iter().for_each(|search| ensure_all(search, &haystack, &expected));
        }
    }
}

#[test]
fn spellings_of_one_word() {
    let spelling = |bits: u32| -> Vec<u8> {
        (0..8).map(|bit| if bits >> bit & 1 == 1 { b'A' + bit as u8 } else { b'a' + bit as u8 }).collect()
    };
    let mut patterns = numbered((0..256).map(spelling));
    patterns.push(Pattern::nocase(1000, "abcdefgh"));
    patterns.push(Pattern::new(1001, "abcdefgh"));
    ensure_law(&patterns, b"abcdefghABCDEFGHaBcDeFgH_abcdefg");
}

/// Pieces of patterns without any pattern: the table of pieces gives up and the automaton goes on.
#[test]
fn traffic_made_to_slow_the_search() {
    for (count, tail) in [(3000_u32, 8), (200, 40)] {
        let pattern = |index: u32| [b"abcdefg".as_slice(), &vec![b'x'; tail], &index.to_be_bytes()].concat();
        let mut patterns = numbered((0..count).map(pattern));
        patterns
            .extend((0..40).map(|index: u8| Pattern::new(9000 + u32::from(index), vec![b'g', b'x', index])));
        let mut haystack = [b"abcdefg".as_slice(), &vec![b'x'; tail], &[0, 0, 0xee]].concat().repeat(50);
        haystack.extend_from_slice(&patterns[7].bytes.clone());
        haystack.extend_from_slice(b"gx\x03");
        ensure_law(&patterns, &haystack);
    }
}

#[test]
fn long_haystacks() {
    let patterns: Vec<Pattern> = numbered((0..500_u32).map(|index| {
        let seed = index.wrapping_mul(2_654_435_761).to_be_bytes();
        seed.into_iter().chain(*b"tail").cycle().take(4 + index as usize % 9).collect()
    }));
    let mut haystack: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    for (index, pattern) in patterns.iter().enumerate() {
        let at = index * 599 + 3;
        haystack[at..at + pattern.bytes.len()].copy_from_slice(&pattern.bytes);
    }
    // Across the border of the stretches in which letters are folded.
    haystack[(1 << 16) - 3..][..8].copy_from_slice(b"NeedLess");
    let folding =
        patterns.iter().cloned().chain([Pattern::nocase(900, "needless"), Pattern::new(901, "ess")]);
    for patterns in [patterns.clone(), folding.collect()] {
        let expected = find_all_naive(&patterns, &haystack);
        assert!(expected.len() >= 500);
        for search in engines(&patterns) {
            ensure_all(&search, &haystack, &expected);
        }
    }
}

#[test]
fn batches() {
    let payloads: [&[u8]; 4] = [b"nothing", b"a needle", b"", b"needleneedle"];
    for search in engines(&numbered([b"needle".to_vec(), b"eedl".to_vec()])) {
        let (mut hits, mut all) = (Vec::new(), Vec::new());
        search.for_each_matching_payload(payloads, |index| hits.push(index));
        search.for_each_in(payloads, |index, found| all.push((index, found.start, found.id)));
        all.sort_unstable();
        assert_eq!(hits, [1, 3]);
        assert_eq!(all, [(1, 2, 0), (1, 3, 1), (3, 0, 0), (3, 1, 1), (3, 6, 0), (3, 7, 1)]);
    }
}

#[test]
fn a_search_ends_when_told() {
    for search in engines(&numbered([b"aa".to_vec()])) {
        let mut seen = 0;
        let end = search.try_for_each(&[b'a'; 100], |found| {
            seen += 1;
            if seen == 3 { ControlFlow::Break(found.id) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((end, seen), (ControlFlow::Break(0), 3));
    }
}

#[test]
fn losses_in_a_stream() {
    let search = Patterns::new(numbered([b"abcd".to_vec()])).unwrap();
    let mut stream = StreamState::new();
    let mut found = Vec::new();
    let mut push =
        |stream: &mut StreamState, piece: &[u8]| stream.push(&search, piece, |each| found.push(each.start));
    push(&mut stream, b"xxab");
    stream.skip(10);
    push(&mut stream, b"cdab");
    push(&mut stream, b"");
    push(&mut stream, b"c");
    push(&mut stream, b"d");
    assert_eq!(found, [16]);
    assert_eq!(StreamState::bytes_max(&search), 6);
}

#[test]
fn the_engine_fits_the_set() {
    let engine = |patterns: Vec<Pattern>| Patterns::new(patterns).unwrap().engine();
    let many = |count: u32, len: usize| {
        let bytes = |index: u32| {
            index.wrapping_mul(0x9e37_79b1).to_be_bytes().into_iter().cycle().take(len).collect()
        };
        numbered((0..count).map(bytes))
    };
    assert_eq!(engine(many(1, 8)), SearchEngine::Single);
    assert_eq!(engine(vec![Pattern::nocase(0, "needle")]), SearchEngine::Grams);
    assert_eq!(engine(many(1000, 8)), SearchEngine::Grams);
    assert_eq!(engine(many(256, 1)), SearchEngine::Automaton);
    if Patterns::with_engine(many(10, 8), SearchEngine::Teddy).is_ok() {
        assert_eq!(engine(many(10, 8)), SearchEngine::Teddy);
    }
}

#[test]
fn threads_share_a_set() {
    let search = Patterns::new(numbered([b"needle".to_vec(), vec![0; 3]])).unwrap();
    std::thread::scope(|scope| {
        let count = || (0..100).map(|_| search.count(b"needle\0\0\0\0")).sum::<u64>();
        let threads = [scope.spawn(count), scope.spawn(count)];
        assert_eq!(threads.map(|thread| thread.join().unwrap()), [300, 300]);
    });
}

#[test]
fn engines_report_unsupported_sets() {
    let error = |patterns, engine| Patterns::with_engine(patterns, engine).unwrap_err().to_string();
    let two = || numbered([b"ab".to_vec(), b"cd".to_vec()]);
    assert!(error(two(), SearchEngine::Single).contains("one pattern"));
    assert!(error(vec![Pattern::nocase(1, "a")], SearchEngine::Teddy).contains("case"));
}
