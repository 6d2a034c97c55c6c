//! A modern caller and a legacy server.

use std::sync::Arc;

use mgp_protocol::dialect::Era;
use mgp_protocol::era::{self, Modern};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::member;
use mgp_protocol::splice::mention::may_mention;

use super::{Outgoing, of_peer, translated};
use crate::levels;
use crate::link::Link;
use mgp_callers::request::{Outcome, Request};

/// Sends a modern caller's request to a legacy server. A question of the server suspends the call (in the
/// `doors` crate); here only the messages are translated.
pub(super) async fn down(request: &Request, link: &Arc<Link>, outgoing: Outgoing<'_>) -> Outcome {
    // A `requestState` of the kernel's own leads to a suspended call and does not get here.
    if is_said(outgoing.params, "requestState") {
        return Err(Refusal::Expired("the kernel did not give it".into()));
    }
    let mut aside = None;
    if let Some(level) = request.caller.log_level(&request.exchange) {
        levels::want(link, level).await;
        aside = link.beside(&request.caller, &request.exchange);
    }
    let own = outgoing.spliced(None).finish();
    let params = era::to_legacy_params(&own);
    let outcome = translated(request, link, outgoing, Era::Legacy, &params).await;
    if let Some(aside) = aside {
        aside.late().await;
    }
    shown(request, link, outgoing.method, outcome)
}

fn is_said(params: &str, name: &str) -> bool {
    may_mention(params.as_bytes(), name) && member(params, name).is_some()
}

/// A legacy server's answer, in the words of the modern era.
pub(super) fn shown(request: &Request, link: &Link, method: &str, outcome: Outcome) -> Outcome {
    match outcome {
        Ok(result) => {
            let result = String::from_utf8_lossy(&result);
            let peer = link.peer_in(Era::Legacy);
            let extra = Modern {
                // A legacy server says nothing about caching.
                caching: (method == "resources/read").then_some((0, "private")),
                server_info: peer.and_then(|peer| peer.info.as_deref()),
            };
            Ok(era::to_modern_result(&result, extra).into())
        }
        Err(Refusal::Peer(error)) => {
            if let Some(questions) = era::url_questions(error.get()) {
                return Ok(visits(&questions).into());
            }
            let version = request.caller.version;
            Err(of_peer(era::error_for(
                &error,
                Era::Legacy,
                version,
                method,
            )))
        }
        Err(other) => Err(other),
    }
}

/// What a modern client is told when a legacy server wants URLs visited first. The server keeps no state
/// for it, so there is no `requestState`.
fn visits(questions: &[String]) -> String {
    let asked = questions.iter().enumerate().map(|(at, params)| {
        format!(
            r#""elicitation-{}":{{"method":"elicitation/create","params":{params}}}"#,
            at + 1
        )
    });
    let asked: Vec<String> = asked.collect();
    format!(
        r#"{{"resultType":"input_required","inputRequests":{{{}}}}}"#,
        asked.join(",")
    )
}
