//! Laws over random filters and the bundled captures: a search finds the packets of a scan.

use super::*;

#[test]
fn a_search_finds_what_a_scan_finds() {
    let packets = captured();
    if packets.is_empty() {
        eprintln!("skipped: a_search_finds_what_a_scan_finds: there are no captures beside the repository");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let settings = RecorderSettings { size: 256 << 20, ..SETTINGS };
    let mut recorder = Recorder::open(folder.path(), settings, &ethernet(), at(0)).unwrap();
    for some in packets.chunks(64) {
        record(&mut recorder, some, at(0));
        // Small chunks, so that keys have something to tell apart.
        recorder.tick(Losses::default(), &[], &ethernet(), at(0)).unwrap();
    }
    recorder.finish(&[], Losses::default(), at(1)).unwrap();
    assert_eq!(recorder.totals().written, packets.len() as u64, "{:?}", recorder.news());
    let catalog = Arc::new(Catalog::open(folder.path()).unwrap());
    let texts_max = volume("TAPLINE_STORE_TEXTS", 60);
    let mut texts = tapline_testkit::expressions::Expressions::new(11, 1);
    let (mut done, mut passed_over) = (0, 0);
    while done < texts_max {
        let text = texts.text();
        let options = Options::default();
        let Ok(program) = compile(&text, &options) else { continue };
        done += 1;
        let accepts = |packet: &Packet<'_>| program.run(*packet) != 0;
        // Number and checksum of the packets that are accepted, in order.
        let add = |(count, sum): (usize, u32), packet: Packet<'_>| {
            (count + 1, crc32c::crc32c_append(sum, packet.data))
        };
        let all = packets.iter().map(|(data, meta)| Packet { data, meta });
        let scanned = all.filter(&accepts).fold((0, 0), add);
        let question = Question::of(&text, &options);
        let mut search = OneByOne::new(Arc::clone(&catalog), Window::ALL, question);
        let mut found = (0, 0);
        while let Some(batch) = search.next() {
            found = batch.iter().filter(&accepts).fold(found, add);
        }
        let account = search.account();
        assert_eq!(found, scanned, "{text:?}: {account:?}");
        assert!(account.is_balanced() && account.chunks_damaged == 0, "{text:?}: {account:?}");
        passed_over += account.chunks_by_keys + account.segments_by_keys;
    }
    assert!(passed_over > 0);
}

/// Every name that captures have, as itself and as a domain.
#[test]
fn a_search_for_a_name_finds_what_a_scan_finds() {
    let packets = captured();
    if packets.is_empty() {
        eprintln!("skipped: a_search_for_a_name_finds_what_a_scan_finds: there are no captures");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let index = Some(IndexOptions { macs: true, names: true });
    let settings = RecorderSettings { size: 256 << 20, index, ..SETTINGS };
    let mut recorder = Recorder::open(folder.path(), settings, &ethernet(), at(0)).unwrap();
    for some in packets.chunks(64) {
        record(&mut recorder, some, at(0));
        recorder.tick(Losses::default(), &[], &ethernet(), at(0)).unwrap();
    }
    recorder.finish(&[], Losses::default(), at(1)).unwrap();
    let catalog = Arc::new(Catalog::open(folder.path()).unwrap());
    let (mut found_all, mut passed_over) = (0, 0);
    for text in
        ["www.google.com", ".google.com", ".com", ".local", "wikipedia.org", ".wikipedia.org", ".invalid"]
    {
        let filters = [NameFilter::parse(text).unwrap()];
        let mut matcher = NameMatcher::default();
        let all = packets.iter().map(|(data, meta)| Packet { data, meta });
        let scanned = all.filter(|packet| matcher.accepts(&filters, LinkType::ETHERNET, *packet)).count();
        let mut search = OneByOne::new(Arc::clone(&catalog), Window::ALL, filters[0].question());
        let mut found = 0;
        while let Some(batch) = search.next() {
            let is_meant = |packet: &Packet<'_>| matcher.accepts(&filters, LinkType::ETHERNET, *packet);
            found += batch.iter().filter(is_meant).count();
        }
        let account = search.account();
        assert!(account.is_balanced() && account.chunks_damaged == 0, "{text}: {account:?}");
        assert_eq!(found, scanned, "{text}: {account:?}");
        eprintln!("{text}: {found} packets in {} chunks of {}", account.chunks_read, account.chunks);
        found_all += found;
        passed_over += account.chunks_by_keys + account.segments_by_keys;
    }
    assert!(found_all > 0 && passed_over > 0, "{found_all}, {passed_over}");
}

#[test]
fn a_filter_finds_no_packet_beside_its_keys() {
    let Ok(pcap) = Libpcap::get() else {
        eprintln!("skipped: a_filter_finds_no_packet_beside_its_keys: no libpcap reads the captures");
        return;
    };
    let seed = std::env::var("TAPLINE_STORE_SEED").map_or(1, |seed| seed.parse().unwrap());
    let texts_max = volume("TAPLINE_STORE_TEXTS", 600);
    let mut random = Random::new(seed);
    let (stock, mut texts) = (Stock::new(pcap, &mut random), Texts::new(&mut random));
    let (mut accepted, mut by_keys) = (0, 0);
    for _ in 0..texts_max {
        let wording = texts.wording(&mut random);
        let options = Options {
            link_type: LinkType::from_dlt(wording.dlt as u16),
            scoped: wording.scoped,
            ipv6_extensions: wording.ipv6_extensions,
            ..Options::default()
        };
        let Ok(program) = compile(&wording.text, &options) else { continue };
        let question = Question::of(&wording.text, &options);
        by_keys += u64::from(question != Question::Anything);
        for _ in 0..24 {
            let mut sample = stock.sample_for(&wording, &mut random);
            if random.one_of(1, 4) {
                sample.data.truncate(random.below(80) as usize);
            }
            accepted += u64::from(satisfies(
                &program,
                &question,
                options.link_type,
                &sample.data,
                sample.wire_len,
                &wording.text,
            ));
        }
    }
    assert!(accepted > texts_max / 2 && by_keys > texts_max / 8, "{accepted} accepted, {by_keys} with keys");
}

/// Whether the packet is accepted; if so its keys answer the question.
pub(super) fn satisfies(
    program: &CompiledFilter,
    question: &Question,
    link_type: LinkType,
    data: &[u8],
    wire_len: u32,
    text: &str,
) -> bool {
    let meta = Meta { wire_len, ..Meta::default() };
    let packet = Packet { data, meta: &meta };
    if program.run(packet) == 0 {
        return false;
    }
    let mut keys = PacketKeys::new(true);
    keys.take(link_type, packet, &Headers::parse(link_type, packet));
    let is_there = |key: u64| keys.as_slice().contains(&key);
    let has = |fact: &Fact| is_there(fact.key()) || fact.ways().iter().any(|way| is_there(open_key(*way)));
    assert!(
        question.holds(&has),
        "{text:?} accepts a packet without its keys, link type {link_type}: {data:02x?}"
    );
    true
}
