//! `ipfix`: flows go to collectors.

use std::time::Duration;

use tapline_flow::Sampling;
use tapline_flow::export::{ExportOptions, ExportTarget, Exporter, TlsFiles, Version};
use tapline_graph::Stage;
use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Order, Outputs, Parameter, ParameterType, Property, StageClass,
    StageInput,
};

use super::flow_export::{check_details, options, sampling_of, stage};
use super::places;
use crate::settings::StageSettings;

pub(crate) const CLASS: StageClass = StageClass {
    name: "ipfix",
    summary: "flows go to collectors, as IPFIX or NetFlow",
    description: "Right behind `flow`. Each direction becomes a record, unless biflow=yes. Its account is of packets: those in records that were sent are \
        written, those in records that a collector did not accept are lost, as are those of IPv6 with NetFlow v5, which has no place for them. With several \
        workers each is an observation domain of its own, numbered from `domain`.",
    parameters: &[
        Parameter::required("to", ParameterType::Text)
            .means("the collectors, with commas: udp://HOST:PORT, tcp://HOST:PORT, tls://HOST:PORT, file:NAME; HOST:PORT means UDP"),
        Parameter::new("version", ParameterType::Choice(&["10", "9", "5"]), "10")
            .means("10 is IPFIX, 9 and 5 are NetFlow"),
        Parameter::new("template", ParameterType::Text, "default")
            .means("the elements of a record by IANA's names, with commas (docs/reference/elements.md), default, and words of flow's details for all of theirs"),
        Parameter::new("biflow", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether both directions are one record (RFC 5103; IPFIX)"),
        Parameter::new("domain", ParameterType::Number(0, u32::MAX as u64), "1")
            .means("observation domain, source id, or engine type and id"),
        Parameter::new("exporter", ParameterType::Text, "none")
            .means("the exporter's address, for exporterIPv4Address or exporterIPv6Address in the template, and to send from; records: each flow's own, behind collect"),
        Parameter::new("mtu", ParameterType::Number(256, 65_535), "1500")
            .means("the most bytes of an IP packet with a message"),
        Parameter::new("templates", ParameterType::Number(1, 1_000_000), "1000")
            .means("over UDP, the number of messages after which templates are sent again"),
        Parameter::new("template_time", ParameterType::Duration, "60s")
            .means("over UDP, the time after which templates are sent again"),
        Parameter::new("delay", ParameterType::Duration, "1s")
            .means("the longest time that a message of a live interface waits for further records, in tenths of a second"),
        Parameter::new("records", ParameterType::Number(0, 65_535), "0")
            .means("records with which a message is sent though it is not full; 0 fills each, as far as the delay allows"),
        Parameter::new("spread", ParameterType::Choice(&["all", "flow"]), "all")
            .means("all: each collector gets all flows; flow: each flow goes to one of them"),
        Parameter::new("rate", ParameterType::Number(0, 10_000_000), "0")
            .means("the most messages a second to each collector, which the packets then wait for; 0 for no limit"),
        Parameter::new("tls_ca", ParameterType::Text, "none")
            .means("for tls://, a PEM file of the authorities that may have signed the collector's certificate"),
        Parameter::new("tls_cert", ParameterType::Text, "none")
            .means("for tls://, a PEM file of the exporter's certificate, for collectors that ask for one"),
        Parameter::new("tls_key", ParameterType::Text, "none").means("the PEM file of the key to tls_cert"),
        Parameter::new("tls_name", ParameterType::Text, "none")
            .means("the name that the collector's certificate must have, if not the host of its address"),
        Parameter::new("enterprise", ParameterType::Number(1, u32::MAX as u64), "32473")
            .means("the private enterprise number of elements that IANA does not know; 32473 is that of examples"),
        places::PARAMETER,
    ],
    outputs: Outputs::None,
    input: StageInput::Flows(check_meters),
    order: Order::Flow,
    example: "device(eth0) -> flow -> ipfix(\"127.0.0.1:4739,127.0.0.1:2055\")",
    properties: &[Property::External],
    access: |arguments, access| {
        places::add_place_files(arguments, access);
        for to in ExportTarget::list(arguments.text("to")).unwrap_or_default() {
            match to {
                ExportTarget::File(path) => access.makes_file(path),
                _ => access.allowed.ip = true,
            }
        }
    },
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

/// Records and options report one rate, of all flows, which must fit the protocol.
fn check_meters(meters: &[&Arguments], own: &Arguments) -> Result<(), String> {
    check_details(meters, own)?;
    let mut samples = meters.iter().map(|meter| sampling_of(meter));
    let Some(sampling) = samples.next() else { return Ok(()) };
    if let Some(other) = samples.find(|other| *other != sampling) {
        let [one, other] = [sampling, other].map(|sampling| match sampling {
            Sampling::Packets(interval) => format!("one of {interval} packets"),
            Sampling::Flows(interval) => format!("one of {interval} flows"),
        });
        return Err(format!(
            "its meters take {one} and {other}: give each an ipfix of its own, and another domain"
        ));
    }
    let version = Version::of_number(own.number("version")).unwrap_or_default();
    version.check_sampling(sampling).map_err(|error| error.to_string())
}

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let text = |error: tapline_flow::Error| error.to_string();
    let targets = ExportTarget::list(arguments.text("to")).map_err(text)?;
    if site.common.workers > 1 && targets.iter().any(|target| matches!(target, ExportTarget::File(_))) {
        return Err(
            "several workers cannot write one file: leave --workers out, or name a collector".to_owned()
        );
    }
    let options = ExportOptions {
        version: Version::of_number(arguments.number("version")).unwrap_or_default(),
        mtu: arguments.number("mtu") as u16,
        message_records: arguments.number("records") as u32,
        template_messages: arguments.number("templates") as u32,
        template_time: Duration::from_nanos(arguments.nanoseconds("template_time")),
        spreads_flows: arguments.text("spread") == "flow",
        rate: arguments.number("rate") as u32,
        enterprise: arguments.number("enterprise") as u32,
        tls: tls_files(arguments)?,
        ..options(arguments, site, arguments.text("template"))?
    };
    let mut exporter = Exporter::open(&targets, &options).map_err(text)?;
    if options.rate > 0 {
        exporter.set_cancel_flag(&site.control.pacing_cancel_flag());
    }
    let files = StageSettings::of(site.common).place_files.open(arguments, site)?;
    Ok(stage("ipfix", exporter, Duration::from_nanos(arguments.nanoseconds("delay")), files, site.control))
}

fn tls_files(arguments: &Arguments) -> Result<TlsFiles, String> {
    let given = |name: &str| Some(arguments.text(name)).filter(|text| *text != "none").map(str::to_owned);
    let identity = match (given("tls_cert"), given("tls_key")) {
        (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
        (None, None) => None,
        _ => return Err("a certificate and its key belong together: give tls_cert and tls_key".to_owned()),
    };
    Ok(TlsFiles { authorities: given("tls_ca").map(Into::into), identity, server_name: given("tls_name") })
}
