//! Places of addresses: country, autonomous system and the name of a network, from files that users bring.
//!
//! ```text
//! networks.csv --+                       +--> country, AS number, AS name, network name
//! country.mmdb --+--Places::open--> Places::of(address)
//! asn.mmdb ------+      each field is that of the first file that has it
//! ```
//!
//! - CSV files have a line of column names, and a network or a range of addresses in each line. The
//!   narrowest network around an address counts.
//! - MMDB files are those of MaxMind's format, version 2, as GeoLite2, DB-IP and IPinfo publish them.
//! - Lists of vendors of MAC addresses are those of IEEE, Wireshark and nmap.
//!
//! `docs/enrich.md` has the columns and fields. Files are read whole: [`FILE_MAX`] bytes at most.
#![forbid(unsafe_code)]

mod error;
mod mmdb;
mod place;
mod range;
mod table;
mod vendors;

use std::fs::{self, File};
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

pub use error::Error;
pub use place::{Place, TEXT_MAX};

use mmdb::Database;
use table::NetworkTable;
use vendors::VendorTable;

/// The most bytes of a file.
pub const FILE_MAX: u64 = 2 << 30;

/// Files of places, in the order in which they are asked.
#[derive(Debug)]
pub struct Places {
    files: Vec<PlaceFile>,
}

#[derive(Debug)]
enum PlaceFile {
    Table(NetworkTable),
    Database(Database),
    Vendors(VendorTable),
}

impl Places {
    /// Reads files: each is an MMDB file, a list of vendors, or else text with commas.
    ///
    /// # Errors
    /// The first file that cannot be read or understood, with the place of the mistake.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Places, Error> {
        let open = |path: &P| PlaceFile::parse(path.as_ref(), read(path.as_ref())?);
        Ok(Places { files: paths.iter().map(open).collect::<Result<_, _>>()? })
    }

    /// The places of one file, whose bytes are there already; `name` is for errors.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn parse(name: &Path, bytes: Vec<u8>) -> Result<Places, Error> {
        Ok(Places { files: vec![PlaceFile::parse(name, bytes)?] })
    }

    /// The facts about an address. An IPv4 address inside IPv6 (`::ffff:192.0.2.1`) is that IPv4 address.
    pub fn of(&self, address: IpAddr) -> Place<'_> {
        let address = address.to_canonical();
        let mut place = Place::default();
        for file in &self.files {
            place = place.or(match file {
                PlaceFile::Table(table) => table.of(address),
                PlaceFile::Database(database) => database.of(address),
                PlaceFile::Vendors(_) => Place::default(),
            });
        }
        place
    }

    /// The vendor of a MAC address, as the first list that has it says.
    pub fn vendor(&self, station: [u8; 6]) -> Option<&str> {
        self.vendors().find_map(|vendors| vendors.of(station))
    }

    /// Whether any of the files is a list of vendors.
    pub fn has_vendors(&self) -> bool {
        self.vendors().next().is_some()
    }

    fn vendors(&self) -> impl Iterator<Item = &VendorTable> {
        self.files.iter().filter_map(|file| match file {
            PlaceFile::Vendors(vendors) => Some(vendors),
            _ => None,
        })
    }

    /// Networks and ranges in all files, and prefixes of vendors; of an MMDB file the nodes of its tree.
    pub fn entries(&self) -> u64 {
        let entries = |file: &PlaceFile| match file {
            PlaceFile::Table(table) => table.lines(),
            PlaceFile::Database(database) => database.nodes(),
            PlaceFile::Vendors(vendors) => vendors.lines(),
        };
        self.files.iter().map(entries).sum()
    }
}

impl PlaceFile {
    fn parse(path: &Path, bytes: Vec<u8>) -> Result<PlaceFile, Error> {
        if mmdb::is_database(&bytes) {
            return Database::parse(path, bytes).map(PlaceFile::Database);
        }
        match VendorTable::parse(&bytes) {
            Some(vendors) => Ok(PlaceFile::Vendors(vendors)),
            None => NetworkTable::parse(path, &bytes).map(PlaceFile::Table),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Open { file: path.to_owned(), source };
    // A pipe would never end, and its opening might wait.
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::Kind { file: path.to_owned() });
    }
    let mut bytes = Vec::with_capacity(metadata.len().min(FILE_MAX) as usize);
    File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes)).map_err(failed)?;
    match bytes.len() as u64 > FILE_MAX {
        true => Err(Error::Size { file: path.to_owned() }),
        false => Ok(bytes),
    }
}

/// The files of a list with commas.
///
/// # Errors
/// [`Error::Empty`] for a list without a name.
pub fn file_list(text: &str) -> Result<Vec<PathBuf>, Error> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let files: Vec<PathBuf> = names.map(PathBuf::from).collect();
    if files.is_empty() { Err(Error::Empty) } else { Ok(files) }
}

#[cfg(test)]
mod tests;
