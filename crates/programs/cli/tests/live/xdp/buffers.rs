//! Filters in front of packets that come in several buffers.

use super::*;

/// Lengths, bytes behind the first buffer, across buffers and at a place that the packet says: as in one piece.
#[test]
fn filters_see_all_buffers_of_a_packet() {
    const TEST: &str = "filters_see_all_buffers_of_a_packet";
    let Some(namespace) = namespace(TEST) else { return };
    for interface in [NEAR, FAR] {
        namespace.ip(&["link", "set", interface, "mtu", "9000"]).unwrap();
    }
    let frames: Vec<Vec<u8>> = (0..600u32)
        .map(|number| {
            let mut frame = udp(if number % 2 == 0 { 53 } else { 80 }, number);
            let len = if number % 3 == 0 { 60 } else { 3000 + (number as usize * 37) % 6000 };
            frame.extend((frame.len()..len).map(|at| (at as u32 ^ number) as u8));
            frame
        })
        .collect();
    for filter in [
        "greater 4000",
        "udp port 53 and link[5000] & 2 = 2",
        "link[3300:4] & 0x3000000 = 0x1000000 or link[3580:2] % 3 = 1",
        "link[8000 + link[42] % 200] < 100",
        "udp port 80 and not (less 60)",
    ] {
        let here = filtered_as(&namespace, FAR, filter, &frames).account();
        let account = filtered_as(&namespace, "xdp:far0", filter, &frames).account();
        let accepted = here.count("accepted");
        assert!(accepted > 0 && accepted < 600, "{filter}: {accepted}");
        assert_eq!((account.count("accepted"), account.count("filtered")), (accepted, 0), "{filter}");
        assert_eq!(account.interface(FAR)["kernel_filtered"], 600 - accepted, "{filter}");
    }
}
