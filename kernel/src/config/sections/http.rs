//! `[http]` and `[http.tls]`: the HTTP listener.

pub(crate) mod broker;
pub(crate) mod lite;
pub(crate) mod oauth;
pub(crate) mod telemetry;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use mgp_transports::http::listener_tls::{ClientAuth, TlsFiles};

use super::{DAY, section};
use crate::config::parsing::Section;

section! {
    /// `[http]`.
    HttpConfig {
        /// Whether there is an HTTP listener.
        enabled: bool = true, flag("enabled");
        /// Whether the console is served at `/`.
        console: bool = true, flag("console");
        /// How callers authenticate.
        auth: HttpAuth = HttpAuth::Token, choice("auth", &AUTHS);
        /// `[http.tls]`: the certificate, and the accepted client certificates.
        tls: Option<TlsFiles> = None, read_with(read_tls);
        /// The listen address; on loopback, unless there is TLS.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 7332)), read_with(read_listen_address);
        /// Accepted `Host` headers besides those of the listen address.
        allowed_hosts: Vec<String> = Vec::new(), strings("allowed_hosts");
        /// Accepted `Origin` headers besides those of the listen address.
        allowed_origins: Vec<String> = Vec::new(), strings("allowed_origins");
        /// The name in the card of this gateway, which is published for everybody if there is one (SEP-2127).
        server_card: Option<String> = None, read_with(read_server_card);
        /// Most legacy sessions; one more is rejected.
        max_sessions: usize = 10_000, count("max_sessions", 1..=65_536);
        /// Idle time after which a session is ended.
        session_idle: Duration = Duration::from_secs(1800), secs("session_idle_secs", 10..=30 * DAY);
        /// Bytes of agents' messages in flight, partly received or being answered, in total; a quarter of them for one
        /// agent. By default sixteen of the longest messages; with less than the bound an agent could not send one.
        max_bodies: u64 = 128 << 20, count("max_bodies_bytes", 32 << 20..=1 << 40);
        => Self::check_listen_address;
    }
}

/// `[http] auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpAuth {
    /// A bearer token that the kernel issued.
    Token,
    /// A bearer token that the issuer of `[oauth]` issued.
    OAuth,
    /// None: every caller is `agent.anonymous`.
    None,
}

const AUTHS: [(&str, HttpAuth); 3] = [
    ("token", HttpAuth::Token),
    ("oauth", HttpAuth::OAuth),
    ("none", HttpAuth::None),
];

impl HttpConfig {
    /// Rejects access from other machines without TLS or without authentication (MCP-082), even if the address is not in
    /// this file: it may have changed what the address requires.
    fn check_listen_address(&mut self, section: &mut Section<'_, '_, '_>) {
        let address = self.listen;
        let reached = format!("`listen` in [http] is {address}, which other machines can reach;");
        let clients = self.tls.as_ref().map(|tls| tls.client_auth.as_ref());
        let message = match (address.ip().is_loopback(), clients, self.auth) {
            (true, _, _) | (false, Some(_), HttpAuth::Token | HttpAuth::OAuth) => return,
            (false, Some(Some(clients)), HttpAuth::None) if clients.required => return,
            (false, Some(_), HttpAuth::None) => format!(
                "{reached} with `auth` = \"none\" every one of them could call. Set `auth` to \
                 \"token\" or \"oauth\", or name a `client_ca` in [http.tls]"
            ),
            (false, None, _) => format!(
                "{reached} without TLS every token and every answer would cross the network in the \
                 clear. Give the door a `cert` and a `key` in [http.tls], or listen on 127.0.0.1 or [::1]"
            ),
        };
        let span = section.span("listen");
        section.reject(span.unwrap_or_else(|| section.start_span()), message);
    }
}

fn read_listen_address(section: &mut Section<'_, '_, '_>, into: &mut SocketAddr) {
    let Some(text) = section.text("listen") else {
        return;
    };
    let numbers = match text.get_ref().strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.get_ref().to_string(),
    };
    match numbers.parse() {
        Ok(address) => *into = address,
        Err(_) => section.reject_key(
            text.span(),
            "listen",
            " wants an address and a port, like 127.0.0.1:7332 or [::1]:7332",
        ),
    }
}

/// A name as the schema of cards has it: `namespace/name`, with a reversed domain as its namespace.
fn read_server_card(section: &mut Section<'_, '_, '_>, into: &mut Option<String>) {
    let Some(text) = section.text("server_card") else {
        return;
    };
    let is_word = |word: &str, more: &str| {
        let mut letters = word.chars();
        !word.is_empty() && letters.all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    let name = text.get_ref().to_string();
    let parts = name.split_once('/');
    let is_name = parts.is_some_and(|(space, name)| is_word(space, ".-") && is_word(name, "._-"));
    if is_name && name.len() <= 200 {
        *into = Some(name);
    } else {
        section.reject_key(
            text.span(),
            "server_card",
            " wants a name like \"com.example/gateway\": a reversed domain, and the name of the gateway there",
        );
    }
}

/// `[http.tls]`. The files are read later.
fn read_tls(http: &mut Section<'_, '_, '_>, into: &mut Option<TlsFiles>) {
    http.subsection("tls", |section| {
        let [mut cert, mut key, mut client_ca]: [Option<PathBuf>; 3] = Default::default();
        section.path("cert", &mut cert);
        section.path("key", &mut key);
        section.path("client_ca", &mut client_ca);
        let client_auth = section.span("client_auth");
        let mut required = true;
        let ways = [("required", true), ("optional", false)];
        section.choice("client_auth", &ways, &mut required);
        match (cert, key, &client_ca) {
            (Some(cert), Some(key), _) => {
                let client_auth = client_ca.clone().map(|ca| ClientAuth { ca, required });
                *into = Some(TlsFiles {
                    cert,
                    key,
                    client_auth,
                });
            }
            (None, None, None) if client_auth.is_none() => {}
            (Some(_) | None, _, _) => section.reject(
                section.start_span(),
                "[http.tls] wants both: `cert`, the door's certificate, and `key`, its private key",
            ),
        }
        if let (Some(span), None) = (client_auth, client_ca) {
            let why = " says nothing without `client_ca`: the authority that signs the certificates of clients";
            section.reject_key(span, "client_auth", why);
        }
    });
}
