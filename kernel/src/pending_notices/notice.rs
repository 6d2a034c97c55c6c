//! What is announced: which entries wait, as text and as JSON. Their details are left out, because arguments of calls
//! may be secret, and a notice leaves the machine.

use std::collections::BTreeSet;

use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::mgp::approvals::PendingList;
use mgp_runtime::time::unix_ms;
use mgp_transports::log::sanitize;
use serde::Serialize;

/// Most entries in one notice; the others are counted.
const ENTRIES_MAX: usize = 20;
/// Longest text of an entry, in characters.
const TEXT_CHARS_MAX: usize = 300;

/// The ids of all that waits. Nodes and logins have no ids in the list.
pub(super) fn entry_ids(list: &PendingList) -> BTreeSet<String> {
    all_entries(list).map(|entry| entry.id).collect()
}

/// One notice.
#[derive(Debug, Serialize)]
pub(super) struct Notice {
    r#type: &'static str,
    timestamp: String,
    /// The name of this node.
    node: String,
    /// How many entries wait in all, announced earlier or now.
    waiting: usize,
    /// The new ones, at most 20.
    entries: Vec<NoticeEntry>,
    /// How many more are new.
    omitted: usize,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct NoticeEntry {
    id: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// What a person types to decide.
    command: String,
}

impl Notice {
    pub(super) fn new(list: &PendingList, announced: &BTreeSet<String>, node: &str) -> Self {
        let waiting: Vec<NoticeEntry> = all_entries(list).collect();
        let count = waiting.len();
        let mut entries = waiting;
        entries.retain(|entry| announced.contains(&entry.id));
        let omitted = entries.len().saturating_sub(ENTRIES_MAX);
        entries.truncate(ENTRIES_MAX);
        Self {
            r#type: "mgp.pending",
            timestamp: render_rfc3339_ms(unix_ms()),
            node: node.to_owned(),
            waiting: count,
            entries,
            omitted,
        }
    }

    /// The same for each attempt to announce these entries, so that a receiver can tell them.
    pub(super) fn message_id(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for text in self
            .entries
            .iter()
            .map(|entry| &entry.id)
            .chain([&self.node])
        {
            hasher.update(text.as_bytes()).update(b"\n");
        }
        format!("msg_{}", &hasher.finalize().to_hex()[..32])
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a notice is always JSON")
    }

    /// One line.
    pub(super) fn title(&self) -> String {
        match self.waiting {
            1 => format!("1 entry waits for you at {}", self.node),
            many => format!("{many} entries wait for you at {}", self.node),
        }
    }

    /// A line for each new entry.
    pub(super) fn text(&self) -> String {
        let lines = self.entries.iter();
        let mut lines: Vec<String> = lines
            .map(|entry| format!("{} ({})", entry.text, entry.command))
            .collect();
        if self.omitted > 0 {
            lines.push(format!("and {} more (mgp pending)", self.omitted));
        }
        lines.join("\n")
    }
}

/// All that waits, oldest first. Texts contain words of servers and nodes.
fn all_entries(list: &PendingList) -> impl Iterator<Item = NoticeEntry> {
    let entries = list.pending.iter().map(|entry| NoticeEntry {
        id: entry.id.clone(),
        kind: entry.subject.as_str(),
        server: entry.server.clone(),
        agent: entry.agent.clone(),
        text: shorten(&entry.text),
        until: entry.until.clone(),
        command: match entry.options {
            Some(_) => format!("mgp answer {} VALUE", entry.id),
            None => format!("mgp approve {}", entry.id),
        },
    });
    let nodes = list.nodes.iter().map(|node| NoticeEntry {
        id: format!("node:{}", node.id),
        kind: "node",
        server: None,
        agent: None,
        text: shorten(&format!("node {} asks to join the cluster", node.name)),
        until: Some(node.until.clone()),
        command: "mgp pending".to_owned(),
    });
    let logins = list.logins.iter().map(|(server, login)| NoticeEntry {
        id: format!("login:{server}"),
        kind: "login",
        server: Some(server.clone()),
        agent: None,
        text: shorten(&format!("{server} needs a login: {}", login.why)),
        until: None,
        command: login.command.clone(),
    });
    entries.chain(nodes).chain(logins)
}

fn shorten(text: &str) -> String {
    let text = sanitize(text.as_bytes());
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::approvals::{Entry, Subject};
    use mgp_protocol::mgp::servers::PendingLogin;

    use super::*;

    fn entry(id: &str, text: &str) -> Entry {
        Entry {
            id: id.into(),
            subject: Subject::Confirmation,
            server: Some("files".into()),
            agent: Some("agent.a".into()),
            text: text.into(),
            details: vec!["arguments: {\"password\": \"hunter2\"}".into()],
            parts: Vec::new(),
            options: None,
            since: String::new(),
            until: None,
        }
    }

    #[test]
    fn a_notice_has_new_entries_without_their_details() {
        let login = PendingLogin {
            why: "its token has expired".into(),
            command: "mgp logins add mail".into(),
            ..PendingLogin::default()
        };
        let list = PendingList {
            pending: vec![
                entry("a1", "old"),
                entry("b2", "agent.a wants a call\nFAKE"),
            ],
            logins: [("mail".to_owned(), login)].into(),
            ..PendingList::default()
        };
        assert_eq!(
            entry_ids(&list).into_iter().collect::<Vec<_>>(),
            ["a1", "b2", "login:mail"]
        );
        let new = ["b2", "login:mail"].map(str::to_owned).into();
        let notice = Notice::new(&list, &new, "desk");
        assert_eq!(notice.title(), "3 entries wait for you at desk");
        let again = Notice::new(&list, &new, "desk");
        assert_eq!(notice.message_id(), again.message_id());
        assert_ne!(
            notice.message_id(),
            Notice::new(&list, &entry_ids(&list), "desk").message_id()
        );
        let text = notice.text();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("(mgp approve b2)") && text.contains("(mgp logins add mail)"));
        let json = notice.to_json();
        assert!(!json.contains("hunter2") && !json.contains("old"), "{json}");
    }

    #[test]
    fn a_notice_is_bounded_by_entries_and_text() {
        let long = "ü".repeat(5000);
        let all: Vec<String> = (0..60).map(|n| format!("{n:04}")).collect();
        let list = PendingList {
            pending: all.iter().map(|id| entry(id, &long)).collect(),
            ..PendingList::default()
        };
        let notice = Notice::new(&list, &all.into_iter().collect(), "desk");
        assert_eq!((notice.entries.len(), notice.omitted), (20, 40));
        assert!(notice.text().ends_with("and 40 more (mgp pending)"));
        assert!(notice.to_json().len() < 20 * (2 * TEXT_CHARS_MAX + 300));
    }
}
