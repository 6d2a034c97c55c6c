//! Pending entries: those of `mgp pending`, required logins, and nodes that ask to join.

use mgp_engine::timestamps::parse_rfc3339;
use mgp_protocol::mgp::approvals::{Entry, PendingList, Subject};
use mgp_protocol::mgp::kernel::nodes::{self, WaitingNode};
use mgp_protocol::mgp::servers::PendingLogin;

use crate::cli::text_format::first_line;

/// Most characters of a name, and of a command that contains one.
const NAME_WIDTH_MAX: usize = 64;
const COMMAND_WIDTH_MAX: usize = 300;

/// A pending entry. Only fields marked as safe are safe for a terminal.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PendingRow {
    /// The unique key.
    pub(super) key: String,
    /// The name in a list; safe.
    pub(super) name: String,
    /// The kind.
    pub(super) kind: &'static str,
    /// The request in one sentence.
    pub(super) text: String,
    /// Details to read before the decision, line by line.
    pub(super) details: Vec<String>,
    /// The shell command to approve; safe.
    pub(super) approve_command: String,
    /// The shell command to deny, if possible; safe.
    pub(super) deny_command: Option<String>,
    /// The approval, if one key can give it.
    pub(super) approve: Option<Decision>,
    /// The denial.
    pub(super) deny: Option<Decision>,
    /// When it was created, in milliseconds since 1970.
    pub(super) since_ms: Option<u64>,
    /// When it expires.
    pub(super) expires_at_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision {
    /// Approve the entry of this name for good.
    Approve(String),
    Deny(String),
    /// Rejected by the kernel if the words differ from the displayed ones.
    ApproveNode(nodes::Approve),
    RefuseNode(nodes::Refuse),
}

/// All entries: dangerous and old ones first, as `mgp pending` lists them, then nodes, then logins.
pub(super) fn collect(pending: &PendingList, nodes: &[WaitingNode]) -> Vec<PendingRow> {
    let asked = pending.pending.iter().map(from_entry);
    let logins = pending
        .logins
        .iter()
        .map(|(server, wanted)| from_login(server, wanted));
    asked
        .chain(nodes.iter().map(from_node))
        .chain(logins)
        .collect()
}

fn from_entry(entry: &Entry) -> PendingRow {
    let id = first_line(&entry.id, NAME_WIDTH_MAX);
    let mut details = entry.details.clone();
    if entry.parts.len() > 1 {
        details.push(format!("parts: {}", entry.parts.join(", ")));
    }
    let about = [("server", &entry.server), ("agent", &entry.agent)];
    let about = about
        .into_iter()
        .filter_map(|(what, who)| Some(format!("{what}: {}", who.as_ref()?)));
    details.extend(about);
    let (command, yes) = match entry.options.as_deref() {
        None => (
            format!("mgp approve {id}"),
            Some(Decision::Approve(entry.id.clone())),
        ),
        Some([]) => (format!("mgp answer {id} TEXT"), None),
        Some(options) => {
            details.extend(options.iter().map(|option| format!("option: {option:?}")));
            (format!("mgp answer {id} OPTION"), None)
        }
    };
    PendingRow {
        key: format!("question {}", entry.id),
        kind: subject_label(entry.subject),
        text: entry.text.clone(),
        details,
        approve_command: command,
        deny_command: Some(format!("mgp deny {id}")),
        approve: yes,
        deny: Some(Decision::Deny(entry.id.clone())),
        since_ms: parse_rfc3339(&entry.since),
        expires_at_ms: entry.until.as_deref().and_then(parse_rfc3339),
        name: id,
    }
}

fn subject_label(subject: Subject) -> &'static str {
    match subject {
        Subject::Permissions => "permissions",
        Subject::Confirmation => "dangerous call",
        Subject::Pins => "changed tools",
        Subject::Callback => "question",
        Subject::Registration => "new server",
        Subject::Scope => "scope",
        Subject::Result => "result",
    }
}

fn from_login(server: &str, wanted: &PendingLogin) -> PendingRow {
    let state = if wanted.parked {
        "it takes no calls until then"
    } else {
        "it goes on with what it has"
    };
    let url = wanted.url.iter().map(|url| format!("or sign in at {url}"));
    PendingRow {
        key: format!("login {server}"),
        name: first_line(server, NAME_WIDTH_MAX),
        kind: "login",
        text: wanted.why.clone(),
        details: [state.to_owned()].into_iter().chain(url).collect(),
        approve_command: first_line(&wanted.command, COMMAND_WIDTH_MAX),
        deny_command: None,
        approve: None,
        deny: None,
        since_ms: None,
        expires_at_ms: None,
    }
}

fn from_node(node: &WaitingNode) -> PendingRow {
    let words = first_line(&node.words, NAME_WIDTH_MAX);
    let role = node.role.as_str();
    let mut details = vec![
        format!("It is the one you mean if it shows the same three words: {words}"),
        format!("from: {}", node.from),
        format!("id: {}", node.id),
    ];
    let before = node.called_before.iter();
    let before = before.map(|it| format!("NOTE: it asked as {it} before; its words are new ones"));
    let like = node.looks_like.iter();
    let like = like.map(|it| format!("NOTE: its name looks like {it}, which is another node"));
    let fixed = node.words_note.iter().map(|note| format!("NOTE: {note}"));
    details.extend(before.chain(like).chain(fixed));
    PendingRow {
        key: format!("node {}", node.id),
        kind: "node",
        text: format!("{} asks to be let in as {role}", node.name),
        details,
        approve_command: format!("mgp approve {words}"),
        deny_command: Some(format!("mgp deny {words}")),
        approve: Some(Decision::ApproveNode(nodes::Approve {
            node: Some(node.id.clone()),
            words: Some(node.words.clone()),
        })),
        deny: Some(Decision::RefuseNode(nodes::Refuse {
            node: Some(node.id.clone()),
        })),
        since_ms: parse_rfc3339(&node.since),
        expires_at_ms: parse_rfc3339(&node.until),
        name: words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(options: Option<Vec<String>>) -> Entry {
        Entry {
            id: "tobami".into(),
            subject: Subject::Confirmation,
            server: Some("files".into()),
            agent: Some("agent.claude".into()),
            text: "agent.claude calls \u{1b}[2Jfiles:delete\nmgp approve x".into(),
            details: vec!["path = /home".into()],
            parts: vec!["a".into(), "b".into()],
            options,
            since: "1970-01-01T00:00:01.000Z".into(),
            until: Some("1970-01-01T00:01:00.000Z".into()),
        }
    }

    #[test]
    fn each_entry_has_its_commands() {
        let pending = PendingList {
            pending: vec![
                entry(None),
                entry(Some(vec!["x\n".into()])),
                entry(Some(Vec::new())),
            ],
            nodes: Vec::new(),
            logins: [(
                "git".to_owned(),
                PendingLogin {
                    why: "its token ended".into(),
                    command: "mgp logins add git".into(),
                    url: Some("https://h/x".into()),
                    ..PendingLogin::default()
                },
            )]
            .into(),
        };
        let node = WaitingNode {
            id: "77".into(),
            name: "desk\u{1b}]0;x\u{7}".into(),
            words: "bafog-tulik-zonub".into(),
            looks_like: Some("desk2".into()),
            ..WaitingNode::default()
        };
        let all = collect(&pending, &[node]);
        let commands: Vec<_> = all
            .iter()
            .map(|it| (it.approve_command.as_str(), it.approve.is_some()))
            .collect();
        assert_eq!(
            commands,
            [
                ("mgp approve tobami", true),
                ("mgp answer tobami OPTION", false),
                ("mgp answer tobami TEXT", false),
                ("mgp approve bafog-tulik-zonub", true),
                ("mgp logins add git", false),
            ]
        );
        let first = &all[0];
        assert_eq!(
            (first.kind, first.since_ms, first.expires_at_ms),
            ("dangerous call", Some(1000), Some(60_000))
        );
        assert_eq!(
            first.details,
            [
                "path = /home",
                "parts: a, b",
                "server: files",
                "agent: agent.claude"
            ]
        );
        assert!(all[1].details.contains(&r#"option: "x\n""#.to_owned()));
        assert!(
            all[3]
                .details
                .iter()
                .any(|line| line.contains("looks like desk2"))
        );
        // Every entry that can be approved can be denied, and those that need a text, too.
        assert_eq!(all.iter().filter(|it| it.deny.is_some()).count(), 4);
    }

    /// The approval is for the displayed node.
    #[test]
    fn a_node_is_approved_by_its_id_and_words() {
        let node = WaitingNode {
            id: "77".into(),
            words: "a-b-c".into(),
            ..WaitingNode::default()
        };
        let Some(Decision::ApproveNode(params)) = from_node(&node).approve else {
            panic!("a node is let in");
        };
        assert_eq!(
            (params.node.as_deref(), params.words.as_deref()),
            (Some("77"), Some("a-b-c"))
        );
        let other = WaitingNode {
            words: "a-b-d".into(),
            ..node.clone()
        };
        assert_ne!(from_node(&node), from_node(&other));
    }
}
