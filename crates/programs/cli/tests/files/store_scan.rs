//! A search of a store finds what a scan of the captures finds, packet for packet, whatever the filter.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tapline_file::FileSource;
use tapline_filter::{HandleKind, Options};
use tapline_packet::LinkType;
use tapline_testkit::expressions::Expressions;

use crate::support::{captures_or_skip, packets_of, run, text};

/// Time, length on the wire and bytes of a packet.
type TimeLenBytes = (u64, u32, Vec<u8>);

/// Packets in an order of their own: files are read one after the other, the store has them as they
/// were recorded.
fn packets_in_order(path: &Path) -> Vec<TimeLenBytes> {
    let all = packets_of(path).into_iter().map(|packet| (packet.time_ns, packet.wire_len, packet.data));
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    all
}

/// The captures of a single link type, by it.
fn by_link_type(captures: Vec<PathBuf>) -> BTreeMap<LinkType, Vec<PathBuf>> {
    let mut all: BTreeMap<LinkType, Vec<PathBuf>> = BTreeMap::new();
    for path in captures {
        let Ok(mut source) = FileSource::open(&path) else { continue };
        // A file with a fault is not a measure: a scan of it ends there.
        let is_whole = loop {
            match source.advance() {
                Ok(true) => {}
                Ok(false) => break true,
                Err(_) => break false,
            }
        };
        let mut link_types: Vec<LinkType> = source.interfaces().iter().map(|one| one.link_type).collect();
        link_types.dedup();
        if let ([link_type], true) = (link_types.as_slice(), is_whole) {
            all.entry(*link_type).or_default().push(path);
        }
    }
    all
}

/// Whether packets of this link type can have the filter.
fn can_have(filter: &str, link_type: LinkType) -> bool {
    let options = Options { link_type, handle: HandleKind::Savefile, netmask: Some(0), ..Options::default() };
    tapline_filter::compile(filter, &options).is_ok()
}

/// `TAPLINE_STORE_TEXTS=N` tries more filters, `TAPLINE_STORE_SEED` others.
#[test]
fn a_store_of_captures_is_searched_as_scanned() {
    let Some(captures) = captures_or_skip("a_store_of_captures_is_searched_as_scanned") else { return };
    let number =
        |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().expect("a number"));
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let groups = by_link_type(captures);
    let count: usize = groups.values().map(Vec::len).sum();
    assert!(count > 300 && groups.len() > 5, "{count} captures of {} link types", groups.len());
    // Few captures a recording, so that chunks are small and keys have something to tell apart.
    for captures in groups.values().flat_map(|captures| captures.chunks(6)) {
        let inputs = captures.iter().flat_map(|capture| ["-r", text(capture)]);
        let of_store = ["--to", text(&store), "--size", "512MiB", "--segment", "4MiB"];
        run(["record"].into_iter().chain(inputs).chain(of_store)).succeeded();
    }
    let (scanned, found) = (folder.path().join("scanned.pcapng"), folder.path().join("found.pcapng"));
    let seed = number("TAPLINE_STORE_SEED", 23);
    let mut texts: Vec<Expressions> =
        groups.keys().map(|link_type| Expressions::new(seed, link_type.dlt().into())).collect();
    let types = texts.len();
    let ethernet = groups.keys().position(|link_type| *link_type == LinkType::ETHERNET).expect("most are");
    let (mut tried, mut hits, mut packets, mut skipped) = (0, 0, 0, 0);
    while tried < number("TAPLINE_STORE_TEXTS", 40) {
        // Every other text is made for Ethernet, which most captures have.
        let of = if tried % 2 == 0 { ethernet } else { tried as usize / 2 % types };
        let filter = texts[of].text();
        let fitting: Vec<&str> = groups
            .iter()
            .filter(|(link_type, _)| can_have(&filter, **link_type))
            .flat_map(|(_, captures)| captures.iter().flat_map(|path| ["-r", text(path)]))
            .collect();
        if fitting.is_empty() {
            skipped += 1;
            assert!(skipped < 100_000, "no text compiles");
            continue;
        }
        tried += 1;
        let words = ["-w", text(&scanned), "--", &filter];
        run(["capture"].into_iter().chain(fitting).chain(words)).succeeded();
        run(["find", text(&store), "-w", text(&found), "--", &filter]).succeeded();
        let (wanted, got) = (packets_in_order(&scanned), packets_in_order(&found));
        // A file that is written by a scan cuts packets to the snap length of their interface, as libpcap does.
        let is_alike = |(wanted, got): (&TimeLenBytes, &TimeLenBytes)| {
            (wanted.0, wanted.1) == (got.0, got.1) && got.2.starts_with(&wanted.2)
        };
        assert!(
            wanted.len() == got.len() && wanted.iter().zip(&got).all(is_alike),
            "{filter:?}: {} by a scan, {} by a search",
            wanted.len(),
            got.len()
        );
        hits += u64::from(!wanted.is_empty());
        packets += wanted.len();
    }
    eprintln!(
        "{count} captures of {types} link types: {tried} filters, {hits} with packets, {packets} packets in all: alike"
    );
    assert!(hits > 0);
}
