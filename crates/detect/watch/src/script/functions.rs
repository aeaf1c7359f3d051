//! The functions that scripts call.

use std::sync::{Arc, Mutex};

use rhai::{Array, Dynamic, Engine, EvalAltResult, ImmutableString, Map};
use tapline_syntax::units;

use super::convert::{kept_len, to_json, to_text};
use super::world::{ScriptEvent, TOLD_LEN_MAX, TOLD_MAX, World};
use super::{TEXT_MAX, Trigger, TriggerKind, lock};
use crate::key::Subject;
use crate::recorder::{RECORDERS_MAX, Recorder, RecorderKind, columns};
use crate::tables::{KEYS, KEYS_MAX, ScriptTable, TABLES_MAX};

type Fault = Box<EvalAltResult>;
type Shared = Arc<Mutex<World>>;

/// Triggers of a script.
const TRIGGERS_MAX: usize = 64;
/// Characters of a message.
const MESSAGE_MAX: usize = 4096;
/// Keys that `keys` gives.
const KEYS_GIVEN: usize = 10_000;
const TOO_DEEP: &str = "a value is nested too deep: tables, recorders and events take maps and arrays 8 deep";
const SECOND_NS: u64 = 1_000_000_000;
/// The longest time of a table, timer or period.
const TIME_MAX_NS: u64 = 400 * 86_400 * SECOND_NS;

/// Makes all functions known.
pub(super) fn register(engine: &mut Engine, world: &Shared) {
    register_triggers(engine, world);
    register_tables(engine, world);
    register_told(engine, world);
    register_recorders(engine, world);
    register_bounded(engine);
    let printed = Arc::clone(world);
    engine.on_print(move |text| {
        let mut world = lock(&printed);
        let line = cut(text);
        if world.printed.len() >= TOLD_MAX || world.printed_len + line.len() > TOLD_LEN_MAX {
            world.not_told += 1;
            return;
        }
        world.printed_len += line.len();
        world.printed.push(line);
    });
    engine.on_debug(|_, _, _| {});
}

fn register_triggers(engine: &mut Engine, world: &Shared) {
    let shared = Arc::clone(world);
    engine.register_fn("on_packet", move |filter: &str, function: &str| {
        add_trigger(&shared, TriggerKind::Packet, filter, function)
    });
    let shared = Arc::clone(world);
    engine.register_fn("on_certificate", move |filter: &str, function: &str| {
        add_trigger(&shared, TriggerKind::Certificate, filter, function)
    });
    let shared = Arc::clone(world);
    engine.register_fn("on_flow", move |when: &str, filter: &str, function: &str| {
        let kind = match when {
            "begun" => TriggerKind::FlowBegun,
            "ended" => TriggerKind::FlowEnded,
            _ => return fault(format!("on_flow(\"{when}\", ...): write \"begun\" or \"ended\"")),
        };
        add_trigger(&shared, kind, filter, function)
    });
    let shared = Arc::clone(world);
    engine.register_fn("on_timer", move |every: &str, function: &str| {
        let every_ns = time(every, "on_timer", SECOND_NS)?;
        add_trigger(&shared, TriggerKind::Timer(every_ns), "", function)
    });
    for (name, is_on) in [("on", true), ("off", false)] {
        let shared = Arc::clone(world);
        engine.register_fn(name, move |cookie: i64| {
            let mut world = lock(&shared);
            let at = usize::try_from(cookie).ok();
            match at.and_then(|at| world.triggers.get_mut(at)) {
                Some(trigger) => {
                    trigger.is_on = is_on;
                    Ok(())
                }
                None => fault(format!("{cookie} is not a trigger: keep what on_packet and its like give")),
            }
        });
    }
}

fn add_trigger(world: &Shared, kind: TriggerKind, filter: &str, function: &str) -> Result<i64, Fault> {
    let mut world = lock(world);
    fixed(&world, "triggers")?;
    if world.triggers.len() >= TRIGGERS_MAX {
        return fault(format!("a script has at most {TRIGGERS_MAX} triggers"));
    }
    let (filter, function) = (filter.to_owned(), function.to_owned());
    world.triggers.push(Trigger { kind, filter, function, is_on: true, due_ns: 0 });
    Ok(world.triggers.len() as i64 - 1)
}

fn register_tables(engine: &mut Engine, world: &Shared) {
    let shared = Arc::clone(world);
    engine.register_fn("table", move |name: &str, settings: Map| -> Result<(), Fault> {
        let most = number(&settings, "max", KEYS as i64, 1, KEYS_MAX as i64)? as usize;
        let ttl_ns = time(&text(&settings, "ttl", "1d"), "ttl", SECOND_NS)?;
        known(&settings, &["max", "ttl"])?;
        with_table(&shared, name, |table, _| table.set_bounds(most, ttl_ns))
    });
    let shared = Arc::clone(world);
    engine.register_fn("get", move |name: &str, key: Dynamic| {
        with_table(&shared, name, |table, now_ns| {
            table.get(&to_text(&key), now_ns).cloned().unwrap_or(Dynamic::UNIT)
        })
    });
    let shared = Arc::clone(world);
    engine.register_fn("set", move |name: &str, key: Dynamic, value: Dynamic| {
        set(&shared, name, &to_text(&key), |_| value.flatten()).map(|sum| sum.is_some())
    });
    let shared = Arc::clone(world);
    engine.register_fn("add", move |name: &str, key: Dynamic, more: i64| {
        let sum = set(&shared, name, &to_text(&key), |before| {
            let before = before.and_then(|value| value.as_int().ok()).unwrap_or(0);
            before.saturating_add(more).into()
        })?;
        Ok::<i64, Fault>(sum.unwrap_or(0))
    });
    let shared = Arc::clone(world);
    engine.register_fn("del", move |name: &str, key: Dynamic| {
        with_table(&shared, name, |table, _| table.remove(&to_text(&key)))
    });
    let shared = Arc::clone(world);
    engine.register_fn("count", move |name: &str| {
        with_table(&shared, name, |table, now_ns| table.len(now_ns) as i64)
    });
    let shared = Arc::clone(world);
    engine.register_fn("keys", move |name: &str| {
        with_table(&shared, name, |table, now_ns| {
            let keys = table.keys(KEYS_GIVEN, now_ns).into_iter();
            keys.map(|key| Dynamic::from(ImmutableString::from(key))).collect::<Array>()
        })
    });
}

/// Sets a value, made from the previous one; `None` if the table is full, otherwise its number, 0 for a value that is
/// not one.
fn set(
    world: &Shared,
    name: &str,
    key: &str,
    value: impl FnOnce(Option<&Dynamic>) -> Dynamic,
) -> Result<Option<i64>, Fault> {
    let (room, budget) = {
        let world = lock(world);
        (world.room(), Arc::clone(&world.budget))
    };
    with_table(world, name, |table, now_ns| {
        let value = value(table.get(key, now_ns));
        let Some(len) = kept_len(&value) else { return fault(TOO_DEEP.to_owned()) };
        let number = value.as_int().unwrap_or(0);
        Ok(budget.outside(|| table.set(key, value, len, room, now_ns)).then_some(number))
    })?
}

fn with_table<T>(
    world: &Shared,
    name: &str,
    of: impl FnOnce(&mut ScriptTable, i64) -> T,
) -> Result<T, Fault> {
    let mut world = lock(world);
    let now_ns = world.now_ns;
    if !world.tables.contains_key(name) && world.tables.len() >= TABLES_MAX {
        return fault(format!("a script has at most {TABLES_MAX} tables"));
    }
    let day_ns = 86_400 * SECOND_NS as i64;
    let table = world.tables.entry(name.to_owned()).or_insert_with(|| ScriptTable::new(KEYS, day_ns));
    Ok(of(table, now_ns))
}

fn register_told(engine: &mut Engine, world: &Shared) {
    let shared = Arc::clone(world);
    engine.register_fn("tell", move |message: &str| tell(&shared, message, Map::new()));
    let shared = Arc::clone(world);
    engine.register_fn("tell", move |message: &str, about: Map| tell(&shared, message, about));
    let shared = Arc::clone(world);
    engine.register_fn("now", move || lock(&shared).now_ns as f64 / SECOND_NS as f64);
    let shared = Arc::clone(world);
    engine.register_fn("now_ns", move || lock(&shared).now_ns);
    engine.register_fn("entropy", |text: &str| entropy(text));
}

fn tell(world: &Shared, message: &str, about: Map) -> Result<(), Fault> {
    let mut world = lock(world);
    let message = cut(message);
    let about = Dynamic::from(about);
    let Some(len) = kept_len(&about) else { return fault(TOO_DEEP.to_owned()) };
    let len = len + message.len();
    if world.told.len() >= TOLD_MAX || len > TOLD_LEN_MAX - world.told_len {
        world.not_told += 1;
        return Ok(());
    }
    world.told_len += len;
    let about = match to_json(&about) {
        serde_json::Value::Object(members) => members,
        _ => serde_json::Map::new(),
    };
    // Addresses that the script names say which packets are recorded.
    let address =
        |name: &str| about.get(name).and_then(|value| value.as_str()).and_then(|text| text.parse().ok());
    let subject = match (address("src"), address("dst")) {
        (None, None) => world.subject,
        (src, dst) => Some(Subject { src, dst, ..world.subject.unwrap_or_default() }),
    };
    world.told.push(ScriptEvent { message, about, subject });
    Ok(())
}

/// A text of at most [`MESSAGE_MAX`] characters; of a longer one the beginning, which says so.
fn cut(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_MAX) {
        Some((end, _)) => format!("{}... (cut)", &text[..end]),
        None => text.to_owned(),
    }
}

/// Functions in place of Rhai's own that wait, or make more than a value may have before its length is looked at.
fn register_bounded(engine: &mut Engine) {
    engine.register_fn("sleep", |_: i64| waits());
    engine.register_fn("sleep", |_: f64| waits());
    engine.register_fn("replace", |text: &mut ImmutableString, from: &str, to: &str| replace(text, from, to));
    engine.register_fn("replace", |text: &mut ImmutableString, from: char, to: &str| {
        replace(text, from.encode_utf8(&mut [0; 4]), to)
    });
}

fn waits() -> Result<(), Fault> {
    fault("a script cannot wait: on_timer calls a function at a time".to_owned())
}

fn replace(text: &mut ImmutableString, from: &str, to: &str) -> Result<(), Fault> {
    let times = text.matches(from).count();
    let len = (text.len() - times * from.len()).saturating_add(times.saturating_mul(to.len()));
    if len > TEXT_MAX {
        return fault(format!("replace makes a text of {len} bytes; {TEXT_MAX} are the most"));
    }
    *text = text.replace(from, to).into();
    Ok(())
}

/// Bits of information a character, by how often each is in the text: 0 to 8 for text of one-byte characters.
fn entropy(text: &str) -> f64 {
    let mut counts = [0_u32; 256];
    text.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    let all = text.len().max(1) as f64;
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) / all)
        .map(|p| -p * p.log2())
        .sum()
}

fn register_recorders(engine: &mut Engine, world: &Shared) {
    let shared = Arc::clone(world);
    engine.register_fn("recorder", move |name: &str, kind: &str, settings: Map| {
        add_recorder(&shared, name, kind, &settings)
    });
    let shared = Arc::clone(world);
    engine.register_fn("record", move |name: &str, value: Dynamic| record(&shared, name, &value, None));
    let shared = Arc::clone(world);
    engine.register_fn("record", move |name: &str, key: Dynamic, weight: i64| {
        record(&shared, name, &key, Some(weight))
    });
}

fn add_recorder(world: &Shared, name: &str, kind: &str, settings: &Map) -> Result<(), Fault> {
    let mut world = lock(world);
    fixed(&world, "recorders")?;
    known(settings, &["every", "n", "columns"])?;
    let Some(kind) = RecorderKind::of_name(kind) else {
        return fault(format!("recorder \"{kind}\": write list, histogram or top"));
    };
    if world.recorders.len() >= RECORDERS_MAX {
        return fault(format!("a script has at most {RECORDERS_MAX} recorders"));
    }
    let every_ns = time(&text(settings, "every", "1h"), "every", SECOND_NS)?;
    let n = number(settings, "n", 10, 1, 10_000)? as usize;
    let given = settings.get("columns").and_then(|columns| columns.clone().into_array().ok());
    let given: Vec<String> = given.unwrap_or_default().iter().map(to_text).collect();
    if (kind == RecorderKind::List) == given.is_empty() {
        return fault("columns: [\"NAME\", ...] are for a list, which needs them".to_owned());
    }
    let full = format!("{}/{name}", world.script);
    let recorder = Recorder::new(full, kind, columns(kind, given), every_ns, n);
    world.recorders.insert(name.to_owned(), recorder);
    Ok(())
}

fn record(world: &Shared, name: &str, value: &Dynamic, weight: Option<i64>) -> Result<(), Fault> {
    let mut world = lock(world);
    let room = world.room();
    let World { recorders, periods, now_ns, .. } = &mut *world;
    let Some(recorder) = recorders.get_mut(name) else {
        return fault(format!(
            "there is no recorder \"{name}\": make it with recorder(\"{name}\", ...) first"
        ));
    };
    periods.extend(recorder.advance(*now_ns));
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    match (recorder.kind(), weight) {
        (RecorderKind::Top, Some(weight)) => recorder.weigh(*now_ns, to_text(value), positive(weight), room),
        (RecorderKind::Top, None) => recorder.weigh(*now_ns, to_text(value), 1, room),
        (RecorderKind::Histogram, None) => match (value.as_int(), value.as_float()) {
            (Ok(number), _) => recorder.value(*now_ns, positive(number)),
            (_, Ok(number)) => recorder.value(*now_ns, number as u64),
            _ => return fault(format!("recorder \"{name}\" takes numbers")),
        },
        (RecorderKind::List, None) => {
            let Some(len) = kept_len(value) else { return fault(TOO_DEEP.to_owned()) };
            let row = value.clone().into_array().unwrap_or_else(|_| vec![value.clone()]);
            if row.len() != recorder.columns_given() {
                let (has, wants) = (row.len(), recorder.columns_given());
                return fault(format!("recorder \"{name}\" has {wants} columns after the time, not {has}"));
            }
            recorder.row(*now_ns, row.iter().map(to_json).collect(), len, room);
        }
        _ => return fault(format!("recorder \"{name}\" takes no weight")),
    }
    Ok(())
}

fn fixed(world: &World, what: &str) -> Result<(), Fault> {
    match world.is_loaded {
        false => Ok(()),
        true => fault(format!(
            "{what} are made when the script is loaded, outside of functions; on and off switch triggers"
        )),
    }
}

fn fault<T>(why: String) -> Result<T, Fault> {
    Err(why.into())
}

fn known(settings: &Map, names: &[&str]) -> Result<(), Fault> {
    match settings.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => fault(format!("unknown setting `{name}`; expected one of {}", names.join(", "))),
        None => Ok(()),
    }
}

fn text(settings: &Map, name: &str, default: &str) -> String {
    settings.get(name).map_or_else(|| default.to_owned(), to_text)
}

fn number(settings: &Map, name: &str, default: i64, least: i64, most: i64) -> Result<i64, Fault> {
    let value = settings.get(name).map_or(Ok(default), Dynamic::as_int);
    match value {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => fault(format!("{name}: a number from {least} to {most}")),
    }
}

fn time(text: &str, name: &str, least: u64) -> Result<i64, Fault> {
    match units::nanoseconds(text) {
        Ok(ns) if (least..=TIME_MAX_NS).contains(&ns) => Ok(ns as i64),
        Ok(_) => fault(format!("{name} \"{text}\": from 1 s to 400 d")),
        Err(error) => fault(format!("{name}: {error}")),
    }
}
