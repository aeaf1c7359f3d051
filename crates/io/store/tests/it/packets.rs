//! Packets that follow from their numbers, and what a store gives back of them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tapline_bpf::PacketFilter;
use tapline_filter::{Options, compile};
use tapline_packet::{Batch, Interface, LinkType, Meta, Packet, Record, Selection, Timestamp};
use tapline_source::{Advance, Source as _};
use tapline_store::{
    Catalog, Question, Recorder, Search, SearchAccount, SearchFilter, StoreInput, StoreReading, Window,
};

/// Packets of one host, one after the other.
pub(crate) const PACKETS_OF_HOST: u64 = 50;
/// Offset of the number: after the headers of Ethernet, IPv4 and UDP.
const NUMBER_AT: usize = 42;

pub(crate) fn at_ms(millisecond: i64) -> Timestamp {
    Timestamp::from_nanos((1_795_518_000_000 + millisecond) * 1_000_000)
}

pub(crate) fn interfaces() -> Vec<Interface> {
    vec![Interface::new("far0", LinkType::ETHERNET)]
}

/// The bytes of a packet: UDP from the host of its number.
pub(crate) fn bytes(number: u64) -> Vec<u8> {
    let len = 60 + (number.wrapping_mul(7919) % 1400) as usize;
    let mut data = vec![(number * 31) as u8; len];
    data[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    data[12..14].copy_from_slice(&[0x08, 0x00]);
    data[14..34].fill(0);
    data[14] = 0x45;
    data[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    data[22..24].copy_from_slice(&[64, 17]);
    data[26..30].copy_from_slice(&(0x0a00_0000 + (number / PACKETS_OF_HOST) as u32).to_be_bytes());
    data[30..34].copy_from_slice(&[192, 0, 2, 1]);
    data[34..36].copy_from_slice(&(20_000 + (number % 1000) as u16).to_be_bytes());
    data[36..38].copy_from_slice(&(1000 + (number % 7) as u16).to_be_bytes());
    data[38..40].copy_from_slice(&((len - 34) as u16).to_be_bytes());
    data[40..42].fill(0);
    data[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_be_bytes());
    data
}

/// The filter that accepts the packets of a number's host.
pub(crate) fn host_of(number: u64) -> String {
    let [a, b, c, d] = (0x0a00_0000 + (number / PACKETS_OF_HOST) as u32).to_be_bytes();
    format!("host {a}.{b}.{c}.{d}")
}

/// Hands packets to a recorder, all with the same time.
pub(crate) fn record(
    recorder: &mut Recorder,
    numbers: std::ops::Range<u64>,
    time: Timestamp,
    now: Timestamp,
) {
    let (mut data, mut records) = (Vec::new(), Vec::new());
    for number in numbers {
        let packet = bytes(number);
        let (offset, len) = (data.len(), packet.len() as u32);
        let meta = Meta { timestamp: time, wire_len: len, ..Meta::default() };
        records.push(Record { offset, cap_len: len, options_len: 0, meta });
        data.extend_from_slice(&packet);
    }
    let mut all = Selection::none();
    all.select_all(records.len());
    // What cannot be handed over is counted as lost.
    let _ = recorder.write(&Batch::new(&data, &records), &all, &interfaces(), now);
}

/// Result of a search.
pub(crate) struct SearchResult {
    /// Numbers of the packets, in their order.
    pub(crate) numbers: Vec<u64>,
    pub(crate) account: SearchAccount,
}

/// Finds packets; each must be as it was recorded, and the account must balance.
#[track_caller]
pub(crate) fn find(store: &Path, window: Window, filter: &str) -> SearchResult {
    let options = Options::default();
    let program: Arc<dyn PacketFilter> = Arc::new(compile(filter, &options).expect("a filter"));
    let sieve: SearchFilter = Arc::new(move |_| Ok(Some(Arc::clone(&program))));
    let reading = StoreReading { sieve: Some(sieve), ..StoreReading::default() };
    let mut input = open(store, window, Question::of(filter, &options), reading);
    let mut numbers = Vec::new();
    while next(&mut input) {
        numbers.extend(input.batch().iter().map(number));
    }
    let account = input.report().get();
    assert!(account.is_balanced(), "{account:?}");
    let faults: Vec<String> = input.events().into_iter().map(|event| event.text).collect();
    assert_eq!(faults, account.warnings("store"), "chunks whose checksum fits are whole");
    // Packets come in the order of time, and clocks may go back.
    numbers.sort_unstable();
    SearchResult { numbers, account }
}

pub(crate) fn open(store: &Path, window: Window, question: Question, reading: StoreReading) -> StoreInput {
    let catalog = Arc::new(Catalog::open(store).expect("a store"));
    let search = Search::new(catalog, window, question).expect("a directory");
    StoreInput::new(search, "store", reading)
}

/// Whether there is a next batch.
pub(crate) fn next(input: &mut StoreInput) -> bool {
    loop {
        match input.advance(Duration::from_secs(60)).expect("a filter for all interfaces") {
            Advance::Batch => return true,
            Advance::Idle => {}
            Advance::End => return false,
        }
    }
}

pub(crate) fn number(packet: Packet<'_>) -> u64 {
    let place = packet.data.get(NUMBER_AT..).and_then(|rest| rest.first_chunk());
    let number = u64::from_be_bytes(*place.expect("packets are long enough"));
    assert_eq!(packet.data, bytes(number), "packet {number} is not as it was recorded");
    number
}

/// All packets that a store has.
#[track_caller]
pub(crate) fn all(store: &Path) -> Vec<u64> {
    find(store, Window::ALL, "").numbers
}

/// Whether a search by keys finds what a scan finds, for the hosts of these numbers and one that never sent.
#[track_caller]
pub(crate) fn assert_keys_find_all(store: &Path, scanned: &[u64], hosts: impl IntoIterator<Item = u64>) {
    for number in hosts {
        let host = number / PACKETS_OF_HOST;
        let wanted: Vec<u64> =
            scanned.iter().copied().filter(|number| number / PACKETS_OF_HOST == host).collect();
        assert_eq!(find(store, Window::ALL, &host_of(number)).numbers, wanted, "{}", host_of(number));
    }
}
