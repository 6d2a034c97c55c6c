//! Authorizes a call before any handler sees it: its caller, its server, and that the method is allowed for
//! agents of other nodes.

use bytes::Bytes;
use bytestring::ByteString;
use mgp_cluster::links::PeerLink;
use mgp_engine::calls::extensions::is_relayable_method;
use mgp_engine::cluster::assertions::AssertionError;
use mgp_engine::cluster::remote_requests::{self, RemoteTarget};
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::{Dialect, Version};
use mgp_protocol::federation::call::{CallHeader, CallRejection};
use mgp_protocol::federation::frames::StreamKind;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp::subscriptions::Listen;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::events::Subscribe;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use crate::endpoint_context::EndpointContext;
use crate::stateless::{self, RequestMeta};
use mgp_callers::request::identity;
use mgp_engine::policy::access::ClaimedGroups;
use mgp_runtime::trace::Trace;

/// The MGP extensions for a caller of one server of this node: those of its call, and none about this
/// kernel, its servers and its other agents.
const OFFERED_FEATURES: Features = Features::TOOL_SECURITY
    .union(Features::STREAMING)
    .union(Features::PROGRESS)
    .union(Features::CALLBACKS)
    .union(Features::EVENTS)
    .union(Features::ERROR_HANDLING);

/// The decision about a call.
pub(super) enum Authorization {
    /// Rejected as the node.
    RefusedByNode(CallRejection),
    /// Refused as by any server.
    RefusedByServer(Refusal, Dialect),
    /// Accepted.
    Accepted(Box<AuthorizedCall>),
}

/// An authorized request.
pub(super) struct AuthorizedCall {
    pub(super) agent: AgentId,
    pub(super) server: ServerId,
    pub(super) id: RequestId,
    pub(super) method: ByteString,
    pub(super) params: ByteString,
    pub(super) trace: Trace,
    pub(super) meta: RequestMeta,
}

/// True for a notification that this caller may send.
pub(super) fn can_notify(caller: &AgentId, method: &str) -> bool {
    remote_requests::is_allowed(caller, RemoteTarget::Notification(method))
}

pub(super) fn authorize(
    context: &EndpointContext,
    peer: &PeerLink,
    header: &CallHeader,
    params: Bytes,
    kind: StreamKind,
) -> Authorization {
    if !is_allowed_on_stream(&header.method, kind) {
        let why = format!("{} has no turn of this kind", header.method);
        return Authorization::RefusedByNode(CallRejection::Malformed { why });
    }
    let (agent, server) = match resolve_call(peer, header) {
        Ok(called) => called,
        Err(refused) => return Authorization::RefusedByNode(refused),
    };
    let Ok(params) = ByteString::try_from(params) else {
        let why = "its parameters are not UTF-8".to_owned();
        return Authorization::RefusedByNode(CallRejection::Malformed { why });
    };
    let method = header.method.as_str();
    // Nothing has parsed them before.
    let read = mcp::parse_params::<&RawValue>(Some(&params))
        .and_then(|_| stateless::parse_request_meta(method, Some(&params)));
    let dialect = match &read {
        Ok((stated, _)) => stated.dialect(),
        Err(_) => Version::STATELESS.into(),
    };
    let authorized = read.and_then(|(mut stated, _)| {
        stated.check_version()?;
        stated.mgp = stated.mgp.restrict_to(OFFERED_FEATURES);
        check_access(context, header, &agent, &server)?;
        Ok(stated)
    });
    match authorized {
        Err(refusal) => Authorization::RefusedByServer(refusal, dialect),
        Ok(stated) => Authorization::Accepted(Box::new(AuthorizedCall {
            agent,
            server,
            id: RequestId::from(header.request),
            method: method.into(),
            trace: call_trace(header, &params),
            params,
            meta: stated,
        })),
    }
}

/// True if a method may use a permit of this kind: long-lived requests use none of the others'.
fn is_allowed_on_stream(method: &str, kind: StreamKind) -> bool {
    match kind {
        StreamKind::Call => method != Subscribe::METHOD,
        StreamKind::Listen => method == Listen::METHOD,
        StreamKind::Follow => method == Subscribe::METHOD,
        StreamKind::Control | StreamKind::Sync => false,
    }
}

/// Resolves the caller and the server.
fn resolve_call(
    peer: &PeerLink,
    header: &CallHeader,
) -> Result<(AgentId, ServerId), CallRejection> {
    let malformed = |why: &str| CallRejection::Malformed { why: why.into() };
    let server = header.server.as_deref();
    let server = server.ok_or_else(|| malformed("it names no server"))?;
    let server = ServerId::parse(server).map_err(|bad| malformed(&bad.to_string()))?;
    let agent = match header.assertion {
        None => AgentId::for_node(peer.link.peer()),
        Some(id) => {
            let caller = peer.resolve_caller(id, header.signed.as_ref());
            let caller = caller.map_err(|not| match not {
                AssertionError::Unknown => CallRejection::UnknownAssertion,
                AssertionError::Unreadable
                | AssertionError::LinkMismatch
                | AssertionError::BadSignature
                | AssertionError::Expired
                | AssertionError::LifetimeTooLong
                | AssertionError::Reused
                | AssertionError::IdMismatch
                | AssertionError::Agent(_) => CallRejection::BadAssertion {
                    why: not.to_string(),
                },
            })?;
            AgentId::from_node_agent(&caller)
        }
    };
    Ok((agent, server))
}

/// Checks whether the caller may send this request. Tool calls are checked and recorded like those of other
/// agents; for all other requests a server that is closed to the caller does not exist.
fn check_access(
    context: &EndpointContext,
    header: &CallHeader,
    agent: &AgentId,
    server: &ServerId,
) -> Result<(), Refusal> {
    let method = header.method.as_str();
    let is_open = |target| remote_requests::is_allowed(agent, target);
    let is_extension = || is_relayable_method(method) && is_open(RemoteTarget::ExtensionMethod);
    if !is_open(RemoteTarget::Method(method)) && !is_extension() {
        return Err(Refusal::UnknownMethod(method.to_owned()));
    }
    let view = CatalogView::One(server.clone());
    let knows = || {
        context.routes.is_view_known(
            &view,
            &identity(agent, false, &view, &ClaimedGroups::default()),
        )
    };
    if method == "tools/call" || knows() {
        Ok(())
    } else {
        let by_agent = header.assertion.is_some();
        let why = context.routes.foreign_closure_reason().filter(|_| by_agent);
        let why = why
            .unwrap_or_else(|| "it is not shared with that node, or no grant allows it".to_owned());
        Err(Refusal::ClosedByOwner(format!(
            "server {server} of this node is not open to {agent}: {why}"
        )))
    }
}

/// The trace in the params, which a node forwards, or the one in the header.
fn call_trace(header: &CallHeader, params: &str) -> Trace {
    let in_params = Trace::from_params(Some(params), None);
    if in_params.is_caller_supplied {
        return in_params;
    }
    let in_header = serde_json::json!({"trace_id": header.trace}).to_string();
    Trace::from_params(Some(&in_header), None)
}
