//! Undoing the changes of `mgp connect`.

use super::*;
use crate::edit::TableForm;

const DOOR: &str = "http://127.0.0.1:7332/mcp";
const BEFORE: &str = r#"{
  // mine
  "mcpServers": {
    "fs": { "command": "npx", "args": ["files"] },
    "db": { "command": "db", "disabledTools": ["drop"] }
  },
  "theme": "dark"
}
"#;

fn place<'p>(table: &'p [String], name: &'p str) -> EntryLocation<'p> {
    EntryLocation {
        table,
        shape: crate::edit::TableForm::Map,
        name,
    }
}

fn connected() -> String {
    let table = ["mcpServers".to_owned()];
    let mut text = BEFORE.to_owned();
    for name in ["fs", "db"] {
        text = remove_entry(DocumentForm::Json, &text, place(&table, name)).unwrap();
    }
    let own = serde_json::json!({"command": "/bin/mgp", "args": ["stdio"]});
    put_entry(DocumentForm::Json, &text, place(&table, "mgp"), &own).unwrap()
}

fn undone(before: Option<&str>, after: Option<&str>, now: &str) -> UndoResult {
    undo(&ConnectedFile {
        client: Client::Cursor,
        kernel_entry: "mgp",
        before,
        after,
        current: now,
        endpoint: DOOR,
        blocked: &[],
    })
    .unwrap()
}

fn servers(undone: &UndoResult) -> Value {
    let text = undone.text.as_deref().unwrap();
    DocumentForm::Json.parse(text).unwrap()["mcpServers"].clone()
}

#[test]
fn an_unchanged_file_is_restored_byte_for_byte() {
    let after = connected();
    let undone = undone(Some(BEFORE), Some(&after), &after);
    assert_eq!(undone.text.as_deref(), Some(BEFORE));
    assert_eq!(undone.restored, ["db", "fs"]);
    assert_eq!(self::undone(None, Some(&after), &after).text, None);
}

/// The client rewrote its file: its own changes stay, removed entries are restored.
#[test]
fn changes_of_the_client_stay_and_removed_entries_are_restored() {
    let after = connected();
    let now = r#"{"mcpServers":{"mgp":{"command":"/bin/mgp","args":["stdio"],"disabled":false},"new":{"command":"n"}},"theme":"light"}"#;
    for after in [Some(after.as_str()), None] {
        let undone = undone(Some(BEFORE), after, now);
        let servers = servers(&undone);
        let names: BTreeSet<_> = servers
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(names, BTreeSet::from(["db", "fs", "new"]), "{after:?}");
        assert_eq!(servers["db"]["disabledTools"][0], "drop");
        assert!(undone.text.unwrap().contains("\"light\""));
        assert_eq!(undone.restored, ["db", "fs"]);
    }
}

/// Entries that the client removed itself are not restored.
#[test]
fn entries_removed_by_the_client_stay_removed() {
    let table = ["mcpServers".to_owned()];
    let own = serde_json::json!({"command": "/bin/mgp", "args": ["stdio"]});
    let after = put_entry(DocumentForm::Json, BEFORE, place(&table, "mgp"), &own).unwrap();
    let now = remove_entry(DocumentForm::Json, &after, place(&table, "db")).unwrap();
    let undone = undone(Some(BEFORE), Some(&after), &now);
    let servers = servers(&undone);
    assert_eq!(
        servers,
        serde_json::json!({"fs": {"command": "npx", "args": ["files"]}})
    );
    assert!(undone.restored.is_empty() && undone.text.unwrap().contains("// mine"));
}

#[test]
fn an_entry_whose_name_was_reused_is_reported() {
    let after = connected();
    let now = after
        .replace("\"mgp\"", "\"fs\"")
        .replace("/bin/mgp", "other");
    let undone = undone(Some(BEFORE), Some(&after), &now);
    assert_eq!(undone.blocked[0].name, "fs");
    assert_eq!(undone.restored, ["db"]);
    assert_eq!(servers(&undone)["fs"]["command"], "other");
}

/// The user's own entry `mgp` is restored, and one that another server has replaced stays.
#[test]
fn a_replaced_entry_is_restored() {
    let before = r#"{"mcpServers": {"mgp": {"command": "mine"}}}"#;
    let table = ["mcpServers".to_owned()];
    let own = serde_json::json!({"command": "/bin/mgp", "args": ["stdio"]});
    let after = put_entry(DocumentForm::Json, before, place(&table, "mgp"), &own).unwrap();
    let now = after.replace("{\"mcpServers\"", "{\"a\": 1, \"mcpServers\"");
    let back = undone(Some(before), Some(&after), &now);
    assert_eq!(servers(&back)["mgp"]["command"], "mine");
    let now = after.replace("/bin/mgp", "another");
    let back = undone(Some("{}"), Some(&after), &now);
    assert_eq!(servers(&back)["mgp"]["command"], "another");
}

#[test]
fn a_file_created_for_the_entry_is_removed_unless_the_client_added_to_it() {
    let table = ["mcpServers".to_owned()];
    let own = serde_json::json!({"command": "/bin/mgp", "args": ["stdio"]});
    let after = put_entry(DocumentForm::Json, "", place(&table, "mgp"), &own).unwrap();
    let now = after.replace("\"mcpServers\"", "\"theme\": \"x\",\n  \"mcpServers\"");
    let undone = undone(None, Some(&after), &now);
    let document = DocumentForm::Json.parse(undone.text.as_deref().unwrap());
    assert_eq!(document, Ok(serde_json::json!({"theme": "x"})));
    let compact = format!("{after}\n\n");
    assert_eq!(self::undone(None, Some(&after), &compact).text, None);
}

#[test]
fn entries_of_lists_and_of_projects_are_restored() {
    let before = "name: mine\nmcpServers:\n  - name: fs\n    command: npx\n    args: [files]\n  - name: db # two\n    command: db\nrules: []\n";
    let table = ["mcpServers".to_owned()];
    let place = |name| EntryLocation {
        table: &table,
        shape: TableForm::List,
        name,
    };
    let own = serde_json::json!({"name": "mgp", "command": "/bin/mgp"});
    let mut after = put_entry(DocumentForm::Yaml, before, place("mgp"), &own).unwrap();
    for name in ["fs", "db"] {
        after = remove_entry(DocumentForm::Yaml, &after, place(name)).unwrap();
    }
    let now = format!("{after}models: []\n");
    let file = ConnectedFile {
        client: Client::Continue,
        kernel_entry: "mgp",
        before: Some(before),
        after: Some(&after),
        current: &now,
        endpoint: DOOR,
        blocked: &[],
    };
    let text = undo(&file).unwrap().text.unwrap();
    let read = DocumentForm::Yaml.parse(&text).unwrap();
    let names: Vec<_> = Client::entries(&read["mcpServers"])
        .iter()
        .map(|(n, _)| *n)
        .collect();
    assert_eq!(names, ["db", "fs"], "{text}");
    assert!(
        text.contains("models: []") && text.contains("rules: []"),
        "{text}"
    );

    let before = r#"{"projects": {"/w": {"mcpServers": {"a": {"command": "a"}}, "h": 1}}}"#;
    let after = r#"{"projects": {"/w": {"mcpServers": {}, "h": 1}}, "mcpServers": {"mgp": {"command": "m"}}}"#;
    let now = r#"{"projects": {"/w": {"mcpServers": {}, "h": 2}}, "mcpServers": {"mgp": {"command": "m"}}}"#;
    let file = ConnectedFile {
        client: Client::ClaudeCode,
        kernel_entry: "mgp",
        before: Some(before),
        after: Some(after),
        current: now,
        endpoint: DOOR,
        blocked: &[],
    };
    let text = undo(&file).unwrap().text.unwrap();
    let read = DocumentForm::Json.parse(&text).unwrap();
    let want =
        serde_json::json!({"projects": {"/w": {"mcpServers": {"a": {"command": "a"}}, "h": 2}}});
    assert_eq!(read, want);
}

/// The user renamed it, or extended it; entries that led here before connecting are the user's.
#[test]
fn an_entry_of_this_kernel_is_removed_under_any_name() {
    let after = connected();
    let more = after.replace("\"stdio\"", "\"stdio\", \"--agent\", \"zed\"");
    let renamed = more.replace("\"mgp\"", "\"kernel\"");
    let address = r#"{"mcpServers": {"k": {"url": "http://localhost:7332/mcp/p/x"}}}"#;
    for now in [more.as_str(), &renamed, address] {
        for after in [Some(after.as_str()), None] {
            let undone = undone(Some(BEFORE), after, now);
            assert!(undone.is_kernel_entry_known, "{now}");
            let names = servers(&undone);
            let names: BTreeSet<_> = names.as_object().unwrap().keys().cloned().collect();
            let wanted = BTreeSet::from(["db", "fs"].map(str::to_owned));
            assert_eq!(names, wanted, "{now}");
        }
    }
    let users = r#"{"mcpServers": {"k": {"command": "mgp", "args": ["stdio"]}}}"#;
    let after = users.replace(
        "{\"k\"",
        "{\"mgp\": {\"command\": \"/bin/mgp\", \"args\": [\"stdio\"]}, \"k\"",
    );
    let now = after.replace("\"mgp\", \"args\": [", "\"mgp\", \"args\": [\"-v\", ");
    let undone = undone(Some(users), Some(&after), &now);
    assert_eq!(servers(&undone)["k"]["args"][0], "-v");
    assert!(servers(&undone).get("mgp").is_none());
}

/// Another server at another URL, or an unknown form.
#[test]
fn entries_of_other_servers_stay() {
    for other in [
        r#"{"url": "http://localhost:73321/mcp"}"#,
        r#"{"url": "https://kernel.test/mcp"}"#,
        r#"{"command": "wrapper", "args": ["mgp", "stdio"]}"#,
        r#"{"command": "mgp-fixture", "args": ["stdio"]}"#,
    ] {
        let now = format!(r#"{{"mcpServers": {{"mgp": {other}}}}}"#);
        for after in [Some(connected()), None] {
            let undone = undone(Some(BEFORE), after.as_deref(), &now);
            assert!(!undone.is_kernel_entry_known, "{other}");
            assert_eq!(
                servers(&undone)["mgp"],
                DocumentForm::Json.parse(other).unwrap()
            );
            assert_eq!(undone.restored, ["db", "fs"]);
        }
    }
}
