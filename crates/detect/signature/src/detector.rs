//! All signatures of a ruleset, evaluated on the packets of a batch.

use std::collections::HashMap;

use tapline_filter::Options;
use tapline_filterset::{Filter, FilterSet, MatchPolicy, Matches};
use tapline_packet::headers::Headers;
use tapline_packet::numbers::ip_protocol::TCP;
use tapline_packet::{Batch, LinkType, Selection};
use tapline_search::{Pattern, Patterns};

use crate::condition::Facts;
use crate::conversation::{Conversation, Direction};
use crate::payload::Outcome;
use crate::ruleset::{Refusal, Ruleset};
use crate::signature::{Action, Signature};

/// The most findings of a packet. More are counted, and not reported.
const FINDINGS_MAX: usize = 64;

/// A signature that fits a packet.
#[derive(Clone, Copy, Debug)]
pub struct Finding<'d> {
    /// The place of the signature in [`Detector::signatures`].
    pub index: usize,
    /// The signature.
    pub signature: &'d Signature,
}

/// Bytes of one direction of a TCP stream: those that came before, as many as are kept, and those that a packet adds.
#[derive(Clone, Copy, Debug)]
pub struct StreamWindow<'w> {
    /// All bytes, in the order of the stream.
    pub bytes: &'w [u8],
    /// Offset of the first byte that the packet adds.
    pub fresh: usize,
    /// The first byte is the first of the stream.
    pub has_start: bool,
}

/// A payload, and the packet that it came with.
struct Subject<'s> {
    data: &'s [u8],
    headers: &'s Headers,
    window: &'s StreamWindow<'s>,
    /// The payload is a piece of a stream.
    is_stream: bool,
}

impl Subject<'_> {
    /// Whether a signature fits; in a stream, whether it does only now.
    fn evaluate(
        &self,
        signature: &Signature,
        flow: Option<(&Conversation, Direction)>,
        counts: &mut DetectorCounts,
    ) -> bool {
        let Subject { data, headers, window, is_stream } = *self;
        let facts = Facts { data, headers, payload_len: window.bytes.len(), flow, is_stream };
        counts.evaluations += 1;
        let outcome = signature.evaluate(&facts, window.bytes);
        counts.given_up += u64::from(outcome == Outcome::GivenUp);
        if outcome != Outcome::Fits || !is_stream {
            return outcome == Outcome::Fits;
        }
        let (before, alone) = window.bytes.split_at(window.fresh.min(window.bytes.len()));
        ![before, alone].iter().any(|part| signature.evaluate(&facts, part) == Outcome::Fits)
    }
}

/// Counters of a detector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetectorCounts {
    /// Evaluations of the options of one signature on one payload.
    pub evaluations: u64,
    /// Evaluations given up because their budget was spent: hostile payloads, or signatures that search too much.
    pub given_up: u64,
    /// Packets that a signature of the action `pass` fits.
    pub passed: u64,
    /// Findings beyond the most of a packet.
    pub unreported: u64,
}

/// Reason for which a detector cannot look at packets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DetectorError {
    /// The search cannot be made.
    #[error("the contents of all signatures cannot be searched at once: {0}")]
    Patterns(#[from] tapline_search::Error),
    /// A header has no meaning on a link type.
    #[error("line {line}: the header has no meaning on link type {link_type:?}: {reason}")]
    Header {
        /// The line of the signature.
        line: u32,
        /// The link type.
        link_type: LinkType,
        /// The reason.
        reason: String,
    },
}

/// All signatures of a ruleset. See the [crate](crate) for how.
#[derive(Debug)]
pub struct Detector {
    /// Signatures, those of the action `pass` first, then those of `drop`: these find room among the findings.
    signatures: Vec<Signature>,
    patterns: Option<Patterns>,
    /// The signatures of each pattern.
    by_pattern: Vec<Vec<u32>>,
    headers: Vec<HeaderGroup>,
    /// The header of each signature.
    header_of: Vec<u32>,
    /// A signature has no content to be searched: every packet is looked up in the filter set.
    has_plain: bool,
    /// Streams are evaluated: packets are looked up even if no pattern is in them.
    with_streams: bool,
    tracks_tcp: bool,
    tracks_others: bool,
    sets: Vec<LinkTypeSet>,
    matches: Matches,
    /// The packet at which each pattern was found last.
    stamps: Vec<u64>,
    stamp: u64,
    /// Packets of the batch, and signatures whose pattern they have.
    candidates: Vec<(u8, u32)>,
    /// Signatures to be evaluated on the packet at hand.
    at_hand: Vec<u32>,
    counts: DetectorCounts,
}

/// Signatures that share a header.
#[derive(Debug)]
struct HeaderGroup {
    filter: String,
    line: u32,
    /// Signatures without a content to be searched.
    plain: Vec<u32>,
}

/// The headers as filters for one link type, in the order of the groups.
#[derive(Debug)]
struct LinkTypeSet {
    link_type: LinkType,
    set: FilterSet,
}

impl Detector {
    /// Prepares the signatures of a ruleset. Signatures whose header fits no packet are refused, and given back.
    ///
    /// # Errors
    /// [`DetectorError::Patterns`] beyond the limits of a search.
    pub fn new(ruleset: Ruleset) -> Result<(Detector, Vec<Refusal>), DetectorError> {
        let Ruleset { mut signatures, mut refusals } = ruleset;
        let mut verdicts: HashMap<String, Option<String>> = HashMap::new();
        signatures.retain(|signature| {
            let filter = &signature.header.filter;
            let verdict = verdicts.entry(filter.clone()).or_insert_with(|| {
                tapline_filter::compile(filter, &Options::default()).err().map(|error| error.to_string())
            });
            let Some(reason) = verdict else { return true };
            let reason = format!("the header fits no packet: {reason}");
            refusals.push(Refusal { line: signature.line, sid: Some(signature.sid), reason });
            false
        });
        signatures.sort_by_key(|signature| match signature.action {
            Action::Pass => 0,
            Action::Drop => 1,
            Action::Alert | Action::Log => 2,
        });
        refusals.sort_by_key(|refusal| refusal.line);
        let mut detector = Detector {
            patterns: None,
            by_pattern: Vec::new(),
            headers: Vec::new(),
            header_of: Vec::new(),
            has_plain: false,
            with_streams: false,
            tracks_tcp: signatures.iter().any(|one| one.needs_flow() && one.header.protocol != "udp"),
            tracks_others: signatures.iter().any(|one| one.needs_flow() && one.header.protocol != "tcp"),
            sets: Vec::new(),
            matches: Matches::new(),
            stamps: Vec::new(),
            stamp: 0,
            candidates: Vec::new(),
            at_hand: Vec::new(),
            counts: DetectorCounts::default(),
            signatures,
        };
        detector.group()?;
        Ok((detector, refusals))
    }

    /// Groups the signatures by header and by pattern.
    fn group(&mut self) -> Result<(), DetectorError> {
        let mut header_ids: HashMap<&str, u32> = HashMap::new();
        let mut pattern_ids: HashMap<(Vec<u8>, bool), u32> = HashMap::new();
        let mut patterns = Vec::new();
        for (signature, number) in self.signatures.iter().zip(0..) {
            let next = self.headers.len() as u32;
            let header = *header_ids.entry(&signature.header.filter).or_insert(next);
            if header == next {
                let filter = signature.header.filter.clone();
                self.headers.push(HeaderGroup { filter, line: signature.line, plain: Vec::new() });
            }
            self.header_of.push(header);
            let Some(content) = signature.fast_content() else {
                self.headers[header as usize].plain.push(number);
                self.has_plain = true;
                continue;
            };
            let next = patterns.len() as u32;
            let id = *pattern_ids.entry((content.bytes.clone(), content.nocase)).or_insert(next);
            if id == next {
                patterns.push(Pattern { id, bytes: content.bytes.clone(), nocase: content.nocase });
                self.by_pattern.push(Vec::new());
            }
            self.by_pattern[id as usize].push(number);
        }
        self.stamps = vec![0; patterns.len()];
        if !patterns.is_empty() {
            self.patterns = Some(Patterns::new(patterns)?);
        }
        Ok(())
    }

    /// The signatures, those of the action `pass` first, then those of `drop`.
    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }

    /// The counters.
    pub fn counts(&self) -> DetectorCounts {
        self.counts
    }

    /// A signature asks for the state of flows of this protocol.
    pub fn tracks(&self, protocol: u8) -> bool {
        if protocol == TCP { self.tracks_tcp } else { self.tracks_others }
    }

    /// From now on [`evaluate_stream`](Self::evaluate_stream) is called too.
    pub fn expect_streams(&mut self) {
        self.with_streams = true;
    }

    /// The place of the headers for a link type, compiled if they are not yet.
    ///
    /// # Errors
    /// [`DetectorError::Header`].
    pub fn prepare(&mut self, link_type: LinkType, options: &Options) -> Result<usize, DetectorError> {
        if let Some(at) = self.sets.iter().position(|of| of.link_type == link_type) {
            return Ok(at);
        }
        let mut set = FilterSet::new(MatchPolicy::All);
        for HeaderGroup { filter, line, .. } in &self.headers {
            let compiled = Filter::compile(filter, options).or_else(|error| {
                // A link type without VLAN tags.
                let plain = filter.strip_prefix("anyvlan(").and_then(|rest| rest.strip_suffix(')'));
                plain.ok_or(error).and_then(|plain| Filter::compile(plain, options))
            });
            let compiled = compiled.map_err(|error| DetectorError::Header {
                line: *line,
                link_type,
                reason: error.to_string(),
            })?;
            set.insert(compiled, 0);
        }
        self.sets.push(LinkTypeSet { link_type, set });
        Ok(self.sets.len() - 1)
    }

    /// Searches the payloads of the selected packets, and looks their headers up in the set at `set`, which
    /// [`prepare`](Self::prepare) gave. `payload` gives the payload of the packet at an index.
    ///
    /// # Panics
    /// If the set does not exist, or the batch has no packet of an index in the selection.
    pub fn search<'b>(
        &mut self,
        set: usize,
        batch: &Batch<'b>,
        selection: &Selection,
        payload: impl Fn(usize) -> &'b [u8],
    ) {
        self.candidates.clear();
        for index in selection.iter() {
            self.search_payload(index as u8, payload(index));
        }
        let mut suspects = selection.clone();
        if !self.has_plain && !self.with_streams {
            let mut rest = self.candidates.iter().map(|(packet, _)| usize::from(*packet)).peekable();
            suspects.retain(|index| {
                let is_suspect = rest.peek() == Some(&index);
                while rest.next_if_eq(&index).is_some() {}
                is_suspect
            });
        }
        // Without suspects too, so that matches of the last batch are gone.
        self.sets[set].set.classify(batch, &suspects, &mut self.matches);
    }

    fn search_payload(&mut self, packet: u8, payload: &[u8]) {
        let Detector { patterns: Some(patterns), by_pattern, stamps, candidates, .. } = self else { return };
        self.stamp += 1;
        let stamp = self.stamp;
        patterns.for_each(payload, |found| {
            let id = found.id as usize;
            if stamps[id] != stamp {
                stamps[id] = stamp;
                candidates.extend(by_pattern[id].iter().map(|signature| (packet, *signature)));
            }
        });
    }

    /// A signature may fit the packet at `index`, by its contents and its header.
    pub fn is_suspect(&mut self, index: usize) -> bool {
        self.gather(index);
        !self.at_hand.is_empty()
    }

    /// Collects the signatures to be evaluated on a packet.
    fn gather(&mut self, index: usize) {
        let Detector { candidates, at_hand, matches, headers, header_of, .. } = self;
        at_hand.clear();
        let fitting = matches.of(index);
        if fitting.is_empty() {
            return;
        }
        let first = candidates.partition_point(|(packet, _)| usize::from(*packet) < index);
        let of_packet = candidates[first..].iter().take_while(|(packet, _)| usize::from(*packet) == index);
        at_hand.extend(
            of_packet
                .map(|(_, signature)| *signature)
                .filter(|signature| fitting.binary_search(&header_of[*signature as usize]).is_ok()),
        );
        for header in fitting {
            at_hand.extend_from_slice(&headers[*header as usize].plain);
        }
        at_hand.sort_unstable();
        at_hand.dedup();
    }

    /// Evaluates the signatures that may fit the packet at `index`, which [`search`](Self::search) saw. `flow` is the
    /// packet's flow, and the part of its sender.
    pub fn evaluate(
        &mut self,
        index: usize,
        data: &[u8],
        headers: &Headers,
        payload: &[u8],
        flow: Option<(&mut Conversation, Direction)>,
        found: impl FnMut(Finding<'_>),
    ) {
        self.gather(index);
        let window = StreamWindow { bytes: payload, fresh: 0, has_start: true };
        self.judge(Subject { data, headers, window: &window, is_stream: false }, flow, found);
    }

    /// Evaluates the signatures that fit the stream only now: neither with the earlier bytes nor with the packet
    /// alone, at `index` of the batch that [`search`](Self::search) saw. Contents with `offset` and `depth` count
    /// from the start of the stream, so that they are left out once the window has lost it.
    pub fn evaluate_stream(
        &mut self,
        index: usize,
        data: &[u8],
        headers: &Headers,
        window: &StreamWindow<'_>,
        flow: Option<(&mut Conversation, Direction)>,
        found: impl FnMut(Finding<'_>),
    ) {
        self.gather_in_stream(index, window);
        self.judge(Subject { data, headers, window, is_stream: true }, flow, found);
    }

    /// Evaluates the signatures at hand.
    fn judge(
        &mut self,
        subject: Subject<'_>,
        mut flow: Option<(&mut Conversation, Direction)>,
        mut found: impl FnMut(Finding<'_>),
    ) {
        let Detector { at_hand, signatures, counts, .. } = self;
        let mut findings = 0;
        for number in at_hand.iter().map(|number| *number as usize) {
            let signature = &signatures[number];
            let state = flow.as_ref().map(|(flow, direction)| (&**flow, *direction));
            match subject.evaluate(signature, state, counts) {
                false => {}
                true if signature.action == Action::Pass => {
                    counts.passed += 1;
                    return;
                }
                true => {
                    if let Some((flow, _)) = &mut flow {
                        signature.changes.iter().for_each(|(bit, change)| flow.change(*bit, *change));
                    }
                    // `noalert` keeps a packet of `drop` from being reported, as in Suricata; it is dropped all the same.
                    let is_found = !signature.is_silent || signature.action == Action::Drop;
                    findings += usize::from(is_found);
                    match findings > FINDINGS_MAX {
                        _ if !is_found => {}
                        true => counts.unreported += 1,
                        false => found(Finding { index: number, signature }),
                    }
                }
            }
        }
    }

    /// Collects the signatures whose pattern is in a window, and whose header fits the packet.
    fn gather_in_stream(&mut self, index: usize, window: &StreamWindow<'_>) {
        self.at_hand.clear();
        let Detector {
            patterns: Some(patterns),
            by_pattern,
            stamps,
            at_hand,
            header_of,
            matches,
            signatures,
            ..
        } = self
        else {
            return;
        };
        let fitting = matches.of(index);
        if fitting.is_empty() {
            return;
        }
        self.stamp += 1;
        let stamp = self.stamp;
        patterns.for_each(window.bytes, |found| {
            let id = found.id as usize;
            if stamps[id] == stamp {
                return;
            }
            stamps[id] = stamp;
            at_hand.extend(by_pattern[id].iter().filter(|number| {
                let at = **number as usize;
                fitting.binary_search(&header_of[at]).is_ok()
                    && (window.has_start || !signatures[at].has_absolute_place())
            }));
        });
        at_hand.sort_unstable();
    }
}
