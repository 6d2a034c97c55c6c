//! Entries from the clients' documentation.

use std::collections::BTreeSet;

use super::*;
use crate::client_servers::{ClientConnection, ClientServer};
use crate::document::DocumentForm;
use crate::text::ClientText;
use crate::variables::TextPiece;

fn found(form: DocumentForm, text: &str, client: Client) -> ClientDocument {
    read_document(&form.parse(text).unwrap(), Some(client))
}

fn one(form: DocumentForm, text: &str, client: Client) -> ClientServer {
    let mut found = found(form, text, client);
    assert_eq!(found.invalid, []);
    assert_eq!(found.servers.len(), 1, "{found:?}");
    found.servers.remove(0)
}

fn literals(texts: &[ClientText]) -> Vec<&str> {
    texts
        .iter()
        .map(|text| text.as_literal().unwrap())
        .collect()
}

fn command(server: &ClientServer) -> (Vec<&str>, &[(String, ClientText)]) {
    match &server.connection {
        ClientConnection::Command {
            command, args, env, ..
        } => {
            let mut words = vec![command.as_literal().unwrap()];
            words.extend(literals(args));
            (words, env)
        }
        ClientConnection::Url { .. } => panic!("it has a URL: {server:?}"),
    }
}

fn url(server: &ClientServer) -> (&str, &[(String, ClientText)]) {
    match &server.connection {
        ClientConnection::Url { url, headers } => (url.as_literal().unwrap(), headers),
        ClientConnection::Command { .. } => panic!("it has a command: {server:?}"),
    }
}

#[test]
fn claude_desktop_starts_a_command() {
    let text = r#"{"globalShortcut": "", "mcpServers": {"files": {"command": "npx",
        "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me"],
        "env": {"PRICE": "${NOT_A_VARIABLE}"}}}}"#;
    let server = one(DocumentForm::Json, text, Client::ClaudeDesktop);
    let (words, env) = command(&server);
    assert_eq!(
        words,
        [
            "npx",
            "-y",
            "@modelcontextprotocol/server-filesystem",
            "/home/me"
        ]
    );
    assert_eq!(env[0].1.as_literal(), Some("${NOT_A_VARIABLE}"));
}

#[test]
fn claude_code_keeps_servers_of_projects_in_the_users_file() {
    let text = r#"{"numStartups": 3, "mcpServers": {"docs": {"type": "http",
          "url": "https://docs.test/mcp", "headers": {"Authorization": "Bearer ${TOKEN:-none}"}}},
        "projects": {"/home/me/work": {"history": [], "mcpServers": {"db": {"command": "db"}}}}}"#;
    let found = found(DocumentForm::Json, text, Client::ClaudeCode);
    let (docs, db) = (&found.servers[0], &found.servers[1]);
    let (address, headers) = url(docs);
    assert_eq!(
        (address, headers[0].0.as_str()),
        ("https://docs.test/mcp", "Authorization")
    );
    assert!(
        matches!(&headers[0].1.0[1], TextPiece::Variable { default: Some(none), .. } if none == "none")
    );
    assert_eq!(db.project.as_deref(), Some("/home/me/work"));
}

#[test]
fn vscode_asks_for_inputs_and_allows_comments() {
    let text = r#"{
        // inputs
        "inputs": [{"type": "promptString", "id": "key", "description": "API key", "password": true},
                   {"type": "pickString", "id": "where", "description": "Region", "options": ["eu", {"label": "US", "value": "us"}], "default": "eu"}],
        "servers": {"weather": {"type": "stdio", "command": "weather",
            "args": ["--root", "${workspaceFolder}"], "env": {"KEY": "${input:key}"}, "envFile": "${workspaceFolder}/.env",},},
    }"#;
    let found = found(DocumentForm::Json, text, Client::VsCode);
    assert_eq!(
        (found.inputs[0].id.as_str(), found.inputs[0].secret),
        ("key", true)
    );
    assert_eq!(
        (
            found.inputs[1].options.as_slice(),
            found.inputs[1].default.as_deref()
        ),
        (["eu".to_owned(), "us".to_owned()].as_slice(), Some("eu"))
    );
    let ClientConnection::Command {
        args,
        env,
        env_file,
        ..
    } = &found.servers[0].connection
    else {
        panic!("{found:?}");
    };
    assert_eq!(args[1].0, [TextPiece::Folder]);
    assert_eq!(env[0].1.input_ids().collect::<Vec<_>>(), ["key"]);
    assert!(env_file.is_some());
}

#[test]
fn zed_has_two_forms() {
    let old = r#"{"context_servers": {"db": {"command": {"path": "db", "args": ["-v"], "env": {"A": "1"}}, "settings": {}}}}"#;
    let new = r#"{"context_servers": {"db": {"source": "custom", "command": "db", "args": ["-v"], "env": {"A": "1"}}}}"#;
    let (old, new) = (
        one(DocumentForm::Json, old, Client::Zed),
        one(DocumentForm::Json, new, Client::Zed),
    );
    assert_eq!(old, new);
    assert_eq!(command(&new).0, ["db", "-v"]);
    assert_eq!(new.skipped_keys, []);
}

#[test]
fn codex_names_variables_for_headers() {
    let text = r#"model = "o"
        [mcp_servers.a]
        command = "a"
        startup_timeout_sec = 20
        [mcp_servers.b]
        url = "https://b.test/mcp"
        bearer_token_env_var = "B_TOKEN"
        http_headers = { "X-Region" = "eu" }
        env_http_headers = { "X-User" = "B_USER" }
        enabled = false"#;
    let found = found(DocumentForm::Toml, text, Client::Codex);
    assert_eq!(found.servers[0].skipped_keys[0].key, "startup_timeout_sec");
    assert!(found.servers[0].skipped_keys[0].reason.contains("start"));
    let b = &found.servers[1];
    assert!(b.disabled);
    let names: Vec<_> = url(b).1.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["X-Region", "X-User", "Authorization"]);
}

#[test]
fn gemini_has_two_kinds_of_urls_and_bare_variables() {
    let text = r#"{"mcpServers": {"a": {"httpUrl": "https://a.test/mcp", "headers": {"X-Key": "$A_KEY"}, "timeout": 5000, "trust": true}}}"#;
    let server = one(DocumentForm::Json, text, Client::Gemini);
    let (_, headers) = url(&server);
    assert!(
        matches!(&headers[0].1.0[..], [TextPiece::Variable { name, default: None }] if name == "A_KEY")
    );
    let left_out: Vec<_> = server
        .skipped_keys
        .iter()
        .map(|left| left.key.as_str())
        .collect();
    assert_eq!(left_out, ["timeout", "trust"]);
}

#[test]
fn opencode_writes_a_command_as_a_list_in_both_its_forms() {
    let entry = r#"{"type": "local", "command": ["db", "-v"], "environment": {"K": "{env:DB_KEY}"}, "enabled": false}"#;
    let first = one(
        DocumentForm::Json,
        &format!(r#"{{"mcp": {{"db": {entry}}}}}"#),
        Client::OpenCode,
    );
    let second = one(
        DocumentForm::Json,
        &format!(r#"{{"mcp": {{"servers": {{"db": {entry}}}}}}}"#),
        Client::OpenCode,
    );
    assert_eq!(first, second);
    assert_eq!(command(&first).0, ["db", "-v"]);
    assert!(first.disabled);
}

#[test]
fn gooses_builtin_extensions_are_not_imported() {
    let text = "extensions:\n  developer:\n    type: builtin\n    enabled: true\n  db:\n    type: stdio\n    cmd: db\n    args: [-v]\n    envs: {A: '1'}\n    env_keys: [DB_KEY]\n    timeout: 300\n    enabled: true\n";
    let found = found(DocumentForm::Yaml, text, Client::Goose);
    assert_eq!(
        found.invalid,
        [("developer".to_owned(), "it is part of the client itself")]
    );
    let (words, env) = command(&found.servers[0]);
    assert_eq!(words, ["db", "-v"]);
    assert_eq!(
        env[1],
        ("DB_KEY".to_owned(), ClientText::for_variable("DB_KEY"))
    );
}

#[test]
fn files_of_unknown_clients_are_read_by_their_keys() {
    let text = r#"{"mcpServers": {"a": {"command": "a"}}, "servers": {"b": {"url": "http://b"}}}"#;
    let found = read_document(&DocumentForm::Json.parse(text).unwrap(), None);
    let names: Vec<_> = found
        .servers
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn invalid_entries_are_reported_with_the_reason() {
    let text = r#"{"mcpServers": {"none": {}, "both": {"command": "a", "url": "http://b"}, "odd": 3, "list": {"command": "a", "args": "b"}, "nested": {"command": "a", "args": [[]]}, "empty": {"command": ""}}}"#;
    let found = found(DocumentForm::Json, text, Client::Cursor);
    assert_eq!(found.servers, []);
    let broken: Vec<_> = found
        .invalid
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(broken, ["none", "both", "odd", "list", "nested", "empty"]);
}

#[test]
fn files_with_byte_order_marks_and_comments_are_read() {
    let text = "\u{feff}{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {\"command\": \"x\"}, // twice\r\n\t\t\"a\": {\"command\": \"y\"},\r\n\t},\r\n}\r\n";
    let found = found(DocumentForm::Json, text, Client::Cursor);
    assert_eq!(found.servers.len(), 1);
    assert_eq!(command(&found.servers[0]).0, ["y"]);
    assert_eq!(
        read_document(&DocumentForm::Json.parse(" \n").unwrap(), None),
        ClientDocument::default()
    );
    assert!(DocumentForm::Json.parse("{\"a\": ").is_err());
}

#[test]
fn gemini_allows_and_excludes_servers_and_tools() {
    let text = r#"{"mcp": {"allowed": ["a", "b"], "excluded": ["b"]}, "extensions": {"disabled": ["x"]}, "mcpServers": {
        "a": {"command": "a", "includeTools": ["x", "y"], "excludeTools": ["y"]},
        "b": {"command": "b"}, "c": {"command": "c", "excludeTools": ["run(rm)"]}}}"#;
    let found = found(DocumentForm::Json, text, Client::Gemini);
    assert_eq!(found.invalid, []);
    let off: Vec<_> = found
        .servers
        .iter()
        .map(|server| server.disabled_by)
        .collect();
    assert_eq!(off, [None, Some("mcp.excluded"), Some("mcp.allowed")]);
    let tools = &found.servers[0].tools;
    assert_eq!(tools.hidden.iter().collect::<Vec<_>>(), ["y"]);
    assert_eq!(tools.only.as_ref().map(BTreeSet::len), Some(2));
    assert!(found.servers[2].tools.is_unlimited());
    assert_eq!(found.servers[2].skipped_keys[0].key, "excludeTools");
}

/// A pattern or an invalid name does not affect the other names of its list.
#[test]
fn valid_names_of_a_list_count_next_to_patterns() {
    let text = r#"{"mcpServers": {
        "a": {"command": "a", "excludeTools": ["echo", "run(rm)", 5], "includeTools": "read"},
        "b": {"command": "b", "excludeTools": ["*"]}}}"#;
    let found = found(DocumentForm::Json, text, Client::Gemini);
    let [a, b] = &found.servers[..] else {
        panic!("{found:?}");
    };
    assert_eq!(a.tools.hidden.iter().collect::<Vec<_>>(), ["echo"]);
    assert!(a.tools.only.as_ref().unwrap().contains("read"));
    assert_eq!(a.skipped_keys[0].key, "excludeTools");
    assert_eq!(b.tools.only.as_ref().map(BTreeSet::len), Some(0));
    assert!(b.tools.hidden.is_empty() && b.skipped_keys.is_empty());
}

#[test]
fn continue_lists_its_servers() {
    let text = "name: mine\nversion: 1.0.0\nschema: v1\nmcpServers:\n  - name: Files\n    command: npx\n    args: [-y, files]\n    env:\n      KEY: ${{ secrets.FILES_KEY }}\n    connectionTimeout: 5\n  - name: docs\n    type: streamable-http\n    url: https://docs.test/mcp\n    requestOptions:\n      headers:\n        Authorization: Bearer ${{ secrets.DOCS }}\n";
    let found = found(DocumentForm::Yaml, text, Client::Continue);
    assert_eq!(found.invalid, []);
    let (words, env) = command(&found.servers[0]);
    assert_eq!(
        (words, found.servers[0].name.as_str()),
        (vec!["npx", "-y", "files"], "Files")
    );
    assert_eq!(env[0].1, ClientText::for_variable("FILES_KEY"));
    assert_eq!(url(&found.servers[1]).1[0].1.0.len(), 2);
    assert_eq!(found.servers[1].skipped_keys, []);
    assert_eq!(found.servers[0].skipped_keys[0].key, "connectionTimeout");
}

#[test]
fn an_unknown_file_is_recognized_by_its_keys() {
    let text = r#"{"inputs": [{"id": "key", "type": "promptString", "password": true}],
        "servers": {"p": {"command": "npx", "args": ["${input:key}"]}}}"#;
    let workspace = format!(r#"{{"settings": {{"mcp": {text}}}}}"#);
    for text in [text, &workspace] {
        let found = read_document(&DocumentForm::Json.parse(text).unwrap(), None);
        assert_eq!(
            found.servers[0].inputs().collect::<Vec<_>>(),
            ["key"],
            "{text}"
        );
        assert!(found.inputs[0].secret);
    }
}

#[test]
fn opencode_and_claude_code_disable_servers_outside_of_entries() {
    let text = r#"{"mcp": {"db": {"type": "local", "command": ["db"]}, "x": {"type": "local", "command": ["x"]}},
        "tools": {"db_drop": false, "db_read": true, "x_*": false, "bash": false}}"#;
    let code = found(DocumentForm::Json, text, Client::OpenCode);
    assert_eq!(
        code.servers[0].tools.hidden.iter().collect::<Vec<_>>(),
        ["drop"]
    );
    assert_eq!(
        (code.servers[1].disabled, code.servers[1].disabled_by),
        (true, Some("tools"))
    );
    let text = r#"{"projects": {"/w": {"mcpServers": {"a": {"command": "a"}}, "disabledMcpServers": ["a"]}}}"#;
    let code = found(DocumentForm::Json, text, Client::ClaudeCode);
    assert_eq!(code.servers[0].disabled_by, Some("disabledMcpServers"));
}

#[test]
fn null_variables_are_reported() {
    let text = r#"{"mcpServers": {"a": {"command": "a", "env": {"A": null, "B": "1"}},
        "b": {"command": "b", "env": null}}}"#;
    let found = found(DocumentForm::Json, text, Client::Cursor);
    let left: Vec<_> = found
        .servers
        .iter()
        .map(|server| &server.skipped_keys)
        .collect();
    assert_eq!((left[0].len(), left[1].len()), (1, 0), "{left:?}");
    assert_eq!(left[0][0].key, "env.A");
    assert_eq!(command(&found.servers[0]).1.len(), 1);
}
