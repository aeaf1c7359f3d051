//! The name of a meter, which stays the same when its process restarts.
//!
//! ```text
//! probe -i eth0 --view host 10.0.0.1      probe eth0          the command and its sources
//! run device eth0, file trace.pcap        run eth0,file       neither filters nor names of files
//! ```

/// Bytes of a name.
const NAME_MAX: usize = 96;
/// Options whose value is a source, or says where it is.
const SOURCES: [&str; 5] = ["-i", "--interface", "--netns", "--container", "--name"];
/// Options whose value is not part of the name, and the word that replaces it: names become labels of metrics, which
/// have neither addresses nor files.
const OTHERS: [(&str, &str); 3] = [("-r", "file"), ("--read", "file"), ("--listen", "listen")];

/// The name of the meter with this title, which is a command line or, of `tapline run`, the sources.
pub fn meter_name(title: &str) -> String {
    let command = command_of(title);
    let rest = title.split_once(' ').map_or("", |(_, rest)| rest);
    let sources = if command == "run" { sources_of_graph(rest) } else { sources_of_words(rest) };
    let name = match sources.is_empty() {
        true => command,
        false => format!("{command} {}", sources.join(",")),
    };
    name[..name.floor_char_boundary(NAME_MAX)].to_owned()
}

/// The command of a title: its first word.
pub fn command_of(title: &str) -> String {
    let word = title.split_whitespace().next().unwrap_or_default();
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    let is_name = (1..=24).contains(&word.len()) && word.bytes().all(is_letter);
    if is_name { word.to_owned() } else { "other".to_owned() }
}

/// `device eth0, listen udp://:4739, file trace.pcap`
fn sources_of_graph(rest: &str) -> Vec<String> {
    let sources = rest.split(", ").filter(|source| !source.is_empty()).map(|source| {
        let (class, first) = source.split_once(' ').unwrap_or((source, ""));
        if class == "device" { word_of(first) } else { word_of(class) }
    });
    sources.collect()
}

fn sources_of_words(rest: &str) -> Vec<String> {
    let (mut sources, mut words) = (Vec::new(), rest.split_whitespace());
    while let Some(word) = words.next() {
        let (option, joined) = match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value)),
            _ if word.len() > 2
                && word.starts_with('-')
                && !word.starts_with("--")
                && word.is_char_boundary(2) =>
            {
                (&word[..2], Some(&word[2..]))
            }
            _ => (word, None),
        };
        if SOURCES.contains(&option) {
            sources.extend(joined.or_else(|| words.next()).map(word_of));
        } else if let Some((_, source)) = OTHERS.iter().find(|(other, _)| *other == option) {
            let _ = joined.or_else(|| words.next());
            sources.push((*source).to_owned());
        } else if word.starts_with("tap:") {
            sources.push(word_of(word));
        }
    }
    sources
}

/// A word that is allowed in a label: names of interfaces, addresses of sockets.
fn word_of(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/@*?[],+%".contains(&byte);
    let is_word = (1..=64).contains(&word.len()) && word.bytes().all(is_plain);
    if is_word { word.to_owned() } else { "other".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_command_and_sources() {
        for (title, name) in [
            ("probe -i eth0 --view", "probe eth0"),
            ("probe --interface=eth0 --top 5 host 10.0.0.1", "probe eth0"),
            ("capture -ieth0 -i eth1 -w x.pcap tcp", "capture eth0,eth1"),
            ("capture -r /home/a/secret.pcap host 10.0.0.1", "capture file"),
            ("collect-flows --listen udp://:4739,udp://:2055", "collect-flows listen"),
            ("run device eth0, file trace.pcap", "run eth0,file"),
            ("serve tap:office", "serve tap:office"),
            ("probe -i eth0 --netns blue", "probe eth0,blue"),
            ("record -i any --to /srv/store", "record any"),
            ("../../bin run", "other"),
            ("", "other"),
            ("probe -i \u{1b}[2J", "probe other"),
            ("probe -i", "probe"),
        ] {
            assert_eq!(meter_name(title), name, "{title}");
        }
        assert!(meter_name(&format!("probe {}", "-i abcdefgh ".repeat(30))).len() <= NAME_MAX);
    }
}
