//! The text of a file of rules: TOML to [`Rules`], and mistakes with their place.

use std::collections::HashSet;
use std::path::PathBuf;

use serde::Deserialize;
use tapline_syntax::units;
use toml::Spanned;

use crate::burst::BURST_WINDOW_NS;
use crate::comparison::Comparison;
use crate::error::RuleError;
use crate::key::{FIELDS_MAX, KeyField, key_len};
use crate::limit::Limit;
use crate::rules::{
    AccountRow, Actions, Condition, Count, FILE_MAX, HoldSettings, RULES_MAX, RecordSettings,
    RecordedPackets, Rule, Rules, ScriptEntry, Settings, Source,
};
use crate::template::Template;
use crate::window::{Threshold, VALUES_MAX};

mod webhooks;

pub(crate) use webhooks::check_address;
use webhooks::{WebhookText, webhooks};

/// Keys of a rule at a time, unless it says.
const KEYS: u64 = 65_536;
/// The greatest number of keys.
const KEYS_MAX: u64 = 10_000_000;
/// The most bytes that are kept for recordings.
const HISTORY_MAX: u64 = 1_000_000_000_000;
/// The longest time in a rule.
const TIME_MAX_NS: u64 = 31 * 86_400 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
/// The shortest gap.
const GAP_MIN_NS: u64 = 1_000;
/// The words of `on`.
const SOURCES: &str = "packet, flow begun, flow ended, new host, new pair, silence TIME, gap TIME, burst, account lost, account before, account imbalance";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    settings: SettingsText,
    #[serde(default, rename = "rule")]
    rules: Vec<RuleText>,
    #[serde(default, rename = "script")]
    scripts: Vec<ScriptText>,
    #[serde(default, rename = "webhook")]
    webhooks: Vec<WebhookText>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsText {
    history: Option<String>,
    flow_idle: Option<String>,
    flows_max: Option<u64>,
    operations: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: Spanned<String>,
    on: String,
    filter: Option<String>,
    fpl: Option<String>,
    #[serde(default, rename = "where")]
    comparisons: Vec<String>,
    #[serde(default)]
    by: Vec<String>,
    count: Option<String>,
    window: Option<String>,
    above: Option<u64>,
    below: Option<u64>,
    keys: Option<u64>,
    learn: Option<String>,
    message: Option<String>,
    limit: Option<String>,
    run: Option<Vec<String>>,
    webhook: Option<String>,
    record: Option<RecordText>,
    hold: Option<HoldText>,
    #[serde(default)]
    off: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptText {
    name: Spanned<String>,
    file: String,
    limit: Option<String>,
    run: Option<Vec<String>>,
    webhook: Option<String>,
    record: Option<RecordText>,
    hold: Option<HoldText>,
    #[serde(default)]
    off: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordText {
    before: Option<String>,
    after: Option<String>,
    only: Option<String>,
    size: Option<String>,
    files: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldText {
    store: String,
    before: Option<String>,
    after: Option<String>,
    holds: Option<u64>,
}

/// Parses a file of rules.
///
/// # Errors
/// The first mistake, with its line and what to write instead.
pub fn parse(text: &str) -> Result<Rules, RuleError> {
    if text.len() as u64 > FILE_MAX {
        return Err(RuleError::Long { most: FILE_MAX });
    }
    let file: FileText = toml::from_str(text).map_err(|error| RuleError::Toml(mistake(text, &error)))?;
    if file.rules.len() + file.scripts.len() > RULES_MAX {
        return Err(RuleError::Many { most: RULES_MAX });
    }
    let settings = settings(&file.settings)?;
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let mut names = HashSet::new();
    let mut place = |name: &Spanned<String>| -> Result<usize, RuleError> {
        let line = ends.partition_point(|end| *end < name.span().start) + 1;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let shown = name.get_ref();
        if shown.is_empty() || shown.len() > 64 || !shown.chars().all(is_plain) || shown.starts_with('.') {
            let why = "a name is of up to 64 letters, digits, -, _ and ., and begins with no .".to_owned();
            return Err(RuleError::Rule { line, name: shown.clone(), why });
        }
        if !names.insert(shown.clone()) {
            return Err(RuleError::Rule {
                line,
                name: shown.clone(),
                why: "the name is there twice".to_owned(),
            });
        }
        Ok(line)
    };
    let mut rules = Vec::with_capacity(file.rules.len());
    for rule_text in file.rules {
        let line = place(&rule_text.name)?;
        let name = rule_text.name.get_ref().clone();
        rules.push(rule(rule_text, line).map_err(|why| RuleError::Rule { line, name, why })?);
    }
    let mut scripts = Vec::with_capacity(file.scripts.len());
    for script_text in file.scripts {
        let line = place(&script_text.name)?;
        let name = script_text.name.get_ref().clone();
        scripts.push(script(script_text, line).map_err(|why| RuleError::Rule { line, name, why })?);
    }
    let webhooks = webhooks(file.webhooks)?;
    let called = rules.iter().map(|rule| (rule.line, &rule.name, &rule.actions.webhook));
    let called =
        called.chain(scripts.iter().map(|script| (script.line, &script.name, &script.actions.webhook)));
    for (line, name, webhook) in called {
        let is_known = webhooks.iter().any(|known| known.name == *webhook);
        if !webhook.is_empty() && !webhook.contains(':') && !is_known {
            let why = format!(
                "webhook = \"{webhook}\": no [[webhook]] has this name; an address begins with https:// or http://"
            );
            return Err(RuleError::Rule { line, name: name.clone(), why });
        }
    }
    Ok(Rules { settings, rules, scripts, webhooks })
}

/// A mistake of TOML with its place. It repeats neither the line nor the value: both may have a secret of a receiver,
/// and the message may end in the journal.
fn mistake(text: &str, error: &toml::de::Error) -> String {
    let message = in_words(&without_value(error.message()));
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return message };
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.matches('\n').count() + 1;
    let column = before[line_start..].chars().count() + 1;
    format!("TOML parse error at line {line}, column {column}: {message}")
}

/// Removes the value from a message of serde, such as `invalid type: string "7f1d", expected a map`.
fn without_value(message: &str) -> String {
    match (message.find(['"', '`']), message.rfind(", expected ")) {
        (Some(value), Some(expected)) if message.starts_with("invalid ") && value < expected => {
            format!("{}{}", message[..value].trim_end(), &message[expected..])
        }
        _ => message.to_owned(),
    }
}

/// A mistake of TOML without the names that types have in this program.
fn in_words(text: &str) -> String {
    let words = [
        ("expected u64", "expected a whole number, from 0"),
        ("expected usize", "expected a whole number, from 0"),
        ("expected a boolean", "expected true or false"),
        ("expected struct RecordText", "expected { before = \"10s\", after = \"10s\" }"),
        ("expected struct HoldText", "expected { store = \"/srv/store\" }"),
        ("expected struct SettingsText", "expected a table, [settings]"),
        ("expected struct RuleText", "expected a table, [[rule]]"),
        ("expected struct ScriptText", "expected a table, [[script]]"),
        ("expected struct WebhookText", "expected a table, [[webhook]]"),
        ("expected a sequence", "expected a list, [\"...\"]"),
    ];
    words.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn settings(text: &SettingsText) -> Result<Settings, RuleError> {
    let history = match &text.history {
        None => 64_000_000,
        Some(size) => units::size(size).map_err(|error| RuleError::Settings(format!("history: {error}")))?,
    };
    if history > HISTORY_MAX {
        return Err(RuleError::Settings(format!(
            "history = \"{}\": 1T at most, and no more than there is memory",
            text.history.as_deref().unwrap_or_default()
        )));
    }
    let idle = text.flow_idle.as_deref().unwrap_or("15s");
    let flow_idle_ns = duration(idle, "flow_idle", 1_000_000, TIME_MAX_NS).map_err(RuleError::Settings)?;
    let flows_max = text.flows_max.unwrap_or(1 << 20);
    if !(1..=1 << 29).contains(&flows_max) {
        return Err(RuleError::Settings("flows_max: from 1 to 536870912".to_owned()));
    }
    let operations = text.operations.unwrap_or(1_000_000);
    if operations == 0 {
        return Err(RuleError::Settings("operations: 1 or more".to_owned()));
    }
    Ok(Settings { history, flow_idle_ns, flows_max, operations })
}

fn rule(text: RuleText, line: usize) -> Result<Rule, String> {
    let source = source(&text.on)?;
    let of_flows = matches!(source, Source::FlowBegun | Source::FlowEnded);
    if text.fpl.is_some() && (text.filter.is_some() || of_flows || matches!(source, Source::Account(_))) {
        return Err("fpl replaces filter, for packets: leave one of them out".to_owned());
    }
    if matches!(source, Source::Account(_)) && (text.filter.is_some() || !text.by.is_empty()) {
        return Err("the account is counted by interface: leave filter and by out".to_owned());
    }
    if source != Source::FlowEnded && !text.comparisons.is_empty() {
        return Err("where is for on = \"flow ended\": only then are the numbers of a flow known".to_owned());
    }
    if !matches!(source, Source::NewHost | Source::NewPair) && text.learn.is_some() {
        return Err("learn is for on = \"new host\" and \"new pair\"".to_owned());
    }
    let by = text.by.iter().map(|word| field(word)).collect::<Result<Vec<_>, _>>()?;
    key_len(&by)
        .ok_or_else(|| format!("by: at most {FIELDS_MAX} fields, and pair counts as two addresses"))?;
    let keys = text.keys.unwrap_or(KEYS);
    if !(1..=KEYS_MAX).contains(&keys) {
        return Err(format!("keys: from 1 to {KEYS_MAX}"));
    }
    let learn_ns = text.learn.as_deref().map_or(Ok(0), |time| duration(time, "learn", 0, TIME_MAX_NS))?;
    Ok(Rule {
        name: text.name.get_ref().clone(),
        line,
        source,
        condition: condition(&text, source)?,
        filter: text.filter.unwrap_or_default(),
        fpl: text.fpl,
        comparisons: text.comparisons.iter().map(|text| Comparison::parse(text)).collect::<Result<_, _>>()?,
        by,
        limit: text.limit.as_deref().map_or(Ok(Limit::default()), limit)?,
        keys_max: keys as usize,
        learn_ns,
        message: text.message.as_deref().map(Template::parse).transpose()?,
        actions: actions(text.run, text.webhook, (text.record, text.hold))?,
        is_off: text.off,
    })
}

fn script(text: ScriptText, line: usize) -> Result<ScriptEntry, String> {
    if text.file.is_empty() {
        return Err("file: the name of the script, from the folder of the rules".to_owned());
    }
    Ok(ScriptEntry {
        name: text.name.get_ref().clone(),
        line,
        file: text.file,
        limit: text.limit.as_deref().map_or(Ok(Limit::default()), limit)?,
        actions: actions(text.run, text.webhook, (text.record, text.hold))?,
        is_off: text.off,
    })
}

fn source(text: &str) -> Result<Source, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    Ok(match words.as_slice() {
        ["packet"] => Source::Packet,
        ["flow", "begun"] => Source::FlowBegun,
        ["flow", "ended"] => Source::FlowEnded,
        ["new", "host"] => Source::NewHost,
        ["new", "pair"] => Source::NewPair,
        ["silence", time] => Source::Silence(duration(time, "silence", SECOND_NS, TIME_MAX_NS)?),
        ["gap", time] => Source::Gap(duration(time, "gap", GAP_MIN_NS, TIME_MAX_NS)?),
        ["burst"] => Source::Burst,
        ["account", "lost"] => Source::Account(AccountRow::Lost),
        ["account", "before"] => Source::Account(AccountRow::Before),
        ["account", "imbalance"] => Source::Account(AccountRow::Imbalance),
        _ => return Err(format!("unknown source of events on = \"{text}\"; expected one of {SOURCES}")),
    })
}

fn condition(text: &RuleText, source: Source) -> Result<Option<Condition>, String> {
    let Some(above) = text.above else {
        let unused = [
            ("window", text.window.is_some()),
            ("count", text.count.is_some()),
            ("below", text.below.is_some()),
        ];
        if source == Source::Burst {
            return Err("burst needs above = NUMBER, the packets or bytes of a window".to_owned());
        }
        return match unused.iter().find(|(_, is_there)| *is_there) {
            Some((word, _)) => Err(format!("{word} needs above = NUMBER, which raises an event")),
            None => Ok(None),
        };
    };
    if matches!(source, Source::Silence(_) | Source::Gap(_)) {
        return Err("silence and gap are conditions themselves: leave above out".to_owned());
    }
    let is_burst = source == Source::Burst;
    if is_burst && text.below.is_some() {
        return Err("a burst ends with the first window under above: leave below out".to_owned());
    }
    let below = text.below.unwrap_or(above / 2);
    if above == 0 || below >= above {
        return Err("above is 1 or more, and below is less than above".to_owned());
    }
    let window = text.window.as_deref().ok_or("above needs window = \"TIME\", over which is counted")?;
    let (least, most) = match is_burst {
        true => (*BURST_WINDOW_NS.start(), *BURST_WINDOW_NS.end()),
        false => (SECOND_NS, TIME_MAX_NS),
    };
    let window_ns = duration(window, "window", least, most)?;
    let words: Vec<&str> = text.count.as_deref().unwrap_or("events").split_whitespace().collect();
    let count = match words.as_slice() {
        ["events"] => Count::Events,
        ["packets"] => Count::Packets,
        ["bytes"] => Count::Bytes,
        ["distinct", word] => Count::Distinct(field(word)?),
        _ => return Err("count is events, packets, bytes, or distinct FIELD".to_owned()),
    };
    if is_burst && matches!(count, Count::Distinct(_)) {
        return Err("a burst counts packets or bytes".to_owned());
    }
    if matches!(count, Count::Distinct(_)) && above > VALUES_MAX {
        return Err(format!(
            "above = {above}: with distinct it is {VALUES_MAX} at most, as no more values of a key are distinguished"
        ));
    }
    Ok(Some(Condition { count, threshold: Threshold { window_ns, above, below } }))
}

fn field(word: &str) -> Result<KeyField, String> {
    let known = || KeyField::NAMES.join(", ");
    KeyField::of_name(word).ok_or_else(|| format!("unknown field `{word}`; expected one of {}", known()))
}

/// `COUNT/TIME`.
fn limit(text: &str) -> Result<Limit, String> {
    let form = || format!("limit = \"{text}\": write COUNT/TIME, such as 10/1m");
    let (events, period) = text.split_once('/').ok_or_else(form)?;
    let events = units::count(events.trim()).map_err(|_| form())?;
    let period_ns = duration(period.trim(), "limit", SECOND_NS, TIME_MAX_NS)?;
    if events == 0 { Err(form()) } else { Ok(Limit { events, period_ns }) }
}

fn actions(
    run: Option<Vec<String>>,
    webhook: Option<String>,
    (record, hold): (Option<RecordText>, Option<HoldText>),
) -> Result<Actions, String> {
    if run.as_ref().is_some_and(|words| words.first().is_none_or(String::is_empty)) {
        return Err(
            "run = [\"PROGRAM\", \"ARGUMENT\"]: a program is missing; leave run out for none".to_owned()
        );
    }
    webhook
        .as_deref()
        .filter(|text| !webhooks::is_name(text))
        .map_or(Ok(()), check_address)
        .map_err(|why| format!("webhook: {why}"))?;
    let (run, webhook) = (run.unwrap_or_default(), webhook.unwrap_or_default());
    let (record, hold) = (record.map(recording).transpose()?, hold.map(|hold| holding(&hold)).transpose()?);
    Ok(Actions { run, webhook, record, hold })
}

fn recording(text: RecordText) -> Result<RecordSettings, String> {
    let time =
        |text: &Option<String>, name: &str| duration(text.as_deref().unwrap_or("10s"), name, 0, TIME_MAX_NS);
    let only = match text.only.as_deref().unwrap_or("all") {
        "all" => RecordedPackets::All,
        "src" => RecordedPackets::Src,
        "dst" => RecordedPackets::Dst,
        "pair" => RecordedPackets::Pair,
        "flow" => RecordedPackets::Flow,
        other => return Err(format!("only = \"{other}\": write all, src, dst, pair or flow")),
    };
    let size = text.size.as_deref().map_or(Ok(100_000_000), units::size);
    let size = size.map_err(|error| format!("size: {error}"))?;
    let files = text.files.unwrap_or(100);
    if size < 1000 || files == 0 {
        return Err("record: size of 1k or more, files of 1 or more".to_owned());
    }
    Ok(RecordSettings {
        before_ns: time(&text.before, "before")?,
        after_ns: time(&text.after, "after")?,
        only,
        size,
        files,
    })
}

fn holding(text: &HoldText) -> Result<HoldSettings, String> {
    let time =
        |text: &Option<String>, name: &str| duration(text.as_deref().unwrap_or("10s"), name, 0, TIME_MAX_NS);
    let (store, holds) = (PathBuf::from(&text.store), text.holds.unwrap_or(100));
    if !store.is_absolute() || holds == 0 {
        return Err(
            "hold = { store = \"/srv/store\" }: the directory of a store from / on; holds is 1 or more"
                .to_owned(),
        );
    }
    Ok(HoldSettings {
        store,
        before_ns: time(&text.before, "before")?,
        after_ns: time(&text.after, "after")?,
        holds,
    })
}

fn duration(text: &str, name: &str, least: u64, most: u64) -> Result<u64, String> {
    let ns = units::nanoseconds(text).map_err(|error| format!("{name}: {error}"))?;
    if (least..=most).contains(&ns) {
        return Ok(ns);
    }
    let seconds = |ns: u64| ns as f64 / SECOND_NS as f64;
    Err(format!("{name} = \"{text}\": from {} s to {} s", seconds(least), seconds(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
[settings]
history = "16M"

[[rule]]
name = "scan"
on = "flow begun"
filter = "tcp"
by = ["src"]
count = "distinct dport"
window = "10s"
above = 20
message = "{src} tried {value} ports"
record = { before = "5s", after = "1m", only = "src" }
run = ["logger", "-t", "tapline"]

[[rule]]
name = "quiet"
on = "silence 30s"
filter = "host 10.0.0.1"

[[script]]
name = "beacon"
file = "beacon.rhai"
limit = "5/1h"
"#;

    #[test]
    fn a_whole_file_is_read() {
        let rules = parse(WHOLE).unwrap();
        let [scan, quiet] = rules.rules.as_slice() else { panic!("two rules") };
        let threshold = Threshold { window_ns: 10 * SECOND_NS, above: 20, below: 10 };
        assert_eq!(scan.condition, Some(Condition { count: Count::Distinct(KeyField::DstPort), threshold }));
        assert_eq!((scan.line, scan.by.as_slice()), (6, [KeyField::Src].as_slice()));
        let record = scan.actions.record.unwrap();
        assert_eq!((record.before_ns, record.only), (5 * SECOND_NS, RecordedPackets::Src));
        assert_eq!((quiet.source, quiet.limit), (Source::Silence(30 * SECOND_NS), Limit::default()));
        assert_eq!(rules.scripts[0].limit, Limit { events: 5, period_ns: 3600 * SECOND_NS });
        assert_eq!(rules.settings.history, 16_000_000);
    }

    #[test]
    fn holds_default_to_ten_seconds_around_the_event() {
        let hold = |members: &str| {
            let hold = format!("hold = {{ store = \"/srv/store\"{members} }}");
            let rules = parse(&format!("[[rule]]\nname = \"x\"\non = \"packet\"\n{hold}\n")).unwrap();
            rules.rules[0].actions.hold.clone().unwrap()
        };
        let settings = |before_ns, after_ns, holds| HoldSettings {
            store: PathBuf::from("/srv/store"),
            before_ns,
            after_ns,
            holds,
        };
        assert_eq!(hold(""), settings(10 * SECOND_NS, 10 * SECOND_NS, 100));
        let given = hold(", before = \"0s\", after = \"1m\", holds = 3");
        assert_eq!(given, settings(0, 60 * SECOND_NS, 3));
    }

    #[test]
    fn mistakes_name_the_line_the_rule_and_the_mend() {
        let fault = |rest: &str| {
            let text = format!("\n[[rule]]\nname = \"x\"\n{rest}\n");
            parse(&text).err().unwrap_or_else(|| panic!("{rest} is taken")).to_string()
        };
        for (rest, words) in [
            ("on = \"pakket\"", "`x` in line 3: unknown source of events on = \"pakket\""),
            ("on = \"packet\"\nby = [\"source\"]", "unknown field `source`; expected one of src, dst"),
            ("on = \"packet\"\nabove = 3", "needs window"),
            ("on = \"packet\"\nwindow = \"3s\"", "window needs above"),
            ("on = \"packet\"\nabove = 3\nbelow = 3\nwindow = \"3s\"", "below is less"),
            (
                "on = \"packet\"\nabove = 65537\nwindow = \"3s\"\ncount = \"distinct src\"",
                "`x` in line 3: above = 65537: with distinct it is 65536 at most",
            ),
            ("on = \"packet\"\nwhere = [\"bytes > 3\"]", "where is for"),
            ("on = \"flow ended\"\nwhere = [\"byte > 3\"]", "`byte > 3`"),
            ("on = \"packet\"\nlimit = \"often\"", "COUNT/TIME"),
            ("on = \"packet\"\nlearn = \"1h\"", "learn is for"),
            ("on = \"silence 1ms\"", "from 1 s"),
            ("on = \"gap 1ns\"", "from 0.000001 s"),
            ("on = \"gap 5ms\"\nabove = 1", "leave above out"),
            ("on = \"burst\"", "burst needs above"),
            ("on = \"burst\"\nwindow = \"10us\"\nabove = 1", "from 0.001 s to 1 s"),
            ("on = \"burst\"\nwindow = \"2s\"\nabove = 1", "from 0.001 s to 1 s"),
            ("on = \"burst\"\nwindow = \"5ms\"\nabove = 9\nbelow = 1", "leave below out"),
            ("on = \"burst\"\nwindow = \"5ms\"\nabove = 9\ncount = \"distinct src\"", "packets or bytes"),
            ("on = \"packet\"\nmessage = \"{who}\"", "{who}"),
            ("on = \"packet\"\nwebhook = \"ftp://x\"", "https://"),
            ("on = \"packet\"\nwebhook = \"\"", "leave webhook out"),
            ("on = \"packet\"\nwebhook = \"http://\"", "https://HOST/PATH"),
            ("on = \"packet\"\nwebhook = \"http://a b/\"", "https://HOST/PATH"),
            ("on = \"packet\"\nwebhook = \"http://a:99999/\"", "from 1 to 65535"),
            ("on = \"packet\"\nwebhook = \"http://[::1]:0/\"", "from 1 to 65535"),
            ("on = \"packet\"\nwebhook = \"http://[::g]/\"", "https://HOST/PATH"),
            ("on = \"packet\"\nrun = []", "leave run out"),
            ("on = \"packet\"\nrun = [\"\"]", "a program is missing"),
            ("on = \"packet\"\nkeys = -1", "expected a whole number"),
            ("on = \"packet\"\nrecord = 3", "expected { before"),
            ("on = \"packet\"\noff = 3", "expected true or false"),
            ("on = \"packet\"\nfilters = \"tcp\"", "unknown field `filters`"),
            ("on = \"account lost\"\nfilter = \"tcp\"", "by interface"),
            ("on = \"packet\"\nrecord = { only = \"host\" }", "only = \"host\""),
            ("on = \"packet\"\nhold = 3", "expected { store"),
            ("on = \"packet\"\nhold = {}", "missing field `store`"),
            ("on = \"packet\"\nhold = { store = \"store\" }", "from / on"),
            ("on = \"packet\"\nhold = { store = \"/s\", holds = 0 }", "holds is 1 or more"),
            ("on = \"packet\"\nhold = { store = \"/s\", files = 3 }", "unknown field `files`"),
            ("on = \"packet\"\nhold = { store = \"/s\", before = \"soon\" }", "in line 3: before: "),
            ("on = \"packet\"\nhold = { store = \"/s\", after = \"32d\" }", "after = \"32d\": from 0 s"),
        ] {
            assert!(fault(rest).contains(words), "{rest}: {}", fault(rest));
        }
        let twice = "[[rule]]\nname = \"x\"\non = \"packet\"\n";
        assert!(parse(&twice.repeat(2)).unwrap_err().to_string().contains("twice"));
        let named = parse("[[rule]]\nname = \"../x\"\non = \"packet\"\n").unwrap_err().to_string();
        assert!(named.contains("digits, -, _ and ."), "{named}");
        let history = parse("[settings]\nhistory = \"99999T\"\n").unwrap_err().to_string();
        assert!(history.contains("history = \"99999T\": 1T at most"), "{history}");
    }
}
