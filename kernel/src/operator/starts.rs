//! Servers that are started: waited for until they have settled, with what they write on the way.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mgp_callers::exchange::Delivery;
use mgp_callers::request::{Outcome, Request};
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::supervision::RollStatus;
use mgp_protocol::jsonrpc;
use mgp_protocol::mgp::servers;
use mgp_protocol::refusal::Refusal;
use mgp_servers::server::{ResourceLook, ServerHandle, ServerMsg, Start, Status};
use tokio::sync::watch;

use super::{Operator, SETTLE, json, read, tell};

impl Operator {
    /// `mgp/servers/start`: answered when the server is connected or has failed.
    ///
    /// # Errors
    /// Unknown server.
    pub async fn start(&self, request: &Request) -> Outcome {
        let start: servers::Start = read(request)?;
        let handle = self.find(&start.id)?;
        // A person may have signed in just now.
        self.logins.look_again(&handle.id).await;
        if handle.state() == LifecycleState::Connected {
            return json(&self.report(&handle, &ResourceLook::default()));
        }
        let waiting = WaitingForStart::from_now(&handle, start.log);
        tell(&handle, ServerMsg::Start { by_operator: true })?;
        self.settled(request, &handle, waiting).await
    }

    /// `mgp/servers/restart`: answered when the server is connected again or has failed.
    ///
    /// # Errors
    /// Unknown server.
    pub async fn restart(&self, request: &Request) -> Outcome {
        let restart: servers::Restart = read(request)?;
        let handle = self.find(&restart.id)?;
        let waiting = WaitingForStart::from_now(&handle, restart.log);
        let how = match (restart.rolling, handle.status().rolls) {
            (true, false) => return Err(gapless_is_off(&restart.id)),
            (true, true) => ServerMsg::Roll,
            (false, _) => ServerMsg::Restart,
        };
        tell(&handle, how)?;
        self.settled(request, &handle, waiting).await
    }

    /// `mgp/servers/wait`: answered when a server that is being started is connected or has failed.
    ///
    /// # Errors
    /// Unknown server.
    pub async fn wait(&self, request: &Request) -> Outcome {
        let wait: servers::Wait = read(request)?;
        let handle = self.find(&wait.id)?;
        let status = handle.status();
        if has_settled(&status) || !status.state.comes_up(status.due) {
            return json(&self.report(&handle, &ResourceLook::default()));
        }
        let before = status.start.as_ref().map_or(0, Start::after);
        let waiting = WaitingForStart {
            told: wait.log.then(|| before.into()),
            ..WaitingForStart::from_now(&handle, false)
        };
        self.settled(request, &handle, waiting).await
    }

    /// Waits until a server that was told to start has done so or failed; what it writes is passed on
    /// meanwhile, where that is wanted.
    async fn settled(
        &self,
        request: &Request,
        handle: &Arc<ServerHandle>,
        waiting: WaitingForStart,
    ) -> Outcome {
        let WaitingForStart { status, told } = waiting;
        let writing = async {
            if let Some(told) = &told {
                self.follow(request, handle, told).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = tokio::time::timeout(SETTLE, walk(request, status)) => {}
            () = writing => {}
            () = request.exchange.cancelled() => return Err(Refusal::Cancelled),
        }
        if let Some(told) = &told {
            self.catch_up(request, handle, told);
        }
        // The lists are published a moment after the handshake.
        json(&self.report(handle, &ResourceLook::default()))
    }
}

/// What is seen of a start from a moment on.
struct WaitingForStart {
    status: watch::Receiver<Status>,
    /// The last line of its log that the caller knows; `None` where it wants none.
    told: Option<AtomicU64>,
}

impl WaitingForStart {
    fn from_now(handle: &ServerHandle, log: bool) -> Self {
        let newest = || (*handle.log.follow().borrow()).into();
        Self {
            status: handle.follow(),
            told: log.then(newest),
        }
    }
}

/// Resolves when the server has settled; tells the steps on the way as progress.
async fn walk(request: &Request, mut status: watch::Receiver<Status>) {
    let mut steps = 0;
    while status.changed().await.is_ok() {
        let now = status.borrow_and_update().clone();
        steps += 1;
        let said = format!("{}: {}", now.state, now.reason);
        progress(request, steps, None, &said);
        if has_settled(&now) {
            return;
        }
    }
}

/// It takes calls, has failed, or waits: for its next try or for a person.
fn has_settled(now: &Status) -> bool {
    let backing_off = now.state == LifecycleState::Restarting && now.pid.is_none();
    // One that is stopped before it was up passes through `error` on its way to the next start.
    let failed = now.state == LifecycleState::Error && !now.due;
    let connected = now.state == LifecycleState::Connected && now.roll != RollStatus::UnderWay;
    backing_off || failed || now.waiting || connected
}

fn gapless_is_off(id: &str) -> Refusal {
    Refusal::BadParams(format!(
        "server {id} is not known to be one of which two may run at once; where it owns no files or ports \
         alone, write `restart_mode = \"rolling\"` into its entry, or leave out --rolling"
    ))
}

/// Tells who asked for it how far it is.
pub(super) fn progress(request: &Request, step: u64, of: Option<u64>, message: &str) {
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
        mgp_protocol::splice::quoted(message)
    );
    let frame = jsonrpc::notification("notifications/progress", Some(&params));
    request.exchange.send(frame.into(), Delivery::Lossy);
}
