//! `switch`: each packet to one of several outputs.
//!
//! ```text
//! by=filter     the first filter that accepts it, counted from 0            else the output behind the last
//! by=label      the label that a shared capture or a stage gave it; 0 for none
//! by=color      as by protocol: the class that the filter of a capture card gave it (ERF)
//! by=protocol   the place of the value in the list, counted from 0          else the output behind the last
//! ```

use tapline_filter::Options;
use tapline_filterset::{Filter, FilterSet, MatchPolicy, Matches};
use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Outputs, Parameter, ParameterType, StageClass,
};
use tapline_graph::{Out, Packets, Stage, StageCounters, TickContext};
use tapline_packet::headers::Headers;
use tapline_packet::{BATCH_MAX, Interface, LinkType, Packet};
use tapline_source::Error;

use super::filters::of_indices;
use super::unfit::UnfitFilters;
use crate::settings::InterfaceOptions;
use crate::settings::StageSettings;

pub(crate) const CLASS: StageClass = StageClass {
    name: "switch",
    summary: "each packet to one of several outputs: by filter, label or value",
    description: "A packet goes to one output only. By filter, it is that of the first one in the list that accepts it. By protocol (of IP), DSCP, VLAN identifier, \
        destination or source port, or color (of ERF, the class by a capture card's filter), it is the place of the packet's value in the list. Other packets go to the output behind the last of the \
        list: with two values, to [2]. By label, the \
        number of the output is the packet's label, 0 for none: that of a shared capture (`tapline capture -i tap:NAME --label`), or of a stage \
        before it (script). An output that is not connected drops its packets.",
    parameters: &[
        Parameter::new("list", ParameterType::Text, "")
            .means("the filters, one a line (\\n between them); or the values, with commas"),
        Parameter::new(
            "by",
            ParameterType::Choice(&[
                "filter", "label", "color", "protocol", "dscp", "vlan", "dst_port", "src_port",
            ]),
            "filter",
        )
        .means("the criterion"),
    ],
    outputs: Outputs::Many,
    example: "s :: switch(\"udp port 53\\ntcp\"); device(eth0) -> s; s[0] -> dns :: count; s[1] -> tcp :: count; s[2] -> rest :: count",
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

/// The highest number of an output.
const OUTPUT_MAX: usize = 255;

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let list = arguments.text("list");
    let decider = match arguments.text("by") {
        "filter" => {
            let texts: Vec<String> = list.lines().map(str::to_owned).collect();
            for text in &texts {
                tapline_filter::parse(text).map_err(|error| error.render(text))?;
            }
            if texts.is_empty() {
                return Err("no filter: give them in list, one a line".to_owned());
            }
            let options = StageSettings::of(site.common).options.clone();
            Decider::Filter(Box::new(First {
                texts,
                options,
                sets: Vec::new(),
                by_interface: Vec::new(),
                matches: Matches::new(),
                unfit: UnfitFilters::default(),
            }))
        }
        "label" if list.is_empty() => Decider::Label,
        "label" => return Err("by=label takes no list: outputs have the numbers of labels".to_owned()),
        word => Decider::Value(Field::of_name(word).unwrap_or(Field::Protocol), values(list)?),
    };
    let count = match &decider {
        Decider::Filter(first) => first.texts.len(),
        Decider::Label => 0,
        Decider::Value(_, values) => values.len(),
    };
    if count > OUTPUT_MAX {
        return Err(format!("{count} outputs and one more; {} are the most", OUTPUT_MAX + 1));
    }
    Ok(Box::new(Switch { decider, unexamined: 0 }))
}

fn values(list: &str) -> Result<Vec<u16>, String> {
    let value = |text: &str| {
        let number = text.trim().parse();
        number.map_err(|_| format!("`{}` is not a value: numbers from 0 to 65535, with commas", text.trim()))
    };
    list.split(',').map(value).collect()
}

tapline_packet::named_enum! {
    #[derive(Clone, Copy)]
    enum Field {
        Color = "color",
        Protocol = "protocol",
        Dscp = "dscp",
        Vlan = "vlan",
        DstPort = "dst_port",
        SrcPort = "src_port",
    }
}

impl Field {
    fn of(self, headers: &Headers, packet: Packet<'_>) -> Option<u16> {
        let data = packet.data;
        match self {
            Field::Color => packet.meta.color,
            Field::Protocol => headers.protocol().map(u16::from),
            Field::Vlan => headers.vlans().first().map(|tag| tag.id()),
            Field::DstPort => headers.ports(data).map(|(_, to)| to),
            Field::SrcPort => headers.ports(data).map(|(from, _)| from),
            Field::Dscp => {
                let start = headers.l3().filter(|_| headers.ip().is_some())?;
                let head: &[u8; 2] = data.get(start..)?.first_chunk()?;
                let class = match head[0] >> 4 {
                    4 => head[1],
                    _ => head[0] << 4 | head[1] >> 4,
                };
                Some((class >> 2).into())
            }
        }
    }
}

struct Switch {
    decider: Decider,
    unexamined: u64,
}

enum Decider {
    Filter(Box<First>),
    Label,
    Value(Field, Vec<u16>),
}

/// The first of several filters.
struct First {
    texts: Vec<String>,
    options: InterfaceOptions,
    /// One for each link type; filters have their places as priorities.
    sets: Vec<(LinkType, FilterSet)>,
    by_interface: Vec<usize>,
    matches: Matches,
    unfit: UnfitFilters,
}

impl First {
    /// Compiles for interfaces that are new.
    fn extend(&mut self, packets: &Packets<'_>) -> Result<(), Error> {
        for interface in packets.interfaces.iter().skip(self.by_interface.len()) {
            let known = self.sets.iter().position(|(link_type, _)| *link_type == interface.link_type);
            let at = match known {
                Some(at) => at,
                None => {
                    let options = (self.options)(interface);
                    let set = set(&self.texts, interface, &options, &mut self.unfit)?;
                    self.sets.push((interface.link_type, set));
                    self.sets.len() - 1
                }
            };
            self.by_interface.push(at);
        }
        Ok(())
    }

    /// The output of each packet, by its index.
    fn choose(&mut self, packets: &Packets<'_>, chosen: &mut [usize; BATCH_MAX]) {
        let First { texts, sets, by_interface, matches, .. } = self;
        for (at, (_, set)) in sets.iter_mut().enumerate() {
            let mut selection = packets.selection.clone();
            let of = |index: usize| packets.batch.packet(index).meta.interface.0 as usize;
            selection.retain(|index| by_interface.get(of(index)) == Some(&at));
            set.classify(&packets.batch, &selection, matches);
            for index in selection.iter() {
                let first = matches.of(index).iter().min();
                chosen[index] = first.map_or(texts.len(), |first| *first as usize);
            }
        }
    }
}

/// The filters in order: in a new set their indices are their places.
fn set(
    texts: &[String],
    interface: &Interface,
    options: &Options,
    unfit: &mut UnfitFilters,
) -> Result<FilterSet, Error> {
    let mut set = FilterSet::new(MatchPolicy::All);
    for (place, text) in texts.iter().enumerate() {
        let native = |filter| tapline_jit::NativeResiduals::shared().ready(filter);
        let made = Filter::compile_with(text, options, &native).map_err(|error| error.render(text));
        set.insert(unfit.or_reject(place, interface, made)?, 0);
    }
    Ok(set)
}

impl Switch {
    fn choose(&mut self, packets: &Packets<'_>) -> Result<[usize; BATCH_MAX], Error> {
        let mut chosen = [0; BATCH_MAX];
        match &mut self.decider {
            Decider::Filter(first) => {
                first.extend(packets)?;
                first.choose(packets, &mut chosen);
            }
            Decider::Label => {
                let label = |index| packets.batch.packet(index).meta.label;
                packets.selection.iter().for_each(|index| chosen[index] = label(index).into());
            }
            Decider::Value(field, values) => {
                for index in packets.selection.iter() {
                    let value = field.of(&packets.headers(index), packets.batch.packet(index));
                    let place = value.and_then(|value| values.iter().position(|known| *known == value));
                    chosen[index] = place.unwrap_or(values.len());
                }
            }
        }
        Ok(chosen)
    }
}

impl Stage for Switch {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let chosen = self.choose(packets).inspect_err(|_| self.unexamined += packets.len() as u64)?;
        let mut order: Vec<u8> = packets.selection.iter().map(|index| index as u8).collect();
        order.sort_by_key(|index| chosen[usize::from(*index)]);
        let mut result = Ok(());
        for share in order.chunk_by(|one, other| chosen[usize::from(*one)] == chosen[usize::from(*other)]) {
            let output = chosen[usize::from(share[0])];
            result = result.and(out.pass_to(output, &mut packets.narrowed_to(of_indices(share))));
        }
        result
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        match &self.decider {
            Decider::Filter(first) => first.unfit.check(),
            _ => Ok(()),
        }
    }

    fn events(&mut self) -> Vec<String> {
        match &mut self.decider {
            Decider::Filter(first) => first.unfit.take_events(),
            _ => Vec::new(),
        }
    }

    fn counters(&self) -> StageCounters {
        StageCounters { unexamined: self.unexamined, ..StageCounters::default() }
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::Meta;
    use tapline_testkit::frames::*;

    use crate::trial::{Trial, whole};

    fn frames() -> Vec<Vec<u8>> {
        let (a, b) = (Host::number(1), Host::number(2));
        let ips = IpPair::between(&a, &b, IpVersion::V4);
        let udp = |dst| Ethernet::between(&a, &b).ip(&Udp { src: 9, dst }.packet(ips, b""));
        let tcp = Ethernet::between(&a, &b).ip(&Tcp { src: 9, dst: 80, ..Tcp::default() }.packet(ips, b""));
        vec![udp(53), tcp, udp(99), udp(53)]
    }

    /// Numbers of packets that came to each of four outputs; output 1 leads nowhere.
    fn shares(arguments: &str, packets: &[(Vec<u8>, Meta)]) -> [Vec<usize>; 3] {
        let text =
            format!("s :: switch({arguments}); file(\"in\") -> s; s[0] -> json; s[2] -> json; s[3] -> json");
        let mut trial = Trial::graph(&text).unwrap_or_else(|why| panic!("{why}"));
        trial.push_all(packets, 256);
        trial.assert_balanced();
        let numbers = |arrived: Vec<crate::trial::Arrived>| {
            arrived.iter().map(|one| one.meta.drops_before as usize).collect()
        };
        [0, 1, 2].map(|end| numbers(trial.arrived_at(end)))
    }

    fn numbered() -> Vec<(Vec<u8>, Meta)> {
        let with = |(at, frame): (usize, Vec<u8>)| {
            let color = (at > 0).then_some(at as u16 * 100);
            let meta = Meta { drops_before: at as u64, label: at as u8, color, ..whole(&frame) };
            (frame, meta)
        };
        frames().into_iter().enumerate().map(with).collect()
    }

    #[test]
    fn each_packet_goes_to_one_output() {
        let packets = numbered();
        assert_eq!(shares("\"udp port 53\\nudp\\nip\"", &packets), [vec![0, 3], vec![1], vec![]]);
        assert_eq!(shares("\"udp port 53\\nudp\"", &packets), [vec![0, 3], vec![1], vec![]]);
        assert_eq!(shares("by=label", &packets), [vec![0], vec![2], vec![3]]);
        assert_eq!(shares("\"300,7,200\", by=color", &packets), [vec![3], vec![2], vec![0, 1]]);
        assert_eq!(shares("\"17,1\", by=protocol", &packets), [vec![0, 2, 3], vec![1], vec![]]);
        assert_eq!(shares("\"99,53,80\", by=dst_port", &packets), [vec![2], vec![1], vec![]]);
        assert_eq!(shares("\"0,1,2\", by=dscp", &packets), [vec![0, 1, 2, 3], vec![], vec![]]);
        assert_eq!(shares("\"7,8\", by=vlan", &packets), [vec![], vec![0, 1, 2, 3], vec![]]);
    }

    #[test]
    fn mistakes_are_refused() {
        let why = |arguments: &str| {
            let text = format!("s :: switch({arguments}); file(\"in\") -> s; s[0] -> json");
            Trial::graph(&text).err().expect("a mistake")
        };
        assert!(why("").contains("no filter"));
        assert!(why("\"upd\"").contains("upd"));
        assert!(why("\"6,x\", by=protocol").contains("`x` is not a value"));
        assert!(why("\"6\", by=label").contains("takes no list"));
    }
}
