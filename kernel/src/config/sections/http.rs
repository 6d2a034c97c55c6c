//! `[http]` and `[http.tls]`: the HTTP listener.

pub(crate) mod lite;
pub(crate) mod oauth;
pub(crate) mod telemetry;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mgp_transports::http::listener_tls::{ClientAuth, TlsFiles};
use toml::Spanned;

use crate::config::parsing::Section;

const DAY: u64 = 86_400;

/// `[http]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpConfig {
    /// Whether there is an HTTP listener.
    pub(crate) enabled: bool,
    /// Whether the console is served at `/`.
    pub(crate) console: bool,
    /// The listen address; on loopback, unless there is TLS.
    pub(crate) listen: SocketAddr,
    /// `[http.tls]`: the certificate, and the accepted client certificates.
    pub(crate) tls: Option<TlsFiles>,
    /// How callers authenticate.
    pub(crate) auth: HttpAuth,
    /// Accepted `Host` headers besides those of the listen address.
    pub(crate) allowed_hosts: Vec<String>,
    /// Accepted `Origin` headers besides those of the listen address.
    pub(crate) allowed_origins: Vec<String>,
    /// Most legacy sessions; one more is rejected.
    pub(crate) max_sessions: usize,
    /// Idle time after which a session is ended.
    pub(crate) session_idle: Duration,
    /// Bytes of agents' messages in flight, partly received or being answered, in total; a quarter of them for one
    /// agent.
    pub(crate) max_bodies: u64,
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

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            console: true,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7332)),
            tls: None,
            auth: HttpAuth::Token,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_sessions: 10_000,
            session_idle: Duration::from_secs(1800),
            // Sixteen of the longest messages, four of one agent.
            max_bodies: 128 << 20,
        }
    }
}

impl HttpConfig {
    pub(crate) fn read(&mut self, mut section: Section<'_, '_, '_>, folder: &Path) {
        section.flag("enabled", &mut self.enabled);
        section.flag("console", &mut self.console);
        let auths = [
            ("token", HttpAuth::Token),
            ("oauth", HttpAuth::OAuth),
            ("none", HttpAuth::None),
        ];
        section.choice("auth", &auths, &mut self.auth);
        read_tls(section.subsection("tls", "http.tls"), folder, &mut self.tls);
        // Checked even if it is not in this file: another file may have changed what it requires.
        let text = section.text("listen");
        let address = text.as_ref().map_or(Ok(self.listen), parse_listen_address);
        match address.and_then(|address| self.check_listen_address(address)) {
            Ok(address) => self.listen = address,
            Err(message) => {
                let span = text.map_or_else(|| section.start_span(), |text| text.span());
                section.reject(span, message);
            }
        }
        section.strings("allowed_hosts", &mut self.allowed_hosts);
        section.strings("allowed_origins", &mut self.allowed_origins);
        section.count("max_sessions", 1..=65_536, &mut self.max_sessions);
        section.secs("session_idle_secs", 10..=30 * DAY, &mut self.session_idle);
        // With less an agent could not send one of the longest messages.
        section.count("max_bodies_bytes", 32 << 20..=1 << 40, &mut self.max_bodies);
        section.finish();
    }

    /// Rejects access from other machines without TLS or without authentication (MCP-082).
    fn check_listen_address(&self, address: SocketAddr) -> Result<SocketAddr, String> {
        let reached = format!("`listen` in [http] is {address}, which other machines can reach;");
        let clients = self.tls.as_ref().map(|papers| papers.client_auth.as_ref());
        match (address.ip().is_loopback(), clients, self.auth) {
            (true, _, _) | (false, Some(_), HttpAuth::Token | HttpAuth::OAuth) => Ok(address),
            (false, Some(Some(clients)), HttpAuth::None) if clients.required => Ok(address),
            (false, Some(_), HttpAuth::None) => Err(format!(
                "{reached} with `auth` = \"none\" every one of them could call. Set `auth` to \
                 \"token\" or \"oauth\", or name a `client_ca` in [http.tls]"
            )),
            (false, None, _) => Err(format!(
                "{reached} without TLS every token and every answer would cross the network in the \
                 clear. Give the door a `cert` and a `key` in [http.tls], or listen on 127.0.0.1 or [::1]"
            )),
        }
    }
}

/// Reads `http.listen`.
fn parse_listen_address(text: &Spanned<&str>) -> Result<SocketAddr, String> {
    let text = *text.get_ref();
    let numbers = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numbers.parse().map_err(|_| {
        "`listen` in [http] wants an address and a port, like 127.0.0.1:7332 or [::1]:7332"
            .to_owned()
    })
}

/// `[http.tls]`; relative paths start at `folder`, which is the file's. The files are read later.
fn read_tls(mut section: Section<'_, '_, '_>, folder: &Path, into: &mut Option<TlsFiles>) {
    let whole = section.start_span();
    let [cert, key, client_ca] =
        ["cert", "key", "client_ca"].map(|key| read_path(&mut section, key, folder));
    let client_auth = section.span("client_auth");
    let mut required = true;
    let ways = [("required", true), ("optional", false)];
    section.choice("client_auth", &ways, &mut required);
    match (cert, key, &client_ca) {
        (Some(cert), Some(key), _) => {
            let clients = client_ca.clone().map(|ca| ClientAuth { ca, required });
            *into = Some(TlsFiles {
                cert,
                key,
                client_auth: clients,
            });
        }
        (None, None, None) if client_auth.is_none() => {}
        (Some(_) | None, _, _) => {
            let words =
                "[http.tls] wants both: `cert`, the door's certificate, and `key`, its private key";
            section.reject(whole, words);
        }
    }
    if let (Some(span), None) = (client_auth, client_ca) {
        let words = "`client_auth` in [http.tls] says nothing without `client_ca`: the authority that signs the certificates of clients";
        section.reject(span, words);
    }
    section.finish();
}

fn read_path(
    section: &mut Section<'_, '_, '_>,
    key: &'static str,
    folder: &Path,
) -> Option<PathBuf> {
    let text = section.text(key)?;
    if text.get_ref().is_empty() {
        section.reject(text.span(), format!("`{key}` in [http.tls] is empty"));
    }
    Some(folder.join(text.get_ref()))
}
