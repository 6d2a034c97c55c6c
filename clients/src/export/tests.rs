use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ConfiguredServer, ConfiguredText, ExportError, ExportedServer, Exporter};
use crate::client::Client;
use crate::client_servers::{ClientConnection, ClientServer};
use crate::tables::read_document;
use crate::text::ClientText;

fn text(text: &str) -> ConfiguredText {
    ConfiguredText::parse(text, false)
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, ConfiguredText)> {
    let pair =
        |(name, value): &(&str, &str)| ((*name).to_owned(), ConfiguredText::parse(value, true));
    pairs.iter().map(pair).collect()
}

fn export(client: Client, server: &ConfiguredServer) -> Result<ExportedServer, ExportError> {
    let exporter = Exporter {
        client,
        home: Path::new("/home/me"),
        folder: Path::new("/etc/mgp"),
    };
    exporter.export(server)
}

fn started(args: &[&str], env: &[(&str, &str)]) -> ConfiguredServer {
    ConfiguredServer {
        id: "files".to_owned(),
        command: args.iter().map(|arg| text(arg)).collect(),
        env: pairs(env),
        ..ConfiguredServer::default()
    }
}

/// Parses the written entry as the client does.
fn read_back(client: Client, entry: &Value) -> ClientServer {
    let document = json!({ client.table(): { "files": entry } });
    let mut found = read_document(&document, Some(client));
    assert_eq!(found.invalid, [], "{client}: {document}");
    found.servers.remove(0)
}

#[test]
fn a_program_is_exported_in_every_clients_form() {
    let server = started(&["npx", "-y", "files"], &[("LEVEL", "5")]);
    for client in Client::ALL {
        let out = export(client, &server).unwrap();
        assert_eq!(
            (&out.skipped, &out.required_variables),
            (&vec![], &vec![]),
            "{client}"
        );
        let found = read_back(client, &out.entry);
        let ClientConnection::Command {
            command, args, env, ..
        } = found.connection
        else {
            panic!("{client} starts it");
        };
        assert_eq!(command, ClientText::literal("npx"));
        assert_eq!(args, ["-y", "files"].map(ClientText::literal));
        assert_eq!(env, [("LEVEL".to_owned(), ClientText::literal("5"))]);
    }
}

#[test]
fn variables_are_in_the_clients_notation_or_named() {
    let server = started(&["${HOME}/bin/x"], &[("A", "${A}"), ("B", "${B:-b}")]);
    let env = |client| export(client, &server).unwrap();
    assert_eq!(
        env(Client::ClaudeCode).entry["env"],
        json!({"A": "${A}", "B": "${B:-b}"})
    );
    let cursor = env(Client::Cursor);
    assert_eq!(cursor.entry["env"], json!({"A": "${env:A}"}));
    assert_eq!(cursor.skipped[0].0, "env.B");
    assert!(cursor.skipped[0].1.contains("no default"));
    assert_eq!(cursor.entry["command"], "${env:HOME}/bin/x");
    let desktop = env(Client::ClaudeDesktop);
    assert_eq!(
        desktop.entry,
        json!({"command": "/home/me/bin/x", "args": []})
    );
    assert_eq!(desktop.skipped.len(), 2);
    let codex = env(Client::Codex);
    assert_eq!(codex.entry["env_vars"], json!(["A", "B"]));
    let needed = export(Client::Zed, &started(&["x", "--key=${KEY}"], &[]));
    assert!(matches!(needed, Err(ExportError::Unsupported { key, .. }) if key == "args"));
}

#[test]
fn a_secret_becomes_an_input_or_variable_and_never_a_value() {
    let server = started(&["x"], &[("TOKEN", "secret:gh/TOKEN")]);
    let code = export(Client::VsCode, &server).unwrap();
    assert_eq!(code.entry["env"], json!({"TOKEN": "${input:mgp-gh-token}"}));
    assert_eq!(code.inputs[0]["id"], "mgp-gh-token");
    assert_eq!(code.inputs[0]["password"], true);
    let claude = export(Client::ClaudeCode, &server).unwrap();
    assert_eq!(claude.entry["env"], json!({"TOKEN": "${TOKEN}"}));
    let to_set = [("TOKEN".to_owned(), "secret:gh/TOKEN".to_owned())];
    assert_eq!(claude.required_variables, to_set);
    let goose = export(Client::Goose, &server).unwrap();
    assert_eq!(goose.entry["env_keys"], json!(["TOKEN"]));
    assert_eq!(goose.required_variables, to_set);
    let desktop = export(Client::ClaudeDesktop, &server).unwrap();
    assert_eq!(desktop.entry, json!({"command": "x", "args": []}));
    assert_eq!(desktop.skipped[0].0, "env.TOKEN");
    let file = started(&["x"], &[("TOKEN", "file:./token")]);
    let opencode = export(Client::OpenCode, &file).unwrap();
    assert_eq!(
        opencode.entry["environment"],
        json!({"TOKEN": "{file:/etc/mgp/./token}"})
    );
}

#[test]
fn servers_at_a_url_have_their_headers() {
    let server = ConfiguredServer {
        id: "docs".to_owned(),
        url: Some(text("https://h.test/mcp")),
        headers: pairs(&[
            ("Authorization", "Bearer ${secret:docs}"),
            ("X-Team", "${TEAM}"),
        ]),
        ..ConfiguredServer::default()
    };
    let codex = export(Client::Codex, &server).unwrap();
    let want = json!({"url": "https://h.test/mcp", "bearer_token_env_var": "DOCS",
                      "env_http_headers": {"X-Team": "TEAM"}});
    assert_eq!(codex.entry, want);
    let claude = export(Client::ClaudeCode, &server).unwrap();
    assert_eq!(claude.entry["headers"]["Authorization"], "Bearer ${DOCS}");
    let desktop = export(Client::ClaudeDesktop, &server);
    assert_eq!(desktop, Err(ExportError::NoUrls(Client::ClaudeDesktop)));
}

#[test]
fn settings_of_the_kernel_alone_are_reported() {
    let server = ConfiguredServer {
        is_disabled: true,
        cwd: Some(text("work")),
        kernel_keys: vec!["sandbox".to_owned()],
        inherit_env: vec!["LANG".to_owned()],
        ..started(&["./x"], &[])
    };
    let keys = |client| {
        let out = export(client, &server).unwrap();
        let keys: Vec<String> = out.skipped.into_iter().map(|(key, _)| key).collect();
        (out.entry, keys)
    };
    let (entry, left) = keys(Client::Codex);
    assert_eq!(left, ["sandbox"]);
    let want = json!({"command": "/etc/mgp/./x", "args": [], "cwd": "/etc/mgp/work",
                      "env_vars": ["LANG"], "enabled": false});
    assert_eq!(entry, want);
    let (_, left) = keys(Client::Cursor);
    assert_eq!(left, ["cwd", "inherit_env", "autostart", "sandbox"]);
}

proptest! {
    /// For any entry, the client reads the same text, or the text is not exported.
    #[test]
    fn a_text_has_the_same_meaning_for_the_client(parts in prop::collection::vec(
        prop_oneof!["[a-z${}:-]{0,6}", Just("env:V".to_owned()), Just("input:x".to_owned())], 0..6)) {
        let whole = parts.concat();
        let server = ConfiguredServer {
            command: vec![text("x"), ConfiguredText::literal(whole.clone())],
            ..started(&[], &[])
        };
        for client in Client::ALL {
            if let Ok(out) = export(client, &server) {
                let ClientConnection::Command { args, .. } = read_back(client, &out.entry).connection else {
                    panic!("{client} starts it");
                };
                prop_assert_eq!(args[0].as_literal(), Some(whole.as_str()), "{}", client);
            }
        }
    }
}
