//! `[servers.login]`: the kernel's login at an HTTP server.

use std::collections::BTreeMap;
use std::path::Path;

use mgp_engine::servers::login::{LoginConfig, LoginGrant, parse_safe_url};
use mgp_engine::servers::spec::{ServerTransport, UrlProtocol};
use toml::Spanned;

use crate::config::parsing::{Env, SecretsConfig, Section, Values};

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
    folder: &Path,
    env: &Env<'_>,
    secrets: &SecretsConfig,
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
    let span = entry.span("login");
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
    let rules = read_keys(entry, folder, env, secrets);
    let name = entry.name().to_owned();
    match (span, by_url, has_token) {
        (Some(span), false, _) if reach.is_some() => entry.reject(
            span,
            format!("{name} is started by a command: [servers.login] is for servers at a `url`"),
        ),
        (Some(span), true, true) => entry.reject(
            span,
            format!("{name} has both: `headers.Authorization`, which is a token, and [servers.login], which gets one"),
        ),
        _ => {}
    }
    LoginConfig {
        enabled: by_url && !has_token,
        ..rules
    }
}

/// Rejects logins for servers over gRPC.
fn reject_login_over_grpc(entry: &mut Section<'_, '_, '_>) -> LoginConfig {
    let span = entry.span("login");
    let off = entry
        .value("login")
        .is_none_or(|value| value.get_ref().as_bool() == Some(false));
    if let (false, Some(span)) = (off, span) {
        let message = format!(
            "{} has `transport = \"grpc\"`: no login is made there, its token stands in `headers`",
            entry.name()
        );
        entry.reject(span, message);
    }
    LoginConfig::disabled()
}

fn read_keys(
    entry: &mut Section<'_, '_, '_>,
    folder: &Path,
    env: &Env<'_>,
    secrets: &SecretsConfig,
) -> LoginConfig {
    let mut section = entry.subsection("login", "servers.login");
    let mut rules = LoginConfig::with_browser();
    section.choice("grant", &GRANTS, &mut rules.grant);
    let owners = [("machine", false), ("agent", true)];
    section.choice("of", &owners, &mut rules.per_agent);
    if let (true, true, Some(span)) = (
        rules.per_agent,
        rules.grant.is_unattended(),
        section.span("of"),
    ) {
        let name = section.name().to_owned();
        let message = format!(
            "{name} has `of = \"agent\"`, for whom a person signs in, and a `grant` without a person"
        );
        section.reject(span, message);
    }
    section.strings("scopes", &mut rules.scopes);
    let mut values = Values::new(folder, env, secrets);
    let mut plain = |section: &mut Section<'_, '_, '_>, key| {
        let text = section.text(key)?;
        Some(Spanned::new(text.span(), values.resolve(key, &text)))
    };
    let [issuer, exchange_at, callback] =
        ["issuer", "exchange_at", "callback"].map(|key| plain(&mut section, key));
    let [client_id, exchange_client_id] =
        ["client_id", "exchange_client_id"].map(|key| plain(&mut section, key));
    for (key, url) in [
        ("issuer", &issuer),
        ("exchange_at", &exchange_at),
        ("callback", &callback),
    ] {
        let Some(url) = url else { continue };
        let is_local = key != "callback" || url.get_ref().starts_with("http://");
        if !url.get_ref().is_empty() && (parse_safe_url(key, url.get_ref()).is_err() || !is_local) {
            let expected = match key {
                "callback" => "an address of this machine such as http://127.0.0.1:7333/callback",
                _ => "an https:// address",
            };
            section.reject(
                url.span(),
                format!("`{key}` in {} wants {expected}", section.name()),
            );
        }
    }
    let names = ["client_secret", "client_key", "assertion"];
    let written: BTreeMap<&str, Spanned<&str>> = names
        .iter()
        .filter_map(|key| Some((*key, section.text(key)?)))
        .collect();
    let mut had = values.resolve_secrets("login", &written);
    values.report_errors(&mut section);
    section.finish();
    let text = |value: Option<Spanned<String>>| value.map(Spanned::into_inner);
    LoginConfig {
        issuer: text(issuer),
        exchange_endpoint: text(exchange_at),
        callback: text(callback),
        client_id: text(client_id),
        exchange_client_id: text(exchange_client_id),
        client_secret: had.remove("client_secret"),
        client_key: had.remove("client_key"),
        assertion: had.remove("assertion"),
        ..rules
    }
}
