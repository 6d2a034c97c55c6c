//! Calls of stateless clients to legacy servers.

use std::sync::Arc;

use mgp_json::{can_contain_string, member};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::versions::{self, StatelessExtras};

use super::{Outgoing, send_translated, translate_server_error};
use crate::link::Link;
use crate::log_levels;
use mgp_callers::request::{Outcome, Request};

/// Sends a stateless client's request to a legacy server. A callback of the server suspends the call (in the
/// `doors` crate); here only the messages are converted.
pub(super) async fn send_to_legacy(
    request: &Request,
    link: &Arc<Link>,
    outgoing: Outgoing<'_>,
) -> Outcome {
    // A `requestState` of the kernel leads to a suspended call and does not get here.
    if has_member(outgoing.params, "requestState") {
        return Err(Refusal::Expired("this kernel did not issue it".into()));
    }
    let mut aside = None;
    if let Some(level) = request.caller.log_level(&request.call) {
        log_levels::raise_level(link, level).await;
        aside = link.register_late_messages(&request.caller, &request.call);
    }
    let own = outgoing.splice_params(None).finish();
    let params = versions::to_legacy_params(&own);
    let outcome = send_translated(request, link, outgoing, ProtocolFamily::Legacy, &params).await;
    if let Some(aside) = aside {
        aside.wait_for_late_messages().await;
    }
    to_stateless_answer(request, link, outgoing.method, outcome)
}

fn has_member(params: &str, name: &str) -> bool {
    can_contain_string(params.as_bytes(), name) && member(params, name).is_some()
}

/// Converts a legacy server's answer to the stateless family.
pub(super) fn to_stateless_answer(
    request: &Request,
    link: &Link,
    method: &str,
    outcome: Outcome,
) -> Outcome {
    match outcome {
        Ok(result) => {
            let result = String::from_utf8_lossy(&result);
            let peer = link.peer_for(ProtocolFamily::Legacy);
            let extra = StatelessExtras {
                // A legacy server sends no caching hints.
                caching: (method == "resources/read").then_some((0, "private")),
                server_info: peer.and_then(|peer| peer.info.as_deref()),
            };
            Ok(versions::to_stateless_result(&result, extra).into())
        }
        Err(Refusal::Peer(error)) => {
            if let Some(callbacks) = versions::url_callbacks(error.get()) {
                return Ok(url_visit_message(&callbacks).into());
            }
            let version = request.caller.version;
            Err(translate_server_error(versions::convert_error(
                &error,
                ProtocolFamily::Legacy,
                version,
                method,
            )))
        }
        Err(other) => Err(other),
    }
}

/// The message for a stateless client if a legacy server requires URL elicitations first. The server stores no
/// state for it, so there is no `requestState`.
fn url_visit_message(callbacks: &[String]) -> String {
    let elicitations = callbacks.iter().enumerate().map(|(at, params)| {
        format!(
            r#""elicitation-{}":{{"method":"elicitation/create","params":{params}}}"#,
            at + 1
        )
    });
    let elicitations: Vec<String> = elicitations.collect();
    format!(
        r#"{{"resultType":"input_required","inputRequests":{{{}}}}}"#,
        elicitations.join(",")
    )
}
