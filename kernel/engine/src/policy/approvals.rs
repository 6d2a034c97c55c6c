//! Entries that wait for the operator: a bounded list, each with a short id that can be typed.
//!
//! An entry stays open until its requester withdraws it, all its parts are answered, or it expires. Ids are random,
//! so that an id seen yesterday does not refer to another entry today.

use std::collections::BTreeMap;

use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::approvals::{Entry, Subject};

/// Most pending entries. A person reads them one by one; beyond the limit the answer is a denial.
pub(crate) const ENTRIES_MAX: usize = 1024;
/// Most entries of one server or agent, so that one alone cannot fill the list.
pub(crate) const PER_REQUESTER_MAX: usize = 64;
/// Longest text or detail stored, in bytes; servers write some of it.
pub(crate) const TEXT_MAX: usize = 4096;
/// Most details and parts of one entry.
pub(crate) const LINES_MAX: usize = 256;

const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
const VOWELS: &[u8; 4] = b"aiou";
/// Syllables of an id. There are 64³ ids, so even with a full list few are taken.
const SYLLABLES: u32 = 3;

/// Who requests an approval.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requester {
    /// A server: for itself, or because of its tools.
    Server(ServerId),
    /// An agent whose call waits.
    Agent(AgentId),
}

/// An entry that waits for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// Its kind.
    pub subject: Subject,
    /// The requester.
    pub requester: Requester,
    /// The server it is about.
    pub server: Option<ServerId>,
    /// The request, in one plain sentence.
    pub text: String,
    /// What a person should read before answering, line by line.
    pub details: Vec<String>,
    /// The parts that can be decided one by one: permissions, tools. Empty where it is approved or denied as a whole.
    pub parts: Vec<String>,
    /// The values of an answer: one of these, or any text where the list is empty. `None` where it is approved or
    /// denied.
    pub options: Option<Vec<String>>,
    /// When it expires unanswered, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

/// Why an entry was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddEntryError {
    /// [`ENTRIES_MAX`] entries are pending.
    #[error("{ENTRIES_MAX} questions wait for the operator already; `mgp pending` shows them")]
    Full,
    /// [`PER_REQUESTER_MAX`] entries of this requester are pending.
    #[error("{PER_REQUESTER_MAX} questions of this one wait for the operator already")]
    TooManyOfRequester,
}

/// Why an answer is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// There is no such entry.
    #[error("nothing waits under {0}; `mgp pending` shows what does")]
    Unknown(String),
    /// It has no such part.
    #[error("{id} is not about {part}; it is about {}", if .parts.is_empty() { "one thing as a whole".to_owned() } else { .parts.join(", ") })]
    UnknownPart {
        /// Its id.
        id: String,
        /// As it was typed.
        part: String,
        /// Its parts.
        parts: Vec<String>,
    },
    /// It requires a value, and none or an invalid one was given.
    #[error("{id} takes {}: `mgp answer {id} VALUE`", if .options.is_empty() { "a text".to_owned() } else { format!("one of {}", .options.join(", ")) })]
    ValueRequired {
        /// Its id.
        id: String,
        /// The accepted values.
        options: Vec<String>,
    },
    /// Its approval cannot be limited in time.
    #[error("{id} is about {}, for which no time can be set; approve it without --for", match .subject {
        Subject::Confirmation => "one call, and the next call asks again",
        Subject::Pins => "changed definitions, which stay approved until they change again",
        Subject::Callback => "one request of a server",
        Subject::Registration => "the registration of one server",
        Subject::Scope => "one action",
        Subject::Result => "one result",
        Subject::Permissions => "permissions",
    })]
    NoExpiry {
        /// Its id.
        id: String,
        /// Its kind.
        subject: Subject,
    },
    /// It accepts no value.
    #[error("{0} is yes or no: `mgp approve {0}` or `mgp deny {0}`")]
    ValueNotAllowed(String),
}

/// The option that an approval without a value selects.
const CONFIRM_OPTION: &str = "confirm";

#[derive(Clone, Debug)]
struct StoredEntry {
    entry: PendingEntry,
    since_ms: u64,
}

/// The pending entries, with one owner.
#[derive(Clone, Debug, Default)]
pub struct PendingEntries(BTreeMap<String, StoredEntry>);

impl PendingEntries {
    /// Adds an entry and returns its id. `chance` is random and new.
    ///
    /// # Errors
    /// [`AddEntryError`] at a limit.
    pub fn add(
        &mut self,
        mut question: PendingEntry,
        chance: u32,
        now_ms: u64,
    ) -> Result<String, AddEntryError> {
        if self.0.len() >= ENTRIES_MAX {
            return Err(AddEntryError::Full);
        }
        let of_it = self.0.values();
        let of_it = of_it.filter(|open| open.entry.requester == question.requester);
        if of_it.count() >= PER_REQUESTER_MAX {
            return Err(AddEntryError::TooManyOfRequester);
        }
        truncate_entry(&mut question);
        let mut at = chance;
        while self.0.contains_key(&render_name(at)) {
            at = at.wrapping_add(1);
        }
        let open = StoredEntry {
            entry: question,
            since_ms: now_ms,
        };
        self.0.insert(render_name(at), open);
        Ok(render_name(at))
    }

    /// The pending entry, after checking the parts that an answer is limited to.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn find(&self, id: &str, only: &[String]) -> Result<&PendingEntry, AnswerError> {
        let open = self.0.get(&id.trim().to_ascii_lowercase());
        let open = open.ok_or_else(|| AnswerError::Unknown(id.to_owned()))?;
        let parts = &open.entry.parts;
        match only.iter().find(|part| !parts.contains(part)) {
            None => Ok(&open.entry),
            Some(part) => Err(AnswerError::UnknownPart {
                id: id.to_owned(),
                part: part.clone(),
                parts: parts.clone(),
            }),
        }
    }

    /// Checks whether an approval of this entry can expire at `until_ms`.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn check_expiry(&self, id: &str, until_ms: Option<u64>) -> Result<(), AnswerError> {
        let subject = self.find(id, &[])?.subject;
        if until_ms.is_some() && !subject.can_expire() {
            Err(AnswerError::NoExpiry {
                id: id.to_owned(),
                subject,
            })
        } else {
            Ok(())
        }
    }

    /// The value of an answer to this entry: the typed one, or the one that a bare approval stands for.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn resolve_value(
        &self,
        id: &str,
        typed: Option<&str>,
        approved: bool,
    ) -> Result<Option<String>, AnswerError> {
        let question = self.find(id, &[])?;
        let id = id.to_owned();
        match (&question.options, typed) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(AnswerError::ValueNotAllowed(id)),
            (Some(_), None) if !approved => Ok(None),
            (Some(options), typed) => {
                let value = typed.unwrap_or(CONFIRM_OPTION);
                let any = options.is_empty() && typed.is_some();
                if any || options.iter().any(|option| option == value) {
                    Ok(Some(value.to_owned()))
                } else {
                    Err(AnswerError::ValueRequired {
                        id,
                        options: options.clone(),
                    })
                }
            }
        }
    }

    /// Marks these parts as answered; the others stay open.
    pub fn set_parts(&mut self, id: &str, parts: &[String]) {
        if let Some(open) = self.0.get_mut(id) {
            open.entry.parts = parts.to_vec();
        }
    }

    /// Removes an entry.
    pub fn close(&mut self, id: &str) -> Option<PendingEntry> {
        self.0.remove(id).map(|open| open.entry)
    }

    /// Removes the entries that have expired and returns their ids.
    #[cfg(test)]
    pub(crate) fn expire(&mut self, now_ms: u64) -> Vec<String> {
        let over = |open: &StoredEntry| open.entry.expires_ms.is_some_and(|end| end <= now_ms);
        let ended = self.0.iter().filter(|(_, open)| over(open));
        let ended: Vec<String> = ended.map(|(id, _)| id.clone()).collect();
        for id in &ended {
            self.0.remove(id);
        }
        ended
    }

    /// The number of pending entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// All pending entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let mut all: Vec<(u64, Entry)> = self
            .0
            .iter()
            .map(|(id, open)| (open.since_ms, to_wire_entry(id, open)))
            .collect();
        all.sort_by(|(a, x), (b, y)| (a, &x.id).cmp(&(b, &y.id)));
        all.into_iter().map(|(_, entry)| entry).collect()
    }
}

fn to_wire_entry(id: &str, open: &StoredEntry) -> Entry {
    let StoredEntry {
        entry: question,
        since_ms,
    } = open;
    let (server, agent) = match &question.requester {
        Requester::Server(server) => (Some(server.to_string()), None),
        Requester::Agent(agent) => (
            question.server.as_ref().map(ToString::to_string),
            Some(agent.to_string()),
        ),
    };
    Entry {
        id: id.to_owned(),
        subject: question.subject,
        server,
        agent,
        text: question.text.clone(),
        details: question.details.clone(),
        parts: question.parts.clone(),
        options: question.options.clone(),
        since: crate::timestamps::render_rfc3339_ms(*since_ms),
        until: question
            .expires_ms
            .map(crate::timestamps::render_rfc3339_ms),
    }
}

fn truncate_entry(question: &mut PendingEntry) {
    truncate_text(&mut question.text);
    question.details.truncate(LINES_MAX);
    question.parts.truncate(LINES_MAX);
    question.details.iter_mut().for_each(truncate_text);
    question.options.iter_mut().for_each(|options| {
        options.truncate(LINES_MAX);
    });
}

fn truncate_text(text: &mut String) {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
}

/// An id that can be pronounced and typed: `tobami`.
fn render_name(chance: u32) -> String {
    let syllable = |at: u32| {
        let bits = (chance >> (6 * at)) as usize;
        [CONSONANTS[bits & 15], VOWELS[bits >> 4 & 3]].map(char::from)
    };
    (0..SYLLABLES).flat_map(syllable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(server: &str) -> PendingEntry {
        PendingEntry {
            subject: Subject::Permissions,
            requester: Requester::Server(ServerId::new(server)),
            server: None,
            text: "needs more".into(),
            details: Vec::new(),
            parts: vec!["shell.execute".into(), "camera".into()],
            options: None,
            expires_ms: None,
        }
    }

    #[test]
    fn a_name_is_short_and_belongs_to_one_question() {
        let mut all = PendingEntries::default();
        let first = all.add(question("a"), 7, 0).unwrap();
        let second = all.add(question("a"), 7, 0).unwrap();
        assert_ne!(first, second);
        for id in [&first, &second] {
            assert_eq!(id.len(), 6);
            assert!(id.bytes().all(|b| b.is_ascii_lowercase()));
        }
        let typed = format!(" {} ", first.to_uppercase());
        assert!(all.find(&typed, &[]).is_ok());
    }

    #[test]
    fn one_alone_does_not_fill_the_list() {
        let mut all = PendingEntries::default();
        for chance in 0..PER_REQUESTER_MAX {
            all.add(question("a"), u32::try_from(chance).unwrap(), 0)
                .unwrap();
        }
        assert_eq!(
            all.add(question("a"), 0, 0),
            Err(AddEntryError::TooManyOfRequester)
        );
        let mut server = 0;
        while all.add(question(&format!("s{server}")), 0, 0).is_ok() {
            server += 1;
        }
        assert_eq!(all.len(), ENTRIES_MAX);
        assert_eq!(all.add(question("z"), 0, 0), Err(AddEntryError::Full));
    }

    #[test]
    fn what_is_over_is_gone() {
        let mut all = PendingEntries::default();
        let until_ms = Some(10);
        let short = PendingEntry {
            expires_ms: until_ms,
            ..question("a")
        };
        let short = all.add(short, 1, 0).unwrap();
        let long = all.add(question("a"), 2, 5).unwrap();
        assert!(all.expire(9).is_empty());
        assert_eq!(all.expire(10), [short]);
        let left: Vec<_> = all.entries().into_iter().map(|e| e.id).collect();
        assert_eq!(left, [long]);
    }

    #[test]
    fn an_answer_names_only_what_was_asked() {
        let mut all = PendingEntries::default();
        let id = all.add(question("a"), 1, 0).unwrap();
        assert!(all.find(&id, &["camera".into()]).is_ok());
        let error = all.find(&id, &["camera2".into()]).unwrap_err();
        assert!(error.to_string().contains("shell.execute, camera"));
        assert!(matches!(
            all.find("nobody", &[]),
            Err(AnswerError::Unknown(_))
        ));
    }

    /// a question that takes a value is answered with one that fits; a bare yes is one where that is
    /// among the options.
    #[test]
    fn a_value_is_one_that_was_asked_for() {
        let mut all = PendingEntries::default();
        let mut ask = |chance, options: Option<&[&str]>| {
            let options = options.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
            let question = PendingEntry {
                options,
                ..question("a")
            };
            all.add(question, chance, 0).unwrap()
        };
        let yes_or_no = ask(1, None);
        let text = ask(2, Some(&[]));
        let choice = ask(3, Some(&["a", "b"]));
        let sure = ask(4, Some(&["confirm", "cancel"]));
        let value = |id: &str, typed, approved| all.resolve_value(id, typed, approved);
        assert_eq!(value(&yes_or_no, None, true), Ok(None));
        let why = value(&yes_or_no, Some("a"), true).unwrap_err();
        assert!(why.to_string().contains("mgp approve"), "{why}");
        assert_eq!(value(&text, Some("any"), true), Ok(Some("any".into())));
        assert_eq!(value(&choice, Some("b"), true), Ok(Some("b".into())));
        assert_eq!(value(&sure, None, true), Ok(Some("confirm".into())));
        for (id, typed) in [(&text, None), (&choice, None), (&choice, Some("c"))] {
            let why = value(id, typed, true).unwrap_err();
            assert!(why.to_string().contains("mgp answer"), "{why}");
        }
        assert_eq!(value(&choice, None, false), Ok(None));
    }

    /// What is printed as an end of an approval is one.
    #[test]
    fn only_permissions_are_approved_for_a_time() {
        let mut all = PendingEntries::default();
        let mut ask = |chance, subject| {
            let question = PendingEntry {
                subject,
                ..question("a")
            };
            all.add(question, chance, 0).unwrap()
        };
        let (permission, call) = (ask(1, Subject::Permissions), ask(2, Subject::Confirmation));
        assert_eq!(all.check_expiry(&permission, Some(9)), Ok(()));
        assert_eq!(all.check_expiry(&call, None), Ok(()));
        let why = all.check_expiry(&call, Some(9)).unwrap_err().to_string();
        assert!(why.contains("the next call asks again"), "{why}");
    }

    #[test]
    fn texts_from_elsewhere_are_cut() {
        let mut all = PendingEntries::default();
        let endless = PendingEntry {
            text: "ä".repeat(TEXT_MAX),
            details: vec![String::new(); 2 * LINES_MAX],
            ..question("a")
        };
        all.add(endless, 1, 0).unwrap();
        let entry = &all.entries()[0];
        assert!(entry.text.len() <= TEXT_MAX + '…'.len_utf8());
        assert_eq!(entry.details.len(), LINES_MAX);
    }
}
