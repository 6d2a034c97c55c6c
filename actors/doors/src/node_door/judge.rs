//! What of a call is known before any handler sees it: who calls, which server, and that the method is one for
//! agents of other nodes.

use bytes::Bytes;
use bytestring::ByteString;
use mgp_cluster::links::PeerLink;
use mgp_engine::cluster::assertions::NotBelieved;
use mgp_engine::cluster::remote_requests::{self, RemoteTarget};
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::{Dialect, Version};
use mgp_protocol::federation::call::{CallHeader, CallRefused};
use mgp_protocol::federation::frames::StreamKind;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcp::subscriptions::Listen;
use mgp_protocol::mgp::events::Subscribe;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::Refusal;

use crate::reception::Reception;
use crate::stateless::{self, Stated};
use mgp_callers::request::identity;
use mgp_runtime::trace::Trace;

/// The parts of MGP there are for a caller of one server of this node: what belongs to its call. None of what
/// is about this kernel, its servers and its other agents.
const OFFERED: Features = Features::TOOL_SECURITY
    .and(Features::STREAMING)
    .and(Features::PROGRESS)
    .and(Features::CALLBACKS)
    .and(Features::EVENTS)
    .and(Features::ERROR_HANDLING);

/// What is to be done with a call.
pub(super) enum Judgement {
    /// Nothing: the node says so.
    Refused(CallRefused),
    /// Nothing: the caller is told so as by any server.
    Answered(Refusal, Dialect),
    /// It is made.
    Taken(Box<JudgedCall>),
}

/// A request that may be handled.
pub(super) struct JudgedCall {
    pub(super) agent: AgentId,
    pub(super) server: ServerId,
    pub(super) id: RequestId,
    pub(super) method: ByteString,
    pub(super) params: ByteString,
    pub(super) trace: Trace,
    pub(super) stated: Stated,
}

/// True for a notification that is read of this caller.
pub(super) fn may_notify(caller: &AgentId, method: &str) -> bool {
    remote_requests::allows(caller, RemoteTarget::Notification(method))
}

pub(super) fn judge(
    reception: &Reception,
    peer: &PeerLink,
    header: &CallHeader,
    params: Bytes,
    kind: StreamKind,
) -> Judgement {
    if !is_its_turn(&header.method, kind) {
        let why = format!("{} has no turn of this kind", header.method);
        return Judgement::Refused(CallRefused::Malformed { why });
    }
    let (agent, server) = match called(peer, header) {
        Ok(called) => called,
        Err(refused) => return Judgement::Refused(refused),
    };
    let Ok(params) = ByteString::try_from(params) else {
        let why = "its parameters are not UTF-8".to_owned();
        return Judgement::Refused(CallRefused::Malformed { why });
    };
    let method = header.method.as_str();
    let read = stateless::read(method, Some(&params));
    let dialect = match &read {
        Ok((stated, _)) => stated.dialect(),
        Err(_) => Version::MODERN.into(),
    };
    let judged = read.and_then(|(mut stated, _)| {
        stated.check_version()?;
        stated.mgp = stated.mgp.only(OFFERED);
        open(reception, header, &agent, &server)?;
        Ok(stated)
    });
    match judged {
        Err(refusal) => Judgement::Answered(refusal, dialect),
        Ok(stated) => Judgement::Taken(Box::new(JudgedCall {
            agent,
            server,
            id: RequestId::from(header.request),
            method: method.into(),
            trace: trace(header, &params),
            params,
            stated,
        })),
    }
}

/// Whether a method may have a turn of this kind: what lasts takes none of what does not.
fn is_its_turn(method: &str, kind: StreamKind) -> bool {
    match kind {
        StreamKind::Call => method != Subscribe::METHOD,
        StreamKind::Listen => method == Listen::METHOD,
        StreamKind::Follow => method == Subscribe::METHOD,
        StreamKind::Control | StreamKind::Sync => false,
    }
}

/// Who calls which server.
fn called(peer: &PeerLink, header: &CallHeader) -> Result<(AgentId, ServerId), CallRefused> {
    let malformed = |why: &str| CallRefused::Malformed { why: why.into() };
    let server = header.server.as_deref();
    let server = server.ok_or_else(|| malformed("it names no server"))?;
    let server = ServerId::parse(server).map_err(|bad| malformed(&bad.to_string()))?;
    let agent = match header.assertion {
        None => AgentId::node_itself(peer.link.peer()),
        Some(id) => {
            let caller = peer.caller(id, header.signed.as_ref());
            let caller = caller.map_err(|not| match not {
                NotBelieved::Unknown => CallRefused::UnknownAssertion,
                NotBelieved::Unreadable
                | NotBelieved::OtherLink
                | NotBelieved::Forged
                | NotBelieved::Expired
                | NotBelieved::TooLong
                | NotBelieved::Reused
                | NotBelieved::OtherId
                | NotBelieved::Agent(_) => CallRefused::BadAssertion {
                    why: not.to_string(),
                },
            })?;
            AgentId::of_node(&caller)
        }
    };
    Ok((agent, server))
}

/// Whether the caller may ask this at all. Calls of tools are judged, and recorded, where those of other agents
/// are; of everything else a server that is not open to the caller does not exist.
fn open(
    reception: &Reception,
    header: &CallHeader,
    agent: &AgentId,
    server: &ServerId,
) -> Result<(), Refusal> {
    let method = header.method.as_str();
    if !remote_requests::allows(agent, RemoteTarget::Method(method)) {
        return Err(Refusal::UnknownMethod(method.to_owned()));
    }
    let view = CatalogView::One(server.clone());
    let knows = || {
        reception
            .routes
            .knows(&view, &identity(agent, false, &view))
    };
    match method == "tools/call" || knows() {
        true => Ok(()),
        false => {
            let by_agent = header.assertion.is_some();
            let why = reception.routes.lapse().filter(|_| by_agent);
            let why = why.unwrap_or_else(|| {
                "it is not shared with that node, or no grant allows it".to_owned()
            });
            Err(Refusal::Closed(format!(
                "server {server} of this node is not open to {agent}: {why}"
            )))
        }
    }
}

/// The trace in the params, which a node passes on, or the one in the header.
fn trace(header: &CallHeader, params: &str) -> Trace {
    let in_params = Trace::of(Some(params), None);
    if in_params.said {
        return in_params;
    }
    let in_header = serde_json::json!({"trace_id": header.trace}).to_string();
    Trace::of(Some(&in_header), None)
}
