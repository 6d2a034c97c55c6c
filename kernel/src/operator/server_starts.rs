//! Starts of servers: waits until they have settled, and forwards their log meanwhile.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mgp_callers::Delivery;
use mgp_callers::request::{Outcome, Request};
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::supervision::RollStatus;
use mgp_protocol::jsonrpc;
use mgp_protocol::mgp::servers;
use mgp_protocol::refusal::Refusal;
use mgp_servers::{ResourceSnapshot, ServerHandle, ServerMsg, StartProgress, Status};
use tokio::sync::watch;

use super::{Operator, SETTLE_TIMEOUT, json, read, send_to_server};

impl Operator {
    /// `mgp/servers/start`: answered when the server is connected or has failed.
    ///
    /// # Errors
    /// Unknown server.
    pub(crate) async fn start_server(&self, request: &Request) -> Outcome {
        let start: servers::Start = read(request)?;
        let handle = self.find_server(&start.id)?;
        // The user may have signed in just now.
        self.logins.reload(&handle.id).await;
        if handle.state() == LifecycleState::Connected {
            return json(&self.server_report(&handle, &ResourceSnapshot::default()));
        }
        let waiting = StartWatch::from_now(&handle, start.log);
        send_to_server(&handle, ServerMsg::Start { by_operator: true })?;
        self.wait_until_settled(request, &handle, waiting).await
    }

    /// `mgp/servers/restart`: answered when the server is connected again or has failed.
    ///
    /// # Errors
    /// Unknown server.
    pub(crate) async fn restart_server(&self, request: &Request) -> Outcome {
        let restart: servers::Restart = read(request)?;
        let handle = self.find_server(&restart.id)?;
        let waiting = StartWatch::from_now(&handle, restart.log);
        let how = match (restart.rolling, handle.status().can_roll) {
            (true, false) => return Err(rolling_unavailable(&restart.id)),
            (true, true) => ServerMsg::Roll,
            (false, _) => ServerMsg::Restart,
        };
        send_to_server(&handle, how)?;
        self.wait_until_settled(request, &handle, waiting).await
    }

    /// `mgp/servers/wait`: answered when a starting server is connected or has failed.
    ///
    /// # Errors
    /// Unknown server.
    pub(crate) async fn wait_for_server(&self, request: &Request) -> Outcome {
        let wait: servers::Wait = read(request)?;
        let handle = self.find_server(&wait.id)?;
        let status = handle.status();
        if has_settled(&status)
            || !status
                .state
                .can_accept_calls_soon(status.starts_automatically)
        {
            return json(&self.server_report(&handle, &ResourceSnapshot::default()));
        }
        let before = status.start.as_ref().map_or(0, StartProgress::log_position);
        let waiting = StartWatch {
            last_sent_line: wait.log.then(|| before.into()),
            ..StartWatch::from_now(&handle, false)
        };
        self.wait_until_settled(request, &handle, waiting).await
    }

    /// Waits until a starting server has settled; forwards its log meanwhile if requested.
    async fn wait_until_settled(
        &self,
        request: &Request,
        handle: &Arc<ServerHandle>,
        waiting: StartWatch,
    ) -> Outcome {
        let StartWatch {
            status,
            last_sent_line: last_sent,
        } = waiting;
        let writing = async {
            if let Some(last_sent) = &last_sent {
                self.follow_log(request, handle, last_sent).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = tokio::time::timeout(SETTLE_TIMEOUT, report_steps(request, status)) => {}
            () = writing => {}
            () = request.call.wait_until_cancelled() => return Err(Refusal::Cancelled),
        }
        if let Some(last_sent) = &last_sent {
            self.push_new_lines(request, handle, last_sent);
        }
        // The lists are published a moment after the handshake.
        json(&self.server_report(handle, &ResourceSnapshot::default()))
    }
}

/// Observes a start from a moment on.
struct StartWatch {
    status: watch::Receiver<Status>,
    /// The last line of its log that the caller has; `None` if it wants none.
    last_sent_line: Option<AtomicU64>,
}

impl StartWatch {
    fn from_now(handle: &ServerHandle, log: bool) -> Self {
        let newest = || (*handle.log.follow().borrow()).into();
        Self {
            status: handle.watch_status(),
            last_sent_line: log.then(newest),
        }
    }
}

/// Reports the steps as progress; resolves when the server has settled.
async fn report_steps(request: &Request, mut status: watch::Receiver<Status>) {
    let mut steps = 0;
    while status.changed().await.is_ok() {
        let now = status.borrow_and_update().clone();
        steps += 1;
        let message = format!("{}: {}", now.state, now.reason);
        notify_progress(request, steps, None, &message);
        if has_settled(&now) {
            return;
        }
    }
}

/// It takes calls, has failed, or waits for a retry or for a person.
fn has_settled(now: &Status) -> bool {
    let backing_off = now.state == LifecycleState::Restarting && now.pid.is_none();
    // A server that is stopped while starting passes through `error` on its way to the next start.
    let failed = now.state == LifecycleState::Error && !now.starts_automatically;
    let connected = now.state == LifecycleState::Connected && now.roll != RollStatus::InProgress;
    backing_off || failed || now.awaits_operator || connected
}

fn rolling_unavailable(id: &str) -> Refusal {
    Refusal::BadParams(format!(
        "server {id} is not known to be one of which two may run at once; where it owns no files or ports \
         alone, write `restart_mode = \"rolling\"` into its entry, or leave out --rolling"
    ))
}

/// Reports progress to the caller.
pub(super) fn notify_progress(request: &Request, step: u64, of: Option<u64>, message: &str) {
    let Some(params) = request.params.as_deref() else {
        return;
    };
    let Ok(Some(token)) = mgp_protocol::mcp::meta::progress_token(params) else {
        return;
    };
    let total = of.map_or_else(String::new, |of| format!(r#""total":{of},"#));
    let params = format!(
        r#"{{"progressToken":{},"progress":{step},{total}"message":{}}}"#,
        token.get(),
        mgp_json::quote(message)
    );
    let frame = jsonrpc::notification("notifications/progress", Some(&params));
    request.call.send(frame.into(), Delivery::Lossy);
}
