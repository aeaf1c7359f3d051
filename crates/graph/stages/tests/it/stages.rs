//! Laws that every class of stages keeps, whatever its arguments and whatever the packets.

use tapline_graph::catalog::{Constructor, Outputs, Parameter, ParameterType, StageClass, page};
use tapline_graph::plan::{GraphText, Plan};
use tapline_packet::{Batch, Meta, Timestamp, VlanTag};
use tapline_testkit::layers;
use tapline_testkit::random::Random;

use crate::trial::{Trial, lent, whole};

/// Classes of stages that need no file.
fn classes() -> impl Iterator<Item = &'static StageClass> {
    tapline_stages::catalog().classes().iter().copied().filter(|class| {
        let needs_a_file =
            class.parameters.iter().any(|parameter| matches!(parameter.kind, ParameterType::Path));
        matches!(class.make, Constructor::Stage(_)) && !needs_a_file
    })
}

/// Some value of a parameter.
fn value(parameter: &Parameter, random: &mut Random) -> Option<String> {
    let value = match parameter.kind {
        ParameterType::Choice(words) => (*random.pick(words)).to_owned(),
        ParameterType::Number(min, max) => {
            let small = min + random.below(max.saturating_sub(min).min(20) + 1);
            // Tables grow with some numbers: large ones are for the unit tests.
            small.to_string()
        }
        ParameterType::Duration => (*random.pick(&["0s", "1ns", "10us", "1ms", "100ms", "1h"])).to_owned(),
        ParameterType::Ratio => (*random.pick(&["1/1", "0/3", "1/3", "99/100"])).to_owned(),
        ParameterType::Language("filter", _) => {
            format!("\"{}\"", random.pick(&["tcp", "ip6 or arp", "less 100", "vlan and udp"]))
        }
        ParameterType::Text => match parameter.name {
            "texts" => "\"tcp or udp\\nless 200\"".to_owned(),
            "to" => "\"127.0.0.1:9\"".to_owned(),
            "words" => "\"sni(.example.org) or dns_name(a.test)\"".to_owned(),
            "text" => (*random.pick(&["a", "\"\\0\"", "http"])).to_owned(),
            _ => return None,
        },
        // Sources alone have recipes.
        ParameterType::Path | ParameterType::Language(..) => return None,
    };
    Some(format!("{}={value}", parameter.name))
}

/// The class with arguments at random; those that need not be given are missing at times.
fn call(class: &StageClass, random: &mut Random) -> String {
    if class.name == "switch" {
        // Two cases of the kind that is asked for, and the rest.
        let cases = [
            "\"udp\\ntcp\"",
            "\"6,17\", by=protocol",
            "\"80,443\", by=dst_port",
            "\"5,7\", by=vlan",
            "\"5,7\", by=color",
        ];
        return format!("switch({})", random.pick(&cases));
    }
    let mut arguments = Vec::new();
    for parameter in class.parameters {
        // Slow collectors keep packets waiting, and small packets have no room for templates: neither is for here.
        if class.name == "ipfix" && matches!(parameter.name, "rate" | "mtu") {
            continue;
        }
        // Most choices of these refuse others, or each other; they have tests of their own.
        if class.name == "flow" && matches!(parameter.name, "key" | "sample_by" | "seed") {
            continue;
        }
        // Directories are for the stage's own tests; lines go to standard output.
        if class.name == "streams" && parameter.name == "to" {
            continue;
        }
        if class.name == "flowlog" && parameter.name == "to" {
            arguments.push("to=\"/dev/null\"".to_owned());
            continue;
        }
        // Without patience what was not acknowledged at the end is lost.
        if class.name == "batches" && parameter.name == "patience" {
            continue;
        }
        if class.name == "batches" && parameter.name == "to" {
            arguments.push("to=\"batch+file:/dev/null\"".to_owned());
            continue;
        }
        if parameter.default.is_none() || random.one_of(1, 2) {
            arguments.extend(value(parameter, random));
        }
    }
    format!("{}({})", class.name, arguments.join(", "))
}

/// A graph of this one stage, behind a meter if it must be; `None` if its arguments do not go together.
fn alone(class: &StageClass, random: &mut Random) -> Option<(String, Trial)> {
    let stage = call(class, random);
    let ends = match class.outputs {
        Outputs::None => "file(\"in\") -> json".to_owned(),
        Outputs::One | Outputs::Flows => "s -> json".to_owned(),
        Outputs::Many => "s[0] -> json; s[2] -> json".to_owned(),
    };
    let before = match class.name {
        "view" => "flow(view=yes) -> ",
        _ if class.input.is_flows() => "flow -> ",
        _ => "",
    };
    let text = format!("s :: {stage}; file(\"in\") -> {before}s; {ends}");
    Trial::graph(&text).ok().map(|trial| (text, trial))
}

fn packets(random: &mut Random, start: i64) -> Vec<(Vec<u8>, Meta)> {
    let mut time = start;
    let packet = |_| {
        let mut data = layers::frame(random);
        let mut meta = whole(&data);
        match random.below(6) {
            0 => data.truncate(random.below(data.len() as u64 + 1) as usize),
            1 => meta.wire_len = random.bits() as u32,
            2 => meta.vlan = Some(VlanTag { tpid: 0x8100, tci: random.bits() as u16 }),
            _ => {}
        }
        time = match random.below(200) {
            0 => random.bits() as i64,
            _ => time.saturating_add(random.below(1_000_000) as i64 - 100_000),
        };
        meta.timestamp = Timestamp::from_nanos(time);
        meta.if_index = random.below(8) as u32 / 7;
        (data, meta)
    };
    (0..600).map(packet).collect()
}

/// Stages whose packets have other bytes or another time, as their own tests say.
const CHANGING: [&str; 3] = ["mask", "reassemble", "trailer"];

#[test]
fn every_stage_balances_and_makes_no_packet_up() {
    for class in classes() {
        let mut random = Random::new(41);
        let mut made = 0;
        for round in 0..12 {
            let Some((text, mut trial)) = alone(class, &mut random) else { continue };
            made += 1;
            let packets = packets(&mut random, round * 1_000_000_000);
            let mut rest = packets.as_slice();
            while !rest.is_empty() {
                let (batch, behind) = rest.split_at(rest.len().min(random.between(1..=256) as usize));
                let (base, records) = lent(batch);
                // Some packets are whole, or there might be no flow at all.
                let is_first = rest.len() == packets.len();
                let snap_len =
                    *random.pick(if is_first { &[u32::MAX][..] } else { &[u32::MAX, u32::MAX, 64, 0] });
                trial.push(Batch::new(&base, &records).cut(snap_len));
                trial.assert_balanced();
                if random.one_of(1, 3) {
                    let now = trial.now.wall.as_nanos();
                    trial.tick(now + random.below(200_000_000) as i64);
                    trial.assert_balanced();
                }
                rest = behind;
            }
            trial.finish();
            trial.assert_balanced();
            let account = trial.account();
            let stage = account.stages.iter().find(|stage| stage.name == "s").expect("the stage");
            let has_all = stage.received == 600 || class.input.is_flows() && stage.received > 0;
            assert!(has_all && stage.counters.held == 0 && stage.passed <= 600, "{text}: {stage:?}");
            let ends = if class.outputs == Outputs::Many { 2 } else { 1 };
            let arrived: Vec<_> = (0..ends).flat_map(|end| trial.arrived_at(end)).collect();
            for packet in arrived.into_iter().filter(|_| !CHANGING.contains(&class.name)) {
                // Each packet that came out is one that went in, or lies within it.
                let is_of = |(data, meta): &&(Vec<u8>, Meta)| {
                    let tail = packet.data.get(12..).unwrap_or(&[]);
                    meta.timestamp == packet.meta.timestamp
                        && packet.data.len() <= data.len()
                        && (tail.is_empty() || data.windows(tail.len()).any(|window| window == tail))
                };
                assert!(packets.iter().find(is_of).is_some(), "{text}: {packet:?}");
            }
        }
        assert!(made >= 6, "{}: no arguments go together", class.name);
    }
}

#[test]
fn frames_cut_at_every_byte() {
    let mut random = Random::new(5);
    let frames: Vec<Vec<u8>> = (0..12).map(|_| layers::frame(&mut random)).collect();
    for class in classes() {
        let Some((text, mut trial)) = (0..8).find_map(|_| alone(class, &mut random)) else {
            panic!("{}: no arguments go together", class.name);
        };
        for frame in &frames {
            let cuts: Vec<_> = (0..=frame.len()).map(|len| (frame[..len].to_vec(), whole(frame))).collect();
            trial.push_all(&cuts, 256);
        }
        trial.finish();
        trial.assert_balanced();
        let longest = frames.iter().map(Vec::len).max().unwrap_or(0);
        let ends = if class.outputs == Outputs::Many { 2 } else { 1 };
        for end in 0..ends {
            assert!(trial.arrived_at(end).iter().all(|packet| packet.data.len() <= longest), "{text}");
        }
    }
}

#[test]
fn results_of_workers_add_up() {
    for class in classes() {
        let mut random = Random::new(77);
        let Some((text, mut one)) = (0..8).find_map(|_| alone(class, &mut random)) else { continue };
        let mut other = Trial::graph(&text).expect("the same graph");
        one.push_all(&packets(&mut random, 0), 256);
        other.push_all(&packets(&mut random, 0), 256);
        let names =
            |trial: &Trial| trial.graph.results().into_iter().map(|result| result.stage).collect::<Vec<_>>();
        let before = names(&one);
        one.graph.merge(&other.graph);
        assert_eq!(names(&one), before, "{text}");
    }
}

#[test]
fn every_page_tells_of_every_argument() {
    for class in tapline_stages::catalog().classes() {
        let page = page(class);
        assert!(page.starts_with(&format!("{}: {}", class.name, class.summary)));
        for parameter in class.parameters {
            let is_there = page.lines().any(|line| line.starts_with(&format!("  {} (", parameter.name)));
            assert!(is_there, "{}: {} is missing", class.name, parameter.name);
            assert!(!parameter.meaning.is_empty());
        }
        assert!(page.contains(class.example), "{}", class.name);
    }
}

#[test]
fn every_example_is_a_graph_with_its_class() {
    for class in tapline_stages::catalog().classes() {
        let plan =
            Plan::new(tapline_stages::catalog(), &[GraphText { name: "example", text: class.example }])
                .unwrap_or_else(|why| panic!("{}: {why}", class.name));
        assert!(plan.nodes.iter().any(|node| std::ptr::eq(node.class, *class)), "{}", class.name);
    }
    // Examples without files can be made too; the folder that one of them writes to is not one of the sources.
    let folder = tempfile::tempdir().unwrap();
    let mail = format!("{:?}", folder.path().join("mail"));
    for class in classes() {
        let text = class.example.replace("\"mail\"", &mail);
        let made = Trial::graph(&text).map(|_| ());
        let reason = made.as_ref().err().cloned().unwrap_or_default();
        // Without the default features a build says what it leaves out.
        let is_expected = reason.contains("cannot read") || reason.contains("this build ");
        assert!(made.is_ok() || is_expected, "{}: {reason}", class.name);
    }
}

#[test]
fn every_class_takes_the_units_of_the_docs() {
    for class in tapline_stages::catalog().classes() {
        for parameter in class.parameters {
            let shown = format!("{}({})", class.name, parameter.name);
            match parameter.kind {
                ParameterType::Duration => {
                    assert!(
                        ["90", "1.5s", "500us", "1d"].iter().all(|text| parameter.kind.takes(text)),
                        "{shown}"
                    );
                    assert!(["5x", "1 s", "1M"].iter().all(|text| !parameter.kind.takes(text)), "{shown}");
                }
                ParameterType::Number(..) => {
                    let fractions = ["0.001k", "0.01k", "1.5k", "1.5M"];
                    assert!(fractions.iter().any(|text| parameter.kind.takes(text)), "{shown}");
                    assert!(["1m", "1.5", "64Ki"].iter().all(|text| !parameter.kind.takes(text)), "{shown}");
                }
                _ => {}
            }
        }
    }
}
