//! Searches of recorded captures that clients ask for: allowed by the rules, a few at a time.

use std::io::pipe;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use tapline_packet::Timestamp;
use tapline_store::Window;
use tapline_tap_client::protocol::{FindRequest, Reply};

use super::offers::{OFFERED_LEN_MAX, offer};
use super::{Server, name, rights};
use crate::ClientIdentity;
use crate::client::{Answer, Client};
use crate::log_budget::quoted;
use crate::searching::{SearchSubject, Searching};
use crate::view::Rights;

/// Searches at the same time, for each user.
const SEARCHES_OF_USER_MAX: usize = 2;
/// Searches at the same time, for root and the owner of the daemon.
const SEARCHES_OF_OWNER_MAX: usize = 16;

pub(super) struct ClientSearch {
    who: ClientIdentity,
    /// The name of the capture.
    capture: String,
    rights: Rights,
    /// The client, for people.
    name: String,
    searching: Searching,
}

impl Server {
    /// Begins a search for a client. The answer comes by the pipe whose end the client gets.
    ///
    /// # Errors
    /// The refusal, for the client to read.
    pub(super) fn find(
        &mut self,
        client: &Client,
        find: &FindRequest,
        log: &mut dyn FnMut(&str),
    ) -> Result<Answer, String> {
        let is_by_name = find.store.is_empty();
        let wanted =
            if is_by_name { find.capture.clone() } else { self.recorded_to(&client.who, &find.store) };
        let found = self.captures.iter().position(|capture| capture.rule().name == wanted);
        let allowed = found.and_then(|at| Some((at, self.rules.access(&client.who, &wanted, self.ours)?)));
        let Some((at, access)) = allowed.filter(|(_, access)| access.store) else {
            let asked = if is_by_name { &find.capture } else { &find.store };
            let what = format!("{}: no search of {} for them", name(client), quoted(asked));
            self.refuse(client.who.uid, log, &what);
            let of = if is_by_name { "of" } else { "to" };
            return Err(format!("no recording {of} {asked:?} that you may search"));
        };
        let of_name = self.store_of(&wanted).ok_or("the capture is not recorded")?;
        let store = if is_by_name { of_name } else { PathBuf::from(&find.store) };
        self.end_searches(log);
        let running = self.searches.iter().filter(|search| search.who.uid == client.who.uid).count();
        let is_privileged = self.is_privileged(&client.who);
        let most = if is_privileged { SEARCHES_OF_OWNER_MAX } else { SEARCHES_OF_USER_MAX };
        if running >= most {
            return Err(format!("{running} searches of yours run, and no more are allowed"));
        }
        let capture = &self.captures[at];
        let rights = rights(capture, &access);
        // The same bounds as for a reader.
        capture.compile(&rights, &find.filter)?;
        let subject = SearchSubject {
            store,
            is_restricted: capture.withholds(&rights),
            rights: rights.clone(),
            filter: find.filter.clone(),
            window: window(find),
            options: capture.options().clone(),
            time_ms: (!is_privileged).then_some(self.rules.user_time),
        };
        let offered = offer(capture, &access, OFFERED_LEN_MAX);
        let system = |error: std::io::Error| format!("no search can be begun: {error}");
        let (reader, writer) = pipe().map_err(system)?;
        let searching = Searching::start(subject, writer).map_err(system)?;
        let (who, name, capture) = (client.who.clone(), name(client), wanted);
        self.searches.push(ClientSearch { who, capture, rights, name, searching });
        Ok(Answer { pipe: Some(OwnedFd::from(reader)), ..Reply::Found(offered).into() })
    }

    /// The name of the capture that is recorded to a directory and that the client may search; empty if there is none.
    fn recorded_to(&self, who: &ClientIdentity, store: &str) -> String {
        let is_there = |rule: &&crate::RecordRule| {
            std::path::absolute(&rule.to).is_ok_and(|to| to == Path::new(store)) && {
                let access = self.rules.access(who, &rule.capture, self.ours);
                access.is_some_and(|access| access.store)
            }
        };
        self.recorded.iter().find(is_there).map_or_else(String::new, |rule| rule.capture.clone())
    }

    /// The store that a capture is recorded to: the first one.
    fn store_of(&self, capture: &str) -> Option<PathBuf> {
        let is_it = |rule: &&crate::RecordRule| rule.capture == capture;
        self.recorded.iter().find(is_it).map(|rule| rule.to.clone())
    }

    /// Removes searches that have ended. Logs those whose answer is incomplete.
    pub(super) fn end_searches(&mut self, log: &mut dyn FnMut(&str)) {
        let (ended, running) = std::mem::take(&mut self.searches)
            .into_iter()
            .partition::<Vec<_>, _>(|search| search.searching.has_ended());
        self.searches = running;
        for ClientSearch { who, capture, name, searching, .. } in ended {
            if let Err(why) = searching.join() {
                self.refuse(who.uid, log, &format!("{name}: its search of {capture} was cut short: {why}"));
            }
        }
    }

    /// Stops searches that the rules no longer allow as they were begun.
    pub(super) fn stop_searches(&self) {
        for search in &self.searches {
            let access = self.rules.access(&search.who, &search.capture, self.ours);
            let capture = self.captures.iter().find(|capture| capture.rule().name == search.capture);
            let now = access.filter(|access| access.store).zip(capture);
            if now.is_none_or(|(access, capture)| rights(capture, &access) != search.rights) {
                search.searching.stop();
            }
        }
    }
}

fn window(find: &FindRequest) -> Window {
    let moment = |ns: Option<i64>, otherwise: Timestamp| ns.map_or(otherwise, Timestamp::from_nanos);
    Window { from: moment(find.from_ns, Window::ALL.from), to: moment(find.to_ns, Window::ALL.to) }
}
