//! `batches`: flows leave in sealed batches, which are kept until the receiver has acknowledged them.

use std::path::Path;
use std::time::Duration;

use tapline_export::{BatchExporter, Delivery, Encoding, Limits, Receiver, Schema, Secret, Sensor};
use tapline_flow::export::{
    ExportOptions, GoflowEncoder, IpfixEncoder, JsonEncoder, NativeEncoder, TableEncoder, TableShape,
    goflow_template,
};
use tapline_graph::Stage;
use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Order, Outputs, Parameter, ParameterType, Property, StageAccess,
    StageClass, StageInput,
};

use super::flow_export::{DELAY, check_details, options, stage};
use super::places;
use crate::settings::StageSettings;

pub(crate) const CLASS: StageClass = StageClass {
    name: "batches",
    summary: "sends flows in batches, kept until they are acknowledged",
    description: "Right behind `flow`. Rows are those of `flowlog`. Full batches are encoded by a thread as blocks, each with an id (sensor, epoch, number), and a block is kept until its \
        receiver acknowledges it: in memory, and with a spool on disk, from where the next run delivers the blocks of this one. Its account is \
        of packets: those in rows that were \
        acknowledged or spooled are written, those in memory are buffered, and others are lost: the memory or the spool was full, the receiver refused them, or it was away to the end \
        (docs/export.md).",
    parameters: &[
        Parameter::required("to", ParameterType::Text)
            .means("the receiver: batch+file:NAME, batch+stdout:, http://HOST/PATH, https://HOST/PATH, clickhouse://HOST/DB.TABLE, kafka://HOST/TOPIC; ?format= says how rows are encoded: json, goflow, ipfix, native, arrow, parquet"),
        Parameter::new("template", ParameterType::Text, "default")
            .means("the fields, as IANA's names with commas, communityId (docs/flows.md), default, and words of flow's details for all of theirs"),
        Parameter::new("biflow", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether both directions are one row"),
        Parameter::new("domain", ParameterType::Number(0, u32::MAX as u64), "1")
            .means("the observation domain, of the first worker"),
        Parameter::new("exporter", ParameterType::Text, "none")
            .means("the exporter's address, for exporterIPv4Address or exporterIPv6Address in the template; records: each flow's own, behind collect"),
        Parameter::new("sensor", ParameterType::Text, "none")
            .means("the name of this sensor in the ids of blocks; none is the host's name"),
        Parameter::new("rows", ParameterType::Number(1, 1_000_000), "100000")
            .means("a batch is sealed with this many rows"),
        Parameter::new("time", ParameterType::Duration, "5s")
            .means("and this long after its first flow: by the packets' own time for files, by the clock for live interfaces"),
        Parameter::new("block", ParameterType::Number(1_000, 64_000_000), "4M")
            .means("bytes of a block, beyond which it goes by one flow at most"),
        Parameter::new("memory", ParameterType::Number(1_000_000, 1_000_000_000_000), "256M")
            .means("bytes of batches and blocks that wait in memory; more are lost on live interfaces, and the reader of files waits"),
        Parameter::new("patience", ParameterType::Duration, "10s")
            .means("the longest time without an acknowledgement that the end of a run, or the reader of a file, waits"),
        Parameter::new("spool", ParameterType::Text, "none")
            .means("the folder that keeps blocks while the receiver is away, and over the end of the run"),
        Parameter::new("spool_size", ParameterType::Number(1_000_000, 1_000_000_000_000_000), "1G")
            .means("the most bytes in it, of all workers"),
        Parameter::new("secret", ParameterType::Text, "none")
            .means("a file whose first line is the password of the user in the URL, or the token where there is none"),
        places::PARAMETER,
    ],
    outputs: Outputs::None,
    input: StageInput::Flows(check_details),
    order: Order::Flow,
    example: "device(eth0) -> flow -> batches(\"https://receiver/flows\", spool=\"/var/spool/tapline\")",
    properties: &[Property::External],
    access: add_access,
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

fn add_access(arguments: &Arguments, access: &mut StageAccess) {
    places::add_place_files(arguments, access);
    let [spool, secret] =
        ["spool", "secret"].map(|name| Some(arguments.text(name)).filter(|text| *text != "none"));
    spool.iter().for_each(|spool| access.makes_folder(spool));
    access.allowed.reads.extend(secret.map(Into::into));
    let Ok(to) = Receiver::parse(arguments.text("to")) else { return };
    access.allowed.reads.extend(to.files_read());
    access.allowed.ip |= to.is_remote();
    to.file().iter().for_each(|file| access.makes_file(file));
}

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let text = |error: tapline_export::Error| error.to_string();
    let mut to = Receiver::parse(arguments.text("to")).map_err(text)?;
    if site.common.workers > 1 && !to.is_remote() {
        return Err("several workers cannot write one file: leave --workers out".to_owned());
    }
    let options = options(arguments, site, &template(arguments, to.encoding()))?;
    let shape = TableShape::new(&options).map_err(|error| error.to_string())?;
    let encoder = encoder(&to, &shape, &options)?;
    if to.encoding() == Encoding::Native {
        let columns = NativeEncoder::new(&shape, to.is_old()).columns();
        to.set_schema(Schema { version: shape.version(), columns });
    }
    let given = |name: &str| Some(arguments.text(name)).filter(|text| *text != "none");
    let workers = site.common.workers.max(1);
    let sensor = given("sensor").map(Sensor::new).transpose().map_err(text)?;
    let secret = given("secret").map(|path| Secret::of_file(Path::new(path))).transpose().map_err(text)?;
    let spool_size = arguments.number("spool_size") / workers as u64;
    let spool = given("spool").map(|folder| (site.common.path(folder), spool_size));
    let limits = Limits {
        rows: arguments.number("rows"),
        time: Duration::from_nanos(arguments.nanoseconds("time")),
        block: arguments.number("block") as usize,
        memory: arguments.number("memory") as usize / workers,
        patience: Duration::from_nanos(arguments.nanoseconds("patience")),
    };
    let delivery = Delivery::open(&to, sensor, spool, secret, limits, site.worker as u64).map_err(text)?;
    let mut exporter = BatchExporter::start(delivery, shape, encoder).map_err(text)?;
    exporter.set_cancel_flag(&site.control.pacing_cancel_flag());
    let files = StageSettings::of(site.common).place_files.open(arguments, site)?;
    Ok(stage("batches", exporter, DELAY, files, site.control))
}

/// The template, of which the default is another for messages that have fewer fields.
fn template(arguments: &Arguments, encoding: Encoding) -> String {
    let template = arguments.text("template");
    match encoding {
        Encoding::Goflow => goflow_template(template),
        #[cfg(feature = "parquet")]
        Encoding::Parquet => tapline_flow::export::parquet_template(template),
        _ => template.to_owned(),
    }
}

fn encoder(
    to: &Receiver,
    shape: &TableShape,
    options: &ExportOptions,
) -> Result<Box<dyn TableEncoder>, String> {
    match to.encoding() {
        Encoding::JsonLines => Ok(Box::new(JsonEncoder::new(shape))),
        Encoding::Native => Ok(Box::new(NativeEncoder::new(shape, to.is_old()))),
        Encoding::Goflow => {
            GoflowEncoder::new(shape).map(|encoder| Box::new(encoder) as _).map_err(|error| error.to_string())
        }
        Encoding::Ipfix => {
            let encoder = IpfixEncoder::new(shape, options);
            encoder.map(|encoder| Box::new(encoder) as _).map_err(|error| error.to_string())
        }
        #[cfg(feature = "arrow")]
        Encoding::Arrow => Ok(Box::new(tapline_flow::export::ArrowEncoder::new(shape))),
        #[cfg(feature = "parquet")]
        Encoding::Parquet => Ok(Box::new(tapline_flow::export::ParquetEncoder::new(shape))),
        other => {
            let name = other.name();
            Err(format!("this build has no encoder for {name}: cargo build --release --features {name}"))
        }
    }
}

#[cfg(test)]
mod tests;
