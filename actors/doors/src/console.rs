//! Sign-in to the console: the operator's links, and the signed-in browsers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::uri::Authority;
use mgp_callers::Credential;
use mgp_engine::doors::agent_registry::TokenDigest;
use mgp_engine::doors::console_sessions::{BadSignInLink, BrowserSecrets, ConsoleSessions};
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::audit::{EventType, Outcome, Target, TraceId};
use mgp_runtime::randomness;
use mgp_runtime::time::unix_ms;
use mgp_store::audit::{self, AuditHandle};
use mgp_transports::http::guard::AllowList;
use mgp_transports::http::server::HttpListener;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::session::Sessions;

/// Why the console is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsoleUnavailable {
    /// There is no HTTP endpoint.
    #[error("the console is at the HTTP door, and that is closed; set `enabled = true` in [http]")]
    NoHttpEndpoint,
    /// The console is disabled.
    #[error(
        "the console is switched off; set `console = true` in [http], and start the kernel again"
    )]
    Disabled,
    /// The endpoint is on a network, without TLS.
    #[error(
        "the console is not shown in the clear on a network; let [http] listen on 127.0.0.1, or give it a \
         certificate in [http.tls]"
    )]
    PlaintextOnNetwork,
}

/// The console of a kernel.
#[derive(Debug)]
pub struct Console {
    state: Mutex<ConsoleState>,
    audit: AuditHandle,
    /// Set once the HTTP endpoint is open; `None` if that serves no console.
    address: OnceLock<Option<ConsoleAddress>>,
}

#[derive(Debug, Default)]
struct ConsoleState {
    sign_ins: ConsoleSessions,
    /// Cancelled at the sign-out of each browser.
    sign_in_ends: HashMap<u64, CancellationToken>,
}

/// The address of the console.
#[derive(Debug)]
struct ConsoleAddress {
    address: SocketAddr,
    secure: bool,
    /// The configured hosts that clients write in the URL.
    allowed: AllowList,
    sessions: Arc<Sessions>,
}

/// The secrets that a browser gets for a valid link; they are not stored in clear.
pub(crate) struct NewSignIn {
    /// For the cookie.
    pub(crate) cookie: String,
    /// For the page.
    pub(crate) page_key: String,
    /// When both end, in milliseconds since 1970.
    pub(crate) until_ms: u64,
}

impl Console {
    /// A console without signed-in browsers.
    #[must_use]
    pub fn new(audit: AuditHandle) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            audit,
            address: OnceLock::new(),
        })
    }

    /// Sets the address of the open HTTP endpoint, with TLS if `secure`; browsers may also reach it as one
    /// of the `configured` hosts.
    pub fn set_address(
        &self,
        address: SocketAddr,
        secure: bool,
        configured: AllowList,
        sessions: Arc<Sessions>,
    ) {
        let _ = self.address.set(Some(ConsoleAddress {
            address,
            secure,
            allowed: configured,
            sessions,
        }));
    }

    /// Records that the HTTP endpoint serves no console.
    pub fn set_unavailable(&self) {
        let _ = self.address.set(None);
    }

    /// True if the console is served.
    pub(crate) fn is_open(&self) -> bool {
        self.address().is_some()
    }

    fn address(&self) -> Option<&ConsoleAddress> {
        self.address.get()?.as_ref()
    }

    /// Creates a link that signs in the next browser that opens it.
    ///
    /// # Errors
    /// [`ConsoleUnavailable`].
    pub fn create_sign_in_link(&self) -> Result<String, ConsoleUnavailable> {
        let address = self
            .address
            .get()
            .ok_or(ConsoleUnavailable::NoHttpEndpoint)?;
        let address = address.as_ref().ok_or(ConsoleUnavailable::Disabled)?;
        let at = HttpListener::reachable_address(address.address);
        if !address.secure && !at.ip().is_loopback() {
            return Err(ConsoleUnavailable::PlaintextOnNetwork);
        }
        let code = new_secret();
        self.state()
            .sign_ins
            .add_link(TokenDigest::new(&code), unix_ms());
        let scheme = if address.secure { "https" } else { "http" };
        Ok(format!("{scheme}://{at}/#{code}"))
    }

    /// True if the endpoint uses TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.address().is_some_and(|address| address.secure)
    }

    /// True if a browser with this authority in its URL reached this endpoint directly, and not a program
    /// at another port that forwards its requests. The guard checks the name.
    pub(crate) fn is_reachable_at(&self, authority: &Authority) -> bool {
        self.address().is_some_and(|address| {
            let default = if address.secure { 443 } else { 80 };
            let port = authority.port_u16().unwrap_or(default);
            port == address.address.port() || address.allowed.is_configured_host(authority.as_str())
        })
    }

    /// The name of the cookie. It is specific to this kernel, because all ports of a host share their
    /// cookies.
    pub(crate) fn cookie_name(&self) -> String {
        let port = self.address().map_or(0, |address| address.address.port());
        format!("mgp_console_{port}")
    }

    /// Signs in a browser with the code of a link.
    ///
    /// # Errors
    /// [`BadSignInLink`].
    pub(crate) fn sign_in(&self, code: &str) -> Result<NewSignIn, BadSignInLink> {
        let (cookie, page_key) = (new_secret(), new_secret());
        let secrets = secrets(&cookie, &page_key);
        let (browser, ended) = {
            let mut state = self.state();
            let signed_in = state
                .sign_ins
                .sign_in(TokenDigest::new(code), secrets, unix_ms())?;
            let sign_in_end = CancellationToken::new();
            state.sign_in_ends.insert(signed_in.0.id, sign_in_end);
            signed_in
        };
        self.end_sign_ins(&ended);
        self.record_event(EventType::CONSOLE_SIGNED_IN, 1);
        Ok(NewSignIn {
            cookie,
            page_key,
            until_ms: browser.expires_ms,
        })
    }

    /// The number of a browser with valid secrets, and its credential; `None` for all others.
    pub(crate) fn authenticate(&self, cookie: &str, page_key: &str) -> Option<(u64, Credential)> {
        let state = self.state();
        let browser = state
            .sign_ins
            .authenticate(secrets(cookie, page_key), unix_ms())?;
        let sign_in_end = state.sign_in_ends.get(&browser.id)?.clone();
        let pass = Credential::for_operator(sign_in_end).with_expiry(Some(browser.expires_ms));
        Some((browser.id, pass))
    }

    /// Signs a browser out.
    pub(crate) fn sign_out(&self, number: u64) {
        if self.state().sign_ins.sign_out(number) {
            self.end_sign_ins(&[number]);
            self.record_event(EventType::CONSOLE_SIGNED_OUT, 1);
        }
    }

    /// Signs every browser out; returns their number.
    pub fn sign_out_all(&self) -> usize {
        let ended = self.state().sign_ins.sign_out_all();
        self.end_sign_ins(&ended);
        if !ended.is_empty() {
            self.record_event(EventType::CONSOLE_SIGNED_OUT, ended.len());
        }
        ended.len()
    }

    /// Ends the requests and connections of these browsers. Sessions are not counted by browser: other
    /// browsers open new ones.
    fn end_sign_ins(&self, numbers: &[u64]) {
        for number in numbers {
            if let Some(sign_in_end) = self.state().sign_in_ends.remove(number) {
                sign_in_end.cancel();
            }
        }
        if let Some(address) = self.address().filter(|_| !numbers.is_empty()) {
            address
                .sessions
                .close_agent_sessions(&AgentId::new("operator"));
        }
    }

    fn record_event(&self, event_type: EventType, browsers: usize) {
        let trace = TraceId::from_random(randomness::random_bytes());
        self.audit.record(audit::new_event(
            event_type,
            audit::operator_actor(),
            Target::default(),
            &trace,
            Outcome::Success,
            json!({ "browsers": browsers }),
        ));
    }

    fn state(&self) -> MutexGuard<'_, ConsoleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 256 random bits.
fn new_secret() -> String {
    URL_SAFE_NO_PAD.encode(randomness::random_bytes::<32>())
}

fn secrets(cookie: &str, page_key: &str) -> BrowserSecrets {
    BrowserSecrets {
        cookie: TokenDigest::new(cookie),
        page_key: TokenDigest::new(page_key),
    }
}
