//! Endings of file names that ask for something that is not written.
//!
//! A name may end as it likes (`trace.2026-11-24`, `x.cap`): it is pcap. An ending that people know as another format or
//! compression is refused, as the file would not be what its name says.

use std::path::Path;

use super::options::Format;
use crate::error::WriteError;
use crate::input::Compression;

/// Compressions and archives that are not written.
const PACKED: [&str; 13] =
    ["bz2", "xz", "lzma", "lz", "lzo", "z", "br", "sz", "zip", "7z", "rar", "tar", "tgz"];

/// Formats of captures and tables that are not written.
const FORMATS: [&str; 21] = [
    "snoop", "5vw", "bfr", "enc", "fdc", "syc", "trc", "trc0", "tr1", "rf5", "vwr", "blf", "acp", "pklg",
    "json", "ndjson", "jsonl", "csv", "parquet", "arrow", "txt",
];

impl Format {
    /// Checks that a file of this name would have the format of its ending. `is_given` says that the format was named
    /// elsewhere, so that the ending decides on compression only.
    ///
    /// # Errors
    /// If the ending is that of a format or compression that is not written.
    pub fn check_name(path: &Path, is_given: bool) -> Result<(), WriteError> {
        let ending = |path: &Path| Some(path.extension()?.to_str()?.to_ascii_lowercase());
        let Some(last) = ending(path) else { return Ok(()) };
        if PACKED.contains(&&*last) {
            return Err(refusal(path, &last, "compressed by gz, zst or lz4"));
        }
        let format = match Compression::from_name(path) {
            Some(_) => ending(&path.with_extension("")),
            None => Some(last),
        };
        match format {
            Some(format) if !is_given && FORMATS.contains(&&*format) => {
                Err(refusal(path, &format, "of the formats pcapng, pcap and erf"))
            }
            _ => Ok(()),
        }
    }
}

fn refusal(path: &Path, ending: &str, advice: &str) -> WriteError {
    let name = path.display();
    WriteError::Options(format!("{name}: files that end in .{ending} are not written; captures are {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_lie_are_refused() {
        for name in ["x.pcap.bz2", "x.xz", "x.snoop", "x.json", "x.csv.gz", "x.PARQUET", "x.tgz"] {
            let refused = Format::check_name(name.as_ref(), false).expect_err(name).to_string();
            assert!(refused.contains("are not written"), "{refused}");
        }
    }

    #[test]
    fn all_other_names_stand() {
        for name in ["x", "-", "x.2026-11-24", "x.cap", "x.dmp.gz", "x.pcapng.zst", "x%H%M", ".json", "x.erf"]
        {
            assert!(Format::check_name(name.as_ref(), false).is_ok(), "{name}");
        }
        assert!(Format::check_name("x.json".as_ref(), true).is_ok());
        assert!(Format::check_name("x.pcap.xz".as_ref(), true).is_err());
    }
}
