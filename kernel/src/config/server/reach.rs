//! The transport of a server entry.

use std::collections::BTreeMap;
use std::net::IpAddr;

use mgp_engine::env::AgentValue;
use mgp_engine::servers::spec::{ServerTransport, UrlProtocol};
use toml::Spanned;

use crate::config::parsing::Section;

/// The value of `cwd` for a folder per caller; a folder of that name is `./caller`.
pub(crate) const CALLER_FOLDER: &str = "caller";

#[derive(Clone, Copy)]
enum TransportKey {
    Stdio,
    Url(UrlProtocol),
}

/// The keys of both transports, as written.
struct ReachKeys<'t> {
    command: Option<Spanned<&'t str>>,
    args: Vec<Spanned<&'t str>>,
    env: BTreeMap<&'t str, Spanned<&'t str>>,
    inherit_env: Vec<String>,
    cwd: Option<Spanned<&'t str>>,
    url: Option<Spanned<&'t str>>,
    headers: BTreeMap<&'t str, Spanned<&'t str>>,
}

/// Reads the keys of both transports, so that all of them are known, and returns the selected one.
pub(crate) fn read_reach(
    entry: &mut Section<'_, '_, '_>,
    of_agents: &mut BTreeMap<String, AgentValue>,
) -> Option<ServerTransport> {
    let written = ReachKeys::read(entry);
    let reach = match select_transport(entry, &written)? {
        TransportKey::Stdio => written.into_stdio(entry, of_agents)?,
        TransportKey::Url(speaks) => written.into_http(entry, speaks, of_agents)?,
    };
    if let (ServerTransport::Http { url, .. }, Some(span)) = (&reach, entry.span("url")) {
        match classify_url(url) {
            UrlSafety::Safe => {}
            UrlSafety::Plaintext => entry.warn(
                span,
                format!(
                    "{} is on another machine and reached by http://: everything said to it, \
                     tokens included, crosses the network in the clear; use https://",
                    entry.name()
                ),
            ),
            // A variable that is not set has been reported already.
            UrlSafety::Invalid if url.is_empty() => {}
            UrlSafety::Invalid => {
                let name = entry.name();
                let message = format!("`url` of {name} wants http:// or https:// and a host");
                entry.reject(span, message);
            }
        }
    }
    Some(reach)
}

impl<'t> ReachKeys<'t> {
    fn read(entry: &mut Section<'_, '_, 't>) -> Self {
        let mut written = Self {
            command: entry.text("command"),
            args: entry.texts("args").unwrap_or_default(),
            env: entry.text_map("env"),
            inherit_env: Vec::new(),
            cwd: entry.text("cwd"),
            url: entry.text("url"),
            headers: entry.text_map("headers"),
        };
        entry.strings("inherit_env", &mut written.inherit_env);
        let variable = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
        check_names(entry, "env", &written.env, variable);
        check_names(entry, "headers", &written.headers, is_header_name);
        written
    }

    fn into_stdio(
        self,
        entry: &mut Section<'_, '_, '_>,
        of_agents: &mut BTreeMap<String, AgentValue>,
    ) -> Option<ServerTransport> {
        let folder = entry.folder();
        let command = entry.resolve("command", &self.command?);
        Some(ServerTransport::Stdio {
            // A bare name is looked up in PATH; anything with a slash is a path relative to the file.
            command: if command.contains('/') {
                folder.join(command).to_string_lossy().into_owned()
            } else {
                command
            },
            args: self
                .args
                .iter()
                .map(|arg| entry.resolve("args", arg))
                .collect(),
            env: entry.resolve_agent_secrets("env", &self.env, of_agents),
            inherit_env: self.inherit_env,
            cwd: Some(
                match self.cwd.filter(|cwd| *cwd.get_ref() != CALLER_FOLDER) {
                    Some(cwd) => folder.join(entry.resolve("cwd", &cwd)),
                    None => folder.to_owned(),
                },
            ),
        })
    }

    fn into_http(
        self,
        entry: &mut Section<'_, '_, '_>,
        protocol: UrlProtocol,
        of_agents: &mut BTreeMap<String, AgentValue>,
    ) -> Option<ServerTransport> {
        let url = entry.resolve_secret("url", &self.url?);
        let headers = entry.resolve_agent_secrets("headers", &self.headers, of_agents);
        // Of `Bearer SECRET`, the secret may appear alone somewhere.
        let last_words = headers
            .values()
            .filter_map(|value| value.rsplit(' ').next());
        last_words
            .filter(|word| !word.is_empty())
            .for_each(|word| entry.mask(word));
        Some(ServerTransport::Http {
            url,
            headers,
            protocol,
        })
    }
}

/// `transport`, or the one that the other keys imply. `None` for contradictory entries.
fn select_transport(
    entry: &mut Section<'_, '_, '_>,
    written: &ReachKeys<'_>,
) -> Option<TransportKey> {
    let (command, url) = (written.command.is_some(), written.url.is_some());
    let mut transport = if url {
        TransportKey::Url(UrlProtocol::Mcp)
    } else {
        TransportKey::Stdio
    };
    let names = [
        ("stdio", TransportKey::Stdio),
        ("http", TransportKey::Url(UrlProtocol::Mcp)),
        ("streamable-http", TransportKey::Url(UrlProtocol::Mcp)),
        ("sse", TransportKey::Url(UrlProtocol::Mcp)),
        ("lite", TransportKey::Url(UrlProtocol::Lite)),
        ("grpc", TransportKey::Url(UrlProtocol::Grpc)),
    ];
    entry.choice("transport", &names, &mut transport);
    let wrong = match (transport, command, url) {
        (_, true, true) => {
            "has both `command` and `url`; a server is reached in one way".to_owned()
        }
        (TransportKey::Stdio, false, _) => "has no `command` to start it with".to_owned(),
        (TransportKey::Url(speaks), _, false) => {
            format!("has transport `{}` but no `url`", speaks.as_str())
        }
        (TransportKey::Stdio, true, false) | (TransportKey::Url(_), false, true) => {
            return Some(transport);
        }
    };
    let keys = ["transport", "url", "command", "id"];
    let span = keys
        .iter()
        .find_map(|key| entry.span(key))
        .unwrap_or_default();
    entry.reject(span, format!("{} {wrong}", entry.name()));
    None
}

enum UrlSafety {
    Safe,
    /// http:// to another machine (MCP-082).
    Plaintext,
    Invalid,
}

fn classify_url(url: &str) -> UrlSafety {
    if !url.chars().all(|c| c.is_ascii_graphic()) {
        return UrlSafety::Invalid;
    }
    let (safe, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return UrlSafety::Invalid,
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rsplit('@').next().unwrap_or_default() {
        "" => UrlSafety::Invalid,
        host if safe || is_loopback(host) => UrlSafety::Safe,
        _ => UrlSafety::Plaintext,
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_header_name(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(token)
}

fn check_names<T>(
    entry: &mut Section<'_, '_, '_>,
    key: &str,
    map: &BTreeMap<&str, T>,
    good: impl Fn(&str) -> bool,
) {
    for name in map.keys().filter(|name| !good(name)) {
        let span = entry.span(key).unwrap_or_default();
        entry.reject(
            span,
            format!("{name:?} is no name for `{key}` of {}", entry.name()),
        );
    }
}
