//! Alerts as lines of JSON, in the form of Suricata's eve.json.
//!
//! ```text
//! {"timestamp":"2023-11-14T22:13:20.000000+0000","event_type":"alert","src_ip":"10.0.0.1","src_port":4000,
//!  "dest_ip":"10.0.0.2","dest_port":80,"proto":"TCP","alert":{"action":"allowed","gid":1,"signature_id":7,"rev":1,
//!  "signature":"an admin's page","category":"web-application-attack","severity":1}}
//! ```

use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use tapline_packet::Packet;
use tapline_packet::headers::{FiveTuple, Headers};
use tapline_packet::numbers::ip_protocol::{ICMP, ICMPV6, SCTP, TCP, UDP};
use tapline_signature::Signature;
use tapline_source::Error;
use tapline_sys::output_file;

use super::eve_time;

/// A packet that a signature reports.
pub(super) struct Alert<'a> {
    pub(super) signature: &'a Signature,
    pub(super) headers: &'a Headers,
    pub(super) packet: Packet<'a>,
    pub(super) tuple: Option<FiveTuple>,
    /// The interface's name; empty where a file does not say.
    pub(super) interface: &'a str,
}

/// The file that alerts are written to.
pub(super) struct AlertFile {
    name: String,
    file: BufWriter<Box<dyn Write + Send>>,
}

impl AlertFile {
    pub(super) fn create(path: &Path) -> Result<AlertFile, String> {
        let name = path.display().to_string();
        let file = output_file::create(path).map_err(|error| format!("cannot make {name}: {error}"))?;
        Ok(AlertFile { name, file: BufWriter::new(Box::new(file)) })
    }

    pub(super) fn standard_output() -> AlertFile {
        AlertFile { name: "standard output".to_owned(), file: BufWriter::new(Box::new(std::io::stdout())) }
    }

    /// Writes the line of an alert; `is_blocked` says that its packet is not forwarded.
    pub(super) fn write(&mut self, alert: &Alert<'_>, is_blocked: bool) -> Result<(), Error> {
        let line = alert.to_json(is_blocked).to_string() + "\n";
        self.file.write_all(line.as_bytes()).map_err(|error| Error::output(&self.name, error))
    }

    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.file.flush().map_err(|error| Error::output(&self.name, error))
    }
}

impl Alert<'_> {
    fn to_json(&self, is_blocked: bool) -> Value {
        let mut members = Map::new();
        let mut add = |name: &str, value: Value| {
            members.insert(name.to_owned(), value);
        };
        add("timestamp", eve_time(self.packet.meta.timestamp).into());
        add("event_type", "alert".into());
        if !self.interface.is_empty() {
            add("in_iface", self.interface.into());
        }
        let tags: Vec<u16> = self.headers.vlans().iter().map(|tag| tag.tci & 0xfff).collect();
        if !tags.is_empty() {
            add("vlan", tags.into());
        }
        match self.tuple {
            Some(tuple) => {
                add("src_ip", tuple.src.to_string().into());
                add("dest_ip", tuple.dst.to_string().into());
                if tuple.src_port != 0 || tuple.dst_port != 0 {
                    add("src_port", tuple.src_port.into());
                    add("dest_port", tuple.dst_port.into());
                }
            }
            None => {
                if let Some((source, destination)) = self.headers.addresses(self.packet.data) {
                    add("src_ip", source.to_string().into());
                    add("dest_ip", destination.to_string().into());
                }
            }
        }
        add("proto", self.protocol().into());
        add("alert", self.signature_json(is_blocked));
        Value::Object(members)
    }

    fn protocol(&self) -> String {
        match self.headers.protocol() {
            Some(TCP) => "TCP".to_owned(),
            Some(UDP) => "UDP".to_owned(),
            Some(ICMP) => "ICMP".to_owned(),
            Some(ICMPV6) => "IPv6-ICMP".to_owned(),
            Some(SCTP) => "SCTP".to_owned(),
            Some(number) => number.to_string(),
            None => String::new(),
        }
    }

    fn signature_json(&self, is_blocked: bool) -> Value {
        let Signature { gid, sid, rev, msg, classtype, priority, references, .. } = self.signature;
        let mut alert = json!({
            "action": if is_blocked { "blocked" } else { "allowed" }, "gid": gid, "signature_id": sid, "rev": rev, "signature": msg,
            "category": classtype, "severity": priority,
        });
        if !references.is_empty() {
            let texts = references.iter().map(|reference| format!("{},{}", reference.system, reference.id));
            alert["references"] = texts.collect::<Vec<_>>().into();
        }
        alert
    }
}
