-- Tables for flows of `tapline probe --export clickhouse://HOST/net.flows` with its default template. The first is that
-- of `?create=yes`: an insert that comes again within a thousand is known by its token. It differs in the line TTL, which
-- deletes flows of more than 30 days ago: leave it out before captures are loaded.
CREATE DATABASE IF NOT EXISTS net;

CREATE TABLE IF NOT EXISTS net.flows
(
    flowStartNanoseconds DateTime64(9, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    flowEndNanoseconds DateTime64(9, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    sourceAddress IPv6 CODEC(ZSTD(1)),
    sourceTransportPort UInt16 CODEC(ZSTD(1)),
    destinationAddress IPv6 CODEC(ZSTD(1)),
    destinationTransportPort UInt16 CODEC(ZSTD(1)),
    protocolIdentifier UInt8 CODEC(ZSTD(1)),
    octetDeltaCount UInt64 CODEC(T64, ZSTD(1)),
    packetDeltaCount UInt64 CODEC(T64, ZSTD(1)),
    tcpControlBits UInt8 CODEC(ZSTD(1)),
    initialTCPFlags UInt8 CODEC(ZSTD(1)),
    ipClassOfService UInt8 CODEC(ZSTD(1)),
    minimumTTL UInt8 CODEC(ZSTD(1)),
    maximumTTL UInt8 CODEC(ZSTD(1)),
    icmpTypeCode UInt16 CODEC(ZSTD(1)),
    vlanId UInt16 CODEC(ZSTD(1)),
    ingressInterface UInt32 CODEC(T64, ZSTD(1)),
    flowEndReason UInt8 CODEC(ZSTD(1)),
    communityId String CODEC(ZSTD(1)),
    INDEX sourceAddress_index sourceAddress TYPE bloom_filter(0.01) GRANULARITY 4,
    INDEX destinationAddress_index destinationAddress TYPE bloom_filter(0.01) GRANULARITY 4
)
ENGINE = MergeTree
PARTITION BY toDate(flowStartNanoseconds)
ORDER BY (toStartOfMinute(flowStartNanoseconds), destinationAddress, sourceAddress, destinationTransportPort, sourceTransportPort)
TTL toDateTime(flowStartNanoseconds) + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- Sums of a minute by pair of addresses and protocol, kept for 400 days. An insert that comes again is known here, too:
-- inserts have deduplicate_blocks_in_dependent_materialized_views.
CREATE TABLE IF NOT EXISTS net.flows_minute
(
    minute DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    destinationAddress IPv6 CODEC(ZSTD(1)),
    sourceAddress IPv6 CODEC(ZSTD(1)),
    protocolIdentifier UInt8 CODEC(ZSTD(1)),
    flows UInt64 CODEC(T64, ZSTD(1)),
    packetDeltaCount UInt64 CODEC(T64, ZSTD(1)),
    octetDeltaCount UInt64 CODEC(T64, ZSTD(1))
)
ENGINE = SummingMergeTree
PARTITION BY toYYYYMM(minute)
ORDER BY (minute, destinationAddress, sourceAddress, protocolIdentifier)
TTL minute + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS net.flows_minute_view TO net.flows_minute AS
SELECT
    toStartOfMinute(toDateTime(flowStartNanoseconds, 'UTC')) AS minute,
    destinationAddress,
    sourceAddress,
    protocolIdentifier,
    count() AS flows,
    sum(packetDeltaCount) AS packetDeltaCount,
    sum(octetDeltaCount) AS octetDeltaCount
FROM net.flows
GROUP BY minute, destinationAddress, sourceAddress, protocolIdentifier;
