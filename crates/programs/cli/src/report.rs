//! The account, for people and for machines.
//!
//! ```text
//! 12,300 packets, 0 dropped                                                   nothing was lost
//!
//! account                                      packets                        something was, or -v, or --account full
//!   eth0  nic and driver, lost                       0
//!   eth0  kernel filter, refused               unknown
//!   eth0  kernel ring, received                 12,345
//!   eth0  kernel ring, lost                         45  in 2 freezes          with AF_XDP: left to the host; xdp, taken; xdp, lost
//!   delivered                                   12,300
//!   filtered                                         0                        of a chain; of another graph each stage
//!   accepted                                    12,300
//!   out.pcapng  written                         12,300
//!   balanced: every counted packet is accounted for; unknown: kernel filter, refused
//! ```

mod json;

pub(crate) use json::{interface_json, json, unsent_json};

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use tapline_graph::catalog::Property;
use tapline_graph::{ChainCounts, GraphAccount, StageAccount, grouped};
use tapline_source::{
    Count, FilterAccount, InterfaceAccount, Loss, LossPoint, OutputAccount, RingAccount, TapAccount,
    UnfitLinkType, XdpAccount,
};

use crate::escape::plain;
use crate::run::catalog;
use crate::strict;

/// Width of the column that says where.
const PLACE_WIDTH: usize = 44;
/// Width of the column that says how many.
const COUNT_WIDTH: usize = 16;

/// The form of the account at the end.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct AccountArgs {
    /// Account at the end: full, none, or auto (one line; the table if packets were lost, or with -v).
    #[arg(
        long,
        value_name = "FORM",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        help_heading = "Reports"
    )]
    account: AccountForm,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccountForm {
    #[default]
    Auto,
    Full,
    None,
}

impl AccountArgs {
    /// The form where `-v` asks for the table.
    pub(crate) fn form(self, is_verbose: bool) -> AccountForm {
        if is_verbose && self.account == AccountForm::Auto { AccountForm::Full } else { self.account }
    }
}

/// The final account.
pub(crate) fn text(account: &GraphAccount, form: AccountForm) -> String {
    let table = Table::of(account);
    match form {
        AccountForm::None => String::new(),
        AccountForm::Auto if is_whole(account) => line(account, &table.unknown),
        _ => table.end(&account.faults()),
    }
}

/// Hints about filters that accept nothing of traffic with VLAN tags, a line each; with the stage's name if there are
/// several filters.
pub(crate) fn tag_hints(account: &GraphAccount) -> impl Iterator<Item = String> {
    let has_several = account.stages.iter().filter(|stage| stage.counters.filter.is_some()).count() > 1;
    let is_blind = |stage: &&StageAccount| {
        stage.passed == 0 && stage.counters.filter.as_ref().is_some_and(|filter| filter.tagged > 0)
    };
    account.stages.iter().filter(is_blind).map(move |stage| {
        let name = if has_several { format!("{}: ", stage.name) } else { String::new() };
        format!("{name}{}", tapline_stages::TagLook::HINT)
    })
}

/// The account of a run that goes on.
pub(crate) fn running_text(account: &GraphAccount) -> String {
    Table::of(account).running(&account.faults())
}

/// Whether nothing was lost, as far as is counted.
fn is_whole(account: &GraphAccount) -> bool {
    strict::losses_of(account).is_empty()
        && account.outputs().all(|output| output.buffered == 0)
        && account.faults().is_empty()
}

/// One line of an account without losses.
fn line(account: &GraphAccount, unknown: &[String]) -> String {
    let chain = account.chain();
    let interfaces = || account.interfaces.iter();
    let counted: u64 =
        interfaces().filter_map(|interface| interface.counted).map(|counted| counted.packets).sum();
    let packets = counted + chain.as_ref().map_or(account.delivered, |chain| chain.accepted);
    let mut line = format!("{} packet{}, 0 dropped", grouped(packets), if packets == 1 { "" } else { "s" });
    let mut part = |packets: u64, what: &str| {
        if packets > 0 {
            let _ = write!(line, ", {} {what}", grouped(packets));
        }
    };
    let (to_host, refused): (Vec<_>, Vec<_>) = interfaces().partition(|interface| interface.xdp.is_some());
    let known =
        |of: Vec<&InterfaceAccount>| of.iter().filter_map(|one| one.kernel_filtered.known()).sum::<u64>();
    part(known(refused) + chain.as_ref().map_or(0, |chain| chain.filtered), "filtered out");
    part(known(to_host), "left to the host");
    let unread: u64 = interfaces()
        .map(|one| one.ring.map_or(0, |ring| ring.unread) + one.tap.map_or(0, |tap| tap.unread))
        .sum();
    part(unread + chain.map_or(account.unexamined, |chain| chain.unexamined), "not examined");
    for (cause, packets) in account.outputs().filter_map(|output| output.skipped) {
        part(packets, cause.words());
    }
    if interfaces().any(|interface| interface.is_partial) {
        line += ", file not read to its end";
    }
    if !unknown.is_empty() {
        let _ = write!(line, "; unknown: {}", unknown.join("; "));
    }
    line + "\n"
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

/// Word for packets that a stage did not hand on.
fn refused_word(class: &str) -> &'static str {
    catalog().class(class).map_or("refused", |class| class.refused)
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
    if catalog().class(class).is_some_and(|class| class.has(Property::Sends)) { "sent" } else { "written" }
}

/// Rows of an account.
pub(crate) struct Table {
    pub(crate) text: String,
    /// Names of unknown counts, each once.
    unknown: Vec<String>,
}

impl Table {
    pub(crate) fn new() -> Table {
        let text = format!("{:<PLACE_WIDTH$}{:>COUNT_WIDTH$}\n", "account", "packets");
        Table { text, unknown: Vec::new() }
    }

    fn of(account: &GraphAccount) -> Table {
        let mut table = Table::new();
        account.interfaces.iter().for_each(|interface| table.interface(interface));
        table.row("delivered", account.delivered, "");
        match account.chain() {
            Some(chain) => table.chain(account, &chain),
            None => table.graph(account),
        }
        table
    }

    /// Rows of the chain of `tapline capture`.
    fn chain(&mut self, account: &GraphAccount, chain: &ChainCounts) {
        self.row("filtered", chain.filtered, &engine(&chain.filter));
        self.unfit(&chain.filter);
        self.row("accepted", chain.accepted, "");
        self.positive("not examined", chain.unexamined, "came after the end was decided");
        // What the kernel counted never came here: a 0 of the count here would read as a result.
        let in_kernel = account.interfaces.iter().any(|interface| interface.counted.is_some());
        let is_shown = |output: &&OutputAccount| !in_kernel || output.name != "count" || output.written > 0;
        account.outputs().filter(is_shown).for_each(|output| self.output(output));
    }

    /// Rows of the stages of another graph.
    fn graph(&mut self, account: &GraphAccount) {
        let after = account.unexamined.saturating_sub(account.paused);
        self.positive("not examined", after, "came after the end was decided");
        self.positive("not examined", account.paused, "came while it was paused");
        for stage in &account.stages {
            self.stage(stage);
            stage.counters.filter.iter().for_each(|filter| self.unfit(filter));
        }
    }

    /// The table of what still runs. Packets on their way between two places may make its sums differ.
    pub(crate) fn running(self, faults: &[String]) -> String {
        match faults {
            [] => self.end(faults),
            _ => self.text + "  still running: the sums settle at the end\n",
        }
    }

    /// The table, which ends in whether it balances.
    pub(crate) fn end(self, faults: &[String]) -> String {
        let Table { mut text, unknown } = self;
        let _ = match (faults.is_empty(), unknown.is_empty()) {
            (true, true) => writeln!(text, "  balanced: every packet is accounted for"),
            (true, false) => {
                let unknown = unknown.join("; ");
                writeln!(text, "  balanced: every counted packet is accounted for; unknown: {unknown}")
            }
            (false, _) => faults.iter().try_for_each(|fault| writeln!(text, "  NOT BALANCED: {fault}")),
        };
        text
    }

    /// A row: packets at a place.
    pub(crate) fn row(&mut self, place: &str, count: impl Into<Count>, remark: &str) {
        let count = count.into();
        // Names of interfaces and files come from strangers.
        let (place, remark) = (plain(place), plain(remark));
        if count == Count::Unknown {
            let what = place.split_once("  ").map_or(&*place, |(_, what)| what);
            if !self.unknown.iter().any(|other| other == what) {
                self.unknown.push(what.to_owned());
            }
        }
        let count = count.known().map_or_else(|| "unknown".to_owned(), grouped);
        let gap = if remark.is_empty() { "" } else { "  " };
        let _ = writeln!(
            self.text,
            "  {place:<width$}{count:>COUNT_WIDTH$}{gap}{remark}",
            width = PLACE_WIDTH - 2
        );
    }

    /// A row that is absent where there are no packets.
    pub(crate) fn positive(&mut self, place: &str, count: u64, remark: &str) {
        if count > 0 {
            self.row(place, count, remark);
        }
    }

    /// Rows of an interface.
    pub(crate) fn interface(&mut self, interface: &InterfaceAccount) {
        let name = if interface.name.is_empty() { "input" } else { &interface.name };
        self.losses(name, &interface.losses);
        // Zeros would read as counts.
        if interface.is_uncaptured() {
            return;
        }
        if let (Some(ring), Some(xdp)) = (interface.ring, interface.xdp) {
            self.row(&format!("{name}  left to the host"), interface.kernel_filtered, "");
            self.xdp(name, ring, xdp);
        } else if let Some(tap) = interface.tap {
            self.tap(name, tap);
        } else if let Some(ring) = interface.ring.filter(|_| interface.is_socket) {
            self.row(&format!("{name}  received"), ring.received, "");
            self.row(&format!("{name}  LOST"), ring.dropped, "no room in the socket");
            self.positive(&format!("{name}  unread"), ring.unread, "at the stop");
        } else if let Some(ring) = interface.ring {
            self.row(&format!("{name}  kernel filter, refused"), interface.kernel_filtered, "");
            self.ring(name, ring);
            if let Some(counted) = interface.counted {
                let bytes = format!("{} bytes on the wire", grouped(counted.bytes));
                self.row(&format!("{name}  counted in the kernel"), counted.packets, &bytes);
            }
        } else {
            let verb = if interface.is_generated { "made" } else { "read" };
            let remark = if interface.is_partial { "not to its end" } else { "" };
            let refused = interface.kernel_filtered.known().unwrap_or(0);
            self.row(&format!("{name}  {verb}"), interface.delivered + refused, remark);
            self.positive(&format!("{name}  filter, refused"), refused, "while it was read");
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
        self.row(&format!("{name}  kernel ring, received"), ring.received, "");
        self.row(&format!("{name}  kernel ring, lost"), ring.dropped, &freezes);
        self.positive(&format!("{name}  kernel ring, unread"), ring.unread, "");
    }

    /// Rows of a daemon's capture.
    fn tap(&mut self, name: &str, tap: TapAccount) {
        let TapAccount { offered, index_full, overwritten, damaged, unread, .. } = tap;
        let causes = [(index_full, "index full"), (overwritten, "overwritten"), (damaged, "damaged")];
        let causes = causes.iter().filter(|(count, _)| *count > 0);
        let causes: Vec<String> =
            causes.map(|(count, cause)| format!("{} {cause}", grouped(*count))).collect();
        self.row(&format!("{name}  offered"), offered, "");
        self.row(&format!("{name}  lost"), tap.lost(), &causes.join(", "));
        self.positive(&format!("{name}  unread"), unread, "");
    }

    /// Packets that the XDP program took off the host, and losses behind it.
    fn xdp(&mut self, name: &str, ring: RingAccount, xdp: XdpAccount) {
        let remark = |count: u64, what: &str| match count {
            0 => String::new(),
            count => format!("{} {what}", grouped(count)),
        };
        let joined = remark(xdp.joined, "in several buffers");
        self.row(&format!("{name}  xdp, taken"), ring.received, &joined);
        let mut places = Vec::new();
        places.extend(
            (xdp.no_room > 0).then(|| remark(xdp.no_room, "no free memory or too long (rx_dropped)")),
        );
        places.extend((xdp.ring_full > 0).then(|| remark(xdp.ring_full, "rx_ring_full")));
        places.extend(
            (xdp.fill_empty > 0).then(|| format!("fill ring empty {} times", grouped(xdp.fill_empty))),
        );
        places.extend((xdp.invalid > 0).then(|| remark(xdp.invalid, "wrong descriptors")));
        self.row(&format!("{name}  xdp, lost"), ring.dropped, &places.join(", "));
        self.positive(&format!("{name}  xdp, unread"), ring.unread, "");
    }

    /// Link types that cannot have a filter, of the packets filtered.
    fn unfit(&mut self, filter: &FilterAccount) {
        for UnfitLinkType { link_type, packets, .. } in &filter.unfit {
            let place = format!("  of link type {link_type}");
            self.row(&place, Count::Known(*packets), "of link types without this filter");
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
        self.row(&format!("{name}  received"), received, &remarks.join(", "));
    }

    /// Rows of an output.
    pub(crate) fn output(&mut self, output: &OutputAccount) {
        self.row(&format!("{}  written", output.name), output.written, "");
        self.positive(&format!("{}  LOST", output.name), output.lost, &loss_causes(output, "", ""));
        if let Some((cause, packets)) = output.skipped {
            self.positive(&format!("{}  left out", output.name), packets, cause.words());
        }
        self.positive(&format!("{}  on its way", output.name), output.buffered, "");
    }
}

#[cfg(test)]
mod tests {
    use tapline_graph::StageCounters;
    use tapline_source::{LossCause, SkipCause};

    use super::*;

    #[test]
    fn the_engine_of_the_filter_is_named() {
        let mut account = account();
        assert!(json(&account)["account"]["filter"].is_null());
        let interpreted = FilterAccount { interpreted: 1, ..FilterAccount::default() };
        account.stages[1].counters.filter = Some(interpreted);
        assert!(table(&account).contains("0  by the interpreter\n"), "{}", table(&account));
        let native = FilterAccount { compiled: 2, compiled_after: Some(65_536), ..FilterAccount::default() };
        account.stages[1].counters.filter = Some(native.clone());
        assert!(table(&account).contains("0  by native code since packet 65,537\n"), "{}", table(&account));
        assert_eq!(json(&account)["account"]["filter"]["native_after"], 65_536);
        let mixed = FilterAccount { interpreted: 1, reason: Some("no memory".into()), ..native };
        account.stages[1].counters.filter = Some(mixed);
        let mixed = "by native code since packet 65,537, 1 of 3 filters by the interpreter: no memory\n";
        assert!(table(&account).contains(mixed), "{}", table(&account));
    }

    fn table(account: &GraphAccount) -> String {
        text(account, AccountForm::Full)
    }

    /// A chain whose ring lost packets.
    fn account() -> GraphAccount {
        let mut interface = InterfaceAccount::of_file("eth0", 1000);
        interface.kernel_filtered = Count::Unknown;
        interface.ring = Some(RingAccount { received: 1234, dropped: 234, freezes: 1, unread: 0 });
        let stage = |class: &'static str, counters| StageAccount {
            name: class.to_owned(),
            class,
            handed: Some(1000),
            received: 1000,
            passed: 1000,
            counters,
            ..StageAccount::default()
        };
        let output = OutputAccount { name: "out.pcapng".into(), written: 1000, ..OutputAccount::default() };
        let mut source = stage("source", StageCounters::default());
        source.handed = None;
        let filter = Some(FilterAccount::default());
        let filter = stage("filter", StageCounters { filter, ..StageCounters::default() });
        let limit = stage("limit", StageCounters::default());
        let stages = vec![source, filter, limit, stage("output", StageCounters::of_output(output))];
        GraphAccount { interfaces: vec![interface], delivered: 1000, stages, ..GraphAccount::default() }
    }

    fn output(account: &mut GraphAccount) -> &mut OutputAccount {
        account.stages[3].counters.output.as_mut().expect("an output")
    }

    #[test]
    fn a_count_in_the_kernel_stands_alone() {
        let mut account = account();
        *output(&mut account) = OutputAccount { name: "count".into(), ..OutputAccount::default() };
        assert!(table(&account).contains("count  written"), "counted here, and nothing came");
        account.interfaces[0].counted = Some(tapline_source::CountedPackets::default());
        assert!(table(&account).contains("counted in the kernel"), "{}", table(&account));
        assert!(!table(&account).contains("count  written"), "{}", table(&account));
        output(&mut account).written = 3;
        assert!(table(&account).contains("count  written"), "some were counted here");
    }

    #[test]
    fn a_loss_brings_the_table_with_what_is_unknown() {
        let text = text(&account(), AccountForm::Auto);
        assert!(text.contains("kernel filter, refused") && text.contains("unknown\n"), "{text}");
        assert!(text.contains("1,234\n") && text.contains("234  in 1 freeze"), "{text}");
        let end = "balanced: every counted packet is accounted for; unknown: kernel filter, refused\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn an_account_without_losses_is_one_line() {
        let mut account = account();
        let ring = RingAccount { received: 1000, ..RingAccount::default() };
        account.interfaces[0].ring = Some(ring);
        let line = "1,000 packets, 0 dropped; unknown: kernel filter, refused\n";
        assert_eq!(text(&account, AccountForm::Auto), line);
        account.interfaces[0].kernel_filtered = Count::Known(5);
        assert_eq!(text(&account, AccountForm::Auto), "1,000 packets, 0 dropped, 5 filtered out\n");
        *output(&mut account) =
            OutputAccount { written: 990, skipped: Some((SkipCause::Cut, 10)), ..OutputAccount::default() };
        let line = "1,000 packets, 0 dropped, 5 filtered out, 10 beyond the cut-off of their flow\n";
        assert_eq!(text(&account, AccountForm::Auto), line);
        assert!(
            table(&account).ends_with("balanced: every packet is accounted for\n"),
            "{}",
            table(&account)
        );
        assert_eq!(text(&account, AccountForm::None), "");
        let loss = |count| Loss { place: LossPoint::Nic, counter: "rx_missed_errors".to_owned(), count };
        account.interfaces[0].losses = vec![loss(Count::Known(1))];
        assert!(text(&account, AccountForm::Auto).contains("nic, rx_missed_errors"));
    }

    #[test]
    fn an_interface_that_could_not_be_captured_has_no_counts() {
        let mut account = account();
        let (place, counter) = (LossPoint::Uncaptured, "no socket".to_owned());
        account.interfaces.push(InterfaceAccount {
            losses: vec![Loss { place, counter, count: Count::Unknown }],
            ring: Some(RingAccount::default()),
            ..InterfaceAccount::of_file("v7", 0)
        });
        let table = table(&account);
        let rows: Vec<&str> = table.lines().filter(|line| line.contains("v7")).collect();
        assert!(matches!(rows.as_slice(), [row] if row.contains("uncaptured, no socket")), "{table}");
        let row = &json(&account)["account"]["interfaces"][1];
        assert!(row["ring"].is_null() && row["kernel_filtered"].is_null(), "{row}");
    }

    #[test]
    fn a_loss_is_shown_once_with_its_causes() {
        let mut account = account();
        let lost_by = [(LossCause::BatchSpool, 3), (LossCause::BatchMemory, 2)].into_iter().collect();
        *output(&mut account) = OutputAccount { written: 995, lost: 5, lost_by, ..OutputAccount::default() };
        assert_eq!(table(&account).matches("spool full").count(), 1);
        assert!(table(&account).contains("5  2 memory full, 3 spool full\n"), "{}", table(&account));
    }

    #[test]
    fn a_fault_is_shouted() {
        let mut broken = account();
        broken.delivered = 1001;
        assert!(text(&broken, AccountForm::Auto).contains("NOT BALANCED: interfaces delivered 1000, 1001"));
        assert_eq!(json(&broken)["account"]["balanced"], false);
    }

    #[test]
    fn json_has_null_for_unknown() {
        let value = json(&account());
        assert!(value["account"]["interfaces"][0]["kernel_filtered"].is_null());
        assert_eq!(value["account"]["interfaces"][0]["ring"]["dropped"], 234);
        assert_eq!(value["account"]["balanced"], true);
    }
}
