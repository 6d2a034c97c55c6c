//! `pass_headers`: the headers of an agent's HTTP request that are forwarded to a server.

use mgp_engine::servers::spec::ServerTransport;

use crate::config::kernel::KernelConfig;
use crate::config::parsing::Section;
use crate::config::sections::http::HttpAuth;

/// Most names for one server.
const HEADERS_MAX: usize = 16;

/// Never forwarded: headers about one connection or message, and those that the kernel sets itself.
const FORBIDDEN_HEADERS: [&str; 19] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "dpop",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// The names in lower case, and whether `authorization` is one of them.
pub(super) fn read_passed_headers(
    entry: &mut Section<'_, '_, '_>,
    reach: Option<&ServerTransport>,
    kernel: &KernelConfig,
) -> (Vec<String>, bool) {
    let mut names: Vec<String> = Vec::new();
    for text in entry.texts("pass_headers").into_iter().flatten() {
        let name = text.get_ref().to_ascii_lowercase();
        let fixed = match reach {
            Some(ServerTransport::Http { headers, .. }) => {
                headers.keys().any(|key| key.eq_ignore_ascii_case(&name))
            }
            Some(ServerTransport::Stdio { .. } | ServerTransport::Node(_)) | None => false,
        };
        let is_name = name.parse::<http::HeaderName>().is_ok();
        let is_forbidden = FORBIDDEN_HEADERS.contains(&&*name) || name.starts_with("mcp-");
        let why = if !is_name {
            "is no name of a header"
        } else if is_forbidden {
            "belongs to one connection, or to the kernel, and is never handed on"
        } else if name == "authorization" && kernel.http.auth != HttpAuth::None {
            "is what agents show this kernel, which no server may have; it can be handed on with `auth = \"none\"` in [http]"
        } else if fixed {
            "stands in `headers` of the entry, too: one of the two counts"
        } else {
            names.push(name);
            continue;
        };
        let message = format!(
            "`pass_headers` of {}: {:?} {why}",
            entry.name(),
            text.get_ref()
        );
        entry.reject(text.span(), message);
    }
    if let (false, Some(ServerTransport::Stdio { .. })) = (names.is_empty(), reach) {
        let why = "is started by a command: `pass_headers` is for servers at a `url`";
        entry.reject_use("pass_headers", why);
    }
    names.sort();
    names.dedup();
    if names.len() > HEADERS_MAX {
        let why = format!("names more than {HEADERS_MAX} in `pass_headers`");
        entry.reject_use("pass_headers", &why);
    }
    let shows_who = names.iter().any(|name| name == "authorization");
    (names, shows_who)
}
