//! `[servers.login]`: the kernel's login at an HTTP server.

use std::collections::BTreeMap;

use mgp_engine::servers::login::{LoginConfig, LoginGrant, parse_safe_url};
use mgp_engine::servers::spec::{ServerTransport, UrlProtocol};
use toml::Spanned;

use crate::config::parsing::Section;

const GRANTS: [(&str, LoginGrant); 4] = [
    ("browser", LoginGrant::Browser),
    ("client_credentials", LoginGrant::ClientCredentials),
    ("assertion", LoginGrant::Assertion),
    ("exchange", LoginGrant::Exchange),
];

/// Reads the table, or `login = false`, or `login = "agent"` for `of = "agent"`. By default a server at a `url` gets a
/// login when it requires one, unless a header of its entry is its token.
pub(super) fn read_login(
    entry: &mut Section<'_, '_, '_>,
    reach: Option<&ServerTransport>,
) -> LoginConfig {
    let (by_url, has_token) = match reach {
        // Its calls use only the configured `headers`.
        Some(ServerTransport::Http {
            protocol: UrlProtocol::Grpc,
            ..
        }) => return reject_login_over_grpc(entry),
        Some(ServerTransport::Http { headers, .. }) => {
            let token = |name: &String| name.eq_ignore_ascii_case("authorization");
            (true, headers.keys().any(token))
        }
        Some(ServerTransport::Stdio { .. } | ServerTransport::Node(_)) | None => (false, false),
    };
    let written = entry.value("login");
    if let Some("agent") = written.and_then(|value| value.get_ref().as_str())
        && by_url
        && !has_token
    {
        return LoginConfig {
            per_agent: true,
            ..LoginConfig::with_browser()
        };
    }
    if let Some(on) = written.and_then(|value| value.get_ref().as_bool()) {
        return LoginConfig {
            enabled: on && by_url,
            ..LoginConfig::disabled()
        };
    }
    let rules = entry.subsection("login", read_keys);
    if reach.is_some() && !by_url {
        let why = "is started by a command: [servers.login] is for servers at a `url`";
        entry.reject_use("login", why);
    } else if by_url && has_token {
        let why = "has both: `headers.Authorization`, which is a token, and [servers.login], which gets one";
        entry.reject_use("login", why);
    }
    LoginConfig {
        enabled: by_url && !has_token,
        ..rules
    }
}

/// Rejects logins for servers over gRPC.
fn reject_login_over_grpc(entry: &mut Section<'_, '_, '_>) -> LoginConfig {
    let written = entry.value("login");
    if written.is_some_and(|value| value.get_ref().as_bool() != Some(false)) {
        let why =
            "has `transport = \"grpc\"`: no login is made there, its token stands in `headers`";
        entry.reject_use("login", why);
    }
    LoginConfig::disabled()
}

fn read_keys(section: &mut Section<'_, '_, '_>) -> LoginConfig {
    let mut rules = LoginConfig::with_browser();
    section.choice("grant", &GRANTS, &mut rules.grant);
    let owners = [("machine", false), ("agent", true)];
    section.choice("of", &owners, &mut rules.per_agent);
    if rules.per_agent && rules.grant.is_unattended() {
        let why =
            "has `of = \"agent\"`, for whom a person signs in, and a `grant` without a person";
        section.reject_use("of", why);
    }
    section.strings("scopes", &mut rules.scopes);
    for (key, into) in [
        ("client_id", &mut rules.client_id),
        ("exchange_client_id", &mut rules.exchange_client_id),
        ("issuer", &mut rules.issuer),
        ("exchange_at", &mut rules.exchange_endpoint),
        ("callback", &mut rules.callback),
    ] {
        let Some(text) = section.text(key) else {
            continue;
        };
        let value = section.resolve(key, &text);
        let is_wrong = match key {
            _ if value.is_empty() => false,
            "client_id" | "exchange_client_id" => false,
            "callback" => !value.starts_with("http://") || parse_safe_url(key, &value).is_err(),
            _ => parse_safe_url(key, &value).is_err(),
        };
        if is_wrong {
            let why = match key {
                "callback" => {
                    " wants an address of this machine such as http://127.0.0.1:7333/callback"
                }
                _ => " wants an https:// address",
            };
            section.reject_key(text.span(), key, why);
        }
        *into = Some(value);
    }
    let names = ["client_secret", "client_key", "assertion"];
    let written: BTreeMap<&str, Spanned<&str>> = names
        .iter()
        .filter_map(|key| Some((*key, section.text(key)?)))
        .collect();
    let mut resolved = section.resolve_secrets("login", &written);
    LoginConfig {
        client_secret: resolved.remove("client_secret"),
        client_key: resolved.remove("client_key"),
        assertion: resolved.remove("assertion"),
        ..rules
    }
}
