//! `flowlog`: flows become lines of text, or Parquet.

use std::path::Path;
#[cfg(feature = "parquet")]
use std::time::Duration;

use tapline_flow::export::{ExportOptions, RowFormat, RowWriter};
#[cfg(feature = "parquet")]
use tapline_flow::export::{ParquetLimits, ParquetWriter};
use tapline_graph::Stage;
use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Order, Outputs, Parameter, ParameterType, Property, StageClass,
    StageInput,
};

use super::flow_export::{DELAY, check_details, options, stage};
use super::places::{self, PlaceReader};
use crate::settings::StageSettings;

pub(crate) const CLASS: StageClass = StageClass {
    name: "flowlog",
    summary: "flows become lines of JSON or CSV, or files of Parquet",
    description: "Right behind `flow`. Each direction becomes a line or row, unless biflow=yes; fields have the names of IANA's information \
        elements. Its account is of packets: \
        those in lines that were written, or in files of Parquet that are whole, are written; those of files that are not whole yet are buffered; the others are lost. Several workers \
        cannot write one file of lines, but they can write Parquet into one directory.",
    parameters: &[
        Parameter::required("to", ParameterType::Text)
            .means("the file, for Parquet the directory; - is standard output"),
        Parameter::new("format", ParameterType::Choice(&["json", "csv", "parquet"]), "json")
            .means("an object a line, values with commas below their names, or Parquet by date and hour"),
        Parameter::new("template", ParameterType::Text, "default")
            .means("the fields, as IANA's names with commas, communityId (docs/flows.md), default, and words of flow's details for all of theirs"),
        Parameter::new("biflow", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether both directions are one line"),
        Parameter::new("domain", ParameterType::Number(0, u32::MAX as u64), "1")
            .means("the observation domain, of the first worker"),
        Parameter::new("exporter", ParameterType::Text, "none")
            .means("the exporter's address, for exporterIPv4Address or exporterIPv6Address in the template"),
        Parameter::new("parquet_size", ParameterType::Number(64_000, 1_000_000_000_000), "128M")
            .means("a Parquet file is closed before it has more bytes"),
        Parameter::new("parquet_time", ParameterType::Duration, "5m")
            .means("and this long after its first flow: by the packets' own time for files, by the clock for live interfaces"),
        places::PARAMETER,
    ],
    outputs: Outputs::None,
    input: StageInput::Flows(check_details),
    order: Order::Flow,
    example: "device(eth0) -> flow -> flowlog(\"-\")",
    properties: &[Property::External],
    access: |arguments, access| {
        places::add_place_files(arguments, access);
        match arguments.text("format") {
            "parquet" if arguments.text("to") != "-" => access.makes_folder(arguments.text("to")),
            _ => access.makes_file(arguments.text("to")),
        }
    },
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let options = options(arguments, site, arguments.text("template"))?;
    let files = StageSettings::of(site.common).place_files.open(arguments, site)?;
    if arguments.text("format") == "parquet" && !(site.common.workers > 1 && arguments.text("to") == "-") {
        return make_parquet(arguments, &options, files, site);
    }
    if site.common.workers > 1 {
        return Err("several workers cannot write one file: leave --workers out".to_owned());
    }
    let format = if arguments.text("format") == "csv" { RowFormat::Csv } else { RowFormat::Json };
    let rows = RowWriter::create(Path::new(arguments.text("to")), format, &options);
    Ok(stage("flowlog", rows.map_err(|error| error.to_string())?, DELAY, files, site.control))
}

#[cfg(feature = "parquet")]
fn make_parquet(
    arguments: &Arguments,
    options: &ExportOptions,
    files: Option<PlaceReader>,
    site: &BuildContext<'_>,
) -> Result<Box<dyn Stage>, String> {
    let limits = ParquetLimits {
        size: arguments.number("parquet_size"),
        time: Duration::from_nanos(arguments.nanoseconds("parquet_time")),
    };
    let writer = ParquetWriter::create(Path::new(arguments.text("to")), options, limits);
    Ok(stage("flowlog", writer.map_err(|error| error.to_string())?, DELAY, files, site.control))
}

#[cfg(not(feature = "parquet"))]
fn make_parquet(
    _: &Arguments,
    _: &ExportOptions,
    _: Option<PlaceReader>,
    _: &BuildContext<'_>,
) -> Result<Box<dyn Stage>, String> {
    Err(tapline_flow::Error::NoParquet.to_string())
}

#[cfg(test)]
mod tests {
    use tapline_graph::plan::{GraphText, Plan};

    #[cfg(feature = "parquet")]
    #[test]
    fn packets_wait_until_their_file_is_whole() {
        use tapline_testkit::frames::*;

        let folder = tempfile::tempdir().expect("there is room");
        let to = folder.path().join("flows");
        let text = format!("file(\"in\") -> flow -> e :: flowlog({to:?}, format=parquet); e -> json");
        assert!(
            Plan::new(crate::catalog(), &[GraphText { name: "t", text: &text }]).is_err(),
            "nothing follows it"
        );
        let text = text.replace("; e -> json", "; file(\"in\") -> json");
        let mut trial = crate::trial::Trial::graph(&text).unwrap_or_else(|why| panic!("{why}"));
        let (a, b) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        let datagram =
            |src| Ethernet::between(&a, &b).ip(&Udp { src, dst: 53 }.packet(pair, b"twelve bytes"));
        trial.push_frames(&(0..100).map(datagram).collect::<Vec<_>>());
        trial.assert_balanced();
        assert_eq!(std::fs::read_dir(&to).expect("it is made").count(), 0);
        trial.finish();
        trial.assert_balanced();
        let account = trial.account();
        let own = account.stages.iter().find(|stage| stage.name == "e").map(|stage| stage.counters.clone());
        let output = own.and_then(|own| own.output).expect("it is an output");
        assert_eq!((output.written, output.lost, output.buffered), (100, 0, 0));
        assert_eq!(std::fs::read_dir(&to).expect("it is made").count(), 1);
    }

    #[cfg(not(feature = "parquet"))]
    #[test]
    fn without_the_feature_it_says_how_to_get_it() {
        let text = "file(\"in\") -> flow -> flowlog(\"flows\", format=parquet)";
        assert!(Plan::new(crate::catalog(), &[GraphText { name: "t", text }]).is_ok());
        let why = crate::trial::Trial::graph(text).err().expect("it cannot");
        assert!(why.contains("cargo build --release --features parquet"), "{why}");
    }
}
