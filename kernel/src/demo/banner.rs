//! The output of `mgp demo`: its endpoints, and commands that work as printed.

use std::path::Path;

use super::SERVER;
use crate::kernel::{OpenHttpListener, OpenListeners};

/// The text for stdout. `program` is this program, as another terminal can start it. The token is read from its file
/// if possible, so that it is not displayed.
#[must_use]
pub(crate) fn render_banner(program: &Path, listeners: &OpenListeners) -> String {
    let mgp = format!(
        "{} --socket {}",
        quote_path(program),
        quote_path(&listeners.socket)
    );
    let mut text = format!(
        "A kernel with one server, `{SERVER}`, is up. Ctrl-C ends it and leaves nothing behind.\n\n\
         Try this in another terminal:\n\n\
         \x20 {mgp} tools list\n\
         \x20 {mgp} tools call {SERVER}:time utc_offset=+02:00\n\
         \x20 {mgp} tools call {SERVER}:ask_me\n"
    );
    if let Some(http) = &listeners.http {
        text += &format!(
            "\nOr over HTTP, at {}:\n\n  {}\n",
            http.url(),
            render_curl(http)
        );
    }
    text += &format!(
        "\nA client's configuration:\n\n  {}\n",
        render_client_entry(program, &listeners.socket)
    );
    text
}

/// The first call of every MCP client. The token goes to curl through a pipe: on its command line every
/// user of the machine could read it.
fn render_curl(http: &OpenHttpListener) -> String {
    let token = match (&http.token_file, &http.token) {
        (Some(file), _) => Some(format!("\"$(cat {})\"", quote_path(file))),
        (None, Some(token)) => Some(format!("'{token}'")),
        (None, None) => None,
    };
    let (before, header) = match token {
        Some(token) => (
            format!("printf 'Authorization: Bearer %s' {token} | "),
            "-H @- ",
        ),
        None => (String::new(), ""),
    };
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}"#;
    format!(
        "{before}curl -s {} {header}-H 'Content-Type: application/json' \
         -H 'Accept: application/json, text/event-stream' -d '{initialize}'",
        http.url()
    )
}

fn render_client_entry(program: &Path, socket: &Path) -> String {
    let args = serde_json::json!(["--socket", socket, "stdio"]);
    let entry = serde_json::json!({"mcpServers": {"mgp": {"command": program, "args": args}}});
    entry.to_string()
}

/// A path, quoted for a shell.
fn quote_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    let harmless = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if !text.is_empty() && text.chars().all(harmless) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_can_be_pasted_into_a_shell() {
        let listeners = OpenListeners {
            socket: "/tmp/it's here/mgp.sock".into(),
            http: Some(OpenHttpListener {
                address: "127.0.0.1:7332".parse().unwrap(),
                secure: false,
                token: Some("abc".into()),
                token_file: Some("/tmp/it's here/token".into()),
            }),
        };
        let text = render_banner(Path::new("/usr/bin/mgp"), &listeners);
        let line = r"  /usr/bin/mgp --socket '/tmp/it'\''s here/mgp.sock' tools list";
        assert!(text.lines().any(|l| l == line), "{text}");
        let line = r#"printf 'Authorization: Bearer %s' "$(cat '/tmp/it'\''s here/token')" | curl -s http://127.0.0.1:7332/mcp -H @- "#;
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("abc"), "{text}");
    }
}
