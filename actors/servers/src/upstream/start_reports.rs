//! Progress of the start that a call waits for.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::refusal::Refusal;

use crate::link::Link;
use crate::server::ServerHandle;
use mgp_callers::Delivery;
use mgp_callers::request::Request;

/// How often a caller is told that its call waits.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Waits for the connection, and reports the start to a caller that gave a progress token.
pub(super) async fn with_progress(
    request: &Request,
    handle: &ServerHandle,
    connecting: impl Future<Output = Result<Arc<Link>, Refusal>>,
) -> Result<Arc<Link>, Refusal> {
    let token = request.params.as_deref().map(progress_token);
    let Some(Ok(Some(token))) = token else {
        return connecting.await;
    };
    tokio::select! {
        biased;
        connection = connecting => connection,
        never = report(request, handle, token.get()) => match never {},
    }
}

async fn report(request: &Request, handle: &ServerHandle, token: &str) -> Infallible {
    handle.wait_until_starting().await;
    let mut step = 0_u64;
    loop {
        step += 1;
        if let Some(start) = handle.describe_start() {
            // Below the first step of any server, because progress must increase.
            let params = format!(
                r#"{{"progressToken":{token},"progress":{},"message":{}}}"#,
                render_step(step),
                mgp_json::quote(&start)
            );
            let frame = jsonrpc::notification("notifications/progress", Some(&params));
            request.call.send(frame.into(), Delivery::Lossy);
        }
        tokio::time::sleep(REPORT_INTERVAL).await;
    }
}

fn render_step(step: u64) -> String {
    format!("0.{step:06}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_increase_and_stay_below_the_servers_own() {
        let steps = [1, 2, 60, 86_400].map(|step| render_step(step).parse::<f64>().unwrap());
        assert!(steps.is_sorted() && steps[3] < 0.1, "{steps:?}");
        assert!(serde_json::from_str::<serde_json::Number>(&render_step(1)).is_ok());
    }
}
