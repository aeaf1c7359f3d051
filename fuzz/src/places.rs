//! The law of files that tell where addresses are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use tapline_geo::{Places, TEXT_MAX};

/// A file is refused with a reason that names it, or every address has a place whose texts may stand on a terminal.
///
/// ```text
/// input := file; its first bytes are addresses, too
/// ```
pub fn places(data: &[u8]) {
    let places = match Places::parse(Path::new("f"), data.to_vec()) {
        Ok(places) => places,
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("f:") && !text.chars().any(char::is_control), "{text:?}");
            return;
        }
    };
    let v4 = data
        .chunks_exact(4)
        .filter_map(<[u8]>::first_chunk)
        .map(|octets| IpAddr::V4(Ipv4Addr::from(*octets)));
    let v6 = data
        .chunks_exact(16)
        .filter_map(<[u8]>::first_chunk)
        .map(|octets| IpAddr::V6(Ipv6Addr::from(*octets)));
    let known = ["192.0.2.1", "10.1.2.3", "2001:db8::1", "::", "::ffff:255.255.255.255"];
    let known = known.iter().map(|text| text.parse::<IpAddr>().expect("an address"));
    for address in v4.take(50).chain(v6.take(50)).chain(known) {
        let place = places.of(address);
        assert_eq!(place, places.of(address.to_canonical()));
        for text in [place.country, place.as_name, place.network_name] {
            assert!(text.len() <= TEXT_MAX && !text.chars().any(char::is_control), "{text:?}");
        }
    }
}

/// Text files, and the least MMDB file: one node, whose records are both the one place.
pub(crate) fn places_seeds() -> Vec<Vec<u8>> {
    let networks = "network,name,country,as,as_name\n10.0.0.0/8,\"all, of it\",DE,,\n10.1.0.0/16,lab,,AS64496,Example\n\
        2001:db8::/32,six,FR,4200000000,\n192.0.2.1,host,,,\n";
    let ranges = "# from a registry\nstart\tend\tcountry_code\n10.0.0.0\t10.0.1.255\tAU\n\n::1\t::5\tZZ\n";
    let mut database = Vec::new();
    // Records of 32 bits: the data begins behind one node and 16 zeros.
    database.extend([0, 0, 0, 17, 0, 0, 0, 17]);
    database.extend([0; 16]);
    database.extend(b"\xe2\x47country\xe1\x48iso_code\x42DE\x47as_name\x47Example");
    database.extend(b"\xab\xcd\xefMaxMind.com\xe9");
    database
        .extend(b"\x4anode_count\xc1\x01\x4brecord_size\xa1\x20\x4aip_version\xa1\x06\x4ddatabase_type\x41T");
    database.extend(b"\x5bbinary_format_major_version\xa1\x02\x5bbinary_format_minor_version\xa0");
    database.extend(b"\x4bbuild_epoch\x01\x02\x01\x4bdescription\xe1\x42en\x41T\x49languages\x01\x04\x42en");
    vec![networks.into(), ranges.into(), database]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_files_of_places() {
        for seed in places_seeds() {
            let places = Places::parse(Path::new("f"), seed).expect("a file of places");
            let all = ["10.0.0.1", "::2"].map(|text| places.of(text.parse().expect("an address")).is_empty());
            assert!(all.contains(&false));
        }
    }
}
