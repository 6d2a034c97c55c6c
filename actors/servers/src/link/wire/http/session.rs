//! Detects an ended HTTP session. A refused request does not prove it, and each new handshake loses state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Method, StatusCode, Uri};
use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::supervision::session_loss::is_session_suspect;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::{Method as _, Ping};
use tokio::sync::Mutex;

use super::HttpWire;
use crate::link::Link;
use crate::login::ServerClient;
use mgp_runtime::time::monotonic_now;

/// How long the server may take to answer a probe; without an answer the session counts as alive.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The id of the kernel's own requests that are not calls; calls count from 1.
pub(in crate::link) const KERNEL_REQUEST_ID: u64 = 0;

/// What is known about the session of one connection.
#[derive(Debug, Default)]
pub(super) struct HttpSessionState {
    ended: AtomicBool,
    /// When the last probe began that found the session alive. One probe covers all refusals before it.
    confirmed_at: Mutex<Option<MonotonicTime>>,
}

impl HttpSessionState {
    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(super) fn set_ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Checks whether the session has ended, with a probe that starts after `refused_at`; `refuses` runs the
    /// probe.
    pub(super) async fn check_ended(
        &self,
        refused_at: MonotonicTime,
        refuses: impl Future<Output = bool>,
    ) -> bool {
        let mut in_force = self.confirmed_at.lock().await;
        if self.is_ended() || in_force.is_some_and(|probed_at| probed_at >= refused_at) {
            return self.is_ended();
        }
        let probed_at = monotonic_now();
        if refuses.await {
            self.set_ended()
        } else {
            *in_force = Some(probed_at)
        }
        self.is_ended()
    }
}

impl HttpWire {
    /// True once the session is known to have ended.
    #[must_use]
    pub(crate) fn is_session_ended(&self) -> bool {
        self.session.is_ended()
    }

    /// Checks whether the server refuses the whole session: with a ping, and with a declared list in case it has
    /// no ping.
    pub(super) async fn check_session_ended(&self, link: &Link, refused_at: MonotonicTime) -> bool {
        let refuses = async {
            for method in std::iter::once(Ping::METHOD).chain(declared_list(link)) {
                let headers = self.headers();
                if !is_session_refused(&self.client, &self.url, headers, method).await {
                    return false;
                }
            }
            true
        };
        self.session.check_ended(refused_at, refuses).await
    }
}

/// The method of a list that the server declares.
fn declared_list(link: &Link) -> Option<&'static str> {
    let can = link.peer_for(ProtocolFamily::Legacy)?.capabilities;
    match () {
        () if can.tools => Some("tools/list"),
        () if can.prompts => Some("prompts/list"),
        () if can.resources => Some("resources/list"),
        () => None,
    }
}

/// True if the server refuses this request because the session is unknown; false without an answer.
pub(super) async fn is_session_refused(
    client: &ServerClient,
    url: &Uri,
    headers: HeaderMap,
    method: &str,
) -> bool {
    let frame = Bytes::from(jsonrpc::request(
        &KERNEL_REQUEST_ID.to_string(),
        method,
        None,
    ));
    let request = client.request(Method::POST, url, headers, Some(frame));
    let status: Option<StatusCode> = match tokio::time::timeout(PROBE_TIMEOUT, request).await {
        Ok(Ok(response)) => Some(response.status),
        Ok(Err(_)) | Err(_) => None,
    };
    status.is_some_and(|status| is_session_suspect(status.as_u16()))
}
