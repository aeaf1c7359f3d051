//! Header views under any bytes, and against tshark.
//!
//! ```text
//! any bytes, as any link type, cut anywhere:  l3 <= l4 <= payload <= ip_end <= captured;  less captured never tells otherwise
//! real captures, one file a link type  --tshark-->  addresses, protocol, ports of the outermost IP  =  ours
//! ```

use std::io::Write;
use std::process::Command;

use tapline_packet::headers::Tunnel;
use tapline_packet::{Headers, LinkType, Meta, Packet, VlanTag};
use tapline_testkit::libpcap::{FilePacket, Libpcap};
use tapline_testkit::random::Random;
use tapline_testkit::{gallery, layers, surroundings};

const LINK_TYPES: [LinkType; 18] = [
    LinkType::ETHERNET,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::RAW,
    LinkType(12),
    LinkType(14),
    LinkType::IPV4,
    LinkType::IPV6,
    LinkType::NULL,
    LinkType::LOOP,
    LinkType::PPP,
    LinkType::PPP_PPPD,
    LinkType::PPP_HDLC,
    LinkType::PPP_ETHER,
    LinkType::C_HDLC,
    LinkType::IEEE802_11,
    LinkType::IEEE802_11_RADIOTAP,
    LinkType::USBPCAP,
];

/// Tunnels within tunnels that a test follows.
const DEPTH_MAX: usize = 40;

/// Checks properties of the headers of any bytes, and of packets inside. The number of tunnels.
fn check(headers: &Headers, data: &[u8]) -> usize {
    let case = || format!("{headers:?} of {}", hex(data));
    let offsets = [headers.l3(), headers.l4(), headers.payload(), Some(headers.ip_end()), Some(data.len())];
    assert!(offsets.iter().flatten().is_sorted(), "{}", case());
    assert!(headers.vlans().len() <= headers.vlan_count(), "{}", case());
    assert_eq!(headers.addresses(data).is_some(), headers.ip().is_some(), "{}", case());
    let later = headers.fragment().is_some_and(|fragment| fragment.is_later());
    assert!(!(later && (headers.l4().is_some() || headers.ports(data).is_some())), "{}", case());
    let flow = headers.five_tuple(data);
    if let Some(ports) = headers.ports(data) {
        let flow = flow.expect("a flow");
        assert_eq!((flow.src_port, flow.dst_port), ports, "{}", case());
        assert_eq!(flow.canonical(), flow.reversed().canonical());
    }
    let _ = headers.flow_hash(data, 7);
    let mut tunnels = 0;
    let (mut outer, mut bytes) = (*headers, data);
    while let Some(inner) = outer.inner(bytes).filter(|_| tunnels < DEPTH_MAX) {
        assert!(inner.offset + inner.len <= bytes.len(), "{}", case());
        assert_eq!(inner.data(bytes).len(), inner.len, "{}", case());
        assert!(inner.offset > outer.l3().expect("a network header") || inner.tunnel == Tunnel::Mpls);
        (outer, bytes) = (inner.headers(bytes), inner.data(bytes));
        tunnels += 1;
    }
    tunnels
}

/// Each field known from fewer captured bytes is the same with more.
fn agrees(short: &Headers, shorter: &[u8], long: &Headers, longer: &[u8]) {
    fn kept<T: PartialEq>(short: Option<T>, long: Option<T>) -> bool {
        short.is_none() || short == long
    }
    let same = [
        kept(short.l3(), long.l3()),
        kept(short.l4(), long.l4()),
        kept(short.payload(), long.payload()),
        kept(short.ether_type(), long.ether_type()),
        kept(short.ip(), long.ip()),
        kept(short.protocol(), long.protocol()),
        kept(short.fragment(), long.fragment()),
        kept(short.mpls(), long.mpls()),
        kept(short.addresses(shorter), long.addresses(longer)),
        kept(short.ports(shorter), long.ports(longer)),
        kept(short.five_tuple(shorter), long.five_tuple(longer)),
        long.vlans().starts_with(short.vlans()) && short.vlan_count() <= long.vlan_count(),
    ];
    assert!(same.iter().all(|same| *same), "{same:?} {} of {}", shorter.len(), hex(longer));
}

fn judge(link_type: LinkType, bytes: &[u8], tag: Option<VlanTag>) -> usize {
    let meta = Meta { vlan: tag, ..Meta::default() };
    let parse = |data| Headers::parse(link_type, Packet { data, meta: &meta });
    let mut short = (parse(&[]), &bytes[..0]);
    let mut tunnels = 0;
    for len in 0..=bytes.len() {
        let data = &bytes[..len];
        let headers = parse(data);
        tunnels = check(&headers, data);
        agrees(&short.0, short.1, &headers, data);
        short = (headers, data);
    }
    tunnels
}

/// Bytes that look a little like a packet, so that more than the first header is walked.
fn likely(random: &mut Random) -> Vec<u8> {
    const WORDS: [u16; 22] = [
        0x0800, 0x86dd, 0x8100, 0x88a8, 0x9100, 0x8847, 0x8848, 0x8864, 0x0021, 0x0057, 0x0281, 0xaaaa,
        0x0300, 0x4500, 0x6000, 0x4f00, 0x0000, 0x0002, 0x0800, 0x1100, 0xff03, 0x0f00,
    ];
    let len = random.below(160) as usize;
    let mut bytes = random.bytes(len);
    for _ in 0..random.below(40) {
        let at = (random.below(len as u64) & !1) as usize;
        let word = random.pick(&WORDS).to_be_bytes();
        bytes.iter_mut().skip(at).zip(word).for_each(|(byte, new)| *byte = new);
    }
    bytes
}

#[test]
fn any_bytes_cut_anywhere() {
    let mut random = Random::new(11);
    for round in 0..6000 {
        let bytes = likely(&mut random);
        let tag = (round % 3 == 0).then_some(VlanTag { tpid: 0x8100, tci: 5 });
        judge(LINK_TYPES[round % LINK_TYPES.len()], &bytes, tag);
        let offset = random.below(bytes.len() as u64 + 3) as usize;
        check(&Headers::parse_ip(&bytes, offset), &bytes);
        // Methods that are handed other bytes answer something.
        let other = Headers::parse_data(LinkType::ETHERNET, &bytes);
        let few = &bytes[..bytes.len().min(20)];
        let _ = (other.addresses(few), other.ports(few), other.inner(few), other.flow_hash(few, 1));
    }
}

#[test]
fn packets_cut_anywhere() {
    let mut random = Random::new(12);
    let mut frames: Vec<Vec<u8>> = (0..3000).map(|_| layers::frame(&mut random)).collect();
    frames.extend(gallery::exhibits().into_iter().map(|(_, frame)| frame.into_iter().take(300).collect()));
    frames.extend(layers::captured(Libpcap::get().ok()).into_iter().take(500));
    let tunnels: usize = frames.iter().map(|frame| judge(LinkType::ETHERNET, frame, None)).sum();
    assert!(tunnels > 2000, "{tunnels} tunnels");
}

#[test]
fn endless_stacks_end() {
    let fill = |head: &[u8], unit: &[u8]| [head, &unit.repeat(40_000)].concat();
    let head = |kind: [u8; 2]| [&[2; 12][..], &kind].concat();
    let tags = Headers::parse_data(LinkType::ETHERNET, &fill(&head([0x81, 0]), &[0, 5, 0x81, 0]));
    assert_eq!((tags.vlans().len(), tags.vlan_count(), tags.l3()), (4, 16, None));
    let labels = Headers::parse_data(LinkType::ETHERNET, &fill(&head([0x88, 0x47]), &[0, 1, 0, 64]));
    assert_eq!((labels.mpls(), labels.l3()), (None, None));
    let mut v6 = head([0x86, 0xdd]);
    v6.extend([&[0x60, 0, 0, 0, 0, 0, 60, 64], &[1; 32][..]].concat());
    let extensions = Headers::parse_data(LinkType::ETHERNET, &fill(&v6, &[60, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!((extensions.protocol(), extensions.l4()), (Some(60), None));
}

fn captures() -> Vec<(LinkType, Vec<FilePacket>)> {
    let Ok(pcap) = Libpcap::get() else { return Vec::new() };
    let paths = surroundings::captures();
    let files = paths.iter().filter_map(|path| pcap.read_file(path).ok());
    files.map(|(dlt, packets)| (LinkType::from_dlt(dlt as u16), packets)).collect()
}

/// Packets taken from a file.
const PER_FILE: usize = 40;

fn pcap_file(link_type: LinkType, packets: &[FilePacket]) -> Vec<u8> {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    let mut words = |words: &[u32]| bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    words(&[0, 0, 262_144, link_type.0.into()]);
    for FilePacket { data, wire_len } in packets {
        let len = data.len() as u32;
        // Broken files say that more was captured than there was; tshark believes the smaller number.
        bytes.extend([0, 0, len, len.max(*wire_len)].iter().flat_map(|word: &u32| word.to_le_bytes()));
        bytes.extend_from_slice(data);
    }
    bytes
}

const FIELDS: [&str; 10] = [
    "frame.protocols",
    "ip.src",
    "ip.dst",
    "ip.proto",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "udp.srcport",
    "udp.dstport",
];

/// A line of fields for each packet, of the first header that has the field; `None` without tshark.
fn tshark(file: &[u8]) -> Option<Vec<Vec<String>>> {
    let mut path = tempfile::NamedTempFile::new().expect("a file");
    path.write_all(file).expect("written");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path.path()).args(["-n", "-T", "fields", "-E", "occurrence=f"]);
    for preference in ["ip.defragment:FALSE", "ipv6.defragment:FALSE", "ip.tso_support:TRUE"] {
        command.args(["-o", preference]);
    }
    FIELDS.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// Protocols before or in IP headers that the parser does not follow.
const UNKNOWN: [&str; 2] = ["ieee8021ah", "vntag"];

/// The fields of tshark in the form of ours: addresses, IPv4's protocol, ports of TCP and UDP. `Err` where a difference
/// is allowed: the header is not whole, or an extension header is malformed.
fn outermost(fields: &[String]) -> Result<Option<String>, ()> {
    let get = |name: &str| {
        let at = FIELDS.iter().position(|field| *field == name).expect("a field");
        fields.get(at).map_or("", String::as_str)
    };
    let mut protocols = get("frame.protocols").split(':').skip_while(|name| !matches!(*name, "ip" | "ipv6"));
    let Some(version) = protocols.next() else { return Ok(None) };
    let (src, dst) = (get(&format!("{version}.src")), get(&format!("{version}.dst")));
    let transport = protocols.find(|name| !name.starts_with("ipv6.")).unwrap_or("");
    let is_unknown = get("frame.protocols").split(':').any(|name| UNKNOWN.contains(&name));
    let ends_in_extension =
        get("frame.protocols").rsplit(':').next().is_some_and(|name| name.starts_with("ipv6."));
    if dst.is_empty() || is_unknown || ends_in_extension {
        return Err(());
    }
    let port = |name| get(&format!("{transport}.{name}"));
    let ports = match transport {
        "tcp" | "udp" if !port("dstport").is_empty() => [port("srcport"), port("dstport")].join(" > "),
        _ => String::new(),
    };
    let protocol = if version == "ip" { get("ip.proto") } else { "" };
    Ok(Some(format!("{src} > {dst} {protocol} {ports}")))
}

fn ours(link_type: LinkType, data: &[u8]) -> Option<String> {
    let headers = Headers::parse_data(link_type, data);
    let (src, dst) = headers.addresses(data)?;
    let is_known = headers.protocol().is_some_and(|protocol| matches!(protocol, 6 | 17));
    let ports = headers.ports(data).filter(|_| is_known);
    let ports = ports.map_or(String::new(), |(src, dst)| format!("{src} > {dst}"));
    let protocol = headers.protocol().filter(|_| src.is_ipv4());
    let protocol = protocol.map_or(String::new(), |protocol| protocol.to_string());
    Some(format!("{src} > {dst} {protocol} {ports}"))
}

#[test]
fn tshark_sees_the_same() {
    let by_type = by_link_type();
    if by_type.is_empty() {
        return eprintln!("skipped: no captures, or no libpcap to read them");
    }
    let (mut with_ip, mut left_out) = (0, 0);
    for (link_type, packets) in by_type {
        let Some(lines) = tshark(&pcap_file(link_type, &packets)) else {
            return eprintln!("skipped: no tshark here");
        };
        assert_eq!(lines.len(), packets.len(), "{link_type}");
        for (fields, FilePacket { data, .. }) in lines.iter().zip(&packets) {
            let own = ours(link_type, data);
            match outermost(fields) {
                Ok(theirs) => assert_eq!(own, theirs, "{link_type} {}: {}", fields[0], hex(data)),
                Err(()) => left_out += 1,
            }
            with_ip += u32::from(own.is_some());
        }
    }
    assert!(with_ip > 1000 && left_out < with_ip / 100, "{with_ip} packets of IP, {left_out} left out");
}

fn by_link_type() -> Vec<(LinkType, Vec<FilePacket>)> {
    let mut by_type: Vec<(LinkType, Vec<FilePacket>)> = Vec::new();
    for (link_type, packets) in captures() {
        let packets = packets.into_iter().take(PER_FILE);
        match by_type.iter_mut().find(|(other, _)| *other == link_type) {
            Some((_, all)) => all.extend(packets),
            None if LINK_TYPES.contains(&link_type) => by_type.push((link_type, packets.collect())),
            None => {}
        }
    }
    by_type
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(200).map(|byte| format!("{byte:02x}")).collect()
}
