//! The account, for people and for machines.
//!
//! ```text
//! account                                      packets
//!   eth0  nic and driver, lost                       0
//!   eth0  kernel filter, refused               unknown
//!   eth0  kernel ring, received                 12,345
//!   eth0  kernel ring, lost                         45  in 2 freezes        with AF_XDP: left to the host; xdp, taken; xdp, lost
//!   delivered                                   12,300
//!   filtered                                         0
//!   accepted                                    12,300
//!   out.pcapng  written                         12,300
//!   balanced: every packet is accounted for
//! ```

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use tapline_graph::{GraphAccount, StageAccount, grouped};
use tapline_source::{
    Account, Balance, Count, FilterAccount, InterfaceAccount, Loss, LossCounts, LossPoint, OutputAccount,
    RingAccount, SkipCause, TapAccount, UnfitLinkType, XdpAccount,
};

use crate::escape::plain;
use crate::live::link_type_text;

/// Width of the column that says where.
const PLACE_WIDTH: usize = 44;
/// Width of the column that says how many.
const COUNT_WIDTH: usize = 16;

/// The final account as a table that ends in whether it balances.
pub(crate) fn text(account: &Account) -> String {
    table(account) + balance_text(account).as_str()
}

/// The account of a capture that goes on. Packets on their way between two places may make its sums differ, so it does
/// not claim to balance unless it does.
pub(crate) fn running_text(account: &Account) -> String {
    let state = match account.balance() {
        Balance::Balanced => balance_text(account),
        Balance::Unbalanced(_) => STILL_RUNNING.to_owned(),
    };
    table(account) + state.as_str()
}

fn table(account: &Account) -> String {
    let mut table = Table { text: format!("{:<PLACE_WIDTH$}{:>COUNT_WIDTH$}\n", "account", "packets") };
    for interface in &account.interfaces {
        table.interface(interface);
    }
    table.row("delivered", Count::Known(account.delivered), "");
    table.row("filtered", Count::Known(account.filtered), &engine(&account.filter));
    table.unfit(&account.filter);
    table.row("accepted", Count::Known(account.accepted), "");
    if account.unexamined > 0 {
        table.row("not examined", Count::Known(account.unexamined), "came after the end was decided");
    }
    // What the kernel counted never came here: a 0 of the count here would read as a result.
    let in_kernel = account.interfaces.iter().any(|interface| interface.counted.is_some());
    let is_told = |output: &&OutputAccount| !in_kernel || output.name != "count" || output.written > 0;
    account.outputs.iter().filter(is_told).for_each(|output| table.output(output));
    table.text
}

/// Engine of the filters; nothing if no filter runs in user space.
fn engine(filter: &FilterAccount) -> String {
    let FilterAccount { interpreted, compiled, compiled_after, reason, .. } = filter;
    let native = compiled_after.map(|after| format!("by native code since packet {}", grouped(after + 1)));
    let why = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    match (native, *interpreted) {
        (None, 0) => String::new(),
        (None, _) => format!("by the interpreter{why}"),
        (Some(native), 0) => native,
        (Some(native), _) => {
            format!("{native}, {} of {} filters by the interpreter{why}", interpreted, interpreted + compiled)
        }
    }
}

fn balance_text(account: &Account) -> String {
    state_text(&account.balance())
}

/// Word for packets that a stage did not hand on.
fn refused_word(class: &str) -> &'static str {
    match class {
        "filter" => "filtered",
        "sample" => "sampled out",
        "dedup" => "copies",
        "drop" => "dropped",
        _ => "refused",
    }
}

/// Causes of an output's losses with their packets, where it names any, between `before` and `after`.
fn loss_causes(output: &OutputAccount, before: &str, after: &str) -> String {
    let causes: Vec<String> = output
        .lost_by
        .iter()
        .map(|(cause, packets)| match packets == output.lost {
            true => cause.words().to_owned(),
            false => format!("{} {}", grouped(packets), cause.words()),
        })
        .collect();
    if causes.is_empty() { String::new() } else { format!("{before}{}{after}", causes.join(", ")) }
}

/// Word for packets that an output took.
fn written_word(class: &str) -> &'static str {
    if matches!(class, "bounce" | "reflect") { "sent" } else { "written" }
}

const STILL_RUNNING: &str = "  still running: the sums settle at the end\n";

fn state_text(balance: &Balance) -> String {
    match balance {
        Balance::Balanced => "  balanced: every packet is accounted for\n".to_owned(),
        Balance::Unbalanced(faults) => faults.iter().fold(String::new(), |mut text, fault| {
            let _ = writeln!(text, "  NOT BALANCED: {fault}");
            text
        }),
    }
}

/// The final account of a graph: what came in, and what each stage did with it.
pub(crate) fn graph_text(account: &GraphAccount) -> String {
    graph_table(account) + state_text(&account.balance()).as_str()
}

/// The account of a graph that still runs.
pub(crate) fn running_graph_text(account: &GraphAccount) -> String {
    let state = match account.balance() {
        balance @ Balance::Balanced => state_text(&balance),
        Balance::Unbalanced(_) => STILL_RUNNING.to_owned(),
    };
    graph_table(account) + state.as_str()
}

fn graph_table(account: &GraphAccount) -> String {
    let mut table = Table { text: format!("{:<PLACE_WIDTH$}{:>COUNT_WIDTH$}\n", "account", "packets") };
    for interface in &account.interfaces {
        table.interface(interface);
    }
    table.row("delivered", Count::Known(account.delivered), "");
    if account.unexamined > account.paused {
        let after = account.unexamined - account.paused;
        table.row("not examined", Count::Known(after), "came after the end was decided");
    }
    if account.paused > 0 {
        table.row("not examined", Count::Known(account.paused), "came while it was paused");
    }
    for stage in &account.stages {
        table.stage(stage);
        stage.counters.filter.iter().for_each(|filter| table.unfit(filter));
    }
    table.text
}

/// The account of a graph as one JSON object, `{"account": ...}`; what is unknown is null.
pub(crate) fn graph_json(account: &GraphAccount) -> Value {
    let balance = account.balance();
    json!({"account": {
        "interfaces": account.interfaces.iter().map(interface_json).collect::<Vec<_>>(),
        "delivered": account.delivered,
        "unexamined": account.unexamined,
        "paused": account.paused,
        "stages": account.stages.iter().map(stage_json).collect::<Vec<_>>(),
        "lost": account.lost(),
        "balanced": balance == Balance::Balanced,
        "faults": faults(balance),
    }})
}

fn stage_json(stage: &StageAccount) -> Value {
    let mut value = json!({
        "name": stage.name,
        "class": stage.class,
        "received": stage.received,
        // Packets that collected flows count: received beside those of the edges.
        "reported": stage.counters.reported,
        "bytes": stage.bytes,
        "passed": stage.passed,
        "refused": stage.refused(),
        "held": stage.counters.held,
        "unexamined": stage.counters.unexamined,
        "recordings_lost": stage.counters.recordings_lost,
        "filter": stage.counters.filter.as_ref().map(filter_json),
        "output": stage.counters.output.as_ref().map(output_json),
    });
    if let Some(filter) = stage.counters.filter.as_ref().filter(|filter| !filter.unfit.is_empty()) {
        value["unfit_link_types"] = unfit_json(filter);
    }
    value
}

/// Equations of an account that do not hold.
pub(crate) fn faults(balance: Balance) -> Vec<String> {
    match balance {
        Balance::Balanced => Vec::new(),
        Balance::Unbalanced(faults) => faults,
    }
}

/// Rows of an account that is neither of one capture nor of a graph.
pub(crate) struct Rows(Table);

impl Rows {
    pub(crate) fn new() -> Rows {
        Rows(Table { text: format!("{:<PLACE_WIDTH$}{:>COUNT_WIDTH$}\n", "account", "packets") })
    }

    /// Rows of an interface.
    pub(crate) fn interface(&mut self, interface: &InterfaceAccount) {
        self.0.interface(interface);
    }

    /// Rows of an output.
    pub(crate) fn output(&mut self, output: &OutputAccount) {
        self.0.output(output);
    }

    /// A row: packets at a place.
    pub(crate) fn row(&mut self, place: &str, count: u64, remark: &str) {
        self.0.row(place, Count::Known(count), remark);
    }

    /// The table of what still runs.
    pub(crate) fn running(self, faults: &[String]) -> String {
        match faults {
            [] => self.end(faults),
            _ => self.0.text + STILL_RUNNING,
        }
    }

    /// The table, which ends in whether it balances.
    pub(crate) fn end(self, faults: &[String]) -> String {
        let balance = match faults {
            [] => Balance::Balanced,
            faults => Balance::Unbalanced(faults.to_vec()),
        };
        self.0.text + state_text(&balance).as_str()
    }
}

struct Table {
    text: String,
}

impl Table {
    fn row(&mut self, place: &str, count: Count, remark: &str) {
        let count = count.known().map_or_else(|| "unknown".to_owned(), grouped);
        let gap = if remark.is_empty() { "" } else { "  " };
        // Names of interfaces and files come from strangers.
        let (place, remark) = (plain(place), plain(remark));
        let _ = writeln!(
            self.text,
            "  {place:<width$}{count:>COUNT_WIDTH$}{gap}{remark}",
            width = PLACE_WIDTH - 2
        );
    }

    fn interface(&mut self, interface: &InterfaceAccount) {
        let name = if interface.name.is_empty() { "input" } else { &interface.name };
        self.losses(name, &interface.losses);
        if let (Some(ring), Some(xdp)) = (interface.ring, interface.xdp) {
            self.row(&format!("{name}  left to the host"), interface.kernel_filtered, "");
            self.xdp(name, ring, xdp);
        } else if let Some(tap) = interface.tap {
            self.tap(name, tap);
        } else if let Some(ring) = interface.ring.filter(|_| interface.is_socket) {
            self.row(&format!("{name}  received"), Count::Known(ring.received), "");
            self.row(&format!("{name}  LOST"), Count::Known(ring.dropped), "no room in the socket");
            if ring.unread > 0 {
                self.row(&format!("{name}  unread"), Count::Known(ring.unread), "at the stop");
            }
        } else if let Some(ring) = interface.ring {
            self.row(&format!("{name}  kernel filter, refused"), interface.kernel_filtered, "");
            self.ring(name, ring);
            if let Some(counted) = interface.counted {
                let bytes = format!("{} bytes on the wire", grouped(counted.bytes));
                self.row(&format!("{name}  counted in the kernel"), Count::Known(counted.packets), &bytes);
            }
        } else {
            let verb = if interface.is_generated { "made" } else { "read" };
            let remark = if interface.is_partial { "not to its end" } else { "" };
            let refused = interface.kernel_filtered.known().unwrap_or(0);
            self.row(&format!("{name}  {verb}"), Count::Known(interface.delivered + refused), remark);
            if refused > 0 {
                self.row(&format!("{name}  filter, refused"), Count::Known(refused), "while it was read");
            }
        }
    }

    /// Losses by name; those that are zero share one line.
    fn losses(&mut self, name: &str, losses: &[Loss]) {
        let (none, some): (Vec<&Loss>, Vec<&Loss>) =
            losses.iter().partition(|loss| loss.count == Count::Known(0));
        for loss in some {
            self.row(&format!("{name}  {}, {}", loss.place.name(), loss.counter), loss.count, "");
        }
        let names: Vec<&str> =
            none.iter().filter(|l| l.place != LossPoint::Driver).map(|l| l.counter.as_str()).collect();
        if let Some(first) = none.iter().find(|loss| loss.place != LossPoint::Driver) {
            self.row(&format!("{name}  {}, lost", first.place.name()), Count::Known(0), &names.join(", "));
        }
    }

    fn ring(&mut self, name: &str, ring: RingAccount) {
        let freezes = match ring.freezes {
            0 => String::new(),
            1 => "in 1 freeze".to_owned(),
            n => format!("in {} freezes", grouped(n)),
        };
        self.row(&format!("{name}  kernel ring, received"), Count::Known(ring.received), "");
        self.row(&format!("{name}  kernel ring, lost"), Count::Known(ring.dropped), &freezes);
        if ring.unread > 0 {
            self.row(&format!("{name}  kernel ring, unread"), Count::Known(ring.unread), "");
        }
    }

    /// Rows of a daemon's capture.
    fn tap(&mut self, name: &str, tap: TapAccount) {
        let TapAccount { offered, index_full, overwritten, damaged, unread, .. } = tap;
        let causes = [(index_full, "index full"), (overwritten, "overwritten"), (damaged, "damaged")];
        let causes = causes.iter().filter(|(count, _)| *count > 0);
        let causes: Vec<String> =
            causes.map(|(count, cause)| format!("{} {cause}", grouped(*count))).collect();
        self.row(&format!("{name}  offered"), Count::Known(offered), "");
        self.row(&format!("{name}  lost"), Count::Known(tap.lost()), &causes.join(", "));
        if unread > 0 {
            self.row(&format!("{name}  unread"), Count::Known(unread), "");
        }
    }

    /// Packets that the XDP program took off the host, and losses behind it.
    fn xdp(&mut self, name: &str, ring: RingAccount, xdp: XdpAccount) {
        let remark = |count: u64, what: &str| match count {
            0 => String::new(),
            count => format!("{} {what}", grouped(count)),
        };
        let joined = remark(xdp.joined, "in several buffers");
        self.row(&format!("{name}  xdp, taken"), Count::Known(ring.received), &joined);
        let mut places = Vec::new();
        places.extend(
            (xdp.no_room > 0).then(|| remark(xdp.no_room, "no free memory or too long (rx_dropped)")),
        );
        places.extend((xdp.ring_full > 0).then(|| remark(xdp.ring_full, "rx_ring_full")));
        places.extend(
            (xdp.fill_empty > 0).then(|| format!("fill ring empty {} times", grouped(xdp.fill_empty))),
        );
        places.extend((xdp.invalid > 0).then(|| remark(xdp.invalid, "wrong descriptors")));
        self.row(&format!("{name}  xdp, lost"), Count::Known(ring.dropped), &places.join(", "));
        if ring.unread > 0 {
            self.row(&format!("{name}  xdp, unread"), Count::Known(ring.unread), "");
        }
    }

    /// Link types that cannot have a filter, of the packets filtered.
    fn unfit(&mut self, filter: &FilterAccount) {
        for UnfitLinkType { link_type, packets, .. } in &filter.unfit {
            let place = format!("  of link type {link_type}");
            self.row(&place, Count::Known(*packets), "which cannot have this filter");
        }
    }

    /// Packets received by a stage, and those not handed on.
    fn stage(&mut self, stage: &StageAccount) {
        let StageAccount { name, received, counters, .. } = stage;
        let mut remarks = Vec::new();
        let mut remark = |count: u64, what: &str| {
            if count > 0 {
                remarks.push(format!("{} {what}", grouped(count)));
            }
        };
        remark(stage.refused(), refused_word(stage.class));
        remark(counters.held, "held");
        remark(counters.unexamined, "not examined");
        remark(counters.recordings_lost, "LOST in recordings");
        if let Some(output) = &counters.output {
            remark(output.written, written_word(stage.class));
            remark(output.lost, &format!("LOST{}", loss_causes(output, " (", ")")));
            output.skipped.iter().for_each(|(cause, packets)| remark(*packets, cause.words()));
            remark(output.buffered, "on their way");
        }
        if let Some(filter) = &counters.filter {
            remarks.extend(Some(engine(filter)).filter(|engine| !engine.is_empty()));
        }
        let received = received + counters.reported;
        self.row(&format!("{name}  received"), Count::Known(received), &remarks.join(", "));
    }

    fn output(&mut self, output: &OutputAccount) {
        self.row(&format!("{}  written", output.name), Count::Known(output.written), "");
        if output.lost > 0 {
            let causes = loss_causes(output, "", "");
            self.row(&format!("{}  LOST", output.name), Count::Known(output.lost), &causes);
        }
        if let Some((cause, packets @ 1..)) = output.skipped {
            self.row(&format!("{}  left out", output.name), Count::Known(packets), cause.words());
        }
        if output.buffered > 0 {
            self.row(&format!("{}  on its way", output.name), Count::Known(output.buffered), "");
        }
    }
}

/// The account as one JSON object, `{"account": ...}`; what is unknown is null.
pub(crate) fn to_json(account: &Account) -> Value {
    let balance = account.balance();
    let mut value = json!({"account": {
        "interfaces": account.interfaces.iter().map(interface_json).collect::<Vec<_>>(),
        "delivered": account.delivered,
        "filtered": account.filtered,
        "filter": filter_json(&account.filter),
        "accepted": account.accepted,
        "unexamined": account.unexamined,
        "outputs": account.outputs.iter().map(output_json).collect::<Vec<_>>(),
        "lost": account.lost(),
        "balanced": balance == Balance::Balanced,
        "faults": faults(balance),
    }});
    if !account.filter.unfit.is_empty() {
        value["account"]["unfit_link_types"] = unfit_json(&account.filter);
    }
    value
}

/// Link types that cannot have a filter.
fn unfit_json(filter: &FilterAccount) -> Value {
    let of = |unfit: &UnfitLinkType| {
        json!({
            "link_type": link_type_text(unfit.link_type),
            "packets": unfit.packets,
            "reason": unfit.reason,
        })
    };
    filter.unfit.iter().map(of).collect()
}

pub(crate) fn interface_json(interface: &InterfaceAccount) -> Value {
    json!({
        "name": interface.name,
        "losses": interface.losses.iter().map(loss_json).collect::<Vec<_>>(),
        "kernel_filtered": interface.kernel_filtered.known(),
        "ring": interface.ring.map(|ring| json!({
            "received": ring.received,
            "dropped": ring.dropped,
            "freezes": ring.freezes,
            "unread": ring.unread,
        })),
        // With AF_XDP: of what the ring dropped, where; and what the kernel counts besides.
        "xdp": interface.xdp.map(|xdp| json!({
            "rx_dropped": xdp.no_room,
            "rx_ring_full": xdp.ring_full,
            "rx_fill_ring_empty_descs": xdp.fill_empty,
            "rx_invalid_descs": xdp.invalid,
            "several_buffers": xdp.joined,
        })),
        // From a capture of tapline serve: what it had for us, and what was lost of that.
        "tap": interface.tap.map(|tap| json!({
            "offered": tap.offered,
            "index_full": tap.index_full,
            "overwritten": tap.overwritten,
            "damaged": tap.damaged,
            "unread": tap.unread,
        })),
        // Packets that ended in a count in the kernel, of those received.
        "counted": interface.counted.map(|counted| json!({
            "packets": counted.packets,
            "bytes": counted.bytes,
        })),
        "partial": interface.is_partial,
        "delivered": interface.delivered,
    })
}

fn loss_json(loss: &Loss) -> Value {
    json!({"place": loss.place.name(), "counter": loss.counter, "count": loss.count.known()})
}

fn output_json(output: &OutputAccount) -> Value {
    let OutputAccount { name, written, lost, lost_by, buffered, skipped } = output;
    let mut value = json!({"name": name, "written": written, "lost": lost, "buffered": buffered});
    let unsent = unsent_json(*skipped, lost_by);
    if !unsent.is_empty() {
        value["unsent"] = unsent.into();
    }
    value
}

/// Packets that an output left out or lost, by the name of the cause.
pub(crate) fn unsent_json(skipped: Option<(SkipCause, u64)>, lost: &LossCounts) -> Map<String, Value> {
    let skipped = skipped.filter(|(_, packets)| *packets > 0).map(|(cause, packets)| (cause.name(), packets));
    let lost = lost.iter().map(|(cause, packets)| (cause.name(), packets));
    skipped.into_iter().chain(lost).map(|(name, packets)| (name.to_owned(), packets.into())).collect()
}

/// The engines by number, null without a filter in user space.
fn filter_json(filter: &FilterAccount) -> Value {
    let FilterAccount { interpreted, compiled, compiled_after, reason, .. } = filter;
    if interpreted + compiled == 0 {
        return Value::Null;
    }
    json!({"interpreted": interpreted, "native": compiled, "native_after": compiled_after, "reason": reason})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_of_the_filter_is_named() {
        let mut account = account();
        assert!(to_json(&account)["account"]["filter"].is_null());
        account.filter.interpreted = 1;
        assert!(text(&account).contains("0  by the interpreter\n"), "{}", text(&account));
        let native = FilterAccount { compiled: 2, compiled_after: Some(65_536), ..FilterAccount::default() };
        account.filter = native.clone();
        assert!(text(&account).contains("0  by native code since packet 65,537\n"), "{}", text(&account));
        assert_eq!(to_json(&account)["account"]["filter"]["native_after"], 65_536);
        account.filter = FilterAccount { interpreted: 1, reason: Some("no memory".into()), ..native };
        let mixed = "by native code since packet 65,537, 1 of 3 filters by the interpreter: no memory\n";
        assert!(text(&account).contains(mixed), "{}", text(&account));
    }

    fn account() -> Account {
        let mut interface = InterfaceAccount::of_file("eth0", 1000);
        interface.kernel_filtered = Count::Unknown;
        interface.ring = Some(RingAccount { received: 1234, dropped: 234, freezes: 1, unread: 0 });
        let output = OutputAccount { name: "out.pcapng".into(), written: 1000, ..OutputAccount::default() };
        Account {
            interfaces: vec![interface],
            delivered: 1000,
            accepted: 1000,
            outputs: vec![output],
            ..Account::default()
        }
    }

    #[test]
    fn a_count_in_the_kernel_stands_alone() {
        let mut account = account();
        account.outputs[0] = OutputAccount { name: "count".into(), ..OutputAccount::default() };
        assert!(text(&account).contains("count  written"), "counted here, and nothing came");
        account.interfaces[0].counted = Some(tapline_source::CountedPackets::default());
        assert!(text(&account).contains("counted in the kernel"), "{}", text(&account));
        assert!(!text(&account).contains("count  written"), "{}", text(&account));
        account.outputs[0].written = 3;
        assert!(text(&account).contains("count  written"), "some were counted here");
    }

    #[test]
    fn the_table_says_unknown_and_balanced() {
        let text = text(&account());
        assert!(text.contains("kernel filter, refused") && text.contains("unknown"), "{text}");
        assert!(text.contains("1,234\n") && text.contains("234  in 1 freeze"), "{text}");
        assert!(text.ends_with("balanced: every packet is accounted for\n"), "{text}");
    }

    #[test]
    fn a_fault_is_shouted() {
        let mut broken = account();
        broken.filtered = 1;
        assert!(text(&broken).contains("NOT BALANCED: delivered 1000 but"));
        assert_eq!(to_json(&broken)["account"]["balanced"], false);
    }

    #[test]
    fn json_has_null_for_unknown() {
        let value = to_json(&account());
        assert!(value["account"]["interfaces"][0]["kernel_filtered"].is_null());
        assert_eq!(value["account"]["interfaces"][0]["ring"]["dropped"], 234);
        assert_eq!(value["account"]["balanced"], true);
    }
}
