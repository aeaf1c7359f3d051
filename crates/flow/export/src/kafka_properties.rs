//! Files of properties for a client of Kafka: certificates, passwords, timeouts.
//!
//! ```text
//! # comment
//! security.protocol=SASL_SSL
//! ssl.ca.location=/etc/tapline/ca.pem
//! ```

use std::path::{Path, PathBuf};

use crate::Error;

/// The most bytes of a file.
const FILE_MAX: u64 = 64 << 10;
/// Beginnings of names that users may set. Properties that decide whether rows are lost are not theirs: acks,
/// idempotence, timeouts of messages.
const OPEN: [&str; 6] =
    ["security.protocol", "ssl.", "sasl.", "socket.", "client.id", "broker.address.family"];
/// Names among them that load code.
const CLOSED: [&str; 2] = ["ssl.engine.location", "ssl.providers"];

/// Names and values of a file.
///
/// # Errors
/// [`Error::Open`] if it cannot be read, [`Error::Properties`] for a line that is not a property, or not one of the
/// user's.
pub(crate) fn read(path: &Path) -> Result<Vec<(String, String)>, Error> {
    let fail = |source| Error::Open { name: path.display().to_string(), source };
    let bytes = tapline_sys::disk::read_at_most(path, FILE_MAX).map_err(fail)?;
    let text = String::from_utf8(bytes).map_err(|error| fail(std::io::Error::other(error)))?;
    let wrong = |line: usize, why: &str| {
        Err(Error::Properties { file: path.display().to_string(), line, why: why.to_owned() })
    };
    if text.len() as u64 > FILE_MAX {
        return wrong(text.lines().count(), "the file has more than 64 KiB: leave lines out");
    }
    let mut properties = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            return wrong(at + 1, "it is not a property: NAME=VALUE");
        };
        let (name, value) = (name.trim(), value.trim());
        let is_open = OPEN.iter().any(|open| name.starts_with(open)) && !CLOSED.contains(&name);
        if !is_open {
            let why =
                format!("`{}` is not set here: names begin with {}", name.escape_debug(), OPEN.join(", "));
            return wrong(at + 1, &why);
        }
        if value.contains('\0') {
            return wrong(at + 1, "the value has a zero byte: leave it out");
        }
        properties.push((name.to_owned(), value.to_owned()));
    }
    Ok(properties)
}

/// The file, and those that it names: certificates and keys. Of a file that cannot be read none.
pub(crate) fn files(path: &Path) -> Vec<PathBuf> {
    let properties = read(path).unwrap_or_default();
    let named = properties.into_iter().filter(|(name, _)| name.ends_with(".location"));
    std::iter::once(path.to_owned()).chain(named.map(|(_, file)| file.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<(String, String)>, Error> {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("client.properties");
        std::fs::write(&path, text).expect("there is room");
        read(&path)
    }

    #[test]
    fn properties_are_names_and_values() {
        let found = of("# TLS\n\n security.protocol = SSL\nssl.key.password=a=b\n").expect("two");
        let expected = [("security.protocol", "SSL"), ("ssl.key.password", "a=b")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn files_are_those_that_properties_name() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("client.properties");
        std::fs::write(&path, "ssl.ca.location=/a\nsocket.keepalive.enable=true\nssl.key.location = b\n")
            .expect("there is room");
        assert_eq!(files(&path), [path, "/a".into(), "b".into()]);
        assert_eq!(files(Path::new("/nowhere")), [PathBuf::from("/nowhere")]);
    }

    #[test]
    fn other_lines_are_told_by_number_without_values() {
        for (text, why) in [
            ("\nsesame", ":2: it is not a property"),
            ("acks=0 sesame", "`acks` is not set here"),
            ("ssl.engine.location=/sesame.so", "is not set here"),
            ("enable.idempotence=sesame", "is not set here"),
            ("ssl.ca.location=sesame\0", "zero byte"),
            (&format!("#{}", "x".repeat(70_000)), "64 KiB"),
        ] {
            let error = of(text).expect_err(why).to_string();
            assert!(error.contains(why) && !error.contains("sesame"), "{error}");
        }
    }
}
