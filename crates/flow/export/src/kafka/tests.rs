//! With the cluster that librdkafka itself imitates; a real broker is asked by `contrib/kafka/tests/broker.py`.

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::RDKafkaRespErr;

use super::*;
use crate::ChunkHead;
use crate::trial::block;

const LONG: Duration = Duration::from_secs(60);

/// A cluster of one broker, and the way to its topic.
fn cluster() -> (MockCluster<'static, DefaultProducerContext>, KafkaAddress) {
    let cluster = MockCluster::new(1).expect("a cluster");
    cluster.create_topic("flows", 2, 1).expect("a topic");
    let address = KafkaAddress::parse(&format!("{}/flows", cluster.bootstrap_servers())).expect("a topic");
    (cluster, address)
}

fn open(address: &KafkaAddress) -> KafkaCarrier {
    KafkaCarrier::open(address, None, None, None).expect("it can be reached")
}

#[test]
fn each_block_is_a_message_that_is_acknowledged() {
    let (_cluster, address) = cluster();
    let mut carrier = open(&address);
    assert_eq!(carrier.poll(LONG), None, "nothing is taken: no wait");
    let blocks: Vec<_> = (0..20).map(|number| Arc::new(block(number, b"rows"))).collect();
    for block in &blocks {
        assert_eq!(carrier.offer(block), Offer::Taken);
    }
    let mut numbers = Vec::new();
    while let Some(report) = carrier.poll(LONG) {
        assert_eq!(report.outcome, Outcome::Delivered);
        numbers.push(report.block.id.number);
    }
    assert_eq!(numbers, (0..20).collect::<Vec<u64>>(), "one sensor: one partition, in order");
    assert_eq!(carrier.taken_bytes, 0);
}

#[test]
fn blocks_on_their_way_have_a_bound() {
    let (cluster, address) = cluster();
    let mut carrier = open(&address);
    cluster.broker_down(1).expect("it goes");
    let large = Arc::new(block(0, &vec![b'x'; 900_000]));
    let taken = (0..100).take_while(|_| carrier.offer(&large) == Offer::Taken).count();
    assert_eq!(taken, TAKEN_BYTES_MAX / 900_000);
    let reports = carrier.give_up();
    assert_eq!(reports.len(), taken);
    assert!(reports.iter().all(|report| matches!(report.outcome, Outcome::Again(_))));
    assert_eq!((carrier.taken.len(), carrier.taken_bytes), (0, 0));
}

#[test]
fn a_block_that_no_broker_takes_is_refused() {
    let (_cluster, address) = cluster();
    let mut carrier = open(&address);
    assert_eq!(carrier.offer(&Arc::new(block(0, &vec![b'x'; 1_000_001]))), Offer::Taken);
    let report = carrier.poll(LONG).expect("a report");
    assert!(matches!(report.outcome, Outcome::Refused(_)), "{report:?}");
}

#[test]
fn a_refused_topic_is_reported_at_the_start() {
    let (cluster, address) = cluster();
    for (error, word) in [
        (RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, "--create"),
        (RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, "allow it"),
    ] {
        cluster.topic_error("flows", error).expect("it is told so");
        let error = KafkaCarrier::open(&address, None, None, None).err().expect("a refusal").to_string();
        assert!(error.starts_with("kafka://127.0.0.1:") && error.contains(word), "{error}");
    }
}

#[test]
fn headers_tell_what_a_reader_compares() {
    let told: Vec<String> =
        headers(&block(5, b"{}\n")).iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        told.join(" "),
        "tapline-batch=test-7-5 tapline-format=json tapline-schema=0000000000000001 tapline-packets=3 tapline-first=10 \
         tapline-last=20 tapline-rows=1 tapline-flows=1"
    );
    let packets = Block { encoding: Encoding::Pcapng, packets_before: 9, ..block(5, b"") };
    let told = headers(&packets);
    assert!(told.contains(&("tapline-schema", "tapline-packets-pcapng".to_owned())));
    let told =
        ChunkHead::of(told.iter().map(|(name, value)| (*name, Some(value.as_bytes())))).expect("a chunk");
    assert_eq!((told.id, told.packets, told.packets_before), (packets.id, 3, 9));
}

#[test]
fn errors_tell_whether_the_block_is_at_fault() {
    let of = |code| outcome(&KafkaError::MessageProduction(code), Some("connection refused"));
    assert!(matches!(of(RDKafkaErrorCode::MessageSizeTooLarge), Outcome::Refused(_)));
    let Outcome::Again(why) = of(RDKafkaErrorCode::MessageTimedOut) else { panic!("it may come later") };
    assert!(why.ends_with(": connection refused"), "{why}");
}
