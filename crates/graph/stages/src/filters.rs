//! `filters`: many filters at once, each with an output of its own.
//!
//! ```text
//! batch --FilterSet::classify--> for each packet the filters that match --> for each output its selection
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use tapline_filter::Options;
use tapline_filterset::{Filter, FilterId, FilterSet, FragmentLimits, FragmentOutcome, MatchPolicy, Matches};
use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Outputs, Parameter, ParameterType, StageClass,
};
use tapline_graph::{Out, Packets, Stage, StageCounters, TickContext};
use tapline_packet::{BATCH_MAX, Batch, LinkType, Meta, Record, Selection};
use tapline_source::Error;

use super::unfit::UnfitFilters;
use crate::settings::{InterfaceOptions, StageSettings};

pub(crate) const CLASS: StageClass = StageClass {
    name: "filters",
    summary: "many filters at once, each with an output of its own",
    description: "Common parts of the filters run once, and filters that differ in numbers only are one lookup however many they are \
        (docs/filter/sets.md). A packet goes to the output of every filter that accepts it, or with match=first to that of the first by \
        priority. The planner makes this stage of parallel filters.",
    parameters: &[
        Parameter::required("texts", ParameterType::Text)
            .means("the filters, one a line (\\n between them); the first has output 0"),
        FRAGMENTS,
        Parameter::new("match", ParameterType::Choice(&["all", "first"]), "all")
            .means("all: a packet goes to the output of every filter that accepts it. first: to the one with the least priority number among these"),
        Parameter::new("priorities", ParameterType::Text, "")
            .means("a number for each filter, with blanks or commas between (match=first): the least comes first, among equals the earlier line; without it the lines' order"),
    ],
    outputs: Outputs::Many,
    example: "f :: filters(\"udp port 53\\ntcp port 80\"); device(eth0) -> f; f[0] -> dns :: count; f[1] -> web :: count",
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

/// The treatment of later fragments.
pub(crate) const FRAGMENTS: Parameter = Parameter::new("fragments", ParameterType::Choice(&["own", "follow"]), "own")
    .means("own: a later fragment, which has no ports, is judged by its own bytes. follow: it goes where the first fragment of its packet \
        went; one that comes before its first waits for it, as a copy, is passed on right after it, and is refused if it does not come within 30 \
        s by the time in the packets (Ethernet with up to two VLAN tags, raw IP, BSD loopback, Linux cooked)");

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let texts: Vec<String> = arguments.text("texts").lines().map(str::to_owned).collect();
    for text in &texts {
        tapline_filter::parse(text).map_err(|error| error.render(text))?;
    }
    let is_first = arguments.text("match") == "first";
    let priorities = priorities(arguments.text("priorities"), texts.len(), is_first)?;
    let policy = if is_first { MatchPolicy::First } else { MatchPolicy::All };
    Ok(of_texts(texts, policy, priorities, arguments, site))
}

/// The priorities of `filters` filters; all alike without a text, so that the earlier comes first.
fn priorities(text: &str, filters: usize, is_first: bool) -> Result<Vec<u32>, String> {
    let is_between = |c: char| c == ',' || c.is_whitespace();
    let words: Vec<&str> = text.split(is_between).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return Ok(vec![0; filters]);
    }
    if !is_first {
        return Err("priorities decide nothing with match=all: write match=first".to_owned());
    }
    if words.len() != filters {
        return Err(format!("priorities: {} numbers for {filters} filters: give one for each", words.len()));
    }
    let number = |word: &&str| {
        word.parse().map_err(|_| format!("priorities: `{word}` is not a number from 0 to {}", u32::MAX))
    };
    words.iter().map(number).collect()
}

/// Filters of these texts, each with an output.
pub(crate) fn of_texts(
    texts: Vec<String>,
    policy: MatchPolicy,
    priorities: Vec<u32>,
    arguments: &Arguments,
    site: &BuildContext<'_>,
) -> Box<dyn Stage> {
    let follows = arguments.text("fragments") == "follow";
    let shares = texts.iter().map(|_| Vec::new()).collect();
    let options = Arc::clone(&StageSettings::of(site.common).options);
    Box::new(Filters {
        texts,
        policy,
        priorities,
        follows,
        options,
        sets: Vec::new(),
        by_interface: Vec::new(),
        matches: Matches::new(),
        shares,
        early: HashMap::new(),
        late: Vec::new(),
        matched: 0,
        unexamined: 0,
        unfit: UnfitFilters::default(),
    })
}

struct Filters {
    texts: Vec<String>,
    policy: MatchPolicy,
    /// Priority of each filter; the least comes first.
    priorities: Vec<u32>,
    /// Whether later fragments follow their first fragment.
    follows: bool,
    options: InterfaceOptions,
    sets: Vec<LinkTypeSet>,
    /// The set of each interface.
    by_interface: Vec<usize>,
    matches: Matches,
    /// For each output the packets of this batch.
    shares: Vec<Vec<u8>>,
    /// Fragments that wait for their first fragment, by its set and ticket.
    early: HashMap<(usize, u64), EarlyFragment>,
    /// Early fragments that got their first fragment in this batch, with the outputs that it went to.
    late: Vec<(EarlyFragment, Vec<usize>)>,
    /// Packets that at least one filter accepted.
    matched: u64,
    unexamined: u64,
    unfit: UnfitFilters,
}

/// A copy of a fragment that arrived before its first fragment.
struct EarlyFragment {
    data: Vec<u8>,
    meta: Meta,
}

/// The filters for packets of one link type. Outputs are the filters' places in `ids`.
struct LinkTypeSet {
    link_type: LinkType,
    set: FilterSet,
    ids: Vec<FilterId>,
}

impl Filters {
    /// Compiles for interfaces that are new.
    fn extend(&mut self, packets: &Packets<'_>) -> Result<(), Error> {
        for interface in packets.interfaces.iter().skip(self.by_interface.len()) {
            let known = self.sets.iter().position(|of| of.link_type == interface.link_type);
            if let Some(known) = known {
                self.by_interface.push(known);
                continue;
            }
            let options = (self.options)(interface);
            let mut set = FilterSet::new(self.policy);
            let mut ids = Vec::new();
            for (place, (text, priority)) in self.texts.iter().zip(&self.priorities).enumerate() {
                let made = compile(text, &options).map_err(|error| error.render(text));
                ids.push(set.insert(self.unfit.or_reject(place, interface, made)?, *priority));
            }
            if self.follows {
                set.follow_fragments(interface.link_type, Some(FragmentLimits::default()))
                    .map_err(|error| Error::Filter(format!("{}: {error}", interface.name)))?;
            }
            self.by_interface.push(self.sets.len());
            self.sets.push(LinkTypeSet { link_type: interface.link_type, set, ids });
        }
        Ok(())
    }

    /// Evaluates the set of one link type on its packets.
    fn classify(&mut self, at: usize, packets: &Packets<'_>) {
        let mut selection = packets.selection.clone();
        if self.sets.len() > 1 {
            let of = |index: usize| packets.batch.packet(index).meta.interface.0 as usize;
            selection.retain(|index| self.by_interface.get(of(index)) == Some(&at));
        }
        let LinkTypeSet { set, ids, .. } = &mut self.sets[at];
        set.classify(&packets.batch, &selection, &mut self.matches);
        for index in selection.iter() {
            if let Some(ticket) = self.matches.ticket(index).filter(|_| self.follows) {
                let packet = packets.batch.packet(index);
                self.early
                    .insert((at, ticket), EarlyFragment { data: packet.data.to_vec(), meta: *packet.meta });
                continue;
            }
            let matches = self.matches.of(index);
            self.matched += u64::from(!matches.is_empty());
            for filter in matches {
                // Filters were inserted in order into a new set, so that indices are places; the check costs nothing to
                // keep.
                if let Some(output) = ids.get(*filter as usize).map(|id| id.index() as usize) {
                    self.shares[output].push(index as u8);
                }
            }
        }
        for report in self.matches.late_reports() {
            let Some(early) = self.early.remove(&(at, report.ticket)) else { continue };
            let FragmentOutcome::Follows(filters @ [_, ..]) = report.outcome else { continue };
            let output = |filter: &u32| ids.get(*filter as usize).map(|id| id.index() as usize);
            self.late.push((early, filters.iter().filter_map(output).collect()));
            self.matched += 1;
        }
    }

    /// Hands on the early fragments that got their first fragment.
    fn pass_late(&mut self, packets: &Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let late = std::mem::take(&mut self.late);
        let mut result = Ok(());
        for output in 0..self.shares.len() {
            let of_output: Vec<&EarlyFragment> = late
                .iter()
                .filter(|(_, outputs)| outputs.contains(&output))
                .map(|(early, _)| early)
                .collect();
            for some in of_output.chunks(BATCH_MAX) {
                let (mut base, mut records) = (Vec::new(), Vec::new());
                for EarlyFragment { data, meta } in some {
                    let cap_len = data.len() as u32;
                    records.push(Record { offset: base.len(), cap_len, options_len: 0, meta: *meta });
                    base.extend_from_slice(data);
                }
                let batch = Batch::new(&base, &records);
                result = result.and(out.pass_to(output, &mut packets.replaced(batch, packets.interfaces)));
            }
        }
        result
    }
}

impl Stage for Filters {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        if packets.interfaces.len() > self.by_interface.len()
            && let Err(error) = self.extend(packets)
        {
            self.unexamined += packets.len() as u64;
            return Err(error);
        }
        self.shares.iter_mut().for_each(Vec::clear);
        for at in 0..self.sets.len() {
            self.classify(at, packets);
        }
        let mut result = Ok(());
        for (output, share) in self.shares.iter().enumerate().filter(|(_, share)| !share.is_empty()) {
            let mut packets = packets.narrowed_to(of_indices(share));
            result = result.and(out.pass_to(output, &mut packets));
        }
        if self.late.is_empty() { result } else { result.and(self.pass_late(packets, out)) }
    }

    /// Fragments that still wait for their first fragment are refused.
    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.early.clear();
        self.unfit.check()
    }

    fn events(&mut self) -> Vec<String> {
        self.unfit.take_events()
    }

    fn counters(&self) -> StageCounters {
        let (held, matched) = (self.early.len() as u64, Some(self.matched));
        StageCounters { held, unexamined: self.unexamined, matched, ..StageCounters::default() }
    }
}

/// A filter of the set; one that must run as a program runs as native code if possible.
pub(super) fn compile(text: &str, options: &Options) -> Result<Filter, tapline_syntax::Error> {
    Filter::compile_with(text, options, &|filter| tapline_jit::NativeResiduals::shared().ready(filter))
}

/// The packets of ascending indices.
pub(super) fn of_indices(indices: &[u8]) -> Selection {
    let mut selection = Selection::none();
    selection.select_all(indices.len());
    selection.narrow(|slots| {
        slots.copy_from_slice(indices);
        indices.len()
    });
    selection
}

#[cfg(test)]
mod tests {
    use crate::trial::Trial;
    use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Ipv4, Udp, fragments_v4};

    /// A datagram of three fragments, by identification.
    fn fragments(id: u16, port: u16) -> Vec<Vec<u8>> {
        let (a, b) = (Host::number(1), Host::number(2));
        let udp = Udp { src: 1024, dst: port }.datagram(IpPair::between(&a, &b, IpVersion::V4), &[7; 2000]);
        let header = Ipv4 { id, ..Ipv4::new(a.v4, b.v4, 17) };
        fragments_v4(&header, &udp, 800).iter().map(|packet| Ethernet::between(&a, &b).ip(packet)).collect()
    }

    /// The numbers of packets that arrived at each of three ends.
    fn shares(arguments: &str) -> [usize; 3] {
        let text = format!(
            "f :: filters(\"udp\\nudp port 53\\nip\", {arguments}); file(\"in\") -> f; \
             f[0] -> json; f[1] -> json; f[2] -> json"
        );
        let mut trial = Trial::graph(&text).unwrap_or_else(|why| panic!("{why}"));
        let (a, b) = (Host::number(1), Host::number(2));
        let frame = |dst: u16| {
            let packet = Udp { src: 1024, dst }.packet(IpPair::between(&a, &b, IpVersion::V4), &[]);
            Ethernet::between(&a, &b).ip(&packet)
        };
        trial.push_frames(&[frame(53), frame(53), frame(80)]);
        trial.assert_balanced();
        [0, 1, 2].map(|end| trial.arrived_at(end).len())
    }

    #[test]
    fn the_first_by_priority_gets_the_packet() {
        assert_eq!(shares("match=all"), [3, 2, 3]);
        assert_eq!(shares("match=first"), [3, 0, 0]);
        assert_eq!(shares("match=first, priorities=\"7 3 9\""), [1, 2, 0]);
        assert_eq!(shares("match=first, priorities=\"7, 7, 3\""), [0, 0, 3]);
        let fault = |arguments: &str| {
            let text = format!("f :: filters(\"udp\\nip\", {arguments}); file(\"in\") -> f -> json");
            Trial::graph(&text).err().unwrap_or_else(|| panic!("{arguments} is taken"))
        };
        assert!(fault("priorities=\"1 2\"").contains("match=first"));
        assert!(fault("match=first, priorities=\"1\"").contains("1 numbers for 2 filters"));
        assert!(fault("match=first, priorities=\"1 x\"").contains("`x` is not a number"));
    }

    #[test]
    fn early_fragments_wait_and_follow_their_first() {
        let [first, second, third] = <[Vec<u8>; 3]>::try_from(fragments(1, 53)).expect("three");
        let [other_first, other_second, _] = <[Vec<u8>; 3]>::try_from(fragments(2, 80)).expect("three");
        let [_, lone, _] = <[Vec<u8>; 3]>::try_from(fragments(3, 53)).expect("three");
        let mut trial = Trial::of("f :: filter(\"udp port 53\", fragments=follow)");
        trial.push_frames(&[third.clone(), other_second, lone]);
        assert!(trial.data().is_empty(), "nothing is known of them");
        assert_eq!(trial.refused_and_held("f"), (0, 3));
        trial.push_frames(&[first.clone(), other_first]);
        assert_eq!(trial.data(), [first, third], "after the first");
        trial.push_frames(std::slice::from_ref(&second));
        assert_eq!(trial.data(), [second]);
        assert_eq!(trial.refused_and_held("f"), (2, 1));
        trial.finish();
        assert_eq!(trial.refused_and_held("f"), (3, 0));
        trial.assert_balanced();
    }
}
