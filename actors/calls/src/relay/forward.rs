//! A request on its way to a server that may speak another era than its caller.

use std::borrow::Cow;
use std::sync::Arc;

use mgp_engine::callers::request_ids::WireId;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::dialect::Era;
use mgp_protocol::era::{self, Modern};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::mention::may_mention;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::request_headers::{self, ParamHeader};
use mgp_protocol::splice::{Splice, member};
use serde_json::value::RawValue;

use super::Relay;
use super::tasks::{only_as_task, through_task};
use super::tracing::traced;
use mgp_callers::negotiation;
use mgp_callers::request::{Outcome, Request};
use mgp_servers::levels;
use mgp_servers::link::{Call, FinalCheck, Link, MirroredHeaders};

/// A request on its way to a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) server: &'a ServerId,
    /// FinalCheck of its caller, asked again right before it goes.
    pub(super) leave: Option<&'a dyn FinalCheck>,
    /// The tool that is called, when one is.
    pub(super) tool: Option<&'a CatalogTool>,
    pub(super) method: &'a str,
    pub(super) params: &'a str,
    /// They may hold what MGP puts beside the members that MCP knows.
    pub(super) of_mgp: bool,
    /// The part of `params` that names what is asked for, and the server's own name for it.
    pub(super) edit: (&'a str, &'a str),
    /// The client's progress token, borrowed from `params`.
    pub(super) token: Option<&'a RawValue>,
    /// What HTTP headers repeat of the body for servers of the modern era.
    pub(super) mirrored: Mirrored<'a>,
}

/// What is repeated in HTTP headers (MCP 2026-07-28, request metadata).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mirrored<'a> {
    /// The server's own name for what is asked for.
    pub(super) name: Option<&'a str>,
    /// Arguments the tool wants repeated.
    pub(super) arguments: Option<(&'a [ParamHeader], &'a str)>,
}

impl<'a> Mirrored<'a> {
    /// What is repeated is only the name.
    pub(super) fn named(name: &'a str) -> Self {
        Self {
            name: Some(name),
            arguments: None,
        }
    }
}

impl Relay {
    /// Calls a server; once more over a new connection when the first was gone before the server
    /// had looked at the request.
    pub(super) async fn forward(&self, request: &Request, outgoing: Outgoing<'_>) -> Outcome {
        match self.forward_once(request, outgoing).await {
            Err(refusal) if is_untaken(&refusal) => self.forward_once(request, outgoing).await,
            outcome => outcome,
        }
    }

    async fn forward_once(&self, request: &Request, outgoing: Outgoing<'_>) -> Outcome {
        let link = self.link(request, outgoing.server).await?;
        let caller = request.caller.version.era();
        let as_task = outgoing.tool.is_some_and(|tool| only_as_task(&link, tool));
        if !as_task {
            self.may_take_long(request, &link, outgoing.tool);
        }
        match (caller, link.era(caller)) {
            (Era::Modern, Era::Legacy) if as_task => {
                let through = through_task(request, &link, outgoing);
                Box::pin(through).await
            }
            (Era::Legacy, Era::Modern) => self.rounds(request, &link, outgoing).await,
            (Era::Modern, Era::Legacy) => down(request, &link, outgoing).await,
            (Era::Legacy, Era::Legacy) | (Era::Modern, Era::Modern) => {
                along(request, &link, outgoing, caller).await
            }
        }
    }
}

/// The connection was gone before the server had looked at the request.
pub(super) fn is_untaken(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotReady {
            retry_after_ms: Some(0),
            ..
        }
    )
}

/// Caller and server speak the same era: the payload goes through as it is.
pub(super) async fn along(
    request: &Request,
    link: &Arc<Link>,
    outgoing: Outgoing<'_>,
    era: Era,
) -> Outcome {
    let headers = outgoing.headers(era);
    let call = Call {
        caller: Some(&request.caller),
        exchange: &request.exchange,
        token: outgoing.token.map(RawValue::get),
        era,
        leave: outgoing.leave,
        mirror: outgoing.mirror(&headers),
    };
    let redeclared = match era {
        Era::Legacy => None,
        Era::Modern => {
            let (client, server) = (&request.caller.mgp, link.mgp_in(era));
            let consents = link.limits.consents;
            negotiation::redeclared(outgoing.params, client, server, consents)
        }
    };
    link.call(call, |id| {
        let mut splice = outgoing.spliced(Some(id));
        if let Some((said, instead)) = redeclared {
            splice.replace(said, instead);
        }
        traced(request, link, era, outgoing, &mut splice);
        frame(id, outgoing.method, splice)
    })
    .await
}

/// A modern caller, a legacy server. What the server asks meanwhile parks the call
/// (`doors`); here only shapes change.
async fn down(request: &Request, link: &Arc<Link>, outgoing: Outgoing<'_>) -> Outcome {
    // One of the kernel's leads back to a parked call and never comes here.
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
    let outcome = send(request, link, outgoing, Era::Legacy, &params).await;
    if let Some(aside) = aside {
        aside.late().await;
    }
    shown(request, link, outgoing.method, outcome)
}

fn is_said(params: &str, name: &str) -> bool {
    may_mention(params.as_bytes(), name) && member(params, name).is_some()
}

/// What a legacy server answered, as a modern caller is shown it.
pub(super) fn shown(request: &Request, link: &Link, method: &str, outcome: Outcome) -> Outcome {
    match outcome {
        Ok(result) => {
            let result = String::from_utf8_lossy(&result);
            let peer = link.peer_in(Era::Legacy);
            let extra = Modern {
                // A legacy server says nothing about keeping what it reads out.
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

/// What a modern client is told when a legacy server wants URLs visited first: nothing waits for it at
/// the server, so there is no `requestState`.
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

/// A peer's error, in the words of its caller's era.
pub(super) fn of_peer(error: Cow<'_, str>) -> Refusal {
    match RawValue::from_string(error.into_owned()) {
        Ok(error) => Refusal::Peer(error),
        Err(error) => Refusal::Broken(format!("an error that is no JSON: {error}")),
    }
}

/// Sends params that were made for this server.
pub(super) async fn send(
    request: &Request,
    link: &Arc<Link>,
    outgoing: Outgoing<'_>,
    era: Era,
    params: &str,
) -> Outcome {
    let outgoing = Outgoing { params, ..outgoing };
    let token = progress_token(params)?;
    let headers = outgoing.headers(era);
    let call = Call {
        caller: Some(&request.caller),
        exchange: &request.exchange,
        token: token.map(RawValue::get),
        era,
        leave: outgoing.leave,
        mirror: outgoing.mirror(&headers),
    };
    link.call(call, |id| {
        let mut splice = Splice::new(params);
        if let Some(token) = token {
            splice.replace(token.get(), id.to_string());
        }
        traced(request, link, era, outgoing, &mut splice);
        frame(id, outgoing.method, splice)
    })
    .await
}

impl<'a> Outgoing<'a> {
    /// The params under the server's own name, and, with the id of the call, its progress token.
    pub(super) fn spliced(&self, id: Option<WireId>) -> Splice<'a> {
        let mut splice = Splice::new(self.params);
        let (part, json) = self.edit;
        if part != json {
            splice.replace(part, json);
        }
        if let (Some(token), Some(id)) = (self.token, id) {
            splice.replace(token.get(), id.to_string());
        }
        splice
    }

    /// The arguments a modern server wants repeated in headers.
    fn headers(&self, era: Era) -> Vec<(String, String)> {
        match (era, self.mirrored.arguments) {
            (Era::Modern, Some((headers, arguments))) if !headers.is_empty() => {
                let said = request_headers::param_headers(headers, Some(arguments)).into_iter();
                said.map(|(name, value)| (name.to_owned(), value)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn mirror<'m>(&self, params: &'m [(String, String)]) -> MirroredHeaders<'m>
    where
        'a: 'm,
    {
        MirroredHeaders {
            method: self.method,
            name: self.mirrored.name,
            params,
        }
    }
}

/// Writes a request frame; the payload is copied once.
fn frame(id: WireId, method: &str, params: Splice<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + method.len() + params.size());
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.to_string().as_bytes());
    out.extend_from_slice(br#","method":""#);
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(br#"","params":"#);
    params.append_to(&mut out);
    out.push(b'}');
    out
}
