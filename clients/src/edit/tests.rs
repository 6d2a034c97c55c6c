//! Clients' files after an edit, byte by byte.

use serde_json::json;

use super::*;

fn place<'p>(table: &'p [String], name: &'p str) -> EntryLocation<'p> {
    EntryLocation {
        table,
        shape: TableForm::Map,
        name,
    }
}

fn table(name: &str) -> [String; 1] {
    [name.to_owned()]
}

fn json(text: &str, entry: &Value) -> String {
    let table = table("mcpServers");
    put_entry(DocumentForm::Json, text, place(&table, "mgp"), entry).unwrap()
}

#[test]
fn comments_commas_and_line_ends_survive() {
    let text = "{\r\n  // mine\r\n  \"mcpServers\": {\r\n    \"a\": { \"command\": \"a\" }, // keep\r\n  },\r\n  \"theme\": \"dark\" /* end */\r\n}\r\n";
    let edited = json(text, &json!({"command": "mgp"}));
    for kept in [
        "  // mine\r\n",
        "\"a\": { \"command\": \"a\" }, // keep\r\n",
        "\"theme\": \"dark\" /* end */\r\n}\r\n",
    ] {
        assert!(edited.contains(kept), "{edited:?}");
    }
    assert!(!edited.replace("\r\n", "").contains('\n'), "{edited:?}");
    let table = table("mcpServers");
    let back = remove_entry(DocumentForm::Json, &edited, place(&table, "mgp")).unwrap();
    assert_eq!(
        DocumentForm::Json.parse(&back),
        DocumentForm::Json.parse(text)
    );
}

#[test]
fn an_entry_replaces_the_previous_one() {
    let once = json("", &json!({"command": "old"}));
    let twice = json(&once, &json!({"command": "new", "args": ["stdio"]}));
    assert!(!twice.contains("old"), "{twice}");
    assert_eq!(
        json(&twice, &json!({"command": "new", "args": ["stdio"]})),
        twice
    );
}

#[test]
fn the_effective_one_of_duplicate_keys_is_edited() {
    let text =
        r#"{"mcpServers": {"mgp": {"command": "x"}}, "mcpServers": {"mgp": {"command": "y"}}}"#;
    let edited = json(text, &json!({"command": "z"}));
    assert!(edited.starts_with(r#"{"mcpServers": {"mgp": {"command": "x"}}, "mcpServers": "#));
    assert_eq!(
        DocumentForm::Json.parse(&edited).unwrap()["mcpServers"]["mgp"]["command"],
        "z"
    );
}

#[test]
fn broken_files_and_other_contents_are_not_edited() {
    let table = table("mcpServers");
    let place = place(&table, "mgp");
    let entry = json!({"command": "mgp"});
    assert!(matches!(
        put_entry(DocumentForm::Json, "{\"mcpServers\": ", place, &entry),
        Err(ClientEditError::Document(_))
    ));
    assert_eq!(
        put_entry(DocumentForm::Json, "[]", place, &entry),
        Err(ClientEditError::UnsupportedStyle)
    );
    assert_eq!(
        put_entry(DocumentForm::Json, "{\"mcpServers\": []}", place, &entry),
        Err(ClientEditError::UnsupportedStyle)
    );
    assert_eq!(
        remove_entry(DocumentForm::Json, "{ }", place).unwrap(),
        "{ }"
    );
}

#[test]
fn codexs_settings_keep_their_comments() {
    let text = "model = \"o\" # mine\n\n[mcp_servers.a] # first\ncommand = \"a\"\n\n[tui]\nx = 1\n";
    let table = table("mcp_servers");
    let place = place(&table, "mgp");
    let entry = json!({"command": "mgp", "args": ["stdio"], "http_headers": {"A": "b"}});
    let edited = put_entry(DocumentForm::Toml, text, place, &entry).unwrap();
    assert!(edited.contains("model = \"o\" # mine\n"), "{edited}");
    assert!(
        edited.contains("[mcp_servers.a] # first\ncommand = \"a\"\n"),
        "{edited}"
    );
    assert!(edited.contains("[mcp_servers.mgp]\n"), "{edited}");
    assert_eq!(
        remove_entry(DocumentForm::Toml, &edited, place).unwrap(),
        text
    );
}

/// The form of `codex mcp add`: only the entry's header implies the table.
#[test]
fn the_only_entry_of_codexs_settings_is_removed_and_replaced() {
    let text = "[mcp_servers.files]\ncommand = \"npx\"\n";
    let table = table("mcp_servers");
    let place = |name| place(&table, name);
    let without = remove_entry(DocumentForm::Toml, text, place("files")).unwrap();
    let entry = json!({"command": "mgp"});
    let with = put_entry(DocumentForm::Toml, &without, place("mgp"), &entry).unwrap();
    let read = DocumentForm::Toml.parse(&with).unwrap();
    assert_eq!(read, json!({"mcp_servers": {"mgp": entry}}));
}

#[test]
fn gooses_generated_settings_are_edited() {
    let text = "GOOSE_MODEL: x # mine\nextensions:\n  developer:\n    type: builtin\n    enabled: true\n# below\nkeyring: true\n";
    let table = table("extensions");
    let place = place(&table, "mgp");
    let entry = json!({"name": "mgp", "type": "stdio", "cmd": "/a b/mgp", "args": ["stdio", "yes: no"], "enabled": true});
    let edited = put_entry(DocumentForm::Yaml, text, place, &entry).unwrap();
    assert!(
        edited.contains("GOOSE_MODEL: x # mine\nextensions:\n  mgp:\n    name: \"mgp\"\n"),
        "{edited}"
    );
    assert_eq!(
        remove_entry(DocumentForm::Yaml, &edited, place).unwrap(),
        text
    );
    let flow = "extensions: {developer: {type: builtin}}\n";
    assert_eq!(
        put_entry(DocumentForm::Yaml, flow, place, &entry),
        Err(ClientEditError::UnsupportedStyle)
    );
}

#[test]
fn a_top_level_list_is_extended_at_its_end() {
    let text = "{\n  // mine\n  \"inputs\": [{\"id\": \"a\"}], // there\n  \"servers\": {}\n}\n";
    let value = serde_json::json!({"id": "b"});
    let edited = super::append_to_list(text, "inputs", &value).unwrap();
    assert!(
        edited.contains("// mine") && edited.contains("// there"),
        "{edited}"
    );
    let read = crate::document::DocumentForm::Json.parse(&edited).unwrap();
    assert_eq!(
        read["inputs"],
        serde_json::json!([{"id": "a"}, {"id": "b"}])
    );
    assert!(
        super::append_to_list("", "inputs", &value)
            .unwrap()
            .contains("\"b\"")
    );
    assert!(super::append_to_list("{\"inputs\": 1}", "inputs", &value).is_err());
}

#[test]
fn continues_list_is_edited_item_by_item() {
    let text = "name: mine\nmcpServers:\n  # files\n  - name: fs\n    command: npx\n\n  # the other\n  - name: \"db\"\n    command: db\nmodels: []\n";
    let table = table("mcpServers");
    let place = |name| EntryLocation {
        table: &table,
        shape: TableForm::List,
        name,
    };
    let entry = json!({"name": "mgp", "command": "/a b/mgp", "args": ["stdio"]});
    let edited = put_entry(DocumentForm::Yaml, text, place("mgp"), &entry).unwrap();
    assert!(
        edited.contains("    command: db\n  - name: \"mgp\"\n    command: \"/a b/mgp\"\n"),
        "{edited}"
    );
    let without = remove_entry(DocumentForm::Yaml, &edited, place("mgp")).unwrap();
    assert_eq!(without, text);
    let without = remove_entry(DocumentForm::Yaml, text, place("fs")).unwrap();
    assert!(
        without.contains("  # the other\n") && !without.contains("npx"),
        "{without}"
    );
    let none = remove_entry(DocumentForm::Yaml, &without, place("db")).unwrap();
    assert!(none.contains("mcpServers: []\n"), "{none}");
    let new = put_entry(DocumentForm::Yaml, "", place("mgp"), &entry).unwrap();
    assert!(new.starts_with("mcpServers:\n  - name: \"mgp\"\n"), "{new}");
}

#[test]
fn the_last_extension_of_goose_leaves_an_empty_table() {
    let table = table("extensions");
    let text = "a: 1\nextensions:\n  db:\n    type: stdio\n";
    let without = remove_entry(DocumentForm::Yaml, text, place(&table, "db")).unwrap();
    assert_eq!(without, "a: 1\nextensions: {}\n");
    let entry = json!({"type": "stdio"});
    let with = put_entry(DocumentForm::Yaml, &without, place(&table, "db"), &entry).unwrap();
    assert_eq!(with, "a: 1\nextensions:\n  db:\n    type: \"stdio\"\n");
    let none = remove_entry(DocumentForm::Yaml, &without, place(&[], "extensions")).unwrap();
    assert_eq!(none, "a: 1\n");
}

/// Codex's file with Windows line endings.
#[test]
fn line_endings_of_a_toml_file_are_preserved() {
    let table = table("mcp_servers");
    let text = "# mine\r\n[mcp_servers.a]\r\ncommand = \"a\"\r\n";
    let entry = json!({"command": "mgp", "args": ["stdio"]});
    let edited = put_entry(DocumentForm::Toml, text, place(&table, "mgp"), &entry).unwrap();
    assert!(!edited.replace("\r\n", "").contains('\n'), "{edited:?}");
    let without = remove_entry(DocumentForm::Toml, &edited, place(&table, "mgp")).unwrap();
    assert_eq!(without, text);
}
