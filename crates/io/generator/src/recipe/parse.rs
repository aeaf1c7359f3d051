//! Text to a recipe.

use tapline_packet::headers::IpVersion;
use tapline_syntax::Span;
use tapline_syntax::units::{self, RateUnit};

use super::keys::KEYS;
use super::units::{addresses, dotted, mac, nanoseconds, number, ports, share};
use super::{
    AddressOrder, FLOWS_MAX, FlowOrder, Gaps, Malformation, Payload, Rate, Recipe, SIZE_MAX, Sizes, Transport,
};
use crate::error::{SyntaxError, moved};
use crate::share::Share;

/// The most sizes in a list.
const SIZES_MAX: usize = 64;
/// The most labels of a stack.
const LABELS_MAX: usize = 8;

/// A word, or a key with its value.
struct Item {
    name: String,
    value: Option<String>,
    /// The item's place in the text, and its value's.
    span: Span,
    value_span: Span,
}

impl Item {
    /// The place of the value without its quotes.
    fn inside(&self) -> Span {
        let Span { start, end } = self.value_span;
        let quotes = (end - start).saturating_sub(self.value.as_ref().map_or(0, String::len)) / 2;
        Span { start: start + quotes, end: end - quotes }
    }
}

impl Recipe {
    /// Reads a recipe.
    ///
    /// # Errors
    /// The fault, its place, and the mend. Contradictions between items are found by
    /// [`Generator::new`](crate::Generator::new).
    ///
    /// ```
    /// use tapline_generator::Recipe;
    /// let text = "udp size=imax";
    /// let error = Recipe::parse(text).unwrap_err().render(text);
    /// assert!(error.starts_with("`imax` is not a size\n  udp size=imax\n           ^^^^\n"));
    /// ```
    pub fn parse(text: &str) -> Result<Recipe, SyntaxError> {
        let items = items(text)?;
        let mut recipe = Recipe::default();
        let mut portion: Option<(Share, Span)> = None;
        for (at, item) in items.iter().enumerate() {
            if let Some(before) = items[..at].iter().find(|before| before.name == item.name) {
                let message = format!("`{}` is given twice", item.name);
                return Err(SyntaxError::at(item.span, message).with_earlier_place(before.span));
            }
            match (item.name.as_str(), &item.value) {
                ("share", Some(value)) => {
                    let read =
                        share(value).ok_or_else(|| wrong(item, "a share", "such as 1/10, one of ten"))?;
                    portion = Some((read, item.span));
                }
                _ => recipe.take(item)?,
            }
        }
        match (&mut recipe.matching, portion) {
            (Some((_, all)), Some((portion, _))) => *all = portion,
            (None, Some((_, span))) => {
                return Err(SyntaxError::at(span, "a share of what?").hint("it goes with match='FILTER'"));
            }
            _ => {}
        }
        Ok(recipe)
    }

    fn take(&mut self, item: &Item) -> Result<(), SyntaxError> {
        match &item.value {
            None => self.word(item),
            Some(value) => self.key(item, value),
        }
    }

    fn word(&mut self, item: &Item) -> Result<(), SyntaxError> {
        match item.name.as_str() {
            "udp" => self.transports.push(Transport::Udp),
            "tcp" => self.transports.push(Transport::Tcp),
            "icmp" => self.transports.push(Transport::Icmp),
            "ip" => self.versions.push(IpVersion::V4),
            "ip6" => self.versions.push(IpVersion::V6),
            "oneway" => self.is_one_way = true,
            "mark" => self.mark = Some(0),
            _ => return Err(unknown(item)),
        }
        Ok(())
    }

    fn key(&mut self, item: &Item, value: &str) -> Result<(), SyntaxError> {
        match item.name.as_str() {
            "size" => self.sizes = sizes(item, value)?,
            "flows" => {
                let flows = number(value).and_then(|flows| u32::try_from(flows).ok());
                let flows = flows.filter(|flows| (1..=FLOWS_MAX).contains(flows));
                self.flows = Some(flows.ok_or_else(|| wrong(item, "a number of flows", "1 to 1M"))?);
            }
            "walk" => {
                self.walk =
                    choice(item, value, &[("step", AddressOrder::Step), ("random", AddressOrder::Random)])?
            }
            "order" => {
                self.order =
                    choice(item, value, &[("turns", FlowOrder::Turns), ("random", FlowOrder::Random)])?
            }
            "src" | "dst" => self.addresses(item, value)?,
            "sport" => self.src_ports = ports(value).ok_or_else(|| no_ports(item))?,
            "dport" => self.dst_ports = Some(ports(value).ok_or_else(|| no_ports(item))?),
            "smac" => self.src_mac = mac(value).ok_or_else(|| no_mac(item))?,
            "dmac" => self.dst_mac = mac(value).ok_or_else(|| no_mac(item))?,
            "ttl" => self.ttl = value.parse().map_err(|_| wrong(item, "a number of hops", "0 to 255"))?,
            "tos" => self.tos = value.parse().map_err(|_| wrong(item, "a type of service", "0 to 255"))?,
            "vlan" => {
                let tags = dotted(value, 1, 4094).filter(|tags| tags.len() <= 2);
                let tags = tags.ok_or_else(|| wrong(item, "a VLAN", "1 to 4094, or two: OUTER.INNER"))?;
                self.vlans = tags.into_iter().map(|tag| tag as u16).collect();
            }
            "mpls" => {
                let labels = dotted(value, 0, (1 << 20) - 1).filter(|labels| labels.len() <= LABELS_MAX);
                self.labels = labels
                    .ok_or_else(|| wrong(item, "a stack of labels", "up to 8 of 0 to 1048575: 16.17"))?;
            }
            "vxlan" => {
                let network = value.parse().ok().filter(|network| *network < 1 << 24);
                self.vxlan = Some(network.ok_or_else(|| wrong(item, "a VXLAN network", "0 to 16777215"))?);
            }
            "payload" => {
                self.payload = match value {
                    "zero" => Payload::Zero,
                    "counting" => Payload::Counting,
                    "random" => Payload::Random,
                    text => Payload::Text(text.as_bytes().to_vec()),
                }
            }
            "segments" => {
                let segments =
                    number(value).and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
                self.segments = segments.ok_or_else(|| wrong(item, "a number of segments", "1 or more"))?;
            }
            "fragment" => {
                let bytes = value.parse().ok().filter(|bytes| (68..=SIZE_MAX as u32).contains(bytes));
                self.fragment =
                    Some(bytes.ok_or_else(|| wrong(item, "a length of IP packets", "68 to 65535"))?);
            }
            "bad" => self.bad = malformed(item, value)?,
            "match" => self.matching = Some((filter(item, value)?, Share::ALL)),
            "count" => {
                self.count = Some(
                    number(value).ok_or_else(|| wrong(item, "a number of packets", "such as 1000, 1M"))?,
                )
            }
            "duration" => {
                let time =
                    nanoseconds(value).ok_or_else(|| wrong(item, "a time", "such as 10s, 500ms, 5m, 1h"))?;
                self.duration_ns = Some(time);
            }
            "rate" => self.rate = rate(item, value)?,
            "gaps" => self.gaps = gaps(item, value)?,
            "start" => self.start_ns = start(item, value)?,
            "seed" => self.seed = value.parse().map_err(|_| wrong(item, "a seed", "a whole number"))?,
            "mark" => {
                let stream = value.parse().map_err(|_| wrong(item, "a number of a stream", "0 to 255"))?;
                self.mark = Some(stream);
            }
            _ => return Err(unknown(item)),
        }
        Ok(())
    }

    fn addresses(&mut self, item: &Item, value: &str) -> Result<(), SyntaxError> {
        let hint = "such as 10.0.0.1, 10.0.0.0/24, 10.0.0.1-10.0.0.9, fd00::/112, with commas";
        let (v4, v6) = addresses(value).ok_or_else(|| wrong(item, "a list of addresses", hint))?;
        let (ours_v4, ours_v6) = match item.name.as_str() {
            "src" => (&mut self.src_v4, &mut self.src_v6),
            _ => (&mut self.dst_v4, &mut self.dst_v6),
        };
        if let Some(space) = v4 {
            *ours_v4 = space;
        }
        if let Some(space) = v6 {
            *ours_v6 = space;
        }
        Ok(())
    }
}

/// The place of a word, or of a key's value, in a text.
pub(crate) fn span_of(text: &str, name: &str) -> Option<Span> {
    let items = items(text).ok()?;
    items.iter().find(|item| item.name == name).map(|item| item.span)
}

/// The place of a key's value in a text, without its quotes.
pub(crate) fn span_of_value(text: &str, name: &str) -> Option<Span> {
    let items = items(text).ok()?;
    items.iter().find(|item| item.name == name).map(Item::inside)
}

/// Splits a text at its blanks.
fn items(text: &str) -> Result<Vec<Item>, SyntaxError> {
    let mut items = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((start, first)) = chars.next() {
        if first.is_whitespace() {
            continue;
        }
        let mut word = String::from(first);
        let (mut end, mut equals, mut quote) = (start + first.len_utf8(), None, None);
        while let Some(&(at, c)) = chars.peek() {
            if quote.is_none() && c.is_whitespace() {
                break;
            }
            chars.next();
            end = at + c.len_utf8();
            match (quote, equals) {
                (Some((mark, _)), _) if mark == c => quote = None,
                (None, Some(_)) if c == '\'' || c == '"' => quote = Some((c, at)),
                (None, None) if c == '=' => equals = Some((word.len(), end)),
                _ => word.push(c),
            }
        }
        if let Some((mark, at)) = quote {
            return Err(SyntaxError::at(Span { start: at, end }, format!("there is no second {mark}")));
        }
        let span = Span { start, end };
        items.push(match equals {
            Some((at, from)) => {
                let value = word.split_off(at);
                Item { name: word, value: Some(value), span, value_span: Span { start: from, end } }
            }
            None => Item { name: word, value: None, span, value_span: span },
        });
    }
    Ok(items)
}

fn wrong(item: &Item, what: &str, hint: &str) -> SyntaxError {
    let value = item.value.as_deref().unwrap_or_default();
    SyntaxError::at(item.value_span, format!("`{value}` is not {what}"))
        .hint(format!("{}: {hint}", item.name))
}

fn no_ports(item: &Item) -> SyntaxError {
    wrong(item, "a list of ports", "such as 80, 1024-65535, with commas; 0 to 65535")
}

fn no_mac(item: &Item) -> SyntaxError {
    wrong(item, "a link address", "such as 02:00:00:00:00:01")
}

fn unknown(item: &Item) -> SyntaxError {
    let is_word = item.value.is_none();
    let known = KEYS.iter().find(|key| key.name == item.name);
    let message = match (known, is_word) {
        (Some(key), true) => format!("`{}` needs a value: {}", key.name, key.value),
        (Some(_), false) => format!("`{}` takes no value", item.name),
        (None, true) => format!("there is no word `{}` in recipes", item.name),
        (None, false) => format!("there is no key `{}` in recipes", item.name),
    };
    let hint = match known {
        Some(key) => key.meaning.to_owned(),
        None => near(&item.name),
    };
    let name = Span { start: item.span.start, end: item.span.start + item.name.len() };
    SyntaxError::at(name, message).hint(hint)
}

/// The key that looks most like a word, or all.
fn near(word: &str) -> String {
    let names = KEYS.iter().map(|key| key.name);
    match names.clone().min_by_key(|name| distance(name, word)).filter(|name| distance(name, word) <= 2) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("there are {}", names.collect::<Vec<_>>().join(", ")),
    }
}

/// Edit distance: the number of letters that must be changed, added or left out to turn one word into the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for a in one.chars() {
        let mut diagonal = row[0];
        row[0] += 1;
        for (at, b) in other.chars().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

fn choice<T: Copy>(item: &Item, value: &str, choices: &[(&str, T)]) -> Result<T, SyntaxError> {
    let found = choices.iter().find(|(word, _)| *word == value);
    let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    found
        .map(|(_, meaning)| *meaning)
        .ok_or_else(|| wrong(item, &format!("a value of {}", item.name), &words.join(" or ")))
}

fn sizes(item: &Item, value: &str) -> Result<Sizes, SyntaxError> {
    let hint =
        "60, imix, 60:7,590:4,1514:1 or 60..1514+64; bytes without the frame check sequence, at most 65535";
    let no_size = || wrong(item, "a size", hint);
    let size = |text: &str| -> Option<u32> {
        text.parse().ok().filter(|size: &u32| (1..=SIZE_MAX as u32).contains(size))
    };
    if value == "imix" {
        return Ok(Sizes::imix());
    }
    if let Some((first, rest)) = value.split_once("..") {
        let (last, step) = rest.split_once('+').unwrap_or((rest, "1"));
        let (first, last) =
            size(first).zip(size(last)).filter(|(first, last)| first <= last).ok_or_else(no_size)?;
        let step = step.parse().ok().filter(|step| *step > 0).ok_or_else(no_size)?;
        return Ok(Sizes::Sweep { first, last, step });
    }
    if !value.contains([',', ':']) {
        return size(value).map(Sizes::Fixed).ok_or_else(no_size);
    }
    let part = |part: &str| -> Option<(u32, u32)> {
        let (bytes, weight) = part.split_once(':').unwrap_or((part, "1"));
        Some((size(bytes)?, weight.parse().ok().filter(|weight| (1..=1_000_000).contains(weight))?))
    };
    let list = value.split(',').map(part).collect::<Option<Vec<_>>>().ok_or_else(no_size)?;
    if list.len() > SIZES_MAX {
        Err(wrong(item, "a size", "at most 64 in a list"))
    } else {
        Ok(Sizes::Weighted(list))
    }
}

fn malformed(item: &Item, value: &str) -> Result<Vec<(Malformation, Share)>, SyntaxError> {
    let hint = "checksum, ip-checksum, length, truncated; each with its share if not all: checksum:1/100; together no more than all";
    let no_fault = || wrong(item, "a fault", hint);
    let mut list = Vec::new();
    for part in value.split(',') {
        let (word, portion) =
            part.split_once(':').map_or((part, None), |(word, portion)| (word, Some(portion)));
        let bad = match word {
            "checksum" => Malformation::Checksum,
            "ip-checksum" => Malformation::IpChecksum,
            "length" => Malformation::Length,
            "truncated" => Malformation::Truncated,
            _ => return Err(no_fault()),
        };
        let portion = portion.map_or(Some(Share::ALL), share).ok_or_else(no_fault)?;
        list.push((bad, portion));
    }
    let sum: f64 = list.iter().map(|(_, share)| f64::from(share.over) / f64::from(share.under)).sum();
    if sum > 1.0 + 1e-9 { Err(no_fault()) } else { Ok(list) }
}

/// Checks that a filter compiles; its own error shows the place in the recipe.
fn filter(item: &Item, value: &str) -> Result<String, SyntaxError> {
    if value.trim().is_empty() {
        return Err(wrong(item, "a filter", "such as 'tcp port 80'"));
    }
    match tapline_filter::parse(value) {
        Ok(_) => Ok(value.to_owned()),
        Err(error) => Err(moved(&error, item.inside())),
    }
}

fn rate(item: &Item, value: &str) -> Result<Rate, SyntaxError> {
    let hint = "packets a second: 100k; bits of frames a second: 10Mbit; bits on the wire a second: 100Mwire; 1 or more";
    let rate = units::rate(value).ok().filter(|rate| rate.in_1000_s.is_multiple_of(1000));
    let rate = rate.ok_or_else(|| wrong(item, "a rate", hint))?;
    let a_second = rate.in_1000_s / 1000;
    Ok(match rate.unit {
        RateUnit::Packets => Rate::Packets(a_second),
        RateUnit::FrameBits => Rate::Bits(a_second),
        RateUnit::WireBits => Rate::Wire(a_second),
    })
}

fn gaps(item: &Item, value: &str) -> Result<Gaps, SyntaxError> {
    let burst = |packets: &str| packets.parse().ok().filter(|packets| *packets > 0).map(Gaps::Burst);
    let read = match value {
        "constant" => Some(Gaps::Constant),
        "poisson" => Some(Gaps::Poisson),
        _ => value.strip_prefix("burst:").and_then(burst),
    };
    read.ok_or_else(|| wrong(item, "a kind of gaps", "constant, poisson, or burst:32 for 32 packets at once"))
}

fn start(item: &Item, value: &str) -> Result<Option<i64>, SyntaxError> {
    if value == "now" {
        return Ok(None);
    }
    let seconds = super::units::decimal(value, 1_000_000_000).and_then(|nanos| i64::try_from(nanos).ok());
    seconds.map(Some).ok_or_else(|| wrong(item, "a time", "now, or seconds since 1970: 946684800, 0, 1.5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Recipe::parse(text).expect_err(text).render(text)
    }

    #[test]
    fn mistakes_are_marked() {
        assert_eq!(
            refused("udp sise=3"),
            "there is no key `sise` in recipes\n  udp sise=3\n      ^^^^\n  did you mean `size`?"
        );
        let filter = refused("match='tcp and )' udp");
        assert!(filter.contains("\n  match='tcp and )' udp\n                 ^"), "{filter}");
        assert!(refused("size").contains("`size` needs a value"));
        assert!(refused("udp=1").contains("`udp` takes no value"));
        assert!(
            refused("flows=3 flows=4")
                .starts_with("`flows` is given twice\n  flows=3 flows=4\n  ~~~~~~~ ^^^^^^^")
        );
        assert!(refused("payload='abc").contains("there is no second '"));
        assert!(refused("share=1/2").contains("a share of what?"));
    }

    #[test]
    fn keys_accept_their_values() {
        let recipe =
            |text: &str| Recipe::parse(text).unwrap_or_else(|error| panic!("{}", error.render(text)));
        assert_eq!(recipe(""), Recipe::default());
        assert_eq!(recipe("size=60:7,590:4,1514:1"), recipe("size=imix"));
        assert_eq!(recipe("size=60..100+8").sizes, Sizes::Sweep { first: 60, last: 100, step: 8 });
        assert_eq!(recipe("payload=\"it's a text\"").payload, Payload::Text(b"it's a text".to_vec()));
        assert_eq!(recipe("vlan=100.5 mpls=16.17").vlans, [100, 5]);
        assert_eq!(recipe("rate=1.5Mbit").rate, Rate::Bits(1_500_000));
        assert_eq!(recipe("start=1.5").start_ns, Some(1_500_000_000));
        assert_eq!(
            (recipe("start=now").start_ns, recipe("mark").mark, recipe("mark=9").mark),
            (None, Some(0), Some(9))
        );
        let (text, share) = recipe("match='tcp port 80' share=1/10").matching.expect("a filter");
        assert_eq!((text.as_str(), share), ("tcp port 80", Share { over: 1, under: 10 }));
    }

    #[test]
    fn keys_take_the_units_of_the_docs() {
        let amounts = |text: &str| {
            let recipe = Recipe::parse(text).unwrap_or_else(|error| panic!("{}", error.render(text)));
            (recipe.flows, recipe.count, recipe.duration_ns, recipe.segments)
        };
        let exact = amounts("flows=1500 count=1500000 duration=90000ms segments=10");
        assert_eq!(amounts("flows=1.5k count=1.5M duration=1.5m segments=0.01k"), exact);
        assert_eq!(amounts("flows=1_500 count=0.0015G duration=90 segments=10"), exact);
    }

    #[test]
    fn keys_refuse_other_values() {
        for text in [
            "size=0",
            "size=65536",
            "size=100..60",
            "size=60..100+0",
            "size=60:0",
            "size=",
            "flows=0",
            "flows=1000001",
            "walk=run",
            "src=10.0.0",
            "dst=::1-10.0.0.1",
            "sport=70000",
            "dport=",
            "smac=1:2:3",
            "ttl=256",
            "vlan=0",
            "vlan=4095",
            "vlan=1.2.3",
            "mpls=1048576",
            "mpls=1.2.3.4.5.6.7.8.9",
            "vxlan=16777216",
            "segments=0",
            "fragment=67",
            "bad=all",
            "bad=checksum:2/1",
            "bad=checksum,length",
            "match=''",
            "match=tcp share=2",
            "count=-1",
            "duration=5x",
            "rate=0",
            "rate=1xbit",
            "gaps=burst:0",
            "start=-1",
            "seed=x",
            "mark=256",
        ] {
            let message = refused(text);
            assert!(message.lines().count() >= 3 && message.contains('^'), "{message}");
        }
    }

    #[test]
    fn no_text_panics() {
        let pieces: Vec<String> = KEYS
            .iter()
            .flat_map(|key| [key.name.to_owned(), format!("{}=", key.name), key.value.to_owned()])
            .chain(
                ["=", "'", "\"", " ", "  ", "1", "ü", ":", "/", "-", ",", "..", "99999999999999999999", "\n"]
                    .map(str::to_owned),
            )
            .collect();
        let mut random = crate::random::Random::new(1, 1);
        for _ in 0..20_000 {
            let text: String = (0..random.below(9))
                .map(|_| pieces[random.below(pieces.len() as u64) as usize].as_str())
                .collect();
            if let Err(error) = Recipe::parse(&text) {
                assert!(!error.render(&text).is_empty());
            }
        }
    }
}
