//! A VLAN tag that the kernel took out of the bytes counts as one in the bytes.
//!
//! ```text
//! frame with a tag --------------------------> program for files --\
//! the same without, tag in its metadata -----> program for live ----- one verdict
//! ```
//!
//! In libpcap's language this holds for tests at `vlan` and to its right; tests to its left read the bytes. Scoped,
//! it holds for every test of headers. `docs/filter.md` lists the exceptions.

use std::sync::Arc;

use tapline_filter::{Error, FixedNames, HandleKind, Options, compile};
use tapline_ir::CompiledFilter;
use tapline_packet::{Meta, Packet, VlanTag};
use tapline_testkit::expressions::Expressions;
use tapline_testkit::frames::vlan;
use tapline_testkit::gallery;

fn options(handle: HandleKind, scoped: bool) -> Options {
    // Without the optimiser a text that is never true has a program too.
    let resolver = Arc::new(FixedNames::default());
    Options { handle, scoped, optimise: false, netmask: Some(0), resolver, ..Options::default() }
}

fn run(program: &CompiledFilter, data: &[u8], vlan: Option<VlanTag>) -> bool {
    let meta = Meta { wire_len: data.len() as u32, vlan, ..Meta::default() };
    program.run(Packet { data, meta: &meta }) != 0
}

/// Whether the programs agree on a tagged frame both ways, and on a frame that never had a tag.
fn agree(file: &CompiledFilter, live: &CompiledFilter, frame: &[u8]) -> bool {
    let tag = match frame.get(12..16) {
        Some(&[a, b, c, d]) => [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])],
        _ => return true,
    };
    if !matches!(tag[0], 0x8100 | 0x88a8) {
        return run(file, frame, None) == run(live, frame, None);
    }
    let stripped = [&frame[..12], &frame[16..]].concat();
    let in_bytes = run(file, frame, None);
    // Some drivers leave the tag in the bytes.
    let taken = VlanTag { tpid: tag[0], tci: tag[1] };
    in_bytes == run(live, &stripped, Some(taken)) && in_bytes == run(live, frame, None)
}

fn programs(text: &str, scoped: bool) -> Result<[CompiledFilter; 2], Error> {
    let file = compile(text, &options(HandleKind::Savefile, scoped))?;
    Ok([file, compile(text, &options(HandleKind::Live, scoped))?])
}

/// Frames of every kind: without a tag, with one, two, and three.
fn frames() -> Vec<Vec<u8>> {
    let tagged = |frame: &[u8], tags: &[(u16, u16)]| {
        tags.iter().fold(frame.to_vec(), |frame, &(tpid, tci)| vlan(&frame, tpid, tci))
    };
    let stacks: [&[(u16, u16)]; 6] = [
        &[],
        &[(0x8100, 100)],
        &[(0x88a8, 0x2005)],
        &[(0x8100, 5), (0x8100, 0x6064)],
        &[(0x8100, 7), (0x88a8, 5)],
        &[(0x8100, 1), (0x8100, 5), (0x88a8, 100)],
    ];
    let exhibits = gallery::exhibits();
    exhibits.iter().flat_map(|(_, frame)| stacks.iter().map(|tags| tagged(frame, tags))).collect()
}

/// Texts of libpcap's language, in which nothing left of `vlan` tests a type.
const OLD: [&str; 21] = [
    "vlan",
    "vlan 5",
    "vlan 100",
    "not vlan",
    "not vlan 5",
    "vlan and vlan",
    "vlan 7 and vlan 5",
    "vlan and not vlan",
    "vlan and vlan and vlan",
    "vlan 5 or vlan 5",
    "vlan and ip",
    "vlan and not ip",
    "vlan 100 and tcp port 443",
    "vlan and tcp[13] & 2 != 0",
    "vlan and ether proto 0x8100",
    "vlan or tcp",
    "vlan 100 or udp port 53",
    "(vlan and tcp) or udp",
    "ether host 02:00:00:00:00:01 and vlan",
    "vlan and (arp or ip6) and not multicast",
    "vlan and mpls and ip",
];

/// Texts that only scoped mean the same, because they ask for a type in front of any tag.
const SCOPED: [&str; 17] = [
    "broadcast or vlan and arp",
    "ip",
    "not ip",
    "tcp port 443",
    "ether proto 0x8100",
    "ether proto 0x88a8",
    "not ether proto 0x8100",
    "ip or vlan",
    "(vlan 5 and ip) or tcp",
    "arp or vlan and arp",
    "llc or stp",
    "pppoes and ip",
    "mpls",
    "vlan and (vlan 5 or ip)",
    "not vlan and ip6",
    "anyvlan(ip)",
    "anyvlan(vlan) or (vlan and vlan and ip)",
];

/// Texts that no program can make the same: the bytes and the length differ.
const NEVER: [&str; 7] = [
    "broadcast or vlan and arp",
    "ether[12:2] = 0x8100",
    "len > 70",
    "ip",
    "ether proto 0x8100",
    "less 64",
    "link[16:2] = 0x800",
];

#[test]
fn one_frame_has_one_verdict() {
    let frames = frames();
    let texts = OLD.iter().flat_map(|text| [(*text, false), (*text, true)]);
    for (text, scoped) in texts.chain(SCOPED.map(|text| (text, true))) {
        let [file, live] = programs(text, scoped).unwrap_or_else(|error| panic!("{}", error.render(text)));
        let differing = frames.iter().filter(|frame| !agree(&file, &live, frame)).count();
        assert_eq!(differing, 0, "{text}, scoped: {scoped}");
    }
}

/// The documentation lists these texts, because they differ.
#[test]
fn tests_of_bytes_before_a_tag_differ() {
    let frames = frames();
    for text in NEVER {
        let [file, live] = programs(text, false).expect(text);
        assert!(frames.iter().any(|frame| !agree(&file, &live, frame)), "{text}");
    }
    for text in ["ether[12:2] = 0x8100", "len > 70"] {
        let [file, live] = programs(text, true).expect(text);
        assert!(frames.iter().any(|frame| !agree(&file, &live, frame)), "scoped: {text}");
    }
}

/// Random texts, but for those that ask for bytes by their place, for lengths, and for what only a live capture knows.
#[test]
fn random_texts_have_one_verdict() {
    let frames = frames();
    let mut stream = Expressions::new(77, 1);
    let mut compared = [0, 0];
    for round in 0..3000 {
        let text = stream.text();
        let asks_places = ["[", "byte", "less", "greater", "len", "bound", "ifindex", "protochain"];
        if asks_places.iter().any(|word| text.contains(word)) {
            continue;
        }
        let scoped = round % 2 == 0;
        let text = if scoped { text } else { format!("vlan and ({text})") };
        let Ok([file, live]) = programs(&text, scoped) else { continue };
        compared[usize::from(scoped)] += 1;
        for frame in frames.iter().skip(round % 5).step_by(5) {
            assert!(agree(&file, &live, frame), "{text}, scoped: {scoped}: {frame:02x?}");
        }
    }
    assert!(compared.iter().all(|texts| *texts > 150), "{compared:?}");
}
