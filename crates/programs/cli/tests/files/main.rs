//! The program on files, and where things go wrong: most of it needs neither rights nor a network.

#[path = "../support/mod.rs"]
mod support;

mod applications;
mod arrow;
mod batches;
mod bursts;
mod calls;
mod capture;
mod collect;
mod configuration;
mod confined;
mod copies;
mod details;
mod docs;
mod enrich;
mod errors;
mod excerpt;
mod flow_choice;
mod flow_keys;
mod follow;
mod fpl;
mod generate;
mod grep;
mod host_names;
mod info;
mod laws;
mod manual;
mod metrics;
mod outputs;
mod parquet;
mod publishing;
mod requests;
mod run;
mod sharing;
mod signatures;
mod stats;
mod store_answers;
mod store_keeping;
mod store_reports;
mod store_rights;
mod store_scan;
mod streams;
mod trailers;
mod vlan_filters;
mod watch;
