//! `mgp tools call --curl`: the same call as an HTTP request to copy (MCP-lite).

use std::fmt::Write;
use std::fs;

use mgp_engine::tool_names::visible_name;
use mgp_protocol::lite::openapi::path_segment;
use mgp_transports::log::is_hidden;
use serde_json::{Map, Value, json};

use super::arguments::{self, TypedArguments};
use super::call::{fetch_schema, resolve_tool};
use crate::cli::args::Call;
use crate::cli::client::{CliContext, ConnectOptions};
use crate::cli::commands::agents;
use crate::cli::failure::Failure;
use crate::cli::print::print_line;
use crate::cli::text_format::quote_for_shell;

/// Precedes the token file in the description of an endpoint.
const TOKEN_SEPARATOR: &str = ", token in ";

/// Prints the request; nothing is called.
pub(super) fn show(context: &CliContext, call: &Call) -> Result<(), Failure> {
    let typed = arguments::parse(&call.arguments, call.json_args.as_deref())?;
    let opening = ConnectOptions {
        endpoint: None,
        ..ConnectOptions::default()
    };
    let (tool, arguments) = context.with_kernel_at(opening, async |client| {
        let meant = resolve_tool(client, &call.name).await;
        let tool = match &meant {
            Ok((server, tool)) => visible_name(server, tool),
            Err(_) => call.name.clone(),
        };
        let listed = fetch_schema(client, &tool).await?;
        // Unlisted tools cannot be called, except those of an unavailable server.
        if let (Err(unread), None) = (meant, &listed) {
            return Err(unread);
        }
        let arguments = match typed {
            TypedArguments::Object(object) => object,
            TypedArguments::Pairs(pairs) => arguments::parse_by_schema(pairs, listed.as_ref())?,
        };
        Ok((tool, arguments))
    })?;
    let doors = context
        .status()?
        .map(|status| status.doors)
        .unwrap_or_default();
    let request = doors.iter().find_map(|door| CurlRequest::new(door, &tool));
    let Some(request) = request else {
        let none = "the kernel has no HTTP door: `enabled = true` in `[http]` opens it";
        return Err(Failure::Other(none.to_owned()));
    };
    if context.json {
        print_line(request.to_json(&arguments))
    } else {
        print_line(request.render_command(&argument_file(call), &arguments))
    }
}

/// The file with the arguments, so that they are not on the command line, which every user of the machine can read.
fn argument_file(call: &Call) -> Option<String> {
    let [one] = call.arguments.as_slice() else {
        return None;
    };
    let file = one.strip_prefix('@')?;
    let lasting = fs::metadata(file).is_ok_and(|file| file.is_file());
    lasting.then(|| file.to_owned())
}

/// A request that calls a tool.
#[derive(Debug, PartialEq, Eq)]
struct CurlRequest<'a> {
    url: String,
    /// The file of the token.
    token_file: Option<&'a str>,
}

impl<'a> CurlRequest<'a> {
    /// A request to an endpoint by its description; `None` if it is not HTTP.
    fn new(door: &'a str, tool: &str) -> Option<Self> {
        let address = agents::endpoint_url(door)?;
        let base = address.strip_suffix("/mcp").unwrap_or(address);
        Some(Self {
            url: format!("{base}/mcp-lite/v1/tools/{}", path_segment(tool)),
            token_file: door.split_once(TOKEN_SEPARATOR).map(|(_, file)| file),
        })
    }

    /// For a shell. The token reaches curl through a pipe: it is on no command line.
    fn render_command(&self, file: &Option<String>, arguments: &Map<String, Value>) -> String {
        let mut text = String::new();
        let mut header = "";
        if let Some(token) = self.token_file {
            let token = quote_for_shell(token);
            let _ = writeln!(
                text,
                r#"printf 'Authorization: Bearer %s' "$(cat {token})" |"#
            );
            header = " -H @-";
        }
        let body = match file {
            Some(file) => format!("--data-binary {}", quote_for_shell(&format!("@{file}"))),
            None => format!(
                "-d {}",
                quote_for_shell(&to_printable_json(&Value::from(arguments.clone())))
            ),
        };
        let url = quote_for_shell(&self.url);
        let _ = write!(
            text,
            "curl -sS{header} -H 'Content-Type: application/json' {url} \\\n  {body}"
        );
        text
    }

    /// For programs.
    fn to_json(&self, arguments: &Map<String, Value>) -> Value {
        json!({
            "method": "POST",
            "url": self.url,
            "headers": { "Content-Type": "application/json" },
            "token_file": self.token_file,
            "body": arguments,
        })
    }
}

/// JSON text without control or invisible characters.
fn to_printable_json(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        if is_hidden(c) || c == '\t' {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c)
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(value: Value) -> Map<String, Value> {
        let Value::Object(object) = value else {
            unreachable!("an object")
        };
        object
    }

    #[test]
    fn a_request_reads_the_token_from_its_file_and_quotes_its_arguments() {
        let door = "http://127.0.0.1:7332/mcp, token in /home/a b/token";
        let request = CurlRequest::new(door, "demo__say it").unwrap();
        let arguments = arguments(json!({"text": "it's $(rm) `x` \u{202e}\u{9b}\n"}));
        let want = concat!(
            "printf 'Authorization: Bearer %s' \"$(cat '/home/a b/token')\" |\n",
            "curl -sS -H @- -H 'Content-Type: application/json' http://127.0.0.1:7332/mcp-lite/v1/tools/demo__say%20it \\\n",
            "  -d '{\"text\":\"it'\\''s $(rm) `x` \\u202e\\u009b\\n\"}'",
        );
        assert_eq!(request.render_command(&None, &arguments), want);
        let by_file = request.render_command(&Some("it's.json".into()), &arguments);
        assert!(
            by_file.ends_with("--data-binary '@it'\\''s.json'"),
            "{by_file}"
        );
        let open = CurlRequest::new("https://[::1]:7332/mcp", "t").unwrap();
        let text = open.render_command(&None, &Map::new());
        assert!(
            text.starts_with("curl -sS -H 'Content-Type: application/json' 'https://[::1]:7332/"),
            "{text}"
        );
        assert_eq!(CurlRequest::new("socket /run/mgp.sock", "t"), None);
    }
}
