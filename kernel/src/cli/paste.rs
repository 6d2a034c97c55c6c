//! What goes into the configuration of a client, so that it finds this kernel.

use std::env;
use std::path::Path;

use mgp_protocol::ids::AgentId;
use serde_json::{Value, json};

use super::context::Context;
use super::detach;

/// The entries for one agent.
pub(super) struct Entries {
    /// For a client that starts programs: it needs no token.
    pub(super) stdio: Value,
    /// For a client that speaks HTTP; `None` where that door is closed.
    pub(super) http: Option<Value>,
}

impl Entries {
    /// Those of an agent that shows `token`.
    pub(super) fn of(context: &Context, agent: &str, token: &str) -> Self {
        let status = detach::status(context).ok().flatten();
        let doors = status.map(|status| status.doors).unwrap_or_default();
        let url = doors.iter().find_map(|door| url(door));
        let http = url.map(|url| {
            let headers = json!({"Authorization": format!("Bearer {token}")});
            named(json!({"type": "http", "url": url, "headers": headers}))
        });
        Self {
            stdio: named(stdio(context, agent)),
            http,
        }
    }
}

/// The program stands with its whole path: a client started from a desktop may have another PATH.
fn stdio(context: &Context, agent: &str) -> Value {
    let program = env::current_exe().map_or_else(|_| "mgp".into(), |exe| text(&exe));
    let name = agent.strip_prefix(AgentId::PREFIX).unwrap_or(agent);
    let mut args: Vec<String> = ["stdio", "--agent", name].map(str::to_owned).into();
    let mut option = |name: &str, path: Option<&Path>| {
        if let Some(path) = path {
            args.extend([name.to_owned(), text(path)]);
        }
    };
    option("--config", context.look_up.explicit.as_deref());
    option("--socket", context.named_socket.as_deref());
    option("--data-dir", context.named_data_dir.as_deref());
    json!({ "command": program, "args": args })
}

fn named(entry: Value) -> Value {
    json!({ "mcpServers": { "mgp": entry } })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The address in the words of a door, as in `http://127.0.0.1:7332/mcp, token in …`.
fn url(door: &str) -> Option<&str> {
    let url = door.split(',').next()?;
    url.starts_with("http").then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_words_of_the_door() {
        let door = "http://127.0.0.1:7332/mcp, token in /data/token";
        assert_eq!(url(door), Some("http://127.0.0.1:7332/mcp"));
        assert_eq!(url("socket /run/mgp.sock"), None);
    }
}
